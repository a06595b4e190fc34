/* Cuts JPEGs of rectangles out of JPEGs: does in a few microseconds what packer/_images/jpeg_tiles.py does in Python.

   No number in a JPEG is used before it is checked against the available data: every read lies in [data, data + size),
   and every write in the memory allocated for the result. */

#include "arguments.h"
#include "checksums.h"
#include "geometry.h"
#include "jpeg/markers.h"
#include "jpeg/metadata.h"
#include "native.h"

#include <string.h>

enum { VERSION = 2, FIXED = 24, INTERVAL = 6 }; /* bytes: the tile segment without its table; the restart interval's segment */

static const char IDENTIFIER[6] = "TILES";

typedef struct {
    Py_ssize_t height, width;           /* pixels of the image */
    Py_ssize_t tile_height, tile_width; /* pixels of a tile */
    Py_ssize_t rows, columns;
    Py_ssize_t margin_height, margin_width;       /* pixels around a rectangle that chroma upsampling needs */
    Py_ssize_t segment, table, header, scan;      /* where they begin */
    Py_ssize_t frame;                             /* where the frame's parameters begin */
    Py_ssize_t group;                             /* rows of tiles for each entry of the table */
    int entry;                                    /* bytes of an entry */
} Tiles;

/* Returns the largest sampling factor of three components: the horizontal ones are in the upper four bits (shift 4), the
   vertical ones in the lower (shift 0). */
static Py_ssize_t
largest_factor(const uint8_t *frame, int shift)
{
    Py_ssize_t largest = 0;
    for (int at = 7; at <= 13; at += 3) {
        largest = larger(largest, frame[at] >> shift & 15);
    }
    return largest;
}

/* Reads the frame. Returns 0 if such a frame cannot have the tiles. */
static int
read_frame(Tiles *tiles, const uint8_t *data)
{
    const uint8_t *frame = data + tiles->frame;
    Py_ssize_t room = tiles->scan - tiles->frame, across = 1, down = 1;
    if (room < 6 || frame[0] != 8 || (frame[5] != 1 && frame[5] != 3))
        return 0;
    if (frame[5] == 3) { /* with one component, an MCU is a block, whatever its sampling factors */
        if (room < 14)
            return 0;
        across = largest_factor(frame, 4);
        down = largest_factor(frame, 0);
    }
    tiles->height = two_bytes(frame + 1);
    tiles->width = two_bytes(frame + 3);
    if (!tiles->height || !tiles->width || !across || !down || !tiles->columns)
        return 0;
    Py_ssize_t mcus = (tiles->width + 8 * across - 1) / (8 * across);
    if (mcus % tiles->columns)
        return 0;
    tiles->tile_height = 8 * down;
    tiles->tile_width = 8 * across * (mcus / tiles->columns);
    tiles->rows = (tiles->height + 8 * down - 1) / (8 * down);
    tiles->margin_height = down == 1 ? 0 : down;
    tiles->margin_width = across == 1 ? 0 : across;
    /* The restart interval must be the first of the headers, and fit the number of columns. */
    const uint8_t expected[INTERVAL] = {
        0xFF, DRI, 0, 4, (uint8_t)(mcus / tiles->columns >> 8), (uint8_t)(mcus / tiles->columns),
    };
    return tiles->scan - tiles->header >= INTERVAL && !memcmp(data + tiles->header, expected, INTERVAL);
}

