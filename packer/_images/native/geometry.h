/* Rectangles and windows of images. */

#ifndef PACKER_GEOMETRY_H
#define PACKER_GEOMETRY_H

#include <stddef.h>
#include <stdint.h>

static const int64_t MOST_PIXELS = 2 * INT64_C(89478485); /* of an image: MAX_PIXELS in packer/_codecs.py */
enum { PASSES = 16 }; /* scans of an image of MOST_PIXELS, at most: _SCANS in packer/_images/probe.py */

typedef struct { /* pixels */
    ptrdiff_t top, left, height, width;
} Rectangle;

typedef struct { /* MCUs or tiles: the rows `first_row` to `row_end` - 1, and in each the columns `first` to `end` - 1 */
    ptrdiff_t first_row, row_end, first, end;
} Window;

static inline ptrdiff_t
smaller(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

static inline ptrdiff_t
larger(ptrdiff_t a, ptrdiff_t b)
{
    return a > b ? a : b;
}

#endif
