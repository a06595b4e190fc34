/* Builds windows from rows and columns of an image, pixel by pixel: nearest neighbours, mirrored and padded. */

#include "arguments.h"
#include "native.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const uint8_t *pixels; /* rows, `stride` bytes from one to the next */
    ptrdiff_t stride, item; /* bytes of a pixel */
    const int64_t *rows, *columns; /* the row or column that each of the window shows; negative outside of the image */
    ptrdiff_t height, width;
    const uint8_t *fill; /* the pixel to show outside of the image */
} Window;

#define GATHER_ROW(type) \
    do { \
        const type *pixels = (const type *)(const void *)row; \
        type fill, *to = (type *)(void *)out; \
        memcpy(&fill, window->fill, sizeof fill); \
        for (ptrdiff_t x = 0; x < window->width; x++) \
            to[x] = columns[x] < 0 ? fill : pixels[columns[x]]; \
    } while (0)

static void
gather_row(const Window *window, const uint8_t *row, uint8_t *out)
{
    const int64_t *columns = window->columns;
    ptrdiff_t item = window->item;
    if (item == 1)
        GATHER_ROW(uint8_t);
    else if (item == 2 && !(((uintptr_t)row | (uintptr_t)out) & 1))
        GATHER_ROW(uint16_t);
    else
        for (ptrdiff_t x = 0; x < window->width; x++)
            memcpy(out + x * item, columns[x] < 0 ? window->fill : row + columns[x] * item, (size_t)item);
}

static void
fill_row(const Window *window, uint8_t *out)
{
    for (ptrdiff_t x = 0; x < window->width; x++)
        memcpy(out + x * window->item, window->fill, (size_t)window->item);
}

static void
gather_all(const Window *window, uint8_t *out)
{
    ptrdiff_t size = window->width * window->item;
    for (ptrdiff_t y = 0; y < window->height; y++, out += size) {
        int64_t row = window->rows[y];
        if (y > 0 && row == window->rows[y - 1]) /* an enlarged image repeats rows */
            memcpy(out, out - size, (size_t)size);
        else if (row < 0)
            fill_row(window, out);
        else
            gather_row(window, window->pixels + row * window->stride, out);
    }
}

PyObject *
gather(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[9];
    if (!read_integers(arguments, given, n, 9))
        return NULL;
    if (n[2] < 1 || n[5] < 0 || n[6] < 0) {
        PyErr_SetString(PyExc_ValueError, "the size of the window or of a pixel is out of range");
        return NULL;
    }
    const Window window = {
        (const uint8_t *)(uintptr_t)n[0], (ptrdiff_t)n[1], (ptrdiff_t)n[2], (const int64_t *)(uintptr_t)n[3],
        (const int64_t *)(uintptr_t)n[4], (ptrdiff_t)n[5], (ptrdiff_t)n[6], (const uint8_t *)(uintptr_t)n[7],
    };
    Py_BEGIN_ALLOW_THREADS
    gather_all(&window, (uint8_t *)(uintptr_t)n[8]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
