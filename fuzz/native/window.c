/* Windows of JPEGs and of raw pixels: cropped, resized, mirrored, padded. */

#include "given.h"
#include "../../packer/_images/native/samples.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RAW = 1, CHECKED = 2, BICUBIC_ = 4, FLIPPED = 8, PADDINGS = 0x30 }; /* flags, in addition to those of given.h */

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
