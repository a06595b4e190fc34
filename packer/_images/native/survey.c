/* Reads images and computes their table entries, sizes and checksums, without Python's lock. Reads no more of an image
   than its size needs, unless all of it is requested. */

#include "arguments.h"
#include "kernels/kernels.h"
#include "native.h"
#include "reading.h"
#include "samples.h"
#include "survey.h"
#include "task.h"

#include <stdlib.h>

/* A record of SURVEY in packer/_images/native/records.py, which documents the fields. Python compares the names. */
#define SURVEY(FIELD) \
    FIELD(file) FIELD(position) FIELD(size) FIELD(raw) FIELD(height) FIELD(width) FIELD(checked) FIELD(crc32c) \
    FIELD(label) FIELD(name) FIELD(name_size) FIELD(turned) FIELD(out) FIELD(read) FIELD(modified) FIELD(kind) \
    FIELD(orientation) FIELD(findings) FIELD(seen)
#define DECLARED(name) int64_t name;
#define NAMED(name) #name " "

typedef struct {
    SURVEY(DECLARED)
} Record;

const char survey_fields[] = SURVEY(NAMED);

/* Bytes to read at first and in the second step; and of an image, at most. */
enum { FIRST = 1 << 12, SECOND = 1 << 16, LARGEST = 1 << 26 };

typedef struct { /* the location of an image's bytes */
    int file;
    int64_t position;
    const uint8_t *data; /* NULL if they are in a file */
    size_t size;
} Place;

/* Reads the bytes `start` to `end` - 1, which follow those that were read before. Returns the image's first byte, or
   NULL. */
static const uint8_t *
bytes_of(Memory *memory, const Place *place, size_t start, size_t end)
{
    if (place->data != NULL)
        return place->data;
    return read_from(place->file, memory->at + start, end - start, place->position + (int64_t)start) ? memory->at : NULL;
}

static size_t
at_most(size_t size, size_t most)
{
    return size < most ? size : most;
}

/* Finds the properties of an image. Returns its bytes: all of them with `whole`, otherwise as many as were needed.
   Returns NULL if the image is left to Python. */
static const uint8_t *
see(Memory *memory, const Place *place, int whole, Look *look)
{
    size_t size = place->size, have = 0, next = whole ? size : at_most(size, FIRST);
    uint8_t tail[2];
    const uint8_t *data = place->data, *last = tail;
    if (data != NULL)
        last = data + size - 2;
    else if (next < size && !read_from(place->file, tail, 2, place->position + (int64_t)size - 2))
        return NULL;
    for (;;) {
        if (data == NULL && !reserve(memory, size))
            return NULL;
        if ((data = bytes_of(memory, place, have, next)) == NULL)
            return NULL;
        have = next;
        Sight sight = look_at(data, have, size, have < size ? last : data + size - 2, look);
        if (sight != MORE || have == size)
            return sight == SEEN ? data : NULL;
        next = have < SECOND ? at_most(size, SECOND) : size;
        data = place->data;
    }
}

static void
survey_one(Memory *memory, Record *record, const Place *place)
{
    Look look;
    const uint8_t *data = see(memory, place, record->checked != 0, &look);
    if (data == NULL)
        return;
    int turned = record->turned && look.orientation >= 5;
    record->height = turned ? look.width : look.height;
    record->width = turned ? look.height : look.width;
    record->kind = look.kind;
    record->orientation = look.orientation;
    record->findings = look.findings;
    record->seen = 1;
    if (record->checked) {
        const Row row = {record->label, record->height, record->width};
        const uint8_t *name = (const uint8_t *)(uintptr_t)record->name;
        record->crc32c = checksum_of(&row, data, place->size, name, (size_t)record->name_size);
    }
}

/* Reads all bytes of an image to `out` of its record. `read` remains 0 if the image is a whole file that changed
   meanwhile. */
static void
read_all(Record *record, Place *place)
{
    uint8_t *out = (uint8_t *)(uintptr_t)record->out;
    if (!read_from(place->file, out, place->size, place->position))
        return;
    if (record->file == BY_PATH && !is_listed(place->file, (const Listed *)(uintptr_t)record->position, &record->modified))
        return;
    record->read = 1;
    place->data = out;
}

static void
survey_record(Memory *memory, Record *record)
{
    record->seen = record->read = 0;
    if (record->file == NOWHERE || record->size < 2 || record->size > LARGEST)
        return;
    Place place = {(int)record->file, record->position, NULL, (size_t)record->size};
    if (record->file == MEMORY)
        place.data = (const uint8_t *)(uintptr_t)record->position;
    if (record->file == BY_PATH) {
        place.file = open_listed((const Listed *)(uintptr_t)record->position);
        place.position = 0;
        if (place.file < 0)
            return;
    }
    if (record->out && place.data == NULL)
        read_all(record, &place);
    if (!record->out || record->read)
        survey_one(memory, record, &place);
    if (record->file == BY_PATH)
        close_file(place.file);
}

PyObject *
survey(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t numbers[2];
    if (!read_integers(arguments, given, numbers, 2))
        return NULL;
    Record *records = (Record *)(uintptr_t)numbers[0];
    Memory memory = {NULL, 0};
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < numbers[1]; i++)
        survey_record(&memory, &records[i]);
    free(memory.at);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
