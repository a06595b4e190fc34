/* Decodes rectangles of PNGs to the pixels that Pillow gives as RGB. */

#ifndef PACKER_PNG_H
#define PACKER_PNG_H

#include "geometry.h"
#include "rows.h"

typedef struct PngDecoder PngDecoder; /* memory that is used for one image after the other */

PngDecoder *png_decoder_new(void);
void png_decoder_free(PngDecoder *);

size_t png_decoder_memory(const PngDecoder *); /* bytes that it keeps for the next image */

/* Decodes a rectangle of a PNG of `height` x `width` pixels and hands its rows to `take`, as `decoder_decode`. UNDECODED is the
   answer to whatever is not an undamaged, still PNG of that size whose chunks are in the usual order, and none of them one that
   Pillow may refuse; some rows may have been handed out by then. Checksums of all chunks are compared. No more is inflated
   than down to the last row that is wanted. */
Outcome png_decode(PngDecoder *, const uint8_t *data, ptrdiff_t size, ptrdiff_t height, ptrdiff_t width, Rectangle wanted,
                   TakeRows take, void *taker);

#endif
