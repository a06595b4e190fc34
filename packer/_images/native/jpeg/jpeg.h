/* Declarations shared by the parts of the JPEG decoder; see decoding.h for its interface. */

#ifndef PACKER_JPEG_H
#define PACKER_JPEG_H

#include "geometry.h"
#include "jpeg/zigzag.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    LOOK = 10,   /* bits of code that one look in a table knows */
    LENGTHS = 16, /* of codes, in bits */
    COMPONENTS = 4, /* at most */
    BLOCKS = 10, /* at most, of an MCU */
    BLOCK_BYTES = 64 * 27 / 8, /* at most, of codes and values of 16 + 11 bits */
    BEYOND = 16, /* bytes that may be read after those of an MCU */
    CHUNK = 8192 /* bytes of the scan that are at hand */
};

/* A table entry of a code: in the lowest 6 bits the length of the code and its value; from bit RUN on the zeros before the
   value; from bit SIZE on how many bits the value has, 0 where there is none; in the upper half what makes the value of all
   these bits, when that is added to them and 16 bits of the sum are kept: it takes the code away, and knows the sign. 0 is no
   code. */
typedef uint32_t Symbol;

enum { RUN = 8, SIZE = 12, HAS_VALUE = 15 << SIZE };

/* The next bits of a block, decoded: a coefficient; or two, the first of which these bits hold; or that it ends, and maybe the
   coefficient before. So most looks are worth more than a symbol. A step is one number, for processors to load it at once: in the
   lowest 6 bits how many all codes and values have together; from bit ONWARD on by how much the index of the next coefficient
   grows, and AT_END more where the block ends, SINGLY where one symbol is to be decoded on its own; from bit ZEROS on the zeros
   before the coefficient that these bits hold; from bit FIRST on this coefficient, or 0 where there is none, for another one to
   replace; in the upper 16 bits what makes the last one of all its bits, as in a Symbol. */
typedef uint64_t Step;

enum { ONWARD = 8, ZEROS = 16, FIRST = 32, ADDER = 48, SINGLY = 64, AT_END = 128 };

typedef struct {
    Symbol look[1 << LOOK]; /* by the next bits; 0 where these do not hold the code and the first bit of its value */
    uint32_t end[17];       /* first 16 bits that are too large to begin with a code of so many bits or fewer */
    int32_t symbol[17];     /* minus the first code of so many bits plus the index of its symbol */
    Symbol symbols[256];    /* with negative values */
    uint8_t says[LENGTHS + 256]; /* its definition: the number of codes of each length, and all symbols */
    int size;                    /* of that; 0 where nothing was made yet */
    int defined;                 /* by this image */
    union {
        _Alignas(8) Step steps[1 << LOOK]; /* of AC: by the next bits */
        uint32_t words[2 << LOOK]; /* the same: the lower half of each, then the upper one */
    };
    int has_steps;                     /* whether they were prepared, as sequential scans need them */
    int has_runs; /* whether a code says how many blocks end, as those of progressive scans may */
} Table;

/* The upsampling of a component to the size of the image; see `upsampling_of` in decoding.c. */
typedef enum { AS_IT_IS, SMOOTH, SMOOTH_DOWN, REPEATED } Upsampling;

typedef struct {
    ptrdiff_t across, down; /* sampling factors: blocks of an MCU */
    ptrdiff_t wide, tall;   /* pixels, for which a sample stands */
    ptrdiff_t width, height; /* samples */
    Upsampling upsampling;
    ptrdiff_t begin;        /* in a row of the plane, the first sample for the rectangle */
    ptrdiff_t stride, mask; /* of the plane of samples; of its rows, whose number is a power of two */
    uint8_t *plane;
    const int16_t *quantum;
    const Table *dc, *ac;
    int id;
    /* A progressive image alone has these. */
    int16_t *coefficients; /* of the blocks of the wanted MCUs, row by row */
    uint64_t *nonzero;     /* of all blocks; see FLAG in progressive.c */
    int8_t lowest[64]; /* the lowest bit that has come of each coefficient, in zigzag order; -1 where none has */
} Component;

typedef struct { /* what a scan brings: coefficients `first` to `last`, down to the bit `low` */
    Component *components[COMPONENTS];
    int count;
    int first, last, low;
    int refines; /* whether the bits above have come before */
    ptrdiff_t rows, columns; /* MCUs; of one component, an MCU is a block */
} Scan;

