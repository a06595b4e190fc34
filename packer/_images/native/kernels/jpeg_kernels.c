/* The arithmetic of JPEG decoding: inverse DCT, upsampling and colour conversion, each in plain C and for vectors; see
   kernels.h for each function.

   The results equal those of libjpeg-turbo's slow integer DCT, its "fancy" upsampling and its conversion to the bit:
   pixels must not change between training runs. */

#include "compilers.h"
#include "kernels/dct.h"
#include "kernels/kernels.h"

#include <string.h>

static inline int32_t
bounded(int32_t value, int32_t least, int32_t most)
{
    value = value < least ? least : value;
    return value > most ? most : value;
}

/* One pass over eight columns. Some sums have 16 bits and wrap around, as in libjpeg-turbo's code for vectors: the
   coefficients of damaged images may be that large. */
INLINE void
pass_plain(const int16_t *in, int32_t *out)
{
    for (int i = 0; i < 8; i++) { /* compilers vectorise this loop, for any processor with vectors */
        int32_t c1 = in[8 + i], c2 = in[16 + i], c3 = in[24 + i], c5 = in[40 + i], c6 = in[48 + i], c7 = in[56 + i];
        int32_t even0 = (int16_t)(in[i] + in[32 + i]) * (1 << 13), even1 = (int16_t)(in[i] - in[32 + i]) * (1 << 13);
        int32_t even2 = c2 * (F_0_541 + F_0_765) + c6 * F_0_541, even3 = c2 * F_0_541 + c6 * (F_0_541 - F_1_847);
        int32_t c15 = (int16_t)(c1 + c5), c37 = (int16_t)(c3 + c7);
        int32_t z3 = c37 * (F_1_175 - F_1_961) + c15 * F_1_175, z4 = c37 * F_1_175 + c15 * (F_1_175 - F_0_390);
        int32_t odd0 = c1 * (F_1_501 - F_0_899) - c7 * F_0_899 + z4, odd1 = c3 * (F_3_072 - F_2_562) - c5 * F_2_562 + z3;
        int32_t odd2 = c5 * (F_2_053 - F_2_562) - c3 * F_2_562 + z4, odd3 = c7 * (F_0_298 - F_0_899) - c1 * F_0_899 + z3;
        out[i] = even0 + even2 + odd0;
        out[8 + i] = even1 + even3 + odd1;
        out[16 + i] = even1 - even3 + odd2;
        out[24 + i] = even0 - even2 + odd3;
        out[32 + i] = even0 - even2 - odd3;
        out[40 + i] = even1 - even3 - odd2;
        out[48 + i] = even1 + even3 - odd1;
        out[56 + i] = even0 + even2 - odd0;
    }
}

static void
transform_block(const Coded *coded)
{
    int16_t *block = coded->coefficients;
    const int16_t *quantum = coded->quantum;
    uint8_t *to = coded->to;
    ptrdiff_t stride = coded->stride;
    int16_t rows[64], columns[64];
    int32_t sums[64];
    int others = 0; /* whether there are coefficients below the first row */
    for (int i = 8; i < 64; i++)
        others |= block[i];
    for (int i = 0; i < 64; i++)
        rows[i] = (int16_t)(block[i] * quantum[i]);
    memset(block, 0, 64 * sizeof *block);
    if (others) {
        pass_plain(rows, sums);
        for (int i = 0; i < 64; i++)
            rows[i] = (int16_t)bounded((sums[i] + (1 << 10)) >> 11, -32768, 32767);
    } else {
        for (int i = 63; i >= 0; i--)
            rows[i] = (int16_t)(rows[i % 8] * 4);
    }
    for (int row = 0; row < 8; row++)
        for (int column = 0; column < 8; column++)
            columns[8 * column + row] = rows[8 * row + column];
    pass_plain(columns, sums);
    uint8_t samples[64];
    for (int i = 0; i < 64; i++)
        samples[i] = (uint8_t)(bounded((sums[i] + (1 << 17)) >> 18, -128, 127) + 128);
    for (int row = 0; row < 8; row++, to += stride)
        for (int column = 0; column < 8; column++)
            to[column] = samples[8 * column + row];
}

