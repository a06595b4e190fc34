/* Converts levels to floats, and floats to shorter ones, in plain C and for vectors: see numbers.h. */

#include "kernels/vectorised.h"
#include "numbers.h"

#include <math.h>
#include <string.h>

/* These are the steps of torchvision's to_dtype and normalize, each rounded as theirs. */
INLINE float
number_of(const Numbers *numbers, const Constants *constants, int multiplies, uint8_t level, ptrdiff_t place)
{
    const float std = constants->std[place], inverse = constants->inverse[place];
    const float number = (float)level * numbers->scale - constants->mean[place], near = number * inverse;
    return multiplies ? fmaf(fmaf(-near, std, number), inverse, near) : number / std;
}

#if HAS_AVX512
/* Converts 16 levels; `place` is the position of the first one in the period. */
AVX512_INLINE __m512
numbers_avx512(const Numbers *numbers, const Constants *constants, const uint8_t *levels, ptrdiff_t place)
{
    const __m512 mean = _mm512_loadu_ps(constants->mean + place), std = _mm512_loadu_ps(constants->std + place);
    const __m512 inverse = _mm512_loadu_ps(constants->inverse + place), scale = _mm512_set1_ps(numbers->scale);
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)levels);
    const __m512 level = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
    const __m512 number = _mm512_sub_ps(_mm512_mul_ps(level, scale), mean), near = _mm512_mul_ps(number, inverse);
    const __m512 multiplied = _mm512_fmadd_ps(_mm512_fnmadd_ps(near, std, number), inverse, near);
    return numbers->multiplies ? multiplied : _mm512_div_ps(number, std);
}

/* Converts levels to numbers in whole periods, and bypasses the caches if `past`; returns how many. */
AVX512_INLINE ptrdiff_t
normalise_avx512(const Numbers *numbers, const Constants *constants, const uint8_t *levels, const Other *other,
                 ptrdiff_t count, float *to, int past)
{
    enum { VECTOR = 16 };
    const __m512 share = _mm512_set1_ps(other->share), other_share = _mm512_set1_ps(other->other_share);
    ptrdiff_t at = 0;
    for (; at + PERIOD <= count; at += PERIOD)
        for (int place = 0; place < PERIOD; place += VECTOR) {
            __m512 made = numbers_avx512(numbers, constants, levels + at + place, place);
            if (other->levels != NULL) {
                const __m512 beside = numbers_avx512(numbers, constants, other->levels + at + place, place);
                made = _mm512_add_ps(_mm512_mul_ps(beside, other_share), _mm512_mul_ps(made, share));
            }
            if (past)
                _mm512_stream_ps(to + at + place, made);
            else
                _mm512_storeu_ps(to + at + place, made);
        }
    return at;
}

AVX512 static ptrdiff_t
write_avx512(const Numbers *numbers, const Constants *constants, const uint8_t *levels, const Other *other, ptrdiff_t count,
             float *to)
{
    return normalise_avx512(numbers, constants, levels, other, count, to, 0);
}

AVX512 static ptrdiff_t
stream_avx512(const Numbers *numbers, const Constants *constants, const uint8_t *levels, const Other *other, ptrdiff_t count,
              float *to)
{
    const ptrdiff_t done = normalise_avx512(numbers, constants, levels, other, count, to, 1);
    _mm_sfence(); /* other threads see these writes before the next ones of this thread */
    return done;
}
#endif

#if HAS_AVX2
AVX2_FMA_INLINE __m256
numbers_avx2(const Numbers *numbers, const Constants *constants, const uint8_t *levels, ptrdiff_t place)
{
    const __m256 mean = _mm256_loadu_ps(constants->mean + place), std = _mm256_loadu_ps(constants->std + place);
    const __m256 inverse = _mm256_loadu_ps(constants->inverse + place), scale = _mm256_set1_ps(numbers->scale);
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)levels);
    const __m256 level = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    const __m256 number = _mm256_sub_ps(_mm256_mul_ps(level, scale), mean), near = _mm256_mul_ps(number, inverse);
    const __m256 multiplied = _mm256_fmadd_ps(_mm256_fnmadd_ps(near, std, number), inverse, near);
    return numbers->multiplies ? multiplied : _mm256_div_ps(number, std);
}

AVX2_FMA_INLINE ptrdiff_t
normalise_avx2(const Numbers *numbers, const Constants *constants, const uint8_t *levels, const Other *other,
               ptrdiff_t count, float *to, int past)
{
    enum { VECTOR = 8 };
    const __m256 share = _mm256_set1_ps(other->share), other_share = _mm256_set1_ps(other->other_share);
    ptrdiff_t at = 0;
    for (; at + PERIOD <= count; at += PERIOD)
        for (int place = 0; place < PERIOD; place += VECTOR) {
            __m256 made = numbers_avx2(numbers, constants, levels + at + place, place);
            if (other->levels != NULL) {
                const __m256 beside = numbers_avx2(numbers, constants, other->levels + at + place, place);
                made = _mm256_add_ps(_mm256_mul_ps(beside, other_share), _mm256_mul_ps(made, share));
            }
            if (past)
                _mm256_stream_ps(to + at + place, made);
            else
                _mm256_storeu_ps(to + at + place, made);
        }
    return at;
}

AVX2_FMA static ptrdiff_t
write_avx2(const Numbers *numbers, const Constants *constants, const uint8_t *levels, const Other *other, ptrdiff_t count,
           float *to)
{
    return normalise_avx2(numbers, constants, levels, other, count, to, 0);
}

