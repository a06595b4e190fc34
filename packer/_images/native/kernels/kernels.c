/* See kernels.h. */

#include "kernels/kernels.h"

static const Kernels plain = {
    "", 0, transform_plain, widen_plain, convert_plain, expand_plain, copy_run_plain, find_marker_plain,
    across_plain, down_plain, copy_plain,
};
#if HAS_AVX2
static const Kernels avx2 = {
    "AVX2", 1, transform_avx2, widen_avx2, convert_avx2, expand_avx2, copy_run_avx2, find_marker_avx2,
    across_avx2, down_avx2, copy_avx2,
};
#endif
#if HAS_AVX512
static const Kernels avx512 = {
    "AVX-512", 1, transform_avx512, widen_avx2, convert_avx512, expand_avx2, copy_run_avx2, find_marker_avx2,
    across_avx2, down_avx512, copy_avx2,
};
#endif
#if HAS_NEON
static const Kernels neon = {
    "NEON", 0, transform_neon, widen_neon, convert_neon, expand_neon, copy_run_neon, find_marker_neon, across_neon,
    down_neon, copy_neon,
};
#endif

const Kernels *kernels = &plain;

void
kernels_init(void)
{
#if HAS_AVX2
    if (has_avx2())
        kernels = &avx2;
#endif
#if HAS_AVX512
    if (has_avx512())
        kernels = &avx512;
#endif
#if HAS_NEON
    kernels = &neon;
#endif
}
