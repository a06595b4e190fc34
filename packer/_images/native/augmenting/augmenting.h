/* Augmentations of images in place, with the results of torchvision's v2 transforms on uint8 tensors.

   Each kind of operation has a module: toning.c maps levels by a table, colouring.c mixes the channels of a pixel,
   blurring.c combines neighbours, moving.c moves pixels. */

#ifndef PACKER_AUGMENTING_H
#define PACKER_AUGMENTING_H

#include "samples.h"

#include <stddef.h>
#include <stdint.h>

/* A record of OPERATION in packer/_images/operations.py, which documents the fields. Python compares the names. */
#define OPERATION(INTEGER, NUMBER, MATRIX) \
    INTEGER(kind) NUMBER(factor) MATRIX(matrix) INTEGER(interpolation) INTEGER(fill) INTEGER(top) INTEGER(left) \
    INTEGER(height) INTEGER(width)
#define INTEGER_FIELD(name) int64_t name;
#define NUMBER_FIELD(name) double name;
#define MATRIX_FIELD(name) double name[6];

typedef struct {
    OPERATION(INTEGER_FIELD, NUMBER_FIELD, MATRIX_FIELD)
} Operation;

/* Indices into KINDS in operations.py. */
enum {
    NOTHING, BRIGHTNESS, CONTRAST, SATURATION, HUE, GRAYSCALE, BLUR, SOLARIZE, POSTERIZE, EQUALIZE, AUTOCONTRAST, INVERT,
    SHARPNESS, AFFINE, ERASE, KINDS,
};

enum { NEAREST = 0, NO_FILL = -1 };
enum { LONGEST_MOVED = 1 << 20 }; /* pixels of a side: floats do not resolve the pixels of longer sides; as in operations.py */

typedef struct { /* RGB pixels, whose rows follow one another; and memory for one operation at a time */
    uint8_t *pixels;
    ptrdiff_t height, width;
    Memory *scratch;
} Image;

/* Limits a factor, so that its products with levels fit into 32 bits. With far smaller factors, all results are already
   black or white. */
static inline double
limited(double factor)
{
    const double most = 1 << 20;
    return factor < -most ? -most : factor > most ? most : factor;
}

/* Returns the problem of operations on an image of this size, or NULL. */
const char *find_wrong_operation(const Operation *operations, int64_t count, int64_t height, int64_t width);

/* Applies operations one after the other. Returns 0 without memory. */
int augment(const Image *image, const Operation *operations, int64_t count);

/* toning.c */
void tone(const Image *image, const Operation *operation);

/* colouring.c */
double mean_grey(const Image *image);
void saturate(const Image *image, double factor);
void turn_hue(const Image *image, double shift);
void make_grey(const Image *image);

/* blurring.c */
int sharpen(const Image *image, double factor);
int blur(const Image *image, const Operation *operation);

/* moving.c */
int move(const Image *image, const Operation *operation);

#endif
