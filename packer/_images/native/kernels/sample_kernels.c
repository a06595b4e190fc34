/* Converts pixels to samples of luma, and of chroma at half the width and height, in plain C and for vectors; see
   kernels.h.

   The results equal those of libjpeg-turbo to the bit: factors have 16 bits after the binary point; each chroma is
   rounded before four of them are averaged, and a quarter and a half are added to their mean alternately. Chroma is
   computed as its negative, less 1, so that the factor 1/2 of blue or red fits into 16 bits. */

#include "compilers.h"
#include "kernels/kernels.h"

enum { /* times 2^16; the two of green in luma are added */
    Y_RED = 19595, Y_GREEN = 22086, Y_BLUE = 7471, Y_GREEN_BESIDE_BLUE = 16384, Y_ROUND = 1 << 15,
    BLUE_RED = 11059, BLUE_GREEN = 21709, RED_GREEN = 27439, RED_BLUE = 5329, HALF = -32768,
    C_ROUND = -((128 << 16) + 32767 + 1),
};

INLINE uint8_t
luma_of(const uint8_t *pixel)
{
    return (uint8_t)((Y_RED * pixel[0] + (Y_GREEN + Y_GREEN_BESIDE_BLUE) * pixel[1] + Y_BLUE * pixel[2] + Y_ROUND) >> 16);
}

INLINE int
blue_of(const uint8_t *pixel)
{
    return (BLUE_RED * pixel[0] + BLUE_GREEN * pixel[1] + HALF * pixel[2] + C_ROUND) >> 16;
}

INLINE int
red_of(const uint8_t *pixel)
{
    return (HALF * pixel[0] + RED_GREEN * pixel[1] + RED_BLUE * pixel[2] + C_ROUND) >> 16;
}

void
sample_rows_plain(const uint8_t *restrict upper, const uint8_t *restrict lower, const SampleRows *to, ptrdiff_t count)
{
    uint8_t *restrict above = to->upper, *restrict below = to->lower, *restrict blue = to->blue, *restrict red = to->red;
    for (ptrdiff_t i = 0; i < count; i += 2, upper += 6, lower += 6) {
        above[i] = luma_of(upper), above[i + 1] = luma_of(upper + 3);
        below[i] = luma_of(lower), below[i + 1] = luma_of(lower + 3);
        /* -4, because each of the four is less by 1, and 1 or 2, which is a quarter or a half. */
        const int round = (int)(i / 2 % 2) - 3;
        const int blues = blue_of(upper) + blue_of(upper + 3) + blue_of(lower) + blue_of(lower + 3);
        const int reds = red_of(upper) + red_of(upper + 3) + red_of(lower) + red_of(lower + 3);
        blue[i / 2] = (uint8_t)((round - blues) >> 2);
        red[i / 2] = (uint8_t)((round - reds) >> 2);
    }
}

#define TWO(first, second) (int)((uint32_t)(uint16_t)(first) | (uint32_t)(uint16_t)(second) << 16)

#if HAS_AVX2
typedef struct { /* of some pixels: red and green, and blue and green, as pairs of 16 bits */
    __m256i red_green, blue_green;
} Colours;

/* Loads four pixels, and four others. */
AVX2_INLINE Colours
take_pixels(const uint8_t *four, const uint8_t *others)
{
    const __m256i red_green = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 1, -1, 3, -1, 4, -1, 6, -1, 7, -1, 9, -1, 10, -1));
    const __m256i blue_green = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(2, -1, 1, -1, 5, -1, 4, -1, 8, -1, 7, -1, 11, -1, 10, -1));
    __m256i bytes = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)four));
    bytes = _mm256_inserti128_si256(bytes, _mm_loadu_si128((const __m128i *)(const void *)others), 1);
    return (Colours){_mm256_shuffle_epi8(bytes, red_green), _mm256_shuffle_epi8(bytes, blue_green)};
}

