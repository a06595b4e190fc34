/* Encoding pixels as JPEGs: all vector code writes the same bytes as plain C, and packer's own decoder reads them. */

#include "given.h"
#include "../../packer/_images/native/native.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TALL = 1, WIDE = 2, EXTREME = 4, APART = 8, RESTARTS = 16 }; /* flags */

/* Encodes by a set of kernels. */
static PyObject *
encoded(int set, const uint8_t *pixels, int64_t height, int64_t width, int64_t stride, int64_t quality, int64_t interval)
{
    use_kernels(set);
    PyObject *made = call(encode_jpeg, NULL, 0, (int64_t)(uintptr_t)pixels, height, width, stride, quality, interval, NOTHING_MORE);
    use_kernels(kernel_sets() - 1);
    require(made != NULL);
    return made;
}

/* Requires that packer's own decoder accepts a JPEG with that size. */
static void
decode(PyObject *jpeg, int64_t height, int64_t width)
{
    Task task;
    Py_ssize_t size;
    const char *bytes = stand_in_data(jpeg, &size);
    require_set((const uint8_t *)bytes, (size_t)size);
    require(set_task(&task, (const uint8_t *)bytes, (size_t)size) && task.height == height && task.width == width);
    uint8_t *pixels = draw_task(&task);
    require(pixels != NULL);
    free(pixels);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { CONTROLS = 5 };
    if (size < CONTROLS)
        return 0;
    Input input = {data, data + size};
    const int flags = next_byte(&input);
    const int64_t height = (1 + next_byte(&input) % 40) * (flags & TALL ? 9 : 1);
    const int64_t width = (1 + next_byte(&input) % 80) * (flags & WIDE ? 9 : 1);
    const int64_t quality = 1 + scaled(next_byte(&input), 100), interval = next_byte(&input) % 32;
    const int64_t stride = 3 * width + (flags & APART ? 5 : 0);
    const size_t bytes = (size_t)(stride * (height - 1) + 3 * width); /* none after the last pixel */
    uint8_t *pixels = memory(bytes);
    fill_from(&input, pixels, bytes);
    for (size_t i = 0; i < bytes && flags & EXTREME; i++)
        pixels[i] = pixels[i] & 128 ? 255 : 0;
    PyObject *expected = encoded(PLAIN, pixels, height, width, stride, quality, flags & RESTARTS ? interval : 0);
    for (int set = PLAIN + 1; set < kernel_sets(); set++) {
        PyObject *made = encoded(set, pixels, height, width, stride, quality, flags & RESTARTS ? interval : 0);
        Py_ssize_t sizes[2];
        const char *content[2] = {stand_in_data(expected, &sizes[0]), stand_in_data(made, &sizes[1])};
        require(sizes[0] == sizes[1] && !memcmp(content[0], content[1], (size_t)sizes[0]));
        Py_DECREF(made);
    }
    decode(expected, height, width);
    Py_DECREF(expected);
    free(pixels);
    return 0;
}
