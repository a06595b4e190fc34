/* Which vectors the compiler and the processor know. */

#ifndef PACKER_VECTORS_H
#define PACKER_VECTORS_H

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(PACKER_PLAIN)
#include <immintrin.h>
#define HAS_AVX2 1
#define AVX2 __attribute__((target("avx2,bmi,bmi2")))
#define AVX2_INLINE __attribute__((target("avx2,bmi,bmi2"), always_inline)) static inline
#define CARRYLESS __attribute__((target("sse2,pclmul")))
#if defined(__apple_build_version__) ? __clang_major__ >= 15 : defined(__clang__) ? __clang_major__ >= 14 : __GNUC__ >= 11
#define CRC32 __attribute__((target("sse4.2,crc32"))) /* which is a part of SSE 4.2, and with some flags is not */
#else
#define CRC32 __attribute__((target("sse4.2")))
#endif
#else
#define HAS_AVX2 0
#endif

/* Of AVX-512 what Ice Lake and Zen 4 know, which are not slowed down by it as processors before them were. */
#if defined(__apple_build_version__)
#define KNOWS_AVX512 (__clang_major__ >= 11)
#elif defined(__clang__)
#define KNOWS_AVX512 (__clang_major__ >= 7)
#else
#define KNOWS_AVX512 (__GNUC__ >= 8)
#endif
#if HAS_AVX2 && KNOWS_AVX512 && !defined(PACKER_NO_AVX512)
#define HAS_AVX512 1
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,bmi,bmi2")))
#define AVX512_INLINE \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,bmi,bmi2"), always_inline)) static inline
#else
#define HAS_AVX512 0
#endif

static inline int
has_avx2(void)
{
#if HAS_AVX2
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")
        && __builtin_cpu_supports("sse4.2");
#else
    return 0;
#endif
}

static inline int
has_avx512(void)
{
#if HAS_AVX512
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
        && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
#else
    return 0;
#endif
}

#endif
