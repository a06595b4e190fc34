/* See stand_in.h. Linked into the host; for Windows a library python3.dll, in which the module looks for Python. */

#include "stand_in.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEMS = 12 }; /* the most items of a tuple */

typedef struct {
    PyObject head;
    long long number; /* or the number of items of a list or a tuple */
    const char *bytes;
    Py_ssize_t size;
    char *own; /* the bytes, if the object owns them */
    PyObject *items[ITEMS];
    PyModuleDef *definition;
} Value;

static char error[256];

PyObject _Py_NoneStruct;
PyObject *PyExc_TypeError, *PyExc_ValueError;

static Value *
value_new(void)
{
    Value *value = calloc(1, sizeof *value);
    if (value == NULL)
        abort();
    value->head.ob_refcnt = 1;
    return value;
}

PyCFunction
stand_in_function(PyObject *module, const char *name)
{
    for (PyMethodDef *method = ((Value *)module)->definition->m_methods; method->ml_name != NULL; method++)
        if (!strcmp(method->ml_name, name))
            return method->ml_meth;
    return NULL;
}

PyObject *
stand_in_bytes(const char *at, Py_ssize_t size)
{
    Value *value = value_new();
    value->bytes = at;
    value->size = size;
    return &value->head;
}

PyObject *
stand_in_number(long long number)
{
    Value *value = value_new();
    value->number = number;
    return &value->head;
}

long long
stand_in_value(PyObject *object)
{
    return ((Value *)object)->number;
}

Py_ssize_t
stand_in_length(PyObject *object)
{
    return (Py_ssize_t)((Value *)object)->number;
}

PyObject *
stand_in_item(PyObject *object, Py_ssize_t place)
{
    return ((Value *)object)->items[place];
}

const char *
stand_in_data(PyObject *object, Py_ssize_t *size)
{
    *size = ((Value *)object)->size;
    return ((Value *)object)->bytes;
}

const char *
stand_in_error(void)
{
    return error;
}

void
_Py_Dealloc(PyObject *object)
{
    if (object == &_Py_NoneStruct)
        return;
    Value *value = (Value *)object;
    for (int i = 0; i < ITEMS; i++)
        Py_XDECREF(value->items[i]);
    free(value->own);
    free(value);
}

PyObject *
PyModule_Create2(PyModuleDef *definition, int version)
{
    (void)version;
    Value *module = value_new();
    module->definition = definition;
    return &module->head;
}

int
PyModule_AddIntConstant(PyObject *module, const char *name, long number)
{
    (void)module;
    fprintf(stderr, "%s = %ld\n", name, number);
    return 0;
}

int
PyModule_AddStringConstant(PyObject *module, const char *name, const char *text)
{
    (void)module, (void)name, (void)text;
    return 0;
}

long long
PyLong_AsLongLong(PyObject *object)
{
    return ((Value *)object)->number;
}

PyObject *
PyLong_FromSsize_t(Py_ssize_t number)
{
    return stand_in_number(number);
}

PyObject *
PyLong_FromLongLong(long long number)
{
    return stand_in_number(number);
}

PyObject *
PyLong_FromUnsignedLong(unsigned long number)
{
    return stand_in_number((long long)number);
}

PyObject *
PyBool_FromLong(long number)
{
    return stand_in_number(number != 0);
}

int
PyBytes_AsStringAndSize(PyObject *object, char **bytes, Py_ssize_t *size)
{
    *bytes = (char *)((Value *)object)->bytes;
    *size = ((Value *)object)->size;
    return 0;
}

PyObject *
PyList_New(Py_ssize_t size)
{
    return stand_in_number(size);
}

int
PyList_Append(PyObject *list, PyObject *item)
{
    (void)item;
    ((Value *)list)->number++;
    return 0;
}

void
PyErr_SetString(PyObject *kind, const char *text)
{
    (void)kind;
    snprintf(error, sizeof error, "%s", text);
}

PyObject *
PyErr_Format(PyObject *kind, const char *format, ...)
{
    (void)kind;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, sizeof error, format, arguments);
    va_end(arguments);
    return NULL;
}

PyObject *
PyErr_NoMemory(void)
{
    PyErr_SetString(NULL, "no memory");
    return NULL;
}

PyObject *
PyErr_Occurred(void)
{
    return NULL;
}

PyThreadState *
PyEval_SaveThread(void)
{
    return NULL;
}

void
PyEval_RestoreThread(PyThreadState *state)
{
    (void)state;
}

void *
PyMem_Malloc(size_t size)
{
    return malloc(size ? size : 1);
}

void *
PyMem_Calloc(size_t count, size_t size)
{
    return calloc(count ? count : 1, size ? size : 1);
}

void
PyMem_Free(void *memory)
{
    free(memory);
}

/* Gives an object `size` bytes of its own: a copy of `bytes`, or its previous bytes if `bytes` is NULL. */
static PyObject *
own_bytes(PyObject *object, const char *bytes, Py_ssize_t size)
{
    Value *value = (Value *)object;
    char *own = realloc(value->own, size > 0 ? (size_t)size : 1);
    if (own == NULL)
        abort();
    if (bytes != NULL && size > 0)
        memcpy(own, bytes, (size_t)size);
    value->bytes = value->own = own;
    value->size = size;
    return object;
}

PyObject *
PyUnicode_FromString(const char *text)
{
    return own_bytes(&value_new()->head, text, (Py_ssize_t)strlen(text));
}

PyObject *
PyByteArray_FromStringAndSize(const char *bytes, Py_ssize_t size)
{
    return own_bytes(&value_new()->head, bytes, size);
}

char *
PyByteArray_AsString(PyObject *object)
{
    return ((Value *)object)->own;
}

PyObject *
PyBytes_FromStringAndSize(const char *bytes, Py_ssize_t size)
{
    return own_bytes(&value_new()->head, bytes, size);
}

char *
PyBytes_AsString(PyObject *object)
{
    return ((Value *)object)->own;
}

int
PyByteArray_Resize(PyObject *object, Py_ssize_t size)
{
    own_bytes(object, NULL, size);
    return 0;
}

/* Returns a tuple for a format of O, N, n and y#; the items of inner tuples become items of this tuple. */
static PyObject *
build_tuple(const char *format, va_list arguments)
{
    Value *tuple = value_new();
    for (; *format; format++) {
        PyObject *item = NULL;
        if (*format == 'O') {
            item = va_arg(arguments, PyObject *);
            Py_INCREF(item);
        } else if (*format == 'N') {
            item = va_arg(arguments, PyObject *);
        } else if (*format == 'n') {
            item = stand_in_number(va_arg(arguments, Py_ssize_t));
        } else if (*format == 'y') {
            const char *bytes = va_arg(arguments, const char *);
            item = own_bytes(&value_new()->head, bytes, va_arg(arguments, Py_ssize_t));
        } else {
            continue;
        }
        if (tuple->number == ITEMS)
            abort();
        tuple->items[tuple->number++] = item;
    }
    return &tuple->head;
}

/* Python has this function under two names; the version of the headers determines which one a module calls. */
PyObject *
_Py_BuildValue_SizeT(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    PyObject *tuple = build_tuple(format, arguments);
    va_end(arguments);
    return tuple;
}

PyObject *
Py_BuildValue(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    PyObject *tuple = build_tuple(format, arguments);
    va_end(arguments);
    return tuple;
}
