/* Converts the levels of images to the floats that a network takes: normalised, mixed with those of the previous image,
   and converted to the batch's dtype. */

#include "numbers.h"
#include "arguments.h"
#include "geometry.h"
#include "kernels/kernels.h"
#include "native.h"

#include <string.h>

enum { UNMIXED, BLENDED, PASTED, MIXTURES };
/* Pixels that are converted at a time, and their levels: they stay in the first-level cache. */
enum { AT_ONCE = 512, VALUES = 3 * AT_ONCE };

static const Other NONE = {NULL, 1, 0};

static ptrdiff_t
size_of_number(const Numbers *numbers)
{
    return numbers->type == FLOAT32 ? 4 : 2;
}

/* Converts at most VALUES levels. */
static void
write_some(const Numbers *numbers, const Constants *constants, const uint8_t *levels, const Other *other, ptrdiff_t count,
           uint8_t *to)
{
    float own[VALUES];
    uint16_t shorter[VALUES];
    const void *made = own;
    normalise(numbers, constants, levels, other, count, own);
    if (numbers->type != FLOAT32) {
        (numbers->type == FLOAT16 ? halve : shorten)(own, count, shorter);
        made = shorter;
    }
    (numbers->streams ? kernels->copy_rows : copy_rows_plain)(to, made, 0, count * size_of_number(numbers), 1);
}

/* Converts at most AT_ONCE pixels to planar numbers; the planes begin `plane` bytes apart. */
static void
write_planes(const Numbers *numbers, const uint8_t *levels, const Other *other, ptrdiff_t count, uint8_t *to, ptrdiff_t plane)
{
    uint8_t own_levels[3][AT_ONCE], other_levels[3][AT_ONCE];
    kernels->split(levels, count, own_levels[0], own_levels[1], own_levels[2]);
    if (other->levels != NULL)
        kernels->split(other->levels, count, other_levels[0], other_levels[1], other_levels[2]);
    for (ptrdiff_t colour = 0; colour < 3; colour++) {
        Other of_colour = *other;
        of_colour.levels = other->levels == NULL ? NULL : other_levels[colour];
        write_some(numbers, &numbers->constants[colour], own_levels[colour], &of_colour, count, to + colour * plane);
    }
}

enum { LINE = 64 }; /* bytes of a cache line */

/* Returns `other`, advanced by some pixels. */
static Other
beside(const Other *other, ptrdiff_t pixels)
{
    return (Other){other->levels == NULL ? NULL : other->levels + 3 * pixels, other->share, other->other_share};
}

/* Converts the first of some pixels, and writes them past the caches if possible; returns how many. */
static ptrdiff_t
stream_pixels(const Numbers *numbers, const uint8_t *levels, const Other *other, ptrdiff_t count, uint8_t *to)
{
    enum { PIXEL = 3 * sizeof(float) };
    ptrdiff_t first = 0; /* the first pixel that begins a line */
    if (!numbers->streams || numbers->type != FLOAT32 || numbers->planes || (uintptr_t)to % sizeof(float) != 0)
        return 0;
    while (((uintptr_t)to + PIXEL * (uintptr_t)first) % LINE != 0)
        first++;
    if (first >= count)
        return 0;
    if (first > 0)
        write_some(numbers, numbers->constants, levels, other, 3 * first, to);
    const Other further = beside(other, first);
    float *line = (float *)(void *)(to + PIXEL * first);
    return first + stream(numbers, numbers->constants, levels + 3 * first, &further, 3 * (count - first), line) / 3;
}

/* Converts `count` pixels, from the pixel `first` on, of an image of `pixels` pixels. */
static void
write_run(const Numbers *numbers, const uint8_t *levels, const Other *other, ptrdiff_t first, ptrdiff_t count, uint8_t *image,
          ptrdiff_t pixels)
{
    const ptrdiff_t size = size_of_number(numbers), pixel = numbers->planes ? size : 3 * size;
    uint8_t *to = image + first * pixel;
    for (ptrdiff_t at = stream_pixels(numbers, levels, other, count, to); at < count; at += AT_ONCE) {
        const ptrdiff_t some = count - at < AT_ONCE ? count - at : AT_ONCE;
        const Other further = beside(other, at);
        if (numbers->planes)
            write_planes(numbers, levels + 3 * at, &further, some, to + at * pixel, pixels * size);
        else
            write_some(numbers, numbers->constants, levels + 3 * at, &further, 3 * some, to + at * pixel);
    }
}

void
write_image(const Numbers *numbers, const uint8_t *levels, ptrdiff_t pixels, uint8_t *out)
{
    write_run(numbers, levels, &NONE, 0, pixels, out, pixels);
}

