/* Windows of JPEGs and of raw pixels: cropped, resized, mirrored, padded. */

#include "target.h"
#include "../../packer/_images/native/samples.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RAW = 1, CHECKED = 2, BICUBIC_ = 4, FLIPPED = 8, PADDINGS = 0x30, AS_IT_IS_ = 0x40, INSIDE = 0x80 }; /* flags */

/* Returns a side: most are short, and some far longer than any image. */
static int64_t
side(int byte)
{
    return byte < 240 ? byte + 1 : INT64_C(1) << (byte - 240 + 8);
}

/* Sets the window in what the rectangle is resized to. It may lie outside. */
static void
set_window(Task *task, int flags, Input *controls)
{
    task->scaled_height = side(next_byte(controls));
    task->scaled_width = side(next_byte(controls));
    if (flags & AS_IT_IS_) {
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

/* Sets a task for pixels; 0 where there are fewer. */
static int
set_raw(Task *task, Input *input)
{
    int height = 1 + next_byte(input), width = 1 + next_byte(input) % 64;
    *task = (Task){
        .file = MEMORY, .position = (int64_t)(uintptr_t)input->end - 3 * height * width, .size = 3 * height * width, .raw = 1,
        .height = height, .width = width,
    };
    return input->end - input->at >= task->size;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { CONTROLS = 12 };
    if (size < CONTROLS)
        return 0;
    Input controls = {data, data + CONTROLS}, rest = {data + CONTROLS, data + size};
    int flags = next_byte(&controls);
    Task task;
    if (!(flags & RAW ? set_raw(&task, &rest) : set_task(&task, rest.at, (size_t)(rest.end - rest.at))))
        return 0;
    set_rectangle(&task, &controls);
    set_window(&task, flags, &controls);
    task.flip = (flags & FLIPPED) != 0;
    task.interpolation = (flags & BICUBIC_) != 0;
    task.padding = (flags & PADDINGS) >> 4;
    task.fill = next_byte(&controls) * 0x010203 & 0xFFFFFF;
    task.label = 7;
    task.name = (int64_t)(uintptr_t)"name";
    task.name_size = 4;
    if (flags & CHECKED) {
        const Row row = {task.label, task.height, task.width};
        task.checked = 1;
        task.crc32c = checksum_of(&row, (const uint8_t *)(uintptr_t)task.position, (size_t)task.size, (const uint8_t *)"name", 4);
    }
    free(draw_task(&task));
    return 0;
}
