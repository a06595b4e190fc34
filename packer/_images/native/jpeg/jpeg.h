/* Declarations shared by the parts of the JPEG decoder; see decoding.h for its interface. */

#ifndef PACKER_JPEG_H
#define PACKER_JPEG_H

#include "geometry.h"
#include "jpeg/zigzag.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    LOOK = 10,   /* bits that index a table */
    LENGTHS = 16, /* of codes, in bits, at most */
    COMPONENTS = 4, /* at most */
    BLOCKS = 10, /* at most, of an MCU */
    BLOCK_BYTES = 64 * 27 / 8, /* at most, as codes and values have up to 16 + 11 bits */
    BEYOND = 16, /* bytes that may be read after those of an MCU */
    CHUNK = 8192 /* bytes of the scan that are copied at a time */
};

/* A table entry of a code. The lowest 6 bits are the length of the code and its value together; the bits from RUN on,
   the number of zeros before the value; the bits from SIZE on, the length of the value, 0 if there is none. The upper
   half is an addend: added to the bits of the code and the value, it gives the value in the lower 16 bits of the sum,
   because it removes the code and takes the sign into account. 0 is no code. */
typedef uint32_t Symbol;

enum { RUN = 8, SIZE = 12, HAS_VALUE = 15 << SIZE };

/* The result of one table look-up by the next bits of a block: one coefficient; or two, if these bits contain all of the
   first one; or the end of the block, possibly after a coefficient. So most look-ups decode more than one symbol. A step
   is one number, so that processors load it at once. The lowest 6 bits are the length of all its codes and values. The
   bits from ONWARD on are the number of coefficients by which it advances, plus AT_END if the block ends; or they are
   SINGLY if one symbol must be decoded without a step. The bits from ZEROS on are the zeros before the first of two
   coefficients, and the bits from FIRST on are this coefficient. Both are 0 if there are not two: the 0 that is then
   stored is replaced, or changes nothing. The upper 16 bits are the addend for the last coefficient, as in a Symbol. */
typedef uint64_t Step;

enum { ONWARD = 8, ZEROS = 16, FIRST = 32, ADDER = 48, SINGLY = 64, AT_END = 128 };

typedef struct {
    Symbol look[1 << LOOK]; /* by the next bits; 0 if these do not contain the code and the first bit of its value */
    uint32_t end[17];       /* by length: the first 16 bits after all codes up to this length */
    int32_t symbol[17];     /* by length: the index of the first code's symbol, minus the code */
    Symbol symbols[256];    /* in the order of the codes, for negative values */
    uint8_t says[LENGTHS + 256]; /* the definition: the number of codes of each length, and all symbols */
    int size;                    /* of the definition; 0 before the table is prepared */
    int defined;                 /* whether this image defines the table */
    union {
        _Alignas(8) Step steps[1 << LOOK]; /* of AC tables, by the next bits */
        uint32_t words[2 << LOOK]; /* the same: the lower half of each, then the upper one */
    };
    int has_steps;                     /* whether the steps are prepared; only sequential scans need them */
    int has_runs; /* whether a code ends several blocks, as only in progressive scans */
} Table;

/* The upsampling of a component to the size of the image; see `upsampling_of` in decoding.c. */
typedef enum { AS_IT_IS, SMOOTH, SMOOTH_DOWN, REPEATED } Upsampling;

typedef struct {
    ptrdiff_t across, down; /* sampling factors: blocks of an MCU */
    ptrdiff_t wide, tall;   /* pixels that a sample covers */
    ptrdiff_t width, height; /* samples */
    Upsampling upsampling;
    ptrdiff_t begin;        /* the first sample of the rectangle in a row of the plane */
    ptrdiff_t stride, mask; /* bytes of a row of the plane; a mask for its rows, whose number is a power of two */
    uint8_t *plane;
    const int16_t *quantum;
    const Table *dc, *ac;
    int id;
    /* Only progressive images use the following. */
    int16_t *coefficients; /* of the blocks of the requested MCUs, row by row */
    uint64_t *nonzero;     /* of each block, which coefficients are not 0; see FLAG in progressive.c */
    int8_t lowest[64]; /* the lowest bit of each coefficient in the scans so far, in zigzag order; -1 before the first scan */
} Component;

typedef struct { /* the contents of a scan: coefficients `first` to `last`, down to the bit `low` */
    Component *components[COMPONENTS];
    int count;
    int first, last, low;
    int refines; /* whether earlier scans had the bits above `low` */
    ptrdiff_t rows, columns; /* MCUs; in a scan of one component, an MCU is a block */
} Scan;

