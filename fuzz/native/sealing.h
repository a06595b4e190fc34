/* Corrected checksums: wrong ones would stop a fuzzer before it reaches the code behind them. */

#ifndef PACKER_FUZZ_SEALING_H
#define PACKER_FUZZ_SEALING_H

#include <stddef.h>
#include <stdint.h>

/* Returns a copy of a PNG, to be freed, whose chunks have matching checksums and end within the data. If `stored`, the
   samples in the input are not compressed, and are wrapped in zlib's format. Other data are copied unchanged. */
uint8_t *seal_png(const uint8_t *data, size_t size, int stored, size_t *made);

/* Gives the first tile segment of a JPEG, if there is one, the checksum of its table and the header after it. */
void seal_tiles(uint8_t *data, size_t size);

#endif
