/* Parses the whole structure of a Huffman-coded JPEG strictly: its segments, its frame, its scans (ITU-T T.81, annex
   B).

   Decoders are lenient, each in its own way. Everything that one of them would skip, guess or repair is refused here,
   so that an accepted JPEG means the same to all of them. headers.c reads the headers of fewer JPEGs, for packer's own
   decoder. */

#ifndef PACKER_STRUCTURE_H
#define PACKER_STRUCTURE_H

#include <stddef.h>
#include <stdint.h>

typedef const char *Problem; /* why an image cannot be made tiled, or NULL; `no_memory` is no fault of the image */

extern const char no_memory[];

enum { COMPONENTS = 3, MCU_BLOCKS = 10 }; /* at most, of a frame; of an MCU (T.81, B.2.3) */

typedef struct {
    /* `across`, `down`: the sampling factors; 1 if there is one component, because an MCU is then a block (T.81, A.2.2) */
    int id, across, down;
    int quantisation;     /* the number of its table */
} FrameComponent;

typedef struct {
    const uint8_t *segment, *end; /* the frame's header in the file, from its marker on; NULL before it is read */
    int progressive;
    ptrdiff_t height, width; /* pixels */
    int count;               /* of components: 1 or 3 */
    FrameComponent components[COMPONENTS];
    int most_across, most_down; /* the largest sampling factors: blocks of an MCU of all components */
    ptrdiff_t across, down;     /* the number of such MCUs */
} Frame;

typedef struct { /* a scan's header, with the tables and the interval that apply to it */
    int count, components[COMPONENTS]; /* of the frame's, in the scan's order */
    /* The definition of each component's Huffman table: the number of codes of each of 16 lengths, then the symbols in
       the order of their codes. NULL if the table was not defined. */
    const uint8_t *dc[COMPONENTS], *ac[COMPONENTS];
    int first, last, high, low; /* Ss, Se, Ah, Al */
    ptrdiff_t interval;         /* MCUs in a restart interval; 0 without restarts */
    const uint8_t *data;        /* where its entropy-coded data begin; NULL if the image has ended instead */
} Scan;

typedef struct { /* walks through a JPEG from scan to scan */
    /* Before each call of `next_scan`, the caller sets `at` to the end of the last scan; after the last scan, it is the
       end of the image. */
    const uint8_t *at, *stop;
    int scans;
    ptrdiff_t interval;
    const uint8_t *tables[2][4];    /* Huffman tables as in a Scan: DC, AC */
    const uint8_t *quantisation[4]; /* an entry of a DQT segment: its precision and number, and its values */
    Frame frame;
    uint8_t *metadata; /* all APPn and COM segments except a tile segment; has room for all bytes of the file */
    ptrdiff_t metadata_size;
    char said[32]; /* memory for a problem that includes a number */
} Walk;

/* Begins a walk after the first marker. */
void begin_walk(Walk *walk, const uint8_t *data, ptrdiff_t size, uint8_t *metadata);

/* Reads the segments up to the next scan, or to the end of the image. */
Problem next_scan(Walk *walk, Scan *scan);

/* Returns how many bytes an entry of a DQT segment has. */
ptrdiff_t size_of_quantisation(const uint8_t *entry);

/* Returns how many symbols a Huffman table has. */
int symbols_of(const uint8_t *table);

#endif
