/* PNGs: whole, a rectangle of them, and their samples. */

#include "target.h"
#include "sealing.h"
#include "../../packer/_images/native/png/chunks.h"
#include "../../packer/_images/native/native.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { UNSEALED = 1, STORED = 2 }; /* flags */

/* Reads the samples of some rows of a PNG that has them in one chunk, whatever the chunks before it contain. */
static void
read_samples(const uint8_t *data, size_t size, Input *controls)
{
    Chunk chunk;
    Header header;
    if (size < SIGNATURE_SIZE || !read_chunk(data, size, SIGNATURE_SIZE, &chunk) || !read_header(&chunk, &header))
        return;
    while (!is_named(&chunk, "IDAT"))
        if (!read_chunk(data, size, (size_t)(chunk.body - data) + chunk.size + 4, &chunk))
            return;
    if (header.height > MOST / header.width)
        return;
    int64_t first = scaled(next_byte(controls), header.height), end = first + 1;
    end += scaled(next_byte(controls), header.height - first);
    int channels = header.colour == COLOUR ? 3 : header.colour == GREY_ALPHA ? 2 : header.colour == COLOUR_ALPHA ? 4 : 1;
    size_t bytes = (size_t)(end - first) * header.width * (size_t)channels * (header.depth == 16 ? 2 : 1);
    uint8_t *compressed = memory(chunk.size), *out = memory(bytes);
    memcpy(compressed, chunk.body, chunk.size);
    PyObject *done = call(png_samples, compressed, chunk.size, (int64_t)header.height, (int64_t)header.width,
                          (int64_t)header.depth, (int64_t)header.colour, (int64_t)header.interlaced, first, end,
                          (int64_t)(uintptr_t)out, NOTHING_MORE);
    if (stand_in_value(done))
        require_set(out, bytes);
    Py_DECREF(done);
    free(compressed);
    free(out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { CONTROLS = 7 };
    if (size < CONTROLS)
        return 0;
    Input controls = {data, data + CONTROLS};
    int flags = next_byte(&controls);
    size_t made = size - CONTROLS;
    uint8_t *image = memory(made);
    memcpy(image, data + CONTROLS, made);
    if (!(flags & UNSEALED)) {
        free(image);
        image = seal_png(data + CONTROLS, size - CONTROLS, flags & STORED, &made);
    }
    Task task;
    if (set_task(&task, image, made)) {
        uint8_t *pixels = draw_task(&task);
        if (pixels != NULL)
            compare_rectangle(&task, pixels, &controls);
        free(pixels);
    }
    read_samples(image, made, &controls);
    free(image);
    return 0;
}
