/* See reading.h. */

#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64

#include "reading.h"
#include "vectors.h"

#include <errno.h>
#include <string.h>
#ifndef _WIN32
#include <unistd.h>
#endif

enum { MOST = 1 << 30 }; /* bytes that a system is asked for at a time */

int
read_from(int file, uint8_t *to, size_t size, int64_t position)
{
#ifdef _WIN32 /* has no call that names the position and leaves the file's own alone; nobody asks for it there */
    (void)file, (void)to, (void)size, (void)position;
    return 0;
#else
    while (size > 0) {
        ssize_t count = pread(file, to, size < MOST ? size : MOST, (off_t)position);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return 0;
        to += count;
        size -= (size_t)count;
        position += count;
    }
    return 1;
#endif
}

/* Bits stand in reverse order, as for every CRC of this kind: the uppermost is the one of x^0. */
static const uint32_t polynomial = 0x82F63B78;
static uint32_t table[256]; /* of a byte */

#if HAS_AVX2
/* What follows goes on from and returns the state of a CRC, without the inversions at its beginning and its end. */

static uint32_t powers[64]; /* x^(8 * 2^n) modulo the polynomial */

static uint32_t
multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (; a; a <<= 1) {
        product ^= b & (0 - (a >> 31));
        b = b >> 1 ^ (polynomial & (0 - (b & 1)));
    }
    return product;
}

/* Returns what becomes of a state when so many bytes of zeros follow. */
static uint32_t
shift(uint32_t state, size_t size)
{
    for (int n = 0; size; n++, size >>= 1)
        if (size & 1)
            state = multiply(powers[n], state);
    return state;
}

CRC32 static inline uint64_t
take_word(uint64_t state, const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, 8);
    return _mm_crc32_u64(state, word);
}

/* An instruction takes three cycles and can begin in each, so three thirds are taken at once. */
CRC32 static uint32_t
crc32c_of_words(uint32_t state, const uint8_t *data, size_t size)
{
    size_t third = size / 24 * 8;
    if (third >= 512) { /* else joining them costs more than it saves */
        uint64_t first = state, second = 0, last = 0;
        for (size_t i = 0; i < third; i += 8) {
            first = take_word(first, data + i);
            second = take_word(second, data + third + i);
            last = take_word(last, data + 2 * third + i);
        }
        state = shift(shift((uint32_t)first, third) ^ (uint32_t)second, third) ^ (uint32_t)last;
        data += 3 * third;
        size -= 3 * third;
    }
    for (; size >= 8; data += 8, size -= 8)
        state = (uint32_t)take_word(state, data);
    for (; size > 0; size--)
        state = _mm_crc32_u8(state, *data++);
    return state;
}
#endif

void
reading_init(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        table[byte] = byte;
        for (int bit = 0; bit < 8; bit++)
            table[byte] = table[byte] >> 1 ^ (polynomial & (0 - (table[byte] & 1)));
    }
#if HAS_AVX2
    powers[0] = 1u << (31 - 8);
    for (int n = 1; n < 64; n++)
        powers[n] = multiply(powers[n - 1], powers[n - 1]);
#endif
}

uint32_t
crc32c(uint32_t crc, const uint8_t *data, size_t size)
{
    uint32_t state = ~crc;
#if HAS_AVX2
    if (has_avx2())
        return ~crc32c_of_words(state, data, size);
#endif
    while (size-- > 0)
        state = table[(state ^ *data++) & 0xFF] ^ state >> 8;
    return ~state;
}
