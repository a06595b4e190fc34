/* Converts JPEGs to tiled JPEGs, losslessly: the same coefficients, coded again with restart markers and optimal
   Huffman codes.

   An interleaved sequential scan, as in most photos, is converted symbol by symbol. All others are read into
   coefficients first. packer/_images/jpeg_tiles.py joins the pieces.

   No length in a JPEG is used before it is checked against the available bytes. Memory is allocated only after the
   image's data are found large enough for so many blocks. */

#include "arguments.h"
#include "geometry.h"
#include "jpeg/markers.h"
#include "native.h"
#include "tiling/recoding.h"
#include "tiling/structure.h"
#include "tiling/tokens.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_SCANS = 1000,
    NARROWEST = 2,     /* MCUs of a tile: the decoder is slower at each tile's end */
    NOTHING = 99,      /* instead of a bit: no scan has had the coefficient yet */
    HEADER = 2048      /* bytes: more than four Huffman tables, three quantisation tables and the rest of a header need */
};

typedef struct {
    const uint8_t *data;
    ptrdiff_t size;
    ptrdiff_t least_tile; /* bytes that tiles have on average, at least */
    Walk walk;
    ptrdiff_t read; /* bytes of all scans, without stuffed zeros and markers */
    uint8_t *metadata, *bytes;
    ptrdiff_t *ends;
    Code codes[2][COMPONENTS];   /* DC and AC of each component of a scan */
    int8_t bits[COMPONENTS][64]; /* the lowest bit of each coefficient in the scans so far (T.81, G.1.1.1: Al) */
    Planes planes;
    Tokens tokens;
    /* The result. */
    uint8_t header[HEADER], *header_end;
    uint8_t *scan, *scan_end;
    int64_t *row_sizes;
} Transcoding;

static int
is_sequential(const Scan *scan)
{
    return scan->first == 0 && scan->last == 63 && scan->high == 0 && scan->low == 0;
}

/* Copies a scan's data without stuffed zeros and markers. An MCU takes at least `least_bits` bits: no memory is
   allocated for an image that is too large for its data. */
static Problem
clean(Transcoding *t, const Scan *scan, ptrdiff_t mcus, int least_bits, CodedScan *coded)
{
    const uint8_t *stop = t->data + t->size;
    ptrdiff_t room = stop - scan->data, intervals = 1;
    if (mcus * least_bits > 8 * room)
        return too_short;
    if (scan->interval)
        intervals = (mcus + scan->interval - 1) / scan->interval;
    if (intervals > room)
        return "a damaged scan: its restart markers are wrong";
    ptrdiff_t *ends = realloc(t->ends, (size_t)intervals * sizeof *ends);
    if (ends == NULL)
        return no_memory;
    t->ends = ends;
    const uint8_t *marker = unstuff(scan->data, stop, t->bytes, ends, intervals);
    if (marker == NULL)
        return "a damaged scan: no end, or its restart markers are wrong";
    t->walk.at = marker;
    t->read += ends[intervals - 1];
    coded->bytes = t->bytes;
    coded->ends = ends;
    coded->interval = scan->interval;
    return NULL;
}

/* Prepares the tables that a scan needs, each once. */
static Problem
prepare_codes(Transcoding *t, const Scan *scan, CodedScan *coded)
{
    for (int is_ac = 0; is_ac < 2; is_ac++) {
        const uint8_t *const *tables = is_ac ? scan->ac : scan->dc;
        const Code **codes = is_ac ? coded->ac : coded->dc;
        for (int i = 0; i < scan->count; i++)
            codes[i] = NULL;
        if (is_ac ? scan->last == 0 : scan->first > 0 || scan->high > 0)
            continue;
        for (int i = 0; i < scan->count; i++) {
            if (tables[i] == NULL)
                return "a missing Huffman table";
            const uint8_t *symbols = tables[i] + 16;
            for (int j = 0; !is_ac && j < symbols_of(tables[i]); j++)
                if (symbols[j] > 15)
                    return "an invalid Huffman table";
            for (int j = 0; j < i && codes[i] == NULL; j++)
                if (tables[j] == tables[i])
                    codes[i] = codes[j];
            if (codes[i] != NULL)
                continue;
            Code *code = &t->codes[is_ac][i];
            prepare_code(code, tables[i]);
            codes[i] = code;
        }
    }
    return NULL;
}