void
transform_plain(const Coded *blocks, int count)
{
    for (; count > 0; count--)
        transform_block(blocks++);
}

/* Inlined, so that it is a constant whether there is another row. */
INLINE void
widen_row(const uint8_t *restrict row, const uint8_t *restrict other, uint8_t *restrict to, ptrdiff_t count)
{
    const int first = other ? 8 : 1, second = other ? 7 : 2, shift = other ? 4 : 2;
    for (ptrdiff_t i = 0; i < count; i++) { /* compilers vectorise this loop */
        int before = other ? 3 * row[i - 1] + other[i - 1] : row[i - 1];
        int sum = other ? 3 * row[i] + other[i] : row[i];
        int after = other ? 3 * row[i + 1] + other[i + 1] : row[i + 1];
        to[2 * i] = (uint8_t)((3 * sum + before + first) >> shift);
        to[2 * i + 1] = (uint8_t)((3 * sum + after + second) >> shift);
    }
}

void
widen_plain(const uint8_t *row, const uint8_t *other, uint8_t *to, ptrdiff_t count)
{
    if (other)
        widen_row(row, other, to, count);
    else
        widen_row(row, NULL, to, count);
}

void
convert_plain(const uint8_t *restrict luma, const uint8_t *restrict blue, const uint8_t *restrict red,
              uint8_t *restrict to, ptrdiff_t count)
{
    for (ptrdiff_t i = 0; i < count; i++, to += 4) {
        int32_t y = luma[i], cb = blue[i] - 128, cr = red[i] - 128; /* JFIF; factors times 2^16 */
        to[0] = (uint8_t)bounded(y + ((91881 * cr + 32768) >> 16), 0, 255);
        to[1] = (uint8_t)bounded(y + ((-22554 * cb - 46802 * cr + 32768) >> 16), 0, 255);
        to[2] = (uint8_t)bounded(y + ((116130 * cb + 32768) >> 16), 0, 255);
        to[3] = 0; /* so that compilers can write several pixels at once */
    }
}

#if HAS_AVX2
AVX2 static inline __m256i
pairs(__m128i first, __m128i second)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi16(first, second)),
                                   _mm_unpackhi_epi16(first, second), 1);
}

AVX2 static inline __m256i
load_bytes(const uint8_t *from)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)from));
}

#define TIMES(pair, first, second) \
    _mm256_madd_epi16(pair, _mm256_set1_epi32((int)((uint32_t)(uint16_t)(first) | (uint32_t)(uint16_t)(second) << 16)))

/* One pass over eight columns at once: the same sums as in pass_plain. */
AVX2 static inline void
pass_avx2(const __m128i *in, __m256i *out, int shift)
{
    const __m128i zero = _mm_setzero_si128();
    __m256i c26 = pairs(in[2], in[6]), c17 = pairs(in[1], in[7]), c35 = pairs(in[3], in[5]);
    __m256i sums = pairs(_mm_add_epi16(in[1], in[5]), _mm_add_epi16(in[3], in[7]));
    __m256i round = _mm256_set1_epi32(1 << (shift - 1));
    __m256i even0 = _mm256_srai_epi32(pairs(zero, _mm_add_epi16(in[0], in[4])), 3);
    __m256i even1 = _mm256_srai_epi32(pairs(zero, _mm_sub_epi16(in[0], in[4])), 3);
    __m256i even2 = TIMES(c26, F_0_541 + F_0_765, F_0_541), even3 = TIMES(c26, F_0_541, F_0_541 - F_1_847);
    even0 = _mm256_add_epi32(even0, round);
    even1 = _mm256_add_epi32(even1, round);
    const __m256i even[4] = {
        _mm256_add_epi32(even0, even2), _mm256_add_epi32(even1, even3), _mm256_sub_epi32(even1, even3),
        _mm256_sub_epi32(even0, even2),
    };
    __m256i z3 = TIMES(sums, F_1_175, F_1_175 - F_1_961), z4 = TIMES(sums, F_1_175 - F_0_390, F_1_175);
    const __m256i odd[4] = {
        _mm256_add_epi32(TIMES(c17, F_1_501 - F_0_899, -F_0_899), z4),
        _mm256_add_epi32(TIMES(c35, F_3_072 - F_2_562, -F_2_562), z3),
        _mm256_add_epi32(TIMES(c35, -F_2_562, F_2_053 - F_2_562), z4),
        _mm256_add_epi32(TIMES(c17, -F_0_899, F_0_298 - F_0_899), z3),
    };
    for (int i = 0; i < 4; i++) {
        out[i] = _mm256_srai_epi32(_mm256_add_epi32(even[i], odd[i]), shift);
        out[7 - i] = _mm256_srai_epi32(_mm256_sub_epi32(even[i], odd[i]), shift);
    }
}

