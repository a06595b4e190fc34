/* Resizes in two passes as torch does: horizontally, rounded to bytes, then vertically. The weights are 16-bit
   integers.

   The horizontal pass takes two rows at a time and stores its output as one row: for each channel of each output
   column, the values of the upper and the lower row, side by side, as 16-bit integers. In the vertical pass, one
   instruction (pmaddwd) then weighs and adds two rows. Only the rows that an output row depends on are stored; they
   stay in the cache. An image resized in one direction takes both passes, with the weight 1 in the other, which changes
   nothing; an image that keeps its size is copied. */

#include "compilers.h"
#include "geometry.h"
#include "kernels/kernels.h"
#include "resizing/resizing.h"
#include "resizing/resizing_kernels.h"
#include "resizing/weighing.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 64, BEHIND = 64 };
enum { VECTOR = 64, MOST_PAIRS = 16 }; /* for AVX-512: bytes of a vector, and pairs of pixels, at most */
#define NOT_MUCH ((uint64_t)1 << 24) /* bytes that are kept even if the next image needs far less */
#define TOO_MUCH ((uint64_t)1 << 28) /* bytes for an image, at most */

static inline uint8_t
byte(int32_t value) /* bicubic interpolation overshoots */
{
    return (uint8_t)(value > 255 ? 255 : value < 0 ? 0 : value);
}

static void
across_row(const Resizing *resizing, const uint8_t *row, int16_t *to)
{
    int precision = resizing->column_precision;
    ptrdiff_t step = resizing->tap_pairs * 16;
    for (ptrdiff_t column = 0; column < resizing->columns; column++, to += 6) {
        const int16_t *weights = resizing->column_weights + column / 2 * step + column % 2 * 8;
        const uint8_t *pixels = row + resizing->offsets[column];
        int32_t red = 1 << (precision - 1), green = red, blue = red;
        for (ptrdiff_t at = 0; at < step; at += 16, pixels += 8) {
            red += weights[at] * pixels[0] + weights[at + 1] * pixels[4];
            green += weights[at] * pixels[1] + weights[at + 1] * pixels[5];
            blue += weights[at] * pixels[2] + weights[at + 1] * pixels[6];
        }
        to[0] = byte(red >> precision);
        to[2] = byte(green >> precision);
        to[4] = byte(blue >> precision);
    }
}

void
across_plain(const Resizing *resizing, const uint8_t *upper, const uint8_t *lower, int16_t *to)
{
    across_row(resizing, upper, to);
    across_row(resizing, lower, to + 1);
}

void
down_plain(const Resizing *resizing, ptrdiff_t row)
{
    int precision = resizing->row_precision;
    Span pairs = resizing->rows[row];
    const int16_t *weights = resizing->row_weights + row * resizing->row_weights_step;
    uint8_t *out = resizing->out + row * resizing->width;
    for (ptrdiff_t at = 0; at < resizing->width; at += BLOCK) {
        uint32_t sums[BLOCK]; /* unsigned, because the numbers after the end of the row may overflow */
        ptrdiff_t count = resizing->width - at < BLOCK ? resizing->width - at : BLOCK;
        for (int i = 0; i < BLOCK; i++)
            sums[i] = (uint32_t)1 << (precision - 1);
        for (ptrdiff_t pair = 0; pair < pairs.count; pair++) {
            const int16_t *values = kept_pair(resizing, pairs.first + pair) + 2 * at;
            int32_t upper = weights[2 * pair], lower = weights[2 * pair + 1];
            for (int i = 0; i < BLOCK; i++)
                sums[i] += (uint32_t)(upper * values[2 * i]) + (uint32_t)(lower * values[2 * i + 1]);
        }
        for (ptrdiff_t i = 0; i < count; i++)
            out[at + i] = byte((int32_t)sums[i] >> precision);
    }
}

void
copy_plain(const uint8_t *rgbx, uint8_t *out, ptrdiff_t count, int flip)
{
    ptrdiff_t step = flip ? -4 : 4;
    rgbx += flip ? 4 * (count - 1) : 0;
    for (; count > 1; count--, rgbx += step, out += 3)
        memcpy(out, rgbx, 4); /* the next pixel replaces the last byte */
    if (count > 0)
        memcpy(out, rgbx, 3);
}

/* Tells whether AVX-512 resizes columns: the pixels that a vector of columns depends on must fit into one vector. */
static inline int
takes_pairs(const Resizing *resizing)
{
    return kernels->has_avx512 && resizing->spread <= VECTOR - 8 && resizing->tap_pairs <= MOST_PAIRS;
}

#if HAS_AVX2
AVX2_INLINE __m256i
load_both(const uint8_t *low, const uint8_t *high)
{
    __m128i half = _mm_loadu_si128((const __m128i *)low);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(half), _mm_loadu_si128((const __m128i *)high), 1);
}

