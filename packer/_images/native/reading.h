/* Reads the bytes of samples from files. */

#ifndef PACKER_READING_H
#define PACKER_READING_H

#include <stddef.h>
#include <stdint.h>

/* Reads `size` bytes from `position` on into memory; 0 where that fails, or the file ends before. */
int read_from(int file, uint8_t *to, size_t size, int64_t position);

#endif
