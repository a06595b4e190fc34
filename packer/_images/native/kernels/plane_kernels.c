/* Splits pixels into planes of one channel each, and joins them again, in plain C and for vectors.

   The size of a vector in bytes leaves the remainder 1 when divided by three. So the levels of a channel in three
   adjacent vectors never share a position: one blend takes them from all three, and a shuffle puts them in order. */

#include "kernels/kernels.h"

void
split_plain(const uint8_t *pixels, ptrdiff_t count, uint8_t *red, uint8_t *green, uint8_t *blue)
{
    for (ptrdiff_t i = 0; i < count; i++, pixels += 3)
        red[i] = pixels[0], green[i] = pixels[1], blue[i] = pixels[2];
}

void
join_plain(const uint8_t *red, const uint8_t *green, const uint8_t *blue, ptrdiff_t count, uint8_t *pixels)
{
    for (ptrdiff_t i = 0; i < count; i++, pixels += 3)
        pixels[0] = red[i], pixels[1] = green[i], pixels[2] = blue[i];
}

#if HAS_AVX2
enum { HALF = 16, INVERSE = 11 }; /* bytes of half a vector, which AVX2 shuffles by itself; 3 * 11 is 1 modulo 16 */

typedef struct { /* positions in each half of a vector */
    __m256i third[3]; /* all ones at those with the remainder 0, 1 and 2 when divided by 3 */
    __m256i order[3]; /* of the levels of each colour */
} Arranged;

AVX2_INLINE __m256i
both(const uint8_t half[HALF])
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)half));
}

/* Returns the positions for splitting pixels, if `step` is 3, or joining them, if it is INVERSE. */
AVX2_INLINE Arranged
arranged(int step)
{
    Arranged made;
    for (int colour = 0; colour < 3; colour++) {
        uint8_t third[HALF], order[HALF];
        for (int i = 0; i < HALF; i++) {
            third[i] = i % 3 == colour ? 255 : 0;
            order[i] = (uint8_t)((step == INVERSE ? INVERSE * (i + 2 * HALF - colour) : 3 * i + colour) % HALF);
        }
        made.third[colour] = both(third), made.order[colour] = both(order);
    }
    return made;
}

AVX2_INLINE __m256i
load_halves(const uint8_t *lower, const uint8_t *upper)
{
    __m128i first = _mm_loadu_si128((const __m128i *)(const void *)lower);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first), _mm_loadu_si128((const __m128i *)(const void *)upper), 1);
}

/* Returns the bytes of from[0] and from[1] that `first` and `second` mark, and the other bytes of from[2]. */
AVX2_INLINE __m256i
mixed(const __m256i from[3], __m256i first, __m256i second)
{
    return _mm256_blendv_epi8(_mm256_blendv_epi8(from[2], from[1], second), from[0], first);
}

AVX2 void
split_avx2(const uint8_t *pixels, ptrdiff_t count, uint8_t *red, uint8_t *green, uint8_t *blue)
{
    const Arranged to = arranged(3);
    uint8_t *planes[3] = {red, green, blue};
    ptrdiff_t at = 0;
    for (; at + 2 * HALF <= count; at += 2 * HALF) {
        __m256i parts[3];
        for (int part = 0; part < 3; part++) {
            const uint8_t *lower = pixels + 3 * at + HALF * part;
            parts[part] = load_halves(lower, lower + 3 * HALF);
        }
        for (int colour = 0; colour < 3; colour++) {
            __m256i levels = mixed(parts, to.third[colour], to.third[(colour + 2) % 3]);
            levels = _mm256_shuffle_epi8(levels, to.order[colour]);
            _mm256_storeu_si256((__m256i *)(void *)(planes[colour] + at), levels);
        }
    }
    split_plain(pixels + 3 * at, count - at, red + at, green + at, blue + at);
}