/* Puts the channels of two adjacent pixels side by side, multiplies them by their weights, and adds them. */
AVX2_INLINE __m256i
add_weighed(__m256i sums, __m256i pixels, __m256i which, __m256i weights)
{
    return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, which), weights));
}

/* Two output columns at a time from `column` on, one in each half of a register; for each, four pixels of a row are
   loaded. Inlined, so that the number of pairs of pixels, and whether sums may be negative, are constants. */
AVX2_INLINE void
across_columns(const Resizing *resizing, const uint8_t *upper, const uint8_t *lower, int16_t *to, ptrdiff_t column,
               ptrdiff_t tap_pairs, int overshoots)
{
    const __m256i first_two = _mm256_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1,
                                               0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1);
    const __m256i last_two = _mm256_or_si256(first_two, _mm256_set1_epi16(8));
    const __m256i colours = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7), zero = _mm256_setzero_si256();
    /* Shift sums to whole numbers and one more bit, which averaging with 0 rounds when they have 16 bits. The values of
       the lower row are moved 16 bits above those of the upper row. */
    int up = 17 - resizing->column_precision;
    const __m128i upper_shift = _mm_cvtsi32_si128(16 - up), lower_shift = _mm_cvtsi32_si128(abs(up));
    const __m256i *weights = (const __m256i *)resizing->column_weights + column / 2 * tap_pairs;
    const int32_t *offsets = resizing->offsets + column, *end = resizing->offsets + resizing->columns;
    to += 6 * column;
    for (; offsets < end; offsets += 2, weights += tap_pairs, to += 12) {
        __m256i above = zero, below = zero;
        for (ptrdiff_t pair = 0; pair < tap_pairs; pair += 2) {
            ptrdiff_t low = offsets[0] + 8 * pair, high = offsets[1] + 8 * pair;
            __m256i pixels_above = load_both(upper + low, upper + high), weight = _mm256_load_si256(weights + pair);
            __m256i pixels_below = load_both(lower + low, lower + high);
            above = add_weighed(above, pixels_above, first_two, weight);
            below = add_weighed(below, pixels_below, first_two, weight);
            if (pair + 1 == tap_pairs)
                break;
            weight = _mm256_load_si256(weights + pair + 1);
            above = add_weighed(above, pixels_above, last_two, weight);
            below = add_weighed(below, pixels_below, last_two, weight);
        }
        below = up > 0 ? _mm256_sll_epi32(below, lower_shift) : _mm256_sra_epi32(below, lower_shift);
        __m256i both = _mm256_blend_epi16(_mm256_sra_epi32(above, upper_shift), below, 0xAA);
        if (overshoots)
            both = _mm256_max_epi16(both, zero);
        both = _mm256_avg_epu16(both, zero);
        if (overshoots || tap_pairs > 3) /* only then can rounded weights add up to more than 1 */
            both = _mm256_min_epi16(both, _mm256_set1_epi16(255));
        both = _mm256_permutevar8x32_epi32(both, colours);
        _mm256_storeu_si256((__m256i *)to, both); /* of which 24 bytes count */
    }
}

AVX2 void
across_avx2(const Resizing *resizing, const uint8_t *upper, const uint8_t *lower, int16_t *to)
{
    ptrdiff_t tap_pairs = resizing->tap_pairs;
    if (resizing->overshoots)
        across_columns(resizing, upper, lower, to, 0, tap_pairs, 1);
    else if (tap_pairs == 1)
        across_columns(resizing, upper, lower, to, 0, 1, 0);
    else if (tap_pairs == 2)
        across_columns(resizing, upper, lower, to, 0, 2, 0);
    else if (tap_pairs == 3)
        across_columns(resizing, upper, lower, to, 0, 3, 0);
    else
        across_columns(resizing, upper, lower, to, 0, tap_pairs, 0);
}

