/* The host's description of a batch: the crops, and the positions of their data. `device/batch.py` has the same structures.

   Offsets are in elements of their buffer. Rows and columns of MCUs, samples and pixels count from the upper left corner of
   the window: the MCUs on which a crop depends. */

#ifndef DEVICE_LAYOUT_H
#define DEVICE_LAYOUT_H

#include "portable.h"

enum {
    COMPONENTS = 3,
    BLOCKS = 10,  /* at most, of an MCU */
    TABLES = 4,   /* of Huffman codes: two for DC, then two for AC */
    LENGTHS = 16, /* of codes, in bits */
    SAYS = LENGTHS + 256 /* bytes of a table's definition: the number of codes of each length, and the symbols in order */
};

enum { FINE, DAMAGED, UNSUPPORTED }; /* status of a tile */

enum { AS_IT_IS, SMOOTH, SMOOTH_DOWN, REPEATED }; /* the upsampling of a component */

enum { BILINEAR, BICUBIC };

/* One group of rows of tiles. */
typedef struct {
    uint32_t from, size; /* bytes in the slab, with the marker after the last tile */
    uint32_t to;         /* the first word for its bits; there is room for `size` bytes and one more word */
    uint32_t tile;       /* index of its first tile in the batch */
    uint32_t tiles;      /* the number of its tiles */
    uint32_t number;     /* of its first tile in the image */
    uint32_t is_last;    /* whether the image ends with it */
} Group;

typedef struct {
    int32_t across, down; /* blocks of an MCU */
    int32_t wide, tall;   /* pixels that a sample covers */
    int32_t upsampling;
    int32_t first_row, first_column; /* samples of the image before those of the window */
    int32_t height, width;           /* samples of the whole image */
    int32_t blocks, stride; /* of the window: blocks of a row of blocks, samples of a row */
    uint32_t coefficients;  /* the first block */
    uint32_t plane;         /* the first sample */
    int32_t dc, ac;         /* tables */
} Component;

/* One axis of resizing. */
typedef struct {
    double scale, stretch, reach; /* see weighing.h of packer */
    int32_t side, cut, out, most;
    int32_t is_same;   /* whether nothing is resized */
    uint32_t spans;     /* of the first pixel of the result */
    uint32_t weights;
    uint32_t precision; /* index of the number of fractional bits */
} Axis;

typedef struct {
    Component components[COMPONENTS];
    int32_t count; /* of components: 1 or 3 */
    int32_t rows, columns; /* MCUs of the window */
    int32_t tile_rows, tile_columns; /* tiles of the window */
    int32_t image_columns;           /* tiles of a row of the image */
    int32_t interval;                /* MCUs of a tile */
    int32_t skipped;                 /* MCUs of a row of tiles of the window before the first of the window */
    uint32_t tile;   /* the first tile of the window, in the batch */
    uint32_t order;  /* the first of its elements in `order`, the order in which tiles are decoded */
    int32_t tables[TABLES]; /* bytes of each; 0 if it is missing */
    int32_t top, left; /* pixels of the window before those that resizing needs */
    int32_t height;    /* rows of pixels that resizing needs */
    int32_t crop_top, crop_left; /* the crop's corner, from the window's */
    uint32_t resized;  /* the first pixel after the pass across */
    uint32_t out;      /* the first pixel of the result, in all pixels */
    int32_t flip;
    int32_t interpolation;
    Axis axes[2]; /* down, across */
} Image;

typedef struct {
    int32_t first, count;
} Span;

/* The tiles of an image that a block decodes: from `first` on, in the order of their sizes. */
typedef struct {
    uint32_t image, first;
} Chunk;

#endif
