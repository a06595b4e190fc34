/* Rows of pixels, as decoders deliver them, and their consumers. */

#ifndef PACKER_ROWS_H
#define PACKER_ROWS_H

#include <stddef.h>
#include <stdint.h>

typedef enum { DECODED, UNDECODED, NO_MEMORY } Outcome;

typedef enum { FOUR_BYTES, ONE_BYTE } Layout; /* of a pixel: R, G, B and one of any value; or the level of grey */

enum { BESIDE = 64 }; /* bytes of any value after a row */

/* Takes the next `count` rows of the rectangle. BESIDE bytes after the last pixel of each row may be read. */
typedef void (*TakeRows)(void *taker, const uint8_t *rows, ptrdiff_t stride, ptrdiff_t count);

/* Returns how many rows of so many bytes are handed over at a time: 16, or fewer of very long ones. */
static inline ptrdiff_t
rows_at_once(ptrdiff_t size)
{
    enum { ROWS = 16, MOST = 1 << 22 }; /* bytes of all of them */
    return size < MOST / ROWS ? ROWS : size < MOST ? MOST / size : 1;
}

#endif