/* Inlined, so that the number of pairs of rows is a constant. */
AVX2_INLINE void
down_blocks(const Resizing *resizing, ptrdiff_t row, ptrdiff_t pairs)
{
    const __m256i zero = _mm256_setzero_si256(), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m128i shift = _mm_cvtsi32_si128(resizing->row_precision - 1);
    const int16_t *weights = resizing->row_weights + row * resizing->row_weights_step;
    uint8_t *out = resizing->out + row * resizing->width;
    ptrdiff_t first = resizing->rows[row].first, width = resizing->width, last = width > BLOCK ? width - BLOCK : 0;
    for (ptrdiff_t at = 0; at < width; at += BLOCK) {
        ptrdiff_t begin = at < last ? at : last; /* the last block ends with the row, and may overlap the one before */
        __m256i sum0 = zero, sum1 = zero, sum2 = zero, sum3 = zero; /* of eight bytes each */
        for (ptrdiff_t pair = 0; pair < pairs; pair++) {
            const __m256i *values = (const __m256i *)(kept_pair(resizing, first + pair) + 2 * begin);
            int32_t two;
            memcpy(&two, weights + 2 * pair, sizeof two);
            __m256i weight = _mm256_set1_epi32(two);
            sum0 = _mm256_add_epi32(sum0, _mm256_madd_epi16(_mm256_loadu_si256(values), weight));
            sum1 = _mm256_add_epi32(sum1, _mm256_madd_epi16(_mm256_loadu_si256(values + 1), weight));
            sum2 = _mm256_add_epi32(sum2, _mm256_madd_epi16(_mm256_loadu_si256(values + 2), weight));
            sum3 = _mm256_add_epi32(sum3, _mm256_madd_epi16(_mm256_loadu_si256(values + 3), weight));
        }
        __m256i low = _mm256_packus_epi32(_mm256_sra_epi32(sum0, shift), _mm256_sra_epi32(sum1, shift));
        __m256i high = _mm256_packus_epi32(_mm256_sra_epi32(sum2, shift), _mm256_sra_epi32(sum3, shift));
        __m256i block = _mm256_packus_epi16(_mm256_avg_epu16(low, zero), _mm256_avg_epu16(high, zero));
        block = _mm256_permutevar8x32_epi32(block, order);
        if (width >= BLOCK) {
            _mm256_storeu_si256((__m256i *)(out + begin), block);
        } else {
            uint8_t bytes[BLOCK];
            _mm256_storeu_si256((__m256i *)bytes, block);
            memcpy(out, bytes, (size_t)width);
        }
    }
}

AVX2 void
down_avx2(const Resizing *resizing, ptrdiff_t row)
{
    switch (resizing->rows[row].count) {
    case 1: down_blocks(resizing, row, 1); break;
    case 2: down_blocks(resizing, row, 2); break;
    default: down_blocks(resizing, row, resizing->rows[row].count);
    }
}

#if HAS_AVX512
enum { VALUES = 16 }; /* of a vector: channels of output columns */

/* Repeats offsets and weights of columns for each of their channels, once for all rows. For each vector, first come the
   positions of the bytes that it takes, then the weights of each pair of pixels. A position has 32 bits: the lower half
   is for the byte of the first pixel, the upper half for that of the second. */
AVX512 static void
spread_columns(Resizing *resizing)
{
    int16_t *to = resizing->spread_weights;
    int32_t *bases = resizing->bases;
    __m512i which[3], colours[3];
    for (int part = 0; part < 3; part++) {
        uint32_t column[VALUES], colour[VALUES];
        for (uint32_t i = 0, value = VALUES * (uint32_t)part; i < VALUES; i++, value++)
            column[i] = value / 3, colour[i] = value % 3 * 0x10001 + 0x40000; /* four bytes after it is the next pixel */
        which[part] = _mm512_loadu_si512(column), colours[part] = _mm512_loadu_si512(colour);
    }
    for (ptrdiff_t column = 0; column < resizing->filled; column += AT_ONCE) {
        const int32_t *offsets = resizing->offsets + column;
        const __m512i all = _mm512_loadu_si512(offsets);
        for (int part = 0; part < 3; part++) {
            const int32_t first = offsets[5 * part], last = offsets[5 * part + 5], base = first < last ? first : last;
            __m512i begins = _mm512_sub_epi32(_mm512_permutexvar_epi32(which[part], all), _mm512_set1_epi32(base));
            *bases++ = base;
            begins = _mm512_add_epi32(begins, _mm512_slli_epi32(begins, 16));
            _mm512_storeu_si512(to, _mm512_add_epi32(begins, colours[part]));
            to += 2 * VALUES;
            for (ptrdiff_t pair = 0; pair < resizing->tap_pairs; pair++, to += 2 * VALUES) {
                __m512i weights = _mm512_loadu_si512(resizing->pair_weights + 2 * (pair * resizing->filled + column));
                _mm512_storeu_si512(to, _mm512_permutexvar_epi32(which[part], weights));
            }
        }
    }
}

AVX512_INLINE __m512i
add_taken(__m512i sums, __m512i pixels, __m512i places, __m512i weights)
{
    return _mm512_dpwssd_epi32(sums, _mm512_maskz_permutexvar_epi8(0x5555555555555555, places, pixels), weights);
}

/* Loads a vector of pixels, or half of one if that is enough: loads that cross a cache line cost more. */
AVX512_INLINE __m512i
load_pixels(const uint8_t *from, int bytes)
{
    return bytes == VECTOR / 2 ? _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)from))
                               : _mm512_loadu_si512(from);
}

