/* The chunks of PNGs (PNG specification, section 5). */

#ifndef PACKER_CHUNKS_H
#define PACKER_CHUNKS_H

#include <stddef.h>
#include <stdint.h>

enum { SIGNATURE_SIZE = 8, HEADER_SIZE = 13 };

static const uint8_t png_signature[SIGNATURE_SIZE] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

enum { GREY = 0, COLOUR = 2, PALETTE = 3, GREY_ALPHA = 4, COLOUR_ALPHA = 6 }; /* kinds of images, as a header says them */

typedef struct {
    const uint8_t *name, *body;
    size_t size; /* of the body */
} Chunk;

typedef struct { /* what the first chunk says */
    uint32_t height, width;
    int depth, colour, interlaced;
} Header;

/* Reads the chunk at a place, and compares its checksum; 0 where there is no whole one. The next one stands at
   `body + size + 4`. */
int read_chunk(const uint8_t *data, size_t size, size_t at, Chunk *chunk);

int is_named(const Chunk *chunk, const char *name);

/* Tells whether images may have samples of so many bits, and be of such a kind. */
int is_known_kind(int depth, int colour);

/* Reads the first chunk; 0 where it is none that a PNG has. */
int read_header(const Chunk *chunk, Header *header);

/* Tells whether no decoder stumbles over a chunk, and none finds an orientation or pages in it: as `_is_unusual` in
   packer/_images/png.py. */
int is_usual_chunk(const Chunk *chunk, int colour);

/* Tells whether the text that a chunk holds has a key that Pillow takes for its own. */
int has_key_of_pillow(const Chunk *chunk);

#endif
