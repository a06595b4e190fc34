/* The arithmetic of kernels.h for NEON, which every 64-bit ARM processor has.

   The results equal those of the plain functions in jpeg_kernels.c, byte_kernels.c and resizing.c to the bit. */

#include "kernels/kernels.h"

#if HAS_NEON
#include "compilers.h"
#include "kernels/dct.h"
#include "resizing/resizing_kernels.h"

#include <arm_neon.h>
#include <string.h>

/* JPEGs. */

INLINE int32x4_t
times(int16x8_t values, int upper, int16_t factor) /* of the lower or the upper four values */
{
    return upper ? vmull_high_n_s16(values, factor) : vmull_n_s16(vget_low_s16(values), factor);
}

INLINE int32x4_t
plus(int32x4_t sums, int16x8_t values, int upper, int16_t factor)
{
    return upper ? vmlal_high_n_s16(sums, values, factor) : vmlal_n_s16(sums, vget_low_s16(values), factor);
}

typedef struct {
    int32x4_t even[4], odd[4];
} Sums;

/* The sums of pass_plain for four of eight columns; `c` has the coefficients. */
INLINE Sums
sums_of(const int16x8_t *c, int upper)
{
    int16x8_t c04 = vaddq_s16(c[0], c[4]), rest = vsubq_s16(c[0], c[4]);
    int16x8_t c15 = vaddq_s16(c[1], c[5]), c37 = vaddq_s16(c[3], c[7]);
    int32x4_t even0 = upper ? vshll_high_n_s16(c04, 13) : vshll_n_s16(vget_low_s16(c04), 13);
    int32x4_t even1 = upper ? vshll_high_n_s16(rest, 13) : vshll_n_s16(vget_low_s16(rest), 13);
    int32x4_t even2 = plus(times(c[2], upper, F_0_541 + F_0_765), c[6], upper, F_0_541);
    int32x4_t even3 = plus(times(c[2], upper, F_0_541), c[6], upper, F_0_541 - F_1_847);
    int32x4_t z3 = plus(times(c37, upper, F_1_175 - F_1_961), c15, upper, F_1_175);
    int32x4_t z4 = plus(times(c37, upper, F_1_175), c15, upper, F_1_175 - F_0_390);
    return (Sums){
        {vaddq_s32(even0, even2), vaddq_s32(even1, even3), vsubq_s32(even1, even3), vsubq_s32(even0, even2)},
        {
            plus(plus(z4, c[1], upper, F_1_501 - F_0_899), c[7], upper, -F_0_899),
            plus(plus(z3, c[3], upper, F_3_072 - F_2_562), c[5], upper, -F_2_562),
            plus(plus(z4, c[5], upper, F_2_053 - F_2_562), c[3], upper, -F_2_562),
            plus(plus(z3, c[7], upper, F_0_298 - F_0_899), c[1], upper, -F_0_899),
        },
    };
}

/* Transposes 8 x 8 numbers. */
INLINE void
transpose(int16x8_t *v)
{
    int32x4_t pairs[8];
    int64x2_t fours[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = vreinterpretq_s32_s16(vtrn1q_s16(v[i], v[i + 1]));
        pairs[i + 1] = vreinterpretq_s32_s16(vtrn2q_s16(v[i], v[i + 1]));
    }
    for (int i = 0; i < 8; i += i % 2 ? 3 : 1) {
        fours[i] = vreinterpretq_s64_s32(vtrn1q_s32(pairs[i], pairs[i + 2]));
        fours[i + 2] = vreinterpretq_s64_s32(vtrn2q_s32(pairs[i], pairs[i + 2]));
    }
    for (int i = 0; i < 4; i++) {
        v[i] = vreinterpretq_s16_s64(vtrn1q_s64(fours[i], fours[i + 4]));
        v[i + 4] = vreinterpretq_s16_s64(vtrn2q_s64(fours[i], fours[i + 4]));
    }
}

/* The vertical pass. The results remain multiplied by 2^2. */
INLINE void
pass_down(int16x8_t *c)
{
    int16x4_t left[8];
    Sums sums = sums_of(c, 0);
    for (int i = 0; i < 4; i++) {
        left[i] = vqrshrn_n_s32(vaddq_s32(sums.even[i], sums.odd[i]), 11);
        left[7 - i] = vqrshrn_n_s32(vsubq_s32(sums.even[i], sums.odd[i]), 11);
    }
    sums = sums_of(c, 1);
    for (int i = 0; i < 4; i++) {
        c[i] = vqrshrn_high_n_s32(left[i], vaddq_s32(sums.even[i], sums.odd[i]), 11);
        c[7 - i] = vqrshrn_high_n_s32(left[7 - i], vsubq_s32(sums.even[i], sums.odd[i]), 11);
    }
}

