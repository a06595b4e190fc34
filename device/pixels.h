/* Converts samples to pixels as libjpeg does, with its "fancy" upsampling and its colour conversion, and resizes them as torch
   does, in two passes: horizontally, rounded to bytes, then vertically. See decoding.c, jpeg_kernels.c and resizing.c of
   packer. */

#ifndef DEVICE_PIXELS_H
#define DEVICE_PIXELS_H

#include "layout.h"

enum {
    ACROSS_THREADS = 256, DOWN_THREADS = 256, /* at most */
    ROWS = 4,    /* that a block resizes horizontally at once */
    STRIP = 512  /* pixels of each row that a block buffers */
};

/* Returns the sample of a component for a pixel of the window. */
FUNCTION int32_t
sample_at(const Component *c, const uint8_t *RESTRICT samples, int32_t y, int32_t x)
{
    const uint8_t *plane = samples + c->plane;
    if (c->upsampling == AS_IT_IS)
        return plane[y * c->stride + x];
    if (c->upsampling == REPEATED)
        return plane[y / c->tall * c->stride + x / c->wide];
    const int32_t near = y >> (c->tall - 1);
    const int32_t beside = y & 1 ? smaller(near + 1, c->height - 1 - c->first_row) : larger(near - 1, 0);
    const uint8_t *row = plane + near * c->stride, *other = plane + beside * c->stride;
    if (c->upsampling == SMOOTH_DOWN)
        return (3 * row[x] + other[x] + 1 + (y & 1)) >> 2;
    /* The image's edge; or the window's, for pixels that are not needed. */
    const int32_t edge = smaller(c->width - 1 - c->first_column, c->stride - 1);
    const int32_t odd = x & 1, at = x >> 1, next = odd ? smaller(at + 1, edge) : larger(at - 1, 0);
    if (c->tall == 1)
        return (3 * row[at] + row[next] + 1 + odd) >> 2;
    return (3 * (3 * row[at] + other[at]) + 3 * row[next] + other[next] + 8 - odd) >> 4;
}

/* Returns the samples of a component for four pixels of the window, the first in the lowest byte. `x` is a multiple of 4. */
FUNCTION uint32_t
four_samples_at(const Component *c, const uint8_t *RESTRICT samples, int32_t y, int32_t x)
{
    uint32_t four = 0;
    if (c->upsampling == AS_IT_IS) /* rows are a multiple of eight samples */
        return *(const uint32_t *)(const void *)(samples + c->plane + y * c->stride + x);
    UNROLLED
    for (int32_t i = 0; i < 4; i++)
        four |= (uint32_t)sample_at(c, samples, y, x + i) << 8 * i;
    return four;
}

/* Returns the pixel of three samples: red in the lowest byte, then green and blue. */
FUNCTION uint32_t
converted(int32_t luma, int32_t blueness, int32_t redness)
{
    const int32_t cb = blueness - 128, cr = redness - 128;
    const uint32_t red = (uint32_t)bounded(luma + ((91881 * cr + 32768) >> 16), 0, 255);
    const uint32_t green = (uint32_t)bounded(luma + ((-22554 * cb - 46802 * cr + 32768) >> 16), 0, 255);
    const uint32_t blue = (uint32_t)bounded(luma + ((116130 * cb + 32768) >> 16), 0, 255);
    return red | green << 8 | blue << 16;
}

/* Returns a pixel of the window. */
FUNCTION uint32_t
pixel_at(const Image *image, const uint8_t *RESTRICT samples, int32_t y, int32_t x)
{
    const int32_t luma = sample_at(&image->components[0], samples, y, x);
    if (image->count == 1)
        return (uint32_t)luma * 0x10101u;
    return converted(luma, sample_at(&image->components[1], samples, y, x), sample_at(&image->components[2], samples, y, x));
}

/* Returns four pixels of the window. `x` is a multiple of 4. */
FUNCTION Words
four_pixels_at(const Image *image, const uint8_t *RESTRICT samples, int32_t y, int32_t x)
{
    const uint32_t luma = four_samples_at(&image->components[0], samples, y, x);
    uint32_t blueness = 0, redness = 0;
    Words four;
    if (image->count > 1) {
        blueness = four_samples_at(&image->components[1], samples, y, x);
        redness = four_samples_at(&image->components[2], samples, y, x);
    }
    UNROLLED
    for (int32_t i = 0; i < 4; i++) {
        const int32_t own = (int32_t)(luma >> 8 * i & 255);
        four.at[i] = image->count == 1 ? (uint32_t)own * 0x10101u
                                       : converted(own, (int32_t)(blueness >> 8 * i & 255), (int32_t)(redness >> 8 * i & 255));
    }
    return four;
}

