/* The vector types that the compiler and the processor support. */

#ifndef PACKER_VECTORS_H
#define PACKER_VECTORS_H

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(PACKER_PLAIN)
#include "kernels/processor.h"
#include <immintrin.h>
#define HAS_AVX2 1
#define AVX2 __attribute__((target("avx2,bmi,bmi2")))
#define AVX2_INLINE __attribute__((target("avx2,bmi,bmi2"), always_inline)) static inline
#define AVX2_FMA __attribute__((target("avx2,fma,f16c,bmi,bmi2")))
#define AVX2_FMA_INLINE __attribute__((target("avx2,fma,f16c,bmi,bmi2"), always_inline)) static inline
#define CARRYLESS __attribute__((target("sse2,pclmul")))
#else
#define HAS_AVX2 0
#endif

/* Each 64-bit ARM processor has NEON. */
#if defined(__aarch64__) && defined(__AARCH64EL__) && (defined(__GNUC__) || defined(__clang__)) && !defined(PACKER_PLAIN)
#define HAS_NEON 1
#else
#define HAS_NEON 0
#endif

/* Instructions for CRC-32C, and on ARM for CRC-32. An older ARM processor may lack them, and an older compiler the intrinsics
   for them. */
#if HAS_AVX2
#define HAS_CRC32 1
#if defined(__apple_build_version__) ? __clang_major__ >= 15 : defined(__clang__) ? __clang_major__ >= 14 : __GNUC__ >= 11
#define CRC32 __attribute__((target("sse4.2,crc32"))) /* with some flags, SSE 4.2 does not include it */
#else
#define CRC32 __attribute__((target("sse4.2")))
#endif
#elif HAS_NEON && (defined(__ARM_FEATURE_CRC32) || (defined(__clang__) ? __clang_major__ >= 16 : __GNUC__ >= 9))
#include <arm_acle.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#define HAS_CRC32 1
#define CRC32 __attribute__((target("+crc")))
#else
#define HAS_CRC32 0
#endif

/* The part of AVX-512 that Ice Lake and Zen 4 have. It does not slow them down, as it did earlier processors. */
#if defined(__apple_build_version__)
#define KNOWS_AVX512 (__clang_major__ >= 11)
#elif defined(__clang__)
#define KNOWS_AVX512 (__clang_major__ >= 7)
#else
#define KNOWS_AVX512 (__GNUC__ >= 9)
#endif
#if HAS_AVX2 && KNOWS_AVX512 && !defined(PACKER_NO_AVX512)
#define HAS_AVX512 1
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2,bmi,bmi2,popcnt")))
#define AVX512_INLINE \
    __attribute__((target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2,bmi,bmi2,popcnt"), always_inline)) static inline
#else
#define HAS_AVX512 0
#endif

static inline int
has_avx2(void)
{
#if HAS_AVX2
    return ask_processor().avx2 != 0;
#else
    return 0;
#endif
}

static inline int
has_slow_deposit(void)
{
#if HAS_AVX2
    return ask_processor().slow_deposit != 0;
#else
    return 0;
#endif
}

static inline int
has_carryless(void)
{
#if HAS_AVX2
    return ask_processor().carryless != 0;
#else
    return 0;
#endif
}

static inline int
has_avx512(void)
{
#if HAS_AVX512
    return ask_processor().avx512 != 0;
#else
    return 0;
#endif
}

static inline int
has_crc32(void)
{
#if HAS_AVX2
    return ask_processor().crc32 != 0;
#elif HAS_CRC32 && defined(__ARM_FEATURE_CRC32) /* compiled for processors that have them, such as Apple's */
    return 1;
#elif HAS_CRC32 && defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
    return 0;
#endif
}

#endif
