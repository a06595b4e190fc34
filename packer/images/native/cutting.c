/* Cuts JPEGs of parts out of JPEGs: what packer/images/cutting.py does in Python, in a few microseconds.

   Nothing that a JPEG says is believed before it was compared with the extent of what there is: every read lies in
   [data, data + size), and every write in the memory that was allocated for the result. */

#include "native.h"

#include <stdint.h>
#include <string.h>

enum {
    SOF0 = 0xC0, SOF1 = 0xC1, DHT = 0xC4, JPG = 0xC8, DAC = 0xCC, SOF15 = 0xCF,
    RST0 = 0xD0, EOI = 0xD9, SOS = 0xDA, DRI = 0xDD, APP9 = 0xE9, COM = 0xFE,
};
enum { VERSION = 2, FIXED = 24, INTERVAL = 6 }; /* the segment without its table; the restart interval's segment */

static const char IDENTIFIER[6] = "TILES";
static uint32_t crc_table[256]; /* filled by cutting_init */

typedef struct {
    Py_ssize_t height, width;           /* pixels of the image */
    Py_ssize_t tile_height, tile_width; /* pixels of a tile */
    Py_ssize_t rows, columns;
    Py_ssize_t margin_height, margin_width;       /* pixels that upsampling of chroma looks at */
    Py_ssize_t segment, table, header, scan;      /* where they begin */
    Py_ssize_t frame;                             /* where the frame's parameters begin */
    Py_ssize_t group;                             /* rows of which the table has one entry */
    int entry;                                    /* bytes of an entry */
} Tiles;

static inline Py_ssize_t
two_bytes(const uint8_t *at)
{
    return (Py_ssize_t)at[0] << 8 | at[1];
}

static uint32_t
crc32_of(uint32_t crc, const uint8_t *data, Py_ssize_t size)
{
    crc = ~crc;
    while (size-- > 0)
        crc = crc_table[(crc ^ *data++) & 0xFF] ^ crc >> 8;
    return ~crc;
}

/* Returns the largest sampling factor of three components: the horizontal ones are in the upper four bits (shift 4), the
   vertical ones in the lower (shift 0). */
static Py_ssize_t
largest_factor(const uint8_t *frame, int shift)
{
    Py_ssize_t largest = 0;
    for (int at = 7; at <= 13; at += 3) {
        Py_ssize_t factor = frame[at] >> shift & 15;
        largest = factor > largest ? factor : largest;
    }
    return largest;
}

/* Sets what the frame says; 0 where it is not one that can be tiled. */
static int
read_frame(Tiles *tiles, const uint8_t *data)
{
    const uint8_t *frame = data + tiles->frame;
    Py_ssize_t room = tiles->scan - tiles->frame, across = 1, down = 1;
    if (room < 6 || frame[0] != 8 || (frame[5] != 1 && frame[5] != 3))
        return 0;
    if (frame[5] == 3) { /* of one component, an MCU is a block, whatever its factors say */
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
    /* The restart interval stands first among the headers, where it is compared with the columns. */
    const uint8_t expected[INTERVAL] = {0xFF, DRI, 0, 4, (mcus / tiles->columns) >> 8, (mcus / tiles->columns) & 0xFF};
    return tiles->scan - tiles->header >= INTERVAL && !memcmp(data + tiles->header, expected, INTERVAL);
}

/* Finds the tile segment among the application segments and comments; 0 where there is none that fits the JPEG. */
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
    uint32_t crc = crc32_of(0, data + at + 4, FIXED - 8);
    crc = crc32_of(crc, data + tiles->table, tiles->scan - tiles->table);
    if (crc != ((uint32_t)two_bytes(data + at + 20) << 16 | (uint32_t)two_bytes(data + at + 22)))
        return 0;
    if (data[tiles->frame] != 0xFF || (data[tiles->frame + 1] != SOF0 && data[tiles->frame + 1] != SOF1))
        return 0;
    tiles->frame += 4;
    return read_frame(tiles, data)
        && tiles->header - tiles->table == tiles->entry * ((tiles->rows + tiles->group - 1) / tiles->group);
}

/* Returns how many bytes of the scan a group of rows takes, with the markers behind its tiles. */
static Py_ssize_t
group_size(const Tiles *tiles, const uint8_t *data, Py_ssize_t group)
{
    const uint8_t *at = data + tiles->table + group * tiles->entry;
    if (tiles->entry == 2)
        return two_bytes(at);
    return two_bytes(at) > 0x7FFF ? -1 : two_bytes(at) << 16 | two_bytes(at + 2);
}

