/* Levels of batches written as numbers: all vector code writes the same as plain C, and the order by colour has the
   same numbers as the order by pixel. Also pixels that are gathered from rows and columns. */

#include "given.h"
#include "../../packer/_images/native/native.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { IMAGES = 3, CONSTANTS = 9, LONG = 0x40, UNCHECKED = 0x80 }; /* LONG and UNCHECKED are flags */

typedef struct {
    int64_t count, begin, end, height, width, type, mixture, box[4];
    float constants[CONSTANTS];
    const uint8_t *pixels;
} Batch;

static size_t
pixels_of(const Batch *batch)
{
    return (size_t)batch->height * (size_t)batch->width;
}

/* Writes a batch; NULL if it is refused. Numbers that are not written stay zero. */
static uint8_t *
written(const Batch *batch, int planes)
{
    const size_t size = 3 * (size_t)batch->count * pixels_of(batch) * (batch->type == 0 ? 4 : 2);
    const size_t image = 3 * pixels_of(batch) * (batch->type == 0 ? 4 : 2);
    uint8_t *out = memory(size);
    memset(out, 0, size);
    PyObject *done = call(write_numbers, NULL, 0, (int64_t)(uintptr_t)batch->pixels, batch->count, batch->begin, batch->end,
                          batch->height, batch->width, (int64_t)(uintptr_t)out, batch->type, (int64_t)planes,
                          (int64_t)(uintptr_t)batch->constants, batch->mixture, batch->box[0], batch->box[1], batch->box[2],
                          batch->box[3], NOTHING_MORE);
    if (done == NULL) {
        free(out);
        return NULL;
    }
    Py_DECREF(done);
    require_set(out + (size_t)batch->begin * image, (size_t)(batch->end - batch->begin) * image);
    return out;
}

/* Tells whether two numbers of a type are equal, or both are NaN. */
static int
are_same(int64_t type, const uint8_t *one, const uint8_t *other)
{
    float numbers[2];
    uint16_t halves[2];
    if (type == 0) {
        memcpy(&numbers[0], one, 4);
        memcpy(&numbers[1], other, 4);
        return !memcmp(one, other, 4) || (isnan(numbers[0]) && isnan(numbers[1]));
    }
    const int infinite = type == 1 ? 0x7C00 : 0x7F80;
    memcpy(&halves[0], one, 2);
    memcpy(&halves[1], other, 2);
    return halves[0] == halves[1] || ((halves[0] & 0x7FFF) > infinite && (halves[1] & 0x7FFF) > infinite);
}

/* Compares numbers in the order of pixels with others, which are in the order of colours if `planes`. */
static void
compare(const Batch *batch, const uint8_t *numbers, const uint8_t *others, int planes)
{
    const size_t pixels = pixels_of(batch), item = batch->type == 0 ? 4 : 2;
    for (size_t image = 0; image < (size_t)batch->count; image++)
        for (size_t i = 0; i < 3 * pixels; i++) {
            size_t other = planes ? i % 3 * pixels + i / 3 : i;
            require(are_same(batch->type, numbers + item * (3 * image * pixels + i), others + item * (3 * image * pixels + other)));
        }
}

/* Gathers pixels of one to three bytes, from rows and columns that include -1, which does not exist. */
static void
gather_some(const uint8_t *pixels, int64_t height, int64_t width, Input *input)
{
    const int64_t item = 1 + next_byte(input) % 3, across = width * 3 / item, down = 1 + next_byte(input) % 8, wide = 1 + next_byte(input);
    int64_t rows[8], columns[256];
    uint8_t *out = memory((size_t)(down * wide * item));
    for (int64_t i = 0; i < down; i++)
        rows[i] = scaled(next_byte(input), height + 1) - 1;
    for (int64_t i = 0; i < wide; i++)
        columns[i] = scaled(next_byte(input), across + 1) - 1;
    Py_XDECREF(call(gather, NULL, 0, (int64_t)(uintptr_t)pixels, 3 * width, item, (int64_t)(uintptr_t)rows,
                    (int64_t)(uintptr_t)columns, down, wide, (int64_t)(uintptr_t)"abc", (int64_t)(uintptr_t)out, NOTHING_MORE));
    for (int64_t i = 0; i < down * wide; i++) {
        int64_t row = rows[i / wide], column = columns[i % wide];
        const uint8_t *from = row < 0 || column < 0 ? (const uint8_t *)"abc" : pixels + row * 3 * width + column * item;
        require(!memcmp(out + i * item, from, (size_t)item));
    }
    free(out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { CONTROLS = 5 };
    if (size < CONTROLS)
        return 0;
    Input input = {data, data + size};
    int flags = next_byte(&input), planes = flags & 1;
    Batch batch = {.type = flags >> 1 & 3, .mixture = flags >> 3 & 3, .count = next_byte(&input) % (IMAGES + 1)};
    batch.height = 1 + next_byte(&input) % 32, batch.width = 1 + next_byte(&input) % 128;
    if (flags & LONG)
        batch.height = 1, batch.width *= 16;
    int some = next_byte(&input);
    batch.begin = flags & UNCHECKED ? given_integer(&input) : some % (batch.count + 1);
    batch.end = flags & UNCHECKED ? given_integer(&input) : batch.begin + scaled(some, batch.count - batch.begin + 1);
    for (int i = 0; i < 4; i++)
        batch.box[i] = flags & UNCHECKED ? given_integer(&input) : scaled(next_byte(&input), (i % 2 ? batch.width : batch.height) + 1);
    for (int i = 0; i < CONSTANTS; i++) {
        double number = given_number(&input);
        batch.constants[i] = fabs(number) < 3.4e38 ? (float)number : number > 0 ? INFINITY : number < 0 ? -INFINITY : NAN;
    }
    const size_t bytes = 3 * (size_t)batch.count * pixels_of(&batch);
    uint8_t *pixels = memory(bytes);
    fill_from(&input, pixels, bytes);
    batch.pixels = pixels;
    uint8_t *numbers = written(&batch, 0);
    for (int set = 0; set < kernel_sets(); set++) {
        use_kernels(set);
        uint8_t *others = written(&batch, planes);
        require((numbers == NULL) == (others == NULL));
        if (numbers != NULL)
            compare(&batch, numbers, others, planes);
        free(others);
    }
    if (batch.count > 0)
        gather_some(pixels, batch.height, batch.width, &input);
    free(numbers);
    free(pixels);
    return 0;
}