/* The horizontal pass. The results are shifted right by 16 of 18 bits: each sum fits into 32 bits. */
INLINE void
pass_across(int16x8_t *c)
{
    int16x4_t top[8];
    Sums sums = sums_of(c, 0);
    for (int i = 0; i < 4; i++) {
        top[i] = vaddhn_s32(sums.even[i], sums.odd[i]);
        top[7 - i] = vsubhn_s32(sums.even[i], sums.odd[i]);
    }
    sums = sums_of(c, 1);
    for (int i = 0; i < 4; i++) {
        c[i] = vaddhn_high_s32(top[i], sums.even[i], sums.odd[i]);
        c[7 - i] = vsubhn_high_s32(top[7 - i], sums.even[i], sums.odd[i]);
    }
}

/* Rounds columns of samples, and stores them as rows. */
INLINE void
store_columns(const int16x8_t *columns, uint8_t *to, ptrdiff_t stride)
{
    int8x16_t c[4]; /* 0 and 4, 1 and 5, 2 and 6, 3 and 7 */
    for (int i = 0; i < 4; i++)
        c[i] = vqrshrn_high_n_s16(vqrshrn_n_s16(columns[i], 2), columns[4 + i], 2);
    int16x8_t even01 = vreinterpretq_s16_s8(vtrn1q_s8(c[0], c[1])), odd01 = vreinterpretq_s16_s8(vtrn2q_s8(c[0], c[1]));
    int16x8_t even23 = vreinterpretq_s16_s8(vtrn1q_s8(c[2], c[3])), odd23 = vreinterpretq_s16_s8(vtrn2q_s8(c[2], c[3]));
    const int32x4_t fours[4] = { /* of the rows r and r + 4: the left half of both, the right half of both */
        vreinterpretq_s32_s16(vtrn1q_s16(even01, even23)), vreinterpretq_s32_s16(vtrn1q_s16(odd01, odd23)),
        vreinterpretq_s32_s16(vtrn2q_s16(even01, even23)), vreinterpretq_s32_s16(vtrn2q_s16(odd01, odd23)),
    };
    const uint8x16_t middle = vdupq_n_u8(128);
    for (int i = 0; i < 8; i += 2, to += 2 * stride) {
        int32x4_t first = fours[i % 4], second = fours[i % 4 + 1];
        int32x4_t two = i < 4 ? vuzp1q_s32(first, second) : vuzp2q_s32(first, second);
        uint8x16_t rows = veorq_u8(vreinterpretq_u8_s32(two), middle);
        vst1_u8(to, vget_low_u8(rows));
        vst1_u8(to + stride, vget_high_u8(rows));
    }
}

void
transform_neon(const Coded *blocks, int count)
{
    for (; count > 0; count--, blocks++) {
        int16x8_t c[8];
        for (int i = 0; i < 8; i++)
            c[i] = vmulq_s16(vld1q_s16(blocks->coefficients + 8 * i), vld1q_s16(blocks->quantum + 8 * i));
        /* Four times a coefficient of the first row must fit into 16 bits; in damaged images, it may not. */
        if (UNLIKELY(vmaxvq_u16(vreinterpretq_u16_s16(vaddq_s16(c[0], vdupq_n_s16(1 << 13)))) >= 1 << 14)) {
            transform_plain(blocks, 1);
            continue;
        }
        for (int i = 0; i < 8; i++)
            vst1q_s16(blocks->coefficients + 8 * i, vdupq_n_s16(0));
        pass_down(c);
        transpose(c);
        pass_across(c);
        store_columns(c, blocks->to, blocks->stride);
    }
}

/* Three times the nearer and once the farther sample. */
INLINE uint16x8_t
nearer(uint16x8_t farther, uint16x8_t near)
{
    return vmlaq_n_u16(farther, near, 3);
}

/* Divides sums by 16, for the even and the odd pixels; halves are rounded up in the former and down in the latter. */
INLINE uint8x8x2_t
sixteenths(uint16x8_t before, uint16x8_t sums, uint16x8_t after)
{
    uint8x8x2_t both = {{
        vrshrn_n_u16(nearer(before, sums), 4),
        vshrn_n_u16(vaddq_u16(nearer(after, sums), vdupq_n_u16(7)), 4),
    }};
    return both;
}

