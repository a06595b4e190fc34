/* Inflates zlib streams (RFC 1950 and 1951), piece by piece. Everything that zlib refuses counts as damage. So do data
   that define new codes thousands of times for very few bytes: they take long, and no encoder writes them. */

#ifndef PACKER_INFLATING_H
#define PACKER_INFLATING_H

#include <stddef.h>
#include <stdint.h>

typedef struct Inflating Inflating; /* memory that is reused for one stream at a time */

Inflating *inflating_new(void); /* NULL without memory */
void inflating_free(Inflating *);

size_t inflating_memory(const Inflating *); /* the bytes that it keeps for the next stream */

/* Begins to inflate `data`, which must remain valid. `most` is the size of the largest piece. With `checked`,
   `inflating_ends` compares zlib's checksum. Returns 0 without memory. */
int inflating_begin(Inflating *, const uint8_t *data, size_t size, size_t most, int checked);

/* Returns the next `size` bytes, which are valid until the next call; NULL if the data are damaged or too short. At
   least 16 more bytes, of any value, can be read after them. */
const uint8_t *inflating_take(Inflating *, size_t size);

/* Tells whether there are no more bytes, the stream ends correctly, and the checksum is right. */
int inflating_ends(Inflating *);

#endif
