/* packer._images._native: the functions of packer that would be too slow in Python. */

#include "arguments.h"
#include "checksums.h"
#include "encoding/encoding.h"
#include "kernels/kernels.h"
#include "kernels/vectors.h"
#include "native.h"
#include "png/inflating.h"

#include <string.h>

PyDoc_STRVAR(annotate_doc,
"annotate(data)\n--\n\n"
"Return a JPEG whose restart markers make tiles with the table of where they are.\n\n"
"See packer._images.jpeg_tiles.annotate. None where the data are not such a JPEG as encoders write.");

PyDoc_STRVAR(augment_doc,
"augment(pixels, height, width, operations, count)\n--\n\n"
"Change an image in place by so many operations, one after the other; see packer._images.operations.OPERATION.\n\n"
"`pixels` and `operations` are addresses: of height * width * 3 bytes, and of `count` records.");

PyDoc_STRVAR(encode_jpeg_doc,
"encode_jpeg(pixels, height, width, stride, quality, interval)\n--\n\n"
"Return pixels as a baseline JPEG with 4:2:0 subsampling, the bytes that Pillow writes.\n\n"
"`pixels` is the address of rows of 3 * width bytes of RGB, which begin `stride` bytes apart. With an interval other than 0, a\n"
"restart marker stands after as many MCUs.");

PyDoc_STRVAR(aim_doc,
"aim(tasks, count, views, places, first, results)\n--\n\n"
"Say in the tasks of views of `count` images of a batch where the results go; see packer._images.native.records.\n\n"
"`tasks`, `places` and `results` are addresses: of what `locate` wrote, and for each view of four 64-bit integers, the address\n"
"of the result of the place `first`, the bytes from one to the next, height and width. False where a task is of another size.");

PyDoc_STRVAR(locate_doc,
"locate(table, rows, count, views, crops, each, batch, step, file, begin, bytes, tasks, operations, places, sums)\n--\n\n"
"Write the tasks of views of `count` images; see packer._images.native.records.\n\n"
"`table`, `rows`, `crops`, `tasks`, `operations`, `places` and `sums` are addresses: of 22 64-bit integers; of the rows of\n"
"samples, which are believed; of a crop for each view, of `each` 64-bit integers, of which those after CROP are operations;\n"
"and of what is written: the tasks and operations of the views, the places of the images, and how many pixels all images\n"
"before each have, and at last all.");

PyDoc_STRVAR(move_doc,
"move(pixels, height, width, item, matrix, fill, out)\n--\n\n"
"Move pixels of `item` bytes to the nearest place, as a matrix says; see packer._images.operations.OPERATION.\n\n"
"`pixels`, `matrix`, `fill` and `out` are addresses: of height * width * item bytes, of 6 doubles, of the pixel that comes\n"
"from outside, and of as many bytes as the pixels have.");

PyDoc_STRVAR(choose_doc,
"choose(steps, step_count, heights, widths, count, numbers, stride, chosen, out)\n--\n\n"
"Choose the crops of `count` images by so many steps; see packer._images.native.crop_steps.STEP.\n\n"
"All but the counts and the stride are addresses: of 64-bit integers, of `count` rows of random numbers, or with `chosen`\n"
"of what was chosen by such, `stride` numbers from one to the next, and of `count` records of packer._images.geometry.CROP.\n"
"False where Python is to say what is wrong.");

PyDoc_STRVAR(choose_drawn_doc,
"choose_drawn(steps, step_count, heights, widths, count, numbers, length, done, out)\n--\n\n"
"Choose the crops of `count` images as `choose` does, by numbers of a generator that each image takes as many of as it needs.\n\n"
"`numbers` is the address of rows of `length` numbers, which say what each of the next ones is if it is of a kind: first of\n"
"32 bits, and then two rows for each random resized cut, and one for each mirroring. `done` is that of two integers: how many\n"
"images have their crop, where it goes on, and becomes how many then have; and how many numbers were used. It ends where there\n"
"may be too few for the next image. False where Python is to say what is wrong.");

