/* Implements png.h: selects the PNGs to decode, and converts their samples to pixels. */

#include "kernels/kernels.h"
#include "png/inflating.h"
#include "png/lines.h"
#include "png/png.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of an interlaced image, which is decoded as a whole; larger ones are not supported. */
#define LARGEST ((int64_t)1 << 28)
enum { TEXT = 1 << 16, TEXTS = 1 << 26, PROFILE = 1 << 16 }; /* bytes of a text, of all texts, and of an ICC profile, at most */

typedef struct { /* properties of a PNG from its chunks */
    Header header;
    const uint8_t *palette; /* NULL without one */
    size_t colours, texts;  /* colours of the palette; bytes of all texts */
    size_t compressed;      /* bytes of all IDAT chunks */
    int begun, ended;       /* whether an IDAT chunk was seen; whether another chunk was seen after it */
    int profiles;           /* iCCP chunks */
} Contents;

struct PngDecoder {
    Lines lines;
    Memory compressed, levels, rows;
    Contents contents;
    uint8_t palette[256][4];
    Rectangle wanted;
    ptrdiff_t line, at_once, held; /* bytes of a row of pixels; rows that `rows` has room for; rows that it has */
    TakeRows take;
    void *taker;
};

/* Tells whether an ICC profile is undamaged, and not larger than PROFILE. Pillow refuses profiles of more than 1 MiB. */
static int
is_profile(Inflating *inflating, const Chunk *chunk)
{
    const uint8_t *end = memchr(chunk->body, 0, chunk->size);
    size_t name = end != NULL ? (size_t)(end - chunk->body) : 0, size = 0;
    if (end == NULL || chunk->size - name < 3 || end[1] != 0
        || !inflating_begin(inflating, end + 2, chunk->size - name - 2, 1, 1))
        return 0;
    while (size < PROFILE && inflating_take(inflating, 1) != NULL)
        size++;
    return inflating_ends(inflating);
}

/* Tells whether a text in UTF-8 is not compressed, shorter than TEXT, and accepted by Pillow. */
static int
is_text(const Chunk *chunk)
{
    const uint8_t *end = memchr(chunk->body, 0, chunk->size);
    return chunk->size < TEXT && end != NULL && (size_t)(end - chunk->body) + 1 < chunk->size && end[1] == 0
        && !has_key_of_pillow(chunk);
}

/* Tells whether Pillow accepts a chunk, and its pixels depend on no other chunks than `take_chunk` supports. */
static int
is_harmless(PngDecoder *d, const Chunk *chunk)
{
    if (is_named(chunk, "eXIf"))
        return 1;
    if (is_named(chunk, "iTXt"))
        return is_text(chunk);
    if (is_named(chunk, "iCCP"))
        return d->contents.profiles++ == 0 && is_profile(d->lines.inflating, chunk);
    return is_usual_chunk(chunk, d->contents.header.colour);
}

/* Takes a chunk after the header. Returns 0 if the chunk or its position is unusual. */
static int
take_chunk(PngDecoder *d, const Chunk *chunk)
{
    Contents *contents = &d->contents;
    if (!is_harmless(d, chunk))
        return 0;
    if (is_named(chunk, "IDAT")) {
        memcpy(d->compressed.at + contents->compressed, chunk->body, chunk->size);
        contents->compressed += chunk->size;
        contents->begun = 1;
        return !contents->ended;
    }
    contents->ended = contents->begun;
    if (is_named(chunk, "PLTE")) {
        if (contents->palette != NULL || contents->begun)
            return 0;
        contents->palette = chunk->body;
        contents->colours = chunk->size / 3;
        return 1;
    }
    if (is_named(chunk, "tEXt") || is_named(chunk, "iTXt"))
        contents->texts += chunk->size;
    return (chunk->name[0] & 0x20) && contents->texts < TEXTS;
}

