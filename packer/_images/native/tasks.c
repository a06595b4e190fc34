/* Runs tasks: reads the bytes of images, decodes rectangles of them and resizes these into their parts of a batch,
   without Python's lock. Consecutive tasks of one image, its views, run together: the image's bytes are read, checked
   and decoded once. */

#include "arguments.h"
#include "augmenting/augmenting.h"
#include "geometry.h"
#include "jpeg/decoding.h"
#include "kernels/kernels.h"
#include "lookup.h"
#include "native.h"
#include "numbers.h"
#include "png/png.h"
#include "resizing/padding.h"
#include "resizing/resizing.h"
#include "samples.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { TOGETHER = 32 }; /* views of an image that one decoding produces at most; for more, it is decoded again */

typedef struct Workspace { /* the memory of one thread at a time */
    Decoder *decoder;
    PngDecoder *png;
    Resizing *resizing[TOGETHER]; /* for each view of an image; the first one is never NULL */
    Memory stored; /* bytes that were read from a file */
    Memory rows;   /* four-byte pixels that are resized next */
    Memory shown;  /* the parts of resized rectangles that padded windows show */
    Memory changed; /* scratch memory of augmentations */
    Memory levels; /* windows that are converted to numbers */
    int many;      /* whether a call's results are too large for the processor's caches */
    struct Workspace *next;
} Workspace;

enum { LARGEST = INT32_MAX }; /* pixels of a side */
enum { KEPT = 1 << 23 }; /* bytes that a workspace may keep while no thread uses it: more than most photos need */

static Workspace *idle; /* the workspaces that no thread uses; the lock protects this list */

#ifdef Py_GIL_DISABLED
static PyMutex lock;
#define LOCK() PyMutex_Lock(&lock)
#define UNLOCK() PyMutex_Unlock(&lock)
#else /* Python's own lock protects the list: the callers of these functions hold it */
#define LOCK() ((void)0)
#define UNLOCK() ((void)0)
#endif

static void
free_workspace(Workspace *workspace)
{
    decoder_free(workspace->decoder);
    png_decoder_free(workspace->png);
    for (int i = 0; i < TOGETHER; i++)
        resizing_free(workspace->resizing[i]);
    free(workspace->stored.at);
    free(workspace->rows.at);
    free(workspace->shown.at);
    free(workspace->changed.at);
    free(workspace->levels.at);
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
        workspace->resizing[0] = resizing_new();
        if (workspace->decoder != NULL && workspace->png != NULL && workspace->resizing[0] != NULL)
            return workspace;
        free_workspace(workspace);
    }
    PyErr_NoMemory();
    return NULL;
}

static void
return_workspace(Workspace *workspace)
{
    size_t size = workspace->stored.size + workspace->rows.size + workspace->shown.size + workspace->changed.size
        + workspace->levels.size + decoder_memory(workspace->decoder) + png_decoder_memory(workspace->png);
    for (int i = 0; i < TOGETHER && workspace->resizing[i] != NULL; i++)
        size += resizing_memory(workspace->resizing[i]);
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

/* Returns the resizing that a task requests. */
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

/* Tells whether a side is valid: sums of a few such numbers cannot overflow. */
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

/* Returns the problem of a task, or NULL. */
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
        return "the rectangle is resized to a size of 0, or to one that is far too large";
    if (!is_side(task->out_height) || !is_side(task->out_width) || !is_near(task->cut_top) || !is_near(task->cut_left))
        return "the window is empty, far too large or far too far away";
    if (task->interpolation < BILINEAR || task->interpolation > BICUBIC)
        return "the interpolation is unknown";
    if (task->padding < CONSTANT || task->padding > SYMMETRIC || task->fill < 0 || task->fill > 0xFFFFFF)
        return "the padding is unknown, or the fill colour is out of range";
    return NULL;
}

/* Tells whether a task and the `count` operations on its result are valid; otherwise sets an exception. */
static int
require_sense(const Task *task, const Operation *operations, int64_t count)
{
    const char *nonsense = find_nonsense(task);
    if (nonsense == NULL)
        nonsense = find_wrong_operation(operations, count, task->out_height, task->out_width);
    if (nonsense != NULL)
        PyErr_SetString(PyExc_ValueError, nonsense);
    return nonsense == NULL;
}

typedef struct { /* the steps after a window is drawn */
    const Operation *operations; /* `each` for every task, in the order of the tasks */
    int64_t each;
    const float *table;     /* the numbers that replace levels, or NULL */
    const Numbers *numbers; /* the conversion of levels to numbers, or NULL */
} Finish;

