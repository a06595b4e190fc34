/* Forward DCT: converts samples to quantised coefficients, in plain C and for vectors; see kernels.h. */

#include "compilers.h"
#include "jpeg/zigzag.h"
#include "kernels/dct.h"
#include "kernels/kernels.h"

#include <string.h>

/* One pass over columns; see forward_dct.h. */
INLINE void
forward_plain(const int32_t *in, int32_t *out, int shift)
{
    const int32_t round = 1 << (shift - 1), is_first = shift == 11;
    for (int i = 0; i < 8; i++) { /* compilers vectorise this loop */
        int32_t s0 = in[i] + in[56 + i], s1 = in[8 + i] + in[48 + i], s2 = in[16 + i] + in[40 + i], s3 = in[24 + i] + in[32 + i];
        int32_t r0 = in[i] - in[56 + i], r1 = in[8 + i] - in[48 + i], r2 = in[16 + i] - in[40 + i], r3 = in[24 + i] - in[32 + i];
        int32_t e0 = s0 + s3, e1 = s1 + s2, e2 = s1 - s2, e3 = s0 - s3;
        out[i] = is_first ? (e0 + e1) * 4 : (e0 + e1 + 2) >> 2;
        out[32 + i] = is_first ? (e0 - e1) * 4 : (e0 - e1 + 2) >> 2;
        out[16 + i] = (e3 * (F_0_541 + F_0_765) + e2 * F_0_541 + round) >> shift;
        out[48 + i] = (e3 * F_0_541 + e2 * (F_0_541 - F_1_847) + round) >> shift;
        int32_t r13 = r1 + r3, r02 = r0 + r2;
        int32_t z3 = r13 * (F_1_175 - F_1_961) + r02 * F_1_175 + round, z4 = r13 * F_1_175 + r02 * (F_1_175 - F_0_390) + round;
        out[56 + i] = (r3 * (F_0_298 - F_0_899) - r0 * F_0_899 + z3) >> shift;
        out[8 + i] = (r0 * (F_1_501 - F_0_899) - r3 * F_0_899 + z4) >> shift;
        out[40 + i] = (r2 * (F_2_053 - F_2_562) - r1 * F_2_562 + z4) >> shift;
        out[24 + i] = (r1 * (F_3_072 - F_2_562) - r2 * F_2_562 + z3) >> shift;
    }
}

static uint64_t
code_block(const uint8_t *samples, ptrdiff_t stride, const Divisors *divisors, CodedBlock *block)
{
    int32_t in[64], out[64];
    int16_t quantised[64];
    uint64_t mask = 0;
    for (int i = 0; i < 64; i++)
        in[i % 8 * 8 + i / 8] = samples[i / 8 * stride + i % 8] - 128;
    forward_plain(in, out, 11);
    for (int i = 0; i < 64; i++)
        in[i % 8 * 8 + i / 8] = out[i];
    forward_plain(in, out, 15);
    for (int i = 0; i < 64; i++) {
        uint32_t size = (uint32_t)(out[i] < 0 ? -out[i] : out[i]) + divisors->half[i];
        size = (size * divisors->reciprocal[i] >> 16) * divisors->scale[i] >> 16;
        quantised[i] = (int16_t)(out[i] < 0 ? -(int32_t)size : (int32_t)size);
    }
    for (int i = 0; i < 64; i++) {
        block->coefficients[i] = quantised[zigzag[i]];
        mask |= (uint64_t)(block->coefficients[i] != 0) << i;
    }
    return mask;
}

void
code_blocks_plain(const FourBlocks *fours, ptrdiff_t count, CodedBlock *blocks, uint64_t *masks)
{
    for (; count > 0; count--, fours++) {
        for (int i = 0; i < 4; i++) {
            const uint8_t *samples = (i < 2 ? fours->two : fours->others) + i % 2 * 8;
            const int place = fours->places[i];
            masks[place] = code_block(samples, fours->stride, fours->divisors, &blocks[place]);
        }
    }
}

#if HAS_AVX2
#define V __m256i
#define OP(name) _mm256_##name
#define NAME(name) name##_avx2
#define SHAPE AVX2_INLINE
#define XOR _mm256_xor_si256
#define SUM(more, pairs, factors) _mm256_add_epi32(more, _mm256_madd_epi16(pairs, factors))
#define EACH(at) _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(at)))
#include "kernels/forward_dct.h"
#undef V
#undef OP
#undef NAME
#undef SHAPE
#undef XOR
#undef SUM
#undef EACH

