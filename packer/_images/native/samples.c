/* Implements samples.h. No number in a table is used before it is checked against the others. */

#include "checksums.h"
#include "reading.h"
#include "samples.h"

#include <stdlib.h>

int
reserve(Memory *memory, size_t size)
{
    if (memory->size < size) {
        free(memory->at);
        memory->at = malloc(size);
        memory->size = memory->at == NULL ? 0 : size;
    }
    return memory->at != NULL;
}

/* Tells whether the number of bytes fits the number of pixels. Raw pixels have 3 bytes each. A JPEG or PNG needs some 20
   bytes for a pixel at most; 32 are allowed, and 64 MiB for metadata. */
static int
is_plausible(const Task *task)
{
    if (task->raw)
        return task->size % 3 == 0 && task->size / 3 % task->width == 0 && task->size / 3 / task->width == task->height;
    return task->size / 32 - (1 << 21) <= task->height * task->width;
}

/* Tells whether bytes begin like a JPEG or a PNG. Raw pixels may begin in any way. */
static int
begins_well(const Task *task, const uint8_t *data)
{
    return task->raw || (data[0] == 0xFF && data[1] == 0xD8) || is_png(data);
}

typedef struct { /* a part of an image's bytes */
    int64_t begin, size;
} Part;

/* Reads a part of an image that begins at `position` of a file. The beginning of a large image is checked first: other
   kinds of images, and other bytes to which a damaged table points, are not read in full. */
static Outcome
read_range(Memory *memory, const Task *task, int file, int64_t position, Part part)
{
    enum { LARGE = 1 << 22 };
    uint8_t first[2];
    if (!task->raw && task->size > LARGE && (!read_from(file, first, sizeof first, position) || !begins_well(task, first)))
        return UNDECODED;
    if (!reserve(memory, (size_t)part.size))
        return NO_MEMORY;
    return read_from(file, memory->at, (size_t)part.size, position + part.begin) ? DECODED : UNDECODED;
}

static Outcome
read_location(Memory *memory, const Task *task, Part part)
{
    if (task->file != BY_PATH)
        return read_range(memory, task, (int)task->file, task->position, part);
    int file = open_listed((const Listed *)(uintptr_t)task->position);
    if (file < 0)
        return UNDECODED;
    Outcome outcome = read_range(memory, task, file, 0, part);
    close_file(file);
    return outcome;
}

uint32_t
checksum_of(const Row *sample, const uint8_t *data, size_t size, const uint8_t *name, size_t name_size)
{
    uint8_t row[16];
    for (int i = 0; i < 8; i++)
        row[i] = (uint8_t)((uint64_t)sample->label >> 8 * i);
    for (int i = 0; i < 4; i++) {
        row[8 + i] = (uint8_t)((uint64_t)sample->height >> 8 * i);
        row[12 + i] = (uint8_t)((uint64_t)sample->width >> 8 * i);
    }
    uint32_t crc = crc32_castagnoli(crc32_castagnoli(0, data, size), row, sizeof row);
    return crc32_castagnoli(crc, name, name_size);
}

/* Tells whether the checksum of a sample is right. */
static int
is_intact(const Task *task, const uint8_t *data)
{
    const Row row = {task->label, task->height, task->width};
    const uint8_t *name = (const uint8_t *)(uintptr_t)task->name;
    return checksum_of(&row, data, (size_t)task->size, name, (size_t)task->name_size) == (uint32_t)task->crc32c;
}

/* Tells whether the file and the size in a task are plausible. */
static int
is_somewhere(const Task *task)
{
    return task->file != NOWHERE && task->size >= 2 && task->size <= PTRDIFF_MAX && is_plausible(task);
}

const uint8_t *
find_bytes(Memory *memory, const Task *task, Outcome *outcome)
{
    const uint8_t *data = (const uint8_t *)(uintptr_t)task->position;
    *outcome = UNDECODED;
    if (!is_somewhere(task))
        return NULL;
    if (task->file != MEMORY) {
        Outcome found = read_location(memory, task, (Part){0, task->size});
        if (found != DECODED) {
            *outcome = found;
            return NULL;
        }
        data = memory->at;
    }
    return begins_well(task, data) && (!task->checked || is_intact(task, data)) ? data : NULL;
}

int
has_rows_apart(const Task *task)
{
    return task->raw && !task->checked && task->file != MEMORY;
}

Outcome
read_pixels(Memory *memory, const Task *task, Rectangle rectangle)
{
    int64_t begin = rectangle.top * task->width + rectangle.left, last = begin + (rectangle.height - 1) * task->width;
    if (!is_somewhere(task))
        return UNDECODED;
    return read_location(memory, task, (Part){3 * begin, 3 * (last + rectangle.width - begin)});
}