AVX2 static void
transform_block_avx2(const Coded *coded)
{
    int16_t *block = coded->coefficients;
    const int16_t *quantum = coded->quantum;
    uint8_t *to = coded->to;
    ptrdiff_t stride = coded->stride;
    __m128i in[8];
    __m256i out[8];
    for (int i = 0; i < 8; i++)
        in[i] = _mm_mullo_epi16(_mm_loadu_si128((const __m128i *)(const void *)(block + 8 * i)),
                                _mm_loadu_si128((const __m128i *)(const void *)(quantum + 8 * i)));
    /* Four times a coefficient of the first row must fit into 16 bits; in damaged images, it may not. */
    if (UNLIKELY(!_mm_testz_si128(_mm_add_epi16(in[0], _mm_set1_epi16(1 << 13)), _mm_set1_epi16((short)0xC000)))) {
        transform_block(coded);
        return;
    }
    for (int i = 0; i < 4; i++)
        _mm256_store_si256((__m256i *)(void *)(block + 16 * i), _mm256_setzero_si256());
    pass_avx2(in, out, 11);
    __m256i r04 = _mm256_packs_epi32(out[0], out[4]), r15 = _mm256_packs_epi32(out[1], out[5]);
    __m256i r26 = _mm256_packs_epi32(out[2], out[6]), r37 = _mm256_packs_epi32(out[3], out[7]);
    __m256i a = _mm256_unpacklo_epi16(r04, r15), b = _mm256_unpackhi_epi16(r04, r15);
    __m256i c = _mm256_unpacklo_epi16(r26, r37), d = _mm256_unpackhi_epi16(r26, r37);
    __m256i ac_low = _mm256_unpacklo_epi32(a, c), ac_high = _mm256_unpackhi_epi32(a, c);
    __m256i bd_low = _mm256_unpacklo_epi32(b, d), bd_high = _mm256_unpackhi_epi32(b, d);
    const __m256i columns[4] = { /* 0 and 4, 1 and 5, 2 and 6, 3 and 7 */
        _mm256_unpacklo_epi64(ac_low, bd_low), _mm256_unpackhi_epi64(ac_low, bd_low),
        _mm256_unpacklo_epi64(ac_high, bd_high), _mm256_unpackhi_epi64(ac_high, bd_high),
    };
    for (int i = 0; i < 4; i++) {
        in[i] = _mm256_castsi256_si128(columns[i]);
        in[4 + i] = _mm256_extracti128_si256(columns[i], 1);
    }
    pass_avx2(in, out, 18);
    const __m256i to_rows = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
                                             0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m256i low = _mm256_packs_epi16(_mm256_packs_epi32(out[0], out[1]), _mm256_packs_epi32(out[2], out[3]));
    __m256i high = _mm256_packs_epi16(_mm256_packs_epi32(out[4], out[5]), _mm256_packs_epi32(out[6], out[7]));
    low = _mm256_shuffle_epi8(low, to_rows);
    high = _mm256_shuffle_epi8(high, to_rows);
    const __m256i middle = _mm256_set1_epi8((char)128);
    __m256i first = _mm256_add_epi8(_mm256_unpacklo_epi32(low, high), middle);  /* rows 0 and 1, 4 and 5 */
    __m256i second = _mm256_add_epi8(_mm256_unpackhi_epi32(low, high), middle); /* rows 2 and 3, 6 and 7 */
    const __m128i rows[4] = {
        _mm256_castsi256_si128(first), _mm256_castsi256_si128(second), _mm256_extracti128_si256(first, 1),
        _mm256_extracti128_si256(second, 1),
    };
    for (int i = 0; i < 4; i++, to += 2 * stride) {
        _mm_storel_epi64((__m128i *)(void *)to, rows[i]);
        _mm_storeh_pd((double *)(void *)(to + stride), _mm_castsi128_pd(rows[i]));
    }
}

