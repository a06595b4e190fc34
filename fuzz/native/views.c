/* Views of one image that are made together, with operations on each, as levels or as numbers: each equals a view that
   is made alone, and to which the operations and the table of numbers are applied afterwards. */

#include "given.h"
#include "../../packer/_images/native/native.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VIEWS = 4, MOST_EACH = 2 };
enum { RAW = 1, NUMBERS = 2, PLAIN_C = 4, EACH = 0x18 }; /* flags */

static size_t
levels_of(const Task *task)
{
    return 3 * (size_t)task->out_height * (size_t)task->out_width;
}

/* Makes one view alone, as levels; NULL if it is left to other decoders, or refused. */
static uint8_t *
made_alone(const Task *task, const Operation *operations, int64_t each)
{
    Task alone = *task;
    uint8_t *pixels = draw_task(&alone);
    if (pixels == NULL)
        return NULL;
    PyObject *done = call(augment_image, NULL, 0, (int64_t)(uintptr_t)pixels, task->out_height, task->out_width,
                          (int64_t)(uintptr_t)operations, each, NOTHING_MORE);
    if (done != NULL) {
        Py_DECREF(done);
        return pixels;
    }
    free(pixels);
    return NULL;
}

/* Compares a view with the same view made alone; numbers are the levels plus a half, in the order of colours. */
static void
compare_view(const Task *task, const uint8_t *alone, int are_numbers)
{
    const size_t count = levels_of(task), pixels = count / 3;
    const void *out = (const void *)(uintptr_t)task->out;
    require(alone != NULL);
    require_set(out, count * (are_numbers ? sizeof(float) : 1));
    if (!are_numbers)
        require(!memcmp(out, alone, count));
    else
        for (size_t i = 0; i < count; i++)
            require(((const float *)out)[i % 3 * pixels + i / 3] == (float)alone[i] + 0.5f);
}

static void
set_view(Task *task, Input *controls)
{
    int flags = next_byte(controls);
    set_rectangle(task, controls);
    set_window(task, flags, controls);
    if (task->out_height * task->out_width > MOST)
        task->out_height = task->out_width = 1;
    task->flip = flags & 1;
    task->interpolation = flags >> 1 & 1;
    task->padding = flags >> 2 & 3;
    task->fill = flags * 0x010203;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { CONTROLS = 96 };
    Task tasks[VIEWS];
    Operation operations[VIEWS * MOST_EACH];
    if (size < CONTROLS)
        return 0;
    Input controls = {data, data + CONTROLS}, rest = {data + CONTROLS, data + size};
    int flags = next_byte(&controls), count = 1 + next_byte(&controls) % VIEWS, each = (flags & EACH) >> 3;
    each = each > MOST_EACH ? 0 : each;
    if (!(flags & RAW ? set_raw(tasks, &rest) : set_task(tasks, rest.at, (size_t)(rest.end - rest.at))))
        return 0;
    float table[3 * 256];
    for (int i = 0; i < 3 * 256; i++)
        table[i] = (float)(i % 256) + 0.5f;
    for (int i = 0; i < count; i++) {
        tasks[i] = tasks[0];
        set_view(&tasks[i], &controls);
        tasks[i].out = (int64_t)(uintptr_t)memory(levels_of(&tasks[i]) * (flags & NUMBERS ? sizeof(float) : 1));
    }
    for (int i = 0; i < count * each; i++) {
        const Task *task = &tasks[i / each];
        operations[i] = given_operation(&controls, task->out_height, task->out_width);
    }
    use_kernels(flags & PLAIN_C ? PLAIN : kernel_sets() - 1);
    PyObject *left = call(decode_into, NULL, 0, (int64_t)(uintptr_t)tasks, (int64_t)count, (int64_t)(uintptr_t)(each ? operations : NULL),
                          (int64_t)each, (int64_t)(uintptr_t)(flags & NUMBERS ? table : NULL), INT64_C(0), INT64_C(0), INT64_C(0),
                          NOTHING_MORE);
    use_kernels(kernel_sets() - 1);
    for (int i = 0; i < count; i++) {
        if (left != NULL && stand_in_length(left) == 0) {
            uint8_t *alone = made_alone(&tasks[i], operations + i * each, each);
            compare_view(&tasks[i], alone, flags & NUMBERS);
            free(alone);
        }
        free((void *)(uintptr_t)tasks[i].out);
    }
    Py_XDECREF(left);
    return 0;
}
