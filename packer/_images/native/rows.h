/* Rows of pixels, as decoders deliver them, and their consumers. */

#ifndef PACKER_ROWS_H
#define PACKER_ROWS_H

#include <stddef.h>
#include <stdint.h>

typedef enum { DECODED, UNDECODED, NO_MEMORY } Outcome;

typedef enum { FOUR_BYTES, ONE_BYTE } Layout; /* of a pixel: R, G, B and an unused byte; or the grey level */

enum { BESIDE = 64 }; /* readable bytes after a row, of any value */

/* Takes the next `count` rows of the rectangle. BESIDE bytes after the last pixel of each row may be read. */
typedef void (*TakeRows)(void *taker, const uint8_t *rows, ptrdiff_t stride, ptrdiff_t count);

/* Returns how many rows of `size` bytes a decoder passes on at a time: 16, or fewer if rows are very long. */
static inline ptrdiff_t
rows_at_once(ptrdiff_t size)
{
    enum { ROWS = 16, MOST = 1 << 22 }; /* MOST: bytes of all these rows */
    return size < MOST / ROWS ? ROWS : size < MOST ? MOST / size : 1;
}

#endif
