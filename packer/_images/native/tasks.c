/* Does tasks: reads the bytes of images, decodes rectangles of them and resizes these into their places, without Python's
   lock. */

#include "arguments.h"
#include "jpeg/decoding.h"
#include "kernels/kernels.h"
#include "native.h"
#include "png/png.h"
#include "resizing/padding.h"
#include "resizing/resizing.h"
#include "samples.h"

#include <stdlib.h>
#include <string.h>

typedef struct Workspace { /* the memory of one thread at a time */
    Decoder *decoder;
    PngDecoder *png;
    Resizing *resizing;
    Memory stored; /* what was read from a file */
    Memory rows;   /* pixels of four bytes, on the way to being resized */
    Memory shown;  /* what of the resized rectangle a padded window shows */
    struct Workspace *next;
} Workspace;

enum { LARGEST = INT32_MAX }; /* pixels of a side */
enum { KEPT = 1 << 23 }; /* bytes that a workspace may keep while no thread uses it: more than most photos need */

static Workspace *idle; /* those that no thread uses; the holder of the lock may change them */

#ifdef Py_GIL_DISABLED
static PyMutex lock;
#define LOCK() PyMutex_Lock(&lock)
#define UNLOCK() PyMutex_Unlock(&lock)
#else /* it is Python's own, which whoever calls these functions holds */
#define LOCK() ((void)0)
#define UNLOCK() ((void)0)
#endif

static void
free_workspace(Workspace *workspace)
{
    decoder_free(workspace->decoder);
    png_decoder_free(workspace->png);
    resizing_free(workspace->resizing);
    free(workspace->stored.at);
    free(workspace->rows.at);
    free(workspace->shown.at);
    free(workspace);
}

static Workspace *
take_workspace(void)
{
    LOCK();
    Workspace *workspace = idle;
    if (workspace != NULL)
        idle = workspace->next;
    UNLOCK();
    if (workspace != NULL)
        return workspace;
    workspace = calloc(1, sizeof *workspace);
    if (workspace != NULL) {
        workspace->decoder = decoder_new();
        workspace->png = png_decoder_new();
        workspace->resizing = resizing_new();
        if (workspace->decoder != NULL && workspace->png != NULL && workspace->resizing != NULL)
            return workspace;
        free_workspace(workspace);
    }
    PyErr_NoMemory();
    return NULL;
}

static void
return_workspace(Workspace *workspace)
{
    size_t size = workspace->stored.size + workspace->rows.size + workspace->shown.size
        + decoder_memory(workspace->decoder) + png_decoder_memory(workspace->png) + resizing_memory(workspace->resizing);
    if (size > KEPT) {
        free_workspace(workspace);
        return;
    }
    LOCK();
    workspace->next = idle;
    idle = workspace;
    UNLOCK();
}

#define NAMED(name) #name " "

const char task_fields[] = TASK(NAMED);

/* Returns what is wanted of the rectangle. */
static Wanted
wanted_of(const Task *task)
{
    return (Wanted){
        .height = (ptrdiff_t)task->crop_height, .width = (ptrdiff_t)task->crop_width,
        .scaled_height = (ptrdiff_t)task->scaled_height, .scaled_width = (ptrdiff_t)task->scaled_width,
        .cut_top = (ptrdiff_t)task->cut_top, .cut_left = (ptrdiff_t)task->cut_left,
        .out_height = (ptrdiff_t)task->out_height, .out_width = (ptrdiff_t)task->out_width, .flip = task->flip != 0,
        .interpolation = (Interpolation)task->interpolation,
    };
}

/* Tells whether numbers of pixels can be added without a thought. */
static int
is_side(int64_t pixels)
{
    return pixels >= 1 && pixels <= LARGEST;
}

static int
is_near(int64_t place)
{
    return place >= -LARGEST && place <= LARGEST;
}

/* Returns what is wrong with a task, or NULL. */
static const char *
find_nonsense(const Task *task)
{
    if (task->height > LARGEST || task->width > LARGEST)
        return "the image is too large";
    if (task->top < 0 || task->crop_height < 1 || task->crop_height > task->height
        || task->top > task->height - task->crop_height || task->left < 0 || task->crop_width < 1
        || task->crop_width > task->width || task->left > task->width - task->crop_width)
        return "the rectangle does not lie inside of the image";
    if (!is_side(task->scaled_height) || !is_side(task->scaled_width))
        return "the rectangle is resized to nothing, or to far too much";
    if (!is_side(task->out_height) || !is_side(task->out_width) || !is_near(task->cut_top) || !is_near(task->cut_left))
        return "the window is empty, far too large or far too far away";
    if (task->interpolation < BILINEAR || task->interpolation > BICUBIC)
        return "there is no such interpolation";
    if (task->padding < CONSTANT || task->padding > SYMMETRIC || task->fill < 0 || task->fill > 0xFFFFFF)
        return "there is no such padding, or no such colour";
    return NULL;
}

