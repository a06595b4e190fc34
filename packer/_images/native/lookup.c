/* Numbers for the levels of pixels, by a table. */

#include "arguments.h"
#include "native.h"

#include <stddef.h>
#include <stdint.h>

/* Writes the three colours of RGB pixels one after the other, each level as the number that the table of its colour says. */
static void
look_up_pixels(const uint8_t *pixels, ptrdiff_t count, const float *table, float *out)
{
    const float *green_table = table + 256, *blue_table = table + 512;
    float *green = out + count, *blue = out + 2 * count;
    for (ptrdiff_t i = 0; i < count; i++, pixels += 3) {
        out[i] = table[pixels[0]];
        green[i] = green_table[pixels[1]];
        blue[i] = blue_table[pixels[2]];
    }
}

PyObject *
look_up(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[4];
    if (!read_integers(arguments, given, n, 4))
        return NULL;
    if (n[1] < 0) {
        PyErr_SetString(PyExc_ValueError, "the number of pixels is negative");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    look_up_pixels((const uint8_t *)(uintptr_t)n[0], (ptrdiff_t)n[1], (const float *)(uintptr_t)n[2],
                   (float *)(uintptr_t)n[3]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
