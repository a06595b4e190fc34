/* Maps levels by tables, and finds their extremes, in plain C and for vectors: see kernels.h for each function. */

#include "kernels/kernels.h"
#include "kernels/vectorised.h"

#include <string.h>

void
exchange_plain(uint8_t *pixels, ptrdiff_t count, const uint8_t tables[3][LEVELS])
{
    const uint8_t *red = tables[0], *green = tables[1], *blue = tables[2];
    for (ptrdiff_t i = 0; i < count; i++, pixels += 3)
        pixels[0] = red[pixels[0]], pixels[1] = green[pixels[1]], pixels[2] = blue[pixels[2]];
}

static int
are_same(const uint8_t tables[3][LEVELS])
{
    return memcmp(tables[0], tables[1], LEVELS) == 0 && memcmp(tables[0], tables[2], LEVELS) == 0;
}

void
exchange_by(ExchangeBytes exchange, uint8_t *pixels, ptrdiff_t count, const uint8_t tables[3][LEVELS])
{
    enum { AT_ONCE = 1024 };
    uint8_t planes[3][AT_ONCE];
    if (are_same(tables)) {
        exchange(pixels, 3 * count, tables[0]);
        return;
    }
    for (; count > 0; pixels += 3 * AT_ONCE, count -= AT_ONCE) {
        ptrdiff_t some = count < AT_ONCE ? count : AT_ONCE;
        kernels->split(pixels, some, planes[0], planes[1], planes[2]);
        for (int colour = 0; colour < 3; colour++)
            exchange(planes[colour], some, tables[colour]);
        kernels->join(planes[0], planes[1], planes[2], some, pixels);
    }
}

#if HAS_AVX2
/* Replaces bytes by a table in 16 parts. A shuffle takes the byte of a part at the lower four bits of a level, and zero
   if the level is negative. So each part also applies to the levels of the later parts in its half, and contains the
   difference from the part before. */
AVX2 static void
exchange_bytes_avx2(uint8_t *levels, ptrdiff_t count, const uint8_t *table)
{
    enum { VECTOR = 32, PARTS = 16, HALF = PARTS / 2, AT_ONCE = 3 };
    const __m256i step = _mm256_set1_epi8(16);
    __m256i parts[PARTS];
    ptrdiff_t at = 0;
    for (int part = 0; part < PARTS; part++) {
        const __m128i *from = (const __m128i *)(const void *)table + part;
        __m128i own = _mm_loadu_si128(from);
        parts[part] = _mm256_broadcastsi128_si256(part % HALF == 0 ? own : _mm_xor_si128(own, _mm_loadu_si128(from - 1)));
    }
    for (; at + AT_ONCE * VECTOR <= count; at += AT_ONCE * VECTOR) {
        __m256i left[AT_ONCE], made[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) {
            left[i] = _mm256_loadu_si256((const __m256i *)(const void *)(levels + at + VECTOR * i));
            made[i] = _mm256_setzero_si256();
        }
        for (int half = 0; half < 2; half++) {
            __m256i rest[AT_ONCE]; /* the levels of the other half are negative */
            for (int i = 0; i < AT_ONCE; i++)
                rest[i] = half ? _mm256_xor_si256(left[i], _mm256_set1_epi8((char)0x80)) : left[i];
            for (int part = 0; part < HALF; part++)
                for (int i = 0; i < AT_ONCE; i++) {
                    made[i] = _mm256_xor_si256(made[i], _mm256_shuffle_epi8(parts[HALF * half + part], rest[i]));
                    rest[i] = _mm256_subs_epi8(rest[i], step);
                }
        }
        for (int i = 0; i < AT_ONCE; i++)
            _mm256_storeu_si256((__m256i *)(void *)(levels + at + VECTOR * i), made[i]);
    }
    for (; at < count; at++)
        levels[at] = table[levels[at]];
}

void
exchange_avx2(uint8_t *pixels, ptrdiff_t count, const uint8_t tables[3][LEVELS])
{
    exchange_by(exchange_bytes_avx2, pixels, count, tables);
}
#endif

enum { RUN = 96 }; /* bytes: whole pixels and whole vectors */

INLINE void
extremes_body(const uint8_t *pixels, ptrdiff_t count, uint8_t *least, uint8_t *most)
{
    uint8_t low[RUN], high[RUN];
    memset(low, 255, sizeof low);
    memset(high, 0, sizeof high);
    ptrdiff_t size = 3 * count, begin = 0;
    for (; begin + RUN <= size; begin += RUN)
        for (int i = 0; i < RUN; i++) {
            uint8_t level = pixels[begin + i];
            low[i] = low[i] < level ? low[i] : level;
            high[i] = high[i] > level ? high[i] : level;
        }
    for (int i = 0; begin + i < size; i++) {
        uint8_t level = pixels[begin + i];
        low[i] = low[i] < level ? low[i] : level;
        high[i] = high[i] > level ? high[i] : level;
    }
    for (int colour = 0; colour < 3; colour++) {
        least[colour] = low[colour], most[colour] = high[colour];
        for (int i = colour; i < RUN; i += 3) {
            least[colour] = least[colour] < low[i] ? least[colour] : low[i];
            most[colour] = most[colour] > high[i] ? most[colour] : high[i];
        }
    }
}

void
extremes_plain(const uint8_t *pixels, ptrdiff_t count, uint8_t least[3], uint8_t most[3])
{
    extremes_body(pixels, count, least, most);
}

#if HAS_AVX2
AVX2 void
extremes_avx2(const uint8_t *pixels, ptrdiff_t count, uint8_t least[3], uint8_t most[3])
{
    extremes_body(pixels, count, least, most);
}
#endif

#if HAS_AVX512
/* Replaces 64 levels by a table in four vectors. */
AVX512_INLINE __m512i
exchanged(__m512i levels, const __m512i table[4])
{
    __m512i lower = _mm512_permutex2var_epi8(table[0], levels, table[1]);
    __m512i upper = _mm512_permutex2var_epi8(table[2], levels, table[3]);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(levels), lower, upper);
}

AVX512 static void
exchange_bytes_avx512(uint8_t *levels, ptrdiff_t count, const uint8_t *table)
{
    enum { VECTOR = 64 };
    __m512i parts[4];
    ptrdiff_t at = 0;
    for (int part = 0; part < 4; part++)
        parts[part] = _mm512_loadu_si512(table + VECTOR * part);
    for (; at + VECTOR <= count; at += VECTOR)
        _mm512_storeu_si512(levels + at, exchanged(_mm512_loadu_si512(levels + at), parts));
    for (; at < count; at++)
        levels[at] = table[levels[at]];
}

void
exchange_avx512(uint8_t *pixels, ptrdiff_t count, const uint8_t tables[3][LEVELS])
{
    exchange_by(exchange_bytes_avx512, pixels, count, tables);
}
#endif
