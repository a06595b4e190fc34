/* Adding a table of tiles to JPEGs whose restart markers make tiles: the pixels do not change, neither of the whole
   image nor of a rectangle, for which only its own tiles are read. */

#include "target.h"
#include "../../packer/_images/native/native.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { CONTROLS = 5 };
    if (size < CONTROLS)
        return 0;
    Input controls = {data, data + CONTROLS};
    size -= CONTROLS;
    uint8_t *image = copy_image(data + CONTROLS, &size, &controls);
    PyObject *annotated = call(annotate, image, size, NOTHING_MORE);
    Task before, after;
    if (annotated != Py_None && set_task(&before, image, size)) {
        Py_ssize_t all;
        const char *bytes = stand_in_data(annotated, &all);
        require_set((const uint8_t *)bytes, (size_t)all);
        uint8_t *copy = memory((size_t)all), *pixels = draw_task(&before);
        memcpy(copy, bytes, (size_t)all);
        require(set_task(&after, copy, (size_t)all) && after.height == before.height && after.width == before.width);
        uint8_t *others = draw_task(&after);
        require((pixels == NULL) == (others == NULL));
        if (pixels != NULL) {
            require(!memcmp(pixels, others, 3 * (size_t)before.height * (size_t)before.width));
            compare_rectangle(&after, pixels, &controls);
        }
        PyObject *again = call(annotate, copy, (size_t)all, NOTHING_MORE);
        require(again == Py_None); /* it has a table */
        Py_DECREF(again);
        free(others);
        free(pixels);
        free(copy);
    }
    Py_DECREF(annotated);
    free(image);
    return 0;
}
