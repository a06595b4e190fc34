/* A table of functions that vector instructions speed up, chosen once for the processor.

   Every function that is never NULL exists in plain C as well. The plain versions are the reference for tests, finish
   the remainder of a row, process the blocks of damaged images that do not fit into 16 bits, and run on processors
   other than ARM and x86-64 with AVX2. */

#ifndef PACKER_KERNELS_H
#define PACKER_KERNELS_H

#include "encoding/encoding.h"
#include "kernels/vectors.h"
#include "resizing/resizing.h"

#include <stddef.h>
#include <stdint.h>

enum { MANY = 1 << 21 }; /* bytes: what caches hold that no other processor uses; more is written past them */

enum { LEVELS = 256 }; /* of a colour */

typedef struct { /* the coefficients of a block, and where its samples belong */
    int16_t *coefficients;
    const int16_t *quantum;
    uint8_t *to;
    ptrdiff_t stride;
} Coded;

typedef struct { /* a row of chroma that is half as wide as the image */
    const uint8_t *row, *other; /* it; where chroma is also half as high the neighbouring row, and else NULL */
} Narrow;

enum { STRIP = 64, FRACTION = 7 }; /* numbers that are computed at once; bits after the binary point of those in rows */

typedef struct { /* rows of levels, less the middle one of 127.5; and their weights, which two rows have in common */
    const int16_t *const *rows;
    const int16_t *weights; /* all of them make 1/2 */
    ptrdiff_t pairs;        /* an even number of them */
    int precision;          /* bits after the binary point of the weights */
} Weighed;

/* Returns two weights that follow one another. */
static inline uint32_t
two_weights(const int16_t *weights)
{
    return (uint16_t)weights[0] | (uint32_t)(uint16_t)weights[1] << 16;
}

typedef struct {
    const char *vectors; /* their name; none in plain C */
    int has_avx2;        /* and BMI2, FMA and F16C */
    int has_avx512;
    /* Transforms the coefficients of some blocks into 8 x 8 samples each, and leaves zeros in their place. */
    void (*transform)(const Coded *blocks, int count);
    /* Makes `count` samples of chroma twice as wide. Where chroma is also half as high, `other` is the neighbouring row of
       `row`, and else NULL. Reads a sample more at both ends of the rows. */
    void (*widen)(const uint8_t *row, const uint8_t *other, uint8_t *to, ptrdiff_t count);
    /* Makes four bytes a pixel, red, green, blue and one of any value, of luma and chroma. */
    void (*convert)(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint8_t *to, ptrdiff_t count);
    /* The same of chroma, blue and red, that is half as wide, and is widened as by `widen`. `odd` tells whether the first pixel is
       the second one of the first sample. NULL where two functions do that as fast. */
    void (*convert_narrow)(const uint8_t *luma, const Narrow chroma[2], int odd, uint8_t *to, ptrdiff_t count);
    /* Makes pixels of four bytes of those of three. */
    void (*expand)(const uint8_t *rgb, uint8_t *rgbx, ptrdiff_t count);
    /* Copies pixels of three bytes, each from the place of its first byte. Reads a byte more of each. */
    void (*pick)(const uint8_t *pixels, const int32_t *from, ptrdiff_t count, uint8_t *to);
    /* Copies rows of `size` bytes, which begin `stride` bytes apart, to where they follow one another. What is written does not
       pass through the processor's caches where vectors can write so: for what is not read again soon. */
    void (*copy_rows)(uint8_t *to, const uint8_t *from, ptrdiff_t stride, ptrdiff_t size, ptrdiff_t count);
    /* Copies bytes up to the first 0xFF, and at most `most`; returns how many. No kernel copies more than the others: how far a
       decoder reads ahead decides whether it finds damage there, and so whether it decodes an image at all. After them,
       bytes of any value may be written, but none after the first `most`; what is read lies before `stop`. */
    size_t (*copy_run)(uint8_t *to, const uint8_t *from, size_t most, const uint8_t *stop);
    /* Returns where the next 0xFF stands without a zero after it, or NULL. */
    const uint8_t *(*find_marker)(const uint8_t *from, const uint8_t *stop);
    /* Resizes a pair of rows across; see resizing.c. */
    void (*across)(const Resizing *, const uint8_t *upper, const uint8_t *lower, int16_t *to);
    /* Makes a row of the window, of rows that went through the pass across. */
    void (*down)(const Resizing *, ptrdiff_t row);
    /* Makes pixels of three bytes of those of four, mirrored where `flip` says so. */
    void (*copy)(const uint8_t *rgbx, uint8_t *out, ptrdiff_t count, int flip);
    /* Takes pixels of three bytes apart into levels of each colour. */
    void (*split)(const uint8_t *pixels, ptrdiff_t count, uint8_t *red, uint8_t *green, uint8_t *blue);
    /* Makes pixels of three bytes of levels of each colour. */
    void (*join)(const uint8_t *red, const uint8_t *green, const uint8_t *blue, ptrdiff_t count, uint8_t *pixels);
    /* Adds up `count` numbers of each row by their weights, and some more up to a whole strip. */
    void (*sum_rows)(const Weighed *weighed, int16_t *to, ptrdiff_t count);
    /* The same, and makes levels of the sums. */
    void (*sum_levels)(const Weighed *weighed, uint8_t *to, ptrdiff_t count);
    /* Exchanges the levels of pixels of three bytes, each by the table of its colour. */
    void (*exchange)(uint8_t *pixels, ptrdiff_t count, const uint8_t tables[3][LEVELS]);
    /* Makes samples of two rows of pixels of three bytes, of whole strips. Up to 16 bytes after the pixels are read. */
    void (*sample_rows)(const uint8_t *upper, const uint8_t *lower, const SampleRows *to, ptrdiff_t count);
    /* Makes quantised coefficients of `count` times four blocks of samples, and masks that say which of them are not 0, the lowest
       bit the first one. */
    void (*code_blocks)(const FourBlocks *fours, ptrdiff_t count, CodedBlock *blocks, uint64_t *masks);
    /* Makes items of the coefficients that masks say, of so many MCUs. After the items, 64 of any kind may be written. */
    void (*list_items)(const CodedBlock *blocks, const uint64_t *masks, ptrdiff_t mcus, Items *items);
    /* Writes the bits of items, and up to 8 bytes of any value after them. Returns where the whole bytes of them end. */
    uint8_t *(*put_items)(const Items *items, const Codes *codes, BitQueue *queue, uint8_t *to);
    /* Finds the least and the largest level of each colour of one pixel or more. */
    void (*extremes)(const uint8_t *pixels, ptrdiff_t count, uint8_t least[3], uint8_t most[3]);
} Kernels;

