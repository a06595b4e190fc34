/* What the parts of the decoder share; see decoding.h for what it does. */

#ifndef PACKER_JPEG_H
#define PACKER_JPEG_H

#include "geometry.h"

#include <stddef.h>
#include <stdint.h>

enum {
    LOOK = 10,   /* bits of code that one look in a table knows */
    BLOCKS = 6,  /* at most, of an MCU */
    MCU_BYTES = BLOCKS * 64 * 27 / 8 + 16, /* at most, of codes and values of 16 + 11 bits, and what is read beyond */
    CHUNK = 8192 /* bytes of the scan that are at hand */
};

/* What a code says: in the lowest byte how many bits it and the value after it have, in the next the zeros before the
   value, in the upper half the least value of so many bits: 1 - 2^bits. 0 is no code. */
typedef int32_t Symbol;

typedef struct {
    Symbol look[1 << LOOK]; /* by the next bits; 0 for longer codes */
    int32_t end[17];        /* first code that is too large to be one of so many bits */
    int32_t symbol[17];     /* minus the first code of so many bits plus the index of its symbol */
    Symbol symbols[256];
    int defined;
} Table;

typedef struct {
    ptrdiff_t across, down; /* sampling factors: blocks of an MCU */
    ptrdiff_t stride, mask; /* of the plane of samples; of its rows, whose number is a power of two */
    uint8_t *plane;
    const int16_t *quantum;
    const Table *dc, *ac;
    int id;
} Component;

typedef struct { /* bits of the scan: the next one is the uppermost of `bits` */
    uint64_t bits;
    int count;
    const uint8_t *next;
} Bits;

typedef struct { /* where in the scan decoding has come to */
    const uint8_t *from;    /* what was not yet looked at; ends at the decoder's `stop` */
    ptrdiff_t segment, mcu; /* the segment, of those that markers end; the next MCU */
    int ended;              /* whether all bytes of the segment are at hand */
    const uint8_t *end;     /* of the bytes at hand */
    Bits at;
    int predictions[3];     /* of the next block of each component */
    uint8_t chunk[CHUNK + MCU_BYTES];
} Stream;

typedef struct Decoder {
    /* Headers. */
    Table tables[2][4];     /* DC, AC */
    int16_t quanta[4][64];  /* in the order of the coefficients */
    unsigned quantised;     /* which of these there are */
    Component components[3];
    int count;                /* of components: 1 or 3 */
    ptrdiff_t height, width;  /* pixels */
    ptrdiff_t interval;       /* MCUs between two markers; 0 without them */
    ptrdiff_t across, down;   /* blocks of luma of an MCU */
    ptrdiff_t rows, columns;  /* MCUs */
    /* The scan. */
    const uint8_t *from, *stop; /* it lies between these */
    Stream streams[2];          /* two where two rows are decoded together */
    int current;                /* which of them goes on with the next row */
    /* Samples and pixels. */
    uint8_t *memory;
    ptrdiff_t size;
} Decoder;

/* headers.c: reads everything up to the scan of a JPEG of d->height * d->width pixels; 0 where it is not one that this
   decoder knows. */
int read_headers(Decoder *d, const uint8_t *data, ptrdiff_t size);

/* scan.c: goes to the first MCU; decodes the wanted ones of a row, or of two where `rows_go_together` says that they can be,
   after those that were decoded before, into the planes of samples. 0 where the scan is damaged. */
int begin_scan(Decoder *d);
int rows_go_together(const Decoder *d);
int decode_rows(Decoder *d, const Window *window, ptrdiff_t row, int rows);

/* Returns a row of a component's samples. The planes hold two or four rows of MCUs, one after the other in turn: upsampling
   looks no further, and so much stays in the caches. */
static inline uint8_t *
samples_of(const Component *c, ptrdiff_t row)
{
    return c->plane + (row & c->mask) * c->stride;
}

static const uint8_t zigzag[64 + 16] = { /* where a coefficient stands, by its place in the zigzag order, or after it */
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47,
    55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
};

#endif