static void
widen_two_rows(const uint8_t *row, const uint8_t *other, uint8_t *to, ptrdiff_t count)
{
    const uint8x8_t three = vdup_n_u8(3);
    uint16x8_t before = vdupq_n_u16((uint16_t)(3 * row[-1] + other[-1]));
    uint16x8_t low = vmlal_u8(vmovl_u8(vld1_u8(other)), vld1_u8(row), three);
    for (ptrdiff_t i = 0; i < count; i += 16) {
        uint8x16_t near = vld1q_u8(row + i + 8), far = vld1q_u8(other + i + 8);
        uint16x8_t high = vmlal_u8(vmovl_u8(vget_low_u8(far)), vget_low_u8(near), three);
        uint16x8_t next = vmlal_high_u8(vmovl_high_u8(far), near, vcombine_u8(three, three));
        vst2_u8(to + 2 * i, sixteenths(vextq_u16(before, low, 7), low, vextq_u16(low, high, 1)));
        vst2_u8(to + 2 * i + 16, sixteenths(vextq_u16(low, high, 7), high, vextq_u16(high, next, 1)));
        before = high;
        low = next;
    }
}

static void
widen_row(const uint8_t *row, uint8_t *to, ptrdiff_t count)
{
    const uint8x16_t one = vdupq_n_u8(1), three = vdupq_n_u8(3);
    for (ptrdiff_t i = 0; i < count; i += 16) {
        uint8x16_t before = vld1q_u8(row + i - 1), samples = vld1q_u8(row + i), after = vld1q_u8(row + i + 1);
        uint16x8_t even = vaddl_u8(vget_low_u8(before), vget_low_u8(one)), even_high = vaddl_high_u8(before, one);
        uint16x8_t odd = vmovl_u8(vget_low_u8(after)), odd_high = vmovl_high_u8(after);
        even = vmlal_u8(even, vget_low_u8(samples), vget_low_u8(three));
        odd = vmlal_u8(odd, vget_low_u8(samples), vget_low_u8(three));
        even_high = vmlal_high_u8(even_high, samples, three);
        odd_high = vmlal_high_u8(odd_high, samples, three);
        uint8x16x2_t both = {{
            vshrn_high_n_u16(vshrn_n_u16(even, 2), even_high, 2), vrshrn_high_n_u16(vrshrn_n_u16(odd, 2), odd_high, 2),
        }};
        vst2q_u8(to + 2 * i, both);
    }
}

void
widen_neon(const uint8_t *row, const uint8_t *other, uint8_t *to, ptrdiff_t count)
{
    if (other != NULL)
        widen_two_rows(row, other, to, count);
    else
        widen_row(row, to, count);
}

typedef struct {
    int16x8_t red, green, blue; /* the numbers that are added to luma */
} Colours;

/* (2 * a * b + 2^15) >> 16, of factors times 2^15: see convert_avx2. */
INLINE Colours
colours_of(int16x8_t cb, int16x8_t cr)
{
    int32x4_t low = plus(times(cb, 0, -22554), cr, 0, 65536 - 46802);
    int32x4_t high = plus(times(cb, 1, -22554), cr, 1, 65536 - 46802);
    return (Colours){
        vaddq_s16(cr, vqrdmulhq_n_s16(cr, (91881 - 65536 + 1) / 2)),
        vsubq_s16(vrshrn_high_n_s32(vrshrn_n_s32(low, 16), high, 16), cr),
        vaddq_s16(vshlq_n_s16(cb, 1), vqrdmulhq_n_s16(cb, (116130 - 2 * 65536) / 2)),
    };
}

INLINE uint8x16_t
add_to(uint8x16_t luma, int16x8_t low, int16x8_t high)
{
    uint16x8_t first = vaddw_u8(vreinterpretq_u16_s16(low), vget_low_u8(luma));
    uint16x8_t second = vaddw_high_u8(vreinterpretq_u16_s16(high), luma);
    return vqmovun_high_s16(vqmovun_s16(vreinterpretq_s16_u16(first)), vreinterpretq_s16_u16(second));
}

