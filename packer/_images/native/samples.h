/* Fetches the bytes of samples from the locations in their tasks. */

#ifndef PACKER_SAMPLES_H
#define PACKER_SAMPLES_H

#include "geometry.h"
#include "rows.h"
#include "task.h"

#include <stddef.h>
#include <stdint.h>

typedef struct { /* memory that is used for one thing after the other, and grows */
    uint8_t *at;
    size_t size;
} Memory;

/* Tells whether data of 2 bytes or more begin as a PNG does. */
static inline int
is_png(const uint8_t *data)
{
    return data[0] == 0x89 && data[1] == 'P';
}

/* Makes room for so many bytes of any value; 0 where there is no such memory. */
int reserve(Memory *memory, size_t size);

typedef struct { /* what a table says of an image */
    int64_t label, height, width;
} Row;

/* Returns the checksum of a sample: as `checksum` in packer/_table.py. */
uint32_t checksum_of(const Row *sample, const uint8_t *data, size_t size, const uint8_t *name, size_t name_size);

/* Finds the bytes of an image, and reads them into memory where they lie in a file; NULL where they cannot be read, are not
   what they were, or are neither pixels nor a JPEG or PNG. */
const uint8_t *find_bytes(Memory *memory, const Task *task, Outcome *outcome);

/* Tells whether rows of an image can be read without the others: its bytes are pixels, in a file, and are not checked. */
int has_rows_apart(const Task *task);

/* Reads the pixels of such an image from the first of a rectangle, which lies inside of it, to the last one. */
Outcome read_pixels(Memory *memory, const Task *task, Rectangle rectangle);

#endif
