/* Parses the arguments of functions that Python calls. */

#ifndef PACKER_ARGUMENTS_H
#define PACKER_ARGUMENTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* Reads exactly `count` integers, some of which may be addresses. Returns 0 with an exception set if that fails. */
int read_integers(PyObject *const *arguments, Py_ssize_t given, int64_t *numbers, Py_ssize_t count);

/* Reads a bytes object and exactly `count` integers after it. Returns 0 with an exception set if that fails. */
int read_arguments(PyObject *const *arguments, Py_ssize_t given, const uint8_t **data, Py_ssize_t *size,
                   int64_t *numbers, Py_ssize_t count);

#endif
