/* Reads the headers of JPEGs (ITU-T T.81, annex B). */

#include "jpeg.h"
#include "markers.h"
#include "metadata.h"

#include <string.h>

enum { LONGEST_SIDE = 65500 }; /* of an image that libjpeg decodes */

static int
read_quanta(Decoder *d, const uint8_t *at, const uint8_t *end)
{
    for (; at < end; at += 65) {
        if (at[0] > 3 || end - at < 65)
            return 0;
        for (int k = 0; k < 64; k++)
            d->quanta[at[0]][zigzag[k]] = at[1 + k];
        d->quantised |= 1u << at[0];
    }
    return 1;
}

static int
read_tables(Decoder *d, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        if (end - at < 17 || at[0] & 0xEC)
            return 0;
        int is_ac = at[0] >> 4;
        Table *table = &d->tables[is_ac][at[0] & 3];
        const uint8_t *counts = at, *symbols = at + 17;
        int32_t code = 0, index = 0;
        memset(table->look, 0, sizeof table->look);
        for (int length = 1; length <= 16; length++, code <<= 1) {
            int32_t count = counts[length];
            if (code + count >= 1 << length || index + count > 256 || count > end - symbols - index)
                return 0;
            table->symbol[length] = index - code;
            for (int32_t last = index + count; index < last; index++, code++) {
                int run = symbols[index] >> 4, bits = symbols[index] & 15;
                if (is_ac ? bits > 10 || (!bits && run && run != 15) : run || bits > 11)
                    return 0;
                Symbol symbol = (1 - (1 << bits)) * 0x10000 + run * 0x100 + length + bits;
                table->symbols[index] = symbol;
                if (length <= LOOK) {
                    Symbol *look = table->look + (code << (LOOK - length));
                    for (int i = 0; i < 1 << (LOOK - length); i++)
                        look[i] = symbol;
                }
            }
            table->end[length] = code;
        }
        table->defined = 1;
        at = symbols + index;
    }
    return at == end;
}

static int
read_frame(Decoder *d, const uint8_t *at, const uint8_t *end)
{
    if (d->count || end - at < 6 || at[0] != 8 || (at[5] != 1 && at[5] != 3) || end - at != 6 + 3 * at[5])
        return 0;
    if (two_bytes(at + 1) != d->height || two_bytes(at + 3) != d->width)
        return 0;
    if (d->height > LONGEST_SIDE || d->width > LONGEST_SIDE)
        return 0;
    d->count = at[5];
    for (int i = 0; i < d->count; i++) {
        Component *c = &d->components[i];
        const uint8_t *says = at + 6 + 3 * i;
        c->id = says[0];
        c->across = d->count == 1 ? 1 : says[1] >> 4; /* of one component, an MCU is a block, whatever its factors say */
        c->down = d->count == 1 ? 1 : says[1] & 15;
        if (says[2] > 3 || says[1] >> 4 < 1 || says[1] >> 4 > 4 || (says[1] & 15) < 1 || (says[1] & 15) > 4)
            return 0;
        if (i && (c->across != 1 || c->down != 1))
            return 0;
        c->quantum = d->quanta[says[2]];
    }
    d->across = d->components[0].across;
    d->down = d->components[0].down;
    if (d->across < 1 || d->across > 2 || d->down < 1 || d->down > 2)
        return 0;
    if (d->across == 2 && d->width <= 4) /* libjpeg upsamples so few columns in another way */
        return 0;
    d->columns = (d->width + 8 * d->across - 1) / (8 * d->across);
    d->rows = (d->height + 8 * d->down - 1) / (8 * d->down);
    return 1;
}

static int
read_scan_header(Decoder *d, const uint8_t *at, const uint8_t *end)
{
    if (!d->count || end - at != 4 + 2 * d->count || at[0] != d->count)
        return 0;
    for (int i = 0; i < d->count; i++) {
        Component *c = &d->components[i];
        const uint8_t *says = at + 1 + 2 * i;
        if (says[0] != c->id || says[1] & 0xCC || !(d->quantised >> ((c->quantum - d->quanta[0]) / 64) & 1))
            return 0;
        c->dc = &d->tables[0][says[1] >> 4];
        c->ac = &d->tables[1][says[1] & 3];
        if (!c->dc->defined || !c->ac->defined)
            return 0;
    }
    const uint8_t *spectrum = end - 3;
    return spectrum[0] == 0 && spectrum[1] == 63 && spectrum[2] == 0;
}

typedef struct { /* what the metadata say */
    int is_jfif, adobe; /* the colour transform of an Adobe segment, or -1 */
    int exifs;
} Metadata;

static int
read_metadata(Metadata *metadata, uint8_t marker, const uint8_t *content, ptrdiff_t size)
{
    if (!is_usual(marker, content, size, &metadata->exifs))
        return 0;
    if (marker == APP0 && size >= 5 && !memcmp(content, "JFIF", 5))
        metadata->is_jfif = 1;
    if (marker == APP14 && size >= 12 && !memcmp(content, "Adobe", 5))
        metadata->adobe = content[11];
    return 1;
}

/* Tells whether an image has the colours that this decoder converts, grey or YCbCr, as libjpeg concludes that. */
static int
has_known_colours(const Decoder *d, const Metadata *metadata)
{
    const Component *c = d->components;
    if (d->count == 1 || metadata->is_jfif || metadata->adobe == 1)
        return 1;
    return metadata->adobe < 0 && c[0].id == 1 && c[1].id == 2 && c[2].id == 3;
}

/* Reads a segment before the first scan; 0 where it is not one that this decoder knows. */
static int
read_segment(Decoder *d, Metadata *metadata, uint8_t marker, const uint8_t *content, const uint8_t *end)
{
    if (marker == COM || (marker >= APP0 && marker <= APP15))
        return read_metadata(metadata, marker, content, end - content);
    switch (marker) {
    case DQT:
        return read_quanta(d, content, end);
    case DHT:
        return read_tables(d, content, end);
    case SOF0:
    case SOF1:
        return read_frame(d, content, end);
    case DRI:
        d->interval = end - content == 2 ? two_bytes(content) : 0;
        return end - content == 2;
    default:
        return 0;
    }
}

int
read_headers(Decoder *d, const uint8_t *data, ptrdiff_t size)
{
    if (size < 4 || data[0] != 0xFF || data[1] != SOI)
        return 0;
    const uint8_t *at = data + 2, *stop = data + size;
    Metadata metadata = {.adobe = -1};
    d->count = d->quantised = 0;
    d->interval = 0;
    for (int i = 0; i < 8; i++)
        d->tables[i >> 2][i & 3].defined = 0;
    for (;;) {
        if (stop - at < 4 || at[0] != 0xFF || stop - at < 2 + two_bytes(at + 2) || two_bytes(at + 2) < 2)
            return 0;
        const uint8_t *content = at + 4, *end = at + 2 + two_bytes(at + 2);
        if (at[1] == SOS) {
            d->from = end;
            d->stop = stop;
            return read_scan_header(d, content, end) && has_known_colours(d, &metadata);
        }
        if (!read_segment(d, &metadata, at[1], content, end))
            return 0;
        at = end;
    }
}
