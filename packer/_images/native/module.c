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
"Return a JPEG with a table of its tiles, which its restart markers form.\n\n"
"See packer._images.jpeg_tiles.annotate. None if packer's C does not handle the data; then Python tries.");

PyDoc_STRVAR(augment_doc,
"augment(pixels, height, width, operations, count)\n--\n\n"
"Apply operations to an image in place, one after the other; see packer._images.operations.OPERATION.\n\n"
"`pixels` is the address of height * width * 3 bytes, `operations` that of `count` records.");

PyDoc_STRVAR(encode_jpeg_doc,
"encode_jpeg(pixels, height, width, stride, quality, interval)\n--\n\n"
"Encode pixels as a baseline JPEG with 4:2:0 subsampling; the bytes are the same as from Pillow.\n\n"
"`pixels` is the address of rows of RGB pixels, 3 * width bytes each; the rows begin `stride` bytes apart. If `interval` is\n"
"not 0, the JPEG has a restart marker after every `interval` MCUs.");

PyDoc_STRVAR(aim_doc,
"aim(tasks, count, views, places, first, results)\n--\n\n"
"Set the addresses of the results in the tasks for some images of a batch; see packer._images.native.records.\n\n"
"`tasks` is the address of the tasks that `locate` wrote, `views` for each of `count` images; `places` that of the images'\n"
"indices in the batch. `results` is the address of four 64-bit integers for each view: the address of the result of the image\n"
"with the index `first`, the distance between two results in bytes, and the height and the width of a result. False if the\n"
"result of a task has another size.");

PyDoc_STRVAR(locate_doc,
"locate(table, rows, count, views, crops, each, batch, step, file, begin, bytes, tasks, operations, places, sums)\n--\n\n"
"Write the tasks for the views of `count` images; see packer._images.native.records.\n\n"
"The inputs `table`, `rows` and `crops` are addresses: of 21 64-bit integers (see TaskBuilder); of row numbers, which are not\n"
"checked; and of one crop for each view, each of `each` 64-bit integers: a CROP and the operations after it. The outputs are\n"
"addresses too: of the tasks and the operations of the views, of the images' indices in the batch, and of running totals of\n"
"pixels.");

PyDoc_STRVAR(move_doc,
"move(pixels, height, width, item, matrix, fill, out)\n--\n\n"
"Apply an affine matrix to pixels with nearest-pixel interpolation; see packer._images.operations.OPERATION.\n\n"
"A pixel has `item` bytes. `pixels` and `out` are the addresses of height * width pixels each, `matrix` is that of 6 doubles,\n"
"and `fill` that of the pixel that stands for pixels outside of the image.");

PyDoc_STRVAR(choose_doc,
"choose(steps, step_count, heights, widths, count, numbers, stride, chosen, out)\n--\n\n"
"Choose the crops of `count` images by a crop rule of `step_count` steps; see packer._images.native.crop_steps.STEP.\n\n"
"`steps`, `heights`, `widths`, `numbers` and `out` are addresses. `numbers` has `count` rows of random numbers, or with\n"
"`chosen` of the choices made from them; the rows begin `stride` numbers apart. `out` has room for `count` records of\n"
"packer._images.geometry.CROP. False if an image is empty, too large or too small; then Python raises the error.");

PyDoc_STRVAR(choose_drawn_doc,
"choose_drawn(steps, step_count, heights, widths, count, numbers, length, done, out)\n--\n\n"
"Choose the crops of `count` images like `choose`, but with as many numbers of a generator as each image needs.\n\n"
"`numbers` is the address of rows of the next `length` numbers of a generator, in each form in which steps use them: first as\n"
"32-bit numbers; then two rows for each random resized cut, and one for each mirroring. `done` is the address of two integers.\n"
"The first is the number of images that have a crop, before and after the call; the second is set to the number of used\n"
"numbers. The function stops when the next image might need more numbers than are left. False as for `choose`.");

PyDoc_STRVAR(decide_doc,
"decide(rules, rule_count, height, width, count, numbers, stride, out)\n--\n\n"
"Choose operations for `count` images of one size by rules; see packer._images.native.crop_steps.RULE.\n\n"
"`rules` is the address of `rule_count` records, `numbers` that of `count` rows of random numbers, which begin `stride` numbers\n"
"apart, and `out` that of count * rule_count records of packer._images.operations.OPERATION.");

PyDoc_STRVAR(uniforms_doc,
"uniforms(seed, epoch, indices, count, randoms, out)\n--\n\n"
"Write the same random numbers as packer.samplers._random.uniforms.\n\n"
"`indices` is the address of `count` 64-bit integers, `out` that of count * randoms doubles.");

PyDoc_STRVAR(cut_out_doc,
"cut_out(data, height, width, top, left, crop_height, crop_width)\n--\n\n"
"Return a JPEG of the tiles that a rectangle of a tiled JPEG depends on, and the rectangle of the image that it shows.\n\n"
"See packer._images.jpeg_tiles.cut_out. None if the data are no tiled JPEG of this height and width, or the markers are not\n"
"where the table says.");

PyDoc_STRVAR(first_rows_doc,
"first_rows(data, height, width, bottom)\n--\n\n"
"Return a JPEG whose header declares only the rows that decoding down to `bottom` needs, and their number.\n\n"
"See packer._images.jpeg_tiles.first_rows. None if the data are no ordinary JPEG of this height and width in one scan.");

