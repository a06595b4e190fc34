/* Samples of PNGs as they are stored, for packer/_images/png.py. */

#include "arguments.h"
#include "native.h"
#include "png/lines.h"

#include <stdlib.h>
#include <string.h>

typedef struct { /* the output for the samples of rows: one byte for each, or two if they have 16 bits */
    const Header *header;
    ptrdiff_t first, end; /* the rows */
    ptrdiff_t pixel;      /* bytes of a pixel */
    uint8_t *levels;      /* of a line */
    uint8_t *out;
} Writing;

/* Converts big-endian 16-bit numbers to the machine's byte order. */
static void
put_in_order(const uint8_t *from, ptrdiff_t count, uint8_t *to)
{
    for (ptrdiff_t i = 0; i < count; i++) {
        uint16_t number = (uint16_t)(from[2 * i] << 8 | from[2 * i + 1]);
        memcpy(to + 2 * i, &number, 2);
    }
}

static int
write_line(void *writing, const uint8_t *samples, const Line *line)
{
    const Writing *w = writing;
    int depth = w->header->depth;
    if (line->row < w->first || line->row >= w->end)
        return 1;
    if (depth < 8) {
        int factor = w->header->colour == GREY && depth > 1 ? 255 / ((1 << depth) - 1) : 1;
        unpack_samples(samples, line->count, depth, factor, w->levels);
        samples = w->levels;
    } else if (depth == 16) {
        put_in_order(samples, line->count * samples_of_pixel(w->header), w->levels);
        samples = w->levels;
    }
    uint8_t *to = w->out + ((line->row - w->first) * (ptrdiff_t)w->header->width + line->column) * w->pixel;
    if (line->step == 1)
        memcpy(to, samples, (size_t)(line->count * w->pixel));
    else
        for (ptrdiff_t i = 0; i < line->count; i++)
            memcpy(to + i * line->step * w->pixel, samples + i * w->pixel, (size_t)w->pixel);
    return 1;
}

PyObject *
png_samples(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    const uint8_t *data;
    Py_ssize_t size;
    int64_t n[8];
    if (!read_arguments(arguments, given, &data, &size, n, 8))
        return NULL;
    Header header = {.height = (uint32_t)n[0], .width = (uint32_t)n[1], .depth = (int)n[2], .colour = (int)n[3],
                     .interlaced = n[4] != 0};
    int known = is_known_kind(header.depth, header.colour) && header.height == (uint64_t)n[0] && header.width == (uint64_t)n[1];
    if (!known || n[1] < 1 || n[5] < 0 || n[5] >= n[6] || n[6] > n[0]) {
        PyErr_SetString(PyExc_ValueError, "a PNG cannot have this kind, this size or these rows");
        return NULL;
    }
    Lines lines = {0};
    Memory levels = {0};
    int64_t pixel = samples_of_pixel(&header) * (header.depth == 16 ? 2 : 1);
    Outcome outcome = NO_MEMORY;
    Py_BEGIN_ALLOW_THREADS
    if (lines_init(&lines) && reserve(&levels, (size_t)(header.width * pixel))) {
        Writing writing = {&header, (ptrdiff_t)n[5], (ptrdiff_t)n[6], (ptrdiff_t)pixel, levels.at, (uint8_t *)(uintptr_t)n[7]};
        outcome = read_lines(&lines, &header, data, (size_t)size, (ptrdiff_t)n[6], (ptrdiff_t)header.width, write_line,
                             &writing);
    }
    lines_clear(&lines);
    free(levels.at);
    Py_END_ALLOW_THREADS
    if (outcome == NO_MEMORY)
        return PyErr_NoMemory();
    return PyBool_FromLong(outcome == DECODED);
}
