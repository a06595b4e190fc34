/* Builds decode tasks for samples of a pack from rows of its table and from crops. */

#include "arguments.h"
#include "native.h"
#include "task.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Inputs of `locate` from a table: addresses of columns, numbers, and the strides in bytes of the first
   columns; see packer/_images/native/records.py. */
enum {
    LABEL, HEIGHT, WIDTH, OFFSET, SIZE, CRC32C, NAME_END, NAMES, NAMES_SIZE, LONGEST, RAW, CHECKED, MOST_PIXELS, LARGEST_READ,
    STEPS,
};

/* Returns an item of a column: little-endian, 4 or 8 bytes long, and not necessarily aligned. */
static uint64_t
item(const int64_t *table, int column, int64_t row, int bytes)
{
    const uint8_t *at = (const uint8_t *)(uintptr_t)table[column] + row * table[STEPS + column];
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++)
        number |= (uint64_t)at[i] << 8 * i;
    return number;
}

/* Copies a row of the table to a task. The file becomes NOWHERE if the row's name is damaged, that is, too long or
   outside of the names. */
static void
locate_row(const int64_t *table, int64_t row, Task *task)
{
    int64_t end = (int64_t)item(table, NAME_END, row, 8), start = row > 0 ? (int64_t)item(table, NAME_END, row - 1, 8) : 0;
    int named = start >= 0 && start <= end && end <= table[NAMES_SIZE] && end - start <= table[LONGEST];
    task->file = named ? MEMORY : NOWHERE;
    task->position = (int64_t)item(table, OFFSET, row, 8);
    task->size = (int64_t)item(table, SIZE, row, 8);
    task->raw = table[RAW];
    task->height = (int32_t)item(table, HEIGHT, row, 4);
    task->width = (int32_t)item(table, WIDTH, row, 4);
    task->checked = table[CHECKED];
    task->crc32c = (int64_t)item(table, CRC32C, row, 4);
    task->label = (int64_t)item(table, LABEL, row, 8);
    task->name = named ? table[NAMES] + start : 0;
    task->name_size = named ? end - start : 0;
}

/* How many 64-bit numbers a task has, and its location and its crop. */
enum { RECORD = sizeof(Task) / 8, OF_LOCATION = offsetof(Task, top) / 8, OF_CROP = RECORD - OF_LOCATION - 1 };

typedef struct {
    int64_t offset, place; /* the offset in the file, and the index of the image */
} Sample;

static int
compare(const void *one, const void *other)
{
    const Sample *a = one, *b = other;
    return a->offset != b->offset ? (a->offset < b->offset ? -1 : 1) : (a->place > b->place) - (a->place < b->place);
}

static int64_t
product(int64_t height, int64_t width)
{
    const double pixels = (double)height * (double)width;
    return pixels < 0x1p62 ? (int64_t)pixels : INT64_C(1) << 62;
}

static int64_t
larger(int64_t one, int64_t other)
{
    return one > other ? one : other;
}

/* Returns the largest of three numbers: the pixels of the image, those of its result, and those between the two passes
   of resizing. */
static int64_t
pixels_of(const Task *task)
{
    const int64_t whole = product(task->height, task->width), window = product(task->out_height, task->out_width);
    return larger(larger(whole, window), product(task->crop_height, task->out_width));
}

/* Tells whether packer's decoder may decode an image. */
static int
suits(const int64_t *table, const Task *task)
{
    return task->raw || product(task->height, task->width) <= table[MOST_PIXELS];
}

/* Sorts the samples of each batch by offset, in groups of `step`, so that reads go through the file in one direction. */
static void
sort_samples(Sample *samples, int64_t count, int64_t batch, int64_t step)
{
    for (int64_t begin = 0; begin < count; begin += batch) {
        const int64_t end = count - begin < batch ? count : begin + batch;
        for (int64_t i = begin; i < end; i += step)
            qsort(samples + i, (size_t)(end - i < step ? end - i : step), sizeof *samples, compare);
    }
}

PyObject *
locate(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[15];
    if (!read_integers(arguments, given, n, 15))
        return NULL;
    const int64_t *table = (const int64_t *)(uintptr_t)n[0], *rows = (const int64_t *)(uintptr_t)n[1];
    const int64_t count = n[2], views = n[3], each = n[5], operations = each - OF_CROP;
    const int64_t *crops = (const int64_t *)(uintptr_t)n[4], file = n[8], begin = n[9], bytes = n[10];
    Task *task = (Task *)(uintptr_t)n[11];
    int64_t *out = (int64_t *)(uintptr_t)n[12], *places = (int64_t *)(uintptr_t)n[13], *sums = (int64_t *)(uintptr_t)n[14];
    Sample *samples = malloc((size_t)larger(count, 1) * sizeof *samples);
    if (samples == NULL)
        return PyErr_NoMemory();
    for (int64_t i = 0; i < count; i++)
        samples[i] = (Sample){(int64_t)item(table, OFFSET, rows[i], 8), i};
    sort_samples(samples, count, n[6], n[7]);
    sums[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t place = places[i] = samples[i].place;
        Task located = {0};
        locate_row(table, rows[place], &located);
        if (file >= 0 && located.file != NOWHERE) {
            const int inside = located.position >= 0 && located.size >= 0 && located.size <= table[LARGEST_READ]
                && located.position <= bytes - located.size;
            located.file = inside ? file : NOWHERE;
            located.position += inside ? begin : 0;
        }
        sums[i + 1] = sums[i];
        for (int64_t view = place * views; view < (place + 1) * views; view++, task++, out += operations) {
            *task = located;
            memcpy((int64_t *)task + OF_LOCATION, crops + view * each, OF_CROP * sizeof *crops);
            memcpy(out, crops + view * each + OF_CROP, (size_t)operations * sizeof *crops);
            const int64_t pixels = pixels_of(task);
            sums[i + 1] += pixels < table[MOST_PIXELS] ? pixels : table[MOST_PIXELS];
            if (!suits(table, task))
                task->file = NOWHERE;
        }
    }
    free(samples);
    Py_RETURN_NONE;
}

typedef struct { /* the memory for the results of one view of a batch, which begin `step` bytes apart */
    int64_t address, step, height, width;
} Results;

PyObject *
aim(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[6];
    if (!read_integers(arguments, given, n, 6))
        return NULL;
    Task *task = (Task *)(uintptr_t)n[0];
    const int64_t *places = (const int64_t *)(uintptr_t)n[3], first = n[4];
    const Results *results = (const Results *)(uintptr_t)n[5], *end = results + n[2];
    int fits = 1;
    for (int64_t i = 0; i < n[1]; i++)
        for (const Results *view = results; view < end; view++, task++) {
            fits &= task->out_height == view->height && task->out_width == view->width;
            task->out = view->address + view->step * (places[i] - first);
        }
    return PyBool_FromLong(fits);
}
