/* What the targets share. A target is a function of bytes, which a fuzzer calls again and again: LLVMFuzzerTestOneInput.

   Sanitizers look for reads and writes of what is not there, or not yet set. Where a promise can be compared with
   something, `require` does: what each kind of this processor's vectors gives with what plain C gives, a part of an image with
   the whole. */

#ifndef PACKER_FUZZ_TARGET_H
#define PACKER_FUZZ_TARGET_H

#define PY_SSIZE_T_CLEAN
#include "../../packer/_images/native/task.h"
#include "../../tests/native/stand_in.h"

#include <stddef.h>
#include <stdint.h>

enum { MOST = 1 << 18 }; /* pixels of an image, so that no input takes long */

/* Ends the program where something does not hold. */
#define require(holds) ((holds) ? (void)0 : fail(#holds, __FILE__, __LINE__))
_Noreturn void fail(const char *what, const char *file, int line);

typedef struct { /* the controls, which stand before the image in most inputs; and the rest */
    const uint8_t *at, *end;
} Input;

int next_byte(Input *); /* 0 where there is none */

/* Returns one of the numbers from 0 to before `count`. */
static inline int64_t
scaled(int byte, int64_t count)
{
    return byte * count / 256;
}

/* Sets a task for the whole of an image, which stays where it is, as it is; 0 where its size is not found, or too large. */
int set_task(Task *task, const uint8_t *data, size_t size);

/* Wants a rectangle of the image, unresized; four controls say which. */
void set_rectangle(Task *task, Input *controls);

/* Does a task, in memory that nothing else has used, with each set of kernels, which give the same. Returns the pixels, of out_height * out_width * 3 bytes, to be freed; NULL where it is left to other decoders. */
uint8_t *draw_task(Task *task);

/* Looks at a rectangle of an image that is drawn whole: it has these pixels. Four controls say which. */
void compare_rectangle(const Task *whole, const uint8_t *pixels, Input *controls);

/* Returns how many sets of kernels this processor knows: plain C comes first, and last those that the module uses. */
enum { PLAIN = 0 };
int kernel_sets(void);

/* Lets the module use one of them. */
void use_kernels(int set);

/* Calls a function of the module with bytes, if there are any, and integers, the last of which is before NOTHING_MORE. */
#define NOTHING_MORE INT64_MIN
typedef PyObject *Function(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *call(Function *function, const uint8_t *data, size_t size, ...);

/* Returns memory of exactly so many bytes, which are not set. */
uint8_t *memory(size_t size);

/* Returns a copy of an image, to be freed, in memory of exactly its size, which the copy may have less of: one control says
   whether it lacks some of the last bytes, or ends in the midst of a marker. */
uint8_t *copy_image(const uint8_t *data, size_t *size, Input *controls);

/* Tells the sanitizer of memory that all of some bytes should be set. */
void require_set(const uint8_t *data, size_t size);

#endif
