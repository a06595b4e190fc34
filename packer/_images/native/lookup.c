/* Implements lookup.h. */

#include "lookup.h"
#include "arguments.h"
#include "native.h"

void
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

/* Does the same, but the numbers of a pixel are adjacent. */
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
    int64_t n[6];
    if (!read_integers(arguments, given, n, 6))
        return NULL;
    if (n[1] < 0 || n[5] < 0) {
        PyErr_SetString(PyExc_ValueError, "the number of pixels or of images is negative");
        return NULL;
    }
    const ptrdiff_t count = (ptrdiff_t)n[1];
    const uint8_t *pixels = (const uint8_t *)(uintptr_t)n[0];
    float *out = (float *)(uintptr_t)n[3];
    void (*write)(const uint8_t *, ptrdiff_t, const float *, float *) = n[4] ? look_up_planes : look_up_pixels;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t image = 0; image < n[5]; image++, pixels += 3 * count, out += 3 * count)
        write(pixels, count, (const float *)(uintptr_t)n[2], out);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