static int
become_numbers(const Finish *finish)
{
    return finish->table != NULL || finish->numbers != NULL;
}

/* Returns the operations of a task; NULL if there are none. */
static const Operation *
operations_of(const Finish *finish, Py_ssize_t task)
{
    return finish->operations == NULL ? NULL : finish->operations + task * finish->each;
}

typedef struct { /* a task in progress */
    const Task *task;
    Resizing *resizing;
    Wanted window, part; /* the requested window, and the part of it that is drawn: they differ if it is padded */
    uint8_t *out; /* the window's pixels */
    uint8_t *drawn; /* the part's pixels */
    Rectangle needed; /* the pixels of the image that the part depends on */
} View;

typedef struct {
    View *views;
    ptrdiff_t count, row, left; /* `row`, `left`: where the next rows begin in the image */
} Views;

/* Passes to each view the rows that it depends on. */
static void
take_rows(void *taker, const uint8_t *rows, ptrdiff_t stride, ptrdiff_t count)
{
    Views *views = taker;
    for (View *view = views->views; view < views->views + views->count; view++) {
        ptrdiff_t first = larger(view->needed.top - views->row, 0);
        ptrdiff_t end = smaller(view->needed.top + view->needed.height - views->row, count);
        if (first < end)
            resizing_rows(view->resizing, rows + first * stride + 4 * (view->needed.left - views->left), stride, end - first);
    }
    views->row += count;
}

/* Resizes three-byte pixels, after `begin_resizing`. `pixels` begins with the first pixel of `needed`. */
static Outcome
take_pixels(Workspace *workspace, Resizing *resizing, const uint8_t *pixels, ptrdiff_t stride, Rectangle needed)
{
    ptrdiff_t line = 4 * needed.width + BESIDE, at_once = rows_at_once(line);
    if (!reserve(&workspace->rows, (size_t)(at_once * line)))
        return NO_MEMORY;
    for (ptrdiff_t row = 0; row < needed.height; row += at_once) {
        ptrdiff_t count = needed.height - row < at_once ? needed.height - row : at_once;
        for (ptrdiff_t i = 0; i < count; i++)
            kernels->expand(pixels + (row + i) * stride, workspace->rows.at + i * line, needed.width);
        resizing_rows(resizing, workspace->rows.at, line, count);
    }
    return DECODED;
}

/* Begins to resize a rectangle whose upper left corner is the pixel (top, left) of the image. Sets `needed` to the
   rectangle of the image that the result depends on. Returns 0 if that is impossible. */
static int
begin_resizing(Resizing *resizing, const Wanted *wanted, ptrdiff_t top, ptrdiff_t left, uint8_t *out, Rectangle *needed)
{
    ptrdiff_t first_row, row_end, first, end;
    if (!resizing_begin(resizing, wanted, out)) /* a size may be too large, or memory missing */
        return 0;
    resizing_needs(resizing, &first_row, &row_end, &first, &end);
    *needed = (Rectangle){top + first_row, left + first, row_end - first_row, end - first};
    return 1;
}

static int
begin(View *view)
{
    return begin_resizing(view->resizing, &view->part, (ptrdiff_t)view->task->top, (ptrdiff_t)view->task->left, view->drawn,
                          &view->needed);
}

static Outcome
resize_pixels(Workspace *workspace, const uint8_t *pixels, ptrdiff_t stride, ptrdiff_t rows, ptrdiff_t columns,
              const Wanted *wanted, uint8_t *out)
{
    Rectangle needed;
    Resizing *resizing = workspace->resizing[0];
    if (!begin_resizing(resizing, wanted, 0, 0, out, &needed) || needed.top + needed.height > rows
        || needed.left + needed.width > columns)
        return UNDECODED;
    return take_pixels(workspace, resizing, pixels + needed.top * stride + 3 * needed.left, stride, needed);
}

/* Draws one view of raw pixels, which are in memory, or in the task's file if `data` is NULL: whole rows are then read
   directly into the result. `again` tells whether the view is read again soon. */
