/* Labels of batches whose images are mixed: for each image the share of every class. */

#include "arguments.h"
#include "native.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static int
are_classes(const int64_t *labels, ptrdiff_t count, int64_t classes)
{
    for (ptrdiff_t i = 0; i < count; i++)
        if (labels[i] < 0 || labels[i] >= classes)
            return 0;
    return 1;
}

/* Writes the shares of each label and of the previous one; for the first label, that is the last one. */
static void
write_shares(const int64_t *labels, ptrdiff_t count, ptrdiff_t classes, const float shares[2], float *out)
{
    memset(out, 0, (size_t)count * (size_t)classes * sizeof *out);
    for (ptrdiff_t i = 0; i < count; i++, out += classes) {
        out[labels[i > 0 ? i - 1 : count - 1]] = shares[1];
        out[labels[i]] += shares[0];
    }
}

PyObject *
mix_labels(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[5];
    if (!read_integers(arguments, given, n, 5))
        return NULL;
    const int64_t *labels = (const int64_t *)(uintptr_t)n[0];
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = are_classes(labels, (ptrdiff_t)n[1], n[2]);
    if (done)
        write_shares(labels, (ptrdiff_t)n[1], (ptrdiff_t)n[2], (const float *)(uintptr_t)n[3], (float *)(uintptr_t)n[4]);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(done);
}
