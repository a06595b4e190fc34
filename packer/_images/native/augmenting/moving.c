/* Moves pixels by an affine matrix: see augmenting.h. Coordinates are computed as in torchvision's affine and torch's
   grid_sample, rounding after each step; otherwise some pixels would come from another neighbour. */

#include "augmenting/augmenting.h"
#include "kernels/vectorised.h"

#include <math.h>
#include <string.h>

enum { RUN = 256 }; /* columns that are computed at a time: whole strips */

typedef struct { /* in one direction, the coordinates that the pixels of a row show */
    float row, shift; /* the terms that all columns share */
    float half;       /* half of the image's side */
} Line;

typedef struct { /* a part of a row that is computed, in whole strips */
    float across[RUN], down[RUN]; /* the term of each column */
    /* For each column, the first byte of the pixel that it shows, or the first of four pixels around it. */
    int32_t from[RUN];
    float east[RUN], south[RUN];  /* the distance of the coordinate from the first pixel */
    uint32_t upper[2 * RUN], lower[2 * RUN]; /* the four pixels */
    uint8_t red[RUN], green[RUN], blue[RUN];
} Run;

/* Returns the coordinate that a pixel shows, from the term of its column. */
INLINE float
place_of(float column, const Line *line)
{
    float at = (column + line->row) + line->shift;
    return (at + 1) * line->half - 0.5f;
}

/* Rounds to the nearest integer, halves to the even one. The coordinate must not be far outside of the image. */
INLINE float
nearest(float place)
{
    const float magic = 12582912; /* 1.5 * 2**23: floats of this size have no fraction */
    return (place + magic) - magic;
}

typedef struct { /* the image that is moved */
    const uint8_t *pixels; /* of the image; with edges of zeros around it if pixels are interpolated */
    int32_t height, width;
    int32_t step; /* from row to row, in the units of `from` */
    int is_filled;
    uint8_t fill[3]; /* without interpolation, it also follows the pixels */
} Source;

/* Rounds to an integer as `nearest` does. For a coordinate that is far away or NaN, the result is outside of any image. */
INLINE uint32_t
nearest_whole(float place)
{
    const float magic = 12582912, moved = place + magic;
    uint32_t zero, bits;
    memcpy(&zero, &magic, sizeof zero);
    memcpy(&bits, &moved, sizeof bits); /* their fraction counts whole numbers */
    return bits - zero;
}

INLINE void
find_body(Run *run, Line across, Line down, const Source *source, ptrdiff_t count)
{
    const uint32_t height = (uint32_t)source->height, width = (uint32_t)source->width, step = (uint32_t)source->step;
    const uint32_t outside = height * step;
    for (ptrdiff_t strip = 0; strip < count; strip += STRIP)
        for (ptrdiff_t x = strip; x < strip + STRIP; x++) {
            uint32_t row = nearest_whole(place_of(run->down[x], &down));
            uint32_t column = nearest_whole(place_of(run->across[x], &across));
            uint32_t at = row * step + 3 * column; /* any number if it is far outside */
            run->from[x] = (int32_t)((row < height) & (column < width) ? at : outside);
        }
}

VECTORISED(find, find_body, (Run * run, Line across, Line down, const Source *source, ptrdiff_t count),
           (run, across, down, source, count))

/* Tells whether the coordinates of a run are `step` pixels apart, and none is halfway between two pixels. */
static int
is_even(const float *columns, const Line *line, ptrdiff_t last, float step)
{
    enum { FAR = 1 << 12 }; /* up to here, coordinates are exact enough */
    float first = place_of(columns[0], line), way = place_of(columns[last], line) - first;
    return fabsf(first) < FAR && fabsf(way - step * (float)last) < 0.01f && fabsf(first - nearest(first)) < 0.45f;
}

/* Copies a part of a row of the source from a column on, and fills the pixels outside of the source. */
static void
copy_row(const Source *source, ptrdiff_t row, ptrdiff_t column, ptrdiff_t count, uint8_t *to)
{
    ptrdiff_t first = column < 0 ? -column : 0, end = source->width - column < count ? source->width - column : count;
    if (row < 0 || row >= source->height || first >= end)
        first = end = 0;
    for (ptrdiff_t x = 0; x < first; x++)
        memcpy(to + 3 * x, source->fill, 3);
    if (first < end)
        memcpy(to + 3 * first, source->pixels + row * source->step + 3 * (column + first), 3 * (size_t)(end - first));
    for (ptrdiff_t x = end; x < count; x++)
        memcpy(to + 3 * x, source->fill, 3);
}

