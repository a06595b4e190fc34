/* Surveys: sizes and checksums of images, found from their first bytes. The first bytes give the same result as all
   bytes, and a file the same as memory. Also numbers that are looked up for pixels. */

#define _XOPEN_SOURCE 700

#include "target.h"
#include "sealing.h"
#include "../../packer/_images/native/native.h"
#include "../../packer/_images/native/survey.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { UNSEALED = 1, CHECKED = 2, TURNED = 4 }; /* flags */

typedef struct { /* as survey_fields names them */
    int64_t file, position, size, raw, height, width, checked, crc32c, label, name, name_size, turned, out, read, modified, kind,
        orientation, findings, seen;
} Record;

static void
look_at_beginning(const uint8_t *data, size_t size, size_t have)
{
    Look few, all;
    uint8_t *first = memory(have);
    memcpy(first, data, have);
    Sight sight = look_at(first, have, size, data + size - 2, &few);
    free(first);
    require(have < size || sight != MORE);
    if (sight != SEEN)
        return;
    require(look_at(data, size, size, data + size - 2, &all) == SEEN);
    require(few.height == all.height && few.width == all.width);
    require(few.orientation == all.orientation && few.findings == all.findings);
}

/* Returns a file that has an image after one other byte. */
static int64_t
file_of(const uint8_t *data, size_t size)
{
    static FILE *file;
    file = file == NULL ? tmpfile() : file;
    require(file != NULL && ftruncate(fileno(file), 0) == 0 && pwrite(fileno(file), data, size, 1) == (ssize_t)size);
    return fileno(file);
}

/* Surveys an image four times in a batch: in memory, in a file, in a file from which all of it is read, and missing. */
static void
survey_batch(const Record *alone, const uint8_t *data, size_t size)
{
    Record records[4] = {*alone, *alone, *alone, *alone};
    uint8_t *whole = memory(size);
    records[1].file = records[2].file = file_of(data, size);
    records[1].position = records[2].position = 1;
    records[2].out = (int64_t)(uintptr_t)whole;
    records[3].file = NOWHERE;
    Py_XDECREF(call(survey, NULL, 0, (int64_t)(uintptr_t)records, INT64_C(4), NOTHING_MORE));
    require(records[2].read == (size >= 2) && (size < 2 || !memcmp(whole, data, size)));
    require(!records[3].seen);
    for (int i = 0; i < 3; i++) {
        require(records[i].seen == alone->seen && records[i].height == alone->height && records[i].width == alone->width);
        require(records[i].kind == alone->kind && records[i].orientation == alone->orientation);
        require(records[i].findings == alone->findings && records[i].crc32c == alone->crc32c);
    }
    free(whole);
}

static void
look_numbers_up(const uint8_t *pixels, size_t count, int planes)
{
    float *table = (float *)(void *)memory(3 * 256 * sizeof *table), *out = (float *)(void *)memory(3 * count * sizeof *out);
    for (int i = 0; i < 3 * 256; i++)
        table[i] = (float)i;
    Py_XDECREF(call(look_up, NULL, 0, (int64_t)(uintptr_t)pixels, (int64_t)count, (int64_t)(uintptr_t)table,
                    (int64_t)(uintptr_t)out, (int64_t)planes, INT64_C(1), NOTHING_MORE));
    require_set((const uint8_t *)out, 3 * count * sizeof *out);
    free(table);
    free(out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { CONTROLS = 3 };
    if (size < CONTROLS)
        return 0;
    Input controls = {data, data + CONTROLS};
    int flags = next_byte(&controls), share = next_byte(&controls) << 8;
    share += next_byte(&controls);
    size_t made = size - CONTROLS;
    uint8_t *image = memory(made);
    memcpy(image, data + CONTROLS, made);
    if (!(flags & UNSEALED) && made > 8 && image[0] == 0x89) {
        free(image);
        image = seal_png(data + CONTROLS, size - CONTROLS, 0, &made);
    }
    Record record = {
        .file = MEMORY, .position = (int64_t)(uintptr_t)image, .size = (int64_t)made, .checked = (flags & CHECKED) != 0,
        .label = 7, .name = (int64_t)(uintptr_t)"name", .name_size = 4, .turned = (flags & TURNED) != 0,
    };
    Py_XDECREF(call(survey, NULL, 0, (int64_t)(uintptr_t)&record, INT64_C(1), NOTHING_MORE));
    if (record.seen)
        require(record.height > 0 && record.width > 0);
    require_set((const uint8_t *)&record, sizeof record);
    survey_batch(&record, image, made);
    if (made >= 2) {
        look_at_beginning(image, made, made);
        look_at_beginning(image, made, made * (size_t)share >> 16);
    }
    look_numbers_up(image, made / 3, flags & 1);
    free(image);
    return 0;
}
