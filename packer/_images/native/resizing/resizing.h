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
    ptrdiff_t cut_top, cut_left;           /* where the window begins in the result */
    ptrdiff_t out_height, out_width;       /* the window */
    int flip;                              /* whether the window is mirrored, left to right */
    Interpolation interpolation;
} Wanted;

typedef struct Resizing Resizing;

/* Memory for one image at a time, which is reused because fresh memory costs more than resizing into it. NULL without
   memory. */
Resizing *resizing_new(void);
void resizing_free(Resizing *);

size_t resizing_memory(const Resizing *); /* the bytes that it keeps for the next image */

/* Begins an image, whether or not the last one was finished. `out` receives out_height * out_width * 3 bytes of RGB
   while the rows arrive. The memory needed depends on the rectangle and the window, not on the rest of the result.
   Returns 0 without memory; if a side has more than 2^20 pixels, or more than 2^30 after resizing; if more than 256 MiB
   would be needed; or if the window does not lie inside of the result. */
int resizing_begin(Resizing *, const Wanted *, uint8_t *out);

/* Returns the part of the rectangle that the window depends on. */
void resizing_needs(const Resizing *, ptrdiff_t *first_row, ptrdiff_t *row_end, ptrdiff_t *first, ptrdiff_t *end);

/* Takes the next `count` rows of this part, which begin `stride` bytes apart. Each has the columns of the part, with RGB
   and an ignored byte for every pixel. Up to BESIDE bytes after the last pixel are read, and ignored. Returns how many
   rows are still needed; if that is 0, the window is complete. */
ptrdiff_t resizing_rows(Resizing *, const uint8_t *rgbx, ptrdiff_t stride, ptrdiff_t count);

#endif
