/* Hints to the compiler that are not part of standard C. */

#ifndef PACKER_COMPILERS_H
#define PACKER_COMPILERS_H

#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define INLINE static inline __attribute__((always_inline))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#else
#define INLINE static inline
#define UNLIKELY(condition) (condition)
#endif

/* Reads 8 bytes as a big-endian number. */
INLINE uint64_t
next_bits(const uint8_t *at)
{
#if defined(__GNUC__) || defined(__clang__)
    uint64_t word;
    memcpy(&word, at, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
#else
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word = word << 8 | at[i];
#endif
    return word;
}

/* Writes a number as 8 big-endian bytes. */
INLINE void
put_bits(uint8_t *to, uint64_t bits)
{
#if defined(__GNUC__) || defined(__clang__)
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    bits = __builtin_bswap64(bits);
#endif
    memcpy(to, &bits, 8);
#else
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(bits >> (56 - 8 * i));
#endif
}

/* Returns how many bits are 1. */
INLINE int
count_ones(uint64_t bits)
{
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_popcountll(bits);
#else
    int count = 0;
    for (; bits; bits &= bits - 1)
        count++;
    return count;
#endif
}

/* Returns the number of zeros above the highest bit that is 1. `bits` must not be 0. */
INLINE int
leading_zeros(uint64_t bits)
{
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_clzll(bits);
#else
    int count = 0;
    for (; !(bits >> 63); bits <<= 1)
        count++;
    return count;
#endif
}

/* Returns the number of zeros below the lowest bit that is 1. `bits` must not be 0. */
INLINE int
trailing_zeros(uint64_t bits)
{
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_ctzll(bits);
#else
    int count = 0;
    for (; !(bits & 1); bits >>= 1)
        count++;
    return count;
#endif
}

#endif
