/* Resizes an image to a window of its result, anti-aliased, bilinear or bicubic, while its rows are being decoded.

   The result is that of torch's kernel for uint8 (torch.nn.functional.interpolate with antialias=True), to the bit: see
   resize_into in packer/_images/rectangle.py. */

#ifndef PACKER_RESIZING_H
#define PACKER_RESIZING_H

#include "resizing/weighing.h"

#include <stddef.h>
#include <stdint.h>

typedef struct {
    ptrdiff_t height, width;               /* pixels of the rectangle, as its rows are handed over */
    ptrdiff_t scaled_height, scaled_width; /* the size after resizing */
    ptrdiff_t cut_top, cut_left;           /* where the window begins in that */
    ptrdiff_t out_height, out_width;       /* the window */
    int flip;                              /* whether the window is mirrored, left to right */
    Interpolation interpolation;
} Wanted;

typedef struct Resizing Resizing;

/* Memory for one image at a time; it is used again and again, because fresh memory costs more than resizing into it.
   NULL where there is none. */
Resizing *resizing_new(void);
void resizing_free(Resizing *);

size_t resizing_memory(const Resizing *); /* bytes that it keeps for the next image */

/* Begins with an image, whether or not the last one was finished. `out` takes out_height * out_width * 3 bytes, RGB, while
   the rows come. What that takes grows with the rectangle and the window, and not with what lies beside the window. Returns
   0 without memory, where a side has more than 2^20 pixels or more than 256 MB would be needed, or where the window does not
   lie inside of a result of that size. */
int resizing_begin(Resizing *, const Wanted *, uint8_t *out);

/* Computes the part of the rectangle that the window depends on. */
void resizing_needs(const Resizing *, ptrdiff_t *first_row, ptrdiff_t *row_end, ptrdiff_t *first, ptrdiff_t *end);

/* Takes the next rows, from the first on that is needed: RGB and a byte that is ignored for every pixel, each row from the
   first column on that is needed, `stride` bytes after the one before. Up to BESIDE bytes after the last pixel that is needed
   are read, and ignored. Returns how many rows are still to come; when there are none, the window is complete. */
ptrdiff_t resizing_rows(Resizing *, const uint8_t *rgbx, ptrdiff_t stride, ptrdiff_t count);

#endif
