/* The data that both passes of resizing share; see resizing.c. */

#ifndef PACKER_RESIZING_KERNELS_H
#define PACKER_RESIZING_KERNELS_H

#include "resizing/resizing.h"
#include "resizing/weighing.h"

#include <stddef.h>
#include <stdint.h>

enum {
    BLOCK = 32,  /* bytes of an output row that are written at once */
    AT_ONCE = 16 /* columns that the horizontal pass writes at once, at most */
};

struct Resizing {
    uint8_t *out;
    ptrdiff_t height, width; /* of the window; the width in bytes */
    ptrdiff_t first_row, row_end, first, end;

    ptrdiff_t columns;       /* of the window, rounded up to an even number */
    ptrdiff_t filled;        /* columns that have offsets and weights: a multiple of AT_ONCE */
    ptrdiff_t tap_pairs;     /* pairs of pixels that a column depends on, the same number for all */
    int32_t *offsets;        /* of each column: where these pixels begin in a row, in bytes */
    ptrdiff_t spread;        /* the largest difference, in bytes, between the offsets of six adjacent columns */
    int16_t *column_weights; /* [two columns][pair of pixels][column][four times the same][pixel] */
    int16_t *pair_weights;   /* [pair of pixels][column][pixel] */
    int32_t *bases;          /* of each vector of columns, for AVX-512: the least offset */
    int16_t *spread_weights; /* of the same vectors: the positions of their bytes, and their weights; see spread_columns */
    int column_precision;    /* bits after the binary point */
    int overshoots;          /* whether weights may be negative */

    Span *rows; /* pairs of rows that an output row depends on */
    int16_t *row_weights;
    ptrdiff_t row_weights_step;
    int row_precision;

    int16_t *kept; /* the latest pairs of rows that went through the horizontal pass */
    ptrdiff_t kept_count, kept_step; /* the count is a power of two */
    uint8_t *waiting;                /* the upper row of a pair whose lower row has not arrived */
    ptrdiff_t rows_taken, rows_written;

    int copies, flips; /* whether pixels are only copied, and whether they are mirrored then */

    uint8_t *memory;
    uint64_t size;
};

/* Returns the memory of a pair of rows. */
static inline int16_t *
kept_pair(const Resizing *resizing, ptrdiff_t number)
{
    return resizing->kept + (number & (resizing->kept_count - 1)) * resizing->kept_step;
}

#endif
