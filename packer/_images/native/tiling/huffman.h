/* Huffman codes of scans (ITU-T T.81, annexes F and K.2): reading symbol by symbol, and finding the optimal codes.

   tables.c and bits.h have separate tables for the decoder, which needs only the values that may follow a code. Here
   the symbol itself is needed. */

#ifndef PACKER_HUFFMAN_H
#define PACKER_HUFFMAN_H

#include "compilers.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LOOK = 10 }; /* bits that index a table */

/* A table entry of a code. The lowest 6 bits are the length of the code and its value together; the bits from SIZE on,
   the length of the value; the bits from SYMBOL on, the symbol; the bits from SKIP on, the number of coefficients by
   which an AC symbol advances, AT_END for the end of a block. Negative if a sequential scan cannot have this AC symbol.
   0 is no code. */
typedef int32_t Entry;

enum { SIZE = 6, SYMBOL = 11, SKIP = SYMBOL + 8, AT_END = 128 };

typedef struct { /* a Huffman code, to be read */
    Entry look[1 << LOOK]; /* by the next bits; 0 for longer codes */
    int32_t end[17];       /* by length, the end of the codes up to this length, left-aligned in 16 bits */
    int32_t before[17];    /* by length, how many codes are shorter */
    Entry entries[256];    /* in the order of the codes */
} Code;

typedef struct { /* bits of a scan: the next one is the uppermost of `bits` */
    uint64_t bits;
    int count; /* of valid bits */
    const uint8_t *next;
} Bits;

/* Builds a code from a table: the number of codes of each of 16 lengths, then the symbols in the order of their codes.
   The table must have 256 codes at most, and none of them may be all ones. */
void prepare_code(Code *code, const uint8_t *table);

/* Finds a Huffman code for 256 symbols with these counts, in which no code is longer than 16 bits or all ones (T.81,
   K.2). Writes the number of codes of each of 16 lengths, and the symbols in the order of their codes. Returns how many
   symbols occur. */
int find_best_code(const uint32_t *counts, uint8_t *lengths, uint8_t *symbols);

/* Returns the entry of the code at the beginning of the bits, which has more than LOOK bits; 0 if there is none. */
Entry look_further(const Code *code, uint64_t bits);

/* Returns the entry of the code at the beginning of the bits; 0 if there is none. */
INLINE Entry
find_code(const Code *code, uint64_t bits)
{
    Entry entry = code->look[bits >> (64 - LOOK)];
    return entry ? entry : look_further(code, bits);
}

INLINE int
symbol_of(Entry entry)
{
    return entry >> SYMBOL & 255;
}

/* Fills the buffer to 56 bits or more. */
INLINE void
refill(Bits *b)
{
    b->bits |= next_bits(b->next) >> b->count;
    b->next += (63 - b->count) >> 3;
    b->count |= 56;
}

/* Skips bits, which must be in the buffer. */
INLINE void
pass(Bits *b, int count)
{
    b->bits <<= count;
    b->count -= count;
}

/* Takes bits, which must be in the buffer, as a number. */
INLINE int
take(Bits *b, int count)
{
    int number = count ? (int)(b->bits >> (64 - count)) : 0;
    pass(b, count);
    return number;
}

/* Takes a code and the amplitude after it, and returns the amplitude. */
INLINE uint32_t
take_amplitude(Bits *b, Entry entry)
{
    uint32_t amplitude = (uint32_t)(b->bits >> (-entry & 63)) & ((1u << (entry >> SIZE & 15)) - 1);
    pass(b, entry & 63);
    return amplitude;
}

/* Takes a code and the amplitude after it, and returns its value (T.81, F.2.2.1: EXTEND). */
INLINE int
take_value(Bits *b, Entry entry)
{
    int size = entry >> SIZE & 15, value = (int)take_amplitude(b, entry);
    return value + ((1 - (1 << size)) & (value - (1 << size >> 1)) >> 31); /* no branch, as in bits.h */
}

/* Returns how many bits are left before `end`; negative if more were taken. */
INLINE ptrdiff_t
bits_left(const Bits *b, const uint8_t *end)
{
    return (end - b->next) * 8 + b->count;
}

#endif
