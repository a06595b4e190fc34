/* Whole JPEGs, in colour and in grey, and rectangles of them, which have the same pixels. */

#include "target.h"
#include "../../packer/_images/native/native.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Decodes an image in grey. If that is possible, all three colours of each pixel equal its grey level. */
static void
compare_grey(const Task *task, const uint8_t *pixels)
{
    size_t count = (size_t)task->height * (size_t)task->width;
    uint8_t *levels = memory(count);
    PyObject *done = call(decode_grey, (const uint8_t *)(uintptr_t)task->position, (size_t)task->size, task->height,
                          task->width, (int64_t)(uintptr_t)levels, NOTHING_MORE);
    if (stand_in_value(done)) {
        require(pixels != NULL);
        for (size_t i = 0; i < count; i++)
            require(levels[i] == pixels[3 * i] && levels[i] == pixels[3 * i + 1] && levels[i] == pixels[3 * i + 2]);
    }
    Py_DECREF(done);
    free(levels);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { CONTROLS = 5 };
    if (size < CONTROLS)
        return 0;
    Input controls = {data, data + CONTROLS};
    size -= CONTROLS;
    uint8_t *image = copy_image(data + CONTROLS, &size, &controls);
    Task task;
    if (set_task(&task, image, size)) {
        uint8_t *pixels = draw_task(&task);
        compare_grey(&task, pixels);
        if (pixels != NULL)
            compare_rectangle(&task, pixels, &controls);
        free(pixels);
    }
    free(image);
    return 0;
}
