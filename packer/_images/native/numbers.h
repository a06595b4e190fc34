/* Levels as the floats that a network takes: see numbers.c for images and batches, and kernels/number_kernels.c. */

#ifndef PACKER_NUMBERS_H
#define PACKER_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

enum { FLOAT32, FLOAT16, BFLOAT16, TYPES };
enum { PERIOD = 48 }; /* numbers after which the colours of pixels stand again as before, in each vector */

typedef struct { /* those of red, green, blue, red and so on; or all of one colour */
    float mean[PERIOD], std[PERIOD], inverse[PERIOD]; /* the last one is that of std */
} Constants;

typedef struct {
    int type, planes; /* whether numbers of a colour lie together, or those of a pixel */
    float scale;
    Constants constants[3]; /* of the colours of pixels; or, of planes, of each colour */
    int multiplies;         /* whether a product and what it leaves give what a division gives */
    int streams;            /* whether numbers are written past the caches: there are more than these hold */
} Numbers;

typedef struct { /* what an image is mixed with */
    const uint8_t *levels; /* of the image before; NULL where it is not mixed */
    float share, other_share;
} Other;

/* Sets how levels become numbers, by a scale, three means and three standard deviations. `pixels` says of how many. Returns what
   is wrong, or NULL. */
const char *set_numbers(Numbers *numbers, int64_t type, int64_t planes, const float *constants, double pixels);

/* Writes an image as numbers. */
void write_image(const Numbers *numbers, const uint8_t *levels, ptrdiff_t pixels, uint8_t *out);

/* number_kernels.c: of `count` levels, and as many others, or numbers. */
void normalise(const Numbers *numbers, const Constants *constants, const uint8_t *levels, const Other *other,
               ptrdiff_t count, float *to);
/* Writes the first of the levels past the caches, where there are vectors for it; returns how many. `to` begins a line of a cache. */
ptrdiff_t stream(const Numbers *numbers, const Constants *constants, const uint8_t *levels, const Other *other,
                 ptrdiff_t count, float *to);
void shorten(const float *from, ptrdiff_t count, uint16_t *to);
void halve(const float *from, ptrdiff_t count, uint16_t *to);
int can_be_multiplied(const Numbers *numbers);

#endif
