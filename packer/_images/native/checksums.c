/* See checksums.h.

   The bits of polynomials and of states stand in reverse order, as for every CRC of this kind: the uppermost is that of
   x^0. */

#include "checksums.h"

#include <string.h>

#define ZLIB 0xEDB88320u
#define CASTAGNOLI 0x82F63B78u

static uint32_t zlib_tables[8][256]; /* what a byte becomes, and what it becomes when so many bytes of zeros follow */
static uint32_t castagnoli_table[256];

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

/* Takes eight bytes at a time. */
static uint32_t
crc32_by_tables(uint32_t crc, const uint8_t *data, size_t size)
{
    uint32_t state = ~crc;
    for (; size >= 8; size -= 8, data += 8) {
        uint32_t next = 0;
        for (int k = 0; k < 8; k++)
            next ^= zlib_tables[7 - k][data[k] ^ (k < 4 ? state >> 8 * k & 0xFF : 0)];
        state = next;
    }
    return crc_of(zlib_tables[0], ~state, data, size);
}

#if HAS_AVX2
static uint64_t folding[4]; /* by these a block goes on over four blocks, the low half and the high one, and over one block */

/* Returns x^exponent modulo the polynomial, as an instruction that multiplies without carries needs it. */
static uint64_t
power_of_x(int exponent)
{
    uint32_t power = 1u << 31;
    for (; exponent > 0; exponent--)
        power = power >> 1 ^ (ZLIB & (0 - (power & 1)));
    return (uint64_t)power << 1;
}

CARRYLESS static inline __m128i
fold(__m128i block, __m128i by, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(block, by, 0x00), high = _mm_clmulepi64_si128(block, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

CARRYLESS static inline __m128i
load_block(const uint8_t *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

/* Multiplies blocks of 16 bytes by powers of x and adds them to those that follow, until one is left that has the same
   checksum. */
CARRYLESS static uint32_t
crc32_by_folding(uint32_t crc, const uint8_t *data, size_t size)
{
    const __m128i over_four = load_block((const uint8_t *)folding), over_one = load_block((const uint8_t *)(folding + 2));
    __m128i blocks[4];
    uint8_t last[16];
    for (int k = 0; k < 4; k++)
        blocks[k] = load_block(data + 16 * k);
    blocks[0] = _mm_xor_si128(blocks[0], _mm_cvtsi32_si128((int)~crc));
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64)
        for (int k = 0; k < 4; k++)
            blocks[k] = fold(blocks[k], over_four, load_block(data + 16 * k));
    for (int k = 1; k < 4; k++)
        blocks[0] = fold(blocks[0], over_one, blocks[k]);
    for (; size >= 16; data += 16, size -= 16)
        blocks[0] = fold(blocks[0], over_one, load_block(data));
    _mm_storeu_si128((__m128i *)(void *)last, blocks[0]);
    return crc32_by_tables(crc32_by_tables(~(uint32_t)0, last, sizeof last), data, size);
}
#endif

uint32_t
crc32_zlib(uint32_t crc, const uint8_t *data, size_t size)
{
#if HAS_AVX2
    if (size >= 64 && folding[0])
        return crc32_by_folding(crc, data, size);
#endif
    return crc32_by_tables(crc, data, size);
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
    fill_table(zlib_tables[0], ZLIB);
    for (int n = 1; n < 8; n++)
        for (int byte = 0; byte < 256; byte++)
            zlib_tables[n][byte] = zlib_tables[n - 1][byte] >> 8 ^ zlib_tables[0][zlib_tables[n - 1][byte] & 0xFF];
    fill_table(castagnoli_table, CASTAGNOLI);
#if HAS_AVX2
    if (has_carryless())
        for (int n = 0; n < 4; n++)
            folding[n] = power_of_x((n < 2 ? 512 : 128) + (n & 1 ? -32 : 32));
#endif
#if HAS_CRC32
    powers[0] = 1u << (31 - 8);
    for (int n = 1; n < 64; n++)
        powers[n] = multiply(powers[n - 1], powers[n - 1]);
#endif
    done = 1;
}
