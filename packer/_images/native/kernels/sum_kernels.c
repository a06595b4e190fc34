/* Weighted sums of rows, in plain C and for vectors: see kernels.h. */

#include "kernels/kernels.h"
#include "compilers.h"

/* Computes the weighted sums of a strip. */
INLINE void
sum_strip(const Weighed *weighed, ptrdiff_t from, int32_t sums[STRIP])
{
    for (int i = 0; i < STRIP; i++)
        sums[i] = 0;
    for (ptrdiff_t pair = 0; pair < weighed->pairs; pair++) {
        const int16_t *one = weighed->rows[2 * pair] + from, *other = weighed->rows[2 * pair + 1] + from;
        const int16_t weight = weighed->weights[pair];
        for (int i = 0; i < STRIP; i++)
            sums[i] += weight * (int16_t)(one[i] + other[i]);
    }
}

void
sum_rows_plain(const Weighed *weighed, int16_t *to, ptrdiff_t count)
{
    const int32_t half = 1 << (weighed->precision - 1);
    for (ptrdiff_t from = 0; from < count; from += STRIP) {
        int32_t sums[STRIP];
        sum_strip(weighed, from, sums);
        for (int i = 0; i < STRIP; i++)
            to[from + i] = (int16_t)((sums[i] + half) >> weighed->precision);
    }
}

void
sum_levels_plain(const Weighed *weighed, uint8_t *to, ptrdiff_t count)
{
    for (ptrdiff_t from = 0; from < count; from += STRIP) {
        int32_t sums[STRIP];
        sum_strip(weighed, from, sums);
        for (int i = 0; i < STRIP; i++)
            to[from + i] = (uint8_t)((sums[i] >> (weighed->precision + FRACTION)) + (1 << FRACTION));
    }
}

#if HAS_AVX2
AVX2_INLINE __m256i
pair_avx2(const int16_t *const *rows, ptrdiff_t from)
{
    __m256i one = _mm256_loadu_si256((const __m256i *)(const void *)(rows[0] + from));
    return _mm256_add_epi16(one, _mm256_loadu_si256((const __m256i *)(const void *)(rows[1] + from)));
}

/* Computes the sums of half a strip. Of 16 sums, a vector has four of the lower and four of the upper half. */
AVX2_INLINE void
sum_avx2(const Weighed *weighed, ptrdiff_t from, __m256i sums[4])
{
    for (int i = 0; i < 4; i++)
        sums[i] = _mm256_setzero_si256();
    for (ptrdiff_t pair = 0; pair < weighed->pairs; pair += 2) {
        const __m256i weights = _mm256_set1_epi32((int)two_weights(weighed->weights + pair));
        const int16_t *const *rows = weighed->rows + 2 * pair;
        for (int i = 0; i < 2; i++) {
            __m256i one = pair_avx2(rows, from + 16 * i), other = pair_avx2(rows + 2, from + 16 * i);
            __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(one, other), weights);
            __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(one, other), weights);
            sums[2 * i] = _mm256_add_epi32(sums[2 * i], low);
            sums[2 * i + 1] = _mm256_add_epi32(sums[2 * i + 1], high);
        }
    }
}

/* Returns 16 sums without their lowest bits. */
AVX2_INLINE __m256i
shifted_avx2(const __m256i sums[2], __m128i bits)
{
    return _mm256_packs_epi32(_mm256_sra_epi32(sums[0], bits), _mm256_sra_epi32(sums[1], bits));
}

AVX2 void
sum_rows_avx2(const Weighed *weighed, int16_t *to, ptrdiff_t count)
{
    const __m128i bits = _mm_cvtsi32_si128(weighed->precision);
    const __m256i half = _mm256_set1_epi32(1 << (weighed->precision - 1));
    for (ptrdiff_t from = 0; from < count; from += STRIP / 2) {
        __m256i sums[4];
        sum_avx2(weighed, from, sums);
        for (int i = 0; i < 4; i++)
            sums[i] = _mm256_add_epi32(sums[i], half);
        for (int i = 0; i < 2; i++)
            _mm256_storeu_si256((__m256i *)(void *)(to + from + 16 * i), shifted_avx2(sums + 2 * i, bits));
    }
}