static void
copy_nearest(Run *run, const Line *across, const Line *down, const Source *source, ptrdiff_t count, uint8_t *to)
{
    const ptrdiff_t last = count - 1;
    if (is_even(run->down, down, last, 0) && is_even(run->across, across, last, 1)) {
        float row = nearest(place_of(run->down[0], down)), column = nearest(place_of(run->across[0], across));
        copy_row(source, (ptrdiff_t)row, (ptrdiff_t)column, count, to);
        return;
    }
    find(run, *across, *down, source, count);
    kernels->pick(source->pixels, run->from, count, to);
}

/* Pixels around an image: a coordinate farther outside has no neighbours in the image, like one in the edge. */
enum { EDGE = 2 };

/* Returns a coordinate; if it is farther outside than the edge, one in the edge. */
INLINE float
near(float place, float side)
{
    place = place > -EDGE ? place : -EDGE; /* also if it is NaN */
    return place < side ? place : side;
}

INLINE void
surround_body(Run *run, Line across, Line down, const Source *source, ptrdiff_t count)
{
    const float height = (float)source->height, width = (float)source->width;
    const int32_t step = source->step;
    for (ptrdiff_t strip = 0; strip < count; strip += STRIP)
        for (ptrdiff_t x = strip; x < strip + STRIP; x++) {
            float column = near(place_of(run->across[x], &across), width), row = near(place_of(run->down[x], &down), height);
            float west = nearest(column - 0.5f), north = nearest(row - 0.5f); /* for whole numbers, maybe the one before */
            run->east[x] = column - west, run->south[x] = row - north;
            run->from[x] = ((int32_t)north + EDGE) * step + (int32_t)west + EDGE;
        }
}

VECTORISED(surround, surround_body, (Run * run, Line across, Line down, const Source *source, ptrdiff_t count),
           (run, across, down, source, count))

/* Returns a byte of a pixel, 0 to 3 in the order of memory. */
INLINE float
byte_of(uint32_t pixel, int byte)
{
    const uint32_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return (float)(int32_t)(pixel >> 8 * (first ? byte : 3 - byte) & 255);
}

typedef struct { /* the four pixels around a coordinate, and their weights */
    uint32_t pixels[4];
    float weights[4];
} Around;

INLINE float
mixed(const Around *around, int byte)
{
    const uint32_t *pixels = around->pixels;
    const float *weights = around->weights;
    float upper = weights[0] * byte_of(pixels[0], byte) + weights[1] * byte_of(pixels[1], byte);
    return (upper + weights[2] * byte_of(pixels[2], byte)) + weights[3] * byte_of(pixels[3], byte);
}

/* Mixes the pixels around each coordinate. If `is_filled`, the fill replaces those outside of the image. */
INLINE void
mix_body(Run *run, const Source *source, ptrdiff_t count, int is_filled)
{
    const float red = source->fill[0], green = source->fill[1], blue = source->fill[2];
    for (ptrdiff_t strip = 0; strip < count; strip += STRIP) {
        const uint32_t *upper = run->upper + 2 * strip, *lower = run->lower + 2 * strip;
        uint8_t levels[3][STRIP];
        for (int x = 0; x < STRIP; x++) {
            float east = run->east[strip + x], west = 1 - east, south = run->south[strip + x], north = 1 - south;
            Around around = {
                {upper[2 * x], upper[2 * x + 1], lower[2 * x], lower[2 * x + 1]},
                {north * west, north * east, south * west, south * east},
            };
            float numbers[3] = {mixed(&around, 0), mixed(&around, 1), mixed(&around, 2)};
            if (is_filled) {
                float inside = mixed(&around, 3) * (1.0f / 255);
                numbers[0] = (numbers[0] - red) * inside + red;
                numbers[1] = (numbers[1] - green) * inside + green;
                numbers[2] = (numbers[2] - blue) * inside + blue;
            }
            for (int colour = 0; colour < 3; colour++)
                levels[colour][x] = (uint8_t)(int32_t)nearest(numbers[colour]);
        }
        memcpy(run->red + strip, levels[0], STRIP);
        memcpy(run->green + strip, levels[1], STRIP);
        memcpy(run->blue + strip, levels[2], STRIP);
    }
}

INLINE void
mix_filled_body(Run *run, const Source *source, ptrdiff_t count)
{
    mix_body(run, source, count, 1);
}

INLINE void
mix_bare_body(Run *run, const Source *source, ptrdiff_t count)
{
    mix_body(run, source, count, 0);
}

