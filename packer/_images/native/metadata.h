/* Which metadata of a JPEG no decoder stumbles over. */

#ifndef PACKER_METADATA_H
#define PACKER_METADATA_H

#include <stddef.h>
#include <stdint.h>

/* Tells whether an application segment or a comment is such as Pillow is known to read. Of an image with another one, Pillow
   decides whether it can be read at all. `exifs` counts the EXIF segments of the image, from 0 on. */
int is_usual(uint8_t marker, const uint8_t *content, ptrdiff_t size, int *exifs);

#endif
