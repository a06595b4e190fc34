/* Table entries of images, computed from their bytes. */

#ifndef PACKER_SURVEY_H
#define PACKER_SURVEY_H

#include <stddef.h>
#include <stdint.h>

enum { CMYK = 1, ROTATED = 2, TRAILING = 4 }; /* findings: four components; an orientation; bytes after the image's end */

typedef enum {
    SEEN,
    UNUSUAL, /* left to Python */
    MORE     /* more bytes of the image are needed */
} Sight;

typedef enum { IS_JPEG, IS_PNG, IS_WEBP } Kind;

typedef struct {
    int64_t height, width;
    int orientation, findings;
    Kind kind;
} Look;

/* Finds the properties of an image of `size` bytes. `data` has its first `have` bytes, and `last` its last two.
   `inspect` in packer/_images/probe.py does the same, and is called for UNUSUAL images. */
Sight look_at(const uint8_t *data, size_t have, size_t size, const uint8_t last[2], Look *look);

#endif