/* Reads the chunks of a PNG. Returns 0 if it has another size, or this decoder does not support it. */
static int
read_chunks(PngDecoder *d, const uint8_t *data, size_t size, ptrdiff_t height, ptrdiff_t width)
{
    Chunk chunk;
    d->contents = (Contents){0};
    if (size < SIGNATURE_SIZE || memcmp(data, png_signature, SIGNATURE_SIZE)
        || !read_chunk(data, size, SIGNATURE_SIZE, &chunk) || !read_header(&chunk, &d->contents.header)
        || d->contents.header.interlaced > 1 || d->contents.header.height != (uint64_t)height
        || d->contents.header.width != (uint64_t)width)
        return 0;
    do {
        if (!read_chunk(data, size, (size_t)(chunk.body - data) + chunk.size + 4, &chunk))
            return 0;
        if (is_named(&chunk, "IEND"))
            return d->contents.begun && (d->contents.header.colour != PALETTE || d->contents.colours > 0);
    } while (take_chunk(d, &chunk));
    return 0;
}

/* Converts grey levels, which are `step` bytes apart, to four-byte pixels. */
static void
spread(const uint8_t *levels, ptrdiff_t step, ptrdiff_t count, uint8_t *pixels)
{
    for (ptrdiff_t i = 0; i < count; i++, levels += step, pixels += 4)
        pixels[0] = pixels[1] = pixels[2] = *levels;
}

/* Converts pixels of 16-bit samples to the upper bytes of their colours, as Pillow does. */
static void
cut(const uint8_t *samples, ptrdiff_t step, ptrdiff_t count, uint8_t *pixels)
{
    for (ptrdiff_t i = 0; i < count; i++, samples += step, pixels += 4)
        pixels[0] = samples[0], pixels[1] = samples[2], pixels[2] = samples[4];
}

/* Converts 16-bit grey levels to four-byte pixels; limits them to 255, as Pillow does. */
static void
clip(const uint8_t *samples, ptrdiff_t count, uint8_t *pixels)
{
    for (ptrdiff_t i = 0; i < count; i++, samples += 2, pixels += 4)
        pixels[0] = pixels[1] = pixels[2] = samples[0] ? 255 : samples[1];
}

/* Replaces indices by the colours of the palette. Returns 0 if an index is too large. */
static int
look_colours_up(const PngDecoder *d, const uint8_t *indices, ptrdiff_t count, uint8_t *pixels)
{
    uint8_t most = 0;
    for (ptrdiff_t i = 0; i < count; i++) {
        most = indices[i] > most ? indices[i] : most;
        memcpy(pixels + 4 * i, d->palette[indices[i]], 4);
    }
    return most < d->contents.colours;
}

/* Converts a line's samples, from the column `first` on, to four-byte pixels. Returns 0 if an index into the palette is
   too large. */
static int
convert(const PngDecoder *d, const uint8_t *line, ptrdiff_t first, ptrdiff_t count, uint8_t *pixels)
{
    int depth = d->contents.header.depth, wide = depth == 16 ? 2 : 1;
    switch (d->contents.header.colour) {
    case GREY:
    case PALETTE: {
        int grey = d->contents.header.colour == GREY;
        if (depth < 8) {
            unpack_samples(line, first + count, depth, grey ? 255 / ((1 << depth) - 1) : 1, d->levels.at);
            line = d->levels.at;
        }
        if (!grey)
            return look_colours_up(d, line + first, count, pixels);
        if (depth == 16)
            clip(line + 2 * first, count, pixels);
        else
            spread(line + first, 1, count, pixels);
        return 1;
    }
    case GREY_ALPHA:
        spread(line + 2 * wide * first, 2 * wide, count, pixels);
        return 1;
    case COLOUR:
        if (wide == 1)
            kernels->expand(line + 3 * first, pixels, count);
        else
            cut(line + 6 * first, 6, count, pixels);
        return 1;
    default:
        if (wide == 1)
            memcpy(pixels, line + 4 * first, 4 * (size_t)count);
        else
            cut(line + 8 * first, 8, count, pixels);
        return 1;
    }
}

