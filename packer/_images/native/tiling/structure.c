/* Implements structure.h. */

#include "jpeg/markers.h"
#include "tiling/structure.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_SIDE = 65500 }; /* pixels: libjpeg's limit */
enum { PROGRESSIVE = 0xC2 };   /* the marker of a progressive frame */

const char no_memory[] = "no memory";

static const char cut_short[] = "it is cut short", wrong_length[] = "a segment's length is wrong",
                  bad_huffman[] = "an invalid Huffman table", bad_quantisation[] = "an invalid quantisation table",
                  bad_scan[] = "an invalid scan header";

void
begin_walk(Walk *walk, const uint8_t *data, ptrdiff_t size, uint8_t *metadata)
{
    memset(walk, 0, sizeof *walk);
    walk->at = data + 2;
    walk->stop = data + size;
    walk->metadata = metadata;
}

ptrdiff_t
size_of_quantisation(const uint8_t *entry)
{
    return 1 + (entry[0] >> 4 ? 128 : 64);
}

int
symbols_of(const uint8_t *table)
{
    int count = 0;
    for (int length = 0; length < 16; length++)
        count += table[length];
    return count;
}

/* Skips the next marker, and fill bytes before it. */
static Problem
pass_marker(Walk *walk)
{
    if (walk->at >= walk->stop)
        return cut_short;
    if (*walk->at != 0xFF)
        return "bytes between its segments";
    while (walk->at < walk->stop && *walk->at == 0xFF)
        walk->at++;
    if (walk->at >= walk->stop)
        return cut_short;
    walk->at++;
    return NULL;
}

/* Returns the problem of a JPEG with this marker; NULL if the marker is allowed. */
static Problem
refuse_marker(uint8_t marker)
{
    switch (marker) {
    case 0xC3:
    case 0xC7:
    case 0xCB:
    case SOF15:
        return "lossless";
    case 0xC5:
    case 0xC6:
    case 0xCD:
    case 0xCE:
    case 0xDE:
    case 0xDF:
        return "hierarchical";
    case 0xC9:
    case 0xCA:
    case DAC:
        return "arithmetic coding";
    case DNL:
        return "a height that is defined after the scan";
    default:
        return NULL;
    }
}

static int
begins_with(const uint8_t *content, const uint8_t *end, const char *name, ptrdiff_t length)
{
    return end - content >= length && !memcmp(content, name, (size_t)length);
}

/* Copies a segment of metadata without the fill bytes before it. */
static Problem
read_metadata(Walk *walk, uint8_t marker, const uint8_t *content, const uint8_t *end)
{
    if (walk->scans)
        return "metadata after its first scan";
    if (marker == APP2 && begins_with(content, end, "MPF", 4))
        return "several images in one file (MPO)";
    if (marker == APP9 && begins_with(content, end, "TILES", 6))
        return NULL;
    const uint8_t *segment = content - 4;
    memcpy(walk->metadata + walk->metadata_size, segment, (size_t)(end - segment));
    walk->metadata_size += end - segment;
    return NULL;
}

static Problem
read_quantisation(Walk *walk, const uint8_t *entry, const uint8_t *end)
{
    for (; entry < end; entry += size_of_quantisation(entry)) {
        ptrdiff_t size = size_of_quantisation(entry);
        if (end - entry < size || entry[0] >> 4 > 1 || (entry[0] & 15) > 3)
            return bad_quantisation;
        const uint8_t **known = &walk->quantisation[entry[0] & 15];
        if (walk->scans && (*known == NULL || (*known)[0] != entry[0] || memcmp(*known, entry, (size_t)size)))
            return "quantisation tables that change between its scans";
        *known = entry;
    }
    return NULL;
}

static Problem
read_huffman(Walk *walk, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        if (end - at < 17 || at[0] & 0xEC)
            return bad_huffman;
        const uint8_t *table = at + 1;
        int32_t room = 1 << 16, count = symbols_of(table);
        for (int length = 1; length <= 16; length++)
            room -= table[length - 1] << (16 - length);
        if (room <= 0 || count > 256 || end - (table + 16) < count) /* no code may be all ones */
            return bad_huffman;
        walk->tables[at[0] >> 4][at[0] & 3] = table;
        at = table + 16 + count;
    }
    return NULL;
}

static Problem
read_components(Frame *frame, const uint8_t *says)
{
    int blocks = 0;
    for (int i = 0; i < frame->count; i++, says += 3)
        frame->components[i] = (FrameComponent){says[0], says[1] >> 4, says[1] & 15, says[2]};
    const FrameComponent *c = frame->components;
    if (frame->count > 1 && (c[0].id == c[1].id || c[0].id == c[2].id || c[1].id == c[2].id))
        return "two components with one identifier";
    for (; c < frame->components + frame->count; c++) {
        if (c->across < 1 || c->across > 4 || c->down < 1 || c->down > 4)
            return "sampling factors out of range";
        blocks += c->across * c->down;
    }
    if (frame->count > 1 && blocks > MCU_BLOCKS)
        return "more than 10 blocks in an MCU";
    if (frame->count == 1)
        frame->components[0].across = frame->components[0].down = 1;
    return NULL;
}

