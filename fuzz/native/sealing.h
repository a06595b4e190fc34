/* Checksums made to fit: they would keep a fuzzer out of what they protect. */

#ifndef PACKER_FUZZ_SEALING_H
#define PACKER_FUZZ_SEALING_H

#include <stddef.h>
#include <stdint.h>

/* Returns a copy of a PNG, to be freed, whose chunks have the checksums that fit them, and end within the data. Where `stored`,
   the bytes of its samples are not compressed, and are wrapped as zlib wraps such. Other data are copied as they are. */
uint8_t *seal_png(const uint8_t *data, size_t size, int stored, size_t *made);

/* Gives the first tile segment of a JPEG, where there is one, the checksum that fits its table and the header after it. */
void seal_tiles(uint8_t *data, size_t size);

#endif
