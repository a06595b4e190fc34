/* Scans as tokens: coefficients on the way from one Huffman code to another.

   A token is the code in a scan for one coefficient, one run of zeros or one end of block: the key of its symbol above
   the AMPLITUDE bits that follow the symbol. A key is the number of the table (0 or 1), then 0 for DC and 1 for AC,
   then the eight bits of the symbol. */

#ifndef PACKER_TOKENS_H
#define PACKER_TOKENS_H

#include "tiling/huffman.h"
#include "tiling/structure.h"

#include <stddef.h>
#include <stdint.h>

enum {
    AMPLITUDE = SYMBOL,
    AC_KEY = 1 << 8,
    SECOND_TABLE = 2 << 8,
    KEYS = 4 << 8,
    WIDTH = 5,   /* bits for the number of bits that a token becomes */
    MARGIN = 512 /* zeros after a scan: more bytes than the longest block takes, because the position is checked once a block */
};

extern const char bad_code[], bad_value[], too_short[], left_over[]; /* problems of a scan */

typedef struct { /* a scan without stuffed zeros and markers, and its codes */
    const uint8_t *bytes;  /* with MARGIN zeros after them */
    const ptrdiff_t *ends; /* of its restart intervals, relative to `bytes` */
    ptrdiff_t interval;    /* MCUs of each interval; the last one may have fewer; 0: there is only one */
    /* Of each component, in the scan's order; NULL if the scan does not need them. */
    const Code *dc[COMPONENTS], *ac[COMPONENTS];
} CodedScan;

typedef struct { /* the new scan of all components, cut into tiles */
    ptrdiff_t rows, columns, tile; /* of tiles; MCUs of a tile */
    uint32_t *tokens;
    ptrdiff_t *ends;       /* of the tiles, as indices of tokens */
    uint32_t counts[KEYS]; /* how often each key occurs */
} Tokens;

/* Copies a scan to `bytes`, without its stuffed zeros and restart markers, and with MARGIN zeros after it. There must be
   room for all bytes up to `stop` and for the margin. Writes the end of each of `intervals` restart intervals. Returns
   the marker that ends the scan, or NULL if there is none, or the restart markers are not in order. */
const uint8_t *unstuff(const uint8_t *from, const uint8_t *stop, uint8_t *bytes, ptrdiff_t *ends, ptrdiff_t intervals);

/* Reads a sequential scan of all components. Only the DC differences after old and new restarts change. There must be
   room for as many tokens as the scan has bits, or for 64 tokens for each block; and in any case for 64 more. */
Problem read_tokens(const CodedScan *scan, const Frame *frame, Tokens *tokens);

/* Writes a scan with a restart marker between tiles, and returns its end. `codes` has the code of each key, with zeros
   after it in place of the amplitude; the lowest WIDTH bits are the length of both. `scan` must have room for twice the
   bytes before stuffing, for 8 more for each tile, and for 8 more. `sizes` receives the bytes of each row of tiles, with
   the marker after each tile; the marker after the last tile is counted, but does not belong to the scan. */
uint8_t *write_tokens(const Tokens *tokens, const uint32_t *codes, uint8_t *scan, int64_t *sizes);

/* Writes the token of a value, and counts it. `key` is the key of a value of 0 bits. Returns 0 if the value has more
   than `most` bits. */
INLINE int
put_value(uint32_t *token, uint32_t *counts, uint32_t key, int value, int most)
{
    uint32_t rest = (uint32_t)(value < 0 ? -value : value);
#if defined(__GNUC__) || defined(__clang__)
    int size = 31 - __builtin_clz(rest << 1 | 1);
#else
    int size = 0;
    for (; rest; rest >>= 1)
        size++;
#endif
    if (size > most)
        return 0;
    key += (uint32_t)size;
    *token = key << AMPLITUDE | ((uint32_t)(value - (value < 0)) & ((1u << size) - 1)); /* no branch on the sign */
    counts[key]++;
    return 1;
}

/* Returns the error at the end of a restart interval, or nothing if less than a byte is left. */
INLINE Problem
judge_end(const Bits *b, const uint8_t *end)
{
    ptrdiff_t left = bits_left(b, end);
    return left < 0 ? too_short : left > 7 ? left_over : NULL;
}

#endif
