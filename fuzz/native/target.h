/* Shared code of the targets. A target is a function of bytes, LLVMFuzzerTestOneInput, which a fuzzer calls repeatedly.

   Sanitizers find reads and writes out of bounds, and reads of memory that is not set. Results are checked by `require`
   if there is something to compare them with: vector code with plain C, a part of an image with the whole. */

#ifndef PACKER_FUZZ_TARGET_H
#define PACKER_FUZZ_TARGET_H

#define PY_SSIZE_T_CLEAN
#include "../../packer/_images/native/task.h"
#include "../../tests/native/stand_in.h"

#include <stddef.h>
#include <stdint.h>

enum { MOST = 1 << 18 }; /* pixels of an image, so that no input takes long */

/* Ends the program if a condition is false. */
#define require(holds) ((holds) ? (void)0 : fail(#holds, __FILE__, __LINE__))
_Noreturn void fail(const char *what, const char *file, int line);

typedef struct { /* the rest of an input; in most inputs, bytes of controls come before the image */
    const uint8_t *at, *end;
} Input;

int next_byte(Input *); /* 0 at the end */

/* Scales a byte to a number from 0 to `count` - 1. */
static inline int64_t
scaled(int byte, int64_t count)
{
    return byte * count / 256;
}

/* Sets a task for a whole image without resizing or copying it; returns 0 if its size is unknown or too large. */
int set_task(Task *task, const uint8_t *data, size_t size);

/* Sets a task to a rectangle of the image, without resizing; four controls choose it. */
void set_rectangle(Task *task, Input *controls);

/* Does a task with each set of kernels, in fresh memory, and requires the same results. Returns the pixels, of
   out_height * out_width * 3 bytes, to be freed; NULL if the task is left to other decoders. */
uint8_t *draw_task(Task *task);

/* Requires that a rectangle of an image has the pixels of the whole image. Four controls choose it. */
void compare_rectangle(const Task *whole, const uint8_t *pixels, Input *controls);

/* Returns how many sets of kernels this processor supports: plain C is the first, and the module's choice the last. */
enum { PLAIN = 0 };
int kernel_sets(void);

/* Makes the module use one of them. */
void use_kernels(int set);

/* Calls a function of the module with bytes, if there are any, and with integers up to NOTHING_MORE. */
#define NOTHING_MORE INT64_MIN
typedef PyObject *Function(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *call(Function *function, const uint8_t *data, size_t size, ...);

/* Returns memory of exactly `size` bytes, which are not set. */
uint8_t *memory(size_t size);

/* Returns a copy of an image, to be freed, in memory of exactly its size. The copy may be shorter: one control decides
   whether it lacks some of the last bytes, or ends in the middle of a marker. */
uint8_t *copy_image(const uint8_t *data, size_t *size, Input *controls);

/* Requires that all of some bytes are set; only the memory sanitizer can find that they are not. */
void require_set(const uint8_t *data, size_t size);

#endif
