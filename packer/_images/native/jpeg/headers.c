/* Reads the headers of JPEGs (ITU-T T.81, annex B). */

#include "jpeg/jpeg.h"
#include "jpeg/markers.h"
#include "jpeg/metadata.h"

#include <string.h>

enum { LONGEST_SIDE = 65500 }; /* pixels: libjpeg's limit */
/* The largest Al (T.81, G.1.1.1) of the first coefficient: libjpeg's limit; and of others: their values must fit into 16
   bits. */
enum { LOWEST_FIRST = 13, LOWEST_OTHER = 5 };

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
        if (end - at < 1 + LENGTHS || at[0] & 0xEC)
            return 0;
        const int is_ac = *at >> 4;
        Table *table = &d->tables[is_ac][*at++ & 3];
        int size = LENGTHS;
        for (int i = 0; i < LENGTHS; i++)
            size += at[i];
        if (size > LENGTHS + 256 || size > end - at)
            return 0;
        /* Most encoders write the same tables again and again. */
        if ((size != table->size || memcmp(at, table->says, (size_t)size)) && !prepare_table(table, at, size, is_ac))
            return 0;
        table->defined = 1;
        at += size;
    }
    return at == end;
}

static int
read_interval(Decoder *d, const uint8_t *at, const uint8_t *end)
{
    d->interval = end - at == 2 ? two_bytes(at) : 0;
    return end - at == 2;
}

static ptrdiff_t
divided(ptrdiff_t count, ptrdiff_t size) /* rounded up */
{
    return (count + size - 1) / size;
}

static int
read_factors(Component *c, uint8_t says, int alone)
{
    int across = says >> 4, down = says & 15;
    c->across = alone ? 1 : across; /* with one component, an MCU is a block, whatever its sampling factors */
    c->down = alone ? 1 : down;
    return across >= 1 && across <= 4 && down >= 1 && down <= 4;
}

/* Computes the size of each component from the sampling factors. Returns 0 if a factor does not divide the largest one. */
static int
lay_out_components(Decoder *d)
{
    d->across = d->down = 1;
    for (int i = 0; i < d->count; i++) {
        d->across = larger(d->across, d->components[i].across);
        d->down = larger(d->down, d->components[i].down);
    }
    for (Component *c = d->components; c < d->components + d->count; c++) {
        if (d->across % c->across || d->down % c->down)
            return 0;
        c->wide = d->across / c->across;
        c->tall = d->down / c->down;
        c->width = divided(d->width, c->wide);
        c->height = divided(d->height, c->tall);
    }
    d->columns = divided(d->width, 8 * d->across);
    d->rows = divided(d->height, 8 * d->down);
    return 1;
}

static int
read_frame(Decoder *d, const uint8_t *at, const uint8_t *end)
{
    if (d->count || end - at < 6 || at[0] != 8 || end - at != 6 + 3 * at[5])
        return 0;
    if (at[5] != 1 && at[5] != 3 && at[5] != 4)
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
        if (says[2] > 3 || !read_factors(c, says[1], d->count == 1))
            return 0;
        c->quantum = d->quanta[says[2]];
        memset(c->lowest, -1, sizeof c->lowest);
    }
    return lay_out_components(d);
}

/* Reads the components of a scan and their tables. Returns 0 if they are invalid, or not in the order of the frame. */
static int
read_components(Decoder *d, const uint8_t *at)
{
    Scan *scan = &d->scan;
    Component *c = d->components, *end = c + d->count;
    ptrdiff_t blocks = 0;
    for (scan->count = 0; scan->count < at[0]; scan->count++, c++) {
        const uint8_t *says = at + 1 + 2 * scan->count;
        while (c < end && c->id != says[0])
            c++;
        if (c == end || says[1] & 0xCC)
            return 0;
        c->dc = &d->tables[0][says[1] >> 4];
        Table *ac = &d->tables[1][says[1] & 3];
        if (!d->progressive)
            prepare_steps(ac);
        c->ac = ac;
        scan->components[scan->count] = c;
        blocks += c->across * c->down;
    }
    c = scan->components[0];
    scan->columns = scan->count == 1 ? divided(c->width, 8) : d->columns;
    scan->rows = scan->count == 1 ? divided(c->height, 8) : d->rows;
    d->mcus = scan->rows * scan->columns;
    return scan->count == 1 || blocks <= BLOCKS;
}

