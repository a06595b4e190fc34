/* The functions of the module packer._images._native; module.c documents their Python interface. */

#ifndef PACKER_NATIVE_H
#define PACKER_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *aim(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *annotate(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *augment_image(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *choose(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *choose_drawn(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *decide(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *cut_out(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *first_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *decode_grey(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *decode_into(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *encode_jpeg(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *locate(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *move_mask(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *mix_labels(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *look_up(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *resize(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *png_samples(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *gather(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *survey(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *transcode(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *uniforms(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *write_numbers(PyObject *module, PyObject *const *arguments, Py_ssize_t given);

extern const char operation_fields[]; /* of the records of `augment_image`, like `task_fields` */
extern const char rule_fields[]; /* of the records of `decide`, like `task_fields` */
extern const char step_fields[]; /* of the records of `choose`, like `task_fields` */
extern const char survey_fields[]; /* of the records of `survey`, like `task_fields` */
extern const char task_fields[]; /* the names of the fields in the records of `decode_into`, each followed by a space */

#endif