/* Returns how many tiles a row of MCUs is cut into; as packer._images.jpeg_tiles.choose_columns. */
static ptrdiff_t
choose_columns(ptrdiff_t mcus, ptrdiff_t bytes, ptrdiff_t rows, ptrdiff_t least)
{
    ptrdiff_t columns = mcus / NARROWEST;
    while (columns > 1 && (mcus % columns || bytes < least * columns * rows))
        columns--;
    return larger(columns, 1);
}

/* Chooses the tiles, and makes room for `most` tokens. */
static Problem
begin_tokens(Transcoding *t, ptrdiff_t most)
{
    const Frame *frame = &t->walk.frame;
    Tokens *tokens = &t->tokens;
    tokens->rows = frame->down;
    tokens->columns = choose_columns(frame->across, t->read, frame->down, t->least_tile);
    tokens->tile = frame->across / tokens->columns;
    tokens->tokens = malloc((size_t)most * sizeof *tokens->tokens);
    tokens->ends = malloc((size_t)(tokens->rows * tokens->columns) * sizeof *tokens->ends);
    return tokens->tokens == NULL || tokens->ends == NULL ? no_memory : NULL;
}

/* Reads the tokens of an image that is one interleaved sequential scan. */
static Problem
carry_over(Transcoding *t, Scan *scan)
{
    const Frame *frame = &t->walk.frame;
    CodedScan coded;
    if (!is_sequential(scan))
        return "an invalid scan header";
    int blocks = 0;
    for (int i = 0; i < frame->count; i++)
        blocks += frame->components[i].across * frame->components[i].down;
    ptrdiff_t mcus = frame->across * frame->down;
    Problem problem = clean(t, scan, mcus, 2 * blocks, &coded);
    if (problem != NULL)
        return problem;
    if ((problem = begin_tokens(t, smaller(8 * t->read, 64 * blocks * mcus) + 64)) != NULL
        || (problem = prepare_codes(t, scan, &coded)) != NULL
        || (problem = read_tokens(&coded, frame, &t->tokens)) != NULL
        || (problem = next_scan(&t->walk, scan)) != NULL)
        return problem;
    return scan->data != NULL ? "a component in two sequential scans" : NULL;
}

/* Tells whether a scan has the next bits of its coefficients, and records them. */
static int
follows(Transcoding *t, const Scan *scan)
{
    if (t->walk.frame.progressive) {
        if (scan->first == 0 ? scan->last != 0 : scan->count != 1 || scan->last < scan->first || scan->last > 63)
            return 0;
        if (scan->first > 0 && t->bits[scan->components[0]][0] == NOTHING)
            return 0;
    }
    if (scan->low > 13 || (scan->high && scan->low != scan->high - 1))
        return 0;
    for (int i = 0; i < scan->count; i++) {
        int8_t *bits = t->bits[scan->components[i]];
        for (int k = scan->first; k <= scan->last; k++) {
            if (bits[k] != (scan->high ? scan->high : NOTHING))
                return 0;
            bits[k] = (int8_t)scan->low;
        }
    }
    return 1;
}

static Problem
read_any_scan(Transcoding *t, const Scan *scan)
{
    const Frame *frame = &t->walk.frame;
    if (!frame->progressive && !is_sequential(scan))
        return "an invalid scan header";
    if (!follows(t, scan))
        return "scans that do not follow from each other";
    int least = 0; /* in a scan of AC coefficients, one code may stand for many blocks */
    if (scan->first == 0) {
        least = scan->count == 1;
        for (int i = 0; i < scan->count && scan->count > 1; i++)
            least += frame->components[scan->components[i]].across * frame->components[scan->components[i]].down;
    }
    ptrdiff_t down, across = mcus_of_scan(frame, scan, &down);
    CodedScan coded;
    Problem problem = clean(t, scan, across * down, least, &coded);
    if (problem != NULL)
        return problem;
    if (t->planes.coefficients == NULL)
        t->planes.coefficients = calloc((size_t)t->planes.count, 64 * sizeof *t->planes.coefficients);
    if (t->planes.coefficients == NULL)
        return no_memory;
    problem = prepare_codes(t, scan, &coded);
    return problem != NULL ? problem : read_coefficients(&coded, scan, frame, &t->planes);
}

