/* The chunks of PNGs (PNG specification, section 5). */

#ifndef PACKER_CHUNKS_H
#define PACKER_CHUNKS_H

#include <stddef.h>
#include <stdint.h>

enum { SIGNATURE_SIZE = 8, HEADER_SIZE = 13 };

static const uint8_t png_signature[SIGNATURE_SIZE] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

enum { GREY = 0, COLOUR = 2, PALETTE = 3, GREY_ALPHA = 4, COLOUR_ALPHA = 6 }; /* the colour types in a header */

typedef struct {
    const uint8_t *name, *body;
    size_t size; /* of the body */
} Chunk;

typedef struct { /* the fields of IHDR */
    uint32_t height, width;
    int depth, colour, interlaced;
} Header;

/* Reads the chunk at the position `at`. Returns 0 if it is cut short, or its checksum is wrong. The next chunk begins at
   `body + size + 4`. */
int read_chunk(const uint8_t *data, size_t size, size_t at, Chunk *chunk);

int is_named(const Chunk *chunk, const char *name);

/* Tells whether PNGs of this colour type may have samples of `depth` bits. */
int is_known_kind(int depth, int colour);

/* Reads IHDR. Returns 0 if the chunk is no valid IHDR; `interlaced` is not checked. */
int read_header(const Chunk *chunk, Header *header);

/* Tells whether every decoder accepts a chunk, and it has no orientation and no pages; the opposite of `_is_unusual` in
   packer/_images/png.py. */
int is_usual_chunk(const Chunk *chunk, int colour);

/* Tells whether a text chunk has a key that Pillow uses itself. */
int has_key_of_pillow(const Chunk *chunk);

#endif