PyDoc_STRVAR(decode_into_doc,
"decode_into(tasks, count, operations, each, table, constants, type, planes)\n--\n\n"
"Read images, decode rectangles of JPEGs and PNGs, resize and augment them, and write windows of the results.\n\n"
"`tasks` is the address of `count` records; see packer._images.native.TASK. `operations` is the address of count * each\n"
"records, `each` for every image; see packer._images.operations.OPERATION. `table` is 0, or the address of 3 * 256 floats: the\n"
"numbers that replace the levels of red, green and blue; then results are planar. `constants` is 0, or the address of 7\n"
"floats; then results are numbers, as `write_numbers` makes them. Return the indices of the tasks that failed, because bytes\n"
"are missing or have changed, or are not an undamaged JPEG or PNG of this size and a supported kind. The caller decodes these\n"
"images in another way; the pixels in their windows are undefined.");

PyDoc_STRVAR(decode_grey_doc,
"decode_grey(data, height, width, out)\n--\n\n"
"Decode a grey JPEG, and write its levels, height * width bytes, to the address `out`.\n\n"
"False if the data are not an undamaged grey JPEG of this size; the bytes at `out` are then undefined.");

PyDoc_STRVAR(resize_doc,
"resize(pixels, stride, rows, columns, crop_height, crop_width, scaled_height, scaled_width, cut_top, cut_left, out_height, out_width,\n"
"       flip, interpolation, out)\n--\n\n"
"Resize a rectangle of crop_height * crop_width pixels, and write a window of the result.\n\n"
"`pixels` is the address of the rectangle's first `rows` rows and `columns` columns, RGB; rows begin `stride` bytes apart.\n"
"`out` is the address of out_height * out_width * 3 bytes. False if a side is too long, or the window depends on missing\n"
"pixels.");

PyDoc_STRVAR(look_up_doc,
"look_up(pixels, count, table, out, planes, images)\n--\n\n"
"Convert the levels of `images` images of `count` RGB pixels each to the numbers in a table.\n\n"
"With `planes`, an image's numbers for red come first, then those for green and blue; otherwise the numbers of a pixel are\n"
"adjacent. `pixels`, `table` and `out` are the addresses of images * count * 3 bytes, of 3 * 256 floats, and of\n"
"images * count * 3 floats.");

PyDoc_STRVAR(mix_labels_doc,
"mix_labels(labels, count, classes, shares, out)\n--\n\n"
"Write the shares of `classes` classes in each of `count` mixed labels, as MixUp and CutMix mix them.\n\n"
"A label has two shares: that of its own class, and that of the class of the previous label (for the first label, of the\n"
"last). `labels` is the address of 64-bit integers, `shares` that of two floats, the own share and the other, and `out` that of\n"
"count * classes floats. False if a label is no class; then nothing is written.");

PyDoc_STRVAR(png_samples_doc,
"png_samples(compressed, height, width, depth, colour, interlaced, first, end, out)\n--\n\n"
"Write the samples in the rows `first` to `end` - 1 of a PNG: one byte each, or two if they have 16 bits.\n\n"
"Grey samples of 2 or 4 bits are spread over 0 to 255. `compressed` has the joined bodies of the IDAT chunks; the next five\n"
"numbers are those of IHDR, but with the height first. `out` is the address of memory for these rows. False if the data are\n"
"damaged.");

PyDoc_STRVAR(gather_doc,
"gather(pixels, stride, item, rows, columns, height, width, fill, out)\n--\n\n"
"Write the height * width pixels at which rows and columns cross, and `fill` where the row or the column is negative.\n\n"
"A pixel has `item` bytes. `pixels` is the address of rows of pixels that begin `stride` bytes apart; `rows` and `columns` are\n"
"the addresses of `height` and of `width` 64-bit integers, which are not checked; `fill` is the address of one pixel.");

PyDoc_STRVAR(survey_doc,
"survey(records, count)\n--\n\n"
"Inspect images, and write their properties and, if requested, their checksums into records.\n\n"
"Of an image, no more bytes are read than the results need. `records` is the address of `count` records; see\n"
"packer._images.native.records.SURVEY.");

PyDoc_STRVAR(transcode_doc,
"transcode(data, most_pixels, least_tile)\n--\n\n"
"Convert a JPEG to the pieces of a tiled JPEG; return a string with the reason if that is impossible.\n\n"
"The pieces are the parameters of packer._images.jpeg_tiles.assemble: metadata, header, columns, row_sizes as 64-bit integers,\n"
"and scan; the last value is the position in the data at which the image ends. Tiles have at least `least_tile` bytes on\n"
"average.");

PyDoc_STRVAR(write_numbers_doc,
"write_numbers(pixels, count, begin, end, height, width, out, type, planes, constants, mixture, top, left, bottom, right)\n--\n\n"
"Write the images `begin` to `end` - 1 of a batch as numbers; see packer._images.numbers.NumberWriter.\n\n"
"`pixels` is the address of `count` RGB images, `out` that of their numbers, and `constants` that of 9 floats.");

/* The next two are only for tests: other functions do the same as one of their steps. */

PyDoc_STRVAR(crc32c_doc,
"crc32c(data, crc)\n--\n\n"
"Return the CRC-32C of some bytes together with the bytes before them, whose CRC-32C is `crc`; 0 if there are none.");

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
"Inflate the zlib stream `data`, and write its first `size` bytes to the address `out`.\n\n"
"With `whole`, the stream must have no more bytes, and its checksum is compared. False if the data are damaged or too short;\n"
"the bytes at `out` are then undefined.");

enum { PIECE = 1 << 16 };

/* Inflates `size` bytes. Returns 0 if the data are damaged or too short, or with `whole` too long. */
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
    static int done; /* a module that is imported again, also by another interpreter, finds threads that use the tables */
    if (!done) {
        checksums_init();
        kernels_init();
        encoding_init();
        done = 1;
    }
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
