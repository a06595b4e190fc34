/* Reads the bytes of samples from files, and compares them with their checksums. */

#ifndef PACKER_READING_H
#define PACKER_READING_H

#include <stddef.h>
#include <stdint.h>

/* Reads `size` bytes from `position` on into memory; 0 where that fails, or the file ends before. */
int read_from(int file, uint8_t *to, size_t size, int64_t position);

/* Returns the CRC-32C (RFC 3720, 12.1) of bytes that follow others, whose CRC-32C is `crc`; 0 where there are none. */
uint32_t crc32c(uint32_t crc, const uint8_t *data, size_t size);

void reading_init(void);

#endif
