/* Draws the augmentations of many images from random numbers, with the same results as the rules in packer/augment, to
   the bit on machines with the same exp(). */

#include "arguments.h"
#include "augmenting/augmenting.h"
#include "native.h"

#include <math.h>
#include <stdint.h>

/* A record of RULE in packer/_images/native/crop_steps.py, which documents the fields. Python compares the names. */
#define RULE(INTEGER, NUMBER) \
    INTEGER(kind) INTEGER(randoms) INTEGER(table) INTEGER(operations) INTEGER(strengths) INTEGER(strength) INTEGER(fill) \
    NUMBER(p) NUMBER(least) NUMBER(most) NUMBER(log_narrowest) NUMBER(log_widest)
#define RULE_INTEGER(name) int64_t name;
#define RULE_NUMBER(name) double name;
#define NAMED(name) #name " "

typedef struct {
    RULE(RULE_INTEGER, RULE_NUMBER)
} Rule;

const char rule_fields[] = RULE(NAMED, NAMED);

/* Indices into RULES in crop_steps.py. */
enum { OF_TABLE, ERASING };

enum { ATTEMPTS = 10, ANY = -1 };

/* Returns an integer from 0 to `end` - 1. */
static int64_t
below(int64_t end, double random)
{
    return (int64_t)(random * (double)end);
}

/* As `_Automatic._do` in packer/augment/_auto.py. */
static Operation
take_of_table(const Rule *rule, const double *random)
{
    const Operation *table = (const Operation *)(uintptr_t)rule->table;
    int64_t which = below(rule->operations, *random++);
    int64_t strength = rule->strength == ANY ? below(rule->strengths, *random++) : rule->strength;
    return table[(which * rule->strengths + strength) * 2 + (*random < 0.5)];
}

/* As `RandomErasing` in packer/augment/_affine.py. */
static Operation
choose_rectangle(const Rule *rule, int64_t height, int64_t width, const double *random)
{
    Operation erased = {.kind = NOTHING, .fill = rule->fill};
    if (random[0] >= rule->p)
        return erased;
    const double *areas = random + 3, *ratios = areas + ATTEMPTS;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        double area = (double)(height * width) * (rule->least + areas[attempt] * (rule->most - rule->least));
        double ratio = exp(rule->log_narrowest + ratios[attempt] * (rule->log_widest - rule->log_narrowest));
        double tall = rint(sqrt(area * ratio)), wide = rint(sqrt(area / ratio));
        if (tall >= (double)height || wide >= (double)width)
            continue;
        erased.kind = ERASE;
        erased.height = (int64_t)tall;
        erased.width = (int64_t)wide;
        erased.top = below(height - erased.height + 1, random[1]);
        erased.left = below(width - erased.width + 1, random[2]);
        break;
    }
    return erased;
}

PyObject *
decide(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[8];
    if (!read_integers(arguments, given, n, 8))
        return NULL;
    const Rule *rules = (const Rule *)(uintptr_t)n[0];
    Operation *out = (Operation *)(uintptr_t)n[7];
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < n[4]; i++) {
        const double *random = (const double *)(uintptr_t)n[5] + i * n[6];
        for (const Rule *rule = rules; rule < rules + n[1]; rule++, random += rule[-1].randoms)
            *out++ = rule->kind == OF_TABLE ? take_of_table(rule, random) : choose_rectangle(rule, n[2], n[3], random);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