typedef struct {
    int32_t red, green, blue;
} Sums;

FUNCTION Sums
half_of_one(int32_t precision)
{
    Sums sums;
    sums.red = sums.green = sums.blue = 1 << (precision - 1);
    return sums;
}

FUNCTION void
add_pixel(Sums *sums, int32_t weight, uint32_t pixel)
{
    sums->red += weight * (int32_t)(pixel & 255);
    sums->green += weight * (int32_t)(pixel >> 8 & 255);
    sums->blue += weight * (int32_t)(pixel >> 16 & 255);
}

FUNCTION uint32_t
level_of(int32_t sum, int32_t precision) /* bicubic interpolation overshoots */
{
    return (uint32_t)bounded(sum >> precision, 0, 255);
}

FUNCTION uint32_t
rounded_pixel(const Sums *sums, int32_t precision)
{
    return level_of(sums->red, precision) | level_of(sums->green, precision) << 8 | level_of(sums->blue, precision) << 16;
}

typedef struct {
    ALIGNED(16) uint32_t pixels[ROWS][STRIP];
} AcrossShared;

/* Columns of the result that are resized together, and the pixels on which they depend. */
typedef struct {
    int32_t first, count; /* columns */
    int32_t begin, width; /* pixels of the window; `begin` is a multiple of 4 */
    int32_t is_held;      /* whether a block buffers these pixels; even one column may need too many */
} Strip;

FUNCTION Strip
strip_from(const Image *image, const Span *RESTRICT spans, int32_t first, int32_t most)
{
    const Axis *axis = &image->axes[1];
    const Span *own = spans + axis->spans;
    Strip strip;
    strip.first = first;
    strip.count = smaller(most, axis->out - first);
    strip.begin = (image->crop_left + own[first].first) & ~3;
    for (;;) {
        const Span last = own[first + strip.count - 1];
        strip.width = (image->crop_left + last.first + last.count - strip.begin + 3) & ~3;
        strip.is_held = strip.width <= STRIP;
        if (strip.is_held || strip.count == 1)
            return strip;
        strip.count /= 2;
    }
}

FUNCTION void
load_strip(AcrossShared *shared, const Image *image, const uint8_t *RESTRICT samples, const Strip *strip, int32_t row,
           int32_t rows, uint32_t thread, uint32_t threads)
{
    for (int32_t y = 0; y < rows && strip->is_held; y++)
        for (int32_t x = 4 * (int32_t)thread; x < strip->width; x += 4 * (int32_t)threads)
            store_words(&shared->pixels[y][x], four_pixels_at(image, samples, image->top + row + y, strip->begin + x));
}

/* Resizes a column that needs more pixels than a block buffers: each pixel is computed whenever it is needed. */
FUNCTION void
resize_far(const Image *image, const uint8_t *RESTRICT samples, Span span, const int16_t *RESTRICT weights, int32_t precision,
           uint32_t *RESTRICT to, int32_t row, int32_t rows)
{
    const int32_t width = image->axes[1].out;
    for (int32_t y = 0; y < rows; y++, to += width) {
        Sums sums = half_of_one(precision);
        for (int32_t k = 0; k < span.count; k++)
            add_pixel(&sums, weights[k * width],
                      pixel_at(image, samples, image->top + row + y, image->crop_left + span.first + k));
        *to = rounded_pixel(&sums, precision);
    }
}

/* Resizes the column of a thread in some rows. */
FUNCTION void
resize_strip(const AcrossShared *shared, const Image *image, const uint8_t *RESTRICT samples, const Span *RESTRICT spans,
             const int16_t *RESTRICT weights, int32_t precision, uint32_t *RESTRICT resized, const Strip *strip, int32_t row,
             int32_t rows, uint32_t thread)
{
    const Axis *axis = &image->axes[1];
    const int32_t column = strip->first + (int32_t)thread;
    if ((int32_t)thread >= strip->count)
        return;
    const Span span = spans[axis->spans + (uint32_t)column];
    const int16_t *own = weights + axis->weights + column;
    uint32_t *to = resized + image->resized + (uint32_t)(row * axis->out + column);
    if (!strip->is_held) {
        resize_far(image, samples, span, own, precision, to, row, rows);
        return;
    }
    Sums sums[ROWS];
    UNROLLED
    for (int32_t y = 0; y < ROWS; y++)
        sums[y] = half_of_one(precision);
    for (int32_t k = 0; k < span.count; k++) {
        const int32_t weight = own[k * axis->out], x = image->crop_left + span.first + k - strip->begin;
        UNROLLED
        for (int32_t y = 0; y < ROWS; y++)
            add_pixel(&sums[y], weight, shared->pixels[y][x]);
    }
    UNROLLED
    for (int32_t y = 0; y < ROWS; y++)
        if (y < rows)
            to[y * axis->out] = rounded_pixel(&sums[y], precision);
}