#define BYTES(at) (char)((at) < 0 ? -1 : 2 * (at)), (char)((at) < 0 ? -1 : 2 * (at) + 1)
#define PICK(row, a, b, c, d, e, f, g, h) \
    _mm256_shuffle_epi8(r[row], _mm256_broadcastsi128_si256(_mm_setr_epi8( \
        BYTES(a), BYTES(b), BYTES(c), BYTES(d), BYTES(e), BYTES(f), BYTES(g), BYTES(h))))

/* Puts the coefficients of two blocks in zigzag order. Each vector has an eighth of both, picked from rows. */
AVX2_INLINE void
zigzag_avx2(const __m256i r[8], __m256i z[8])
{
    z[0] = PICK(0, 0, 1, -1, -1, -1, 2, 3, -1);
    z[0] = _mm256_or_si256(z[0], PICK(1, -1, -1, 0, -1, 1, -1, -1, 2));
    z[0] = _mm256_or_si256(z[0], PICK(2, -1, -1, -1, 0, -1, -1, -1, -1));
    z[1] = PICK(0, -1, -1, -1, -1, -1, -1, 4, 5);
    z[1] = _mm256_or_si256(z[1], PICK(1, -1, -1, -1, -1, -1, 3, -1, -1));
    z[1] = _mm256_or_si256(z[1], PICK(2, 1, -1, -1, -1, 2, -1, -1, -1));
    z[1] = _mm256_or_si256(z[1], PICK(3, -1, 0, -1, 1, -1, -1, -1, -1));
    z[1] = _mm256_or_si256(z[1], PICK(4, -1, -1, 0, -1, -1, -1, -1, -1));
    z[2] = PICK(1, 4, -1, -1, -1, -1, -1, -1, -1);
    z[2] = _mm256_or_si256(z[2], PICK(2, -1, 3, -1, -1, -1, -1, -1, -1));
    z[2] = _mm256_or_si256(z[2], PICK(3, -1, -1, 2, -1, -1, -1, -1, -1));
    z[2] = _mm256_or_si256(z[2], PICK(4, -1, -1, -1, 1, -1, -1, -1, 2));
    z[2] = _mm256_or_si256(z[2], PICK(5, -1, -1, -1, -1, 0, -1, 1, -1));
    z[2] = _mm256_or_si256(z[2], PICK(6, -1, -1, -1, -1, -1, 0, -1, -1));
    z[3] = PICK(0, -1, -1, -1, 6, 7, -1, -1, -1);
    z[3] = _mm256_or_si256(z[3], PICK(1, -1, -1, 5, -1, -1, 6, -1, -1));
    z[3] = _mm256_or_si256(z[3], PICK(2, -1, 4, -1, -1, -1, -1, 5, -1));
    z[3] = _mm256_or_si256(z[3], PICK(3, 3, -1, -1, -1, -1, -1, -1, 4));
    z[4] = PICK(4, 3, -1, -1, -1, -1, -1, -1, 4);
    z[4] = _mm256_or_si256(z[4], PICK(5, -1, 2, -1, -1, -1, -1, 3, -1));
    z[4] = _mm256_or_si256(z[4], PICK(6, -1, -1, 1, -1, -1, 2, -1, -1));
    z[4] = _mm256_or_si256(z[4], PICK(7, -1, -1, -1, 0, 1, -1, -1, -1));
    z[5] = PICK(1, -1, -1, 7, -1, -1, -1, -1, -1);
    z[5] = _mm256_or_si256(z[5], PICK(2, -1, 6, -1, 7, -1, -1, -1, -1));
    z[5] = _mm256_or_si256(z[5], PICK(3, 5, -1, -1, -1, 6, -1, -1, -1));
    z[5] = _mm256_or_si256(z[5], PICK(4, -1, -1, -1, -1, -1, 5, -1, -1));
    z[5] = _mm256_or_si256(z[5], PICK(5, -1, -1, -1, -1, -1, -1, 4, -1));
    z[5] = _mm256_or_si256(z[5], PICK(6, -1, -1, -1, -1, -1, -1, -1, 3));
    z[6] = PICK(3, -1, -1, -1, -1, -1, 7, -1, -1);
    z[6] = _mm256_or_si256(z[6], PICK(4, -1, -1, -1, -1, 6, -1, 7, -1));
    z[6] = _mm256_or_si256(z[6], PICK(5, -1, -1, -1, 5, -1, -1, -1, 6));
    z[6] = _mm256_or_si256(z[6], PICK(6, -1, -1, 4, -1, -1, -1, -1, -1));
    z[6] = _mm256_or_si256(z[6], PICK(7, 2, 3, -1, -1, -1, -1, -1, -1));
    z[7] = PICK(5, -1, -1, -1, -1, 7, -1, -1, -1);
    z[7] = _mm256_or_si256(z[7], PICK(6, 5, -1, -1, 6, -1, 7, -1, -1));
    z[7] = _mm256_or_si256(z[7], PICK(7, -1, 4, 5, -1, -1, -1, 6, 7));
}

