/* Implements chunks.h. */

#include "checksums.h"
#include "png/chunks.h"

#include <string.h>

static uint32_t
four_bytes(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

int
read_chunk(const uint8_t *data, size_t size, size_t at, Chunk *chunk)
{
    if (at > size || size - at < 12)
        return 0;
    size_t length = four_bytes(data + at);
    if (length > size - at - 12)
        return 0;
    *chunk = (Chunk){data + at + 4, data + at + 8, length};
    return crc32_zlib(0, chunk->name, length + 4) == four_bytes(chunk->body + length);
}

int
is_named(const Chunk *chunk, const char *name)
{
    return !memcmp(chunk->name, name, 4);
}

int
is_known_kind(int depth, int colour)
{
    switch (colour) {
    case GREY:
        return depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16;
    case PALETTE:
        return depth == 1 || depth == 2 || depth == 4 || depth == 8;
    case COLOUR:
    case GREY_ALPHA:
    case COLOUR_ALPHA:
        return depth == 8 || depth == 16;
    default:
        return 0;
    }
}

int
read_header(const Chunk *chunk, Header *header)
{
    const uint8_t *body = chunk->body;
    if (!is_named(chunk, "IHDR") || chunk->size != HEADER_SIZE)
        return 0;
    *header = (Header){.width = four_bytes(body), .height = four_bytes(body + 4), .depth = body[8], .colour = body[9],
                       .interlaced = body[12]};
    return header->width && header->height && is_known_kind(body[8], body[9]) && !body[10] && !body[11];
}

int
has_key_of_pillow(const Chunk *chunk)
{
    static const char *const keys[] = {"bbox", "interlace", "transparency"};
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(keys[i]);
        if (chunk->size >= length && !memcmp(chunk->body, keys[i], length)
            && (chunk->size == length || chunk->body[length] == 0))
            return 1;
    }
    return 0;
}

static int
is_usual_text(const Chunk *chunk)
{
    static const char profile[] = "Raw profile type", xmp[] = "XML:com.adobe.xmp";
    return chunk->size < 1 << 16 && !(chunk->size >= 16 && !memcmp(chunk->body, profile, 16))
        && !(chunk->size >= 17 && !memcmp(chunk->body, xmp, 17)) && !has_key_of_pillow(chunk);
}

int
is_usual_chunk(const Chunk *chunk, int colour)
{
    static const char unusual[] = "eXIfacTLfcTLfdATzTXtiTXtiCCP";
    const uint8_t *name = chunk->name;
    size_t size = chunk->size;
    for (int i = 0; i < 28; i += 4)
        if (is_named(chunk, unusual + i))
            return 0;
    for (int i = 0; i < 4; i++)
        if (!((name[i] >= '0' && name[i] <= '9') || ((name[i] | 0x20) >= 'a' && (name[i] | 0x20) <= 'z')))
            return 0;
    if (is_named(chunk, "tEXt"))
        return is_usual_text(chunk);
    if (is_named(chunk, "tRNS"))
        return colour == GREY ? size == 2 : colour == COLOUR ? size == 6 : size <= 256;
    if (is_named(chunk, "PLTE"))
        return size <= 768 && size % 3 == 0;
    return size == (is_named(chunk, "gAMA") ? 4
                        : is_named(chunk, "cHRM") ? 32
                        : is_named(chunk, "sRGB") ? 1
                        : is_named(chunk, "pHYs") ? 9
                                                  : size);
}