AVX2 void
transform_avx2(const Coded *blocks, int count)
{
    for (; count > 0; count--)
        transform_block_avx2(blocks++);
}

/* Returns three times a row of samples plus the other row, or the row itself if there is no other. */
AVX2_INLINE __m256i
sums_of(const uint8_t *row, const uint8_t *other)
{
    __m256i near = load_bytes(row);
    return other ? _mm256_add_epi16(_mm256_add_epi16(near, _mm256_slli_epi16(near, 1)), load_bytes(other)) : near;
}

/* Computes the sums again for the neighbours of each sample: it would be slower to load sums that were just stored.
   Inlined, so that it is a constant whether there is another row. */
AVX2_INLINE void
widen_by(const uint8_t *row, const uint8_t *other, uint8_t *to, ptrdiff_t count)
{
    const __m256i first = _mm256_set1_epi16(other ? 8 : 1), second = _mm256_set1_epi16(other ? 7 : 2);
    const int shift = other ? 4 : 2;
    for (ptrdiff_t i = 0; i < count; i += 16) {
        const uint8_t *beside = other ? other + i : NULL;
        __m256i sum = sums_of(row + i, beside);
        __m256i before = sums_of(row + i - 1, other ? beside - 1 : NULL);
        __m256i after = sums_of(row + i + 1, other ? beside + 1 : NULL);
        sum = _mm256_add_epi16(sum, _mm256_slli_epi16(sum, 1));
        __m256i even = _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(sum, before), first), shift);
        __m256i odd = _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(sum, after), second), shift);
        _mm256_storeu_si256((__m256i *)(void *)(to + 2 * i), _mm256_or_si256(even, _mm256_slli_epi16(odd, 8)));
    }
}

AVX2 void
widen_avx2(const uint8_t *row, const uint8_t *other, uint8_t *to, ptrdiff_t count)
{
    if (other)
        widen_by(row, other, to, count);
    else
        widen_by(row, NULL, to, count);
}

/* Uses 16 bits: the factors without their whole numbers, times 2^15. With these, (a * b + 2^14) >> 15 gives the results
   of convert_plain, which was compared for each of the 256 values. */
AVX2 void
convert_avx2(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint8_t *to, ptrdiff_t count)
{
    const __m256i middle = _mm256_set1_epi16(128), half = _mm256_set1_epi32(1 << 15);
    for (ptrdiff_t i = 0; i < count; i += 16, to += 64) {
        __m256i y = load_bytes(luma + i);
        __m256i cb = _mm256_sub_epi16(load_bytes(blue + i), middle), cr = _mm256_sub_epi16(load_bytes(red + i), middle);
        __m256i r = _mm256_add_epi16(cr, _mm256_mulhrs_epi16(cr, _mm256_set1_epi16((91881 - 65536 + 1) / 2)));
        __m256i b = _mm256_add_epi16(_mm256_add_epi16(cb, cb),
                                     _mm256_mulhrs_epi16(cb, _mm256_set1_epi16((116130 - 2 * 65536) / 2)));
        __m256i low = TIMES(_mm256_unpacklo_epi16(cb, cr), -22554, 65536 - 46802);
        __m256i high = TIMES(_mm256_unpackhi_epi16(cb, cr), -22554, 65536 - 46802);
        low = _mm256_srai_epi32(_mm256_add_epi32(low, half), 16);
        high = _mm256_srai_epi32(_mm256_add_epi32(high, half), 16);
        __m256i g = _mm256_sub_epi16(_mm256_packs_epi32(low, high), cr);
        __m256i red_blue = _mm256_packus_epi16(_mm256_add_epi16(y, r), _mm256_add_epi16(y, b));
        __m256i green = _mm256_packus_epi16(_mm256_add_epi16(y, g), _mm256_setzero_si256());
        __m256i red_green = _mm256_unpacklo_epi8(red_blue, green), blue_none = _mm256_unpackhi_epi8(red_blue, green);
        __m256i first = _mm256_unpacklo_epi16(red_green, blue_none); /* pixels 0 to 3, 8 to 11 */
        __m256i second = _mm256_unpackhi_epi16(red_green, blue_none); /* 4 to 7, 12 to 15 */
        _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permute2x128_si256(first, second, 0x20));
        _mm256_storeu_si256((__m256i *)(void *)(to + 32), _mm256_permute2x128_si256(first, second, 0x31));
    }
}
#endif