void
convert_neon(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint8_t *to, ptrdiff_t count)
{
    const uint8x16_t middle = vdupq_n_u8(128);
    for (ptrdiff_t i = 0; i < count; i += 16, to += 64) {
        uint8x16_t y = vld1q_u8(luma + i), cb = vld1q_u8(blue + i), cr = vld1q_u8(red + i);
        Colours low = colours_of(vreinterpretq_s16_u16(vsubl_u8(vget_low_u8(cb), vget_low_u8(middle))),
                                 vreinterpretq_s16_u16(vsubl_u8(vget_low_u8(cr), vget_low_u8(middle))));
        Colours high = colours_of(vreinterpretq_s16_u16(vsubl_high_u8(cb, middle)),
                                  vreinterpretq_s16_u16(vsubl_high_u8(cr, middle)));
        uint8x16x4_t pixels = {{
            add_to(y, low.red, high.red), add_to(y, low.green, high.green), add_to(y, low.blue, high.blue), y,
        }};
        vst4q_u8(to, pixels);
    }
}

/* Bytes. */

enum { VECTOR = 16, TWO = 2 * VECTOR };

/* Returns the index of the first byte that is not 0; VECTOR if there is none. */
INLINE size_t
first_of(uint8x16_t found)
{
    uint8x8_t halves = vshrn_n_u16(vreinterpretq_u16_u8(found), 4); /* four bits a byte */
    uint64_t bits = vget_lane_u64(vreinterpret_u64_u8(halves), 0);
    return bits ? (size_t)__builtin_ctzll(bits) / 4 : VECTOR;
}

INLINE int
any(uint8x16_t first, uint8x16_t second)
{
    return vget_lane_u64(vreinterpret_u64_u8(vqmovn_u16(vreinterpretq_u16_u8(vorrq_u8(first, second)))), 0) != 0;
}

size_t
copy_run_neon(uint8_t *to, const uint8_t *from, size_t most, const uint8_t *stop)
{
    const uint8x16_t wanted = vdupq_n_u8(0xFF);
    size_t count = 0;
    for (; count + TWO <= most && stop - from >= TWO; count += TWO, from += TWO) {
        uint8x16_t first = vld1q_u8(from), second = vld1q_u8(from + VECTOR);
        vst1q_u8(to + count, first);
        vst1q_u8(to + count + VECTOR, second);
        first = vceqq_u8(first, wanted);
        second = vceqq_u8(second, wanted);
        if (any(first, second)) {
            size_t place = first_of(first);
            return count + (place < VECTOR ? place : VECTOR + first_of(second));
        }
    }
    return count + copy_run_plain(to + count, from, most - count, stop);
}

INLINE uint8x16_t
markers_in(const uint8_t *bytes)
{
    uint8x16_t after = vld1q_u8(bytes + 1);
    return vandq_u8(vceqq_u8(vld1q_u8(bytes), vdupq_n_u8(0xFF)), vtstq_u8(after, after));
}

const uint8_t *
find_marker_neon(const uint8_t *from, const uint8_t *stop)
{
    for (; stop - from > TWO; from += TWO) {
        uint8x16_t first = markers_in(from), second = markers_in(from + VECTOR);
        if (any(first, second)) {
            size_t place = first_of(first);
            return from + (place < VECTOR ? place : VECTOR + first_of(second));
        }
    }
    return find_marker_plain(from, stop);
}

void
expand_neon(const uint8_t *rgb, uint8_t *rgbx, ptrdiff_t count)
{
    ptrdiff_t done = 0;
    for (; done + VECTOR <= count; done += VECTOR) {
        uint8x16x3_t pixels = vld3q_u8(rgb + 3 * done);
        uint8x16x4_t apart = {{pixels.val[0], pixels.val[1], pixels.val[2], pixels.val[2]}};
        vst4q_u8(rgbx + 4 * done, apart);
    }
    expand_plain(rgb + 3 * done, rgbx + 4 * done, count - done);
}

/* Resizing. */

/* Multiplies four channels of two pixels by their weights, and adds them. */
INLINE int32x4_t
add_weighed(int32x4_t sums, uint16x8_t pixels, int16x4_t weights)
{
    int16x8_t two = vreinterpretq_s16_u16(pixels);
    return vmlal_high_lane_s16(vmlal_lane_s16(sums, vget_low_s16(two), weights, 0), two, weights, 1);
}