/* Three vectors at a time. One instruction moves the bytes of loaded pixels to their positions. Inlined, so that these
   are constants: the number of pairs of pixels; the number of bytes that contain all pixels of a vector, or 0 if each
   pair of pixels is loaded separately; and `anything`, which allows any number of pairs, any precision, and sums that
   overshoot. */
AVX512_INLINE void
across_columns_avx512(const Resizing *resizing, const uint8_t *upper, const uint8_t *lower, int16_t *to, ptrdiff_t tap_pairs,
                      int bytes, int anything)
{
    const int precision = resizing->column_precision, up = 16 - precision;
    const __m512i upper_shift = _mm512_set1_epi32(precision), lower_shift = _mm512_set1_epi32(abs(up));
    const __m512i half = _mm512_set1_epi32(1 << (precision - 1)), two_pixels = _mm512_set1_epi8(8);
    const int16_t *from = resizing->spread_weights;
    const int32_t *bases = resizing->bases;
    for (ptrdiff_t left = resizing->columns; left > 0; left -= AT_ONCE) {
        for (int part = 0; part < 3; part++, to += 2 * VALUES) {
            const ptrdiff_t base = *bases++;
            __m512i places = _mm512_loadu_si512(from), above = half, below = half;
            __m512i pixels_above = load_pixels(upper + base, bytes), pixels_below = load_pixels(lower + base, bytes);
            from += 2 * VALUES;
            for (ptrdiff_t pair = 0; pair < tap_pairs; pair++, from += 2 * VALUES) {
                const __m512i weights = _mm512_loadu_si512(from);
                if (pair > 0 && bytes) {
                    places = _mm512_add_epi8(places, two_pixels);
                } else if (pair > 0) {
                    pixels_above = load_pixels(upper + base + 8 * pair, bytes);
                    pixels_below = load_pixels(lower + base + 8 * pair, bytes);
                }
                above = add_taken(above, pixels_above, places, weights);
                below = add_taken(below, pixels_below, places, weights);
            }
            above = _mm512_srav_epi32(above, upper_shift);
            below = up >= 0 || !anything ? _mm512_sllv_epi32(below, lower_shift) : _mm512_srav_epi32(below, lower_shift);
            __m512i both = _mm512_mask_blend_epi16(0xAAAAAAAA, above, below);
            if (anything) {
                both = _mm512_max_epi16(both, _mm512_setzero_si512());
                both = _mm512_min_epi16(both, _mm512_set1_epi16(255));
            }
            _mm512_storeu_si512(to, both);
        }
    }
}

AVX512 void
across_avx512(const Resizing *resizing, const uint8_t *upper, const uint8_t *lower, int16_t *to)
{
    const ptrdiff_t tap_pairs = resizing->tap_pairs;
    const int in_one = resizing->spread + 8 * tap_pairs <= VECTOR;
    if (!takes_pairs(resizing))
        across_avx2(resizing, upper, lower, to);
    else if (resizing->overshoots || tap_pairs > 3 || !in_one || resizing->column_precision > 16)
        across_columns_avx512(resizing, upper, lower, to, tap_pairs, 0, 1);
    else if (tap_pairs == 1 && resizing->spread <= VECTOR / 2 - 8)
        across_columns_avx512(resizing, upper, lower, to, 1, VECTOR / 2, 0);
    else if (tap_pairs == 1)
        across_columns_avx512(resizing, upper, lower, to, 1, VECTOR, 0);
    else if (tap_pairs == 2)
        across_columns_avx512(resizing, upper, lower, to, 2, VECTOR, 0);
    else
        across_columns_avx512(resizing, upper, lower, to, 3, VECTOR, 0);
}

/* Converts four vectors of sums to bytes; no sum may overshoot. One instruction takes the eight bits above the binary
   point from each sum, and keeps the bytes of the other vectors. */
AVX512_INLINE __m512i
bytes_of_sums(const __m512i sums[4], int precision)
{
    const __m512i order = _mm512_set_epi16(31, 27, 23, 19, 15, 11, 7, 3, 30, 26, 22, 18, 14, 10, 6, 2, 29, 25, 21, 17, 13, 9,
                                           5, 1, 28, 24, 20, 16, 12, 8, 4, 0);
    const __m512i bits = _mm512_set1_epi16((short)(precision | (precision + 32) << 8));
    __m512i bytes = _mm512_multishift_epi64_epi8(bits, sums[0]);
    bytes = _mm512_mask_multishift_epi64_epi8(bytes, 0x0C0C0C0C0C0C0C0C, bits, sums[1]);
    bytes = _mm512_mask_multishift_epi64_epi8(bytes, 0x3030303030303030, bits, sums[2]);
    bytes = _mm512_mask_multishift_epi64_epi8(bytes, 0xC0C0C0C0C0C0C0C0, bits, sums[3]);
    return _mm512_permutexvar_epi16(order, bytes);
}

