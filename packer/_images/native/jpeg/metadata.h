/* The metadata of JPEGs: whether Pillow accepts it, and whether it has an orientation. */

#ifndef PACKER_METADATA_H
#define PACKER_METADATA_H

#include <stddef.h>
#include <stdint.h>

/* Tells whether Pillow is known to accept an application segment or a comment. If not, Pillow decides whether the image
   can be read at all. `exifs` counts the EXIF segments of the image, and must be 0 before the first segment. */
int is_usual(uint8_t marker, const uint8_t *content, ptrdiff_t size, int *exifs);

/* Returns the EXIF orientation in a segment, 1 to 8, or 0 if there is none. `is_usual` must have accepted the segment. */
int orientation_of(uint8_t marker, const uint8_t *content, ptrdiff_t size);

/* Tells whether a segment may hold an orientation in XMP. */
int may_turn(uint8_t marker, const uint8_t *content, ptrdiff_t size);

#endif
