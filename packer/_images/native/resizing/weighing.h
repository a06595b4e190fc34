/* Computes which source pixels contribute to a resized pixel, and their weights: anti-aliased, bilinear or bicubic.

   The weights are those of torch's kernel for uint8 (torch.nn.functional.interpolate with antialias=True), to the bit.
   */

#ifndef PACKER_WEIGHING_H
#define PACKER_WEIGHING_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { BILINEAR, BICUBIC } Interpolation; /* indices into INTERPOLATIONS in packer/_codecs.py */

typedef struct {
    ptrdiff_t side, scaled, cut, out; /* pixels before and after resizing; the first in the window, and their number there */
    Interpolation interpolation;
    double scale;   /* pixels before resizing for a pixel of the result */
    double stretch; /* of the interpolation's curve: the scale if the rectangle is made smaller, otherwise 1 */
    double reach;   /* the largest distance of pixels that have a weight */
    ptrdiff_t most; /* pixels that a pixel of the result may depend on */
} Axis;

typedef struct {
    ptrdiff_t first, count;
} Span; /* of the pixels that a pixel of the result depends on */

/* Computes the other fields from the first five. Returns 0 if these are invalid, or a side has more than 2^20 pixels, or
   2^30 after resizing. `whole`: the window is all of the result; torch then computes the scale from the sizes. */
int axis_set(Axis *axis, int whole);

/* Computes the pixels on which those of the window depend, and their weights as 16-bit integers: first the first weights
   of all pixels, then their second ones, and so on up to `most`; 0 from the count on. Both arrays of weights have room
   for out * most numbers. Returns how many bits of the integers are after the binary point. */
int weigh(const Axis *axis, Span *spans, double *weights, int16_t *rounded);

#endif
