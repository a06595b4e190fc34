/* A JPEG encoder: baseline, 4:2:0, with the example tables of the standard. Its output equals that of libjpeg-turbo
   with the slow integer DCT, byte for byte, so that packs are the same on every machine.

   An image goes through four steps, a few MCUs at a time: pixels become samples of luma and chroma, samples become
   blocks of coefficients, coefficients become items, and items become bits. An item is the symbol in a scan for one
   coefficient, or for a run of zeros. */

#ifndef PACKER_ENCODING_H
#define PACKER_ENCODING_H

#include <stddef.h>
#include <stdint.h>

enum {
    MCU = 16,       /* pixels of a side */
    BLOCKS_OF_MCU = 6, /* four of luma, in reading order; one of blue and one of red */
    BLOCK_ITEMS = 64, /* of a block, at most */
    STRIP_PIXELS = 64 /* of a row that become samples at once */
};

/* The factors that quantise coefficients, in the order of rows: (|c| + half) * reciprocal / 2^16 * scale / 2^16 is
   (|c| + half) / divisor, for every |c| up to 2^14. */
typedef struct {
    uint16_t half[64], reciprocal[64], scale[64];
} Divisors;

typedef struct { /* in zigzag order */
    int16_t coefficients[64];
} CodedBlock;

typedef struct { /* four blocks that are to be coded: two side by side, and two others */
    const uint8_t *two, *others;
    ptrdiff_t stride;
    const Divisors *divisors;
    uint8_t places[4]; /* among the blocks that are made */
} FourBlocks;

typedef struct { /* one or more blocks, as items, which follow one another */
    int16_t *values;
    uint8_t *places; /* in zigzag order, those of chroma more by OF_CHROMA; the byte before the first may have any value */
    ptrdiff_t count;
} Items;

enum { OF_CHROMA = 64 };

typedef struct { /* where samples belong */
    uint8_t *upper, *lower; /* of luma: two rows */
    uint8_t *blue, *red;    /* a row, half as wide */
} SampleRows;

/* The code of an item with its value's bits: by whether it is one of chroma, by how many zeros precede the coefficient, or
   whether that is the first one; by how many bits its value has, and whether the value is negative. The bits stand above
   CODE_LENGTH bits that say how many they are; a value is added to them. */
enum { FIRST_COEFFICIENT = 16, KINDS_OF_ITEM, SIZES = 16, CODE_LENGTH = 5 };
typedef uint32_t Codes[2 * KINDS_OF_ITEM][SIZES][2];

typedef struct { /* bits that were not written yet: the uppermost of them, fewer than 8 */
    uint64_t bits;
    unsigned count;
} BitQueue;

/* tables.c */
enum { TABLE = 64, HEADER_BYTES = 640 };

/* Prepares the result of `standard_codes`. */
void encoding_init(void);
const Codes *standard_codes(void);

/* Makes the tables of luma and chroma for a quality from 1 to 100, in zigzag order. */
void scale_quantisation(int quality, uint8_t tables[2][TABLE]);
void set_divisors(const uint8_t *table, Divisors *divisors);

/* Writes all that precedes the scan, and returns where it ends: no more than HEADER_BYTES. */
uint8_t *write_header(uint8_t *to, ptrdiff_t height, ptrdiff_t width, ptrdiff_t interval, const uint8_t tables[2][TABLE]);

#endif
