/* JPEGs that are made tiled: the pixels do not change. Vector code writes the same bytes as plain C. */

#include "target.h"
#include "../../packer/_images/native/native.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Joins the pieces of a transcoded JPEG as packer._images.jpeg_tiles.assemble does, except for the table of tiles. */
static uint8_t *
join(PyObject *pieces, size_t *size)
{
    enum { METADATA, HEADER, COLUMNS, ROW_SIZES, SCAN, END, PIECES };
    static const int order[] = {METADATA, HEADER, SCAN};
    require(stand_in_length(pieces) == PIECES);
    *size = 4;
    for (int i = 0; i < 3; i++) {
        Py_ssize_t bytes;
        stand_in_data(stand_in_item(pieces, order[i]), &bytes);
        *size += (size_t)bytes;
    }
    uint8_t *image = memory(*size), *to = image;
    memcpy(to, "\xFF\xD8", 2);
    to += 2;
    for (int i = 0; i < 3; i++) {
        Py_ssize_t bytes;
        const char *piece = stand_in_data(stand_in_item(pieces, order[i]), &bytes);
        require_set((const uint8_t *)piece, (size_t)bytes);
        memcpy(to, piece, (size_t)bytes);
        to += bytes;
    }
    memcpy(to, "\xFF\xD9", 2);
    return image;
}

/* Compares the pixels of an image with those of its transcoded JPEG. */
static void
compare(const Task *task, const uint8_t *image, size_t size)
{
    Task before = *task, after;
    uint8_t *pixels = draw_task(&before);
    if (pixels != NULL) {
        require(set_task(&after, image, size) && after.height == before.height && after.width == before.width);
        uint8_t *others = draw_task(&after);
        require(others != NULL && !memcmp(pixels, others, 3 * (size_t)before.height * (size_t)before.width));
        free(others);
    }
    free(pixels);
}

/* Transcodes a JPEG; NULL if it is refused. */
static uint8_t *
transcoded(const uint8_t *data, size_t size, int64_t least_tile, size_t *made)
{
    PyObject *pieces = call(transcode, data, size, (int64_t)MOST, least_tile, NOTHING_MORE);
    uint8_t *image = stand_in_length(pieces) > 0 ? join(pieces, made) : NULL;
    Py_DECREF(pieces);
    return image;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { CONTROLS = 2 };
    if (size < CONTROLS)
        return 0;
    Task task;
    Input controls = {data, data + CONTROLS};
    size_t made = 0, also_made = 0;
    size -= CONTROLS;
    uint8_t *original = copy_image(data + CONTROLS, &size, &controls);
    int64_t least_tile = 4 * next_byte(&controls);
    uint8_t *image = transcoded(original, size, least_tile, &made);
    use_kernels(PLAIN);
    uint8_t *same = transcoded(original, size, least_tile, &also_made);
    use_kernels(kernel_sets() - 1);
    require((image == NULL) == (same == NULL) && made == also_made && (image == NULL || !memcmp(image, same, made)));
    if (image != NULL && set_task(&task, original, size))
        compare(&task, image, made);
    free(original);
    free(image);
    free(same);
    return 0;
}
