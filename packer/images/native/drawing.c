/* Draws images: decodes what is wanted of them and resizes it into its place, without Python's lock. */

#include "native.h"
#include "decoding.h"
#include "resizing.h"
#include "vectors.h"

#include <stdlib.h>

typedef struct Workspace { /* memory that one thread at a time draws with */
    Decoder *decoder;
    Resizing *resizing;
    struct Workspace *next;
} Workspace;

static Workspace *idle; /* those that nobody draws with; whoever holds Python's lock may change them */

static Workspace *
take_workspace(void)
{
    Workspace *workspace = idle;
    if (workspace != NULL) {
        idle = workspace->next;
        return workspace;
    }
    workspace = calloc(1, sizeof *workspace);
    if (workspace != NULL) {
        workspace->decoder = decoder_new();
        workspace->resizing = resizing_new();
        if (workspace->decoder != NULL && workspace->resizing != NULL)
            return workspace;
        decoder_free(workspace->decoder);
        resizing_free(workspace->resizing);
        free(workspace);
    }
    return NULL;
}

static void
return_workspace(Workspace *workspace)
{
    workspace->next = idle;
    idle = workspace;
}

static void
take_rows(void *resizing, const uint8_t *rows, ptrdiff_t stride, ptrdiff_t count)
{
    resizing_rows(resizing, rows, stride, count);
}

enum { JOB_NUMBERS = 14 };

typedef struct {
    const uint8_t *data;
    Py_ssize_t size;
    ptrdiff_t height, width;
    Rectangle rectangle;
    Wanted wanted;
    uint8_t *out;
    Outcome outcome;
} Job;

static Outcome
draw_image(Workspace *workspace, const Job *job)
{
    ptrdiff_t first_row, row_end, first, end;
    if (!resizing_begin(workspace->resizing, &job->wanted, job->out)) /* other limits than memory are those of sizes */
        return UNDECODED;
    resizing_needs(workspace->resizing, &first_row, &row_end, &first, &end);
    Rectangle needed = {job->rectangle.top + first_row, job->rectangle.left + first, row_end - first_row, end - first};
    return decoder_decode(workspace->decoder, job->data, job->size, job->height, job->width, needed, take_rows,
                          workspace->resizing);
}

/* Reads what is wanted of a rectangle from seven integers; 0 where it makes no sense, with an exception. */
static int
read_wanted(Wanted *wanted, ptrdiff_t tall, ptrdiff_t wide, const int64_t *numbers)
{
    *wanted = (Wanted){
        .height = tall, .width = wide, .scaled_height = (ptrdiff_t)numbers[0], .scaled_width = (ptrdiff_t)numbers[1],
        .cut_top = (ptrdiff_t)numbers[2], .cut_left = (ptrdiff_t)numbers[3], .out_height = (ptrdiff_t)numbers[4],
        .out_width = (ptrdiff_t)numbers[5], .flip = numbers[6] != 0,
    };
    const Wanted *w = wanted;
    if (tall < 1 || wide < 1 || w->out_height < 1 || w->out_width < 1 || w->cut_top < 0 || w->cut_left < 0
        || w->out_height > w->scaled_height || w->cut_top > w->scaled_height - w->out_height
        || w->out_width > w->scaled_width || w->cut_left > w->scaled_width - w->out_width) {
        PyErr_SetString(PyExc_ValueError, "the window does not lie inside of what the rectangle is resized to");
        return 0;
    }
    return 1;
}

/* Reads a job from its bytes and fourteen numbers; 0 where it is another or makes no sense, with an exception. */
static int
read_job(Job *job, PyObject *data, const int64_t *numbers)
{
    char *bytes;
    if (data == NULL || PyBytes_AsStringAndSize(data, &bytes, &job->size) < 0)
        return 0;
    job->data = (const uint8_t *)bytes;
    job->height = (ptrdiff_t)numbers[0];
    job->width = (ptrdiff_t)numbers[1];
    job->rectangle = (Rectangle){(ptrdiff_t)numbers[2], (ptrdiff_t)numbers[3], (ptrdiff_t)numbers[4], (ptrdiff_t)numbers[5]};
    job->out = (uint8_t *)(intptr_t)numbers[13];
    const Rectangle *r = &job->rectangle;
    if (r->top < 0 || r->height < 1 || r->height > job->height || r->top > job->height - r->height || r->left < 0
        || r->width < 1 || r->width > job->width || r->left > job->width - r->width) {
        PyErr_SetString(PyExc_ValueError, "the rectangle does not lie inside of the image");
        return 0;
    }
    return read_wanted(&job->wanted, r->height, r->width, numbers + 6);
}

