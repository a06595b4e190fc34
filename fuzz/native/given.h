/* What inputs give beside images: numbers of any size, operations, and windows. */

#ifndef PACKER_FUZZ_GIVEN_H
#define PACKER_FUZZ_GIVEN_H

#include "target.h"
#include "../../packer/_images/native/augmenting/augmenting.h"

/* Returns an integer: most are small, and some as large as there are. */
int64_t given_integer(Input *);

/* Returns a number: most are near 0, and some as large or small as there are, or none. */
double given_number(Input *);

/* Returns a number of 0 to before 1. */
double given_random(Input *);

/* Returns an operation. Most can be done to an image of this size; the others are refused. */
Operation given_operation(Input *, int64_t height, int64_t width);

/* Fills memory with the bytes that are left, again and again. */
void fill_from(Input *, uint8_t *to, size_t size);

/* Sets a task for pixels that end where the input does; 0 where there are fewer. */
int set_raw(Task *task, Input *);

/* Sets the window in what the rectangle is resized to, by six controls. Without INSIDE, it may lie outside. */
enum { AS_IT_IS = 0x40, INSIDE = 0x80 };
void set_window(Task *task, int flags, Input *controls);

#endif
