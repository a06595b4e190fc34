/* Converts the levels of pixels to numbers by a table. */

#ifndef PACKER_LOOKUP_H
#define PACKER_LOOKUP_H

#include <stddef.h>
#include <stdint.h>

/* Replaces each level of RGB pixels by a number, and writes one plane for each channel. `table` has 256 numbers for red,
   then those for green and blue. */
void look_up_planes(const uint8_t *pixels, ptrdiff_t count, const float *table, float *out);

#endif
