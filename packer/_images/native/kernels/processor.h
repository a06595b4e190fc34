/* The vector instructions that an x86-64 processor has and its system lets programs use, read from both.

   __builtin_cpu_supports relies on the compiler's library, and the library of Zig, which builds the wheels, reports no
   instructions for any processor. */

#ifndef PACKER_PROCESSOR_H
#define PACKER_PROCESSOR_H

#include <cpuid.h>

typedef struct {
    unsigned carryless, crc32, avx2, avx512; /* see vectors.h for the instructions of each */
    unsigned slow_deposit;                   /* Zen 1 and 2 have a PDEP that takes hundreds of steps */
} Processor;

/* Returns which registers the system saves for programs, as the bits of XCR0. */
static inline unsigned
kept_registers(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Tells whether a processor has a slow PDEP, by its vendor (leaf 0) and family (leaf 1). */
static inline unsigned
has_slow_deposit_of(unsigned maker, unsigned signature)
{
    enum { AMD = 0x68747541, HYGON = 0x6F677948 }; /* the first letters of their names: Auth, Hygo */
    enum { ZEN_AND_ZEN_2 = 0x17, DHYANA = 0x18 };
    unsigned family = (signature >> 8 & 0xF) + (signature >> 20 & 0xFF);
    return (maker == AMD && family == ZEN_AND_ZEN_2) || (maker == HYGON && family == DHYANA);
}

static inline Processor
ask_processor(void)
{
    enum { PCLMUL = 1 << 1, FMA = 1 << 12, SSE42 = 1 << 20, OSXSAVE = 1 << 27 };                  /* leaf 1, ECX */
    enum { AVX = 1 << 28, F16C = 1 << 29 };
    enum { BMI = 1 << 3, AVX2_ = 1 << 5, BMI2 = 1 << 8, F = 1 << 16, DQ = 1 << 17, CD = 1 << 28, BW = 1 << 30 }; /* leaf 7, EBX */
    const unsigned vl = 1u << 31;
    enum { VBMI = 1 << 1, VBMI2 = 1 << 6, VNNI = 1 << 11 };                                                    /* leaf 7, ECX */
    enum { XMM_YMM = 0x06, OPMASK_ZMM = 0xE0 };
    unsigned a, b, c, d, kept, maker, wanted = FMA | SSE42 | OSXSAVE | AVX | F16C;
    Processor found = {0, 0, 0, 0, 0};
    if (!__get_cpuid(0, &a, &maker, &c, &d) || !__get_cpuid(1, &a, &b, &c, &d))
        return found;
    found.slow_deposit = has_slow_deposit_of(maker, a);
    found.carryless = (c & PCLMUL) != 0;
    found.crc32 = (c & SSE42) != 0;
    if ((c & wanted) != wanted)
        return found;
    kept = kept_registers();
    if ((kept & XMM_YMM) != XMM_YMM || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return found;
    wanted = BMI | AVX2_ | BMI2;
    found.avx2 = (b & wanted) == wanted;
    wanted = F | DQ | CD | BW | vl;
    found.avx512 = found.avx2 && (kept & OPMASK_ZMM) == OPMASK_ZMM && (b & wanted) == wanted
        && (c & (VBMI | VBMI2 | VNNI)) == (VBMI | VBMI2 | VNNI);
    return found;
}

#endif
