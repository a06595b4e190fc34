/* Adds the table of tile offsets to a JPEG whose restart markers form tiles. `annotate_in_python` in
   packer/_images/jpeg_tiles.py does the same, and handles the JPEGs that this code does not support. */

#include "arguments.h"
#include "checksums.h"
#include "jpeg/markers.h"
#include "kernels/kernels.h"
#include "native.h"

#include <stdlib.h>
#include <string.h>

enum { FIXED = 24, INTERVAL = 6, IDENTIFIER = 6, VERSION = 2, GROUP = 1 << 13, LONGEST = 0xFFFF };

typedef struct {
    const uint8_t *data, *end;
    const uint8_t *interval, *frame; /* segments; NULL before they were found */
    const uint8_t *scan;
    ptrdiff_t metadata, others; /* bytes of application segments and comments; and of the other segments except `interval` */
    ptrdiff_t frame_at;         /* bytes of these other segments before the frame */
    ptrdiff_t rows, columns;    /* of tiles */
    ptrdiff_t *ends;            /* the ends of the rows, with the markers after their tiles, relative to the scan */
} Tiled;

static int
is_metadata(uint8_t marker)
{
    return (marker & 0xF0) == APP0 || marker == COM;
}

static ptrdiff_t
size_of(const uint8_t *segment)
{
    return 2 + two_bytes(segment + 2);
}

/* Finds the segments before the scan. Returns 0 unless they have one frame, one restart interval, and no table of tiles. */
static int
read_segments(Tiled *t)
{
    for (const uint8_t *at = t->data + 2; t->end - at >= 4 && at[0] == 0xFF; at += size_of(at)) {
        uint8_t marker = at[1];
        ptrdiff_t size = size_of(at);
        if (marker < SOF0 || (marker >= RST0 && marker <= EOI) || marker == 0xFF || size < 4 || size > t->end - at)
            return 0;
        if (is_metadata(marker)) {
            if (marker == APP9 && size >= 4 + IDENTIFIER && !memcmp(at + 4, "TILES", IDENTIFIER))
                return 0;
            t->metadata += size;
        } else if (marker == DRI) {
            if (t->interval != NULL || size != INTERVAL)
                return 0;
            t->interval = at;
        } else {
            if (marker == SOF0 || marker == SOF1) {
                if (t->frame != NULL || size < 11)
                    return 0;
                t->frame = at;
                t->frame_at = t->others;
            }
            t->others += size;
        }
        if (marker == SOS) {
            t->scan = at + size;
            return t->frame != NULL && t->interval != NULL && INTERVAL + t->others <= LONGEST;
        }
    }
    return 0;
}

/* Computes the rows and columns of tiles. Returns 0 if the restart interval does not divide the rows of MCUs. */
static int
count_tiles(Tiled *t)
{
    const uint8_t *frame = t->frame + 4;
    int components = frame[5], across = 1, down = 1;
    if (frame[0] != 8 || (components != 1 && components != 3) || size_of(t->frame) < 10 + 3 * components)
        return 0;
    for (int i = 0; components == 3 && i < 3; i++) {
        int factors = frame[7 + 3 * i];
        across = factors >> 4 > across ? factors >> 4 : across;
        down = (factors & 15) > down ? factors & 15 : down;
    }
    ptrdiff_t interval = two_bytes(t->interval + 4);
    ptrdiff_t mcus = (two_bytes(frame + 3) + 8 * across - 1) / (8 * across);
    t->rows = (two_bytes(frame + 1) + 8 * down - 1) / (8 * down);
    if (!interval || !mcus || !t->rows || mcus % interval)
        return 0;
    t->columns = mcus / interval;
    return 1;
}

/* Finds the end of each row. Returns 0 if a marker is not the one that belongs after its tile. */
static int
find_rows(Tiled *t)
{
    const uint8_t *at = t->scan;
    for (ptrdiff_t tile = 0, row = 0; row < t->rows; row++) {
        for (ptrdiff_t column = 0; column < t->columns; column++, tile++) {
            int last = row == t->rows - 1 && column == t->columns - 1;
            at = kernels->find_marker(at, t->end);
            if (at == NULL || t->end - at < 2 || at[1] != (last ? EOI : RST0 + (tile & 7)))
                return 0;
            at += 2;
        }
        t->ends[row] = at - t->scan;
    }
    return 1;
}

