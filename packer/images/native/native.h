/* The functions of the module packer.images._native; what they do for Python stands in module.c. */

#ifndef PACKER_NATIVE_H
#define PACKER_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

PyObject *cut_out(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *first_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *draw(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *resize(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

long job_size(void); /* bytes of a record that `draw` takes */

void cutting_init(void);

/* Reads integers; 0 where they are none, or not so many, with an exception. */
int read_integers(PyObject *const *arguments, Py_ssize_t given, Py_ssize_t *numbers, Py_ssize_t count);

/* Reads the arguments, bytes and `count` integers after them; 0 where they are others, with an exception. */
int read_arguments(PyObject *const *arguments, Py_ssize_t given, const uint8_t **data, Py_ssize_t *size,
                   Py_ssize_t *numbers, Py_ssize_t count);

#endif