/* Returns the values of a column: for each channel, that of the upper row, then that of the lower row. */
INLINE int16x8_t
across_column(const uint8_t *upper, const uint8_t *lower, const int16_t *weights, ptrdiff_t tap_pairs, int32x4_t shift)
{
    int32x4_t above = vdupq_n_s32(0), below = above;
    ptrdiff_t pair = 0;
    for (; pair + 2 <= tap_pairs; pair += 2) {
        uint8x16_t pixels_above = vld1q_u8(upper + 8 * pair), pixels_below = vld1q_u8(lower + 8 * pair);
        int16x4_t first = vld1_s16(weights + 16 * pair), second = vld1_s16(weights + 16 * pair + 16);
        above = add_weighed(above, vmovl_u8(vget_low_u8(pixels_above)), first);
        below = add_weighed(below, vmovl_u8(vget_low_u8(pixels_below)), first);
        above = add_weighed(above, vmovl_high_u8(pixels_above), second);
        below = add_weighed(below, vmovl_high_u8(pixels_below), second);
    }
    if (pair < tap_pairs) {
        int16x4_t last = vld1_s16(weights + 16 * pair);
        above = add_weighed(above, vmovl_u8(vld1_u8(upper + 8 * pair)), last);
        below = add_weighed(below, vmovl_u8(vld1_u8(lower + 8 * pair)), last);
    }
    above = vrshlq_s32(above, shift); /* to the right, as the shift is negative */
    below = vrshlq_s32(below, shift);
    int16x8_t both = vtrn1q_s16(vreinterpretq_s16_s32(above), vreinterpretq_s16_s32(below));
    return vminq_s16(vmaxq_s16(both, vdupq_n_s16(0)), vdupq_n_s16(255));
}

/* Inlined, so that the number of pairs of pixels is a constant. */
INLINE void
across_columns(const Resizing *resizing, const uint8_t *upper, const uint8_t *lower, int16_t *to, ptrdiff_t tap_pairs)
{
    const int32x4_t shift = vdupq_n_s32(-resizing->column_precision);
    const int16_t *weights = resizing->column_weights;
    const int32_t *offsets = resizing->offsets, *end = offsets + resizing->columns;
    for (; offsets < end; offsets += 2, weights += 16 * tap_pairs, to += 12) {
        ptrdiff_t left = offsets[0], right = offsets[1];
        /* Six of the eight values count, and the next store replaces the others. */
        vst1q_s16(to, across_column(upper + left, lower + left, weights, tap_pairs, shift));
        vst1q_s16(to + 6, across_column(upper + right, lower + right, weights + 8, tap_pairs, shift));
    }
}

void
across_neon(const Resizing *resizing, const uint8_t *upper, const uint8_t *lower, int16_t *to)
{
    switch (resizing->tap_pairs) {
    case 1: across_columns(resizing, upper, lower, to, 1); break;
    case 2: across_columns(resizing, upper, lower, to, 2); break;
    case 3: across_columns(resizing, upper, lower, to, 3); break;
    default: across_columns(resizing, upper, lower, to, resizing->tap_pairs);
    }
}

/* Inlined, so that the number of pairs of rows is a constant. */
INLINE void
down_blocks(const Resizing *resizing, ptrdiff_t row, ptrdiff_t pairs)
{
    const int32x4_t shift = vdupq_n_s32(-resizing->row_precision);
    const int16_t *weights = resizing->row_weights + row * resizing->row_weights_step;
    uint8_t *out = resizing->out + row * resizing->width;
    ptrdiff_t first = resizing->rows[row].first, width = resizing->width, last = width > BLOCK ? width - BLOCK : 0;
    for (ptrdiff_t at = 0; at < width; at += BLOCK) {
        ptrdiff_t begin = at < last ? at : last; /* the last block ends with the row, and may overlap the one before */
        int32x4_t sums[BLOCK / 4];
        uint8_t bytes[BLOCK];
        uint8_t *to = width >= BLOCK ? out + begin : bytes;
        for (int i = 0; i < BLOCK / 4; i++)
            sums[i] = vdupq_n_s32(0);
        for (ptrdiff_t pair = 0; pair < pairs; pair++) {
            const int16_t *values = kept_pair(resizing, first + pair) + 2 * begin;
            int32_t two;
            memcpy(&two, weights + 2 * pair, sizeof two);
            int16x4_t weight = vreinterpret_s16_s32(vdup_n_s32(two));
            for (int i = 0; i < BLOCK / 4; i += 2, values += 16) {
                int16x8x2_t rows = vld2q_s16(values);
                sums[i] = vmlal_lane_s16(sums[i], vget_low_s16(rows.val[0]), weight, 0);
                sums[i + 1] = vmlal_high_lane_s16(sums[i + 1], rows.val[0], weight, 0);
                sums[i] = vmlal_lane_s16(sums[i], vget_low_s16(rows.val[1]), weight, 1);
                sums[i + 1] = vmlal_high_lane_s16(sums[i + 1], rows.val[1], weight, 1);
            }
        }
        for (int i = 0; i < BLOCK / 4; i += 4) {
            int16x8_t low = vuzp1q_s16(vreinterpretq_s16_s32(vrshlq_s32(sums[i], shift)),
                                       vreinterpretq_s16_s32(vrshlq_s32(sums[i + 1], shift)));
            int16x8_t high = vuzp1q_s16(vreinterpretq_s16_s32(vrshlq_s32(sums[i + 2], shift)),
                                        vreinterpretq_s16_s32(vrshlq_s32(sums[i + 3], shift)));
            vst1q_u8(to + 4 * i, vqmovun_high_s16(vqmovun_s16(low), high));
        }
        if (width < BLOCK)
            memcpy(out, bytes, (size_t)width);
    }
}