/* Sets the largest sampling factors, and the number of interleaved MCUs. */
static void
measure(Frame *frame)
{
    frame->most_across = frame->most_down = 1;
    for (const FrameComponent *c = frame->components; c < frame->components + frame->count; c++) {
        frame->most_across = c->across > frame->most_across ? c->across : frame->most_across;
        frame->most_down = c->down > frame->most_down ? c->down : frame->most_down;
    }
    frame->across = (frame->width + 8 * frame->most_across - 1) / (8 * frame->most_across);
    frame->down = (frame->height + 8 * frame->most_down - 1) / (8 * frame->most_down);
}

static Problem
read_frame(Walk *walk, uint8_t marker, const uint8_t *at, const uint8_t *end)
{
    Frame *frame = &walk->frame;
    if (frame->segment != NULL)
        return "a second frame";
    if (end - at < 6 || end - at != 6 + 3 * at[5])
        return wrong_length;
    if (at[0] != 8)
        return at[0] == 12 ? "12-bit" : "an invalid precision";
    if (at[5] != 1 && at[5] != 3) {
        (void)snprintf(walk->said, sizeof walk->said, "%d components", at[5]);
        return at[5] == 4 ? "CMYK" : walk->said;
    }
    frame->height = two_bytes(at + 1);
    frame->width = two_bytes(at + 3);
    frame->count = at[5];
    frame->progressive = marker == PROGRESSIVE;
    if (!frame->height)
        return "its height is not in its header";
    if (frame->height > LONGEST_SIDE || !frame->width || frame->width > LONGEST_SIDE)
        return "its size is out of range";
    Problem problem = read_components(frame, at + 6);
    if (problem != NULL)
        return problem;
    measure(frame);
    frame->segment = at - 4;
    frame->end = end;
    return NULL;
}

static Problem
read_segment(Walk *walk, uint8_t marker, const uint8_t *content, const uint8_t *end)
{
    Problem problem = refuse_marker(marker);
    if (problem != NULL)
        return problem;
    if ((marker >= APP0 && marker <= APP15) || marker == COM)
        return read_metadata(walk, marker, content, end);
    switch (marker) {
    case DQT:
        return read_quantisation(walk, content, end);
    case DHT:
        return read_huffman(walk, content, end);
    case DRI:
        if (end - content != 2)
            return wrong_length;
        walk->interval = two_bytes(content);
        return NULL;
    case SOF0:
    case SOF1:
    case PROGRESSIVE:
        return read_frame(walk, marker, content, end);
    default:
        return "an unexpected marker";
    }
}

/* Returns the index of the component with this id; -1 if there is none, or the scan already has it. */
static int
find_component(const Frame *frame, const Scan *scan, int id)
{
    for (int i = 0; i < frame->count; i++) {
        if (frame->components[i].id != id)
            continue;
        for (int j = 0; j < scan->count; j++)
            if (scan->components[j] == i)
                return -1;
        return i;
    }
    return -1;
}

static Problem
read_scan(Walk *walk, const uint8_t *at, const uint8_t *end, Scan *scan)
{
    const Frame *frame = &walk->frame;
    if (frame->segment == NULL || at == end || !at[0] || end - at != 4 + 2 * at[0] || at[0] > frame->count)
        return bad_scan;
    scan->count = 0;
    for (const uint8_t *says = at + 1; says < end - 3; says += 2) {
        int component = find_component(frame, scan, says[0]);
        if (component < 0)
            return bad_scan;
        scan->dc[scan->count] = says[1] >> 4 < 4 ? walk->tables[0][says[1] >> 4] : NULL;
        scan->ac[scan->count] = (says[1] & 15) < 4 ? walk->tables[1][says[1] & 15] : NULL;
        scan->components[scan->count++] = component;
    }
    for (int i = 0; i < scan->count; i++) {
        int number = frame->components[scan->components[i]].quantisation;
        if (number > 3 || walk->quantisation[number] == NULL)
            return "a missing quantisation table";
    }
    walk->scans++;
    scan->first = end[-3];
    scan->last = end[-2];
    scan->high = end[-1] >> 4;
    scan->low = end[-1] & 15;
    scan->interval = walk->interval;
    scan->data = end;
    return NULL;
}

Problem
next_scan(Walk *walk, Scan *scan)
{
    scan->data = NULL;
    for (;;) {
        Problem problem = pass_marker(walk);
        if (problem != NULL)
            return problem;
        uint8_t marker = walk->at[-1];
        if (marker == EOI)
            return NULL;
        if (walk->stop - walk->at < 2)
            return cut_short;
        ptrdiff_t size = two_bytes(walk->at);
        if (size < 2 || size > walk->stop - walk->at)
            return wrong_length;
        const uint8_t *content = walk->at + 2;
        walk->at += size;
        if (marker == SOS)
            return read_scan(walk, content, walk->at, scan);
        problem = read_segment(walk, marker, content, walk->at);
        if (problem != NULL)
            return problem;
    }
}
