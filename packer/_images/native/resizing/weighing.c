/* See weighing.h. */

#include "compilers.h"
#include "resizing/weighing.h"

enum { LARGEST_SIDE = 1 << 20, LARGEST_SCALED = 1 << 30, LEAST_PRECISION = 14, LARGEST_PRECISION = 22 };

int
axis_set(Axis *axis, int whole)
{
    if (axis->side < 1 || axis->side > LARGEST_SIDE || axis->scaled < 1 || axis->scaled > LARGEST_SCALED || axis->out < 1
        || axis->cut < 0 || axis->out > axis->scaled || axis->cut > axis->scaled - axis->out)
        return 0;
    if (whole) /* these two round differently */
        axis->scale = (double)axis->side / (double)axis->scaled;
    else
        axis->scale = 1 / ((double)axis->scaled / (double)axis->side);
    axis->stretch = axis->scale > 1 ? axis->scale : 1;
    axis->reach = axis->interpolation == BICUBIC ? 2 * axis->stretch : axis->stretch;
    /* As many pixels as fit into twice the reach, and one; not one too few where rounding adds to that. */
    axis->most = 1 + (ptrdiff_t)(2 * axis->reach + 1e-6);
    return 1;
}

/* Returns by how many bits weights up to the largest are to be shifted to become 16-bit integers. Bicubic ones may be a little
   larger than 1, and are still not too large for the least precision. */
static inline int
precision_for(double largest)
{
    int precision = LEAST_PRECISION;
    while (precision < LARGEST_PRECISION && largest * (2 << precision) + 0.5 < 1 << 15)
        precision++;
    return precision;
}

/* Returns how much a pixel counts at a distance, 0 or more: bilinear a triangle, bicubic Keys' curve with a = -0.5. */
INLINE double
nearness(Interpolation interpolation, double distance)
{
    if (interpolation == BILINEAR)
        return 1 - distance > 0 ? 1 - distance : 0;
    double near = (1.5 * distance - 2.5) * distance * distance + 1;
    double far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2;
    return distance < 1 ? near : distance < 2 ? far : 0;
}

/* To be inlined where the interpolation is known. The arithmetic is torch's, operation by operation, as all of them round. */
INLINE int
weigh_by(Interpolation interpolation, const Axis *axis, Span *spans, double *weights)
{
    double steepness = 1 / axis->stretch, largest = 0;
    /* Those before the window as well: the largest weight of all decides on the precision. What is enlarged may have very
       many before it, but then the first one settles that. */
    for (ptrdiff_t i = 0; i < axis->cut + axis->out; i++) {
        if (i < axis->cut && precision_for(largest) == LEAST_PRECISION)
            i = axis->cut;
        ptrdiff_t in_window = i > axis->cut ? i - axis->cut : 0;
        double centre = axis->scale * ((double)i + 0.5), sum = 0, *weight = weights + in_window * axis->most;
        ptrdiff_t first = (ptrdiff_t)(centre - axis->reach + 0.5), end = (ptrdiff_t)(centre + axis->reach + 0.5);
        first = first > 0 ? first : 0;
        ptrdiff_t count = (end < axis->side ? end : axis->side) - first;
        /* Not up to the count, which differs from pixel to pixel: the processor would guess it wrong. */
        for (ptrdiff_t k = 0; k < axis->most; k++) {
            double near = nearness(interpolation, fabs(((double)(first + k) - centre + 0.5) * steepness));
            weight[k] = k < count ? near : 0;
            sum += weight[k];
        }
        for (ptrdiff_t k = 0; k < axis->most; k++) {
            weight[k] /= sum;
            largest = weight[k] > largest ? weight[k] : largest;
        }
        spans[in_window] = (Span){first, count < axis->most ? count : axis->most};
    }
    return precision_for(largest);
}

int
weigh(const Axis *axis, Span *spans, double *weights)
{
    if (axis->interpolation == BICUBIC && axis->scale != 1)
        return weigh_by(BICUBIC, axis, spans, weights);
    if (axis->scale != 1)
        return weigh_by(BILINEAR, axis, spans, weights);
    for (ptrdiff_t i = 0; i < axis->out; i++) {
        spans[i] = (Span){axis->cut + i, 1};
        for (ptrdiff_t k = 0; k < axis->most; k++)
            weights[i * axis->most + k] = k == 0;
    }
    return LEAST_PRECISION;
}
