/* Crops and operations that random numbers choose: rectangles are inside of their images, and operations are from a
   table or can be applied to an image of that size. A crop's own values, passed as choices, give the same crop. */

#include "given.h"
#include "../../packer/_images/native/native.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS = 4, RULES = 3, IMAGES = 3, RANDOMS = 23, LONGEST_SIDE = 1 << 20, MOST_MARGIN = 2 * 89478485 };
enum { RESIZED, RESIZED_BY_SIDE, CENTER_CUT, RANDOM_CUT, RANDOM_RESIZED_CUT, MIRRORED, PADDED };
enum { OF_TABLE, ERASING };

typedef struct { /* as step_fields names them */
    int64_t kind, randoms, chosen, height, width, interpolation, padding, fill, above, left, below, right;
    double least, most, narrowest, widest, log_narrowest, log_widest, p;
} Step;

typedef struct { /* as rule_fields names them */
    int64_t kind, randoms, table, operations, strengths, strength, fill;
    double p, least, most, log_narrowest, log_widest;
} Rule;

typedef struct { /* as the fields of CROP are called in packer/_images/geometry.py */
    int64_t top, left, crop_height, crop_width, scaled_height, scaled_width, cut_top, cut_left, out_height, out_width, flip,
        interpolation, padding, fill;
} Crop;

/* Returns a positive integer of up to `most`: small ones, and ones near the largest. */
static int64_t
side(Input *input, int64_t most)
{
    int byte = next_byte(input);
    int64_t made = byte < 192 ? byte + 1 : byte < 224 ? most - (byte - 192) : INT64_C(1) << (byte - 224);
    return made < 1 ? 1 : made > most ? most : made;
}

/* Returns two numbers, the smaller one first. */
static void
set_range(Input *input, double *low, double *high, double most)
{
    double one = given_random(input) * most, other = given_random(input) * most;
    *low = one < other ? one : other, *high = one < other ? other : one;
}

/* Returns a ratio near 1, or far from it. */
static double
ratio(Input *input)
{
    int byte = next_byte(input);
    return byte < 128 ? (byte + 1) / 64.0 : ldexp(1, (byte - 192) * 16);
}

static Step
given_step(Input *input)
{
    static const int64_t randoms[] = {0, 0, 0, 2, RANDOMS - 1, 1, 0}, chosen[] = {0, 0, 0, 2, 5, 1, 0};
    int kind = next_byte(input) % 7;
    Step made = {.kind = kind, .randoms = randoms[kind], .chosen = chosen[kind], .padding = 1, .p = given_random(input)};
    made.height = side(input, MOST_MARGIN), made.width = side(input, MOST_MARGIN / made.height);
    if (kind == PADDED) {
        made.above = side(input, MOST_MARGIN) - 1, made.left = side(input, MOST_MARGIN) - 1;
        made.below = side(input, MOST_MARGIN) - 1, made.right = side(input, MOST_MARGIN) - 1;
    }
    if (kind == RANDOM_RESIZED_CUT) {
        set_range(input, &made.least, &made.most, next_byte(input) < 200 ? 1 : 1e300);
        double one = ratio(input), other = ratio(input);
        made.narrowest = one < other ? one : other, made.widest = one < other ? other : one;
        made.log_narrowest = log(made.narrowest), made.log_widest = log(made.widest);
    }
    return made;
}

/* Sets steps that one record of a crop can express; returns their number. */
static int64_t
set_steps(Input *input, Step steps[STEPS])
{
    int64_t count = 0;
    int can_be_resized = 1;
    for (int left = next_byte(input) % (STEPS + 1); left > 0; left--) {
        Step step = given_step(input);
        int resizes = step.kind == RESIZED || step.kind == RESIZED_BY_SIDE || step.kind == RANDOM_RESIZED_CUT;
        if (resizes && !can_be_resized)
            continue;
        if (resizes || step.kind == PADDED || step.kind == CENTER_CUT)
            can_be_resized = 0;
        steps[count++] = step;
    }
    return count;
}

static int
choose_crops(const Step *steps, int64_t count, const int64_t *sizes, int64_t images, const double *numbers, int64_t chosen, Crop *out)
{
    PyObject *done = call(choose, NULL, 0, (int64_t)(uintptr_t)steps, count, (int64_t)(uintptr_t)sizes,
                          (int64_t)(uintptr_t)(sizes + IMAGES), images, (int64_t)(uintptr_t)numbers, (int64_t)(STEPS * RANDOMS),
                          chosen, (int64_t)(uintptr_t)out, NOTHING_MORE);
    int was_done = (int)stand_in_value(done);
    Py_DECREF(done);
    return was_done;
}

