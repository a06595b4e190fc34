/* Blurs and sharpens: replaces each pixel by a mean of its neighbours. See augmenting.h. */

#include "augmenting/augmenting.h"
#include "geometry.h"
#include "kernels/vectorised.h"

#include <math.h>
#include <string.h>

/* Adds the row `below` to `two`, the sums of the two rows above it, which gives `three`. Then sets `two` for the next
   row. */
INLINE void
add_body(const uint8_t *row, const uint8_t *below, uint16_t *restrict two, uint16_t *restrict three, ptrdiff_t count)
{
    for (ptrdiff_t strip = 0; strip < count; strip += STRIP)
        for (ptrdiff_t i = strip; i < strip + STRIP; i++) {
            three[i] = (uint16_t)(two[i] + below[i]);
            two[i] = (uint16_t)(row[i] + below[i]);
        }
}

VECTORISED(add, add_body,
           (const uint8_t *row, const uint8_t *below, uint16_t *restrict two, uint16_t *restrict three, ptrdiff_t count),
           (row, below, two, three, count))

/* Sharpens some levels of a row. `three` has the sums of the row and its two neighbours. */
INLINE void
sharpen_some(const uint16_t *three, const uint8_t *row, uint8_t *restrict to, ptrdiff_t count, float rest)
{
    for (ptrdiff_t i = 0; i < count; i++) {
        uint16_t sum = (uint16_t)(three[i - 3] + three[i] + three[i + 3] + 4 * row[i] + 6);
        int16_t smooth = (int16_t)(uint16_t)(sum / 13); /* rounded: it is never halfway between two levels */
        int32_t sharp = (int32_t)fmaf((float)(int16_t)(smooth - row[i]), rest, row[i]);
        sharp = sharp > 0 ? sharp : 0;
        to[i] = (uint8_t)(sharp < 255 ? sharp : 255);
    }
}

/* Sharpens a row; the first and the last pixel do not change. The last strip ends with these, and may overlap the one
   before. */
INLINE void
sharpen_body(const uint16_t *three, const uint8_t *row, uint8_t *restrict to, ptrdiff_t count, float rest)
{
    const ptrdiff_t last = count - 3 - STRIP;
    if (last < 3)
        sharpen_some(three + 3, row + 3, to + 3, count - 6, rest);
    else
        for (ptrdiff_t i = 3; i < last + STRIP; i += STRIP) {
            ptrdiff_t from = i < last ? i : last;
            sharpen_some(three + from, row + from, to + from, STRIP, rest);
        }
}

VECTORISED(sharpen_row, sharpen_body,
           (const uint16_t *three, const uint8_t *row, uint8_t *restrict to, ptrdiff_t count, float rest),
           (three, row, to, count, rest))

int
sharpen(const Image *image, double factor)
{
    const ptrdiff_t line = 3 * image->width, step = (line + STRIP - 1) / STRIP * STRIP;
    const size_t room = 2 * (size_t)step * (sizeof(uint16_t) + 1);
    if (image->height <= 2 || image->width <= 2)
        return 1;
    if (!reserve(image->scratch, room))
        return 0;
    memset(image->scratch->at, 0, room);
    uint16_t *two = (uint16_t *)(void *)image->scratch->at, *three = two + step;
    uint8_t *row = (uint8_t *)(three + step), *below = row + step, *to = image->pixels;
    const float rest = (float)(1 - limited(factor));
    memcpy(below, to, (size_t)line);
    for (ptrdiff_t y = 0; y < image->height - 1; y++, to += line) {
        uint8_t *spare = row;
        row = below, below = spare;
        memcpy(below, to + line, (size_t)line);
        add(row, below, two, three, step);
        if (y > 0)
            sharpen_row(three, row, to, line, rest);
    }
    return 1;
}

/* Converts levels to 16-bit numbers relative to 127.5: see Weighed. */
INLINE void
centre_body(const uint8_t *levels, int16_t *restrict to, ptrdiff_t count)
{
    for (ptrdiff_t i = 0; i < count; i++)
        to[i] = (int16_t)((2 * levels[i] - 255) * (1 << (FRACTION - 1)));
}

VECTORISED(centre, centre_body, (const uint8_t *levels, int16_t *restrict to, ptrdiff_t count), (levels, to, count))

typedef struct { /* a kernel in one direction */
    ptrdiff_t reach; /* the largest distance of pixels that have a weight */
    Weighed weighed;
    const int16_t **rows; /* two for each distance; for 0, the middle row twice */
    int16_t *weights;     /* for each distance; for 0, half of the middle row's */
} Direction;

static double
gaussian(ptrdiff_t distance, double sigma)
{
    double away = (double)distance / sigma;
    return exp(-0.5 * away * away);
}

/* Returns how many pointers to rows, or weights, a kernel of `side` pixels needs at most. */
static ptrdiff_t
rows_of(ptrdiff_t side)
{
    return 2 * (side / 2 + 2);
}

/* Sets the weights of a Gaussian, with as many bits as fit into 16 bits. From the farthest pixel on, the rounding error
   of a weight is added to the next one, so that their sum is exactly 1. */