AVX512_INLINE __m512i
bytes_of_any_sums(const __m512i sums[4], int precision)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i shift = _mm512_set1_epi32(precision);
    __m512i low = _mm512_packus_epi32(_mm512_srav_epi32(sums[0], shift), _mm512_srav_epi32(sums[1], shift));
    __m512i high = _mm512_packus_epi32(_mm512_srav_epi32(sums[2], shift), _mm512_srav_epi32(sums[3], shift));
    low = _mm512_min_epu16(low, _mm512_set1_epi16(255)); /* the next packing reads signed numbers */
    high = _mm512_min_epu16(high, _mm512_set1_epi16(255));
    return _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high));
}

AVX512_INLINE __m512i
weights_of_pair(const int16_t *weights)
{
    int32_t two;
    memcpy(&two, weights, sizeof two);
    return _mm512_set1_epi32(two);
}

/* As down_blocks, for twice as many bytes. Inlined, so that the number of pairs of rows, and whether sums may overshoot,
   are constants. */
AVX512_INLINE void
down_blocks_avx512(const Resizing *resizing, ptrdiff_t row, ptrdiff_t pairs, int overshoots)
{
    enum { WIDE_BLOCK = 2 * BLOCK };
    const int precision = resizing->row_precision;
    const __m512i half = _mm512_set1_epi32(1 << (precision - 1));
    const int16_t *weights = resizing->row_weights + row * resizing->row_weights_step;
    uint8_t *out = resizing->out + row * resizing->width;
    ptrdiff_t first = resizing->rows[row].first, width = resizing->width, last = width - WIDE_BLOCK;
    const int16_t *values[3];
    __m512i two[3];
    const int known = pairs <= 3;
    for (ptrdiff_t pair = 0; known && pair < pairs; pair++)
        values[pair] = kept_pair(resizing, first + pair), two[pair] = weights_of_pair(weights + 2 * pair);
    for (ptrdiff_t at = 0; at < width; at += WIDE_BLOCK) {
        ptrdiff_t begin = at < last ? at : last; /* the last block ends with the row, and may overlap the one before */
        __m512i sums[4] = {half, half, half, half}; /* of sixteen bytes each */
        for (ptrdiff_t pair = 0; pair < pairs; pair++) {
            const int16_t *from = (known ? values[pair] : kept_pair(resizing, first + pair)) + 2 * begin;
            const __m512i weight = known ? two[pair] : weights_of_pair(weights + 2 * pair);
            for (int i = 0; i < 4; i++)
                sums[i] = _mm512_dpwssd_epi32(sums[i], _mm512_loadu_si512(from + 32 * i), weight);
        }
        _mm512_storeu_si512(out + begin, overshoots ? bytes_of_any_sums(sums, precision) : bytes_of_sums(sums, precision));
    }
}

AVX512 void
down_avx512(const Resizing *resizing, ptrdiff_t row)
{
    const ptrdiff_t pairs = resizing->rows[row].count;
    if (resizing->width < 2 * BLOCK)
        down_avx2(resizing, row);
    else if (resizing->overshoots || pairs > 3) /* as in across_avx512 */
        down_blocks_avx512(resizing, row, pairs, 1);
    else if (pairs == 1)
        down_blocks_avx512(resizing, row, 1, 0);
    else if (pairs == 2)
        down_blocks_avx512(resizing, row, 2, 0);
    else
        down_blocks_avx512(resizing, row, 3, 0);
}
#endif

/* Eight pixels at a time. A store writes eight more bytes, which the next store replaces. */
AVX2 void
copy_avx2(const uint8_t *rgbx, uint8_t *out, ptrdiff_t count, int flip)
{
    const __m256i ahead = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
                                           0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const __m256i back = _mm256_setr_epi8(12, 13, 14, 8, 9, 10, 4, 5, 6, 0, 1, 2, -1, -1, -1, -1,
                                          12, 13, 14, 8, 9, 10, 4, 5, 6, 0, 1, 2, -1, -1, -1, -1);
    const __m256i order = flip ? _mm256_setr_epi32(4, 5, 6, 0, 1, 2, 7, 7) : _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7);
    ptrdiff_t done = 0;
    for (; done + 11 <= count; done += 8) {
        const uint8_t *from = rgbx + 4 * (flip ? count - 8 - done : done);
        __m256i pixels = _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)from), flip ? back : ahead);
        _mm256_storeu_si256((__m256i *)(out + 3 * done), _mm256_permutevar8x32_epi32(pixels, order));
    }
    copy_plain(flip ? rgbx : rgbx + 4 * done, out + 3 * done, count - done, flip);
}
#endif