static Outcome
draw_raw(Workspace *workspace, const uint8_t *data, View *view, int again)
{
    const Wanted *part = &view->part;
    const int resized = part->height != part->scaled_height || part->width != part->scaled_width || part->flip;
    const ptrdiff_t stride = 3 * (ptrdiff_t)view->task->width;
    if (!begin(view))
        return UNDECODED;
    const Rectangle needed = view->needed;
    const ptrdiff_t line = 3 * needed.width;
    if (data == NULL) {
        Memory place = {view->drawn, (size_t)(line * needed.height)};
        const int straight = !resized && line == stride;
        Outcome outcome = read_pixels(straight ? &place : &workspace->stored, view->task, needed);
        if (outcome != DECODED || straight)
            return outcome;
        data = workspace->stored.at;
    } else {
        data += needed.top * stride + 3 * needed.left;
    }
    if (resized)
        return take_pixels(workspace, view->resizing, data, stride, needed);
    (workspace->many && !again ? kernels->copy_rows : copy_rows_plain)(view->drawn, data, stride, line, needed.height);
    return DECODED;
}

/* Returns the smallest rectangle that contains two others. */
static Rectangle
around(Rectangle a, Rectangle b)
{
    ptrdiff_t top = smaller(a.top, b.top), left = smaller(a.left, b.left);
    return (Rectangle){
        top, left, larger(a.top + a.height, b.top + b.height) - top, larger(a.left + a.width, b.left + b.width) - left,
    };
}

/* Draws views of the JPEG or PNG of a task in one decoding. */
static Outcome
draw(Workspace *workspace, const Task *task, const uint8_t *data, View *views, ptrdiff_t count)
{
    Rectangle needed = {0};
    for (ptrdiff_t i = 0; i < count; i++) {
        if (!begin(&views[i]))
            return UNDECODED;
        needed = i == 0 ? views[i].needed : around(needed, views[i].needed);
    }
    Views taker = {views, count, needed.top, needed.left};
    if (is_png(data))
        return png_decode(workspace->png, data, (ptrdiff_t)task->size, (ptrdiff_t)task->height, (ptrdiff_t)task->width,
                          needed, take_rows, &taker);
    return decoder_decode(workspace->decoder, data, (ptrdiff_t)task->size, (ptrdiff_t)task->height, (ptrdiff_t)task->width,
                          needed, FOUR_BYTES, take_rows, &taker);
}

static Padding
padding_of(const Task *task)
{
    return (Padding){
        (Mode)task->padding, {(uint8_t)task->fill, (uint8_t)(task->fill >> 8), (uint8_t)(task->fill >> 16)},
    };
}

static size_t
bytes_of(const Wanted *window)
{
    return 3 * (size_t)window->out_height * (size_t)window->out_width;
}

/* Prepares the views of tasks: the part to draw of each, and its memory. Returns 0 without memory. */
static int
prepare(Workspace *workspace, const Task *tasks, View *views, ptrdiff_t count, int with_levels)
{
    size_t size = 0, levels = 0;
    for (ptrdiff_t i = 0; i < count; i++) {
        if (workspace->resizing[i] == NULL)
            workspace->resizing[i] = resizing_new();
        if (workspace->resizing[i] == NULL)
            return 0;
        const Wanted window = wanted_of(&tasks[i]);
        const Padding padding = padding_of(&tasks[i]);
        views[i] = (View){.task = &tasks[i], .resizing = workspace->resizing[i], .window = window, .part = window};
        levels += with_levels ? bytes_of(&window) : 0;
        if (is_padded(&window)) {
            views[i].part = visible_part(&window, &padding);
            size += bytes_of(&views[i].part);
        }
    }
    if ((size > 0 && !reserve(&workspace->shown, size)) || (levels > 0 && !reserve(&workspace->levels, levels)))
        return 0;
    uint8_t *next = workspace->shown.at, *next_levels = workspace->levels.at;
    for (ptrdiff_t i = 0; i < count; i++) {
        views[i].drawn = views[i].out = with_levels ? next_levels : (uint8_t *)(uintptr_t)tasks[i].out;
        if (with_levels)
            next_levels += bytes_of(&views[i].window);
        if (is_padded(&views[i].window)) {
            views[i].drawn = next;
            next += bytes_of(&views[i].part);
        }
    }
    return 1;
}

/* Pads a view that was drawn, applies operations to it, and converts it to numbers, while it is in the cache. */
static Outcome
complete(Workspace *workspace, const View *view, const Operation *operations, const Finish *finish)
{
    const Padding padding = padding_of(view->task);
    if (is_padded(&view->window))
        pad(&view->window, &view->part, &padding, view->drawn, view->out);
    const Image image = {view->out, view->window.out_height, view->window.out_width, &workspace->changed};
    if (!augment(&image, operations, finish->each))
        return NO_MEMORY;
    const ptrdiff_t pixels = image.height * image.width;
    if (finish->table != NULL)
        look_up_planes(view->out, pixels, finish->table, (float *)(uintptr_t)view->task->out);
    else if (finish->numbers != NULL)
        write_image(finish->numbers, view->out, pixels, (uint8_t *)(uintptr_t)view->task->out);
    return DECODED;
}