/* Finds the tile segment among the application segments and comments. Returns 0 if there is none that fits the JPEG. */
static int
read_tiles(Tiles *tiles, const uint8_t *data, Py_ssize_t size)
{
    Py_ssize_t at = 2;
    for (;; at += 2 + two_bytes(data + at + 2)) {
        if (at + FIXED > size || data[at] != 0xFF || ((data[at + 1] & 0xF0) != 0xE0 && data[at + 1] != COM))
            return 0;
        if (data[at + 1] == APP9 && !memcmp(data + at + 4, IDENTIFIER, sizeof IDENTIFIER))
            break;
    }
    tiles->segment = at;
    tiles->table = at + FIXED;
    tiles->header = at + 2 + two_bytes(data + at + 2);
    tiles->entry = data[at + 11];
    tiles->columns = two_bytes(data + at + 12);
    tiles->group = two_bytes(data + at + 14);
    tiles->frame = tiles->header + two_bytes(data + at + 16);
    tiles->scan = tiles->header + two_bytes(data + at + 18);
    if (data[at + 10] != VERSION || (tiles->entry != 2 && tiles->entry != 4) || !tiles->group)
        return 0;
    if (tiles->table > tiles->header || tiles->header >= tiles->frame || tiles->frame + 4 > tiles->scan
        || tiles->scan > size)
        return 0;
    uint32_t crc = crc32_zlib(0, data + at + 4, FIXED - 8);
    crc = crc32_zlib(crc, data + tiles->table, (size_t)(tiles->scan - tiles->table));
    if (crc != ((uint32_t)two_bytes(data + at + 20) << 16 | (uint32_t)two_bytes(data + at + 22)))
        return 0;
    if (data[tiles->frame] != 0xFF || (data[tiles->frame + 1] != SOF0 && data[tiles->frame + 1] != SOF1))
        return 0;
    tiles->frame += 4;
    return read_frame(tiles, data)
        && tiles->header - tiles->table == tiles->entry * ((tiles->rows + tiles->group - 1) / tiles->group);
}

/* Returns how many bytes of the scan a group of rows takes, with the markers after its tiles; -1 for 2 GiB or more. */
static Py_ssize_t
group_size(const Tiles *tiles, const uint8_t *data, Py_ssize_t group)
{
    const uint8_t *at = data + tiles->table + group * tiles->entry;
    if (tiles->entry == 2)
        return two_bytes(at);
    return two_bytes(at) > 0x7FFF ? -1 : two_bytes(at) << 16 | two_bytes(at + 2);
}

/* Copies the tiles of a group of rows that lie in the window to `to`, and numbers their markers from `number` on.
   Returns the end of the copy, or NULL if a marker is not the one that belongs there. */
static uint8_t *
copy_group(uint8_t *to, const uint8_t *from, Py_ssize_t size, const Tiles *tiles, Py_ssize_t group,
           const Window *window, Py_ssize_t *number)
{
    const uint8_t *tile = from, *stop = from + size;
    Py_ssize_t row = group * tiles->group, tile_number = row * tiles->columns;
    Py_ssize_t row_end = smaller(row + tiles->group, tiles->rows);
    if (row && (from[-2] != 0xFF || from[-1] != RST0 + ((tile_number - 1) & 7)))
        return NULL;
    for (; row < row_end; row++) {
        int wanted = row >= window->first_row && row < window->row_end;
        for (Py_ssize_t column = 0; column < tiles->columns; column++, tile_number++) {
            const uint8_t *at = tile;
            do { /* to the next marker: 0xFF and no stuffed zero */
                at = memchr(at, 0xFF, (size_t)(stop - at));
                if (at == NULL || stop - at < 2)
                    return NULL;
                at += 2;
            } while (at[-1] == 0);
            int last = row == tiles->rows - 1 && column == tiles->columns - 1;
            if (at[-1] != (last ? EOI : RST0 + (tile_number & 7)))
                return NULL;
            if (wanted && column >= window->first && column < window->end) {
                memcpy(to, tile, (size_t)(at - tile));
                to += at - tile;
                to[-1] = RST0 + ((*number)++ & 7);
            }
            tile = at;
        }
    }
    return tile == stop ? to : NULL;
}

/* Returns the position of the frame's parameters, or 0 unless the JPEG is sequential and has 8 bits, 1 or 3 components
   and one scan. The other segments up to the scan must be well-formed, and the metadata usual. A file with many scans
   would take very long to decode. */
