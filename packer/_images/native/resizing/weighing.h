/* Tells which pixels a resized pixel is made of, and how much each of them counts: anti-aliased, bilinear or bicubic.

   The weights are those of torch's kernel for uint8 (torch.nn.functional.interpolate with antialias=True), to the bit. */

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

/* Computes on which pixels those of the window depend, and their weights: `most` for each, 0 from the count on. Returns by how
   many bits the weights are to be shifted to become 16-bit integers. */
int weigh(const Axis *axis, Span *spans, double *weights);

/* Returns a weight as a 16-bit integer. */
static inline int16_t
rounded(double weight, int precision)
{
    return (int16_t)(weight * (1 << precision) + copysign(0.5, weight));
}

#endif
