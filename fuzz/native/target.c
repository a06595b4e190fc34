/* See target.h. */

#include "target.h"
#include "../../packer/_images/native/checksums.h"

#include "../../packer/_images/native/kernels/kernels.c" /* for each of its sets */
#include "../../packer/_images/native/tasks.c"          /* for the memory that it keeps */

#include <stdarg.h>
#include <stdio.h>

#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#include <sanitizer/msan_interface.h>
#define IS_CHECKED 1
#endif
#endif

static const Kernels *sets[3];
static int set_count;

int LLVMFuzzerInitialize(int *count, char ***arguments);

int
LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    sets[set_count++] = &plain;
    checksums_init();
    kernels_init();
    encoding_init();
#if HAS_AVX512
    if (kernels == &avx512)
        sets[set_count++] = &avx2;
#endif
    if (kernels != &plain)
        sets[set_count++] = kernels;
    return 0;
}

void
fail(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: this does not hold: %s\n", file, line, what);
    abort();
}

int
kernel_sets(void)
{
    return set_count;
}

void
use_kernels(int set)
{
    kernels = sets[set];
}

int
next_byte(Input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

uint8_t *
memory(size_t size)
{
    uint8_t *made = malloc(size);
    require(made != NULL || size == 0);
    return made;
}

uint8_t *
copy_image(const uint8_t *data, size_t *size, Input *controls)
{
    int byte = next_byte(controls), missing = byte >= 128 && byte < 192 ? byte - 127 : 0;
    size_t left = *size > (size_t)missing ? *size - (size_t)missing : 0;
    for (int markers = byte - 191; markers > 0 && left > 2; markers--)
        for (left--; left > 2 && data[left - 1] != 0xFF;)
            left--;
    uint8_t *copy = memory(left);
    if (left > 0)
        memcpy(copy, data, left);
    *size = left;
    return copy;
}

void
require_set(const uint8_t *data, size_t size)
{
#ifdef IS_CHECKED
    __msan_check_mem_is_initialized(data, size);
#else
    (void)data, (void)size;
#endif
}

static int
find_size(Task *task, const uint8_t *data, size_t size)
{
    if (size >= 24 && is_png(data)) {
        task->width = (int64_t)data[16] << 24 | data[17] << 16 | data[18] << 8 | data[19];
        task->height = (int64_t)data[20] << 24 | data[21] << 16 | data[22] << 8 | data[23];
        return 1;
    }
    for (size_t at = 2; at + 9 <= size && data[at] == 0xFF;) {
        uint8_t marker = data[at + 1];
        if (marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC) {
            task->height = data[at + 5] << 8 | data[at + 6];
            task->width = data[at + 7] << 8 | data[at + 8];
            return 1;
        }
        at += marker == 0xFF ? 1 : 2 + ((size_t)data[at + 2] << 8 | data[at + 3]);
    }
    return 0;
}

int
set_task(Task *task, const uint8_t *data, size_t size)
{
    *task = (Task){.file = MEMORY, .position = (int64_t)(uintptr_t)data, .size = (int64_t)size};
    if (!find_size(task, data, size) || task->height < 1 || task->width < 1 || task->height > MOST / task->width)
        return 0;
    task->crop_height = task->scaled_height = task->out_height = task->height;
    task->crop_width = task->scaled_width = task->out_width = task->width;
    return 1;
}

void
set_rectangle(Task *task, Input *controls)
{
    task->top = scaled(next_byte(controls), task->height);
    task->left = scaled(next_byte(controls), task->width);
    task->crop_height = 1 + scaled(next_byte(controls), task->height - task->top);
    task->crop_width = 1 + scaled(next_byte(controls), task->width - task->left);
    task->scaled_height = task->out_height = task->crop_height;
    task->scaled_width = task->out_width = task->crop_width;
}

static size_t
size_of(const Task *task)
{
    return 3 * (size_t)task->out_height * (size_t)task->out_width;
}

static void
forget_workspaces(void)
{
    while (idle != NULL) {
        Workspace *workspace = idle;
        idle = workspace->next;
        free_workspace(workspace);
    }
}

/* Does a task; returns 1 if it was done, 0 if it is left to other decoders, and -1 if it is invalid. */
static int
draw_into(Task *task, uint8_t *out)
{
    task->out = (int64_t)(uintptr_t)out;
    PyObject *left = call(decode_into, NULL, 0, (int64_t)(uintptr_t)task, INT64_C(1), INT64_C(0), INT64_C(0), INT64_C(0),
                          INT64_C(0), INT64_C(0), INT64_C(0), NOTHING_MORE);
    int outcome = left == NULL ? -1 : stand_in_length(left) == 0;
    Py_XDECREF(left);
    return outcome;
}

uint8_t *
draw_task(Task *task)
{
    size_t size = size_of(task);
    uint8_t *pixels = memory(size);
    int outcome = draw_into(task, pixels);
    for (int set = 0; set < set_count - 1; set++) {
        uint8_t *others = memory(size);
        use_kernels(set);
        require(draw_into(task, others) == outcome);
        require(outcome != 1 || !memcmp(pixels, others, size));
        free(others);
    }
    use_kernels(set_count - 1);
    if (outcome == 1) {
        require_set(pixels, size);
        return pixels;
    }
    free(pixels);
    return NULL;
}

void
compare_rectangle(const Task *whole, const uint8_t *pixels, Input *controls)
{
    Task task = *whole;
    set_rectangle(&task, controls);
    uint8_t *part = draw_task(&task);
    require(part != NULL);
    for (int64_t row = 0; row < task.out_height; row++) {
        const uint8_t *from = pixels + 3 * ((task.top + row) * whole->width + task.left);
        require(!memcmp(part + 3 * row * task.out_width, from, 3 * (size_t)task.out_width));
    }
    free(part);
}

PyObject *
call(Function *function, const uint8_t *data, size_t size, ...)
{
    PyObject *arguments[16];
    Py_ssize_t given = 0;
    va_list integers;
    if (data != NULL)
        arguments[given++] = stand_in_bytes((const char *)data, (Py_ssize_t)size);
    va_start(integers, size);
    for (int64_t number; (number = va_arg(integers, int64_t)) != NOTHING_MORE;)
        arguments[given++] = stand_in_number(number);
    va_end(integers);
    PyObject *result = function(NULL, arguments, given);
    while (given > 0)
        Py_DECREF(arguments[--given]);
    forget_workspaces();
    return result;
}
