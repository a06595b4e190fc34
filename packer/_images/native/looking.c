/* Implements survey.h. Nothing is decoded: JPEGs, PNGs and WebPs have their size in the first bytes. */

#include "geometry.h"
#include "jpeg/markers.h"
#include "jpeg/metadata.h"
#include "png/chunks.h"
#include "survey.h"

#include <string.h>

static uint32_t
four_bytes_lower_first(const uint8_t *at)
{
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

typedef struct { /* properties of a JPEG, from the segments before its first scan */
    int frames, process, precision, components;
    int exifs;
    const uint8_t *scan; /* the first byte after its header; NULL before it is found */
    int together;        /* whether the first scan has all components */
} Frame;

static int
is_frame(uint8_t marker)
{
    return marker >= SOF0 && marker <= SOF15 && marker != DHT && marker != JPG && marker != DAC;
}

/* Tells whether a segment is the Multi-Picture Format's index (CIPA DC-007), whose count of pictures is read in Python. */
static int
is_picture_index(uint8_t marker, const uint8_t *content, ptrdiff_t size)
{
    return marker == APP2 && size >= 4 && !memcmp(content, "MPF", 4);
}

/* Reads a segment. Returns 0 if it is unusual. */
static int
take_segment(Frame *frame, Look *look, uint8_t marker, const uint8_t *content, ptrdiff_t size)
{
    if (is_frame(marker)) {
        if (frame->frames++ || size < 6)
            return 0;
        frame->process = marker;
        frame->precision = content[0];
        frame->components = content[5];
        look->height = two_bytes(content + 1);
        look->width = two_bytes(content + 3);
        return look->height && look->width && frame->components;
    }
    if (marker == COM || (marker >= APP0 && marker <= APP15)) {
        int found;
        if (!is_usual(marker, content, size, &frame->exifs) || may_turn(marker, content, size) ||
            is_picture_index(marker, content, size))
            return 0;
        if ((found = orientation_of(marker, content, size)) != 0)
            look->orientation = found;
        return 1;
    }
    return marker == DHT || marker == DAC || marker == DQT || marker == DNL || marker == DRI;
}

static Sight
read_segments(const uint8_t *data, size_t have, size_t size, Frame *frame, Look *look)
{
    for (size_t at = 2;;) {
        if (have - at < 4)
            return have < size ? MORE : UNUSUAL;
        uint8_t marker = data[at + 1];
        size_t length = (size_t)two_bytes(data + at + 2), end = at + 2 + length;
        if (data[at] != 0xFF || marker == 0xFF || length < 2 || end > size)
            return UNUSUAL;
        if (end > have)
            return MORE;
        if (marker == SOS) {
            const uint8_t header[] = {0xFF, SOS, 0, (uint8_t)(6 + 2 * frame->components), (uint8_t)frame->components};
            size_t before = 8 + 2 * (size_t)frame->components;
            frame->scan = data + end;
            frame->together = frame->components < 125 && end >= before && !memcmp(data + end - before, header, 5);
            return frame->frames ? SEEN : UNUSUAL;
        }
        if (!take_segment(frame, look, marker, data + at + 4, (ptrdiff_t)length - 2))
            return UNUSUAL;
        at = end;
    }
}

/* Returns the first 0xFF that is followed by the byte `after`, or NULL. */
static const uint8_t *
find_pair(const uint8_t *at, const uint8_t *end, uint8_t after)
{
    for (; end - at >= 2 && (at = memchr(at, 0xFF, (size_t)(end - at) - 1)) != NULL; at++)
        if (at[1] == after)
            return at;
    return NULL;
}

/* Tells whether the image has no more scans than allowed: each is a pass over all pixels. */
static int
is_affordable(const Frame *frame, const Look *look, const uint8_t *end)
{
    int64_t scans = 1;
    for (const uint8_t *at = frame->scan; (at = find_pair(at, end, SOS)) != NULL; at += 2)
        scans++;
    return look->height * look->width <= MOST_PIXELS * PASSES / scans;
}

static Sight
look_at_jpeg(const uint8_t *data, size_t have, size_t size, const uint8_t last[2], Look *look)
{
    Frame frame = {0};
    Sight sight = read_segments(data, have, size, &frame, look);
    if (sight != SEEN)
        return sight;
    int huffman = frame.process >= SOF0 && frame.process <= SOF0 + 2;
    int ordinary = huffman && frame.precision == 8 && (frame.components == 1 || frame.components == 3);
    int sequential = frame.process == SOF0 || frame.process == SOF1;
    if (!ordinary && frame.components != 4)
        return UNUSUAL;
    int ends = last[0] == 0xFF && last[1] == EOI;
    if (have < size && !(ends && sequential && frame.together))
        return MORE;
    if (!(sequential && frame.together) && !is_affordable(&frame, look, data + size))
        return UNUSUAL;
    if (!ends) {
        if (find_pair(frame.scan, data + size, EOI) == NULL)
            return UNUSUAL;
        look->findings |= TRAILING;
    }
    look->findings |= (frame.components == 4 ? CMYK : 0) | (look->orientation != 1 ? ROTATED : 0);
    return SEEN;
}

static Sight
look_at_png(const uint8_t *data, size_t have, size_t size, Look *look)
{
    Chunk chunk;
    Header header;
    int has_data = 0;
    if (have < size)
        return MORE;
    if (!read_chunk(data, size, SIGNATURE_SIZE, &chunk) || !read_header(&chunk, &header) || header.depth == 16)
        return UNUSUAL;
    look->width = header.width;
    look->height = header.height;
    while (is_usual_chunk(&chunk, header.colour)) {
        has_data |= is_named(&chunk, "IDAT");
        if (is_named(&chunk, "IEND"))
            return has_data ? SEEN : UNUSUAL;
        if (!read_chunk(data, size, (size_t)(chunk.body - data) + chunk.size + 4, &chunk))
            return UNUSUAL;
    }
    return UNUSUAL;
}

static Sight
look_at_webp(const uint8_t *data, size_t have, size_t size, Look *look)
{
    if (size < 30 || have < 30 || (uint64_t)four_bytes_lower_first(data + 4) + 8 != size)
        return UNUSUAL;
    if (!memcmp(data + 12, "VP8 ", 4) && !memcmp(data + 23, "\x9d\x01\x2a", 3)) {
        look->width = (data[27] << 8 | data[26]) & 0x3FFF;
        look->height = (data[29] << 8 | data[28]) & 0x3FFF;
        return SEEN;
    }
    if (!memcmp(data + 12, "VP8L", 4) && data[20] == 0x2F) {
        uint32_t bits = four_bytes_lower_first(data + 21);
        look->width = (bits & 0x3FFF) + 1;
        look->height = (bits >> 14 & 0x3FFF) + 1;
        return SEEN;
    }
    return UNUSUAL;
}

Sight
look_at(const uint8_t *data, size_t have, size_t size, const uint8_t last[2], Look *look)
{
    *look = (Look){.orientation = 1};
    Sight sight = UNUSUAL;
    if (have < 16)
        return UNUSUAL;
    if (!memcmp(data, "\xff\xd8\xff", 3))
        look->kind = IS_JPEG, sight = look_at_jpeg(data, have, size, last, look);
    else if (!memcmp(data, png_signature, SIGNATURE_SIZE))
        look->kind = IS_PNG, sight = look_at_png(data, have, size, look);
    else if (!memcmp(data, "RIFF", 4) && !memcmp(data + 8, "WEBP", 4))
        look->kind = IS_WEBP, sight = look_at_webp(data, have, size, look);
    if (sight == SEEN && (look->height < 1 || look->width < 1 || look->height > MOST_PIXELS / look->width))
        return UNUSUAL;
    return sight;
}
