/* Replaces Python: the few functions that packer's module calls, as far as the module needs them. */

#ifndef PACKER_STAND_IN_H
#define PACKER_STAND_IN_H

#define Py_LIMITED_API 0x030A0000
#include <Python.h>

/* Returns a function of a module by its name; NULL if there is none. */
Py_EXPORTED_SYMBOL PyCFunction stand_in_function(PyObject *module, const char *name);

/* Return an object for bytes, which are not copied; an object for a number; and the number of an object. */
Py_EXPORTED_SYMBOL PyObject *stand_in_bytes(const char *at, Py_ssize_t size);
Py_EXPORTED_SYMBOL PyObject *stand_in_number(long long number);
Py_EXPORTED_SYMBOL long long stand_in_value(PyObject *);

/* Returns the number of items of a list or a tuple; a text has 0. */
Py_EXPORTED_SYMBOL Py_ssize_t stand_in_length(PyObject *);

/* Returns an item of a tuple, which the tuple still owns. */
Py_EXPORTED_SYMBOL PyObject *stand_in_item(PyObject *, Py_ssize_t place);

/* Returns the bytes of an object, which the object still owns. */
Py_EXPORTED_SYMBOL const char *stand_in_data(PyObject *, Py_ssize_t *size);

/* Returns the message of the last error. */
Py_EXPORTED_SYMBOL const char *stand_in_error(void);

#endif
