/* Numbers for the levels of pixels, by a table. */

#include "arguments.h"
#include "native.h"

#include <stddef.h>
#include <stdint.h>

/* Writes each level of RGB pixels as the number that the table of its colour says, one colour after the other. */
static void
look_up_planes(const uint8_t *pixels, ptrdiff_t count, const float *table, float *out)
{
    const float *green_table = table + 256, *blue_table = table + 512;
    float *green = out + count, *blue = out + 2 * count;
    for (ptrdiff_t i = 0; i < count; i++, pixels += 3) {
        out[i] = table[pixels[0]];
        green[i] = green_table[pixels[1]];
        blue[i] = blue_table[pixels[2]];
    }
}

/* Does the same, pixel by pixel. */
static void
look_up_pixels(const uint8_t *pixels, ptrdiff_t count, const float *table, float *out)
{
    for (ptrdiff_t i = 0; i < 3 * count; i += 3) {
        out[i] = table[pixels[i]];
        out[i + 1] = table[256 + pixels[i + 1]];
        out[i + 2] = table[512 + pixels[i + 2]];
    }
}

PyObject *
look_up(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[5];
    if (!read_integers(arguments, given, n, 5))
        return NULL;
    if (n[1] < 0) {
        PyErr_SetString(PyExc_ValueError, "the number of pixels is negative");
        return NULL;
    }
    void (*write)(const uint8_t *, ptrdiff_t, const float *, float *) = n[4] ? look_up_planes : look_up_pixels;
    Py_BEGIN_ALLOW_THREADS
    write((const uint8_t *)(uintptr_t)n[0], (ptrdiff_t)n[1], (const float *)(uintptr_t)n[2], (float *)(uintptr_t)n[3]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