/* Tells whether a task makes sense; sets an exception where it does not. */
static int
require_sense(const Task *task)
{
    const char *nonsense = find_nonsense(task);
    if (nonsense != NULL)
        PyErr_SetString(PyExc_ValueError, nonsense);
    return nonsense == NULL;
}

static void
take_rows(void *resizing, const uint8_t *rows, ptrdiff_t stride, ptrdiff_t count)
{
    resizing_rows(resizing, rows, stride, count);
}

static Outcome
resize_pixels(Workspace *workspace, const uint8_t *pixels, ptrdiff_t stride, ptrdiff_t rows, ptrdiff_t columns,
              const Wanted *wanted, uint8_t *out)
{
    ptrdiff_t first_row, row_end, first, end;
    if (!resizing_begin(workspace->resizing, wanted, out)) /* other limits than memory are those of sizes */
        return UNDECODED;
    resizing_needs(workspace->resizing, &first_row, &row_end, &first, &end);
    if (row_end > rows || end > columns)
        return UNDECODED;
    ptrdiff_t line = 4 * (end - first) + BESIDE, at_once = rows_at_once(line);
    if (!reserve(&workspace->rows, (size_t)(at_once * line)))
        return NO_MEMORY;
    for (ptrdiff_t row = first_row; row < row_end; row += at_once) {
        ptrdiff_t count = row_end - row < at_once ? row_end - row : at_once;
        for (ptrdiff_t i = 0; i < count; i++)
            kernels->expand(pixels + (row + i) * stride + 3 * first, workspace->rows.at + i * line, end - first);
        resizing_rows(workspace->resizing, workspace->rows.at, line, count);
    }
    return DECODED;
}

/* Decodes and resizes what is wanted, which lies inside of the resized rectangle. */
static Outcome
draw(Workspace *workspace, const Task *task, const uint8_t *data, const Wanted *wanted, uint8_t *out)
{
    if (task->raw) {
        const uint8_t *corner = data + 3 * (task->top * task->width + task->left);
        return resize_pixels(workspace, corner, 3 * task->width, task->crop_height, task->crop_width, wanted, out);
    }
    if (!resizing_begin(workspace->resizing, wanted, out)) /* other limits than memory are those of sizes */
        return UNDECODED;
    ptrdiff_t first_row, row_end, first, end;
    resizing_needs(workspace->resizing, &first_row, &row_end, &first, &end);
    Rectangle needed = {
        (ptrdiff_t)task->top + first_row, (ptrdiff_t)task->left + first, row_end - first_row, end - first,
    };
    if (is_png(data))
        return png_decode(workspace->png, data, (ptrdiff_t)task->size, (ptrdiff_t)task->height, (ptrdiff_t)task->width,
                          needed, take_rows, workspace->resizing);
    return decoder_decode(workspace->decoder, data, (ptrdiff_t)task->size, (ptrdiff_t)task->height, (ptrdiff_t)task->width,
                          needed, FOUR_BYTES, take_rows, workspace->resizing);
}

static Outcome
draw_padded(Workspace *workspace, const Task *task, const uint8_t *data, const Wanted *window, uint8_t *out)
{
    const Padding padding = {
        (Mode)task->padding, {(uint8_t)task->fill, (uint8_t)(task->fill >> 8), (uint8_t)(task->fill >> 16)},
    };
    const Wanted part = shown(window, &padding);
    if (!reserve(&workspace->shown, 3 * (size_t)part.out_height * (size_t)part.out_width))
        return NO_MEMORY;
    Outcome outcome = draw(workspace, task, data, &part, workspace->shown.at);
    if (outcome == DECODED)
        pad(window, &part, &padding, workspace->shown.at, out);
    return outcome;
}

static Outcome
do_task(Workspace *workspace, const Task *task, const uint8_t *name)
{
    Outcome outcome;
    const uint8_t *data = find_bytes(&workspace->stored, task, name, &outcome);
    uint8_t *out = (uint8_t *)(uintptr_t)task->out;
    if (data == NULL)
        return outcome;
    const Wanted wanted = wanted_of(task);
    return is_padded(&wanted) ? draw_padded(workspace, task, data, &wanted, out)
                              : draw(workspace, task, data, &wanted, out);
}

/* Returns how many bytes of a sample's name its checksum needs. */
static size_t
size_of_name(const Task *task)
{
    return task->checked && task->file != NOWHERE ? (size_t)task->name_size : 0;
}

/* Returns the names of the samples that are checked, one after the other; NULL without memory. They lie in a mapped table,
   whose file was found whole just now; touching it later might end the process. */
