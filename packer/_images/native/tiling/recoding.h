/* Converts scans of any kind to coefficients, and coefficients to tokens: for progressive images, and for images with a
   scan that lacks some components. */

#ifndef PACKER_RECODING_H
#define PACKER_RECODING_H

#include "tiling/structure.h"
#include "tiling/tokens.h"

#include <stddef.h>
#include <stdint.h>

typedef struct { /* the blocks of all components, one component after the other, in rows of whole interleaved MCUs */
    ptrdiff_t first[COMPONENTS], stride[COMPONENTS]; /* of each component: its first block; blocks of a row */
    ptrdiff_t count;                                 /* of all blocks */
    int16_t *coefficients;                           /* 64 of each block, in zigzag order; zeros before the first scan */
} Planes;

/* Lays out the planes of a frame, without the coefficients. */
void lay_out_planes(Planes *planes, const Frame *frame);

/* Returns how many MCUs a scan has across, and sets `down` to how many it has down. In a scan of one component, an MCU
   is a block. */
ptrdiff_t mcus_of_scan(const Frame *frame, const Scan *scan, ptrdiff_t *down);

/* Reads a scan. */
Problem read_coefficients(const CodedScan *coded, const Scan *scan, const Frame *frame, const Planes *planes);

/* Converts the coefficients to tokens. There must be room for a token for each coefficient that is not 0, and for 5 more
   for each block. */
Problem put_coefficients(const Planes *planes, const Frame *frame, Tokens *tokens);

#endif
