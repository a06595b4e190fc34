/* The lines of PNGs: inflated and unfiltered. */

#ifndef PACKER_LINES_H
#define PACKER_LINES_H

#include "png/chunks.h"
#include "rows.h"
#include "samples.h"

typedef struct Inflating Inflating;

typedef struct { /* memory that is used for one image after the other */
    Inflating *inflating;
    Memory rows; /* the last two */
} Lines;

typedef struct { /* what of the image a line shows: `count` pixels of a row, `step` columns from one to the next */
    ptrdiff_t row, column, step, count;
} Line;

/* Takes the samples of a line, as they stand in the file; returns 0 to end the image, which is damaged. */
typedef int (*TakeLine)(void *taker, const uint8_t *samples, const Line *line);

int lines_init(Lines *); /* 0 without memory */
void lines_clear(Lines *);
size_t lines_memory(const Lines *);

/* Returns how many samples a pixel has. */
int samples_of_pixel(const Header *header);

/* Writes samples of 1, 2 or 4 bits as bytes, times a factor. */
void unpack_samples(const uint8_t *from, ptrdiff_t count, int bits, int factor, uint8_t *to);

/* Hands out the lines of an image down to before row `bottom`; all lines, where the image is interlaced. In a line that is a
   whole row, only the first `columns` pixels are as they should be. */
Outcome read_lines(Lines *, const Header *header, const uint8_t *compressed, size_t size, ptrdiff_t bottom, ptrdiff_t columns,
                   TakeLine take, void *taker);

#endif
