/* Implements kernels.h. */

#include "kernels/kernels.h"

static const Kernels plain = {
    .vectors = "",
    .transform = transform_plain,
    .widen = widen_plain,
    .convert = convert_plain,
    .expand = expand_plain,
    .pick = pick_plain,
    .copy_rows = copy_rows_plain,
    .copy_run = copy_run_plain,
    .find_marker = find_marker_plain,
    .across = across_plain,
    .down = down_plain,
    .copy = copy_plain,
    .split = split_plain,
    .join = join_plain,
    .sum_rows = sum_rows_plain,
    .sum_levels = sum_levels_plain,
    .exchange = exchange_plain,
    .extremes = extremes_plain,
    .sample_rows = sample_rows_plain,
    .code_blocks = code_blocks_plain,
    .list_items = list_items_plain,
    .put_items = put_items_plain,
};
#if HAS_AVX2
static const Kernels avx2 = {
    .vectors = "AVX2",
    .has_avx2 = 1,
    .transform = transform_avx2,
    .widen = widen_avx2,
    .convert = convert_avx2,
    .expand = expand_avx2,
    .pick = pick_avx2,
    .copy_rows = copy_rows_avx2,
    .copy_run = copy_run_avx2,
    .find_marker = find_marker_avx2,
    .across = across_avx2,
    .down = down_avx2,
    .copy = copy_avx2,
    .split = split_avx2,
    .join = join_avx2,
    .sum_rows = sum_rows_avx2,
    .sum_levels = sum_levels_avx2,
    .exchange = exchange_avx2,
    .extremes = extremes_avx2,
    .sample_rows = sample_rows_avx2,
    .code_blocks = code_blocks_avx2,
    .list_items = list_items_avx2,
    .put_items = put_items_avx2,
};
#endif
#if HAS_AVX512
static const Kernels avx512 = {
    .vectors = "AVX-512",
    .has_avx2 = 1,
    .has_avx512 = 1,
    .transform = transform_avx512,
    .widen = widen_avx2,
    .convert = convert_avx512,
    .convert_narrow = convert_narrow_avx512,
    .expand = expand_avx2,
    .pick = pick_avx512,
    .copy_rows = copy_rows_avx2,
    .copy_run = copy_run_avx2,
    .find_marker = find_marker_avx2,
    .across = across_avx512,
    .down = down_avx512,
    .copy = copy_avx2,
    .split = split_avx512,
    .join = join_avx512,
    .sum_rows = sum_rows_avx512,
    .sum_levels = sum_levels_avx512,
    .exchange = exchange_avx512,
    .extremes = extremes_avx2,
    .sample_rows = sample_rows_avx512,
    .code_blocks = code_blocks_avx512,
    .list_items = list_items_avx512,
    .put_items = put_items_avx512,
};
#endif
#if HAS_NEON
static const Kernels neon = {
    .vectors = "NEON",
    .transform = transform_neon,
    .widen = widen_neon,
    .convert = convert_neon,
    .expand = expand_neon,
    .pick = pick_plain,
    .copy_rows = copy_rows_plain,
    .copy_run = copy_run_neon,
    .find_marker = find_marker_neon,
    .across = across_neon,
    .down = down_neon,
    .copy = copy_neon,
    .split = split_neon,
    .join = join_neon,
    .sum_rows = sum_rows_plain,
    .sum_levels = sum_levels_plain,
    .exchange = exchange_neon,
    .extremes = extremes_plain,
    .sample_rows = sample_rows_plain,
    .code_blocks = code_blocks_plain,
    .list_items = list_items_plain,
    .put_items = put_items_plain,
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