/* Codes two blocks that lie side by side. */
AVX2_INLINE void
code_two_avx2(const uint8_t *samples, ptrdiff_t stride, const Divisors *divisors, int16_t *first, int16_t *second,
              uint64_t masks[2])
{
    __m256i r[8], z[8];
    uint64_t zeros[2] = {0, 0};
    for (int i = 0; i < 8; i++)
        r[i] = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(samples + i * stride)));
    quantised_avx2(r, divisors);
    zigzag_avx2(r, z);
    for (int i = 0; i < 8; i++) {
        _mm_storeu_si128((__m128i *)(void *)(first + 8 * i), _mm256_castsi256_si128(z[i]));
        _mm_storeu_si128((__m128i *)(void *)(second + 8 * i), _mm256_extracti128_si256(z[i], 1));
    }
    for (int i = 0; i < 4; i++) {
        __m256i bytes = _mm256_packs_epi16(z[2 * i], z[2 * i + 1]);
        uint32_t found = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_setzero_si256()));
        zeros[0] |= (uint64_t)(found & 0xFFFF) << 16 * i;
        zeros[1] |= (uint64_t)(found >> 16) << 16 * i;
    }
    masks[0] = ~zeros[0];
    masks[1] = ~zeros[1];
}

AVX2 void
code_blocks_avx2(const FourBlocks *fours, ptrdiff_t count, CodedBlock *blocks, uint64_t *masks)
{
    for (ptrdiff_t i = 0; i < 2 * count; i++) {
        const FourBlocks *four = fours + i / 2;
        const uint8_t *places = four->places + i % 2 * 2;
        uint64_t found[2];
        code_two_avx2(i % 2 ? four->others : four->two, four->stride, four->divisors, blocks[places[0]].coefficients,
                      blocks[places[1]].coefficients, found);
        masks[places[0]] = found[0];
        masks[places[1]] = found[1];
    }
}
#endif

#if HAS_AVX512
#define V __m512i
#define OP(name) _mm512_##name
#define NAME(name) name##_avx512
#define SHAPE AVX512_INLINE
#define XOR _mm512_xor_si512
#define SUM(more, pairs, factors) _mm512_dpwssd_epi32(more, pairs, factors)
#define EACH(at) _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)(at)))
#include "kernels/forward_dct.h"

/* Exchanges quarters of vectors: each input has one row of four blocks, each output has four rows of one block. */
AVX512_INLINE void
rows_of_blocks(const __m512i r[4], __m512i blocks[4])
{
    __m512i a = _mm512_shuffle_i32x4(r[0], r[1], 0x44), b = _mm512_shuffle_i32x4(r[0], r[1], 0xEE);
    __m512i c = _mm512_shuffle_i32x4(r[2], r[3], 0x44), d = _mm512_shuffle_i32x4(r[2], r[3], 0xEE);
    blocks[0] = _mm512_shuffle_i32x4(a, c, 0x88);
    blocks[1] = _mm512_shuffle_i32x4(a, c, 0xDD);
    blocks[2] = _mm512_shuffle_i32x4(b, d, 0x88);
    blocks[3] = _mm512_shuffle_i32x4(b, d, 0xDD);
}

AVX512 void
code_blocks_avx512(const FourBlocks *fours, ptrdiff_t count, CodedBlock *blocks, uint64_t *masks)
{
    const __m512i first = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)zigzag));
    const __m512i second = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(zigzag + 32)));
    for (; count > 0; count--, fours++) {
        __m512i r[8], above[4], below[4];
        for (int i = 0; i < 8; i++) {
            const __m128i *two = (const __m128i *)(const void *)(fours->two + i * fours->stride);
            const __m128i *others = (const __m128i *)(const void *)(fours->others + i * fours->stride);
            __m256i row = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(two)), _mm_loadu_si128(others), 1);
            r[i] = _mm512_cvtepu8_epi16(row);
        }
        quantised_avx512(r, fours->divisors);
        rows_of_blocks(r, above);
        rows_of_blocks(r + 4, below);
        for (int i = 0; i < 4; i++) {
            __m512i low = _mm512_permutex2var_epi16(above[i], first, below[i]);
            __m512i high = _mm512_permutex2var_epi16(above[i], second, below[i]);
            int16_t *to = blocks[fours->places[i]].coefficients;
            _mm512_storeu_si512(to, low);
            _mm512_storeu_si512(to + 32, high);
            masks[fours->places[i]] = _mm512_test_epi16_mask(low, low) | (uint64_t)_mm512_test_epi16_mask(high, high) << 32;
        }
    }
}
#endif
