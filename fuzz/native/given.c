/* See given.h. */

#include "given.h"

#include <math.h>
#include <string.h>

/* Copies the next bytes of the input, and zeros after its end. */
static void
take(Input *input, void *to, size_t size)
{
    uint8_t *bytes = to;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)next_byte(input);
}

int64_t
given_integer(Input *input)
{
    static const int64_t odd[] = {
        -1, -INT64_MAX, INT64_MAX, INT32_MIN, INT32_MAX, (int64_t)INT32_MAX + 1, (int64_t)1 << 20, ((int64_t)1 << 20) + 1,
        0xFFFFFF, 0x1000000, (int64_t)1 << 62, 255, 256,
    };
    enum { ODD = sizeof odd / sizeof *odd };
    int byte = next_byte(input);
    int64_t any;
    if (byte < 240)
        return byte;
    if (byte < 240 + ODD)
        return odd[byte - 240];
    take(input, &any, sizeof any);
    return any == NOTHING_MORE ? 0 : any;
}

double
given_number(Input *input)
{
    static const double odd[] = {
        0.0, -0.0, 5e-324, -5e-324, 1e-310, 1e-45, 1e-38, 1e-20, 1e10, 1e20, 3.4e38, 3.5e38, 1e300, 1.7e308, -1.7e308, 128, 254.5,
        255, 256, INFINITY, -INFINITY, NAN,
    };
    enum { ODD = sizeof odd / sizeof *odd };
    int byte = next_byte(input);
    double any;
    if (byte < 224)
        return (byte - 80) / 32.0;
    if (byte < 224 + ODD)
        return odd[byte - 224];
    take(input, &any, sizeof any);
    return any;
}

double
given_random(Input *input)
{
    int byte = next_byte(input);
    if (byte == 255)
        return 1 - 0x1p-53;
    return byte == 254 ? 0x1p-53 : byte / 254.0;
}

/* Gives an operation a rectangle or a kernel that fits an image. */
static void
fit(Operation *operation, int64_t height, int64_t width)
{
    int down = (int)(operation->height & 255), across = (int)(operation->width & 255);
    operation->top = scaled((int)(operation->top & 255), height), operation->left = scaled((int)(operation->left & 255), width);
    operation->height = scaled(down, height - operation->top + 1), operation->width = scaled(across, width - operation->left + 1);
    if (operation->kind != BLUR)
        return;
    operation->height = scaled(down, height) * 2 + 1, operation->width = scaled(across, width) * 2 + 1;
    operation->factor = fabs(operation->factor);
}

Operation
given_operation(Input *input, int64_t height, int64_t width)
{
    enum { NEARLY_SAME = 1 };
    int kind = next_byte(input), flags = next_byte(input), any = flags >= 240;
    Operation made = {.kind = any ? kind : kind % KINDS, .factor = given_number(input), .interpolation = flags & 2};
    made.fill = any ? given_integer(input) : next_byte(input) * 0x010203 - 1;
    if (made.kind == POSTERIZE && !any)
        made.factor = flags % 9;
    for (int i = 0; made.kind == AFFINE && i < 6; i++)
        made.matrix[i] = flags & NEARLY_SAME && i % 3 < 2 ? (i % 4 == 0) + given_random(input) / 4 : given_number(input);
    if (made.kind == ERASE || made.kind == BLUR) {
        made.top = given_integer(input), made.left = given_integer(input);
        made.height = given_integer(input), made.width = given_integer(input);
        if (!any)
            fit(&made, height, width);
    }
    return made;
}

void
fill_from(Input *input, uint8_t *to, size_t size)
{
    const size_t left = (size_t)(input->end - input->at);
    for (size_t i = 0; i < size; i++)
        to[i] = left == 0 ? 0 : input->at[i % left];
}

int
set_raw(Task *task, Input *input)
{
    int height = 1 + next_byte(input), width = 1 + next_byte(input) % 64;
    if (input->end - input->at < 3 * height * width)
        return 0;
    *task = (Task){
        .file = MEMORY, .position = (int64_t)(uintptr_t)(input->end - 3 * height * width), .size = 3 * height * width, .raw = 1,
        .height = height, .width = width,
    };
    return 1;
}

/* Returns a side: most are short, and some far longer than any image. */
static int64_t
side(int byte)
{
    return byte < 240 ? byte + 1 : INT64_C(1) << (byte - 240 + 8);
}

void
set_window(Task *task, int flags, Input *controls)
{
    task->scaled_height = side(next_byte(controls));
    task->scaled_width = side(next_byte(controls));
    if (flags & AS_IT_IS) {
        task->scaled_height = task->crop_height;
        task->scaled_width = task->crop_width;
    }
    int top = next_byte(controls), left = next_byte(controls), height = next_byte(controls), width = next_byte(controls);
    task->cut_top = scaled(top, task->scaled_height);
    task->cut_left = scaled(left, task->scaled_width);
    task->out_height = 1 + height / 2;
    task->out_width = 1 + width / 2;
    if (flags & INSIDE) {
        int64_t below = task->scaled_height - task->cut_top, beside = task->scaled_width - task->cut_left;
        task->out_height = task->out_height < below ? task->out_height : below;
        task->out_width = task->out_width < beside ? task->out_width : beside;
    } else {
        task->cut_top -= task->out_height / 2;
        task->cut_left -= task->out_width / 2;
    }
}
