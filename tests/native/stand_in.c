/* See stand_in.h. Built into the host; for Windows as python3.dll, where the module looks for Python. */

#include "stand_in.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    PyObject head;
    long long number; /* or how many items a list has */
    const char *bytes;
    Py_ssize_t size;
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

static void
append(Value *value, const char *bytes, size_t size)
{
    char *all = realloc((char *)value->bytes, (size_t)value->size + size + 1);
    if (all == NULL)
        abort();
    memcpy(all + value->size, bytes, size);
    value->bytes = all;
    value->size += (Py_ssize_t)size;
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

const char *
stand_in_content(PyObject *object, Py_ssize_t *size)
{
    *size = ((Value *)object)->size;
    return ((Value *)object)->bytes;
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

const char *
stand_in_error(void)
{
    return error;
}

void
_Py_Dealloc(PyObject *object)
{
    if (object != &_Py_NoneStruct)
        free(object);
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

PyObject *
PyUnicode_FromString(const char *text)
{
    Value *value = value_new();
    append(value, text, strlen(text));
    return &value->head;
}

PyObject *
_Py_BuildValue_SizeT(const char *format, ...)
{
    Value *value = value_new();
    va_list arguments;
    va_start(arguments, format);
    for (; *format; format++)
        if (!strncmp(format, "y#", 2)) {
            const char *bytes = va_arg(arguments, const char *);
            append(value, bytes, (size_t)va_arg(arguments, Py_ssize_t));
            format++;
        } else if (*format == 'n') {
            int64_t number = va_arg(arguments, Py_ssize_t);
            append(value, (const char *)&number, sizeof number);
        } else
            abort();
    va_end(arguments);
    return &value->head;
}

/* What the functions of the module ask for that the host does not call. */

PyObject *
PyByteArray_FromStringAndSize(const char *bytes, Py_ssize_t size)
{
    (void)bytes, (void)size;
    abort();
}

char *
PyByteArray_AsString(PyObject *object)
{
    (void)object;
    abort();
}

int
PyByteArray_Resize(PyObject *object, Py_ssize_t size)
{
    (void)object, (void)size;
    abort();
}
