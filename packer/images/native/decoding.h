/* Decodes rectangles of baseline JPEGs: the pixels that libjpeg-turbo gives, with no more work than they need. */

#ifndef PACKER_DECODING_H
#define PACKER_DECODING_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    ptrdiff_t top, left, height, width;
} Rectangle;

/* Takes the next `count` rows of the rectangle: pixels of four bytes, R, G, B and one of any value. At least 32 bytes
   behind the last pixel of each row may be read. */
typedef void (*TakeRows)(void *taker, const uint8_t *rows, ptrdiff_t stride, ptrdiff_t count);

typedef struct Decoder Decoder; /* memory that is used for one image after the other */

Decoder *decoder_new(void);
void decoder_free(Decoder *);

int decoder_has_vectors(void); /* whether it uses vectors of this processor; otherwise libjpeg-turbo is faster */

typedef enum { DECODED, UNDECODED, NO_MEMORY } Outcome;

/* Decodes a rectangle of a JPEG of `height` x `width` pixels and hands its rows to `take`. UNDECODED is the answer to
   whatever is not an undamaged baseline image of that size, in one scan, grey or YCbCr, in the usual samplings; some
   rows may have been handed out by then. */
Outcome decoder_decode(Decoder *, const uint8_t *data, ptrdiff_t size, ptrdiff_t height, ptrdiff_t width,
                       Rectangle wanted, TakeRows take, void *taker);

#endif