static void
weigh_gaussian(Direction *direction, double sigma, ptrdiff_t side)
{
    Weighed *weighed = &direction->weighed;
    double sum = 1, left = 0;
    for (ptrdiff_t distance = 1; distance <= side / 2; distance++)
        sum += 2 * gaussian(distance, sigma);
    /* If the middle has nearly all the weight, half of it does not fit into 16 bits otherwise. */
    weighed->precision = sum > 1.001 ? 16 : 15;
    int rest = 1 << (weighed->precision - 1);
    direction->reach = 0;
    for (ptrdiff_t distance = side / 2; distance > 0; distance--) {
        left += gaussian(distance, sigma) / sum * (1 << weighed->precision);
        int16_t weight = (int16_t)lrint(left);
        direction->weights[distance] = weight;
        left -= weight, rest -= weight;
        if (weight != 0 && direction->reach == 0)
            direction->reach = distance;
    }
    direction->weights[0] = (int16_t)rest;
    direction->weights[direction->reach + 1] = 0;
    weighed->pairs = (direction->reach + 2) / 2 * 2;
    weighed->rows = direction->rows, weighed->weights = direction->weights;
}

/* Sets the rows at a distance. */
static void
set_rows(const Direction *direction, ptrdiff_t distance, const int16_t *before, const int16_t *after)
{
    direction->rows[2 * distance] = before;
    direction->rows[2 * distance + 1] = after;
}

/* Returns the index of the pixel at a position: outside of the `side` pixels, they are mirrored at the edges. */
static ptrdiff_t
mirrored(ptrdiff_t place, ptrdiff_t side)
{
    place = place < 0 ? -place : place;
    return place < side ? place : 2 * (side - 1) - place;
}

enum { ALIGNED = 64 }; /* bytes of the longest vector */

typedef struct {
    Direction down, across;
    ptrdiff_t kept, step; /* how many rows are kept, and the numbers from one to the next */
    int16_t **rows;       /* where each row of the image is kept; only the latest ones are */
    int16_t *line;        /* the sums of a row, mirrored at both ends */
    uint8_t *levels;      /* a blurred row */
} Blurring;

static void
blur_row(const Image *image, Blurring *blurring, ptrdiff_t y)
{
    const ptrdiff_t length = 3 * image->width, reach = blurring->across.reach;
    for (ptrdiff_t distance = 0; distance < blurring->down.weighed.pairs; distance++) {
        ptrdiff_t away = distance <= blurring->down.reach ? distance : 0;
        set_rows(&blurring->down, distance, blurring->rows[mirrored(y - away, image->height)],
                 blurring->rows[mirrored(y + away, image->height)]);
    }
    int16_t *begin = blurring->line + 3 * reach, *end = begin + length;
    kernels->sum_rows(&blurring->down.weighed, begin, length);
    for (ptrdiff_t x = 1; x <= reach; x++) {
        memcpy(begin - 3 * x, begin + 3 * x, 3 * sizeof *begin);
        memcpy(end + 3 * (x - 1), end - 3 * (x + 1), 3 * sizeof *begin);
    }
    kernels->sum_levels(&blurring->across.weighed, blurring->levels, length);
    memcpy(image->pixels + y * length, blurring->levels, (size_t)length);
}

/* Lays out the memory. Returns 0 without memory. */
static int
make_room(const Image *image, const Operation *operation, Blurring *blurring)
{
    const ptrdiff_t high = operation->height, wide = operation->width, line = 3 * image->width;
    blurring->step = (line + STRIP - 1) / STRIP * STRIP;
    blurring->kept = high < image->height ? high : image->height;
    const ptrdiff_t pointers = rows_of(high) + rows_of(wide) + image->height;
    const ptrdiff_t numbers = rows_of(high) + rows_of(wide) + (blurring->kept + 2) * blurring->step + 6 * wide;
    const size_t room = (size_t)pointers * sizeof(int16_t *) + (size_t)numbers * sizeof(int16_t) + ALIGNED;
    if (!reserve(image->scratch, room))
        return 0;
    memset(image->scratch->at, 0, room);
    uint8_t *begin = image->scratch->at + (ALIGNED - (uintptr_t)image->scratch->at % ALIGNED);
    int16_t *kept = (int16_t *)(void *)begin;
    blurring->rows = (int16_t **)(void *)(kept + blurring->kept * blurring->step);
    blurring->down.rows = (const int16_t **)(void *)(blurring->rows + image->height);
    blurring->across.rows = blurring->down.rows + rows_of(high);
    blurring->line = (int16_t *)(void *)(blurring->across.rows + rows_of(wide));
    blurring->down.weights = blurring->line + blurring->step + 6 * wide;
    blurring->across.weights = blurring->down.weights + rows_of(high);
    blurring->levels = (uint8_t *)(blurring->across.weights + rows_of(wide));
    for (ptrdiff_t y = 0; y < image->height; y++)
        blurring->rows[y] = kept + y % blurring->kept * blurring->step;
    return 1;
}

int
blur(const Image *image, const Operation *operation)
{
    const ptrdiff_t line = 3 * image->width;
    Blurring blurring;
    if (!make_room(image, operation, &blurring))
        return 0;
    weigh_gaussian(&blurring.down, operation->factor, operation->height);
    weigh_gaussian(&blurring.across, operation->factor, operation->width);
    if (blurring.down.reach == 0 && blurring.across.reach == 0)
        return 1;
    for (ptrdiff_t distance = 0; distance < blurring.across.weighed.pairs; distance++) {
        ptrdiff_t away = distance <= blurring.across.reach ? 3 * distance : 0;
        const int16_t *middle = blurring.line + 3 * blurring.across.reach;
        set_rows(&blurring.across, distance, middle - away, middle + away);
    }
    for (ptrdiff_t y = 0, next = 0; y < image->height; y++) {
        for (; next < image->height && next <= y + blurring.down.reach; next++)
            centre(image->pixels + next * line, blurring.rows[next], line);
        blur_row(image, &blurring, y);
    }
    return 1;
}
