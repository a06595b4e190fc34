/* The forward DCT and quantisation of blocks, each in 128 bits of a vector; block_kernels.c includes this file once for
   each vector type.

   OP is the prefix of the instructions, V the vector type, SHAPE precedes the declaration of a function, NAME makes its
   name, and SUM adds products of pairs. */

/* Transposes each block. */
SHAPE void
NAME(transpose)(V r[8])
{
    V a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = OP(unpacklo_epi16)(r[2 * i], r[2 * i + 1]);
        a[2 * i + 1] = OP(unpackhi_epi16)(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        b[i] = OP(unpacklo_epi32)(a[i], a[i + 2]);
        b[i + 1] = OP(unpackhi_epi32)(a[i], a[i + 2]);
        b[i + 2] = OP(unpacklo_epi32)(a[i + 1], a[i + 3]);
        b[i + 3] = OP(unpackhi_epi32)(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        r[2 * i] = OP(unpacklo_epi64)(b[i], b[i + 4]);
        r[2 * i + 1] = OP(unpackhi_epi64)(b[i], b[i + 4]);
    }
}

typedef struct { /* pairs of 16-bit numbers, or their sums: of the lower and the upper four columns in each 128 bits */
    V low, high;
} NAME(Pairs);

SHAPE NAME(Pairs)
NAME(pairs)(V first, V second)
{
    return (NAME(Pairs)){OP(unpacklo_epi16)(first, second), OP(unpackhi_epi16)(first, second)};
}

SHAPE NAME(Pairs)
NAME(sums)(NAME(Pairs) pairs, int first, int second, NAME(Pairs) more)
{
    const V factors = OP(set1_epi32)((int)((uint32_t)(uint16_t)first | (uint32_t)(uint16_t)second << 16));
    return (NAME(Pairs)){SUM(more.low, pairs.low, factors), SUM(more.high, pairs.high, factors)};
}

SHAPE V
NAME(rounded)(NAME(Pairs) pairs, int first, int second, NAME(Pairs) more, int shift)
{
    NAME(Pairs) sums = NAME(sums)(pairs, first, second, more);
    return OP(packs_epi32)(OP(srai_epi32)(sums.low, shift), OP(srai_epi32)(sums.high, shift));
}

/* One pass over columns, with the results of libjpeg-turbo's slow integer DCT to the bit. The first pass leaves two bits
   after the binary point, and subtracts 128 from each sample. */
SHAPE void
NAME(forward_pass)(V r[8], int is_first)
{
    const int shift = is_first ? 11 : 15;
    const V round = OP(set1_epi32)(1 << (shift - 1));
    const NAME(Pairs) begin = {round, round};
    V sum[4], rest[4];
    for (int i = 0; i < 4; i++) {
        sum[i] = OP(add_epi16)(r[i], r[7 - i]);
        rest[i] = OP(sub_epi16)(r[i], r[7 - i]); /* libjpeg numbers these from the other end */
    }
    V even0 = OP(add_epi16)(sum[0], sum[3]), even3 = OP(sub_epi16)(sum[0], sum[3]);
    V even1 = OP(add_epi16)(sum[1], sum[2]), even2 = OP(sub_epi16)(sum[1], sum[2]);
    if (is_first) {
        r[0] = OP(slli_epi16)(OP(sub_epi16)(OP(add_epi16)(even0, even1), OP(set1_epi16)(8 * 128)), 2);
        r[4] = OP(slli_epi16)(OP(sub_epi16)(even0, even1), 2);
    } else {
        even0 = OP(add_epi16)(even0, OP(set1_epi16)(2));
        r[0] = OP(srai_epi16)(OP(add_epi16)(even0, even1), 2);
        r[4] = OP(srai_epi16)(OP(sub_epi16)(even0, even1), 2);
    }
    NAME(Pairs) even = NAME(pairs)(even3, even2);
    r[2] = NAME(rounded)(even, F_0_541 + F_0_765, F_0_541, begin, shift);
    r[6] = NAME(rounded)(even, F_0_541, F_0_541 - F_1_847, begin, shift);
    NAME(Pairs) both = NAME(pairs)(OP(add_epi16)(rest[3], rest[1]), OP(add_epi16)(rest[2], rest[0]));
    NAME(Pairs) z3 = NAME(sums)(both, F_1_175 - F_1_961, F_1_175, begin);
    NAME(Pairs) z4 = NAME(sums)(both, F_1_175, F_1_175 - F_0_390, begin);
    NAME(Pairs) outer = NAME(pairs)(rest[3], rest[0]), inner = NAME(pairs)(rest[2], rest[1]);
    r[7] = NAME(rounded)(outer, F_0_298 - F_0_899, -F_0_899, z3, shift);
    r[1] = NAME(rounded)(outer, -F_0_899, F_1_501 - F_0_899, z4, shift);
    r[5] = NAME(rounded)(inner, F_2_053 - F_2_562, -F_2_562, z4, shift);
    r[3] = NAME(rounded)(inner, -F_2_562, F_3_072 - F_2_562, z3, shift);
}

/* Converts samples, row by row, to quantised coefficients. */
SHAPE void
NAME(quantised)(V r[8], const Divisors *divisors)
{
    NAME(transpose)(r);
    NAME(forward_pass)(r, 1);
    NAME(transpose)(r);
    NAME(forward_pass)(r, 0);
    for (int i = 0; i < 8; i++) {
        const V sign = OP(srai_epi16)(r[i], 15), half = EACH(divisors->half + 8 * i);
        V size = OP(mulhi_epu16)(OP(add_epi16)(OP(abs_epi16)(r[i]), half), EACH(divisors->reciprocal + 8 * i));
        size = OP(mulhi_epu16)(size, EACH(divisors->scale + 8 * i));
        r[i] = OP(sub_epi16)(XOR(size, sign), sign);
    }
}
