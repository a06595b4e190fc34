/* Which vectors the compiler and the processor know. */

#ifndef PACKER_VECTORS_H
#define PACKER_VECTORS_H

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(PACKER_PLAIN)
#include <immintrin.h>
#define HAS_AVX2 1
#define AVX2 __attribute__((target("avx2,bmi,bmi2")))
#define AVX2_INLINE __attribute__((target("avx2,bmi,bmi2"), always_inline)) static inline
#else
#define HAS_AVX2 0
#endif

static inline int
has_avx2(void)
{
#if HAS_AVX2
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
#else
    return 0;
#endif
}

#endif