void
down_neon(const Resizing *resizing, ptrdiff_t row)
{
    switch (resizing->rows[row].count) {
    case 1: down_blocks(resizing, row, 1); break;
    case 2: down_blocks(resizing, row, 2); break;
    default: down_blocks(resizing, row, resizing->rows[row].count);
    }
}

INLINE uint8x16_t
mirrored(uint8x16_t values)
{
    uint8x16_t halves = vrev64q_u8(values);
    return vextq_u8(halves, halves, 8);
}

void
copy_neon(const uint8_t *rgbx, uint8_t *out, ptrdiff_t count, int flip)
{
    ptrdiff_t done = 0;
    for (; done + VECTOR <= count; done += VECTOR) {
        uint8x16x4_t pixels = vld4q_u8(rgbx + 4 * (flip ? count - VECTOR - done : done));
        uint8x16x3_t closer = {{pixels.val[0], pixels.val[1], pixels.val[2]}};
        for (int i = 0; flip && i < 3; i++)
            closer.val[i] = mirrored(closer.val[i]);
        vst3q_u8(out + 3 * done, closer);
    }
    copy_plain(flip ? rgbx : rgbx + 4 * done, out + 3 * done, count - done, flip);
}

/* Levels, and planes of one colour. */

static void
exchange_bytes(uint8_t *levels, ptrdiff_t count, const uint8_t *table)
{
    const uint8x16_t quarter = vdupq_n_u8(64);
    uint8x16x4_t quarters[4];
    ptrdiff_t at = 0;
    for (int i = 0; i < 4; i++)
        quarters[i] = vld1q_u8_x4(table + 64 * i);
    for (; at + VECTOR <= count; at += VECTOR) {
        uint8x16_t rest = vld1q_u8(levels + at), made = vqtbl4q_u8(quarters[0], rest);
        for (int i = 1; i < 4; i++) {
            rest = vsubq_u8(rest, quarter);
            made = vqtbx4q_u8(made, quarters[i], rest);
        }
        vst1q_u8(levels + at, made);
    }
    for (; at < count; at++)
        levels[at] = table[levels[at]];
}

void
exchange_neon(uint8_t *pixels, ptrdiff_t count, const uint8_t tables[3][LEVELS])
{
    exchange_by(exchange_bytes, pixels, count, tables);
}

void
split_neon(const uint8_t *pixels, ptrdiff_t count, uint8_t *red, uint8_t *green, uint8_t *blue)
{
    ptrdiff_t at = 0;
    for (; at + VECTOR <= count; at += VECTOR) {
        uint8x16x3_t levels = vld3q_u8(pixels + 3 * at);
        vst1q_u8(red + at, levels.val[0]);
        vst1q_u8(green + at, levels.val[1]);
        vst1q_u8(blue + at, levels.val[2]);
    }
    split_plain(pixels + 3 * at, count - at, red + at, green + at, blue + at);
}

void
join_neon(const uint8_t *red, const uint8_t *green, const uint8_t *blue, ptrdiff_t count, uint8_t *pixels)
{
    ptrdiff_t at = 0;
    for (; at + VECTOR <= count; at += VECTOR) {
        uint8x16x3_t levels = {{vld1q_u8(red + at), vld1q_u8(green + at), vld1q_u8(blue + at)}};
        vst3q_u8(pixels + 3 * at, levels);
    }
    join_plain(red + at, green + at, blue + at, count - at, pixels + 3 * at);
}
#endif