/* Passes on the rows that are converted. */
static void
hand_over(PngDecoder *d)
{
    if (d->held > 0)
        d->take(d->taker, d->rows.at, d->line, d->held);
    d->held = 0;
}

static int
take_line(void *decoder, const uint8_t *samples, const Line *line)
{
    PngDecoder *d = decoder;
    if (line->row < d->wanted.top)
        return 1;
    uint8_t *pixels = d->rows.at + d->held * d->line;
    if (!convert(d, samples, d->wanted.left, d->wanted.width, pixels))
        return 0;
    if (++d->held == d->at_once)
        hand_over(d);
    return 1;
}

/* Writes the pixels of a line to their positions in the image. */
static int
take_pass(void *decoder, const uint8_t *samples, const Line *line)
{
    PngDecoder *d = decoder;
    uint8_t *pixels = d->rows.at + (ptrdiff_t)d->contents.header.height * d->line; /* a spare row after the image */
    uint8_t *to = d->rows.at + line->row * d->line + 4 * line->column;
    if (!convert(d, samples, 0, line->count, pixels))
        return 0;
    for (ptrdiff_t i = 0; i < line->count; i++)
        memcpy(to + 4 * i * line->step, pixels + 4 * i, 4);
    return 1;
}

/* Makes room for some rows, or for all of an interlaced image. Returns UNDECODED if these are too large. */
static Outcome
lay_out(PngDecoder *d)
{
    const Header *header = &d->contents.header;
    ptrdiff_t line = 4 * (header->interlaced ? (ptrdiff_t)header->width : d->wanted.width) + BESIDE;
    d->line = line;
    d->at_once = rows_at_once(line);
    d->held = 0;
    int64_t rows = header->interlaced ? (int64_t)header->height + 1 : d->at_once;
    if (header->interlaced && (int64_t)line * rows > LARGEST)
        return UNDECODED;
    return reserve(&d->rows, (size_t)line * (size_t)rows) && reserve(&d->levels, header->width) ? DECODED : NO_MEMORY;
}

static void
fill_palette(PngDecoder *d)
{
    for (size_t i = 0; i < d->contents.colours; i++)
        memcpy(d->palette[i], d->contents.palette + 3 * i, 3);
}

PngDecoder *
png_decoder_new(void)
{
    PngDecoder *d = calloc(1, sizeof *d);
    if (d != NULL && lines_init(&d->lines))
        return d;
    free(d);
    return NULL;
}

void
png_decoder_free(PngDecoder *d)
{
    if (d == NULL)
        return;
    lines_clear(&d->lines);
    free(d->compressed.at);
    free(d->levels.at);
    free(d->rows.at);
    free(d);
}

size_t
png_decoder_memory(const PngDecoder *d)
{
    return sizeof *d + lines_memory(&d->lines) + d->compressed.size + d->levels.size + d->rows.size;
}

Outcome
png_decode(PngDecoder *d, const uint8_t *data, ptrdiff_t size, ptrdiff_t height, ptrdiff_t width, Rectangle wanted,
           TakeRows take, void *taker)
{
    const Header *header = &d->contents.header;
    if (!reserve(&d->compressed, (size_t)size))
        return NO_MEMORY;
    if (!read_chunks(d, data, (size_t)size, height, width))
        return UNDECODED;
    d->wanted = wanted;
    d->take = take;
    d->taker = taker;
    Outcome outcome = lay_out(d);
    if (outcome != DECODED)
        return outcome;
    fill_palette(d);
    outcome = read_lines(&d->lines, header, d->compressed.at, d->contents.compressed, wanted.top + wanted.height,
                         wanted.left + wanted.width, header->interlaced ? take_pass : take_line, d);
    if (outcome != DECODED)
        return outcome;
    if (header->interlaced)
        take(taker, d->rows.at + wanted.top * d->line + 4 * wanted.left, d->line, wanted.height);
    else
        hand_over(d);
    return DECODED;
}