static Py_ssize_t
find_frame(const uint8_t *data, Py_ssize_t size)
{
    Py_ssize_t frame = 0, at = 2;
    int exifs = 0;
    if (size < 4 || memcmp(data, "\xFF\xD8\xFF", 3))
        return 0;
    while (at + 4 <= size && data[at] == 0xFF) {
        uint8_t marker = data[at + 1];
        if (marker == 0xFF) { /* a fill byte */
            at++;
            continue;
        }
        Py_ssize_t length = two_bytes(data + at + 2), end = at + 2 + length;
        if (length < 2 || end > size)
            return 0;
        if (marker == SOS) /* the frame has 6 bytes at least */
            return frame && length == 6 + 2 * data[frame + 5] && data[at + 4] == data[frame + 5] ? frame : 0;
        if (marker == SOF0 || marker == SOF1) {
            uint8_t components = length < 8 ? 0 : data[at + 9];
            if (frame || length < 8 || data[at + 4] != 8 || (components != 1 && components != 3))
                return 0;
            frame = at + 4;
        } else if (marker == COM || (marker >= APP0 && marker <= APP15)) {
            if (!is_usual(marker, data + at + 4, length - 2, &exifs))
                return 0;
        } else if (marker != DHT && marker != DAC && marker != DQT && marker != DNL && marker != DRI)
            return 0;
        at = end;
    }
    return 0;
}

/* Returns the tiles that a rectangle depends on. */
static Window
touched_tiles(const Tiles *tiles, const Rectangle *wanted)
{
    Py_ssize_t above = tiles->margin_height, beside = tiles->margin_width;
    Py_ssize_t bottom = wanted->top + wanted->height + above, right = wanted->left + wanted->width + beside;
    return (Window){
        .first_row = larger(wanted->top - above, 0) / tiles->tile_height,
        .row_end = smaller((bottom + tiles->tile_height - 1) / tiles->tile_height, tiles->rows),
        .first = larger(wanted->left - beside, 0) / tiles->tile_width,
        .end = smaller((right + tiles->tile_width - 1) / tiles->tile_width, tiles->columns),
    };
}

/* Returns the part of the image that some tiles make up. */
static Rectangle
extent(const Tiles *tiles, const Window *window)
{
    Py_ssize_t top = window->first_row * tiles->tile_height, left = window->first * tiles->tile_width;
    return (Rectangle){
        top, left, smaller(window->row_end * tiles->tile_height, tiles->height) - top,
        smaller(window->end * tiles->tile_width, tiles->width) - left,
    };
}

typedef struct {
    Py_ssize_t first, end;  /* groups of rows */
    Py_ssize_t begin, size; /* bytes: the beginning of the first one, and the size of all */
} Groups;

/* Finds the groups of rows of a window. Returns 0 if any group of the table lies outside of the data, or the image does
   not end with the last one. */
static int
find_groups(Groups *groups, const Tiles *tiles, const uint8_t *data, Py_ssize_t size, const Window *window)
{
    Py_ssize_t count = (tiles->rows + tiles->group - 1) / tiles->group, at = tiles->scan;
    *groups = (Groups){window->first_row / tiles->group, (window->row_end + tiles->group - 1) / tiles->group, at, 0};
    for (Py_ssize_t group = 0; group < count; group++) {
        Py_ssize_t bytes = group_size(tiles, data, group);
        if (bytes < 2 || bytes > size - at)
            return 0;
        at += bytes;
        groups->begin += group < groups->first ? bytes : 0;
        groups->size += group >= groups->first && group < groups->end ? bytes : 0;
    }
    return data[at - 2] == 0xFF && data[at - 1] == EOI;
}

/* Writes the headers with the size of `part`; returns their end. */
static uint8_t *
copy_headers(uint8_t *to, const Tiles *tiles, const uint8_t *data, const Rectangle *part)
{
    uint8_t *headers = to + tiles->segment, *sides = headers + (tiles->frame - tiles->header) + 1;
    memcpy(to, data, (size_t)tiles->segment);
    memcpy(headers, data + tiles->header, (size_t)(tiles->scan - tiles->header));
    sides[0] = (uint8_t)(part->height >> 8), sides[1] = (uint8_t)part->height;
    sides[2] = (uint8_t)(part->width >> 8), sides[3] = (uint8_t)part->width;
    return headers + (tiles->scan - tiles->header);
}

/* Returns a JPEG of the tiles in a window, which show `part` of the image; None if a marker is not the one that belongs
   there. */
