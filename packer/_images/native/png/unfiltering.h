/* The filters of PNGs (PNG specification, section 9). */

#ifndef PACKER_UNFILTERING_H
#define PACKER_UNFILTERING_H

#include <stddef.h>
#include <stdint.h>

/* Undoes the filter of a row of `size` bytes. `step` is the distance in bytes from a byte to its left neighbour, and
   `above` is the row above. Returns 0 if there is no such filter. */
int unfilter_row(int filter, const uint8_t *from, const uint8_t *above, ptrdiff_t size, ptrdiff_t step, uint8_t *to);

#endif
