/* Implements augmenting.h. */

#include "augmenting/augmenting.h"
#include "arguments.h"
#include "native.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAMED(name) #name " "

const char operation_fields[] = OPERATION(NAMED, NAMED, NAMED);

static int
is_inside(const Operation *erased, int64_t height, int64_t width)
{
    return erased->top >= 0 && erased->height >= 0 && erased->height <= height && erased->top <= height - erased->height
        && erased->left >= 0 && erased->width >= 0 && erased->width <= width && erased->left <= width - erased->width;
}

static const char *
find_wrong(const Operation *operation, int64_t height, int64_t width)
{
    if (operation->kind < NOTHING || operation->kind >= KINDS)
        return "an operation is unknown";
    if (!isfinite(operation->factor))
        return "a factor is not a finite number";
    if (operation->fill < NO_FILL || operation->fill > 0xFFFFFF)
        return "a fill colour is out of range";
    if (operation->kind == POSTERIZE && (operation->factor < 0 || operation->factor > 8))
        return "posterize must keep 0 to 8 bits";
    if (operation->kind == ERASE && !is_inside(operation, height, width))
        return "the erased rectangle does not lie inside of the image";
    if (operation->kind == BLUR
        && (operation->height < 1 || operation->width < 1 || operation->height % 2 == 0 || operation->width % 2 == 0
            || operation->height / 2 >= height || operation->width / 2 >= width || operation->factor <= 0))
        return "the kernel of a blur must have odd sides, less than twice those of the image, and a sigma above 0";
    if (operation->kind == AFFINE && (height > LONGEST_MOVED || width > LONGEST_MOVED))
        return "the image is too large to be moved";
    for (int i = 0; operation->kind == AFFINE && i < 6; i++)
        if (!isfinite(operation->matrix[i]))
            return "a matrix contains a value that is not a finite number";
    return NULL;
}

const char *
find_wrong_operation(const Operation *operations, int64_t count, int64_t height, int64_t width)
{
    const char *wrong = NULL;
    for (int64_t i = 0; i < count && wrong == NULL; i++)
        wrong = find_wrong(&operations[i], height, width);
    return wrong;
}

static void
erase(const Image *image, const Operation *operation)
{
    const uint8_t colour[3] = {
        (uint8_t)operation->fill, (uint8_t)(operation->fill >> 8), (uint8_t)(operation->fill >> 16),
    };
    const size_t line = 3 * (size_t)operation->width;
    if (operation->height == 0)
        return;
    uint8_t *first = image->pixels + 3 * (operation->top * image->width + operation->left);
    for (size_t i = 0; i < line; i += 3)
        memcpy(first + i, colour, 3);
    for (int64_t y = 1; y < operation->height; y++)
        memcpy(first + 3 * y * image->width, first, line);
}

static int
apply(const Image *image, const Operation *operation)
{
    switch (operation->kind) {
    case NOTHING:
        return 1;
    case SATURATION:
        saturate(image, operation->factor);
        return 1;
    case HUE:
        turn_hue(image, operation->factor);
        return 1;
    case GRAYSCALE:
        make_grey(image);
        return 1;
    case BLUR:
        return blur(image, operation);
    case SHARPNESS:
        return sharpen(image, operation->factor);
    case AFFINE:
        return move(image, operation);
    case ERASE:
        erase(image, operation);
        return 1;
    default:
        tone(image, operation);
        return 1;
    }
}

int
augment(const Image *image, const Operation *operations, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!apply(image, &operations[i]))
            return 0;
    return 1;
}

PyObject *
augment_image(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[5];
    if (!read_integers(arguments, given, n, 5))
        return NULL;
    const Operation *operations = (const Operation *)(uintptr_t)n[3];
    if (n[1] < 1 || n[2] < 1 || n[1] > INT32_MAX || n[2] > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "the image is empty or too large");
        return NULL;
    }
    const char *wrong = find_wrong_operation(operations, n[4], n[1], n[2]);
    if (wrong != NULL) {
        PyErr_SetString(PyExc_ValueError, wrong);
        return NULL;
    }
    Memory scratch = {NULL, 0};
    const Image image = {(uint8_t *)(uintptr_t)n[0], (ptrdiff_t)n[1], (ptrdiff_t)n[2], &scratch};
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = augment(&image, operations, n[4]);
    free(scratch.at);
    Py_END_ALLOW_THREADS
    if (!done)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}
