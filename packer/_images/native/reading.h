/* Reads the bytes of samples from files. */

#ifndef PACKER_READING_H
#define PACKER_READING_H

#include <stddef.h>
#include <stdint.h>

/* Reads `size` bytes from `position` on into memory; 0 where that fails, or the file ends before. */
int read_from(int file, uint8_t *to, size_t size, int64_t position);

/* A record of LISTED in packer/_storage/packfile.py: a file that is opened by its path, and its stamp in the list. */
typedef struct {
    int64_t directory; /* the descriptor that the path counts from */
    int64_t path;      /* the address of its bytes, with a zero after them */
    int64_t size, modified;
} Listed;

/* Opens a regular file that is what was listed, without waiting for anything; -1 where there is none, or the path is not a
   plain relative one. */
int open_listed(const Listed *listed);

/* Tells whether an open file is unchanged since the listing, and its modification time. */
int is_listed(int file, const Listed *listed, int64_t *modified);

void close_file(int file);

#endif
