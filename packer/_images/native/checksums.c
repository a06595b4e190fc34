/* See checksums.h.

   The bits of polynomials and of states stand in reverse order, as for every CRC of this kind: the uppermost is that of
   x^0. */

#include "checksums.h"

#include <string.h>

#define ZLIB 0xEDB88320u
#define CASTAGNOLI 0x82F63B78u

static uint32_t zlib_table[256], castagnoli_table[256]; /* what a byte becomes */

static void
fill_table(uint32_t *table, uint32_t polynomial)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (polynomial & (0 - (crc & 1)));
        table[byte] = crc;
    }
}

static uint32_t
crc_of(const uint32_t *table, uint32_t crc, const uint8_t *data, size_t size)
{
    uint32_t state = ~crc;
    while (size-- > 0)
        state = table[(state ^ *data++) & 0xFF] ^ state >> 8;
    return ~state;
}

uint32_t
crc32_zlib(uint32_t crc, const uint8_t *data, size_t size)
{
    return crc_of(zlib_table, crc, data, size);
}

/* For processors without the instruction. */
uint32_t
crc32c_plain(uint32_t crc, const uint8_t *data, size_t size)
{
    return crc_of(castagnoli_table, crc, data, size);
}

#if HAS_CRC32
#if HAS_AVX2
#define TAKE_WORD(state, word) _mm_crc32_u64(state, word)
#define TAKE_BYTE(state, byte) _mm_crc32_u8(state, byte)
#else
#define TAKE_WORD(state, word) __crc32cd((uint32_t)(state), word)
#define TAKE_BYTE(state, byte) __crc32cb(state, byte)
#endif

static uint32_t powers[64]; /* x^(8 * 2^n) modulo the polynomial */

static uint32_t
multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (; a; a <<= 1) {
        product ^= b & (0 - (a >> 31));
        b = b >> 1 ^ (CASTAGNOLI & (0 - (b & 1)));
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
    return TAKE_WORD(state, word);
}

/* An instruction takes three cycles and can begin in each, so three thirds are taken at once. */
CRC32 uint32_t
crc32c_instructed(uint32_t crc, const uint8_t *data, size_t size)
{
    uint32_t state = ~crc;
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
        state = TAKE_BYTE(state, *data++);
    return ~state;
}
#endif

void
checksums_init(void)
{
    static int done; /* another interpreter of this process may import the module anew while threads read these tables */
    if (done)
        return;
    fill_table(zlib_table, ZLIB);
    fill_table(castagnoli_table, CASTAGNOLI);
#if HAS_CRC32
    powers[0] = 1u << (31 - 8);
    for (int n = 1; n < 64; n++)
        powers[n] = multiply(powers[n - 1], powers[n - 1]);
#endif
    done = 1;
}
