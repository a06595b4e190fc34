/* What vectors do faster, where the processor has them: one table of functions, which is chosen once.

   Every function stands here in plain C as well. The plain ones are what the others are compared with, they finish what is
   left of a row and take the blocks of damaged images that do not fit into 16 bits, and they are what runs on processors
   of other kinds than x86-64 with AVX2 and ARM. */

#ifndef PACKER_KERNELS_H
#define PACKER_KERNELS_H

#include "kernels/vectors.h"
#include "resizing/resizing.h"

#include <stddef.h>
#include <stdint.h>

typedef struct { /* the coefficients of a block, and where its samples belong */
    int16_t *coefficients;
    const int16_t *quantum;
    uint8_t *to;
    ptrdiff_t stride;
} Coded;

typedef struct {
    const char *vectors; /* their name; none in plain C */
    int has_avx2;        /* and BMI2 */
    /* Transforms the coefficients of some blocks into 8 x 8 samples each, and leaves zeros in their place. */
    void (*transform)(const Coded *blocks, int count);
    /* Makes `count` samples of chroma twice as wide. Where chroma is also half as high, `other` is the neighbouring row of
       `row`, and else NULL. Reads a sample more at both ends of the rows. `sums` has room for as many and two. */
    void (*widen)(const uint8_t *row, const uint8_t *other, int16_t *sums, uint8_t *to, ptrdiff_t count);
    /* Makes four bytes a pixel, red, green, blue and one of any value, of luma and chroma. */
    void (*convert)(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint8_t *to, ptrdiff_t count);
    /* Makes pixels of four bytes of those of three. */
    void (*expand)(const uint8_t *rgb, uint8_t *rgbx, ptrdiff_t count);
    /* Copies bytes up to the first 0xFF, and not many more than `most`; returns how many. After them, 31 bytes of any value
       may be written, and what is read lies before `stop`. */
    size_t (*copy_run)(uint8_t *to, const uint8_t *from, size_t most, const uint8_t *stop);
    /* Returns where the next 0xFF stands without a zero after it, or NULL. */
    const uint8_t *(*find_marker)(const uint8_t *from, const uint8_t *stop);
    /* Resizes a pair of rows across; see resizing.c. */
    void (*across)(const Resizing *, const uint8_t *upper, const uint8_t *lower, int16_t *to);
    /* Makes a row of the window, of rows that went through the pass across. */
    void (*down)(const Resizing *, ptrdiff_t row);
    /* Makes pixels of three bytes of those of four, mirrored where `flip` says so. */
    void (*copy)(const uint8_t *rgbx, uint8_t *out, ptrdiff_t count, int flip);
} Kernels;

/* Those of this processor, and whether its instruction that deposits bits is slow; after `kernels_init`. */
extern const Kernels *kernels;
extern int deposit_is_slow;

void kernels_init(void);

/* jpeg_kernels.c */
void transform_plain(const Coded *blocks, int count);
void widen_plain(const uint8_t *row, const uint8_t *other, int16_t *sums, uint8_t *to, ptrdiff_t count);
void convert_plain(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint8_t *to, ptrdiff_t count);
#if HAS_AVX2
void transform_avx2(const Coded *blocks, int count);
void widen_avx2(const uint8_t *row, const uint8_t *other, int16_t *sums, uint8_t *to, ptrdiff_t count);
void convert_avx2(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint8_t *to, ptrdiff_t count);
#endif
#if HAS_AVX512
void transform_avx512(const Coded *blocks, int count);
void convert_avx512(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint8_t *to, ptrdiff_t count);
#endif

/* byte_kernels.c */
void expand_plain(const uint8_t *rgb, uint8_t *rgbx, ptrdiff_t count);
size_t copy_run_plain(uint8_t *to, const uint8_t *from, size_t most, const uint8_t *stop);
const uint8_t *find_marker_plain(const uint8_t *from, const uint8_t *stop);
#if HAS_AVX2
void expand_avx2(const uint8_t *rgb, uint8_t *rgbx, ptrdiff_t count);
size_t copy_run_avx2(uint8_t *to, const uint8_t *from, size_t most, const uint8_t *stop);
const uint8_t *find_marker_avx2(const uint8_t *from, const uint8_t *stop);
#endif

/* resizing.c */
void across_plain(const Resizing *resizing, const uint8_t *upper, const uint8_t *lower, int16_t *to);
void down_plain(const Resizing *resizing, ptrdiff_t row);
void copy_plain(const uint8_t *rgbx, uint8_t *out, ptrdiff_t count, int flip);
#if HAS_AVX2
void across_avx2(const Resizing *resizing, const uint8_t *upper, const uint8_t *lower, int16_t *to);
void down_avx2(const Resizing *resizing, ptrdiff_t row);
void copy_avx2(const uint8_t *rgbx, uint8_t *out, ptrdiff_t count, int flip);
#endif
#if HAS_AVX512
void down_avx512(const Resizing *resizing, ptrdiff_t row);
#endif

/* neon_kernels.c */
#if HAS_NEON
void transform_neon(const Coded *blocks, int count);
void widen_neon(const uint8_t *row, const uint8_t *other, int16_t *sums, uint8_t *to, ptrdiff_t count);
void convert_neon(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint8_t *to, ptrdiff_t count);
void expand_neon(const uint8_t *rgb, uint8_t *rgbx, ptrdiff_t count);
size_t copy_run_neon(uint8_t *to, const uint8_t *from, size_t most, const uint8_t *stop);
const uint8_t *find_marker_neon(const uint8_t *from, const uint8_t *stop);
void across_neon(const Resizing *resizing, const uint8_t *upper, const uint8_t *lower, int16_t *to);
void down_neon(const Resizing *resizing, ptrdiff_t row);
void copy_neon(const uint8_t *rgbx, uint8_t *out, ptrdiff_t count, int flip);
#endif

#endif