AVX2_FMA static ptrdiff_t
stream_avx2(const Numbers *numbers, const Constants *constants, const uint8_t *levels, const Other *other, ptrdiff_t count,
            float *to)
{
    const ptrdiff_t done = normalise_avx2(numbers, constants, levels, other, count, to, 1);
    _mm_sfence();
    return done;
}
#endif

void
normalise(const Numbers *numbers, const Constants *constants, const uint8_t *levels, const Other *other, ptrdiff_t count,
          float *to)
{
    ptrdiff_t done = 0;
#if HAS_AVX512
    if (kernels->has_avx512)
        done = write_avx512(numbers, constants, levels, other, count, to);
#endif
#if HAS_AVX2
    if (kernels->has_avx2 && done == 0)
        done = write_avx2(numbers, constants, levels, other, count, to);
#endif
    for (ptrdiff_t i = done; i < count; i++) {
        to[i] = number_of(numbers, constants, 0, levels[i], i % PERIOD);
        if (other->levels != NULL) {
            const float beside = number_of(numbers, constants, 0, other->levels[i], i % PERIOD);
            to[i] = beside * other->other_share + to[i] * other->share;
        }
    }
}

ptrdiff_t
stream(const Numbers *numbers, const Constants *constants, const uint8_t *levels, const Other *other, ptrdiff_t count,
       float *to)
{
#if HAS_AVX512
    if (kernels->has_avx512)
        return stream_avx512(numbers, constants, levels, other, count, to);
#endif
#if HAS_AVX2
    if (kernels->has_avx2)
        return stream_avx2(numbers, constants, levels, other, count, to);
#endif
    (void)numbers, (void)constants, (void)levels, (void)other, (void)count, (void)to;
    return 0;
}

INLINE void
compare_body(const Numbers *numbers, int *differ)
{
    uint32_t all = 0;
    for (ptrdiff_t colour = 0; colour < 3; colour++) {
        const Constants *constants = &numbers->constants[numbers->planes ? colour : 0];
        for (int level = 0; level < LEVELS; level++) {
            const float divided = number_of(numbers, constants, 0, (uint8_t)level, colour);
            const float multiplied = number_of(numbers, constants, 1, (uint8_t)level, colour);
            uint32_t one, other;
            memcpy(&one, &divided, sizeof one);
            memcpy(&other, &multiplied, sizeof other);
            all |= one ^ other;
        }
    }
    *differ = all != 0;
}

VECTORISED(compare, compare_body, (const Numbers *numbers, int *differ), (numbers, differ))

/* Tells whether a multiplication and one correction give the same number as a division for each level; they take a third
   of the time. They do, except for unusual constants. */
int
can_be_multiplied(const Numbers *numbers)
{
    int differ = 1;
    if (kernels->has_avx2) /* on other processors, fmaf may take longer */
        compare(numbers, &differ);
    return !differ;
}

static const uint32_t INFINITE = 0x7F800000, NO_NUMBER = 0x7FC00000; /* as floats */

INLINE void
shorten_body(const float *restrict from, ptrdiff_t count, uint16_t *restrict to)
{
    for (ptrdiff_t i = 0; i < count; i++) { /* to the nearest, halves to the even one */
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        const uint32_t nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
        to[i] = (uint16_t)((bits & 0x7FFFFFFF) > INFINITE ? NO_NUMBER >> 16 : nearest);
    }
}

VECTORISED(shorten_vectors, shorten_body, (const float *restrict from, ptrdiff_t count, uint16_t *restrict to),
           (from, count, to))

void
shorten(const float *from, ptrdiff_t count, uint16_t *to)
{
    shorten_vectors(from, count, to);
}

/* A float16 has 5 bits of exponent and 10 of fraction. A number that is too small for a normal one is added to a float
   whose last bit is the smallest step of float16, so that the addition rounds it. */
static void
halve_plain(const float *from, ptrdiff_t count, uint16_t *to)
{
    const uint32_t step_bits = (127 - 15 + 23 - 10 + 1) << 23, least_normal = (127 - 14) << 23, infinite = (127 + 16) << 23;
    float step;
    memcpy(&step, &step_bits, sizeof step);
    for (ptrdiff_t i = 0; i < count; i++) {
        uint32_t bits, small_bits;
        memcpy(&bits, &from[i], sizeof bits);
        const uint32_t sign = bits >> 31 << 15, size = bits & 0x7FFFFFFF;
        float small;
        memcpy(&small, &size, sizeof small);
        small += step;
        memcpy(&small_bits, &small, sizeof small_bits);
        const uint32_t usual = (size - ((127 - 15) << 23) + 0xFFF + (size >> 13 & 1)) >> 13;
        const uint32_t large = size > INFINITE ? 0x7E00 : 0x7C00; /* NaN, or infinity */
        const uint32_t half = size >= infinite ? large : size < least_normal ? small_bits - step_bits : usual;
        to[i] = (uint16_t)(sign | half);
    }
}

#if HAS_AVX2
AVX2_FMA static void
halve_avx2(const float *from, ptrdiff_t count, uint16_t *to)
{
    enum { VECTOR = 8 };
    ptrdiff_t at = 0;
    for (; at + VECTOR <= count; at += VECTOR) {
        const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + at), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(to + at), halves);
    }
    halve_plain(from + at, count - at, to + at);
}
#endif

void
halve(const float *from, ptrdiff_t count, uint16_t *to)
{
#if HAS_AVX2
    if (kernels->has_avx2) {
        halve_avx2(from, count, to);
        return;
    }
#endif
    halve_plain(from, count, to);
}
