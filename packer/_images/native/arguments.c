/* Implements arguments.h. */

#include "arguments.h"

int
read_integers(PyObject *const *arguments, Py_ssize_t given, int64_t *numbers, Py_ssize_t count)
{
    if (given != count) {
        PyErr_Format(PyExc_TypeError, "expected %zd integers, got %zd", count, given);
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        numbers[i] = PyLong_AsLongLong(arguments[i]);
        if (numbers[i] == -1 && PyErr_Occurred())
            return 0;
    }
    return 1;
}

int
read_arguments(PyObject *const *arguments, Py_ssize_t given, const uint8_t **data, Py_ssize_t *size, int64_t *numbers,
               Py_ssize_t count)
{
    char *bytes;
    if (given < 1) {
        PyErr_SetString(PyExc_TypeError, "the first argument must be bytes");
        return 0;
    }
    if (PyBytes_AsStringAndSize(arguments[0], &bytes, size) < 0)
        return 0;
    *data = (const uint8_t *)bytes;
    return read_integers(arguments + 1, given - 1, numbers, count);
}
