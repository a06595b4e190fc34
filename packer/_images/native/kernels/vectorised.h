/* Macros that compile one function body several times: in plain C, and for each vector type of the processors. */

#ifndef PACKER_VECTORISED_H
#define PACKER_VECTORISED_H

#include "compilers.h"
#include "kernels/kernels.h"
#include "kernels/vectors.h"

/* Defines `name`, which does the same as the INLINE function `body`, with vectors if the processor has them. fmaf is
   then one instruction. */
#if HAS_AVX512
#define VECTORISED(name, body, parameters, arguments) \
    AVX512 static void name##_avx512 parameters { body arguments; } \
    AVX2_FMA static void name##_avx2 parameters { body arguments; } \
    static void name parameters \
    { \
        if (kernels->has_avx512) \
            name##_avx512 arguments; \
        else if (kernels->has_avx2) \
            name##_avx2 arguments; \
        else \
            body arguments; \
    }
#elif HAS_AVX2
#define VECTORISED(name, body, parameters, arguments) \
    AVX2_FMA static void name##_avx2 parameters { body arguments; } \
    static void name parameters \
    { \
        if (kernels->has_avx2) \
            name##_avx2 arguments; \
        else \
            body arguments; \
    }
#else
#define VECTORISED(name, body, parameters, arguments) \
    static void name parameters { body arguments; }
#endif

#endif
