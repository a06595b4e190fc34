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

enum { MANY = 1 << 21 }; /* bytes that fit into the caches of one core; larger results bypass them */

enum { LEVELS = 256 }; /* of a colour */

typedef struct { /* the coefficients of a block, and where its samples belong */
    int16_t *coefficients;
    const int16_t *quantum;
    uint8_t *to;
    ptrdiff_t stride;
} Coded;

typedef struct { /* a row of chroma that is half as wide as the image */
    const uint8_t *row, *other; /* the row; the neighbouring row if chroma is also half as high, otherwise NULL */
} Narrow;

enum { STRIP = 64, FRACTION = 7 }; /* numbers that are computed at once; bits after the binary point of numbers in rows */

typedef struct { /* rows of levels minus 127.5, and weights, each for two rows */
    const int16_t *const *rows;
    const int16_t *weights; /* their sum is 1/2 */
    ptrdiff_t pairs;        /* an even number */
    int precision;          /* bits after the binary point of the weights */
} Weighed;

/* Returns two adjacent weights as one number. */
static inline uint32_t
two_weights(const int16_t *weights)
{
    return (uint16_t)weights[0] | (uint32_t)(uint16_t)weights[1] << 16;
}

typedef struct {
    const char *vectors; /* the name of the instructions; empty for plain C */
    int has_avx2;        /* and BMI2, FMA and F16C */
    int has_avx512;
    /* Transforms the coefficients of some blocks to 8 x 8 samples each, and sets the coefficients to 0. */
    void (*transform)(const Coded *blocks, int count);
    /* Makes `count` samples of chroma twice as wide. `other` is the neighbouring row if chroma is also half as high,
       otherwise NULL. Depends on one more sample at both ends of the rows. This function and the next two may read and
       write whole vectors: see PAD in decoding.c. */
    void (*widen)(const uint8_t *row, const uint8_t *other, uint8_t *to, ptrdiff_t count);
    /* Converts luma and chroma to pixels of four bytes: red, green, blue and one of any value. */
    void (*convert)(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint8_t *to, ptrdiff_t count);
    /* The same for chroma, blue and red, of half the width, which is widened as by `widen`. `odd` tells whether the
       first pixel is the second one of the first sample. NULL if two separate functions are as fast. */
    void (*convert_narrow)(const uint8_t *luma, const Narrow chroma[2], int odd, uint8_t *to, ptrdiff_t count);
    /* Converts three-byte pixels to four-byte pixels. */
    void (*expand)(const uint8_t *rgb, uint8_t *rgbx, ptrdiff_t count);
    /* Copies three-byte pixels; `from` has the position of the first byte of each. Reads one more byte after each. */
    void (*pick)(const uint8_t *pixels, const int32_t *from, ptrdiff_t count, uint8_t *to);
    /* Copies rows of `size` bytes, which begin `stride` bytes apart, to adjacent rows. Bypasses the processor's caches
       if vectors can: for results that are not read again soon. */
    void (*copy_rows)(uint8_t *to, const uint8_t *from, ptrdiff_t stride, ptrdiff_t size, ptrdiff_t count);
    /* Copies the bytes before the first 0xFF, at most `most`; returns how many. All kernels copy the same number: how
       far a decoder reads ahead determines whether it finds damage there, and so whether it decodes an image. May write
       more bytes of any value, but none after the first `most`. Reads only bytes before `stop`. */
    size_t (*copy_run)(uint8_t *to, const uint8_t *from, size_t most, const uint8_t *stop);
    /* Returns the next 0xFF that is not followed by a zero, or NULL. The byte after it also lies before `stop`. */
    const uint8_t *(*find_marker)(const uint8_t *from, const uint8_t *stop);
    /* Resizes a pair of rows horizontally; see resizing.c. */
    void (*across)(const Resizing *, const uint8_t *upper, const uint8_t *lower, int16_t *to);
    /* Computes a row of the window from rows that went through the horizontal pass. */
    void (*down)(const Resizing *, ptrdiff_t row);
    /* Converts four-byte pixels to three-byte pixels, mirrored if `flip`. */
    void (*copy)(const uint8_t *rgbx, uint8_t *out, ptrdiff_t count, int flip);
    /* Splits three-byte pixels into planes. */
    void (*split)(const uint8_t *pixels, ptrdiff_t count, uint8_t *red, uint8_t *green, uint8_t *blue);
    /* Joins planes to three-byte pixels. */
    void (*join)(const uint8_t *red, const uint8_t *green, const uint8_t *blue, ptrdiff_t count, uint8_t *pixels);
    /* Computes the weighted sums of the rows: `count` numbers, and more up to the end of a strip. */
    void (*sum_rows)(const Weighed *weighed, int16_t *to, ptrdiff_t count);
    /* The same, and converts the sums to levels. */
    void (*sum_levels)(const Weighed *weighed, uint8_t *to, ptrdiff_t count);
    /* Replaces the levels of three-byte pixels, each by the table of its channel. */
    void (*exchange)(uint8_t *pixels, ptrdiff_t count, const uint8_t tables[3][LEVELS]);
    /* Converts two rows of three-byte pixels to samples. `count` is a multiple of STRIP_PIXELS. Up to 16 bytes after the
       pixels are read. */
    void (*sample_rows)(const uint8_t *upper, const uint8_t *lower, const SampleRows *to, ptrdiff_t count);
    /* Computes the quantised coefficients of `count` times four blocks of samples, and masks of those that are not 0;
       the lowest bit is the first coefficient. */
    void (*code_blocks)(const FourBlocks *fours, ptrdiff_t count, CodedBlock *blocks, uint64_t *masks);
    /* Lists the items of `mcus` MCUs: the coefficients in their masks. May write 64 more items of any value. */
    void (*list_items)(const CodedBlock *blocks, const uint64_t *masks, ptrdiff_t mcus, Items *items);
    /* Writes the bits of items, and up to 8 bytes of any value after them. Returns the end of the whole bytes. */
    uint8_t *(*put_items)(const Items *items, const Codes *codes, BitQueue *queue, uint8_t *to);
    /* Finds the least and the largest level of each colour of one pixel or more. */
    void (*extremes)(const uint8_t *pixels, ptrdiff_t count, uint8_t least[3], uint8_t most[3]);
} Kernels;

/* The functions for this processor, and whether its instruction PDEP is slow; after `kernels_init`. */
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

/* sample_kernels.c, block_kernels.c, item_kernels.c: for the encoder */
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
