/* The filters of PNGs (PNG specification, section 9). */

#ifndef PACKER_UNFILTERING_H
#define PACKER_UNFILTERING_H

#include <stddef.h>
#include <stdint.h>

/* Undoes the filter of a row of `size` bytes; `step` is how many bytes before a byte its left neighbour lies, and `above` the
   row above. Returns 0 of a filter that there is not. */
int unfilter_row(int filter, const uint8_t *from, const uint8_t *above, ptrdiff_t size, ptrdiff_t step, uint8_t *to);

#endif