/* Runs `count` tasks of one image, from the task `first` on, at most TOGETHER. Raw pixels need no decoding, so each view
   is drawn separately; if their rows are read separately, `data` is NULL. */
static void
do_together(Workspace *workspace, const Task *tasks, ptrdiff_t first, ptrdiff_t count, const Finish *finish,
            Outcome *outcomes)
{
    View views[TOGETHER];
    Outcome outcome = DECODED;
    tasks += first;
    const int apart = has_rows_apart(tasks);
    const uint8_t *data = apart ? NULL : find_bytes(&workspace->stored, tasks, &outcome);
    int ready = 0;
    if (data != NULL || apart) {
        ready = prepare(workspace, tasks, views, count, become_numbers(finish));
        outcome = ready ? DECODED : NO_MEMORY;
    }
    if (ready && data != NULL && !tasks->raw)
        outcome = draw(workspace, tasks, data, views, count);
    for (ptrdiff_t i = 0; i < count; i++) {
        Outcome *own = &outcomes[first + i];
        *own = outcome;
        if (!ready || outcome != DECODED)
            continue;
        if (tasks->raw) {
            const int again = finish->each > 0 || become_numbers(finish) || is_padded(&views[i].window);
            *own = draw_raw(workspace, data, &views[i], again);
        }
        if (*own == DECODED)
            *own = complete(workspace, &views[i], operations_of(finish, first + i), finish);
    }
}

/* Tells whether two tasks are of the same image: the fields before those of the rectangle locate it. */
static int
is_same_image(const Task *one, const Task *other)
{
    return memcmp(one, other, offsetof(Task, top)) == 0;
}

/* Returns how many pixels the results of tasks have in total. */
static double
pixels_of(const Task *tasks, Py_ssize_t count)
{
    double pixels = 0;
    for (const Task *task = tasks; task < tasks + count; task++)
        pixels += (double)task->out_height * (double)task->out_width;
    return pixels;
}

/* Returns a list of the indices of tasks that failed; NULL with a MemoryError if memory was missing. */
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
    int64_t n[8];
    if (!read_integers(arguments, given, n, 8))
        return NULL;
    const Task *tasks = (const Task *)(uintptr_t)n[0];
    Py_ssize_t count = (Py_ssize_t)n[1];
    Finish finish = {(const Operation *)(uintptr_t)n[2], n[3], (const float *)(uintptr_t)n[4], NULL};
    for (Py_ssize_t i = 0; i < count; i++)
        if (!require_sense(&tasks[i], operations_of(&finish, i), finish.each))
            return NULL;
    const double pixels = pixels_of(tasks, count);
    Numbers numbers;
    if (n[5] != 0) {
        const char *wrong = set_numbers(&numbers, n[6], n[7], (const float *)(uintptr_t)n[5], pixels);
        if (wrong != NULL) {
            PyErr_SetString(PyExc_ValueError, wrong);
            return NULL;
        }
        finish.numbers = &numbers;
    }
    Outcome *outcomes = calloc((size_t)count + 1, sizeof *outcomes);
    Workspace *workspace = NULL;
    PyObject *left = NULL;
    if (outcomes == NULL)
        PyErr_NoMemory();
    else
        workspace = take_workspace();
    if (workspace != NULL) {
        Py_BEGIN_ALLOW_THREADS
        workspace->many = 3 * pixels >= MANY;
        for (Py_ssize_t i = 0, views; i < count; i += views) {
            for (views = 1; views < TOGETHER && i + views < count && is_same_image(&tasks[i], &tasks[i + views]);)
                views++;
            do_together(workspace, tasks, i, views, &finish, outcomes);
        }
        Py_END_ALLOW_THREADS
        return_workspace(workspace);
        left = left_over(outcomes, count);
    }
    free(outcomes);
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
    if (!require_sense(&task, NULL, 0))
        return NULL;
    const Wanted wanted = wanted_of(&task);
    if (is_padded(&wanted)) {
        PyErr_SetString(PyExc_ValueError, "the window does not lie inside of the resized rectangle");
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