/* Reads the tokens of an image of any number of scans. */
static Problem
code_again(Transcoding *t, Scan *scan)
{
    const Frame *frame = &t->walk.frame;
    lay_out_planes(&t->planes, frame);
    memset(t->bits, NOTHING, sizeof t->bits);
    while (scan->data != NULL) {
        if (t->walk.scans > MOST_SCANS)
            return "more than 1000 scans";
        Problem problem = read_any_scan(t, scan);
        if (problem != NULL || (problem = next_scan(&t->walk, scan)) != NULL)
            return problem;
    }
    for (int i = 0; i < 64 * frame->count; i++)
        if (t->bits[i / 64][i % 64])
            return "scans are missing"; /* decoders would smooth such an image */
    ptrdiff_t most = 5 * t->planes.count;
    for (const int16_t *c = t->planes.coefficients, *end = c + 64 * t->planes.count; c < end; c++)
        most += *c != 0;
    Problem problem = begin_tokens(t, most);
    return problem != NULL ? problem : put_coefficients(&t->planes, frame, &t->tokens);
}

/* Begins a segment; `end_segment` writes its length. */
static uint8_t *
begin_segment(uint8_t *to, uint8_t marker)
{
    to[0] = 0xFF;
    to[1] = marker;
    return to + 4;
}

static uint8_t *
end_segment(uint8_t *begin, uint8_t *end)
{
    begin[2] = (uint8_t)((end - begin - 2) >> 8);
    begin[3] = (uint8_t)(end - begin - 2);
    return end;
}

/* Finds the best codes for the tokens. Writes them in the form that `write_tokens` needs, and writes the segment that
   defines them. Returns how many bits the scan will have. */
static ptrdiff_t
choose_codes(Transcoding *t, uint32_t *codes)
{
    const uint32_t *counts = t->tokens.counts;
    uint8_t *begin = t->header_end, *to = begin_segment(begin, DHT);
    ptrdiff_t bits = 0;
    for (int group = 0; group < KEYS / 256; group++) {
        uint8_t *lengths = to + 1, *symbols = lengths + 16;
        int key = 256 * group, count = find_best_code(counts + key, lengths, symbols);
        if (!count)
            continue;
        *to = (uint8_t)((group & 1) << 4 | group >> 1);
        to = symbols + count;
        uint32_t code = 0;
        for (int length = 1; length <= 16; length++, code <<= 1) {
            for (int i = 0; i < lengths[length - 1]; i++, code++, symbols++) {
                uint32_t amplitude = *symbols & 15u, width = (uint32_t)length + amplitude;
                codes[key + *symbols] = code << amplitude << WIDTH | width;
                bits += (ptrdiff_t)counts[key + *symbols] * width;
            }
        }
    }
    t->header_end = end_segment(begin, to);
    return bits;
}

/* Writes the segments before the Huffman tables: quantisation and the frame. */
static void
begin_header(Transcoding *t)
{
    const Walk *walk = &t->walk;
    const Frame *frame = &walk->frame;
    int is_baseline = 1;
    uint8_t *begin = t->header, *to = begin_segment(begin, DQT);
    for (int number = 0; number < 4; number++) {
        const uint8_t *entry = walk->quantisation[number];
        int used = 0;
        for (int i = 0; i < frame->count; i++)
            used |= frame->components[i].quantisation == number;
        if (!used)
            continue;
        memcpy(to, entry, (size_t)size_of_quantisation(entry));
        to += size_of_quantisation(entry);
        is_baseline &= entry[0] >> 4 == 0;
    }
    begin = end_segment(begin, to);
    memcpy(begin, frame->segment, (size_t)(frame->end - frame->segment));
    if (frame->progressive)
        begin[1] = is_baseline ? SOF0 : SOF1;
    t->header_end = begin + (frame->end - frame->segment);
}

