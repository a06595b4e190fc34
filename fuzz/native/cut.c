/* Parts that are cut out of JPEGs without decoding them: the tiles that a rectangle depends on, and the first rows.
   Also the table of the tiles that restart markers make. */

#include "target.h"
#include "sealing.h"
#include "../../packer/_images/native/native.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { JPEG, PLACE }; /* items of results: a JPEG, and the part of the image that it shows, or its number of rows */

/* Decodes a JPEG of tiles that were cut out for a rectangle: there it has the pixels of the image, if packer can decode
   that. */
static void
compare_tiles(const Task *wanted, PyObject *cut)
{
    Task whole = *wanted, part;
    Py_ssize_t size;
    const char *data = stand_in_data(stand_in_item(cut, JPEG), &size);
    int64_t place[4];
    for (int i = 0; i < 4; i++)
        place[i] = stand_in_value(stand_in_item(cut, PLACE + i));
    uint8_t *image = memory((size_t)size), *expected = draw_task(&whole);
    memcpy(image, data, (size_t)size);
    if (expected != NULL) {
        require(set_task(&part, image, (size_t)size) && part.height == place[2] && part.width == place[3]);
        part.top = wanted->top - place[0];
        part.left = wanted->left - place[1];
        part.crop_height = part.scaled_height = part.out_height = wanted->out_height;
        part.crop_width = part.scaled_width = part.out_width = wanted->out_width;
        require(part.top >= 0 && part.left >= 0 && part.top + part.out_height <= part.height
                && part.left + part.out_width <= part.width);
        uint8_t *pixels = draw_task(&part);
        require(pixels != NULL && !memcmp(pixels, expected, 3 * (size_t)part.out_height * (size_t)part.out_width));
        free(pixels);
    }
    free(expected);
    free(image);
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
    Py_DECREF(call(annotate, image, size, NOTHING_MORE));
    seal_tiles(image, size);
    Task task;
    if (set_task(&task, image, size)) {
        set_rectangle(&task, &controls);
        PyObject *cut = call(cut_out, image, size, task.height, task.width, task.top, task.left, task.crop_height,
                             task.crop_width, NOTHING_MORE);
        if (cut != Py_None)
            compare_tiles(&task, cut);
        Py_DECREF(cut);
        Py_DECREF(call(first_rows, image, size, task.height, task.width, task.top + task.crop_height, NOTHING_MORE));
    }
    free(image);
    return 0;
}
