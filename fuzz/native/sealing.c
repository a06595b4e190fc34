/* See sealing.h. */

#include "sealing.h"
#include "target.h"
#include "../../packer/_images/native/checksums.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 0xFFFF, FRAME = 12 }; /* bytes of a block that is not compressed; of a chunk without its body */

static uint8_t *
put(uint8_t *to, uint32_t number)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        *to++ = (uint8_t)(number >> shift);
    return to;
}

static uint32_t
four_bytes(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint8_t *
put_chunk(uint8_t *to, const uint8_t *name, const uint8_t *body, size_t size)
{
    uint8_t *begin = put(to, (uint32_t)size);
    memcpy(begin, name, 4);
    memmove(begin + 4, body, size);
    return put(begin + 4 + size, crc32_zlib(0, begin, size + 4));
}

/* Writes bytes in zlib's format without compressing them. */
static uint8_t *
wrap(uint8_t *to, const uint8_t *bytes, size_t size)
{
    uint32_t sum = 1, sums = 0;
    for (size_t i = 0; i < size; i++) {
        sum = (sum + bytes[i]) % 65521;
        sums = (sums + sum) % 65521;
    }
    *to++ = 0x78;
    *to++ = 0x01;
    do {
        size_t count = size < BLOCK ? size : BLOCK;
        size -= count;
        const uint8_t head[5] = {size == 0, (uint8_t)count, (uint8_t)(count >> 8), (uint8_t)~count, (uint8_t)(~count >> 8)};
        memcpy(to, head, sizeof head);
        memcpy(to + sizeof head, bytes, count);
        to += sizeof head + count;
        bytes += count;
    } while (size > 0);
    return put(to, sums << 16 | sum);
}

/* Returns a copy in memory of exactly `size` bytes. */
static uint8_t *
fitted(uint8_t *data, size_t size)
{
    uint8_t *copy = memory(size);
    memcpy(copy, data, size);
    free(data);
    return copy;
}

uint8_t *
seal_png(const uint8_t *data, size_t size, int stored, size_t *made)
{
    uint8_t *out = memory(2 * size + 64 + size / BLOCK * 8), *samples = memory(size + 1), *to = out + 8;
    size_t count = 0, at = 8;
    if (size < 8)
        at = size;
    memcpy(out, data, at);
    while (at < size && size - at >= FRAME) {
        const uint8_t *name = data + at + 4, *body = data + at + 8;
        size_t room = size - at - FRAME, length = four_bytes(data + at);
        length = length < room ? length : room;
        at += FRAME + length;
        int is_samples = !memcmp(name, "IDAT", 4), is_next = at + 8 <= size && !memcmp(data + at + 4, "IDAT", 4);
        if (!stored || !is_samples) {
            to = put_chunk(to, name, body, length);
            continue;
        }
        memcpy(samples + count, body, length);
        count += length;
        if (is_next)
            continue;
        uint8_t *wrapped = memory(count + 16 + count / BLOCK * 5);
        to = put_chunk(to, name, wrapped, (size_t)(wrap(wrapped, samples, count) - wrapped));
        free(wrapped);
        count = 0;
    }
    free(samples);
    *made = size < 8 ? size : (size_t)(to - out);
    return fitted(out, *made);
}

void
seal_tiles(uint8_t *data, size_t size)
{
    enum { FIXED = 24 }; /* bytes of the segment without its table */
    for (size_t at = 2; at + FIXED <= size && data[at] == 0xFF; at += 2 + ((size_t)data[at + 2] << 8 | data[at + 3])) {
        if (data[at + 1] != 0xE9 || memcmp(data + at + 4, "TILES", 6))
            continue;
        size_t header = at + 2 + ((size_t)data[at + 2] << 8 | data[at + 3]), table = at + FIXED;
        size_t end = header + ((size_t)data[at + 18] << 8 | data[at + 19]);
        if (table <= end && end <= size)
            put(data + table - 4, crc32_zlib(crc32_zlib(0, data + at + 4, FIXED - 8), data + table, end - table));
        break;
    }
}