PyDoc_STRVAR(decide_doc,
"decide(rules, rule_count, height, width, count, numbers, stride, out)\n--\n\n"
"Decide on the operations on `count` images of a size by so many rules; see packer._images.native.crop_steps.RULE.\n\n"
"`rules`, `numbers` and `out` are addresses: of so many records, of `count` rows of random numbers, `stride` numbers from one\n"
"to the next, and of count * rule_count records of packer._images.operations.OPERATION.");

PyDoc_STRVAR(uniforms_doc,
"uniforms(seed, epoch, indices, count, randoms, out)\n--\n\n"
"Write the random numbers of packer.samplers._random.uniforms.\n\n"
"`indices` and `out` are addresses: of `count` 64-bit integers, and of count * randoms numbers.");

PyDoc_STRVAR(cut_out_doc,
"cut_out(data, height, width, top, left, crop_height, crop_width)\n--\n\n"
"Return a JPEG of the tiles that a rectangle of a tiled JPEG depends on, and the part of the image that it shows.\n\n"
"See packer._images.jpeg_tiles.cut_out. None where the data are no tiled JPEG of that height and width, or its markers\n"
"are not where its table says.");

PyDoc_STRVAR(first_rows_doc,
"first_rows(data, height, width, bottom)\n--\n\n"
"Return a JPEG of the rows of a JPEG down to `bottom`, or more, and how many those are.\n\n"
"See packer._images.jpeg_tiles.first_rows. None where the data are no ordinary JPEG of that height and width in one scan.");

PyDoc_STRVAR(decode_into_doc,
"decode_into(tasks, count, operations, each, table, constants, type, planes)\n--\n\n"
"Read images, decode rectangles of JPEGs and PNGs, resize them, and write windows of the results, padded and changed.\n\n"
"`tasks` is the address of so many records; see packer._images.native.TASK. `operations` is that of count * each records, so\n"
"many of each image; see packer._images.operations.OPERATION. `table` is 0, or the address of 3 * 256 floats, which the levels\n"
"of red, green and blue become: the results are these, one colour after the other. `constants` is 0, or the address of 7 floats:\n"
"then the results are numbers, as `write_numbers` makes them. Returns which were not done, as their numbers: those are to be\n"
"read and decoded in another way, as their bytes are not there or not what they were, or are no\n"
"undamaged JPEG or PNG of that size of a usual kind; the window has any pixels then.");

PyDoc_STRVAR(decode_grey_doc,
"decode_grey(data, height, width, out)\n--\n\n"
"Decode a grey JPEG, and write its levels at the address `out`, height * width bytes.\n\n"
"False where the data are no undamaged JPEG of that size in grey; what was written then are any bytes.");

PyDoc_STRVAR(resize_doc,
"resize(pixels, stride, rows, columns, crop_height, crop_width, scaled_height, scaled_width, cut_top, cut_left, out_height, out_width,\n"
"       flip, interpolation, out)\n--\n\n"
"Resize crop_height * crop_width pixels, of which `rows` * `columns` are there, and write a window of the result.\n\n"
"`pixels` is the address of RGB rows, `stride` bytes from one to the next, and `out` that of out_height * out_width * 3\n"
"bytes. False where the sizes are too large, or the window depends on pixels that are not there.");

PyDoc_STRVAR(look_up_doc,
"look_up(pixels, count, table, out, planes, images)\n--\n\n"
"Write for each level of `count` RGB pixels the number that a table says: with `planes` first those of red, then green,\n"
"then blue, and without them pixel by pixel; and so for each of `images`, which follow one another.\n\n"
"`pixels`, `table` and `out` are addresses: of images * count * 3 bytes, of 3 * 256 floats, and of images * 3 * count floats.");

PyDoc_STRVAR(mix_labels_doc,
"mix_labels(labels, count, classes, shares, out)\n--\n\n"
"Write for each of `count` labels the share of each of so many classes, as packer.augment says: of its own class and of the\n"
"class of the label before it; of the first label, of the last.\n\n"
"`labels`, `shares` and `out` are addresses: of 64-bit integers, of two floats, the share of the own class and that of the\n"
"other, and of count * classes floats. False, and nothing is written, where a label is none of the classes.");