KERNEL(across, ACROSS_THREADS, 4, const Image *RESTRICT images, const uint8_t *RESTRICT samples, const Span *RESTRICT spans,
       const int16_t *RESTRICT weighed, const int32_t *RESTRICT precisions, uint32_t *RESTRICT resized, uint32_t share)
{
    GRID {
        SHARED(AcrossShared, shared);
        const Image *image = images + block_y;
        const Axis *axis = &image->axes[1];
        const int32_t precision = precisions[axis->precision];
        for (int32_t row = (int32_t)block_x * ROWS; row < image->height; row += (int32_t)share * ROWS) {
            const int32_t rows = smaller(ROWS, image->height - row);
            for (int32_t column = 0; column < axis->out;) {
                const Strip strip = strip_from(image, spans, column, (int32_t)threads);
                PHASE(load_strip(&shared, image, samples, &strip, row, rows, thread, threads));
                PHASE(resize_strip(&shared, image, samples, spans, weighed, precision, resized, &strip, row, rows, thread));
                column += strip.count;
            }
        }
    }
}

enum { LEVELS_OUT, HALVES_OUT, FLOATS_OUT }; /* results: levels, or numbers of a table */

/* Stores a colour of a pixel; the image has `pixels` pixels. `planes`: whether the result is planar, or pixel by pixel. */
FUNCTION void
store_level(void *RESTRICT out, const void *RESTRICT table, uint32_t kind, uint32_t planes, uint32_t before, uint32_t pixels,
            uint32_t pixel, uint32_t colour, uint32_t level)
{
    const uint32_t place = 3 * before + (planes ? colour * pixels + pixel : 3 * pixel + colour);
    if (kind == LEVELS_OUT)
        ((uint8_t *)out)[place] = (uint8_t)level;
    else if (kind == HALVES_OUT)
        ((uint16_t *)out)[place] = ((const uint16_t *)table)[colour * 256 + level];
    else
        ((uint32_t *)out)[place] = ((const uint32_t *)table)[colour * 256 + level];
}

/* Computes a pixel of the result. */
FUNCTION void
resize_down(const Image *image, const uint32_t *RESTRICT resized, const Span *RESTRICT spans, const int16_t *RESTRICT weights,
            const int32_t *RESTRICT precisions, void *RESTRICT out, const void *RESTRICT table, uint32_t kind, uint32_t planes,
            uint32_t number)
{
    const Axis *axis = &image->axes[0];
    const uint32_t width = (uint32_t)image->axes[1].out, pixels = width * (uint32_t)axis->out;
    if (number >= pixels)
        return;
    const uint32_t y = number / width, x = number - y * width;
    const Span span = spans[axis->spans + y];
    const int32_t precision = precisions[axis->precision], skipped = image->top - image->crop_top;
    const uint32_t *from = resized + image->resized + (uint32_t)(span.first - skipped) * width + x;
    const int16_t *own = weights + axis->weights + y;
    Sums sums = half_of_one(precision);
    for (int32_t k = 0; k < span.count; k++)
        add_pixel(&sums, own[k * axis->out], from[(uint32_t)k * width]);
    const uint32_t at = y * width + (image->flip ? width - 1 - x : x);
    store_level(out, table, kind, planes, image->out, pixels, at, 0, level_of(sums.red, precision));
    store_level(out, table, kind, planes, image->out, pixels, at, 1, level_of(sums.green, precision));
    store_level(out, table, kind, planes, image->out, pixels, at, 2, level_of(sums.blue, precision));
}

KERNEL(down, DOWN_THREADS, 4, const Image *RESTRICT images, const uint32_t *RESTRICT resized, const Span *RESTRICT spans,
       const int16_t *RESTRICT weighed, const int32_t *RESTRICT precisions, void *RESTRICT out, const void *RESTRICT table,
       uint32_t kind, uint32_t planes)
{
    GRID {
        LAST_PHASE(resize_down(images + block_y, resized, spans, weighed, precisions, out, table, kind, planes,
                               block_x * threads + thread));
    }
}

#endif
