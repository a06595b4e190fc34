/* CRC checksums of bytes. Each function continues from the checksum of the preceding bytes, 0 at the beginning. */

#ifndef PACKER_CHECKSUMS_H
#define PACKER_CHECKSUMS_H

#include <stddef.h>
#include <stdint.h>

void checksums_init(void); /* the caller holds Python's lock */

/* CRC-32 (ISO 3309), as zlib computes it. */
uint32_t crc32_zlib(uint32_t crc, const uint8_t *data, size_t size);

/* CRC-32C (RFC 3720, 12.1). */
uint32_t crc32_castagnoli(uint32_t crc, const uint8_t *data, size_t size);

#endif