PyDoc_STRVAR(png_samples_doc,
"png_samples(compressed, height, width, depth, colour, interlaced, first, end, out)\n--\n\n"
"Write the samples of rows of a PNG, from one to before another: a byte each, or two of those that have 16 bits. Samples of 2\n"
"or 4 bits that are levels of grey are spread over 0 to 255.\n\n"
"`compressed` are the bodies of its IDAT chunks, joined; the next five numbers are those of its IHDR, of which the first two\n"
"are exchanged. `out` is the address of the memory for these rows. False where the data are damaged.");

PyDoc_STRVAR(gather_doc,
"gather(pixels, stride, item, rows, columns, height, width, fill, out)\n--\n\n"
"Write height * width pixels of `item` bytes: those in so many rows and columns, and `fill` where a row or column is\n"
"before 0.\n\n"
"All but the numbers are addresses: of rows of pixels, `stride` bytes from one to the next; of `height` and of `width`\n"
"64-bit integers, which are believed; of one pixel; and of height * width pixels.");

PyDoc_STRVAR(survey_doc,
"survey(records, count)\n--\n\n"
"Read images, no more of each than tells its size unless it is checked, and write that and the checksum into its record.\n\n"
"`records` is the address of so many records; see packer._images.native.records.SURVEY.");

PyDoc_STRVAR(transcode_doc,
"transcode(data, most_pixels, least_tile)\n--\n\n"
"Return the pieces of a tiled JPEG that is made of a JPEG, or why none can be made, a string.\n\n"
"The pieces are those of packer._images.jpeg_tiles.assemble: metadata, headers, tiles of a row, bytes of each row as 64-bit\n"
"integers, and the scan; then comes where in the data the image ends. A tile has `least_tile` bytes or more, on average.");

PyDoc_STRVAR(write_numbers_doc,
"write_numbers(pixels, count, begin, end, height, width, out, type, planes, constants, mixture, top, left, bottom, right)\n--\n\n"
"Write those images of a batch from `begin` to before `end` as numbers; see packer._images.numbers.\n\n"
"`pixels`, `out` and `constants` are addresses: of `count` RGB images, of as many of numbers, and of 9 floats.");

/* The next two are for tests alone: of what other functions do on the way. */

PyDoc_STRVAR(crc32c_doc,
"crc32c(data, crc)\n--\n\n"
"Return the CRC-32C of bytes that follow others, whose CRC-32C is `crc`, or 0 where there are none.");

static PyObject *
crc32c(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    const uint8_t *data;
    Py_ssize_t size;
    int64_t crc;
    if (!read_arguments(arguments, given, &data, &size, &crc, 1))
        return NULL;
    return PyLong_FromUnsignedLong(crc32_castagnoli((uint32_t)crc, data, (size_t)size));
}

PyDoc_STRVAR(inflate_doc,
"inflate(data, out, size, whole)\n--\n\n"
"Write the first `size` bytes that zlib deflated to `data` at the address `out`. With `whole` there must be no more, and\n"
"zlib's checksum is compared.\n\n"
"False where the data are damaged, or not so many. What was written then are any bytes.");

enum { PIECE = 1 << 16 };

/* Inflates into memory; 0 where the data are damaged, or not so many. */
static int
inflate_into(Inflating *s, uint8_t *out, size_t size, int whole)
{
    for (size_t done = 0; done < size;) {
        size_t count = size - done < PIECE ? size - done : PIECE;
        const uint8_t *piece = inflating_take(s, count);
        if (piece == NULL)
            return 0;
        memcpy(out + done, piece, count);
        done += count;
    }
    return !whole || inflating_ends(s);
}

static PyObject *
inflate(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    const uint8_t *data;
    Py_ssize_t size;
    int64_t n[3];
    if (!read_arguments(arguments, given, &data, &size, n, 3))
        return NULL;
    if (n[1] < 0) {
        PyErr_SetString(PyExc_ValueError, "the number of bytes is negative");
        return NULL;
    }
    Inflating *state = inflating_new();
    if (state == NULL || !inflating_begin(state, data, (size_t)size, PIECE, n[2] != 0)) {
        inflating_free(state);
        return PyErr_NoMemory();
    }
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = inflate_into(state, (uint8_t *)(uintptr_t)n[0], (size_t)n[1], n[2] != 0);
    Py_END_ALLOW_THREADS
    inflating_free(state);
    return PyBool_FromLong(done);
}