typedef struct { /* bits of the scan: the next one is the uppermost of `bits` */
    uint64_t bits;
    unsigned count; /* of valid bits, in its lowest 6 bits; the upper ones have no meaning */
    const uint8_t *next;
} Bits;

typedef struct { /* the position of the decoder in the scan */
    const uint8_t *from;    /* the bytes after those in `chunk`, up to the decoder's `stop` */
    ptrdiff_t segment, mcu; /* the segment between restart markers; the next MCU */
    int ended;              /* whether `chunk` has all remaining bytes of the segment */
    const uint8_t *end;     /* of the bytes in `chunk` */
    Bits at;
    int predictions[COMPONENTS]; /* of the next block of each component */
    uint8_t chunk[CHUNK + BLOCKS * BLOCK_BYTES + BEYOND];
} Stream;

typedef enum { GREY, YCC, CMYK, YCCK } Colours;

typedef struct Decoder {
    /* Headers. */
    Table tables[2][4];     /* DC, AC */
    int16_t quanta[4][64];  /* row by row, like the coefficients */
    unsigned quantised;     /* the defined ones of these, as bits */
    Component components[COMPONENTS];
    int count;                /* of components: 1, 3 or 4 */
    Colours colours;
    int progressive;
    ptrdiff_t height, width;  /* pixels */
    ptrdiff_t interval;       /* MCUs between two restart markers; 0 without them */
    ptrdiff_t across, down;   /* the largest sampling factors */
    ptrdiff_t rows, columns;  /* MCUs */
    /* The scan. */
    Scan scan;
    const uint8_t *from, *stop; /* its first byte; the end of the data */
    ptrdiff_t mcus;             /* of the scan */
    Stream streams[2];          /* the second one if two rows are decoded together */
    int current;                /* the stream that continues with the next row */
    /* Samples and pixels. */
    uint8_t *memory;
    ptrdiff_t size;
    uint8_t *stored; /* coefficients of a progressive image */
    size_t stored_size;
} Decoder;

/* tables.c: prepare_table builds a table from its definition: the number of codes of each of 16 lengths, then the
   symbols in the order of their codes. It returns 0 if the definition is invalid. prepare_steps adds the steps to an AC
   table, unless it has them. */
int prepare_table(Table *table, const uint8_t *says, int size, int is_ac);
void prepare_steps(Table *ac);

/* headers.c: reads everything up to the first scan of a JPEG of d->height * d->width pixels. Returns 0 if this decoder
   does not support the JPEG. */
int read_headers(Decoder *d, const uint8_t *data, ptrdiff_t size);

/* headers.c: reads the markers after a scan of a progressive image. */
typedef enum { UNKNOWN, ANOTHER_SCAN, NO_MORE_SCANS } After;
After read_after_scan(Decoder *d, const uint8_t *at);

/* segments.c: begin_scan goes to the first MCU of the scan, enter_segment to that of a later segment; fill copies more
   of the segment's bytes to the chunk. They return 0 if a segment does not end with the expected marker. */
int begin_scan(Decoder *d);
int enter_segment(const Decoder *d, Stream *s, ptrdiff_t segment);
int fill(const Decoder *d, Stream *s);

/* scan.c: decodes the requested MCUs of a row, or of two rows if `rows_go_together` allows it, into the planes of
   samples. The rows must come in order. Returns 0 if the scan is damaged. */
int rows_go_together(const Decoder *d);
int decode_rows(Decoder *d, const Window *window, ptrdiff_t row, int rows);

/* progressive.c: is_plausible tells whether there are enough data for the size of the image, and not too many scans.
   make_room_for_coefficients allocates the coefficients of the requested MCUs, and returns 0 without memory.
   decode_scans decodes them, and returns 0 if a scan is damaged or data are missing. transform_mcus converts those of a
   row of MCUs to samples, once. */
int is_plausible(const Decoder *d);
int make_room_for_coefficients(Decoder *d, const Window *window);
int decode_scans(Decoder *d, const Window *window);
void transform_mcus(const Decoder *d, const Window *window, ptrdiff_t row);

/* Returns a row of a component's samples. A plane is a ring buffer for two or four rows of MCUs, or a few more:
   upsampling needs no more, and so few stay in the caches. */
static inline uint8_t *
samples_of(const Component *c, ptrdiff_t row)
{
    return c->plane + (row & c->mask) * c->stride;
}

/* Writes the samples of a block that has only the first coefficient; they equal those of the transform. */
static inline void
fill_block(int dc, uint8_t *to, ptrdiff_t stride)
{
    int sample = (((int16_t)(dc * 4) + 16) >> 5) + 128;
    sample = sample < 0 ? 0 : sample > 255 ? 255 : sample;
    for (int row = 0; row < 8; row++, to += stride)
        memset(to, sample, 8);
}

#endif
