/* Operations on images, one after the other: all vector code makes the same pixels as plain C. Operations that move
   pixels to the nearest place give the same as the function that moves masks. */

#include "given.h"
#include "../../packer/_images/native/native.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FEW = 4, LONG = 3, TALL = 0x10, WIDE = 0x20 }; /* flags: how many operations, and whether a side is long */

/* Applies operations to a copy of pixels; NULL if they are refused. */
static uint8_t *
augmented(const uint8_t *pixels, int64_t height, int64_t width, const Operation *operations, int64_t count)
{
    const size_t size = 3 * (size_t)height * (size_t)width;
    uint8_t *made = memory(size);
    memcpy(made, pixels, size);
    PyObject *done = call(augment_image, NULL, 0, (int64_t)(uintptr_t)made, height, width, (int64_t)(uintptr_t)operations, count,
                          NOTHING_MORE);
    if (done != NULL) {
        Py_DECREF(done);
        require_set(made, size);
        return made;
    }
    free(made);
    return NULL;
}

/* Compares the result of an operation with that of the function that moves masks. */
static void
compare_moved(const uint8_t *pixels, int64_t height, int64_t width, const Operation *operation, const uint8_t *made)
{
    const int64_t colour = operation->fill == NO_FILL ? 0 : operation->fill;
    const uint8_t fill[3] = {(uint8_t)colour, (uint8_t)(colour >> 8), (uint8_t)(colour >> 16)};
    const size_t size = 3 * (size_t)height * (size_t)width;
    uint8_t *others = memory(size);
    PyObject *done = call(move_mask, NULL, 0, (int64_t)(uintptr_t)pixels, height, width, INT64_C(3),
                          (int64_t)(uintptr_t)operation->matrix, (int64_t)(uintptr_t)fill, (int64_t)(uintptr_t)others, NOTHING_MORE);
    require(done != NULL && !memcmp(made, others, size));
    Py_DECREF(done);
    free(others);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { CONTROLS = 3 };
    Operation operations[FEW];
    if (size < CONTROLS)
        return 0;
    Input input = {data, data + size};
    int flags = next_byte(&input), count = flags % FEW;
    int64_t height = 1 + next_byte(&input) % 32, width = 1 + next_byte(&input) % 64;
    if (flags & TALL)
        height *= 9;
    else if (flags & WIDE)
        width *= 9;
    for (int i = 0; i < count; i++)
        operations[i] = given_operation(&input, height, width);
    uint8_t *pixels = memory(3 * (size_t)height * (size_t)width);
    fill_from(&input, pixels, 3 * (size_t)height * (size_t)width);
    uint8_t *made = augmented(pixels, height, width, operations, count);
    for (int set = 0; set < kernel_sets() - 1; set++) {
        use_kernels(set);
        uint8_t *others = augmented(pixels, height, width, operations, count);
        require((made == NULL) == (others == NULL));
        require(made == NULL || !memcmp(made, others, 3 * (size_t)height * (size_t)width));
        free(others);
    }
    use_kernels(kernel_sets() - 1);
    if (made != NULL && count == 1 && operations->kind == AFFINE && operations->interpolation == NEAREST)
        compare_moved(pixels, height, width, operations, made);
    free(made);
    free(pixels);
    return 0;
}