static PyMethodDef methods[] = {
    {"aim", (PyCFunction)(void (*)(void))aim, METH_FASTCALL, aim_doc},
    {"annotate", (PyCFunction)(void (*)(void))annotate, METH_FASTCALL, annotate_doc},
    {"augment", (PyCFunction)(void (*)(void))augment_image, METH_FASTCALL, augment_doc},
    {"choose", (PyCFunction)(void (*)(void))choose, METH_FASTCALL, choose_doc},
    {"choose_drawn", (PyCFunction)(void (*)(void))choose_drawn, METH_FASTCALL, choose_drawn_doc},
    {"decide", (PyCFunction)(void (*)(void))decide, METH_FASTCALL, decide_doc},
    {"cut_out", (PyCFunction)(void (*)(void))cut_out, METH_FASTCALL, cut_out_doc},
    {"first_rows", (PyCFunction)(void (*)(void))first_rows, METH_FASTCALL, first_rows_doc},
    {"decode_grey", (PyCFunction)(void (*)(void))decode_grey, METH_FASTCALL, decode_grey_doc},
    {"decode_into", (PyCFunction)(void (*)(void))decode_into, METH_FASTCALL, decode_into_doc},
    {"encode_jpeg", (PyCFunction)(void (*)(void))encode_jpeg, METH_FASTCALL, encode_jpeg_doc},
    {"locate", (PyCFunction)(void (*)(void))locate, METH_FASTCALL, locate_doc},
    {"move", (PyCFunction)(void (*)(void))move_mask, METH_FASTCALL, move_doc},
    {"mix_labels", (PyCFunction)(void (*)(void))mix_labels, METH_FASTCALL, mix_labels_doc},
    {"look_up", (PyCFunction)(void (*)(void))look_up, METH_FASTCALL, look_up_doc},
    {"resize", (PyCFunction)(void (*)(void))resize, METH_FASTCALL, resize_doc},
    {"png_samples", (PyCFunction)(void (*)(void))png_samples, METH_FASTCALL, png_samples_doc},
    {"gather", (PyCFunction)(void (*)(void))gather, METH_FASTCALL, gather_doc},
    {"survey", (PyCFunction)(void (*)(void))survey, METH_FASTCALL, survey_doc},
    {"transcode", (PyCFunction)(void (*)(void))transcode, METH_FASTCALL, transcode_doc},
    {"uniforms", (PyCFunction)(void (*)(void))uniforms, METH_FASTCALL, uniforms_doc},
    {"write_numbers", (PyCFunction)(void (*)(void))write_numbers, METH_FASTCALL, write_numbers_doc},
    {"crc32c", (PyCFunction)(void (*)(void))crc32c, METH_FASTCALL, crc32c_doc},
    {"inflate", (PyCFunction)(void (*)(void))inflate, METH_FASTCALL, inflate_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "packer._images._native", NULL, 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    checksums_init();
    kernels_init();
    encoding_init();
    PyObject *module = PyModule_Create(&definition);
#ifdef Py_GIL_DISABLED /* all that threads share are the tables made above and the workspaces, which have a lock: see tasks.c */
    if (module != NULL)
        PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    if (module != NULL
        && (PyModule_AddStringConstant(module, "VECTORS", kernels->vectors) < 0
            || PyModule_AddStringConstant(module, "COMPILED_VECTORS", HAS_AVX2 ? "AVX2" : HAS_NEON ? "NEON" : "") < 0
            || PyModule_AddStringConstant(module, "OPERATION_FIELDS", operation_fields) < 0
            || PyModule_AddStringConstant(module, "RULE_FIELDS", rule_fields) < 0
            || PyModule_AddStringConstant(module, "STEP_FIELDS", step_fields) < 0
            || PyModule_AddStringConstant(module, "SURVEY_FIELDS", survey_fields) < 0
            || PyModule_AddStringConstant(module, "TASK_FIELDS", task_fields) < 0)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
