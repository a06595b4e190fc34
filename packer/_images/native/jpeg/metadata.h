/* Tells whether every decoder accepts the metadata of a JPEG. */

#ifndef PACKER_METADATA_H
#define PACKER_METADATA_H

#include <stddef.h>
#include <stdint.h>

/* Tells whether an application segment or a comment is such as Pillow is known to read. Where an image has another one,
   Pillow decides whether the image can be read at all. `exifs` counts the EXIF segments of the image, from 0 on. */
int is_usual(uint8_t marker, const uint8_t *content, ptrdiff_t size, int *exifs);

/* Returns the EXIF orientation that a segment says, 1 to 8, or 0 where it says none. The segment is a usual one. */
int orientation_of(uint8_t marker, const uint8_t *content, ptrdiff_t size);

/* Tells whether a segment may hold an orientation in XMP. */
int may_turn(uint8_t marker, const uint8_t *content, ptrdiff_t size);

#endif