VECTORISED(mix_filled, mix_filled_body, (Run * run, const Source *source, ptrdiff_t count), (run, source, count))
VECTORISED(mix_bare, mix_bare_body, (Run * run, const Source *source, ptrdiff_t count), (run, source, count))

static void
interpolate(Run *run, const Line *across, const Line *down, const Source *source, ptrdiff_t count, uint8_t *to)
{
    surround(run, *across, *down, source, count);
    const uint8_t *pixels = source->pixels, *below = pixels + 4 * (ptrdiff_t)source->step;
    for (ptrdiff_t x = 0; x < count; x++) {
        ptrdiff_t first = 4 * (ptrdiff_t)run->from[x];
        memcpy(run->upper + 2 * x, pixels + first, 8);
        memcpy(run->lower + 2 * x, below + first, 8);
    }
    (source->is_filled ? mix_filled : mix_bare)(run, source, count);
    kernels->join(run->red, run->green, run->blue, count, to);
}

/* Marks pixels as those of the image, by their fourth byte. */
INLINE void
mark_body(uint8_t *pixels, ptrdiff_t count)
{
    for (ptrdiff_t i = 0; i < 4 * count; i++)
        pixels[i] |= i % 4 == 3 ? 255 : 0;
}

VECTORISED(mark, mark_body, (uint8_t *pixels, ptrdiff_t count), (pixels, count))

/* Copies an image with edges of zeros around it, four bytes a pixel. */
static void
copy_edged(const Image *image, int is_marked, uint8_t *to, ptrdiff_t step)
{
    const ptrdiff_t height = image->height, width = image->width;
    memset(to, 0, 4 * (size_t)(step * (height + 2 * EDGE)));
    for (ptrdiff_t y = 0; y < height; y++) {
        uint8_t *row = to + 4 * ((y + EDGE) * step + EDGE);
        kernels->expand(image->pixels + 3 * y * width, row, width);
        if (is_marked)
            mark(row, width);
    }
}

/* Copies the image that is moved. Returns 0 without memory, or if it has too many pixels for 32-bit indices. */
static int
copy_source(const Image *image, const Operation *operation, Source *source)
{
    const int is_nearest = operation->interpolation == NEAREST;
    const size_t edges = is_nearest ? 0 : 2 * EDGE, bytes = is_nearest ? 3 : 4;
    const size_t size = bytes * ((size_t)image->height + edges) * ((size_t)image->width + edges);
    if (size > INT32_MAX - 64 || !reserve(image->scratch, size + 4)) /* the fill is read as four bytes */
        return 0;
    uint8_t *to = image->scratch->at;
    const int64_t colour = operation->fill == NO_FILL ? 0 : operation->fill;
    const uint8_t fill[3] = {(uint8_t)colour, (uint8_t)(colour >> 8), (uint8_t)(colour >> 16)};
    source->pixels = to, source->height = (int32_t)image->height, source->width = (int32_t)image->width;
    source->step = is_nearest ? 3 * source->width : source->width + 2 * EDGE;
    source->is_filled = operation->fill != NO_FILL;
    memcpy(source->fill, fill, 3);
    if (is_nearest) {
        memcpy(to, image->pixels, size);
        memcpy(to + size, fill, 3);
        to[size + 3] = 0;
    } else
        copy_edged(image, source->is_filled, to, source->step);
    return 1;
}

int
move(const Image *image, const Operation *operation)
{
    const int is_nearest = operation->interpolation == NEAREST;
    const float height = (float)image->height, width = (float)image->width;
    float matrix[6];
    Source source;
    Run run;
    if (!copy_source(image, operation, &source))
        return 0;
    for (int i = 0; i < 6; i++)
        matrix[i] = (float)operation->matrix[i] / (0.5f * (i < 3 ? width : height));
    Line across = {0, matrix[2], width * 0.5f}, down = {0, matrix[5], height * 0.5f};
    for (ptrdiff_t first = 0; first < image->width; first += RUN) {
        ptrdiff_t count = image->width - first < RUN ? image->width - first : RUN;
        for (ptrdiff_t x = 0; x < RUN; x++) {
            float column = (1 - width) * 0.5f + (float)(int32_t)(first + x);
            run.across[x] = column * matrix[0], run.down[x] = column * matrix[3];
        }
        for (ptrdiff_t y = 0; y < image->height; y++) {
            float row = (1 - height) * 0.5f + (float)(int32_t)y;
            uint8_t *to = image->pixels + 3 * (y * image->width + first);
            across.row = row * matrix[1], down.row = row * matrix[4];
            (is_nearest ? copy_nearest : interpolate)(&run, &across, &down, &source, count, to);
        }
    }
    return 1;
}