AVX2 void
sum_levels_avx2(const Weighed *weighed, uint8_t *to, ptrdiff_t count)
{
    const __m128i bits = _mm_cvtsi32_si128(weighed->precision + FRACTION);
    for (ptrdiff_t from = 0; from < count; from += STRIP / 2) {
        __m256i sums[4];
        sum_avx2(weighed, from, sums);
        __m256i levels = _mm256_packs_epi16(shifted_avx2(sums, bits), shifted_avx2(sums + 2, bits));
        levels = _mm256_xor_si256(_mm256_permute4x64_epi64(levels, 0xD8), _mm256_set1_epi8((char)0x80));
        _mm256_storeu_si256((__m256i *)(void *)(to + from), levels);
    }
}
#endif

#if HAS_AVX512
AVX512_INLINE __m512i
pair_avx512(const int16_t *const *rows, ptrdiff_t from)
{
    return _mm512_add_epi16(_mm512_loadu_si512(rows[0] + from), _mm512_loadu_si512(rows[1] + from));
}

AVX512_INLINE void
sum_avx512(const Weighed *weighed, ptrdiff_t from, __m512i sums[4])
{
    for (int i = 0; i < 4; i++)
        sums[i] = _mm512_setzero_si512();
    for (ptrdiff_t pair = 0; pair < weighed->pairs; pair += 2) {
        const __m512i weights = _mm512_set1_epi32((int)two_weights(weighed->weights + pair));
        const int16_t *const *rows = weighed->rows + 2 * pair;
        for (int i = 0; i < 2; i++) {
            __m512i one = pair_avx512(rows, from + 32 * i), other = pair_avx512(rows + 2, from + 32 * i);
            sums[2 * i] = _mm512_dpwssd_epi32(sums[2 * i], _mm512_unpacklo_epi16(one, other), weights);
            sums[2 * i + 1] = _mm512_dpwssd_epi32(sums[2 * i + 1], _mm512_unpackhi_epi16(one, other), weights);
        }
    }
}

AVX512_INLINE __m512i
shifted_avx512(const __m512i sums[2], __m128i bits)
{
    return _mm512_packs_epi32(_mm512_sra_epi32(sums[0], bits), _mm512_sra_epi32(sums[1], bits));
}

AVX512 void
sum_rows_avx512(const Weighed *weighed, int16_t *to, ptrdiff_t count)
{
    const __m128i bits = _mm_cvtsi32_si128(weighed->precision);
    const __m512i half = _mm512_set1_epi32(1 << (weighed->precision - 1));
    for (ptrdiff_t from = 0; from < count; from += STRIP) {
        __m512i sums[4];
        sum_avx512(weighed, from, sums);
        for (int i = 0; i < 4; i++)
            sums[i] = _mm512_add_epi32(sums[i], half);
        for (int i = 0; i < 2; i++)
            _mm512_storeu_si512(to + from + 32 * i, shifted_avx512(sums + 2 * i, bits));
    }
}

AVX512 void
sum_levels_avx512(const Weighed *weighed, uint8_t *to, ptrdiff_t count)
{
    const __m128i bits = _mm_cvtsi32_si128(weighed->precision + FRACTION);
    for (ptrdiff_t from = 0; from < count; from += STRIP) {
        __m512i sums[4];
        sum_avx512(weighed, from, sums);
        for (int i = 0; i < 2; i++) {
            __m256i levels = _mm512_cvtepi16_epi8(shifted_avx512(sums + 2 * i, bits));
            levels = _mm256_xor_si256(levels, _mm256_set1_epi8((char)0x80));
            _mm256_storeu_si256((__m256i *)(void *)(to + from + 32 * i), levels);
        }
    }
}
#endif