#if HAS_AVX512
/* Four blocks at a time, one in each quarter of a register.

   The sums of the passes do not overflow if the squares of the coefficients in each column add up to less than ENOUGH:
   the squares of the factors of a sum add up to 128, so by the Cauchy-Schwarz inequality, no sum of the first pass
   exceeds 2^14, and the sum of two fits into 16 bits. In an undamaged image, the squares of all coefficients of a block
   add up to less than 2^20, apart from quantisation errors. */

enum { ENOUGH = (1 << 21) - (1 << 12), ONE = 1 << 13 };

#define CONSTANTS(first, second) _mm512_set1_epi32((int)((uint32_t)(uint16_t)(first) | (uint32_t)(uint16_t)(second) << 16))
#define PLUS(sum, pair, first, second) _mm512_dpwssd_epi32(sum, pair, CONSTANTS(first, second))
#define ODD(c15, c37, of1, of3, of5, of7) PLUS(_mm512_madd_epi16(c15, CONSTANTS(of1, of5)), c37, of3, of7)

/* One pass over four columns of each block, from pairs of coefficients: 0 and 4, 1 and 5, 2 and 6, 3 and 7. The sums
   equal those of pass_plain, unless these wrap around. */
AVX512_INLINE void
pass_avx512(const __m512i in[4], int32_t start, __m512i out[8])
{
    const __m512i begin = _mm512_set1_epi32(start), c15 = in[1], c26 = in[2], c37 = in[3];
    const __m512i even0 = PLUS(begin, in[0], ONE, ONE), even1 = PLUS(begin, in[0], ONE, -ONE);
    const __m512i even[4] = {
        PLUS(even0, c26, F_0_541 + F_0_765, F_0_541), PLUS(even1, c26, F_0_541, F_0_541 - F_1_847),
        PLUS(even1, c26, -F_0_541, F_1_847 - F_0_541), PLUS(even0, c26, -F_0_541 - F_0_765, -F_0_541),
    };
    const __m512i odd[4] = {
        ODD(c15, c37, F_1_501 - F_0_899 + F_1_175 - F_0_390, F_1_175, F_1_175 - F_0_390, F_1_175 - F_0_899),
        ODD(c15, c37, F_1_175, F_3_072 - F_2_562 + F_1_175 - F_1_961, F_1_175 - F_2_562, F_1_175 - F_1_961),
        ODD(c15, c37, F_1_175 - F_0_390, F_1_175 - F_2_562, F_2_053 - F_2_562 + F_1_175 - F_0_390, F_1_175),
        ODD(c15, c37, F_1_175 - F_0_899, F_1_175 - F_1_961, F_1_175, F_0_298 - F_0_899 + F_1_175 - F_1_961),
    };
    for (int i = 0; i < 4; i++) {
        out[i] = _mm512_add_epi32(even[i], odd[i]);
        out[7 - i] = _mm512_sub_epi32(even[i], odd[i]);
    }
}

/* Transposes the quarters of four registers. */
AVX512_INLINE void
transpose_quarters(const __m512i in[4], __m512i out[4])
{
    __m512i a = _mm512_shuffle_i32x4(in[0], in[1], 0x44), b = _mm512_shuffle_i32x4(in[2], in[3], 0x44);
    __m512i c = _mm512_shuffle_i32x4(in[0], in[1], 0xEE), d = _mm512_shuffle_i32x4(in[2], in[3], 0xEE);
    out[0] = _mm512_shuffle_i32x4(a, b, 0x88), out[1] = _mm512_shuffle_i32x4(a, b, 0xDD);
    out[2] = _mm512_shuffle_i32x4(c, d, 0x88), out[3] = _mm512_shuffle_i32x4(c, d, 0xDD);
}