typedef struct { /* bits of the scan: the next one is the uppermost of `bits` */
    uint64_t bits;
    unsigned count; /* of them that are at hand, in its lowest 6 bits; those above say nothing */
    const uint8_t *next;
} Bits;

typedef struct { /* where in the scan decoding has come to */
    const uint8_t *from;    /* the unread bytes; ends at the decoder's `stop` */
    ptrdiff_t segment, mcu; /* the segment, of those that markers end; the next MCU */
    int ended;              /* whether all bytes of the segment are at hand */
    const uint8_t *end;     /* of the bytes at hand */
    Bits at;
    int predictions[COMPONENTS]; /* of the next block of each component */
    uint8_t chunk[CHUNK + BLOCKS * BLOCK_BYTES + BEYOND];
} Stream;

typedef enum { GREY, YCC, CMYK, YCCK } Colours;

typedef struct Decoder {
    /* Headers. */
    Table tables[2][4];     /* DC, AC */
    int16_t quanta[4][64];  /* in the order of the coefficients */
    unsigned quantised;     /* which of these there are */
    Component components[COMPONENTS];
    int count;                /* of components: 1, 3 or 4 */
    Colours colours;
    int progressive;
    ptrdiff_t height, width;  /* pixels */
    ptrdiff_t interval;       /* MCUs between two markers; 0 without them */
    ptrdiff_t across, down;   /* blocks of an MCU, of the component that has the most of them */
    ptrdiff_t rows, columns;  /* MCUs */
    /* The scan. */
    Scan scan;
    const uint8_t *from, *stop; /* it lies between these */
    ptrdiff_t mcus;             /* of the scan */
    Stream streams[2];          /* two where two rows are decoded together */
    int current;                /* which of them goes on with the next row */
    /* Samples and pixels. */
    uint8_t *memory;
    ptrdiff_t size;
    uint8_t *stored; /* coefficients of a progressive image */
    size_t stored_size;
} Decoder;

/* tables.c: prepares a table: how many codes there are of each of 16 lengths, then the symbols in the order of their codes; 0
   where they are none of a JPEG's. Prepares the steps of a table of AC, once. */
int prepare_table(Table *table, const uint8_t *says, int size, int is_ac);
void prepare_steps(Table *ac);

/* headers.c: reads everything up to the first scan of a JPEG of d->height * d->width pixels; 0 where it is not one that this
   decoder knows. */
int read_headers(Decoder *d, const uint8_t *data, ptrdiff_t size);

/* headers.c: reads the markers after a scan of a progressive image. */
typedef enum { UNKNOWN, ANOTHER_SCAN, NO_MORE_SCANS } After;
After read_after_scan(Decoder *d, const uint8_t *at);

/* segments.c: goes to the first MCU of the scan, or to that of a segment after the present one; brings more of the segment's
   bytes. 0 where the segment does not end with the marker that belongs there. */
int begin_scan(Decoder *d);
int enter_segment(const Decoder *d, Stream *s, ptrdiff_t segment);
int fill(const Decoder *d, Stream *s);

/* scan.c: decodes the wanted MCUs of a row, or of two where `rows_go_together` says that they can be, after those that were
   decoded before, into the planes of samples. 0 where the scan is damaged. */
int rows_go_together(const Decoder *d);
int decode_rows(Decoder *d, const Window *window, ptrdiff_t row, int rows);

/* progressive.c: tells whether the data may be those of so large an image; makes room for the coefficients of the wanted MCUs,
   0 without memory; decodes them, 0 where a scan is damaged or something is missing; makes samples of those of a row of
   MCUs, once. */
int is_plausible(const Decoder *d);
int make_room_for_coefficients(Decoder *d, const Window *window);
int decode_scans(Decoder *d, const Window *window);
void transform_mcus(const Decoder *d, const Window *window, ptrdiff_t row);

/* Returns a row of a component's samples. The planes hold two or four rows of MCUs, or some more, one after the other in turn:
   upsampling looks no further, and so much stays in the caches. */
static inline uint8_t *
samples_of(const Component *c, ptrdiff_t row)
{
    return c->plane + (row & c->mask) * c->stride;
}

/* Makes the samples of a block that has no other coefficient than the first: what the transform gives of it. */
static inline void
fill_block(int dc, uint8_t *to, ptrdiff_t stride)
{
    int sample = (((int16_t)(dc * 4) + 16) >> 5) + 128;
    sample = sample < 0 ? 0 : sample > 255 ? 255 : sample;
    for (int row = 0; row < 8; row++, to += stride)
        memset(to, sample, 8);
}

#endif