/* Those of this processor, and whether its instruction that deposits bits is slow; after `kernels_init`. */
extern const Kernels *kernels;
extern int deposit_is_slow;

void kernels_init(void);

/* jpeg_kernels.c */
void transform_plain(const Coded *blocks, int count);
void widen_plain(const uint8_t *row, const uint8_t *other, uint8_t *to, ptrdiff_t count);
void convert_plain(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint8_t *to, ptrdiff_t count);
#if HAS_AVX2
void transform_avx2(const Coded *blocks, int count);
void widen_avx2(const uint8_t *row, const uint8_t *other, uint8_t *to, ptrdiff_t count);
void convert_avx2(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint8_t *to, ptrdiff_t count);
#endif
#if HAS_AVX512
void transform_avx512(const Coded *blocks, int count);
void convert_avx512(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint8_t *to, ptrdiff_t count);
void convert_narrow_avx512(const uint8_t *luma, const Narrow chroma[2], int odd, uint8_t *to, ptrdiff_t count);
#endif

/* byte_kernels.c */
void expand_plain(const uint8_t *rgb, uint8_t *rgbx, ptrdiff_t count);
void pick_plain(const uint8_t *pixels, const int32_t *from, ptrdiff_t count, uint8_t *to);
void copy_rows_plain(uint8_t *to, const uint8_t *from, ptrdiff_t stride, ptrdiff_t size, ptrdiff_t count);
size_t copy_run_plain(uint8_t *to, const uint8_t *from, size_t most, const uint8_t *stop);
const uint8_t *find_marker_plain(const uint8_t *from, const uint8_t *stop);
#if HAS_AVX2
void expand_avx2(const uint8_t *rgb, uint8_t *rgbx, ptrdiff_t count);
void pick_avx2(const uint8_t *pixels, const int32_t *from, ptrdiff_t count, uint8_t *to);
void copy_rows_avx2(uint8_t *to, const uint8_t *from, ptrdiff_t stride, ptrdiff_t size, ptrdiff_t count);
size_t copy_run_avx2(uint8_t *to, const uint8_t *from, size_t most, const uint8_t *stop);
const uint8_t *find_marker_avx2(const uint8_t *from, const uint8_t *stop);
#endif
#if HAS_AVX512
void pick_avx512(const uint8_t *pixels, const int32_t *from, ptrdiff_t count, uint8_t *to);
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
void across_avx512(const Resizing *resizing, const uint8_t *upper, const uint8_t *lower, int16_t *to);
void down_avx512(const Resizing *resizing, ptrdiff_t row);
#endif

/* level_kernels.c */
void exchange_plain(uint8_t *pixels, ptrdiff_t count, const uint8_t tables[3][LEVELS]);
typedef void (*ExchangeBytes)(uint8_t *levels, ptrdiff_t count, const uint8_t *table);
/* Maps the levels of pixels by a kernel for bytes: if the tables differ, in planes of one channel each. */
void exchange_by(ExchangeBytes exchange, uint8_t *pixels, ptrdiff_t count, const uint8_t tables[3][LEVELS]);
void extremes_plain(const uint8_t *pixels, ptrdiff_t count, uint8_t least[3], uint8_t most[3]);
#if HAS_AVX2
void exchange_avx2(uint8_t *pixels, ptrdiff_t count, const uint8_t tables[3][LEVELS]);
void extremes_avx2(const uint8_t *pixels, ptrdiff_t count, uint8_t least[3], uint8_t most[3]);
#endif
#if HAS_AVX512
void exchange_avx512(uint8_t *pixels, ptrdiff_t count, const uint8_t tables[3][LEVELS]);
#endif

