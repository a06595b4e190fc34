/* See kernels.h. */

#include "kernels.h"
#include "checksums.h"

static const Kernels plain = {
    0, transform_plain, widen_plain, convert_plain, expand_plain, copy_run_plain, find_marker_plain, crc32c_plain,
    across_plain, down_plain, copy_plain,
};
#if HAS_AVX2
static const Kernels avx2 = {
    1, transform_avx2, widen_avx2, convert_avx2, expand_avx2, copy_run_avx2, find_marker_avx2, crc32c_sse42,
    across_avx2, down_avx2, copy_avx2,
};
#endif
#if HAS_AVX512
static const Kernels avx512 = {
    1, transform_avx512, widen_avx2, convert_avx512, expand_avx2, copy_run_avx2, find_marker_avx2, crc32c_sse42,
    across_avx2, down_avx512, copy_avx2,
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
}