/* Transposes the 32-bit numbers in each quarter. */
AVX512_INLINE void
transpose_pairs(const __m512i in[4], __m512i out[4])
{
    __m512i a = _mm512_unpacklo_epi32(in[0], in[1]), b = _mm512_unpacklo_epi32(in[2], in[3]);
    __m512i c = _mm512_unpackhi_epi32(in[0], in[1]), d = _mm512_unpackhi_epi32(in[2], in[3]);
    out[0] = _mm512_unpacklo_epi64(a, b), out[1] = _mm512_unpackhi_epi64(a, b);
    out[2] = _mm512_unpacklo_epi64(c, d), out[3] = _mm512_unpackhi_epi64(c, d);
}

/* Adds up the squares of each column. */
AVX512_INLINE __m512i
squares_of(const __m512i in[4])
{
    __m512i sum = _mm512_setzero_si512();
    for (int i = 0; i < 4; i++)
        sum = _mm512_dpwssds_epi32(sum, in[i], in[i]);
    return sum;
}

/* Makes samples of four rows of each block, from 32-bit sums of each column. */
AVX512_INLINE void
samples_of_sums(const __m512i sums[8], __m512i rows[2])
{
    __m512i two[4];
    for (int i = 0; i < 4; i++) { /* the upper halves of two columns */
        two[i] = _mm512_mask_alignr_epi8(sums[2 * i + 1], 0x3333333333333333, sums[2 * i], sums[2 * i], 2);
        two[i] = _mm512_srai_epi16(two[i], 2);
    }
    __m512i even = _mm512_packus_epi16(two[0], two[2]), odd = _mm512_packus_epi16(two[1], two[3]);
    __m512i low = _mm512_unpacklo_epi16(even, odd), high = _mm512_unpackhi_epi16(even, odd);
    const __m512i first = _mm512_setr_epi32(0, 16, 4, 20, 1, 17, 5, 21, 8, 24, 12, 28, 9, 25, 13, 29);
    rows[0] = _mm512_permutex2var_epi32(low, first, high);
    rows[1] = _mm512_permutex2var_epi32(low, _mm512_add_epi32(first, _mm512_set1_epi32(2)), high);
}

/* Stores four rows of two blocks; if the blocks are adjacent, with one store for both. */
AVX512_INLINE void
store_rows(const Coded *first, const Coded *second, int row, __m128i row0, __m128i row1, __m128i row2, __m128i row3)
{
    const __m128i rows[4] = {row0, row1, row2, row3};
    const ptrdiff_t stride = first->stride, other = second->stride;
    uint8_t *to = first->to + row * stride, *beside = second->to + row * other;
    if (beside == to + 8 && stride == other) {
        for (int i = 0; i < 4; i++)
            _mm_storeu_si128((__m128i *)(void *)(to + i * stride), rows[i]);
        return;
    }
    for (int i = 0; i < 4; i++) {
        _mm_storel_epi64((__m128i *)(void *)(to + i * stride), rows[i]);
        _mm_storeh_pd((double *)(void *)(beside + i * other), _mm_castsi128_pd(rows[i]));
    }
}

/* Loads pairs of coefficients: of columns 0 to 3, then of columns 4 to 7. */
AVX512_INLINE void
load_four(const Coded *const blocks[4], __m512i in[2][4])
{
    __m512i pairs[2][4];
    for (int i = 0; i < 4; i++) {
        const int16_t *block = blocks[i]->coefficients, *quantum = blocks[i]->quantum;
        __m512i upper = _mm512_mullo_epi16(_mm512_loadu_si512(block), _mm512_loadu_si512(quantum));
        __m512i lower = _mm512_mullo_epi16(_mm512_loadu_si512(block + 32), _mm512_loadu_si512(quantum + 32));
        pairs[0][i] = _mm512_unpacklo_epi16(upper, lower);
        pairs[1][i] = _mm512_unpackhi_epi16(upper, lower);
    }
    transpose_quarters(pairs[0], in[0]);
    transpose_quarters(pairs[1], in[1]);
}