/* Requires that the values that a step chose, passed as choices, give the same crop. */
static void
say_again(const Step *step, const int64_t *sizes, const Crop *crop)
{
    double numbers[STEPS * RANDOMS] = {0};
    Crop same;
    numbers[0] = (double)crop->top, numbers[1] = (double)crop->left, numbers[2] = (double)crop->crop_height;
    numbers[3] = (double)crop->crop_width, numbers[4] = (double)crop->interpolation;
    if (step->kind == MIRRORED)
        numbers[0] = (double)crop->flip;
    require(choose_crops(step, 1, sizes, 1, numbers, 1, &same) && !memcmp(crop, &same, sizeof same));
}

static void
choose_some(Input *input, const double *numbers)
{
    Step steps[STEPS];
    Crop crops[IMAGES];
    int64_t sizes[2 * IMAGES];
    const int64_t count = set_steps(input, steps);
    for (int i = 0; i < 2 * IMAGES; i++)
        sizes[i] = next_byte(input) == 255 ? given_integer(input) : side(input, 1 << 24);
    if (!choose_crops(steps, count, sizes, IMAGES, numbers, 0, crops))
        return;
    for (int i = 0; i < IMAGES; i++) {
        const Crop *crop = &crops[i];
        require_set((const uint8_t *)crop, sizeof *crop);
        require(crop->top >= 0 && crop->crop_height >= 1 && crop->top + crop->crop_height <= sizes[i]);
        require(crop->left >= 0 && crop->crop_width >= 1 && crop->left + crop->crop_width <= sizes[IMAGES + i]);
        require(crop->scaled_height >= 1 && crop->scaled_width >= 1 && crop->out_height >= 1 && crop->out_width >= 1);
        require(crop->flip == 0 || crop->flip == 1);
    }
    if (count == 1)
        say_again(steps, sizes, crops);
}

static void
decide_some(Input *input, const double *numbers)
{
    enum { MOST_OPERATIONS = 4, MOST_STRENGTHS = 3 };
    Rule rules[RULES];
    Operation *table = (Operation *)(void *)memory(2 * MOST_OPERATIONS * MOST_STRENGTHS * sizeof *table), out[IMAGES * RULES];
    const int64_t height = side(input, LONGEST_SIDE), width = side(input, LONGEST_SIDE);
    int count = next_byte(input) % (RULES + 1);
    for (int i = 0; i < 2 * MOST_OPERATIONS * MOST_STRENGTHS; i++)
        table[i] = (Operation){.kind = INVERT, .top = i};
    for (int i = 0; i < count; i++) {
        Rule *rule = &rules[i];
        int kind = next_byte(input), strength = next_byte(input);
        *rule = (Rule){.kind = kind % 2, .fill = kind, .p = given_random(input)};
        if (rule->kind == OF_TABLE) {
            rule->operations = MOST_OPERATIONS, rule->strengths = MOST_STRENGTHS;
            rule->strength = strength % (MOST_STRENGTHS + 1) - 1;
            rule->randoms = rule->strength < 0 ? 3 : 2;
            rule->table = (int64_t)(uintptr_t)table;
        } else {
            rule->randoms = RANDOMS;
            set_range(input, &rule->least, &rule->most, 1);
            double one = log(ratio(input)), other = log(ratio(input));
            rule->log_narrowest = one < other ? one : other, rule->log_widest = one < other ? other : one;
        }
    }
    Py_DECREF(call(decide, NULL, 0, (int64_t)(uintptr_t)rules, (int64_t)count, height, width, (int64_t)IMAGES,
                   (int64_t)(uintptr_t)numbers, (int64_t)(STEPS * RANDOMS), (int64_t)(uintptr_t)out, NOTHING_MORE));
    for (int i = 0; i < IMAGES * count; i++) {
        require_set((const uint8_t *)&out[i], sizeof out[i]);
        require(find_wrong_operation(&out[i], 1, height, width) == NULL);
    }
    free(table);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { CONTROLS = 3 };
    double numbers[IMAGES * STEPS * RANDOMS];
    if (size < CONTROLS)
        return 0;
    require(!strcmp(step_fields, "kind randoms chosen height width interpolation padding fill above left below right "
                                 "least most narrowest widest log_narrowest log_widest p "));
    require(!strcmp(rule_fields, "kind randoms table operations strengths strength fill p least most log_narrowest log_widest "));
    Input input = {data, data + size};
    int64_t indices[IMAGES], flags = next_byte(&input), seed = given_integer(&input), epoch = given_integer(&input);
    for (int i = 0; i < IMAGES; i++)
        indices[i] = given_integer(&input);
    Py_DECREF(call(uniforms, NULL, 0, seed, epoch, (int64_t)(uintptr_t)indices, (int64_t)IMAGES, (int64_t)(STEPS * RANDOMS),
                   (int64_t)(uintptr_t)numbers, NOTHING_MORE));
    for (int i = 0; i < IMAGES * STEPS * RANDOMS; i++)
        require(numbers[i] >= 0 && numbers[i] < 1);
    for (int i = 0; flags & 2 && i < IMAGES * STEPS * RANDOMS && input.at < input.end; i += 1 + i / RANDOMS)
        numbers[i] = given_random(&input);
    (flags & 1 ? decide_some : choose_some)(&input, numbers);
    return 0;
}