/* Returns the weighted sums of the channels plus `round`. */
AVX2_INLINE __m256i
weigh_colours(const Colours *colours, int red, int green, int blue, int green_beside_blue, int round)
{
    __m256i sum = _mm256_madd_epi16(colours->red_green, _mm256_set1_epi32(TWO(red, green)));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(colours->blue_green, _mm256_set1_epi32(TWO(blue, green_beside_blue))));
    return _mm256_add_epi32(sum, _mm256_set1_epi32(round));
}

AVX2_INLINE __m256i
luma_of_eight(const Colours *colours)
{
    return _mm256_srli_epi32(weigh_colours(colours, Y_RED, Y_GREEN, Y_BLUE, Y_GREEN_BESIDE_BLUE, Y_ROUND), 16);
}

/* Returns the sum of chroma of two rows. */
AVX2_INLINE __m256i
chroma_of_two(const Colours *above, const Colours *below, int red, int green, int blue)
{
    return _mm256_add_epi32(_mm256_srai_epi32(weigh_colours(above, red, green, blue, 0, C_ROUND), 16),
                            _mm256_srai_epi32(weigh_colours(below, red, green, blue, 0, C_ROUND), 16));
}

/* Returns eight means of four samples, from sums in the order that `packs` needs. */
AVX2_INLINE __m256i
means_of(__m256i first, __m256i second)
{
    __m256i sums = _mm256_madd_epi16(_mm256_packs_epi32(first, second), _mm256_set1_epi16(-1));
    return _mm256_srai_epi32(_mm256_add_epi32(sums, _mm256_set1_epi64x((int64_t)(((uint64_t)-2 << 32) | (uint32_t)-3))), 2);
}

/* Half a strip at a time. The two halves of a vector have pixels that packing puts in order. */
AVX2 void
sample_rows_avx2(const uint8_t *upper, const uint8_t *lower, const SampleRows *to, ptrdiff_t count)
{
    for (ptrdiff_t i = 0; i < count; i += 32, upper += 96, lower += 96) {
        Colours above[4], below[4];
        __m256i blue[4], red[4], luma[4];
        for (int j = 0; j < 4; j++) {
            above[j] = take_pixels(upper + 12 * j, upper + 48 + 12 * j);
            below[j] = take_pixels(lower + 12 * j, lower + 48 + 12 * j);
            blue[j] = chroma_of_two(above + j, below + j, BLUE_RED, BLUE_GREEN, HALF);
            red[j] = chroma_of_two(above + j, below + j, HALF, RED_GREEN, RED_BLUE);
        }
        for (int j = 0; j < 4; j++)
            luma[j] = luma_of_eight(above + j);
        __m256i row = _mm256_packus_epi16(_mm256_packus_epi32(luma[0], luma[1]), _mm256_packus_epi32(luma[2], luma[3]));
        _mm256_storeu_si256((__m256i *)(void *)(to->upper + i), row);
        for (int j = 0; j < 4; j++)
            luma[j] = luma_of_eight(below + j);
        row = _mm256_packus_epi16(_mm256_packus_epi32(luma[0], luma[1]), _mm256_packus_epi32(luma[2], luma[3]));
        _mm256_storeu_si256((__m256i *)(void *)(to->lower + i), row);
        __m256i blues = _mm256_packs_epi32(means_of(blue[0], blue[1]), means_of(blue[2], blue[3]));
        __m256i reds = _mm256_packs_epi32(means_of(red[0], red[1]), means_of(red[2], red[3]));
        row = _mm256_permute4x64_epi64(_mm256_packus_epi16(blues, reds), 0xD8);
        _mm_storeu_si128((__m128i *)(void *)(to->blue + i / 2), _mm256_castsi256_si128(row));
        _mm_storeu_si128((__m128i *)(void *)(to->red + i / 2), _mm256_extracti128_si256(row, 1));
    }
}
#endif

#if HAS_AVX512
typedef struct {
    __m512i red_green, blue_green;
} MoreColours;

/* Loads 16 pixels, and the 16 bytes after them. */
AVX512_INLINE MoreColours
take_more_pixels(const uint8_t *pixels, __m512i red_green, __m512i blue_green)
{
    const __mmask64 lower = 0x5555555555555555; /* of each 16 bits */
    __m512i bytes = _mm512_loadu_si512(pixels);
    return (MoreColours){
        _mm512_maskz_permutexvar_epi8(lower, red_green, bytes), _mm512_maskz_permutexvar_epi8(lower, blue_green, bytes),
    };
}