/* Returns a list of which jobs were not done. */
static PyObject *
left_over(const Job *jobs, Py_ssize_t count)
{
    PyObject *left = PyList_New(0);
    for (Py_ssize_t i = 0; i < count && left != NULL; i++) {
        if (jobs[i].outcome == DECODED)
            continue;
        PyObject *number = jobs[i].outcome == NO_MEMORY ? PyErr_NoMemory() : PyLong_FromSsize_t(i);
        if (number == NULL || PyList_Append(left, number) < 0)
            Py_CLEAR(left);
        Py_XDECREF(number);
    }
    return left;
}

PyObject *
draw(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    Py_ssize_t address;
    if (given != 2) {
        PyErr_SetString(PyExc_TypeError, "images and an address are expected");
        return NULL;
    }
    if (!read_integers(arguments + 1, 1, &address, 1))
        return NULL;
    PyObject *images = PySequence_Tuple(arguments[0]), *result = NULL; /* nobody can take something out of a tuple */
    if (images == NULL)
        return NULL;
    const int64_t *numbers = (const int64_t *)address;
    Py_ssize_t count = PyTuple_Size(images), read = 0;
    Job *jobs = calloc((size_t)count + 1, sizeof *jobs);
    Workspace *workspace = jobs == NULL ? NULL : take_workspace();
    if (workspace == NULL)
        PyErr_NoMemory();
    while (workspace != NULL && read < count
           && read_job(&jobs[read], PyTuple_GetItem(images, read), numbers + read * JOB_NUMBERS))
        read++;
    if (workspace != NULL && read == count) {
        Py_BEGIN_ALLOW_THREADS
        for (Job *job = jobs; job < jobs + count; job++)
            job->outcome = draw_image(workspace, job);
        Py_END_ALLOW_THREADS
        result = left_over(jobs, count);
    }
    if (workspace != NULL)
        return_workspace(workspace);
    free(jobs);
    Py_DECREF(images);
    return result;
}

enum { ROWS = 16, BESIDE = 32 }; /* rows that are handed over at a time; bytes that may be read behind them */

/* Makes pixels of four bytes of those of three. */
static void
expand_plain(const uint8_t *rgb, uint8_t *rgbx, ptrdiff_t count)
{
    for (; count > 0; count--, rgb += 3, rgbx += 4)
        rgbx[0] = rgb[0], rgbx[1] = rgb[1], rgbx[2] = rgb[2];
}

#if HAS_AVX2
AVX2 static void
expand_avx2(const uint8_t *rgb, uint8_t *rgbx, ptrdiff_t count)
{
    const __m256i halves = _mm256_setr_epi32(0, 1, 2, 7, 3, 4, 5, 7);
    const __m256i apart = _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,
                                           0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    ptrdiff_t done = 0;
    for (; done + 11 <= count; done += 8) { /* 32 bytes are loaded for 24 */
        __m256i pixels = _mm256_loadu_si256((const __m256i *)(const void *)(rgb + 3 * done));
        pixels = _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(pixels, halves), apart);
        _mm256_storeu_si256((__m256i *)(void *)(rgbx + 4 * done), pixels);
    }
    expand_plain(rgb + 3 * done, rgbx + 4 * done, count - done);
}
#endif

static void
expand(const uint8_t *rgb, uint8_t *rgbx, ptrdiff_t count)
{
#if HAS_AVX2
    if (has_avx2()) {
        expand_avx2(rgb, rgbx, count);
        return;
    }
#endif
    expand_plain(rgb, rgbx, count);
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
    ptrdiff_t line = 4 * (end - first) + BESIDE;
    uint8_t *some = malloc((size_t)(ROWS * line));
    if (some == NULL)
        return NO_MEMORY;
    for (ptrdiff_t row = first_row; row < row_end; row += ROWS) {
        ptrdiff_t count = row_end - row < ROWS ? row_end - row : ROWS;
        for (ptrdiff_t i = 0; i < count; i++)
            expand(pixels + (row + i) * stride + 3 * first, some + i * line, end - first);
        resizing_rows(workspace->resizing, some, line, count);
    }
    free(some);
    return DECODED;
}

PyObject *
resize(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_ssize_t numbers[14];
    int64_t wide_numbers[7];
    Wanted wanted;
    if (!read_integers(arguments, count, numbers, 14))
        return NULL;
    for (int i = 0; i < 7; i++)
        wide_numbers[i] = numbers[6 + i];
    if (!read_wanted(&wanted, numbers[4], numbers[5], wide_numbers))
        return NULL;
    Workspace *workspace = take_workspace();
    if (workspace == NULL)
        return PyErr_NoMemory();
    Outcome outcome;
    Py_BEGIN_ALLOW_THREADS
    outcome = resize_pixels(workspace, (const uint8_t *)numbers[0], numbers[1], numbers[2], numbers[3], &wanted,
                            (uint8_t *)numbers[13]);
    Py_END_ALLOW_THREADS
    return_workspace(workspace);
    if (outcome == NO_MEMORY)
        return PyErr_NoMemory();
    return PyBool_FromLong(outcome == DECODED);
}
