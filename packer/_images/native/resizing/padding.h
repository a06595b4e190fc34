/* Pads windows that reach beyond the edges of their image. */

#ifndef PACKER_PADDING_H
#define PACKER_PADDING_H

#include "resizing/resizing.h"

#include <stdint.h>

typedef enum { CONSTANT, EDGE, REFLECT, SYMMETRIC } Mode; /* indices into PADDINGS in packer/_images/geometry.py */

typedef struct {
    Mode mode;
    uint8_t colour[3]; /* of CONSTANT */
} Padding;

/* Tells whether a window reaches outside of the resized rectangle. */
int is_padded(const Wanted *window);

/* Returns the part of the resized rectangle that a window shows. If it shows none, returns the nearest pixels, so that
   damage in the image is found all the same. The part has no more rows and no more columns than the window. */
Wanted visible_part(const Wanted *window, const Padding *padding);

/* Writes the window from the pixels of that part, which are already mirrored if the window is. */
void pad(const Wanted *window, const Wanted *part, const Padding *padding, const uint8_t *pixels, uint8_t *out);

#endif