typedef struct {
    Py_ssize_t first_row, row_end, first, end; /* rows, and in each the columns from `first` to before `end` */
} Window;

/* Copies those tiles of a group of rows that lie in the window behind `to`, and counts their markers on from `number`.
   Returns where the copy ends, or NULL where a marker is another than belongs there. */
static uint8_t *
copy_group(uint8_t *to, const uint8_t *from, Py_ssize_t size, const Tiles *tiles, Py_ssize_t group,
           const Window *window, Py_ssize_t *number)
{
    const uint8_t *tile = from, *stop = from + size;
    Py_ssize_t row = group * tiles->group, tile_number = row * tiles->columns;
    Py_ssize_t row_end = row + tiles->group < tiles->rows ? row + tiles->group : tiles->rows;
    if (row && (from[-2] != 0xFF || from[-1] != RST0 + ((tile_number - 1) & 7)))
        return NULL;
    for (; row < row_end; row++) {
        int wanted = row >= window->first_row && row < window->row_end;
        for (Py_ssize_t column = 0; column < tiles->columns; column++, tile_number++) {
            const uint8_t *at = tile;
            do { /* to the next marker: 0xFF and no stuffed zero */
                at = memchr(at, 0xFF, stop - at);
                if (at == NULL || stop - at < 2)
                    return NULL;
                at += 2;
            } while (at[-1] == 0);
            int last = row == tiles->rows - 1 && column == tiles->columns - 1;
            if (at[-1] != (last ? EOI : RST0 + (tile_number & 7)))
                return NULL;
            if (wanted && column >= window->first && column < window->end) {
                memcpy(to, tile, at - tile);
                to += at - tile;
                to[-1] = RST0 + ((*number)++ & 7);
            }
            tile = at;
        }
    }
    return tile == stop ? to : NULL;
}

PyObject *
cut_out(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_ssize_t numbers[7], size;
    const uint8_t *data;
    if (!read_arguments(arguments, count, &data, &size, numbers, 7))
        return NULL;
    Py_ssize_t top = numbers[2], left = numbers[3], tall = numbers[4], wide = numbers[5], halvings = numbers[6];
    Tiles tiles;
    if (!read_tiles(&tiles, data, size) || tiles.height != numbers[0] || tiles.width != numbers[1])
        Py_RETURN_NONE;
    if (top < 0 || left < 0 || tall < 1 || wide < 1 || tall > tiles.height || wide > tiles.width
        || top > tiles.height - tall || left > tiles.width - wide) {
        PyErr_SetString(PyExc_ValueError, "the rectangle does not lie inside of the image");
        return NULL;
    }
    if (halvings < 0 || halvings > 3) {
        PyErr_SetString(PyExc_ValueError, "halvings are 0 to 3");
        return NULL;
    }
    Py_ssize_t bottom = top + tall, right = left + wide;

    Py_ssize_t above = tiles.margin_height << halvings, beside = tiles.margin_width << halvings;
    Window window;
    window.first_row = (top > above ? top - above : 0) / tiles.tile_height;
    window.row_end = (bottom + above + tiles.tile_height - 1) / tiles.tile_height;
    window.first = (left > beside ? left - beside : 0) / tiles.tile_width;
    window.end = (right + beside + tiles.tile_width - 1) / tiles.tile_width;
    window.row_end = window.row_end < tiles.rows ? window.row_end : tiles.rows;
    window.end = window.end < tiles.columns ? window.end : tiles.columns;
    top = window.first_row * tiles.tile_height;
    left = window.first * tiles.tile_width;
    bottom = window.row_end * tiles.tile_height < tiles.height ? window.row_end * tiles.tile_height : tiles.height;
    right = window.end * tiles.tile_width < tiles.width ? window.end * tiles.tile_width : tiles.width;

    Py_ssize_t groups = (tiles.rows + tiles.group - 1) / tiles.group;
    Py_ssize_t first_group = window.first_row / tiles.group;
    Py_ssize_t group_end = (window.row_end + tiles.group - 1) / tiles.group;
    Py_ssize_t begin = tiles.scan, behind = begin, room = 0;
    for (Py_ssize_t group = 0; group < groups; group++) {
        Py_ssize_t bytes_of_group = group_size(&tiles, data, group);
        if (bytes_of_group < 2 || bytes_of_group > size - behind)
            Py_RETURN_NONE;
        behind += bytes_of_group;
        begin += group < first_group ? bytes_of_group : 0;
        room += group >= first_group && group < group_end ? bytes_of_group : 0;
    }
    if (data[behind - 2] != 0xFF || data[behind - 1] != EOI)
        Py_RETURN_NONE;
    if (bottom - top == tiles.height && right - left == tiles.width)
        return Py_BuildValue("O(nnnn)", arguments[0], top, left, bottom - top, right - left);

    Py_ssize_t head = tiles.segment + tiles.scan - tiles.header, number = 0;
    PyObject *part = PyByteArray_FromStringAndSize(NULL, head + room);
    if (part == NULL)
        return NULL;
    uint8_t *out = (uint8_t *)PyByteArray_AsString(part), *to = out + head;
    memcpy(out, data, tiles.segment);
    memcpy(out + tiles.segment, data + tiles.header, tiles.scan - tiles.header);
    uint8_t *sides = out + tiles.segment + (tiles.frame - tiles.header) + 1;
    sides[0] = (bottom - top) >> 8, sides[1] = (bottom - top) & 0xFF;
    sides[2] = (right - left) >> 8, sides[3] = (right - left) & 0xFF;
    for (Py_ssize_t group = first_group; group < group_end && to != NULL; group++) {
        Py_ssize_t bytes_of_group = group_size(&tiles, data, group);
        to = copy_group(to, data + begin, bytes_of_group, &tiles, group, &window, &number);
        begin += bytes_of_group;
    }
    if (to == NULL) {
        Py_DECREF(part);
        Py_RETURN_NONE;
    }
    to[-1] = EOI;
    if (PyByteArray_Resize(part, to - out) < 0) {
        Py_DECREF(part);
        return NULL;
    }
    return Py_BuildValue("N(nnnn)", part, top, left, bottom - top, right - left);
}