Resizing *
resizing_new(void)
{
    return calloc(1, sizeof(Resizing));
}

void
resizing_free(Resizing *resizing)
{
    if (resizing != NULL)
        free(resizing->memory);
    free(resizing);
}

size_t
resizing_memory(const Resizing *resizing)
{
    return sizeof *resizing + (size_t)resizing->size;
}

/* Returns the weight `k` of a pixel; 0 if there is no such weight. */
INLINE int16_t
weight_of(const Axis *axis, const int16_t *weights, ptrdiff_t k)
{
    return k >= 0 && k < axis->most ? weights[k * axis->out] : 0;
}

/* Sets where each column begins. Taps are padded with pixels of weight 0 on the left, to avoid reading past the row. */
static void
set_offsets(Resizing *resizing, const Axis *axis, const Span *spans, int flip)
{
    const ptrdiff_t taps = 2 * resizing->tap_pairs;
    resizing->spread = 0;
    for (ptrdiff_t column = 0; column < resizing->filled; column++) {
        ptrdiff_t i = smaller(column, axis->out - 1); /* extra columns repeat the last one */
        ptrdiff_t begin = spans[flip ? axis->out - 1 - i : i].first;
        begin = larger(smaller(begin, resizing->end - taps), resizing->first);
        const int32_t offset = (int32_t)(4 * (begin - resizing->first));
        resizing->offsets[column] = offset;
        resizing->spread = larger(resizing->spread, abs(offset - resizing->offsets[larger(column - 5, 0)]));
    }
}

/* Returns the pixel of the result in a column; extra columns repeat the last one. */
INLINE ptrdiff_t
pixel_of(const Axis *axis, ptrdiff_t column, int flip)
{
    const ptrdiff_t i = smaller(column, axis->out - 1);
    return flip ? axis->out - 1 - i : i;
}

/* Sets the weights of a column: the two weights of each pair of pixels, repeated `times` times; those of the next pair
   follow `step` numbers later. */
INLINE void
set_column(const Resizing *resizing, const Axis *axis, const Span *spans, const int16_t *rounded, ptrdiff_t column, int flip,
           int16_t *to, int times, ptrdiff_t step)
{
    const ptrdiff_t i = pixel_of(axis, column, flip);
    ptrdiff_t k = resizing->first + resizing->offsets[column] / 4 - spans[i].first;
    for (ptrdiff_t pair = 0; pair < resizing->tap_pairs; pair++, k += 2, to += step) {
        const int16_t left = weight_of(axis, rounded + i, k), right = weight_of(axis, rounded + i, k + 1);
        for (int time = 0; time < times; time++)
            to[2 * time] = left, to[2 * time + 1] = right;
    }
}

#if HAS_AVX512
/* Sets the weights of all columns for AVX-512: first as if no column had padding on the left, as is true of most; then
   again those that have it, and the extra columns. */
static void
set_pairs(Resizing *resizing, const Axis *axis, const Span *spans, const int16_t *rounded, int flip)
{
    const ptrdiff_t out = axis->out, step = 2 * resizing->filled;
    for (ptrdiff_t pair = 0; pair < resizing->tap_pairs; pair++) {
        const int is_whole = 2 * pair + 1 < axis->most;
        const int16_t *restrict left = rounded + 2 * pair * out, *restrict right = is_whole ? left + out : left;
        int16_t *restrict to = resizing->pair_weights + pair * step;
        for (ptrdiff_t column = 0; column < out; column++) {
            const ptrdiff_t i = flip ? out - 1 - column : column;
            to[2 * column] = left[i], to[2 * column + 1] = (int16_t)(is_whole ? right[i] : 0);
        }
    }
    for (ptrdiff_t column = 0; column < resizing->filled; column++) {
        const ptrdiff_t begin = resizing->first + resizing->offsets[column] / 4;
        if (column >= out || begin != spans[pixel_of(axis, column, flip)].first)
            set_column(resizing, axis, spans, rounded, column, flip, resizing->pair_weights + 2 * column, 1, step);
    }
}
#endif

/* Temporary memory of weighing, until the weights are set. */
typedef struct {
    Span *spans;
    double *weights;
    int16_t *rounded;
} Scratch;

