/* Draws the crops of many images from random numbers, with the same results as the steps in packer/crops, to the bit on
   machines with the same exp(). */

#include "arguments.h"
#include "native.h"

#include <math.h>
#include <stdint.h>

static const uint64_t STEP_OF_KEYS = UINT64_C(0x9E3779B97F4A7C15);

/* SplitMix64's output function: as `_mix` in packer/samplers/_random.py. */
static uint64_t
mix(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    value = (value ^ value >> 27) * UINT64_C(0x94D049BB133111EB);
    return value ^ value >> 31;
}

PyObject *
uniforms(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[6];
    if (!read_integers(arguments, given, n, 6))
        return NULL;
    const uint64_t key = mix(mix((uint64_t)n[0]) + (uint64_t)n[1]);
    const int64_t *indices = (const int64_t *)(uintptr_t)n[2];
    double *out = (double *)(uintptr_t)n[5];
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < n[3]; i++) {
        uint64_t counter = mix(key + (uint64_t)indices[i] * STEP_OF_KEYS);
        for (int64_t k = 0; k < n[4]; k++)
            *out++ = (double)(mix(counter += STEP_OF_KEYS) >> 11) * 0x1p-53;
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* A record of STEP in packer/_images/native/crop_steps.py, which documents the fields. Python compares the names. */
#define STEP(INTEGER, NUMBER) \
    INTEGER(kind) INTEGER(randoms) INTEGER(chosen) INTEGER(height) INTEGER(width) INTEGER(interpolation) INTEGER(padding) INTEGER(fill) \
    INTEGER(above) INTEGER(left) INTEGER(below) INTEGER(right) \
    NUMBER(least) NUMBER(most) NUMBER(narrowest) NUMBER(widest) NUMBER(log_narrowest) NUMBER(log_widest) NUMBER(p)
#define INTEGER_FIELD(name) int64_t name;
#define NUMBER_FIELD(name) double name;
#define NAMED(name) #name " "

typedef struct {
    STEP(INTEGER_FIELD, NUMBER_FIELD)
} Step;

const char step_fields[] = STEP(NAMED, NAMED);

/* Indices into KINDS in crop_steps.py. */
enum { RESIZED, RESIZED_BY_SIDE, CENTER_CUT, RANDOM_CUT, RANDOM_RESIZED_CUT, MIRRORED, PADDED, RANDOM_CUT_OF_V1 };

enum { ATTEMPTS = 10 };

typedef struct { /* down and across, in pixels */
    int64_t down, across;
} Pair;

typedef struct { /* a record of CROP in packer/_images/geometry.py */
    Pair corner, crop, scaled, cut, out;
    int64_t flip, interpolation, padding, fill;
} Crop;

static int64_t
least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Cuts a rectangle out of the result; as `cropped` in packer/crops/_steps.py. */
static void
cut(Crop *crop, Pair corner, Pair size)
{
    crop->cut.down += corner.down;
    crop->cut.across += crop->flip ? crop->out.across - size.across - corner.across : corner.across;
    crop->out = size;
    Pair at = crop->cut;
    int inside = at.down >= 0 && at.across >= 0 && at.down + size.down <= crop->crop.down
        && at.across + size.across <= crop->crop.across;
    if (inside && crop->scaled.down == crop->crop.down && crop->scaled.across == crop->crop.across) {
        crop->corner.down += at.down;
        crop->corner.across += at.across;
        crop->crop = crop->scaled = size;
        crop->cut = (Pair){0, 0};
    }
}

static void
resize_to(Crop *crop, Pair size, int64_t interpolation)
{
    crop->scaled = crop->out = size;
    crop->interpolation = interpolation;
}

/* Returns an integer from 0 to `end` - 1. */
static int64_t
below(int64_t end, double random)
{
    return (int64_t)(random * (double)end);
}

/* Pads the result, `before` at the top and on the left, `after` at the bottom and on the right; as `padded` in
   packer/crops/_steps.py. */
static void
widen(Crop *crop, Pair before, Pair after, const Step *step)
{
    if (before.down == 0 && before.across == 0 && after.down == 0 && after.across == 0)
        return;
    crop->cut.down -= before.down;
    crop->cut.across -= crop->flip ? after.across : before.across;
    crop->out = (Pair){crop->out.down + before.down + after.down, crop->out.across + before.across + after.across};
    crop->padding = step->padding;
    crop->fill = step->fill;
}

/* Returns how many pixels a size lacks to the minimum size of a step. */
static Pair
missing_of(const Step *step, int64_t down, int64_t across)
{
    return (Pair){step->height > down ? step->height - down : 0, step->width > across ? step->width - across : 0};
}

/* As `Padded` in packer/crops/_steps.py. */
static void
pad_sides(Crop *crop, const Step *step)
{
    Pair missing = missing_of(step, crop->out.down + step->above + step->below, crop->out.across + step->left + step->right);
    Pair before = {missing.down + step->above, missing.across + step->left};
    Pair after = {missing.down + step->below, missing.across + step->right};
    widen(crop, before, after, step);
}

/* As `CenterCut` in packer/crops/_steps.py. */
static void
cut_centre(Crop *crop, const Step *step)
{
    Pair missing = missing_of(step, crop->out.down, crop->out.across), before = {missing.down / 2, missing.across / 2};
    widen(crop, before, (Pair){missing.down - before.down, missing.across - before.across}, step);
    Pair size = {step->height, step->width};
    Pair corner = {
        (int64_t)rint((double)(crop->out.down - size.down) / 2), (int64_t)rint((double)(crop->out.across - size.across) / 2),
    };
    cut(crop, corner, size);
}

/* As `RandomCut` in packer/crops/_steps.py. Returns 0 if the image is too small. */
static int
cut_anywhere(Crop *crop, const Step *step, const double *random)
{
    Pair left = {crop->out.down - step->height, crop->out.across - step->width};
    if (left.down < 0 || left.across < 0)
        return 0;
    Pair corner = {below(left.down + 1, random[0]), below(left.across + 1, random[1])};
    cut(crop, corner, (Pair){step->height, step->width});
    return 1;
}

/* Returns the largest centred rectangle of an allowed ratio; its size is at least a pixel. */
static Pair
centred(Pair whole, const Step *step, Pair *corner)
{
    const double tall = (double)whole.down, wide = (double)whole.across, ratio = wide / tall;
    Pair size = {
        ratio < step->narrowest ? (int64_t)rint(wide / step->narrowest) : whole.down,
        ratio > step->widest ? (int64_t)rint(tall * step->widest) : whole.across,
    };
    size.down = least_of(size.down < 1 ? 1 : size.down, whole.down);
    size.across = least_of(size.across < 1 ? 1 : size.across, whole.across);
    *corner = (Pair){(whole.down - size.down) / 2, (whole.across - size.across) / 2};
    return size;
}

/* As `RandomResizedCut` in packer/crops/_steps.py. */
static void
cut_and_resize(Crop *crop, const Step *step, const double *random)
{
    const Pair whole = crop->out;
    Pair size = {0, 0}, corner;
    int found = 0;
    for (int attempt = 0; attempt < ATTEMPTS && !found; attempt++) {
        double area = (double)(whole.down * whole.across) * (step->least + random[attempt] * (step->most - step->least));
        double ratio = exp(step->log_narrowest
                           + random[ATTEMPTS + attempt] * (step->log_widest - step->log_narrowest));
        double wide = rint(sqrt(area * ratio)), tall = rint(sqrt(area / ratio));
        found = wide > 0 && wide <= (double)whole.across && tall > 0 && tall <= (double)whole.down;
        if (found)
            size = (Pair){(int64_t)tall, (int64_t)wide};
    }
    if (found)
        corner = (Pair){
            below(whole.down - size.down + 1, random[2 * ATTEMPTS]),
            below(whole.across - size.across + 1, random[2 * ATTEMPTS + 1]),
        };
    else
        size = centred(whole, step, &corner);
    cut(crop, corner, size);
    resize_to(crop, (Pair){step->height, step->width}, step->interpolation);
}

/* As `Resized` in packer/crops/_steps.py; `height` is the new length of the shorter side. */
static void
resize_by_side(Crop *crop, const Step *step)
{
    const Pair size = crop->out;
    const double shorter = (double)least_of(size.down, size.across);
    Pair scaled = {
        (int64_t)((double)(step->height * size.down) / shorter), (int64_t)((double)(step->height * size.across) / shorter),
    };
    resize_to(crop, scaled, step->interpolation);
}

/* Applies a step. Returns 0 on an error, which Python reports. */
static int
take_step(Crop *crop, const Step *step, const double *random)
{
    switch (step->kind) {
    case RESIZED: resize_to(crop, (Pair){step->height, step->width}, step->interpolation); return 1;
    case RESIZED_BY_SIDE: resize_by_side(crop, step); return 1;
    case CENTER_CUT: cut_centre(crop, step); return 1;
    case RANDOM_CUT:
    case RANDOM_CUT_OF_V1: return cut_anywhere(crop, step, random);
    case RANDOM_RESIZED_CUT: cut_and_resize(crop, step, random); return 1;
    case PADDED: pad_sides(crop, step); return 1;
    case MIRRORED: crop->flip ^= random[0] < step->p; return 1;
    default: return 0;
    }
}

/* Applies a step. `numbers` are not random numbers, but the choices that were made from them. */
static int
take_chosen(Crop *crop, const Step *step, const double *numbers)
{
    if (step->chosen == 0)
        return step->randoms == 0 && take_step(crop, step, numbers);
    switch (step->kind) {
    case RANDOM_CUT:
    case RANDOM_CUT_OF_V1:
        cut(crop, (Pair){(int64_t)numbers[0], (int64_t)numbers[1]}, (Pair){step->height, step->width});
        return 1;
    case RANDOM_RESIZED_CUT:
        cut(crop, (Pair){(int64_t)numbers[0], (int64_t)numbers[1]}, (Pair){(int64_t)numbers[2], (int64_t)numbers[3]});
        resize_to(crop, (Pair){step->height, step->width}, (int64_t)numbers[4]);
        return 1;
    case MIRRORED: crop->flip ^= numbers[0] != 0; return 1;
    default: return 0;
    }
}

typedef struct { /* the next numbers of a generator, in each form in which steps use them */
    const double *rows; /* of `length` numbers each: first the 32-bit numbers, then the rows of each step in turn */
    int64_t length, used;
} Drawn;

static double
next_of(Drawn *drawn, int64_t row)
{
    return drawn->rows[row * drawn->length + drawn->used++];
}

/* Returns an integer from 0 to `end` - 1. */
static int64_t
next_below(Drawn *drawn, int64_t end)
{
    return (int64_t)next_of(drawn, 0) % end;
}

/* Makes the choices of a `RandomResizedCut`, whose numbers are in the rows `row` and `row` + 1. */
static void
draw_rectangle(const Step *step, Pair whole, Drawn *drawn, int64_t row, double *numbers)
{
    Pair size = {0, 0}, corner;
    int found = 0;
    for (int attempt = 0; attempt < ATTEMPTS && !found; attempt++) {
        double area = (double)(whole.down * whole.across) * next_of(drawn, row);
        double ratio = next_of(drawn, row + 1);
        double wide = rint(sqrt(area * ratio)), tall = rint(sqrt(area / ratio));
        found = wide > 0 && wide <= (double)whole.across && tall > 0 && tall <= (double)whole.down;
        if (found)
            size = (Pair){(int64_t)tall, (int64_t)wide};
    }
    if (found) {
        corner.down = next_below(drawn, whole.down - size.down + 1);
        corner.across = next_below(drawn, whole.across - size.across + 1);
    } else
        size = centred(whole, step, &corner);
    numbers[0] = (double)corner.down;
    numbers[1] = (double)corner.across;
    numbers[2] = (double)size.down;
    numbers[3] = (double)size.across;
    numbers[4] = (double)step->interpolation;
}

/* Draws the corner of a `RandomCut` or a `RandomCutOfV1`. Returns 0 if the image is too small. */
static int
draw_corner(const Step *step, Pair whole, Drawn *drawn, double *numbers)
{
    const Pair left = {whole.down - step->height, whole.across - step->width};
    if (left.down < 0 || left.across < 0)
        return 0;
    const int both = step->kind == RANDOM_CUT_OF_V1 && (left.down > 0 || left.across > 0);
    numbers[0] = both || left.down > 0 ? (double)next_below(drawn, left.down + 1) : 0;
    numbers[1] = both || left.across > 0 ? (double)next_below(drawn, left.across + 1) : 0;
    return 1;
}

/* Draws the numbers of a step, as its method `draw` in packer/crops does, and applies the step. `row` is the first row
   of the step, and is set to that of the next step. Returns 0 on an error, which Python reports. */
static int
take_drawn(Crop *crop, const Step *step, Drawn *drawn, int64_t *row)
{
    double numbers[5];
    switch (step->kind) {
    case RANDOM_CUT:
    case RANDOM_CUT_OF_V1:
        if (!draw_corner(step, crop->out, drawn, numbers))
            return 0;
        break;
    case RANDOM_RESIZED_CUT:
        draw_rectangle(step, crop->out, drawn, *row, numbers);
        *row += 2;
        break;
    case MIRRORED: numbers[0] = next_of(drawn, (*row)++) < (double)(float)step->p; break; /* torch compares floats */
    default: break;
    }
    return take_chosen(crop, step, numbers);
}

enum { LARGEST = 1 << 24 }; /* pixels of a side; larger images are left to Python */

/* Sets the crop to the whole image. Returns 0 if the image is empty or too large. */
static int
begin_with(Crop *crop, Pair size)
{
    if (size.down < 1 || size.across < 1 || size.down > LARGEST || size.across > LARGEST)
        return 0;
    *crop = (Crop){.crop = size, .scaled = size, .out = size};
    return 1;
}

/* Chooses the crop of an image by all steps. Returns 0 on an error, which Python reports. */
static int
choose_one(Crop *crop, Pair size, const Step *steps, int64_t count, const double *numbers, int chosen)
{
    if (!begin_with(crop, size))
        return 0;
    for (const Step *step = steps; step < steps + count; step++) {
        if (!(chosen ? take_chosen : take_step)(crop, step, numbers))
            return 0;
        numbers += chosen ? step->chosen : step->randoms;
    }
    return 1;
}

PyObject *
choose(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[9];
    if (!read_integers(arguments, given, n, 9))
        return NULL;
    const Step *steps = (const Step *)(uintptr_t)n[0];
    const int64_t *heights = (const int64_t *)(uintptr_t)n[2], *widths = (const int64_t *)(uintptr_t)n[3];
    const double *numbers = (const double *)(uintptr_t)n[5];
    Crop *out = (Crop *)(uintptr_t)n[8];
    int done = 1;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < n[4] && done; i++)
        done = choose_one(&out[i], (Pair){heights[i], widths[i]}, steps, n[1], numbers + i * n[6], n[7] != 0);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(done);
}

PyObject *
choose_drawn(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[9];
    if (!read_integers(arguments, given, n, 9))
        return NULL;
    const Step *steps = (const Step *)(uintptr_t)n[0], *end = steps + n[1];
    const int64_t *heights = (const int64_t *)(uintptr_t)n[2], *widths = (const int64_t *)(uintptr_t)n[3];
    Drawn drawn = {(const double *)(uintptr_t)n[5], n[6], 0};
    int64_t *done = (int64_t *)(uintptr_t)n[7], most = 0;
    Crop *out = (Crop *)(uintptr_t)n[8];
    for (const Step *step = steps; step < end; step++)
        most += step->randoms;
    int possible = 1;
    Py_BEGIN_ALLOW_THREADS
    for (; done[0] < n[4] && drawn.length - drawn.used >= most && possible; done[0] += possible) {
        int64_t row = 1;
        possible = begin_with(&out[done[0]], (Pair){heights[done[0]], widths[done[0]]});
        for (const Step *step = steps; step < end && possible; step++)
            possible = take_drawn(&out[done[0]], step, &drawn, &row);
    }
    done[1] = drawn.used;
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(possible);
}
