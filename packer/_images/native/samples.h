/* Fetches the bytes of samples from the locations in their tasks. */

#ifndef PACKER_SAMPLES_H
#define PACKER_SAMPLES_H

#include "geometry.h"
#include "rows.h"
#include "task.h"

#include <stddef.h>
#include <stdint.h>

typedef struct { /* a buffer that is reused, and grows */
    uint8_t *at;
    size_t size;
} Memory;

/* Tells whether data of 2 bytes or more begin as a PNG does. */
static inline int
is_png(const uint8_t *data)
{
    return data[0] == 0x89 && data[1] == 'P';
}

/* Makes a buffer at least `size` bytes large; its content becomes undefined. Returns 0 without memory. */
int reserve(Memory *memory, size_t size);

typedef struct { /* the columns of the table that a checksum includes */
    int64_t label, height, width;
} Row;

/* Returns the checksum of a sample: as `checksum` in packer/_table.py. */
uint32_t checksum_of(const Row *sample, const uint8_t *data, size_t size, const uint8_t *name, size_t name_size);

/* Returns the bytes of an image; if they are in a file, reads them into `memory`. Returns NULL, and sets `outcome`, if
   they cannot be read, have changed, or are neither raw pixels nor a JPEG or PNG. */
const uint8_t *find_bytes(Memory *memory, const Task *task, Outcome *outcome);

/* Tells whether rows of an image can be read without the others: it consists of raw pixels in a file, and its checksum
   is not compared. */
int has_rows_apart(const Task *task);

/* Reads the pixels of such an image from the first to the last one of a rectangle, with all pixels between them. The
   rectangle must lie inside of the image. */
Outcome read_pixels(Memory *memory, const Task *task, Rectangle rectangle);

#endif
