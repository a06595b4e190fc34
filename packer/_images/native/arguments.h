/* Parses the arguments of functions that Python calls. */

#ifndef PACKER_ARGUMENTS_H
#define PACKER_ARGUMENTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* Reads `count` integers, addresses among them; 0 where they are none, or not so many, with an exception. */
int read_integers(PyObject *const *arguments, Py_ssize_t given, int64_t *numbers, Py_ssize_t count);

/* Reads bytes and `count` integers after them; 0 where the arguments are others, with an exception. */
int read_arguments(PyObject *const *arguments, Py_ssize_t given, const uint8_t **data, Py_ssize_t *size,
                   int64_t *numbers, Py_ssize_t count);

#endif
