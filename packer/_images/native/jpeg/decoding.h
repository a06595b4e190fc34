/* Decodes rectangles of JPEGs to the pixels of libjpeg-turbo, with no more work than the rectangle needs. */

#ifndef PACKER_DECODING_H
#define PACKER_DECODING_H

#include "geometry.h"
#include "rows.h"

#include <stddef.h>
#include <stdint.h>

typedef struct Decoder Decoder; /* memory that is reused for one image at a time */

Decoder *decoder_new(void);
void decoder_free(Decoder *);

size_t decoder_memory(const Decoder *); /* the bytes that it keeps for the next image */

/* Decodes a rectangle of a JPEG of `height` x `width` pixels, and passes its rows to `take`. Returns UNDECODED unless
   the JPEG is undamaged, has this size and 8 bits, is sequential in one scan or progressive and complete, and is grey,
   YCbCr, CMYK or YCCK. Also returns UNDECODED if it has too many scans, or if ONE_BYTE is requested of an image in
   colour. Some rows may have been passed on by then. */
Outcome decoder_decode(Decoder *, const uint8_t *data, ptrdiff_t size, ptrdiff_t height, ptrdiff_t width,
                       Rectangle wanted, Layout layout, TakeRows take, void *taker);

#endif
