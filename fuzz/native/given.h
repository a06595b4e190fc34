/* Values that inputs have besides images: numbers of any size, operations, and windows. */

#ifndef PACKER_FUZZ_GIVEN_H
#define PACKER_FUZZ_GIVEN_H

#include "target.h"
#include "../../packer/_images/native/augmenting/augmenting.h"

/* Returns an integer: most are small, and some near the limits of their type. */
int64_t given_integer(Input *);

/* Returns a number: most are near 0, and some extreme, infinite or NaN. */
double given_number(Input *);

/* Returns a number from 0 to 1, without 1. */
double given_random(Input *);

/* Returns an operation. Most can be done to an image of this size; the others are refused. */
Operation given_operation(Input *, int64_t height, int64_t width);

/* Fills memory with the rest of the input, which is repeated. */
void fill_from(Input *, uint8_t *to, size_t size);

/* Sets a task for raw pixels, which end at the end of the input; returns 0 if there are too few. */
int set_raw(Task *task, Input *);

/* Sets the window in the resized rectangle, by six controls. Without INSIDE, it may be partly or wholly outside. */
enum { AS_IT_IS = 0x40, INSIDE = 0x80 };
void set_window(Task *task, int flags, Input *controls);

#endif