const char *
set_numbers(Numbers *numbers, int64_t type, int64_t planes, const float *constants, double pixels)
{
    if (type < 0 || type >= TYPES)
        return "the type of numbers is unknown";
    *numbers = (Numbers){.type = (int)type, .planes = planes != 0, .scale = constants[0]};
    for (int set = 0; set < 3; set++)
        for (int i = 0; i < PERIOD; i++) {
            const int colour = planes ? set : i % 3;
            const float std = constants[4 + colour];
            numbers->constants[set].mean[i] = constants[1 + colour];
            numbers->constants[set].std[i] = std;
            numbers->constants[set].inverse[i] = 1 / std;
        }
    numbers->multiplies = can_be_multiplied(numbers);
    numbers->streams = 3 * (double)size_of_number(numbers) * pixels >= MANY;
    return NULL;
}

typedef struct { /* images of a batch, one after the other, and how they are mixed */
    const uint8_t *pixels;
    ptrdiff_t count, height, width;
    uint8_t *out;
    int mixture;
    ptrdiff_t top, left, bottom, right; /* the rectangle that is pasted from the previous image */
    float share, other_share;
} Batch;

/* Copies `count` pixels of an image, into which a rectangle of the previous image is pasted. */
static void
paste(const Batch *batch, const uint8_t *levels, const uint8_t *other, ptrdiff_t first, ptrdiff_t count, uint8_t *to)
{
    const ptrdiff_t width = batch->width;
    memcpy(to, levels + 3 * first, (size_t)(3 * count));
    for (ptrdiff_t y = larger(batch->top, first / width); y < batch->bottom && y * width < first + count; y++) {
        const ptrdiff_t begin = larger(y * width + batch->left, first), end = smaller(y * width + batch->right, first + count);
        if (begin < end)
            memcpy(to + 3 * (begin - first), other + 3 * begin, (size_t)(3 * (end - begin)));
    }
}

/* Converts such an image, some pixels at a time, in a buffer that stays in the first-level cache. */
static void
write_pasted(const Numbers *numbers, const Batch *batch, const uint8_t *levels, const uint8_t *other, uint8_t *image)
{
    enum { SOME = 4096 }; /* pixels: a whole number of cache lines, because only whole lines can bypass the caches */
    uint8_t pasted[3 * SOME];
    const ptrdiff_t pixels = batch->height * batch->width;
    for (ptrdiff_t first = 0; first < pixels; first += SOME) {
        const ptrdiff_t count = smaller(pixels - first, SOME);
        paste(batch, levels, other, first, count, pasted);
        write_run(numbers, pasted, &NONE, first, count, image, pixels);
    }
}

static void
write_images(const Numbers *numbers, const Batch *batch, ptrdiff_t begin, ptrdiff_t end)
{
    const ptrdiff_t pixels = batch->height * batch->width;
    for (ptrdiff_t i = begin; i < end; i++) {
        const uint8_t *own = batch->pixels + 3 * pixels * i;
        const Other other = {batch->pixels + 3 * pixels * (i > 0 ? i - 1 : batch->count - 1), batch->share, batch->other_share};
        uint8_t *image = batch->out + 3 * pixels * size_of_number(numbers) * i;
        if (batch->mixture == PASTED)
            write_pasted(numbers, batch, own, other.levels, image);
        else
            write_run(numbers, own, batch->mixture == BLENDED ? &other : &NONE, 0, pixels, image, pixels);
    }
}

static const char *
find_wrong(const int64_t *n)
{
    const int64_t count = n[1], begin = n[2], end = n[3], height = n[4], width = n[5];
    if (begin < 0 || begin > end || end > count || height < 1 || height > INT32_MAX || width < 1 || width > INT32_MAX)
        return "the range of images or their size is invalid";
    if (n[10] < 0 || n[10] >= MIXTURES)
        return "the mixture is unknown";
    if (n[10] == PASTED && (n[11] < 0 || n[11] > n[13] || n[13] > height || n[12] < 0 || n[12] > n[14] || n[14] > width))
        return "the pasted rectangle does not lie inside of the images";
    return NULL;
}

PyObject *
write_numbers(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[15];
    if (!read_integers(arguments, given, n, 15))
        return NULL;
    const float *constants = (const float *)(uintptr_t)n[9];
    Numbers numbers;
    const char *wrong = find_wrong(n);
    if (wrong == NULL)
        wrong = set_numbers(&numbers, n[7], n[8], constants, (double)(n[3] - n[2]) * (double)n[4] * (double)n[5]);
    if (wrong != NULL) {
        PyErr_SetString(PyExc_ValueError, wrong);
        return NULL;
    }
    const Batch batch = {
        .pixels = (const uint8_t *)(uintptr_t)n[0], .count = (ptrdiff_t)n[1], .height = (ptrdiff_t)n[4],
        .width = (ptrdiff_t)n[5], .out = (uint8_t *)(uintptr_t)n[6], .mixture = (int)n[10], .top = (ptrdiff_t)n[11],
        .left = (ptrdiff_t)n[12], .bottom = (ptrdiff_t)n[13], .right = (ptrdiff_t)n[14], .share = constants[7],
        .other_share = constants[8],
    };
    Py_BEGIN_ALLOW_THREADS
    write_images(&numbers, &batch, (ptrdiff_t)n[2], (ptrdiff_t)n[3]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
