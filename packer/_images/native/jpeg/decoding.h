/* Decodes rectangles of JPEGs to the pixels of libjpeg-turbo, with no more work than the rectangle needs. */

#ifndef PACKER_DECODING_H
#define PACKER_DECODING_H

#include "geometry.h"
#include "rows.h"

#include <stddef.h>
#include <stdint.h>

typedef struct Decoder Decoder; /* memory that is used for one image after the other */

Decoder *decoder_new(void);
void decoder_free(Decoder *);

size_t decoder_memory(const Decoder *); /* bytes that it keeps for the next image */

/* Decodes a rectangle of a JPEG of `height` x `width` pixels and hands its rows to `take`. UNDECODED is the answer to
   whatever is not an undamaged image of that size, of 8 bits, sequential in one scan or progressive and complete, grey,
   YCbCr, CMYK or YCCK; to more scans than are allowed; and of images in colour, where one byte a pixel is wanted. Some rows
   may have been handed out by then. */
Outcome decoder_decode(Decoder *, const uint8_t *data, ptrdiff_t size, ptrdiff_t height, ptrdiff_t width,
                       Rectangle wanted, Layout layout, TakeRows take, void *taker);

#endif