static PyObject *
join(const Tiles *tiles, const uint8_t *data, const Groups *groups, const Window *window, const Rectangle *part)
{
    Py_ssize_t head = tiles->segment + tiles->scan - tiles->header, number = 0;
    PyObject *joined = PyByteArray_FromStringAndSize(NULL, head + groups->size);
    if (joined == NULL)
        return NULL;
    uint8_t *out = (uint8_t *)PyByteArray_AsString(joined), *to = copy_headers(out, tiles, data, part);
    const uint8_t *from = data + groups->begin;
    for (Py_ssize_t group = groups->first; group < groups->end && to != NULL; group++) {
        Py_ssize_t bytes = group_size(tiles, data, group);
        to = copy_group(to, from, bytes, tiles, group, window, &number);
        from += bytes;
    }
    if (to == NULL) {
        Py_DECREF(joined);
        Py_RETURN_NONE;
    }
    to[-1] = EOI;
    if (PyByteArray_Resize(joined, to - out) < 0)
        Py_CLEAR(joined);
    return joined;
}

PyObject *
cut_out(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[6];
    Py_ssize_t size;
    const uint8_t *data;
    if (!read_arguments(arguments, given, &data, &size, n, 6))
        return NULL;
    Tiles tiles;
    if (!find_frame(data, size) || !read_tiles(&tiles, data, size) || tiles.height != n[0] || tiles.width != n[1])
        Py_RETURN_NONE;
    if (n[2] < 0 || n[3] < 0 || n[4] < 1 || n[5] < 1 || n[4] > tiles.height || n[5] > tiles.width
        || n[2] > tiles.height - n[4] || n[3] > tiles.width - n[5]) {
        PyErr_SetString(PyExc_ValueError, "the rectangle does not lie inside of the image");
        return NULL;
    }
    const Rectangle wanted = {(ptrdiff_t)n[2], (ptrdiff_t)n[3], (ptrdiff_t)n[4], (ptrdiff_t)n[5]};
    const Window window = touched_tiles(&tiles, &wanted);
    const Rectangle part = extent(&tiles, &window);
    Groups groups;
    if (!find_groups(&groups, &tiles, data, size, &window))
        Py_RETURN_NONE;
    if (part.height == tiles.height && part.width == tiles.width)
        return Py_BuildValue("O(nnnn)", arguments[0], part.top, part.left, part.height, part.width);
    PyObject *joined = join(&tiles, data, &groups, &window, &part);
    if (joined == NULL || joined == Py_None)
        return joined;
    return Py_BuildValue("N(nnnn)", joined, part.top, part.left, part.height, part.width);
}

PyObject *
first_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[3];
    Py_ssize_t size;
    const uint8_t *data;
    if (!read_arguments(arguments, given, &data, &size, n, 3))
        return NULL;
    Py_ssize_t frame = find_frame(data, size);
    /* A frame of three components has 15 bytes; one of one component has fewer, but a scan follows. */
    if (!frame || size - frame < 15)
        Py_RETURN_NONE;
    Py_ssize_t height = two_bytes(data + frame + 1), width = two_bytes(data + frame + 3), rows = height;
    if (!height || !width || height != n[0] || width != n[1])
        Py_RETURN_NONE;
    /* With one component, an MCU is a block, whatever its sampling factors. */
    Py_ssize_t down = data[frame + 5] == 3 ? largest_factor(data + frame, 0) : 1;
    if ((down == 1 || down == 2 || down == 4) && n[2] < height) {
        rows = (Py_ssize_t)(n[2] + 8 * down - 1) / (8 * down) * (8 * down);
        rows += down > 1 ? 8 * down : 0; /* upsampling of the chroma planes looks at the row below */
        rows = smaller(rows, height);
    }
    if (rows == height || rows < 1)
        return Py_BuildValue("On", arguments[0], height);
    PyObject *part = PyByteArray_FromStringAndSize((const char *)data, size);
    if (part == NULL)
        return NULL;
    uint8_t *sides = (uint8_t *)PyByteArray_AsString(part) + frame + 1;
    sides[0] = (uint8_t)(rows >> 8), sides[1] = (uint8_t)rows;
    return Py_BuildValue("Nn", part, rows);
}