AVX2 void
join_avx2(const uint8_t *red, const uint8_t *green, const uint8_t *blue, ptrdiff_t count, uint8_t *pixels)
{
    const Arranged from = arranged(INVERSE);
    const uint8_t *planes[3] = {red, green, blue};
    ptrdiff_t at = 0;
    for (; at + 2 * HALF <= count; at += 2 * HALF) {
        __m256i levels[3];
        for (int colour = 0; colour < 3; colour++) {
            levels[colour] = _mm256_loadu_si256((const __m256i *)(const void *)(planes[colour] + at));
            levels[colour] = _mm256_shuffle_epi8(levels[colour], from.order[colour]);
        }
        for (int part = 0; part < 3; part++) {
            __m256i made = mixed(levels, from.third[(3 - part) % 3], from.third[(4 - part) % 3]);
            uint8_t *lower = pixels + 3 * at + HALF * part;
            _mm_storeu_si128((__m128i *)(void *)lower, _mm256_castsi256_si128(made));
            _mm_storeu_si128((__m128i *)(void *)(lower + 3 * HALF), _mm256_extracti128_si256(made, 1));
        }
    }
    join_plain(red + at, green + at, blue + at, count - at, pixels + 3 * at);
}
#endif

#if HAS_AVX512
enum { WHOLE = 64, WHOLE_INVERSE = 43 }; /* bytes of a vector; 3 * 43 is 1 modulo 64 */

/* The positions in a vector with the remainder 0, 1 and 2 when divided by 3. */
static const uint64_t THIRDS[3] = {0x9249249249249249, 0x2492492492492492, 0x4924924924924924};

/* Sets the order of the levels of each colour, for splitting pixels, if `step` is 3, or joining them, if it is
   WHOLE_INVERSE. */
AVX512_INLINE void
set_orders(__m512i orders[3], int step)
{
    for (int colour = 0; colour < 3; colour++) {
        uint8_t order[WHOLE];
        for (int i = 0; i < WHOLE; i++)
            /* The instruction uses it modulo 64. */
            order[i] = (uint8_t)(step == 3 ? 3 * i + colour : step * (i + WHOLE - colour));
        orders[colour] = _mm512_loadu_si512(order);
    }
}

AVX512_INLINE __m512i
taken(const __m512i from[3], __mmask64 first, __mmask64 second)
{
    return _mm512_mask_blend_epi8(first, _mm512_mask_blend_epi8(second, from[2], from[1]), from[0]);
}

AVX512 void
split_avx512(const uint8_t *pixels, ptrdiff_t count, uint8_t *red, uint8_t *green, uint8_t *blue)
{
    uint8_t *planes[3] = {red, green, blue};
    __m512i orders[3];
    ptrdiff_t at = 0;
    set_orders(orders, 3);
    for (; at + WHOLE <= count; at += WHOLE) {
        __m512i parts[3];
        for (int part = 0; part < 3; part++)
            parts[part] = _mm512_loadu_si512(pixels + 3 * at + WHOLE * part);
        for (int colour = 0; colour < 3; colour++) {
            __m512i levels = taken(parts, THIRDS[colour], THIRDS[(colour + 2) % 3]);
            _mm512_storeu_si512(planes[colour] + at, _mm512_permutexvar_epi8(orders[colour], levels));
        }
    }
    split_plain(pixels + 3 * at, count - at, red + at, green + at, blue + at);
}

AVX512 void
join_avx512(const uint8_t *red, const uint8_t *green, const uint8_t *blue, ptrdiff_t count, uint8_t *pixels)
{
    const uint8_t *planes[3] = {red, green, blue};
    __m512i orders[3];
    ptrdiff_t at = 0;
    set_orders(orders, WHOLE_INVERSE);
    for (; at + WHOLE <= count; at += WHOLE) {
        __m512i levels[3];
        for (int colour = 0; colour < 3; colour++)
            levels[colour] = _mm512_permutexvar_epi8(orders[colour], _mm512_loadu_si512(planes[colour] + at));
        for (int part = 0; part < 3; part++) {
            __m512i made = taken(levels, THIRDS[(3 - part) % 3], THIRDS[(4 - part) % 3]);
            _mm512_storeu_si512(pixels + 3 * at + WHOLE * part, made);
        }
    }
    join_plain(red + at, green + at, blue + at, count - at, pixels + 3 * at);
}
#endif
