/* Computes which pixels contribute to a resized pixel, and their weights, as torch's anti-aliased interpolation of uint8 does. It
   does the same operations in the same order, because each of them rounds; see packer/_images/native/resizing/weighing.c. A
   block of threads handles an axis of an image. Products and sums must not be fused. */

#ifndef DEVICE_WEIGHTS_H
#define DEVICE_WEIGHTS_H

#include "layout.h"

enum { WEIGHT_THREADS = 256, LEAST_PRECISION = 14, LARGEST_PRECISION = 22 };

typedef struct {
    double largest[WEIGHT_THREADS];
    int32_t precision;
} WeightShared;

FUNCTION double
distance_of(double from)
{
    return from < 0 ? -from : from;
}

FUNCTION double
nearness(int32_t interpolation, double distance)
{
    if (interpolation == BILINEAR)
        return 1 - distance > 0 ? 1 - distance : 0;
    const double near = (1.5 * distance - 2.5) * distance * distance + 1;
    const double far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2;
    return distance < 1 ? near : distance < 2 ? far : 0;
}

typedef struct {
    double centre, sum;
    int32_t first, count;
} Weighed;

FUNCTION double
near_of(const Axis *axis, int32_t interpolation, const Weighed *pixel, int32_t k)
{
    const double steepness = 1 / axis->stretch;
    return nearness(interpolation, distance_of(((double)(pixel->first + k) - pixel->centre + 0.5) * steepness));
}

/* Returns which pixels contribute to a pixel of the resized axis, and the sum of their weights. */
FUNCTION Weighed
weighed_at(const Axis *axis, int32_t interpolation, int32_t at)
{
    Weighed pixel;
    pixel.centre = axis->scale * ((double)at + 0.5);
    const int32_t from = (int32_t)(pixel.centre - axis->reach + 0.5), end = (int32_t)(pixel.centre + axis->reach + 0.5);
    pixel.first = larger(from, 0);
    pixel.count = smaller(end, axis->side) - pixel.first;
    pixel.sum = 0;
    const int32_t count = smaller(pixel.count, axis->most);
    for (int32_t k = 0; k < count; k++)
        pixel.sum += near_of(axis, interpolation, &pixel, k);
    return pixel;
}

/* Finds the largest weight for the resized pixels of a thread, including those before the window. */
FUNCTION void
find_largest(WeightShared *shared, const Axis *axis, int32_t interpolation, uint32_t thread, uint32_t threads)
{
    double largest = 0;
    for (int32_t at = (int32_t)thread; !axis->is_same && at < axis->cut + axis->out; at += (int32_t)threads) {
        const Weighed pixel = weighed_at(axis, interpolation, at);
        for (int32_t k = 0; k < smaller(pixel.count, axis->most); k++) {
            const double weight = near_of(axis, interpolation, &pixel, k) / pixel.sum;
            largest = weight > largest ? weight : largest;
        }
    }
    shared->largest[thread] = largest;
}

FUNCTION void
choose_precision(WeightShared *shared, const Axis *axis, int32_t *RESTRICT precisions, uint32_t thread, uint32_t threads)
{
    if (thread == 0) {
        double largest = 0;
        int32_t precision = LEAST_PRECISION;
        for (uint32_t i = 0; i < threads; i++)
            largest = shared->largest[i] > largest ? shared->largest[i] : largest;
        while (!axis->is_same && precision < LARGEST_PRECISION && largest * (double)(2 << precision) + 0.5 < (double)(1 << 15))
            precision++;
        shared->precision = precision;
        precisions[axis->precision] = precision;
    }
}

FUNCTION void
round_weights(const WeightShared *shared, const Axis *axis, int32_t interpolation, Span *RESTRICT spans,
              int16_t *RESTRICT weights, uint32_t thread, uint32_t threads)
{
    const double factor = (double)(1 << shared->precision);
    for (int32_t i = (int32_t)thread; i < axis->out; i += (int32_t)threads) {
        int16_t *to = weights + axis->weights + i; /* the first weights of all pixels, then their second weights, and so on */
        Span span;
        if (axis->is_same) {
            span.first = axis->cut + i;
            span.count = 1;
            *to = (int16_t)(1 << LEAST_PRECISION);
        } else {
            const Weighed pixel = weighed_at(axis, interpolation, axis->cut + i);
            span.first = pixel.first;
            span.count = smaller(pixel.count, axis->most);
            for (int32_t k = 0; k < span.count; k++) {
                const double weight = near_of(axis, interpolation, &pixel, k) / pixel.sum * factor;
                to[k * axis->out] = (int16_t)(int32_t)(weight + (weight < 0 ? -0.5 : 0.5));
            }
        }
        spans[axis->spans + (uint32_t)i] = span;
    }
}

KERNEL(weights, WEIGHT_THREADS, 2, const Image *RESTRICT images, Span *RESTRICT spans, int16_t *RESTRICT weighed,
       int32_t *RESTRICT precisions)
{
    GRID {
        SHARED(WeightShared, shared);
        const Image *image = images + block_y;
        const Axis *axis = &image->axes[block_x];
        PHASE(find_largest(&shared, axis, image->interpolation, thread, threads));
        PHASE(choose_precision(&shared, axis, precisions, thread, threads));
        LAST_PHASE(round_weights(&shared, axis, image->interpolation, spans, weighed, thread, threads));
    }
}

#endif