static void
set_columns(Resizing *resizing, const Axis *axis, const Scratch *scratch, int flip)
{
    Span *spans = scratch->spans;
    int16_t *rounded = scratch->rounded;
    resizing->column_precision = weigh(axis, spans, scratch->weights, rounded);
    ptrdiff_t first = spans[0].first, end = spans[axis->out - 1].first + spans[axis->out - 1].count, taps = 1;
    for (ptrdiff_t i = 0; i < axis->out; i++)
        taps = larger(taps, spans[i].count);
    taps += taps % 2;
    resizing->first = first;
    resizing->end = end;
    resizing->tap_pairs = taps / 2;
    resizing->columns = axis->out + axis->out % 2;
    set_offsets(resizing, axis, spans, flip);
#if HAS_AVX512
    if (takes_pairs(resizing)) {
        set_pairs(resizing, axis, spans, rounded, flip);
        spread_columns(resizing);
        return;
    }
#endif
    for (ptrdiff_t column = 0; column < resizing->filled; column++) {
        int16_t *to = resizing->column_weights + column / 2 * taps * 8 + column % 2 * 8;
        set_column(resizing, axis, spans, rounded, column, flip, to, 4, 16);
    }
}

static void
set_rows(Resizing *resizing, const Axis *axis, const Scratch *scratch)
{
    const Span *spans = scratch->spans;
    const int16_t *rounded = scratch->rounded;
    resizing->row_precision = weigh(axis, scratch->spans, scratch->weights, scratch->rounded);
    resizing->first_row = spans[0].first;
    resizing->row_end = spans[axis->out - 1].first + spans[axis->out - 1].count;
    for (ptrdiff_t i = 0; i < axis->out; i++) {
        ptrdiff_t first = spans[i].first - resizing->first_row, end = first + spans[i].count;
        resizing->rows[i] = (Span){first / 2, (end + 1) / 2 - first / 2};
        int16_t *to = resizing->row_weights + i * resizing->row_weights_step;
        to[0] = to[first % 2 + axis->most] = 0;
        for (ptrdiff_t k = 0; k < axis->most; k++)
            to[first % 2 + k] = rounded[k * axis->out + i];
    }
}

/* Makes room for parts of these sizes, each at the beginning of a cache line. Returns 0 without memory, or if they need
   more than TOO_MUCH. */
static int
make_room(Resizing *resizing, const uint64_t *sizes, uint8_t **parts, int count)
{
    uint64_t size = LINE;
    for (int part = 0; part < count; part++)
        size += sizes[part] + LINE;
    if (size > TOO_MUCH)
        return 0;
    if (size > resizing->size || (resizing->size > NOT_MUCH && resizing->size / 4 > size)) {
        free(resizing->memory);
        resizing->memory = malloc((size_t)size);
        resizing->size = resizing->memory == NULL ? 0 : size;
    }
    if (resizing->memory == NULL)
        return 0;
    uint8_t *at = resizing->memory;
    for (int part = 0; part < count; part++) {
        at += (LINE - (uintptr_t)at % LINE) % LINE;
        parts[part] = at;
        at += sizes[part];
    }
    return 1;
}

/* Makes room for all arrays. Returns 0 as make_room does. */
static int
make_parts(Resizing *resizing, const Axis *down, const Axis *across, Scratch *scratch)
{
    enum {
        OFFSETS, BASES, COLUMN_WEIGHTS, PAIR_WEIGHTS, SPREAD_WEIGHTS, ROWS, ROW_WEIGHTS, KEPT, WAITING, SPANS, WEIGHTS,
        ROUNDED, PARTS,
    };
    const uint64_t tall = (uint64_t)down->out, wide = (uint64_t)resizing->filled;
    const uint64_t weights_down = tall * (uint64_t)down->most, weights_across = wide * (uint64_t)(across->most + 1);
    const uint64_t weights_most = weights_down > weights_across ? weights_down : weights_across;
    const uint64_t sizes[PARTS] = {
        [OFFSETS] = wide * sizeof(int32_t),
        [BASES] = wide / AT_ONCE * 3 * sizeof(int32_t),
        [COLUMN_WEIGHTS] = weights_across * 4 * sizeof(int16_t),
        [PAIR_WEIGHTS] = weights_across * sizeof(int16_t),
        [SPREAD_WEIGHTS] = wide * (uint64_t)(1 + smaller(across->most / 2 + 1, MOST_PAIRS)) * 6 * sizeof(int16_t),
        [ROWS] = tall * sizeof(Span),
        [ROW_WEIGHTS] = tall * (uint64_t)resizing->row_weights_step * sizeof(int16_t),
        [KEPT] = (uint64_t)resizing->kept_count * (uint64_t)resizing->kept_step * sizeof(int16_t),
        [WAITING] = (uint64_t)across->side * 4 + BEHIND,
        [SPANS] = (tall > wide ? tall : wide) * sizeof(Span),
        [WEIGHTS] = weights_most * sizeof(double),
        [ROUNDED] = weights_most * sizeof(int16_t),
    };
    uint8_t *parts[PARTS] = {0};
    if (!make_room(resizing, sizes, parts, PARTS))
        return 0;
    resizing->offsets = (int32_t *)parts[OFFSETS];
    resizing->bases = (int32_t *)parts[BASES];
    resizing->column_weights = (int16_t *)parts[COLUMN_WEIGHTS];
    resizing->pair_weights = (int16_t *)parts[PAIR_WEIGHTS];
    resizing->spread_weights = (int16_t *)parts[SPREAD_WEIGHTS];
    resizing->rows = (Span *)parts[ROWS];
    resizing->row_weights = (int16_t *)parts[ROW_WEIGHTS];
    resizing->kept = (int16_t *)parts[KEPT];
    resizing->waiting = parts[WAITING];
    *scratch = (Scratch){(Span *)parts[SPANS], (double *)(void *)parts[WEIGHTS], (int16_t *)parts[ROUNDED]};
    return 1;
}

