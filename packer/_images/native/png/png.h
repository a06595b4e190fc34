/* Decodes rectangles of PNGs to the pixels that Pillow gives as RGB. */

#ifndef PACKER_PNG_H
#define PACKER_PNG_H

#include "geometry.h"
#include "rows.h"

typedef struct PngDecoder PngDecoder; /* memory that is reused for one image at a time */

PngDecoder *png_decoder_new(void);
void png_decoder_free(PngDecoder *);

size_t png_decoder_memory(const PngDecoder *); /* the bytes that it keeps for the next image */

/* Decodes a rectangle of a PNG of `height` x `width` pixels, and passes its rows to `take`, as `decoder_decode` does.
   Returns UNDECODED unless the PNG is undamaged, has this size and no animation, its chunks are in the usual order, and
   Pillow accepts each of them. Some rows may have been passed on by then. The checksums of all chunks are compared. Rows
   below the rectangle are not inflated, unless the image is interlaced. */
Outcome png_decode(PngDecoder *, const uint8_t *data, ptrdiff_t size, ptrdiff_t height, ptrdiff_t width, Rectangle wanted,
                   TakeRows take, void *taker);

#endif
