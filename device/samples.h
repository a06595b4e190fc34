/* Computes samples from coefficients, with exactly the results of libjpeg-turbo's "slow" integer inverse DCT; see transform_block
   in packer/_images/native/kernels/jpeg_kernels.c. A thread transforms a block of 8 x 8 at a time. */

#ifndef DEVICE_SAMPLES_H
#define DEVICE_SAMPLES_H

#include "layout.h"

enum { SAMPLE_THREADS = 128 };

enum { /* by Loeffler, Ligtenberg and Moschytz, 1989: round(x * 2^13) */
    F_0_298 = 2446, F_0_390 = 3196, F_0_541 = 4433, F_0_765 = 6270, F_0_899 = 7373, F_1_175 = 9633, F_1_501 = 12299,
    F_1_847 = 15137, F_1_961 = 16069, F_2_053 = 16819, F_2_562 = 20995, F_3_072 = 25172
};

typedef struct {
    int32_t at[8];
} Eight;

/* One pass over eight 16-bit numbers. Some sums have 16 bits, and wrap around. */
FUNCTION Eight
transformed(Eight in)
{
    const int32_t c1 = in.at[1], c2 = in.at[2], c3 = in.at[3], c5 = in.at[5], c6 = in.at[6], c7 = in.at[7];
    const int32_t even0 = times((int16_t)plus(in.at[0], in.at[4]), 1 << 13);
    const int32_t even1 = times((int16_t)minus(in.at[0], in.at[4]), 1 << 13);
    const int32_t even2 = plus(times(c2, F_0_541 + F_0_765), times(c6, F_0_541));
    const int32_t even3 = plus(times(c2, F_0_541), times(c6, F_0_541 - F_1_847));
    const int32_t c15 = (int16_t)plus(c1, c5), c37 = (int16_t)plus(c3, c7);
    const int32_t z3 = plus(times(c37, F_1_175 - F_1_961), times(c15, F_1_175));
    const int32_t z4 = plus(times(c37, F_1_175), times(c15, F_1_175 - F_0_390));
    const int32_t odd0 = plus(plus(times(c1, F_1_501 - F_0_899), times(c7, -F_0_899)), z4);
    const int32_t odd1 = plus(plus(times(c3, F_3_072 - F_2_562), times(c5, -F_2_562)), z3);
    const int32_t odd2 = plus(plus(times(c5, F_2_053 - F_2_562), times(c3, -F_2_562)), z4);
    const int32_t odd3 = plus(plus(times(c7, F_0_298 - F_0_899), times(c1, -F_0_899)), z3);
    Eight out;
    out.at[0] = plus(plus(even0, even2), odd0);
    out.at[1] = plus(plus(even1, even3), odd1);
    out.at[2] = plus(minus(even1, even3), odd2);
    out.at[3] = plus(minus(even0, even2), odd3);
    out.at[4] = minus(minus(even0, even2), odd3);
    out.at[5] = minus(minus(even1, even3), odd2);
    out.at[6] = minus(plus(even1, even3), odd1);
    out.at[7] = minus(plus(even0, even2), odd0);
    return out;
}

FUNCTION int32_t
half_of(const Words *words, int32_t i)
{
    return (int16_t)(words->at[i / 2] >> 16 * (i % 2));
}

/* Computes the samples of a block. `quantum` is ordered column by column, like the coefficients. */
FUNCTION void
transform_block(const uint32_t *RESTRICT coefficients, const uint32_t *RESTRICT quantum, uint32_t *RESTRICT to, uint32_t stride)
{
    Eight columns[8];
    uint32_t others = 0; /* coefficients below the first row */
    UNROLLED
    for (int32_t x = 0; x < 8; x++) {
        const Words own = load_words(coefficients + 4 * x), factors = load_words(quantum + 4 * x);
        others |= (own.at[0] & 0xFFFF0000u) | own.at[1] | own.at[2] | own.at[3];
        UNROLLED
        for (int32_t y = 0; y < 8; y++)
            columns[x].at[y] = (int16_t)times(half_of(&own, y), half_of(&factors, y));
    }
    if (others) {
        UNROLLED
        for (int32_t x = 0; x < 8; x++) {
            columns[x] = transformed(columns[x]);
            UNROLLED
            for (int32_t y = 0; y < 8; y++)
                columns[x].at[y] = bounded(plus(columns[x].at[y], 1 << 10) >> 11, -32768, 32767);
        }
    } else { /* differs only for coefficients that no image has */
        UNROLLED
        for (int32_t x = 0; x < 8; x++) {
            const int32_t first = (int16_t)times(columns[x].at[0], 4);
            UNROLLED
            for (int32_t y = 0; y < 8; y++)
                columns[x].at[y] = first;
        }
    }
    UNROLLED
    for (int32_t y = 0; y < 8; y++) {
        Eight row;
        UNROLLED
        for (int32_t x = 0; x < 8; x++)
            row.at[x] = columns[x].at[y];
        row = transformed(row);
        uint32_t low = 0, high = 0;
        UNROLLED
        for (int32_t x = 0; x < 4; x++) {
            low |= (uint32_t)(bounded(plus(row.at[x], 1 << 17) >> 18, -128, 127) + 128) << 8 * x;
            high |= (uint32_t)(bounded(plus(row.at[4 + x], 1 << 17) >> 18, -128, 127) + 128) << 8 * x;
        }
        store_two(to, low, high);
        to += stride;
    }
}

/* Transforms every `step`-th block of an image, from block `number` on; blocks are numbered over all components. */
FUNCTION void
transform_blocks(const Image *image, const uint32_t *RESTRICT quanta, const uint32_t *RESTRICT coefficients,
                 uint32_t *RESTRICT samples, uint32_t number, uint32_t step)
{
    uint32_t before = 0;
    for (int32_t i = 0; i < image->count; i++) {
        const Component *c = &image->components[i];
        const uint32_t blocks = (uint32_t)c->blocks, count = blocks * (uint32_t)(image->rows * c->down);
        for (; number < before + count; number += step) {
            const uint32_t own = number - before, row = own / blocks, column = own - row * blocks;
            const uint32_t stride = (uint32_t)c->stride / 4, to = c->plane / 4 + row * 8 * stride + column * 2;
            transform_block(coefficients + 32 * (c->coefficients + own), quanta + 32 * i, samples + to, stride);
        }
        before += count;
    }
}

KERNEL(idct, SAMPLE_THREADS, 4, const Image *RESTRICT images, const uint32_t *RESTRICT quanta,
       const uint32_t *RESTRICT coefficients, uint32_t *RESTRICT samples, uint32_t share)
{
    GRID {
        LAST_PHASE(transform_blocks(images + block_y, quanta + 32 * COMPONENTS * block_y, coefficients, samples,
                                    block_x * threads + thread, share * threads));
    }
}

#endif