static uint8_t *
put(uint8_t *to, const void *from, ptrdiff_t size)
{
    memcpy(to, from, (size_t)size);
    return to + size;
}

static uint8_t *
put_number(uint8_t *to, uint64_t number, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--)
        *to++ = (uint8_t)(number >> 8 * i);
    return to;
}

/* Returns how many bytes a group of rows has. */
static ptrdiff_t
bytes_of(const Tiled *t, ptrdiff_t first, ptrdiff_t group)
{
    ptrdiff_t end = first + group < t->rows ? first + group : t->rows;
    return t->ends[end - 1] - (first ? t->ends[first - 1] : 0);
}

/* Copies the segments of metadata before the scan, or without `metadata` the other ones except the interval. */
static uint8_t *
put_segments(const Tiled *t, uint8_t *to, int metadata)
{
    for (const uint8_t *at = t->data + 2; at < t->scan; at += size_of(at))
        if (at != t->interval && is_metadata(at[1]) == metadata)
            to = put(to, at, size_of(at));
    return to;
}

static PyObject *
none(void)
{
    Py_RETURN_NONE;
}

static PyObject *
build(const Tiled *t)
{
    ptrdiff_t scan = t->ends[t->rows - 1], group = scan > 0 ? GROUP * t->rows / scan : 1, most = 0;
    group = group < 1 ? 1 : group > t->rows ? t->rows : group;
    for (ptrdiff_t row = 0; row < t->rows; row += group)
        most = bytes_of(t, row, group) > most ? bytes_of(t, row, group) : most;
    int entry = most <= LONGEST ? 2 : 4;
    ptrdiff_t table = entry * ((t->rows + group - 1) / group), core = INTERVAL + t->others, rest = t->end - t->scan;
    if (FIXED - 2 + table > LONGEST || group > LONGEST)
        return none();
    PyObject *made = PyBytes_FromStringAndSize(NULL, 2 + t->metadata + FIXED + table + core + rest);
    if (made == NULL)
        return NULL;
    uint8_t *to = put_segments(t, put((uint8_t *)PyBytes_AsString(made), t->data, 2), 1), *segment = to;
    to = put_number(put_number(to, 0xFF00 | APP9, 2), (uint64_t)(FIXED - 2 + table), 2);
    to = put_number(put_number(put(to, "TILES", IDENTIFIER), VERSION, 1), (uint64_t)entry, 1);
    to = put_number(put_number(to, (uint64_t)t->columns, 2), (uint64_t)group, 2);
    to = put_number(put_number(to, (uint64_t)(INTERVAL + t->frame_at), 2), (uint64_t)core, 2);
    uint8_t *checksum = to;
    to += 4;
    for (ptrdiff_t row = 0; row < t->rows; row += group)
        to = put_number(to, (uint64_t)bytes_of(t, row, group), entry);
    to = put_segments(t, put(to, t->interval, INTERVAL), 0);
    uint32_t crc = crc32_zlib(crc32_zlib(0, segment + 4, FIXED - 8), checksum + 4, (size_t)(table + core));
    put_number(checksum, crc, 4);
    put(to, t->scan, rest);
    return made;
}

PyObject *
annotate(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    Py_ssize_t size;
    Tiled t = {0};
    if (!read_arguments(arguments, given, &t.data, &size, NULL, 0))
        return NULL;
    t.end = t.data + size;
    if (size < 2 || t.data[0] != 0xFF || t.data[1] != SOI || !read_segments(&t) || !count_tiles(&t))
        return none();
    t.ends = malloc((size_t)t.rows * sizeof *t.ends);
    if (t.ends == NULL)
        return PyErr_NoMemory();
    PyObject *made = find_rows(&t) ? build(&t) : none();
    free(t.ends);
    return made;
}