int
resizing_begin(Resizing *resizing, const Wanted *wanted, uint8_t *out)
{
    int whole = wanted->scaled_height == wanted->out_height && wanted->scaled_width == wanted->out_width;
    Axis down = {
        .side = wanted->height, .scaled = wanted->scaled_height, .cut = wanted->cut_top, .out = wanted->out_height,
        .interpolation = wanted->interpolation,
    };
    Axis across = {
        .side = wanted->width, .scaled = wanted->scaled_width, .cut = wanted->cut_left, .out = wanted->out_width,
        .interpolation = wanted->interpolation,
    };
    resizing->rows_taken = resizing->rows_written = resizing->first_row = resizing->row_end = 0;
    if (!axis_set(&down, whole) || !axis_set(&across, whole))
        return 0;
    resizing->out = out;
    resizing->height = down.out;
    resizing->width = across.out * 3;
    resizing->flips = wanted->flip;
    resizing->overshoots = wanted->interpolation == BICUBIC;
    resizing->copies = down.side == down.scaled && across.side == across.scaled;
    if (resizing->copies) {
        resizing->first_row = down.cut;
        resizing->row_end = down.cut + down.out;
        resizing->first = across.cut;
        resizing->end = across.cut + across.out;
        return 1;
    }
    resizing->filled = (across.out + AT_ONCE - 1) / AT_ONCE * AT_ONCE;
    resizing->row_weights_step = down.most + 2; /* it may begin with a lower row, and end with an upper one */
    resizing->kept_count = 1;
    while (resizing->kept_count < down.most / 2 + 1)
        resizing->kept_count *= 2;
    resizing->kept_step = 2 * (resizing->width + 2 * BLOCK); /* stores, and loads of a narrow row, may end after the row */
    Scratch scratch;
    if (!make_parts(resizing, &down, &across, &scratch))
        return 0;
    set_columns(resizing, &across, &scratch, wanted->flip);
    set_rows(resizing, &down, &scratch);
    return 1;
}

void
resizing_needs(const Resizing *resizing, ptrdiff_t *first_row, ptrdiff_t *row_end, ptrdiff_t *first, ptrdiff_t *end)
{
    *first_row = resizing->first_row;
    *row_end = resizing->row_end;
    *first = resizing->first;
    *end = resizing->end;
}

/* Resizes a pair of rows horizontally, and then computes all output rows that depend on no later row. */
static void
take_pair(Resizing *resizing, const uint8_t *upper, const uint8_t *lower)
{
    ptrdiff_t pair = resizing->rows_taken / 2;
    kernels->across(resizing, upper, lower, kept_pair(resizing, pair));
    for (; resizing->rows_written < resizing->height; resizing->rows_written++) {
        Span pairs = resizing->rows[resizing->rows_written];
        if (pairs.first + pairs.count > pair + 1)
            break;
        kernels->down(resizing, resizing->rows_written);
    }
}

ptrdiff_t
resizing_rows(Resizing *resizing, const uint8_t *rgbx, ptrdiff_t stride, ptrdiff_t count)
{
    ptrdiff_t needed = resizing->row_end - resizing->first_row, left = needed - resizing->rows_taken, taken;
    for (count = count < left ? count : left; count > 0; count -= taken) {
        taken = 1;
        if (resizing->copies) {
            uint8_t *out = resizing->out + resizing->rows_taken * resizing->width;
            kernels->copy(rgbx, out, resizing->end - resizing->first, resizing->flips);
        } else if (resizing->rows_taken % 2) {
            take_pair(resizing, resizing->waiting, rgbx);
        } else if (count > 1) {
            take_pair(resizing, rgbx, rgbx + stride);
            taken = 2;
        } else if (resizing->rows_taken + 1 == needed) {
            take_pair(resizing, rgbx, rgbx); /* there is no lower row: its weight is 0 */
        } else {
            memcpy(resizing->waiting, rgbx, (size_t)(resizing->end - resizing->first) * 4);
        }
        resizing->rows_taken += taken;
        rgbx += taken * stride;
    }
    return needed - resizing->rows_taken;
}