/* Transforms up to four blocks. If there are fewer, the last one is repeated. */
AVX512_INLINE void
transform_four(const Coded *first, int count)
{
    const __m512i bits = _mm512_set1_epi64(0x332B332B130B130B); /* of two sums, from bit 11 on; twice */
    const Coded *const blocks[4] = {first, first + (count > 1), first + (count > 2 ? 2 : count - 1), first + count - 1};
    __m512i in[2][4], sums[2][8], between[8], rows[2];
    load_four(blocks, in);
    const __m512i enough = _mm512_set1_epi32(ENOUGH), squares = _mm512_max_epi32(squares_of(in[0]), squares_of(in[1]));
    if (UNLIKELY(_mm512_cmpge_epi32_mask(squares, enough))) {
        transform_plain(first, count);
        return;
    }
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_si512(blocks[i]->coefficients, _mm512_setzero_si512());
        _mm512_storeu_si512(blocks[i]->coefficients + 32, _mm512_setzero_si512());
    }
    pass_avx512(in[0], 1 << 10, sums[0]);
    pass_avx512(in[1], 1 << 10, sums[1]);
    for (int i = 0; i < 8; i++) { /* columns that are four apart become adjacent */
        between[i] = _mm512_multishift_epi64_epi8(bits, sums[0][i]);
        between[i] = _mm512_mask_multishift_epi64_epi8(between[i], 0xCCCCCCCCCCCCCCCC, bits, sums[1][i]);
    }
    for (int half = 0; half < 2; half++) {
        transpose_pairs(between + 4 * half, in[0]);
        pass_avx512(in[0], (1 << 17) + (128 << 18), sums[0]);
        samples_of_sums(sums[0], rows);
        store_rows(blocks[0], blocks[1], 4 * half, _mm512_castsi512_si128(rows[0]), _mm512_extracti32x4_epi32(rows[0], 1),
                   _mm512_castsi512_si128(rows[1]), _mm512_extracti32x4_epi32(rows[1], 1));
        store_rows(blocks[2], blocks[3], 4 * half, _mm512_extracti32x4_epi32(rows[0], 2),
                   _mm512_extracti32x4_epi32(rows[0], 3), _mm512_extracti32x4_epi32(rows[1], 2),
                   _mm512_extracti32x4_epi32(rows[1], 3));
    }
}

AVX512 void
transform_avx512(const Coded *blocks, int count)
{
    for (; count > 1; count -= 4, blocks += 4)
        transform_four(blocks, count < 4 ? count : 4);
    if (count == 1)
        transform_block_avx2(blocks);
}

/* Makes 32 pixels as convert_avx2 does, from 16-bit numbers: luma, and chroma minus 128. Each quarter of a register has
   four pixels, and the four that follow 16 pixels later. */
AVX512_INLINE void
store_pixels(__m512i y, __m512i cb, __m512i cr, uint8_t *to)
{
    const __m512i half = _mm512_set1_epi32(1 << 15);
    __m512i r = _mm512_add_epi16(cr, _mm512_mulhrs_epi16(cr, _mm512_set1_epi16((91881 - 65536 + 1) / 2)));
    __m512i b = _mm512_add_epi16(_mm512_add_epi16(cb, cb),
                                 _mm512_mulhrs_epi16(cb, _mm512_set1_epi16((116130 - 2 * 65536) / 2)));
    __m512i low = _mm512_srai_epi32(PLUS(half, _mm512_unpacklo_epi16(cb, cr), -22554, 65536 - 46802), 16);
    __m512i high = _mm512_srai_epi32(PLUS(half, _mm512_unpackhi_epi16(cb, cr), -22554, 65536 - 46802), 16);
    __m512i g = _mm512_sub_epi16(_mm512_packs_epi32(low, high), cr);
    __m512i red_blue = _mm512_packus_epi16(_mm512_add_epi16(y, r), _mm512_add_epi16(y, b));
    __m512i green = _mm512_packus_epi16(_mm512_add_epi16(y, g), _mm512_setzero_si512());
    __m512i red_green = _mm512_unpacklo_epi8(red_blue, green), blue_none = _mm512_unpackhi_epi8(red_blue, green);
    _mm512_storeu_si512(to, _mm512_unpacklo_epi16(red_green, blue_none));
    _mm512_storeu_si512(to + 64, _mm512_unpackhi_epi16(red_green, blue_none));
}

