/* Rows of PNGs: their filters undone (PNG specification, section 9), and small samples unpacked. */

#include "arguments.h"
#include "native.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { NONE, SUB, UP, AVERAGE, PAETH };

/* Returns that of three neighbours which is the nearest to left + above - corner. */
static inline uint8_t
paeth(int left, int above, int corner)
{
    int to_left = above - corner, to_above = left - corner, to_corner = to_left + to_above;
    to_left = to_left < 0 ? -to_left : to_left;
    to_above = to_above < 0 ? -to_above : to_above;
    to_corner = to_corner < 0 ? -to_corner : to_corner;
    if (to_left <= to_above && to_left <= to_corner)
        return (uint8_t)left;
    return (uint8_t)(to_above <= to_corner ? above : corner);
}

/* Undoes the filter of a row; `step` is how many bytes before a byte its left neighbour lies, and `above` the row above. Returns 0
   of a filter that there is not. */
static int
undo(int filter, const uint8_t *from, const uint8_t *above, ptrdiff_t size, ptrdiff_t step, uint8_t *to)
{
    ptrdiff_t i = 0, first = step < size ? step : size; /* bytes without a left neighbour */
    switch (filter) {
    case NONE:
        memcpy(to, from, (size_t)size);
        return 1;
    case SUB:
        memcpy(to, from, (size_t)first);
        for (i = first; i < size; i++)
            to[i] = (uint8_t)(from[i] + to[i - step]);
        return 1;
    case UP:
        for (; i < size; i++)
            to[i] = (uint8_t)(from[i] + above[i]);
        return 1;
    case AVERAGE:
        for (; i < first; i++)
            to[i] = (uint8_t)(from[i] + above[i] / 2);
        for (; i < size; i++)
            to[i] = (uint8_t)(from[i] + (to[i - step] + above[i]) / 2);
        return 1;
    case PAETH:
        for (; i < first; i++)
            to[i] = (uint8_t)(from[i] + above[i]);
        for (; i < size; i++)
            to[i] = (uint8_t)(from[i] + paeth(to[i - step], above[i], above[i - step]));
        return 1;
    default:
        return 0;
    }
}

/* Undoes the filters of rows, each of which stands after the number of its filter. */
static int
undo_all(const uint8_t *from, ptrdiff_t rows, ptrdiff_t size, ptrdiff_t step, const uint8_t *above, uint8_t *to)
{
    for (ptrdiff_t row = 0; row < rows; row++, from += size + 1, to += size) {
        if (!undo(from[0], from + 1, above, size, step, to))
            return 0;
        above = to;
    }
    return 1;
}

PyObject *
unfilter(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[5];
    if (!read_integers(arguments, given, n, 5))
        return NULL;
    if (n[1] < 0 || n[2] < 1 || n[2] > PTRDIFF_MAX - 1 || n[3] < 1) {
        PyErr_SetString(PyExc_ValueError, "rows of that size there are not");
        return NULL;
    }
    uint8_t *nothing = PyMem_Calloc((size_t)n[2], 1); /* above the first row */
    if (nothing == NULL)
        return PyErr_NoMemory();
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = undo_all((const uint8_t *)(uintptr_t)n[0], (ptrdiff_t)n[1], (ptrdiff_t)n[2], (ptrdiff_t)n[3], nothing,
                    (uint8_t *)(uintptr_t)n[4]);
    Py_END_ALLOW_THREADS
    PyMem_Free(nothing);
    return PyBool_FromLong(done);
}

/* Writes the samples of a row, of 1, 2 or 4 bits each, the first one in the highest bits, times a factor. */
static void
unpack_row(const uint8_t *from, ptrdiff_t width, int bits, int factor, uint8_t *to)
{
    int mask = (1 << bits) - 1, a_byte = 8 / bits;
    for (ptrdiff_t x = 0; x < width; from++)
        for (int shift = 8 - bits, end = x + a_byte <= width ? 0 : 8 - bits * (int)(width - x); shift >= end; shift -= bits)
            to[x++] = (uint8_t)((*from >> shift & mask) * factor);
}

PyObject *
unpack(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[6];
    if (!read_integers(arguments, given, n, 6))
        return NULL;
    if (n[1] < 0 || n[2] < 0 || n[2] > PTRDIFF_MAX / 8 || (n[3] != 1 && n[3] != 2 && n[3] != 4)) {
        PyErr_SetString(PyExc_ValueError, "samples of that size there are not");
        return NULL;
    }
    const uint8_t *from = (const uint8_t *)(uintptr_t)n[0];
    uint8_t *to = (uint8_t *)(uintptr_t)n[5];
    ptrdiff_t width = (ptrdiff_t)n[2], size = (width * (int)n[3] + 7) / 8;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t row = 0; row < n[1]; row++, from += size, to += width)
        unpack_row(from, width, (int)n[3], (int)n[4], to);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
