/* The lines of PNGs: inflated and unfiltered. */

#ifndef PACKER_LINES_H
#define PACKER_LINES_H

#include "png/chunks.h"
#include "rows.h"
#include "samples.h"

typedef struct Inflating Inflating;

typedef struct { /* memory that is reused for one image at a time */
    Inflating *inflating;
    Memory rows; /* the last two rows */
} Lines;

typedef struct { /* the position of a line in the image: `count` pixels of a row, `step` columns apart */
    ptrdiff_t row, column, step, count;
} Line;

/* Takes the samples of a line, packed as in the file. Returns 0 if the image is damaged; read_lines then stops. */
typedef int (*TakeLine)(void *taker, const uint8_t *samples, const Line *line);

int lines_init(Lines *); /* 0 without memory */
void lines_clear(Lines *);
size_t lines_memory(const Lines *);

/* Returns how many samples a pixel has. */
int samples_of_pixel(const Header *header);

/* Writes samples of 1, 2 or 4 bits as bytes, times a factor. */
void unpack_samples(const uint8_t *from, ptrdiff_t count, int bits, int factor, uint8_t *to);

/* Passes the lines above the row `bottom` to `take`; all lines of an interlaced image. In an image that is not
   interlaced, only the first `columns` pixels of a line are defined. */
Outcome read_lines(Lines *, const Header *header, const uint8_t *compressed, size_t size, ptrdiff_t bottom, ptrdiff_t columns,
                   TakeLine take, void *taker);

#endif