AVX512_INLINE __m512i
weigh_more_colours(const MoreColours *colours, int red, int green, int blue, int green_beside_blue, int round)
{
    __m512i sum = _mm512_dpwssd_epi32(_mm512_set1_epi32(round), colours->red_green, _mm512_set1_epi32(TWO(red, green)));
    return _mm512_dpwssd_epi32(sum, colours->blue_green, _mm512_set1_epi32(TWO(blue, green_beside_blue)));
}

AVX512_INLINE __m512i
luma_of_strip(const MoreColours colours[4], __m512i order)
{
    __m512i luma[4];
    for (int i = 0; i < 4; i++) {
        luma[i] = weigh_more_colours(colours + i, Y_RED, Y_GREEN, Y_BLUE, Y_GREEN_BESIDE_BLUE, Y_ROUND);
        luma[i] = _mm512_srli_epi32(luma[i], 16);
    }
    __m512i packed = _mm512_packus_epi16(_mm512_packus_epi32(luma[0], luma[1]), _mm512_packus_epi32(luma[2], luma[3]));
    return _mm512_permutexvar_epi32(order, packed);
}

AVX512_INLINE __m256i
chroma_of_strip(const MoreColours above[4], const MoreColours below[4], int red, int green, int blue, __m512i order)
{
    const __m512i round = _mm512_set1_epi64((int64_t)(((uint64_t)-2 << 32) | (uint32_t)-3));
    __m512i sums[4], means[2];
    for (int i = 0; i < 4; i++) {
        sums[i] = _mm512_srai_epi32(weigh_more_colours(above + i, red, green, blue, 0, C_ROUND), 16);
        sums[i] = _mm512_add_epi32(sums[i], _mm512_srai_epi32(weigh_more_colours(below + i, red, green, blue, 0, C_ROUND), 16));
    }
    for (int i = 0; i < 2; i++) {
        means[i] = _mm512_packs_epi32(sums[2 * i], sums[2 * i + 1]);
        means[i] = _mm512_srai_epi32(_mm512_dpwssd_epi32(round, means[i], _mm512_set1_epi16(-1)), 2);
    }
    return _mm512_cvtepi16_epi8(_mm512_permutexvar_epi32(order, _mm512_packs_epi32(means[0], means[1])));
}

AVX512 void
sample_rows_avx512(const uint8_t *upper, const uint8_t *lower, const SampleRows *to, ptrdiff_t count)
{
    uint8_t places[2][64];
    for (int i = 0; i < 64; i++) {
        places[0][i] = (uint8_t)(3 * (i / 4) + (i % 4) / 2);     /* red and green of each pixel */
        places[1][i] = (uint8_t)(3 * (i / 4) + 2 - (i % 4) / 2); /* blue and green */
    }
    const __m512i red_green = _mm512_loadu_si512(places[0]), blue_green = _mm512_loadu_si512(places[1]);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15); /* of fours */
    for (ptrdiff_t i = 0; i < count; i += STRIP_PIXELS, upper += 3 * STRIP_PIXELS, lower += 3 * STRIP_PIXELS) {
        MoreColours above[4], below[4];
        for (int j = 0; j < 4; j++) {
            above[j] = take_more_pixels(upper + 48 * j, red_green, blue_green);
            below[j] = take_more_pixels(lower + 48 * j, red_green, blue_green);
        }
        _mm512_storeu_si512(to->upper + i, luma_of_strip(above, order));
        _mm512_storeu_si512(to->lower + i, luma_of_strip(below, order));
        __m256i blue = chroma_of_strip(above, below, BLUE_RED, BLUE_GREEN, HALF, order);
        __m256i red = chroma_of_strip(above, below, HALF, RED_GREEN, RED_BLUE, order);
        _mm256_storeu_si256((__m256i *)(void *)(to->blue + i / 2), blue);
        _mm256_storeu_si256((__m256i *)(void *)(to->red + i / 2), red);
    }
}
#endif