/* Tells whether the tables that a scan needs are defined. */
static int
has_tables(const Decoder *d)
{
    const Scan *scan = &d->scan;
    for (int i = 0; i < scan->count; i++) {
        const Component *c = scan->components[i];
        if (!(d->quantised >> ((c->quantum - d->quanta[0]) / 64) & 1))
            return 0;
        if ((scan->first == 0 && !scan->refines && !c->dc->defined) || (scan->last > 0 && !c->ac->defined))
            return 0;
        if (!d->progressive && c->ac->has_runs)
            return 0;
    }
    return 1;
}

/* Reads the header of a scan. It must have all coefficients; in a progressive image, the first ones, or others of one
   component. */
static int
read_scan_header(Decoder *d, const uint8_t *at, const uint8_t *end)
{
    if (!d->count || end - at < 6 || at[0] < 1 || at[0] > d->count || end - at != 4 + 2 * at[0])
        return 0;
    const uint8_t *spectrum = end - 3;
    Scan *scan = &d->scan;
    int high = spectrum[2] >> 4;
    scan->first = spectrum[0];
    scan->last = spectrum[1];
    scan->low = spectrum[2] & 15;
    scan->refines = high > 0;
    if (!read_components(d, at) || !has_tables(d))
        return 0;
    if (!d->progressive)
        return scan->count == d->count && scan->first == 0 && scan->last == 63 && spectrum[2] == 0;
    if (scan->first == 0 ? scan->last != 0 : scan->count != 1 || scan->last < scan->first || scan->last > 63)
        return 0;
    return scan->refines ? scan->low == high - 1 : scan->low <= (scan->first == 0 ? LOWEST_FIRST : LOWEST_OTHER);
}

typedef struct { /* properties of the image from its metadata */
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

/* Determines the colour space of an image as libjpeg does. Returns 0 if this decoder does not support it. */
static int
conclude_colours(Decoder *d, const Metadata *metadata)
{
    const Component *c = d->components;
    if (d->count == 1) {
        d->colours = GREY;
        return 1;
    }
    if (d->count == 4) {
        d->colours = metadata->adobe == 2 ? YCCK : CMYK;
        return metadata->adobe <= 0 || metadata->adobe == 2;
    }
    d->colours = YCC;
    if (metadata->is_jfif || metadata->adobe == 1)
        return 1;
    return metadata->adobe < 0 && c[0].id == 1 && c[1].id == 2 && c[2].id == 3;
}

/* Reads a segment before the first scan. Returns 0 if this decoder does not support it. */
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
    case SOF2:
        d->progressive = marker == SOF2;
        return read_frame(d, content, end);
    case DRI:
        return read_interval(d, content, end);
    default:
        return 0;
    }
}

/* Returns the end of the segment at `at`; NULL if there is no segment, or it ends after `stop`. */
static const uint8_t *
end_of_marker(const uint8_t *at, const uint8_t *stop)
{
    if (stop - at < 4 || at[0] != 0xFF || stop - at < 2 + two_bytes(at + 2) || two_bytes(at + 2) < 2)
        return NULL;
    return at + 2 + two_bytes(at + 2);
}

int
read_headers(Decoder *d, const uint8_t *data, ptrdiff_t size)
{
    if (size < 4 || data[0] != 0xFF || data[1] != SOI)
        return 0;
    const uint8_t *at = data + 2, *end;
    Metadata metadata = {.adobe = -1};
    d->stop = data + size;
    d->count = d->progressive = 0;
    d->quantised = 0;
    d->interval = 0;
    for (int i = 0; i < 8; i++)
        d->tables[i >> 2][i & 3].defined = 0;
    for (; (end = end_of_marker(at, d->stop)) != NULL; at = end) {
        if (at[1] == SOS) {
            d->from = end;
            return read_scan_header(d, at + 4, end) && conclude_colours(d, &metadata);
        }
        if (!read_segment(d, &metadata, at[1], at + 4, end))
            return 0;
    }
    return 0;
}

/* New quantisation tables are not supported: the components to which they apply depend on the earlier scans. */
After
read_after_scan(Decoder *d, const uint8_t *at)
{
    for (const uint8_t *end; d->stop - at >= 2 && at[0] == 0xFF; at = end) {
        if (at[1] == EOI)
            return NO_MORE_SCANS;
        if ((end = end_of_marker(at, d->stop)) == NULL)
            break;
        if (at[1] == SOS) {
            d->from = end;
            return read_scan_header(d, at + 4, end) ? ANOTHER_SCAN : UNKNOWN;
        }
        if (at[1] == DHT ? !read_tables(d, at + 4, end) : at[1] == DRI ? !read_interval(d, at + 4, end) : 1)
            break;
    }
    return UNKNOWN;
}