/* sample_kernels.c, block_kernels.c, item_kernels.c: of JPEGs that are written */
void sample_rows_plain(const uint8_t *upper, const uint8_t *lower, const SampleRows *to, ptrdiff_t count);
void code_blocks_plain(const FourBlocks *fours, ptrdiff_t count, CodedBlock *blocks, uint64_t *masks);
void list_items_plain(const CodedBlock *blocks, const uint64_t *masks, ptrdiff_t mcus, Items *items);
uint8_t *put_items_plain(const Items *items, const Codes *codes, BitQueue *queue, uint8_t *to);
#if HAS_AVX2
void sample_rows_avx2(const uint8_t *upper, const uint8_t *lower, const SampleRows *to, ptrdiff_t count);
void code_blocks_avx2(const FourBlocks *fours, ptrdiff_t count, CodedBlock *blocks, uint64_t *masks);
void list_items_avx2(const CodedBlock *blocks, const uint64_t *masks, ptrdiff_t mcus, Items *items);
uint8_t *put_items_avx2(const Items *items, const Codes *codes, BitQueue *queue, uint8_t *to);
#endif
#if HAS_AVX512
void sample_rows_avx512(const uint8_t *upper, const uint8_t *lower, const SampleRows *to, ptrdiff_t count);
void code_blocks_avx512(const FourBlocks *fours, ptrdiff_t count, CodedBlock *blocks, uint64_t *masks);
void list_items_avx512(const CodedBlock *blocks, const uint64_t *masks, ptrdiff_t mcus, Items *items);
uint8_t *put_items_avx512(const Items *items, const Codes *codes, BitQueue *queue, uint8_t *to);
#endif

/* plane_kernels.c */
void split_plain(const uint8_t *pixels, ptrdiff_t count, uint8_t *red, uint8_t *green, uint8_t *blue);
void join_plain(const uint8_t *red, const uint8_t *green, const uint8_t *blue, ptrdiff_t count, uint8_t *pixels);
#if HAS_AVX2
void split_avx2(const uint8_t *pixels, ptrdiff_t count, uint8_t *red, uint8_t *green, uint8_t *blue);
void join_avx2(const uint8_t *red, const uint8_t *green, const uint8_t *blue, ptrdiff_t count, uint8_t *pixels);
#endif
#if HAS_AVX512
void split_avx512(const uint8_t *pixels, ptrdiff_t count, uint8_t *red, uint8_t *green, uint8_t *blue);
void join_avx512(const uint8_t *red, const uint8_t *green, const uint8_t *blue, ptrdiff_t count, uint8_t *pixels);
#endif

/* sum_kernels.c */
void sum_rows_plain(const Weighed *weighed, int16_t *to, ptrdiff_t count);
void sum_levels_plain(const Weighed *weighed, uint8_t *to, ptrdiff_t count);
#if HAS_AVX2
void sum_rows_avx2(const Weighed *weighed, int16_t *to, ptrdiff_t count);
void sum_levels_avx2(const Weighed *weighed, uint8_t *to, ptrdiff_t count);
#endif
#if HAS_AVX512
void sum_rows_avx512(const Weighed *weighed, int16_t *to, ptrdiff_t count);
void sum_levels_avx512(const Weighed *weighed, uint8_t *to, ptrdiff_t count);
#endif

/* neon_kernels.c */
#if HAS_NEON
void transform_neon(const Coded *blocks, int count);
void widen_neon(const uint8_t *row, const uint8_t *other, uint8_t *to, ptrdiff_t count);
void convert_neon(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint8_t *to, ptrdiff_t count);
void expand_neon(const uint8_t *rgb, uint8_t *rgbx, ptrdiff_t count);
size_t copy_run_neon(uint8_t *to, const uint8_t *from, size_t most, const uint8_t *stop);
const uint8_t *find_marker_neon(const uint8_t *from, const uint8_t *stop);
void across_neon(const Resizing *resizing, const uint8_t *upper, const uint8_t *lower, int16_t *to);
void down_neon(const Resizing *resizing, ptrdiff_t row);
void copy_neon(const uint8_t *rgbx, uint8_t *out, ptrdiff_t count, int flip);
void exchange_neon(uint8_t *pixels, ptrdiff_t count, const uint8_t tables[3][LEVELS]);
void split_neon(const uint8_t *pixels, ptrdiff_t count, uint8_t *red, uint8_t *green, uint8_t *blue);
void join_neon(const uint8_t *red, const uint8_t *green, const uint8_t *blue, ptrdiff_t count, uint8_t *pixels);
#endif

#endif
