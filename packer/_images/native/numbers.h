/* Converts levels to the floats that a network takes. numbers.c has the functions for images and batches,
   kernels/number_kernels.c those for runs of levels. */

#ifndef PACKER_NUMBERS_H
#define PACKER_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

enum { FLOAT32, FLOAT16, BFLOAT16, TYPES };
enum { PERIOD = 48 }; /* a multiple of the 3 channels of a pixel, and of the floats in a vector */

typedef struct { /* of red, green, blue, red and so on; for planar numbers, of one channel */
    float mean[PERIOD], std[PERIOD], inverse[PERIOD]; /* `inverse` is 1 / std */
} Constants;

typedef struct {
    int type, planes; /* `planes`: whether the numbers are planar, or those of a pixel are adjacent */
    float scale;
    Constants constants[3]; /* for planar numbers, one for each channel; otherwise three copies */
    int multiplies;         /* whether a multiplication and one correction give the same numbers as a division */
    int streams;            /* whether numbers bypass the caches, because they are too many for them */
} Numbers;

typedef struct { /* the image with which an image is mixed */
    const uint8_t *levels; /* of the previous image; NULL without mixing */
    float share, other_share;
} Other;

/* Sets up the conversion of `pixels` pixels. `constants` are a scale, three means and three standard deviations. Returns
   an error message, or NULL. */
const char *set_numbers(Numbers *numbers, int64_t type, int64_t planes, const float *constants, double pixels);

/* Writes an image as numbers. */
void write_image(const Numbers *numbers, const uint8_t *levels, ptrdiff_t pixels, uint8_t *out);

/* The following functions are in number_kernels.c; `count` is the number of levels or floats. */
void normalise(const Numbers *numbers, const Constants *constants, const uint8_t *levels, const Other *other,
               ptrdiff_t count, float *to);
/* Converts the first of the levels, and writes the numbers past the caches; returns how many, which is 0 without
   vectors. `to` must be the beginning of a cache line. */
ptrdiff_t stream(const Numbers *numbers, const Constants *constants, const uint8_t *levels, const Other *other,
                 ptrdiff_t count, float *to);
void shorten(const float *from, ptrdiff_t count, uint16_t *to);
void halve(const float *from, ptrdiff_t count, uint16_t *to);
int can_be_multiplied(const Numbers *numbers);

#endif
