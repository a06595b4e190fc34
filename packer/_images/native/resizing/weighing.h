/* Computes which source pixels contribute to a resized pixel, and their weights: anti-aliased, bilinear or bicubic.

   The weights are those of torch's kernel for uint8 (torch.nn.functional.interpolate with antialias=True), to the bit.
   */

#ifndef PACKER_WEIGHING_H
#define PACKER_WEIGHING_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { BILINEAR, BICUBIC } Interpolation; /* places in INTERPOLATIONS of packer/_images/geometry.py */

typedef struct {
    ptrdiff_t side, scaled, cut, out; /* pixels in, pixels of the result, and which of those are in the window */
    Interpolation interpolation;
    double scale;   /* pixels in for a pixel of the result */
    double stretch; /* of the interpolation's curve: the scale where the rectangle is made smaller, or else 1 */
    double reach;   /* how far away the pixels lie that count */
    ptrdiff_t most; /* pixels that a pixel of the result may depend on */
} Axis;

typedef struct {
    ptrdiff_t first, count;
} Span; /* of what a pixel of the result depends on */

/* Sets what follows from the first five; 0 where those make no sense, or a side has more than 2^20 pixels. `whole`: the window
   is all of the result, for which torch is told no scale. */
int axis_set(Axis *axis, int whole);

/* Computes on which pixels those of the window depend, and their weights as 16-bit integers: of each pixel the first weight,
   then of each the second, and so on up to `most`; 0 from the count on. Both arrays of weights take out * most of them. Returns
   by how many bits the integers were shifted. */
int weigh(const Axis *axis, Span *spans, double *weights, int16_t *rounded);

#endif
