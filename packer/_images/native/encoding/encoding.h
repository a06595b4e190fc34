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
    STRIP_PIXELS = 64 /* of a row that are converted at a time */
};

/* The factors that quantise coefficients, in the order of rows: (|c| + half) * reciprocal / 2^16 * scale / 2^16 is
   (|c| + half) / divisor, for every |c| up to 2^14. */
typedef struct {
    uint16_t half[64], reciprocal[64], scale[64];
} Divisors;

typedef struct { /* in zigzag order */
    int16_t coefficients[64];
} CodedBlock;

typedef struct { /* the samples of four blocks: two side by side, and two others */
    const uint8_t *two, *others;
    ptrdiff_t stride;
    const Divisors *divisors;
    uint8_t places[4]; /* the indices of the four results */
} FourBlocks;

typedef struct { /* one or more blocks, as items, which follow one another */
    int16_t *values;
    uint8_t *places; /* in zigzag order, plus OF_CHROMA for chroma; the byte before the first is read, and may have any value */
    ptrdiff_t count;
} Items;

enum { OF_CHROMA = 64 };

typedef struct { /* the rows to which samples are written */
    uint8_t *upper, *lower; /* of luma: two rows */
    uint8_t *blue, *red;    /* a row, half as wide */
} SampleRows;

/* The codes of items. The indices are the kind (the number of zeros before the coefficient, or FIRST_COEFFICIENT; plus
   KINDS_OF_ITEM for chroma), the number of bits of the value, and whether it is negative. The lowest CODE_LENGTH bits
   are the number of bits of the code and the value; the bits above them become those of both when the value is added. */
enum { FIRST_COEFFICIENT = 16, KINDS_OF_ITEM, SIZES = 16, CODE_LENGTH = 5 };
typedef uint32_t Codes[2 * KINDS_OF_ITEM][SIZES][2];

typedef struct { /* bits that are not written yet: the uppermost `count` of them, fewer than 8 */
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

/* Writes everything before the scan, at most HEADER_BYTES. Returns its end. */
uint8_t *write_header(uint8_t *to, ptrdiff_t height, ptrdiff_t width, ptrdiff_t interval, const uint8_t tables[2][TABLE]);

#endif
