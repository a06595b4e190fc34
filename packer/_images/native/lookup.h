/* Converts the levels of pixels to numbers by a table. */

#ifndef PACKER_LOOKUP_H
#define PACKER_LOOKUP_H

#include <stddef.h>
#include <stdint.h>

/* Writes each level of RGB pixels as the number that the table of its colour says, one colour after the other. */
void look_up_planes(const uint8_t *pixels, ptrdiff_t count, const float *table, float *out);

#endif