/* Finds the frame of a JPEG: where the parameters of its segment begin, or 0 where the segments up to the first scan
   are not well-formed, or that scan has not all components: a file of many scans would take very long to decode. */
static Py_ssize_t
find_frame(const uint8_t *data, Py_ssize_t size)
{
    Py_ssize_t frame = 0, at = 2;
    while (at + 4 <= size && data[at] == 0xFF) {
        uint8_t marker = data[at + 1];
        if (marker == 0xFF) { /* a fill byte */
            at++;
            continue;
        }
        Py_ssize_t length = two_bytes(data + at + 2), end = at + 2 + length;
        if (length < 2 || end > size || marker < 2 || (marker >= RST0 && marker <= EOI))
            return 0;
        if (marker == SOS) /* the frame has 6 bytes at least */
            return frame && length == 6 + 2 * data[frame + 5] && data[at + 4] == data[frame + 5] ? frame : 0;
        if (marker >= SOF0 && marker <= SOF15 && marker != DHT && marker != JPG && marker != DAC) {
            if (frame || length < 8)
                return 0;
            frame = at + 4;
        }
        at = end;
    }
    return 0;
}

PyObject *
first_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_ssize_t numbers[3], size;
    const uint8_t *data;
    if (!read_arguments(arguments, count, &data, &size, numbers, 3))
        return NULL;
    Py_ssize_t height = numbers[0], width = numbers[1], bottom = numbers[2];
    Py_ssize_t frame = size > 2 && !memcmp(data, "\xFF\xD8\xFF", 3) ? find_frame(data, size) : 0;
    if (!frame || size - frame < 15) /* where the frame has three components, and where it has one a scan follows */
        Py_RETURN_NONE;
    uint8_t process = data[frame - 3], components = data[frame + 5];
    if (process > SOF1 || data[frame] != 8 || (components != 1 && components != 3))
        Py_RETURN_NONE;
    if (!height || !width || two_bytes(data + frame + 1) != height || two_bytes(data + frame + 3) != width)
        Py_RETURN_NONE;
    /* Of one component, an MCU is a block, whatever its factors say. */
    Py_ssize_t down = components == 3 ? largest_factor(data + frame, 0) : 1, rows = height;
    if ((down == 1 || down == 2 || down == 4) && bottom < height) {
        rows = (bottom + 8 * down - 1) / (8 * down) * (8 * down);
        rows += down > 1 ? 8 * down : 0; /* upsampling of the chroma planes looks at the row below */
        rows = rows < height ? rows : height;
    }
    if (rows == height || rows < 1)
        return Py_BuildValue("On", arguments[0], height);
    PyObject *part = PyByteArray_FromStringAndSize((const char *)data, size);
    if (part == NULL)
        return NULL;
    uint8_t *sides = (uint8_t *)PyByteArray_AsString(part) + frame + 1;
    sides[0] = rows >> 8, sides[1] = rows & 0xFF;
    return Py_BuildValue("Nn", part, rows);
}

void
cutting_init(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        crc_table[byte] = crc;
    }
}
