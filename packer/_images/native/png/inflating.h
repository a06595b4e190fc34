/* Inflates zlib streams (RFC 1950 and 1951), piece by piece. Everything that zlib refuses counts as damage; so do data
   that define new codes thousands of times for hardly a byte: they take time, and no encoder writes them. */

#ifndef PACKER_INFLATING_H
#define PACKER_INFLATING_H

#include <stddef.h>
#include <stdint.h>

typedef struct Inflating Inflating; /* memory that is used for one stream after the other */

Inflating *inflating_new(void); /* NULL without memory */
void inflating_free(Inflating *);

size_t inflating_memory(const Inflating *); /* bytes that it keeps for the next stream */

/* Begins with `data`, which stay where they are. `most` is the size of the largest piece; `checked` tells whether zlib's
   checksum is wanted, which `inflating_ends` compares. Returns 0 without memory. */
int inflating_begin(Inflating *, const uint8_t *data, size_t size, size_t most, int checked);

/* Returns the next `size` bytes, which stay until the next call; NULL where the data are damaged, or there are not so many.
   At least 16 bytes of any value may be read after them. */
const uint8_t *inflating_take(Inflating *, size_t size);

/* Tells whether there are no more bytes, the data end as they should, and the checksum is right. */
int inflating_ends(Inflating *);

#endif