/* Returns the pixel, of 32, that each 16-bit number belongs to. */
AVX512_INLINE __m512i
order_of_pixels(void)
{
    return _mm512_set_epi16(31, 30, 29, 28, 15, 14, 13, 12, 27, 26, 25, 24, 11, 10, 9, 8, 23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17,
                            16, 3, 2, 1, 0);
}

/* Loads 32 bytes in the given order, as 16-bit numbers. */
AVX512_INLINE __m512i
take_bytes(const uint8_t *from, __m512i order)
{
    __m512i bytes = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)from));
    return _mm512_maskz_permutexvar_epi8(0x5555555555555555, order, bytes);
}

AVX512 void
convert_avx512(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint8_t *to, ptrdiff_t count)
{
    const __m512i middle = _mm512_set1_epi16(128), order = order_of_pixels();
    for (ptrdiff_t i = 0; i < count; i += 32, to += 128) {
        __m512i cb = _mm512_sub_epi16(take_bytes(blue + i, order), middle);
        __m512i cr = _mm512_sub_epi16(take_bytes(red + i, order), middle);
        store_pixels(take_bytes(luma + i, order), cb, cr, to);
    }
}

typedef struct { /* how chroma is widened */
    /* Positions of a sample and its neighbour; their factors in their own row and in the other. */
    __m512i places, first, second, round;
} Widening;

/* Makes the chroma of 32 pixels, as 16-bit numbers minus 128, from 16 samples and their neighbours. Inlined, so that it
   is a constant whether there is another row. */
AVX512_INLINE __m512i
widened(const Narrow *chroma, ptrdiff_t at, const Widening *by)
{
    const uint8_t *row = chroma->row + at - 1, *other = chroma->other; /* the sample before is a neighbour, too */
    __m512i near = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)row));
    __m512i sum = _mm512_maddubs_epi16(_mm512_permutexvar_epi8(by->places, near), by->first);
    sum = _mm512_add_epi16(sum, by->round);
    if (other == NULL)
        return _mm512_srai_epi16(sum, 2);
    __m512i far = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)(other + at - 1)));
    sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16(_mm512_permutexvar_epi8(by->places, far), by->second));
    return _mm512_srai_epi16(sum, 4);
}

AVX512_INLINE void
convert_narrow_by(const uint8_t *luma, const Narrow chroma[2], int odd, uint8_t *to, ptrdiff_t count, int tall)
{
    const __m512i order = order_of_pixels(), one = _mm512_set1_epi16(1);
    const __m512i begun = _mm512_add_epi16(order, _mm512_set1_epi16((short)odd)), second = _mm512_and_si512(begun, one);
    const __m512i sample = _mm512_add_epi16(_mm512_srli_epi16(begun, 1), one); /* the one before them is loaded, too */
    const __m512i neighbour = _mm512_add_epi16(_mm512_sub_epi16(sample, one), _mm512_add_epi16(second, second));
    const __m512i round = tall ? _mm512_sub_epi16(_mm512_set1_epi16(8 - (128 << 4)), second)
                               : _mm512_add_epi16(_mm512_set1_epi16(1 - (128 << 2)), second);
    const Widening by = {
        _mm512_or_si512(sample, _mm512_slli_epi16(neighbour, 8)), _mm512_set1_epi16(tall ? 9 | 3 << 8 : 3 | 1 << 8),
        _mm512_set1_epi16(3 | 1 << 8), round,
    };
    const Narrow blue = {chroma[0].row, tall ? chroma[0].other : NULL}, red = {chroma[1].row, tall ? chroma[1].other : NULL};
    for (ptrdiff_t i = 0; i < count; i += 32, to += 128)
        store_pixels(take_bytes(luma + i, order), widened(&blue, i / 2, &by), widened(&red, i / 2, &by), to);
}

AVX512 void
convert_narrow_avx512(const uint8_t *luma, const Narrow chroma[2], int odd, uint8_t *to, ptrdiff_t count)
{
    if (chroma[0].other != NULL)
        convert_narrow_by(luma, chroma, odd, to, count, 1);
    else
        convert_narrow_by(luma, chroma, odd, to, count, 0);
}
#endif
