/* Moves masks, and pixels of any type, by an affine matrix, to the nearest pixel. Coordinates are computed as in
   torchvision's affine and torch's grid_sample, rounding after each step. */

#include "augmenting/augmenting.h"
#include "arguments.h"
#include "native.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct { /* pixels of any number of bytes, whose rows follow one another */
    const uint8_t *pixels;
    ptrdiff_t height, width, item;
    const uint8_t *fill; /* the pixel to show outside of the image */
} Mask;

typedef struct { /* a row of a matrix, for coordinates in units of half a side of the image */
    float across, down, shift, half;
} Line;

static Line
line_of(const double *matrix, ptrdiff_t side)
{
    const float half = 0.5f * (float)side;
    return (Line){(float)matrix[0] / half, (float)matrix[1] / half, (float)matrix[2] / half, half};
}

/* Returns the row or column of the image that is shown at (x, y). Outside of the image, that is one that it does not
   have. */
static ptrdiff_t
nearest(const Line *line, float x, float y)
{
    const float farthest = 1 << 22, magic = 12582912; /* 1.5 * 2**23: floats of this size have no fraction */
    float at = (x * line->across + y * line->down) + line->shift, place = (at + 1) * line->half - 0.5f;
    place = place > -farthest ? place : -farthest; /* also if it is NaN */
    place = place < farthest ? place : farthest;
    return (ptrdiff_t)((place + magic) - magic);
}

static void
move_row(const Mask *mask, const Line *across, const Line *down, ptrdiff_t y, uint8_t *to)
{
    const float from_left = (float)(1 - mask->width) * 0.5f, from_middle = (float)y + (float)(1 - mask->height) * 0.5f;
    for (ptrdiff_t x = 0; x < mask->width; x++, to += mask->item) {
        ptrdiff_t column = nearest(across, from_left + (float)x, from_middle);
        ptrdiff_t row = nearest(down, from_left + (float)x, from_middle);
        int inside = row >= 0 && row < mask->height && column >= 0 && column < mask->width;
        const uint8_t *pixel = inside ? mask->pixels + (row * mask->width + column) * mask->item : mask->fill;
        if (mask->item == 1)
            *to = *pixel;
        else
            memcpy(to, pixel, (size_t)mask->item);
    }
}

PyObject *
move_mask(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[7];
    if (!read_integers(arguments, given, n, 7))
        return NULL;
    if (n[1] < 1 || n[2] < 1 || n[3] < 1 || n[1] > LONGEST_MOVED || n[2] > LONGEST_MOVED) {
        PyErr_SetString(PyExc_ValueError, "the image is empty or too large");
        return NULL;
    }
    const Mask mask = {
        (const uint8_t *)(uintptr_t)n[0], (ptrdiff_t)n[1], (ptrdiff_t)n[2], (ptrdiff_t)n[3], (const uint8_t *)(uintptr_t)n[5],
    };
    const double *matrix = (const double *)(uintptr_t)n[4];
    const Line across = line_of(matrix, mask.width), down = line_of(matrix + 3, mask.height);
    Py_BEGIN_ALLOW_THREADS
    for (ptrdiff_t y = 0; y < mask.height; y++)
        move_row(&mask, &across, &down, y, (uint8_t *)(uintptr_t)n[6] + y * mask.width * mask.item);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