/* Writes the segments after the Huffman tables: the restart interval and the scan's header. */
static void
end_header(Transcoding *t)
{
    const Frame *frame = &t->walk.frame;
    uint8_t *begin = t->header_end, *to = begin_segment(begin, DRI);
    *to++ = (uint8_t)(t->tokens.tile >> 8);
    *to++ = (uint8_t)t->tokens.tile;
    begin = end_segment(begin, to);
    to = begin_segment(begin, SOS);
    *to++ = (uint8_t)frame->count;
    for (int i = 0; i < frame->count; i++) {
        *to++ = (uint8_t)frame->components[i].id;
        *to++ = i ? 0x11 : 0x00; /* tables */
    }
    *to++ = 0;
    *to++ = 63;
    *to++ = 0;
    t->header_end = end_segment(begin, to);
}

static Problem
write_pieces(Transcoding *t)
{
    uint32_t codes[KEYS];
    begin_header(t);
    ptrdiff_t bits = choose_codes(t, codes);
    end_header(t);
    ptrdiff_t tiles = t->tokens.rows * t->tokens.columns;
    t->scan = malloc((size_t)(bits / 4 + 8 * tiles + 8));
    t->row_sizes = malloc((size_t)t->tokens.rows * sizeof *t->row_sizes);
    if (t->scan == NULL || t->row_sizes == NULL)
        return no_memory;
    t->scan_end = write_tokens(&t->tokens, codes, t->scan, t->row_sizes);
    return NULL;
}

/* Returns why the image cannot be made tiled, or NULL. */
static Problem
make_pieces(Transcoding *t, ptrdiff_t most_pixels)
{
    Scan scan;
    const Frame *frame = &t->walk.frame;
    if (t->size < 3 || memcmp(t->data, "\xFF\xD8\xFF", 3))
        return "not a JPEG";
    t->metadata = malloc((size_t)t->size);
    t->bytes = malloc((size_t)t->size + MARGIN);
    if (t->metadata == NULL || t->bytes == NULL)
        return no_memory;
    begin_walk(&t->walk, t->data, t->size, t->metadata);
    Problem problem = next_scan(&t->walk, &scan);
    if (problem != NULL)
        return problem;
    if (scan.data == NULL)
        return "it has no scan";
    if (frame->height * frame->width > most_pixels)
        return "too many pixels";
    int carried = !frame->progressive && scan.count == frame->count;
    for (int i = 0; i < scan.count; i++)
        carried &= scan.components[i] == i;
    problem = carried ? carry_over(t, &scan) : code_again(t, &scan);
    return problem != NULL ? problem : write_pieces(t);
}

static void
free_all(Transcoding *t)
{
    free(t->metadata);
    free(t->bytes);
    free(t->ends);
    free(t->planes.coefficients);
    free(t->tokens.tokens);
    free(t->tokens.ends);
    free(t->scan);
    free(t->row_sizes);
    free(t);
}

static PyObject *
build_result(const Transcoding *t, Problem problem)
{
    if (problem == no_memory)
        return PyErr_NoMemory();
    if (problem != NULL)
        return PyUnicode_FromString(problem);
    return Py_BuildValue("y#y#ny#y#n", (const char *)t->metadata, (Py_ssize_t)t->walk.metadata_size,
                         (const char *)t->header, (Py_ssize_t)(t->header_end - t->header),
                         (Py_ssize_t)t->tokens.columns, (const char *)t->row_sizes,
                         (Py_ssize_t)(t->tokens.rows * (ptrdiff_t)sizeof *t->row_sizes), (const char *)t->scan,
                         (Py_ssize_t)(t->scan_end - t->scan), (Py_ssize_t)(t->walk.at - t->data));
}

PyObject *
transcode(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[2];
    Py_ssize_t size;
    const uint8_t *data;
    if (!read_arguments(arguments, given, &data, &size, n, 2))
        return NULL;
    if (n[0] < 0 || n[0] > UINT32_MAX || n[1] < 0 || n[1] > UINT16_MAX) {
        PyErr_SetString(PyExc_ValueError, "the pixels or the bytes of a tile are out of range");
        return NULL;
    }
    Transcoding *t = calloc(1, sizeof *t);
    if (t == NULL)
        return PyErr_NoMemory();
    Problem problem;
    t->data = data;
    t->size = size;
    t->least_tile = (ptrdiff_t)n[1];
    Py_BEGIN_ALLOW_THREADS
    problem = make_pieces(t, (ptrdiff_t)n[0]);
    Py_END_ALLOW_THREADS
    PyObject *result = build_result(t, problem);
    free_all(t);
    return result;
}