static uint8_t *
copy_names(const Task *tasks, Py_ssize_t count)
{
    size_t size = 1;
    for (const Task *task = tasks; task < tasks + count; task++)
        size += size_of_name(task);
    uint8_t *names = malloc(size), *to = names;
    for (const Task *task = tasks; task < tasks + count && names != NULL; task++) {
        if (size_of_name(task) > 0)
            memcpy(to, (const uint8_t *)(uintptr_t)task->name, size_of_name(task));
        to += size_of_name(task);
    }
    return names;
}

/* Returns a list of which tasks were not done. */
static PyObject *
left_over(const Outcome *outcomes, Py_ssize_t count)
{
    PyObject *left = PyList_New(0);
    for (Py_ssize_t i = 0; i < count && left != NULL; i++) {
        if (outcomes[i] == DECODED)
            continue;
        PyObject *number = outcomes[i] == NO_MEMORY ? PyErr_NoMemory() : PyLong_FromSsize_t(i);
        if (number == NULL || PyList_Append(left, number) < 0)
            Py_CLEAR(left);
        Py_XDECREF(number);
    }
    return left;
}

PyObject *
decode_into(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t numbers[2];
    if (!read_integers(arguments, given, numbers, 2))
        return NULL;
    const Task *tasks = (const Task *)(uintptr_t)numbers[0];
    Py_ssize_t count = (Py_ssize_t)numbers[1];
    for (const Task *task = tasks; task < tasks + count; task++)
        if (!require_sense(task))
            return NULL;
    Outcome *outcomes = calloc((size_t)count + 1, sizeof *outcomes);
    uint8_t *names = copy_names(tasks, count);
    Workspace *workspace = NULL;
    PyObject *left = NULL;
    if (outcomes == NULL || names == NULL)
        PyErr_NoMemory();
    else
        workspace = take_workspace();
    if (workspace != NULL) {
        Py_BEGIN_ALLOW_THREADS
        const uint8_t *name = names;
        for (Py_ssize_t i = 0; i < count; i++) {
            outcomes[i] = do_task(workspace, &tasks[i], name);
            name += size_of_name(&tasks[i]);
        }
        Py_END_ALLOW_THREADS
        return_workspace(workspace);
        left = left_over(outcomes, count);
    }
    free(outcomes);
    free(names);
    return left;
}

typedef struct {
    uint8_t *to;
    size_t width;
} Levels;

static void
take_levels(void *taker, const uint8_t *rows, ptrdiff_t stride, ptrdiff_t count)
{
    Levels *levels = taker;
    for (; count > 0; count--, rows += stride, levels->to += levels->width)
        memcpy(levels->to, rows, levels->width);
}

PyObject *
decode_grey(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    const uint8_t *data;
    Py_ssize_t size;
    int64_t n[3];
    if (!read_arguments(arguments, given, &data, &size, n, 3))
        return NULL;
    if (!is_side(n[0]) || !is_side(n[1])) {
        PyErr_SetString(PyExc_ValueError, "the image is empty or too large");
        return NULL;
    }
    Workspace *workspace = take_workspace();
    if (workspace == NULL)
        return NULL;
    Outcome outcome;
    Py_BEGIN_ALLOW_THREADS
    const Rectangle whole = {0, 0, (ptrdiff_t)n[0], (ptrdiff_t)n[1]};
    Levels levels = {(uint8_t *)(uintptr_t)n[2], (size_t)n[1]};
    outcome = decoder_decode(workspace->decoder, data, size, whole.height, whole.width, whole, ONE_BYTE, take_levels, &levels);
    Py_END_ALLOW_THREADS
    return_workspace(workspace);
    if (outcome == NO_MEMORY)
        return PyErr_NoMemory();
    return PyBool_FromLong(outcome == DECODED);
}

PyObject *
resize(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[15];
    if (!read_integers(arguments, given, n, 15))
        return NULL;
    const Task task = {
        .height = n[4], .width = n[5], .crop_height = n[4], .crop_width = n[5], .scaled_height = n[6], .scaled_width = n[7],
        .cut_top = n[8], .cut_left = n[9], .out_height = n[10], .out_width = n[11], .flip = n[12], .interpolation = n[13],
    };
    if (!require_sense(&task))
        return NULL;
    const Wanted wanted = wanted_of(&task);
    if (is_padded(&wanted)) {
        PyErr_SetString(PyExc_ValueError, "the window does not lie inside of what the rectangle is resized to");
        return NULL;
    }
    Workspace *workspace = take_workspace();
    if (workspace == NULL)
        return NULL;
    Outcome outcome;
    Py_BEGIN_ALLOW_THREADS
    outcome = resize_pixels(workspace, (const uint8_t *)(uintptr_t)n[0], (ptrdiff_t)n[1], (ptrdiff_t)n[2],
                            (ptrdiff_t)n[3], &wanted, (uint8_t *)(uintptr_t)n[14]);
    Py_END_ALLOW_THREADS
    return_workspace(workspace);
    if (outcome == NO_MEMORY)
        return PyErr_NoMemory();
    return PyBool_FromLong(outcome == DECODED);
}
