/* Reads the bytes of samples from files. */

#ifndef PACKER_READING_H
#define PACKER_READING_H

#include <stddef.h>
#include <stdint.h>

/* Reads `size` bytes at `position` of a file. Returns 0 on an error, or if the file is too short. */
int read_from(int file, uint8_t *to, size_t size, int64_t position);

/* A record of LISTED in packer/_storage/packfile.py: a file to open by its path, and its stamp in the listing. */
typedef struct {
    int64_t directory; /* the descriptor of the directory that the path is relative to */
    int64_t path;      /* the address of the path, which ends with a zero byte */
    int64_t size, modified;
} Listed;

/* Opens a listed file without blocking. Returns -1 if there is no regular file with the listed stamp, or if the path is
   not a plain relative one. */
int open_listed(const Listed *listed);

/* Tells whether an open file is unchanged since the listing; if so, sets `modified` to its modification time. */
int is_listed(int file, const Listed *listed, int64_t *modified);

void close_file(int file);

#endif
