/* See kernels.h. */

#include "kernels/kernels.h"

static const Kernels plain = {
    .vectors = "",
    .transform = transform_plain,
    .widen = widen_plain,
    .convert = convert_plain,
    .expand = expand_plain,
    .copy_run = copy_run_plain,
    .find_marker = find_marker_plain,
    .across = across_plain,
    .down = down_plain,
    .copy = copy_plain,
};
#if HAS_AVX2
static const Kernels avx2 = {
    .vectors = "AVX2",
    .has_avx2 = 1,
    .transform = transform_avx2,
    .widen = widen_avx2,
    .convert = convert_avx2,
    .expand = expand_avx2,
    .copy_run = copy_run_avx2,
    .find_marker = find_marker_avx2,
    .across = across_avx2,
    .down = down_avx2,
    .copy = copy_avx2,
};
#endif
#if HAS_AVX512
static const Kernels avx512 = {
    .vectors = "AVX-512",
    .has_avx2 = 1,
    .transform = transform_avx512,
    .widen = widen_avx2,
    .convert = convert_avx512,
    .expand = expand_avx2,
    .copy_run = copy_run_avx2,
    .find_marker = find_marker_avx2,
    .across = across_avx2,
    .down = down_avx512,
    .copy = copy_avx2,
};
#endif
#if HAS_NEON
static const Kernels neon = {
    .vectors = "NEON",
    .transform = transform_neon,
    .widen = widen_neon,
    .convert = convert_neon,
    .expand = expand_neon,
    .copy_run = copy_run_neon,
    .find_marker = find_marker_neon,
    .across = across_neon,
    .down = down_neon,
    .copy = copy_neon,
};
#endif

const Kernels *kernels = &plain;
int deposit_is_slow;

void
kernels_init(void)
{
    deposit_is_slow = has_slow_deposit();
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
