/* Implements checksums.h.

   The bits of polynomials and states are in reverse order, as usual for these CRCs: the uppermost bit is that of x^0.
   */

#include "checksums.h"
#include "compilers.h"
#include "kernels/vectors.h"

#include <string.h>

typedef enum { ZLIB, CASTAGNOLI, POLYNOMIALS } Polynomial;

static const uint32_t polynomials[POLYNOMIALS] = {0xEDB88320u, 0x82F63B78u};
static uint32_t tables[POLYNOMIALS][8][256]; /* [n][byte]: the state after a byte and n zero bytes */

static void
fill_tables(Polynomial polynomial)
{
    uint32_t (*table)[256] = tables[polynomial];
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (polynomials[polynomial] & (0 - (crc & 1)));
        table[0][byte] = crc;
    }
    for (int n = 1; n < 8; n++)
        for (int byte = 0; byte < 256; byte++)
            table[n][byte] = table[n - 1][byte] >> 8 ^ table[0][table[n - 1][byte] & 0xFF];
}

/* Processes eight bytes at a time. */
INLINE uint32_t
crc_by_tables(Polynomial polynomial, uint32_t crc, const uint8_t *data, size_t size)
{
    const uint32_t (*table)[256] = (const uint32_t (*)[256])tables[polynomial];
    uint32_t state = ~crc;
    for (; size >= 8; size -= 8, data += 8) {
        uint32_t next = 0;
        for (int k = 0; k < 8; k++)
            next ^= table[7 - k][data[k] ^ (k < 4 ? state >> 8 * k & 0xFF : 0)];
        state = next;
    }
    while (size-- > 0)
        state = table[0][(state ^ *data++) & 0xFF] ^ state >> 8;
    return ~state;
}

static uint32_t
zlib_by_tables(uint32_t crc, const uint8_t *data, size_t size)
{
    return crc_by_tables(ZLIB, crc, data, size);
}

static uint32_t
castagnoli_by_tables(uint32_t crc, const uint8_t *data, size_t size)
{
    return crc_by_tables(CASTAGNOLI, crc, data, size);
}

#if HAS_AVX2
static uint64_t folding[4]; /* factors that move the low and the high half of a block over four blocks, then over one block */

/* Returns x^exponent modulo the polynomial, in the form that the instruction for carry-less multiplication needs. */
static uint64_t
power_of_x(int exponent)
{
    uint32_t power = 1u << 31;
    for (; exponent > 0; exponent--)
        power = power >> 1 ^ (polynomials[ZLIB] & (0 - (power & 1)));
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

/* Multiplies blocks of 16 bytes by powers of x and adds them to later blocks, until one block with the same checksum is
   left. */
CARRYLESS static uint32_t
zlib_by_folding(uint32_t crc, const uint8_t *data, size_t size)
{
    if (size < 64)
        return zlib_by_tables(crc, data, size);
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
    return zlib_by_tables(zlib_by_tables(~(uint32_t)0, last, sizeof last), data, size);
}
#endif

#if HAS_CRC32
static uint32_t powers[POLYNOMIALS][64]; /* x^(8 * 2^n) modulo the polynomial */

static uint32_t
multiply(Polynomial polynomial, uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (; a; a <<= 1) {
        product ^= b & (0 - (a >> 31));
        b = b >> 1 ^ (polynomials[polynomial] & (0 - (b & 1)));
    }
    return product;
}

static void
fill_powers(Polynomial polynomial)
{
    uint32_t *power = powers[polynomial];
    power[0] = 1u << (31 - 8);
    for (int n = 1; n < 64; n++)
        power[n] = multiply(polynomial, power[n - 1], power[n - 1]);
}

/* Returns the state after `size` zero bytes. */
static uint32_t
shift(Polynomial polynomial, uint32_t state, size_t size)
{
    for (int n = 0; size; n++, size >>= 1)
        if (size & 1)
            state = multiply(polynomial, powers[polynomial][n], state);
    return state;
}

CRC32 static inline uint64_t
take_word(Polynomial polynomial, uint64_t state, const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, 8);
#if HAS_NEON
    return polynomial == ZLIB ? __crc32d((uint32_t)state, word) : __crc32cd((uint32_t)state, word);
#else
    (void)polynomial; /* x86-64 has this instruction for CRC-32C only */
    return _mm_crc32_u64(state, word);
#endif
}

CRC32 static inline uint32_t
take_byte(Polynomial polynomial, uint32_t state, uint8_t byte)
{
#if HAS_NEON
    return polynomial == ZLIB ? __crc32b(state, byte) : __crc32cb(state, byte);
#else
    (void)polynomial;
    return _mm_crc32_u8(state, byte);
#endif
}

/* An instruction takes three cycles, and one can begin in each cycle, so three thirds of the data are processed in
   parallel. Inlined, so that the polynomial is a constant. */
CRC32 static inline uint32_t
crc_by_instructions(Polynomial polynomial, uint32_t crc, const uint8_t *data, size_t size)
{
    uint32_t state = ~crc;
    size_t third = size / 24 * 8;
    if (third >= 512) { /* for less, joining the thirds costs more than it saves */
        uint64_t first = state, second = 0, last = 0;
        for (size_t i = 0; i < third; i += 8) {
            first = take_word(polynomial, first, data + i);
            second = take_word(polynomial, second, data + third + i);
            last = take_word(polynomial, last, data + 2 * third + i);
        }
        state = shift(polynomial, (uint32_t)first, third) ^ (uint32_t)second;
        state = shift(polynomial, state, third) ^ (uint32_t)last;
        data += 3 * third;
        size -= 3 * third;
    }
    for (; size >= 8; data += 8, size -= 8)
        state = (uint32_t)take_word(polynomial, state, data);
    for (; size > 0; size--)
        state = take_byte(polynomial, state, *data++);
    return ~state;
}

CRC32 static uint32_t
castagnoli_by_instructions(uint32_t crc, const uint8_t *data, size_t size)
{
    return crc_by_instructions(CASTAGNOLI, crc, data, size);
}

#if HAS_NEON
CRC32 static uint32_t
zlib_by_instructions(uint32_t crc, const uint8_t *data, size_t size)
{
    return crc_by_instructions(ZLIB, crc, data, size);
}
#endif
#endif

typedef uint32_t (*Checksum)(uint32_t crc, const uint8_t *data, size_t size);

static Checksum zlib = zlib_by_tables, castagnoli = castagnoli_by_tables; /* those of this processor, after checksums_init */

uint32_t
crc32_zlib(uint32_t crc, const uint8_t *data, size_t size)
{
    return zlib(crc, data, size);
}

uint32_t
crc32_castagnoli(uint32_t crc, const uint8_t *data, size_t size)
{
    return castagnoli(crc, data, size);
}

void
checksums_init(void)
{
    fill_tables(ZLIB);
    fill_tables(CASTAGNOLI);
#if HAS_AVX2
    if (has_carryless()) {
        for (int n = 0; n < 4; n++)
            folding[n] = power_of_x((n < 2 ? 512 : 128) + (n & 1 ? -32 : 32));
        zlib = zlib_by_folding;
    }
#endif
#if HAS_CRC32
    if (has_crc32()) {
        fill_powers(CASTAGNOLI);
        castagnoli = castagnoli_by_instructions;
#if HAS_NEON
        fill_powers(ZLIB);
        zlib = zlib_by_instructions;
#endif
    }
#endif
}
