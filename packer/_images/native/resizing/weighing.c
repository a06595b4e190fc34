/* Implements weighing.h. */

#include "compilers.h"
#include "geometry.h"
#include "kernels/vectorised.h"
#include "resizing/weighing.h"

enum { LARGEST_SIDE = 1 << 20, LARGEST_SCALED = 1 << 30, LEAST_PRECISION = 14, LARGEST_PRECISION = 22 };
enum { SOME = 16 }; /* pixels that are weighed at once */

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
    /* As many pixels as fit into twice the reach, and one more; 1e-6 avoids one too few because of rounding. */
    axis->most = 1 + (ptrdiff_t)(2 * axis->reach + 1e-6);
    return 1;
}

/* Returns how many bits after the binary point weights up to `largest` can have as 16-bit integers. Bicubic weights may
   be a little larger than 1, but fit at the least precision. */
static inline int
precision_for(double largest)
{
    int precision = LEAST_PRECISION;
    while (precision < LARGEST_PRECISION && largest * (2 << precision) + 0.5 < 1 << 15)
        precision++;
    return precision;
}

/* Returns the weight of a pixel at a distance of 0 or more, before normalisation: a triangle for bilinear interpolation,
   Keys' curve with a = -0.5 for bicubic. */
INLINE double
nearness(Interpolation interpolation, double distance)
{
    if (interpolation == BILINEAR)
        return 1 - distance > 0 ? 1 - distance : 0;
    double near = (1.5 * distance - 2.5) * distance * distance + 1;
    double far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2;
    return distance < 1 ? near : distance < 2 ? far : 0;
}

/* Computes the weights of `number` adjacent pixels, from `at` on, and the pixels on which they depend. The arithmetic is
   torch's, operation by operation, because each operation rounds. Without branches, so that compilers vectorise it.
   Inlined, so that the interpolation and the number are constants. */
INLINE void
weigh_some(Interpolation interpolation, const Axis *axis, ptrdiff_t at, int number, Span *restrict spans,
           double *restrict weights, double *restrict largest)
{
    const double steepness = 1 / axis->stretch, scale = axis->scale, reach = axis->reach;
    const int32_t side = (int32_t)axis->side, most = (int32_t)axis->most;
    double centre[SOME], sum[SOME];
    int32_t first[SOME], count[SOME];
    for (int i = 0; i < number; i++) {
        centre[i] = scale * ((double)((int32_t)at + i) + 0.5), sum[i] = 0;
        int32_t from = (int32_t)(centre[i] - reach + 0.5), end = (int32_t)(centre[i] + reach + 0.5);
        first[i] = from > 0 ? from : 0;
        count[i] = (end < side ? end : side) - first[i];
        spans[i] = (Span){first[i], count[i] < most ? count[i] : most};
    }
    /* Not up to the count, which differs from pixel to pixel: the processor would mispredict it. */
    for (int32_t k = 0; k < most; k++) {
        for (int i = 0; i < number; i++) {
            double near = nearness(interpolation, fabs(((double)(first[i] + k) - centre[i] + 0.5) * steepness));
            near = k < count[i] ? near : 0;
            weights[k * axis->out + i] = near;
            sum[i] += near;
        }
    }
    for (int32_t k = 0; k < most; k++) {
        double weight[SOME]; /* compilers vectorise this because it is a loop of its own */
        for (int i = 0; i < number; i++)
            weight[i] = weights[k * axis->out + i] / sum[i];
        for (int i = 0; i < number; i++)
            largest[i] = weight[i] > largest[i] ? weight[i] : largest[i];
        for (int i = 0; i < number; i++)
            weights[k * axis->out + i] = weight[i];
    }
}

/* Returns the largest weight of all. */
INLINE double
largest_of(const double largest[SOME])
{
    double most = 0;
    for (int i = 0; i < SOME; i++)
        most = largest[i] > most ? largest[i] : most;
    return most;
}

/* Inlined, so that the interpolation and the number of pixels that are weighed at once are constants. */
INLINE int
weigh_by(Interpolation interpolation, const Axis *axis, int number, Span *spans, double *weights)
{
    double largest[SOME] = {0};
    /* Includes the pixels before the window, because the largest weight of all determines the precision. If the image is
       enlarged, they may be very many, but then the first ones determine it. */
    const ptrdiff_t last = axis->cut + axis->out - number;
    for (ptrdiff_t i = 0; i < axis->cut && precision_for(largest_of(largest)) > LEAST_PRECISION; i += number)
        weigh_some(interpolation, axis, smaller(i, last), number, spans, weights, largest);
    for (ptrdiff_t i = axis->cut; i < axis->cut + axis->out; i += number) {
        const ptrdiff_t at = smaller(i, last), in_window = at - axis->cut; /* the last ones may overlap those before */
        weigh_some(interpolation, axis, at, number, spans + in_window, weights + in_window, largest);
    }
    return precision_for(largest_of(largest));
}

INLINE void
weigh_body(const Axis *axis, Span *spans, double *restrict weights, int16_t *restrict rounded, int *precision)
{
    if (axis->interpolation == BICUBIC && axis->out >= SOME)
        *precision = weigh_by(BICUBIC, axis, SOME, spans, weights);
    else if (axis->interpolation == BICUBIC)
        *precision = weigh_by(BICUBIC, axis, 1, spans, weights);
    else if (axis->out >= SOME)
        *precision = weigh_by(BILINEAR, axis, SOME, spans, weights);
    else
        *precision = weigh_by(BILINEAR, axis, 1, spans, weights);
    const double factor = (double)(1 << *precision);
    for (ptrdiff_t i = 0; i < axis->out * axis->most; i++)
        rounded[i] = (int16_t)(weights[i] * factor + copysign(0.5, weights[i]));
}

VECTORISED(weigh_all, weigh_body,
           (const Axis *axis, Span *spans, double *restrict weights, int16_t *restrict rounded, int *precision),
           (axis, spans, weights, rounded, precision))

int
weigh(const Axis *axis, Span *spans, double *weights, int16_t *rounded)
{
    int precision = LEAST_PRECISION;
    if (axis->scale != 1) {
        weigh_all(axis, spans, weights, rounded, &precision);
        return precision;
    }
    for (ptrdiff_t i = 0; i < axis->out; i++) {
        spans[i] = (Span){axis->cut + i, 1};
        for (ptrdiff_t k = 0; k < axis->most; k++)
            rounded[k * axis->out + i] = (int16_t)(k == 0 ? 1 << LEAST_PRECISION : 0);
    }
    return precision;
}
