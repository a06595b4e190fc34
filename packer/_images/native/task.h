/* A task: an image, and the request for a part of it. */

#ifndef PACKER_TASK_H
#define PACKER_TASK_H

#include <stdint.h>

/* A record of TASK in packer/_images/native/__init__.py, which has the fields of LOCATION in
   packer/_storage/packfile.py, those of CROP in packer/_images/geometry.py, and `out`. Python compares the names. */
#define TASK(FIELD) \
    FIELD(file) FIELD(position) FIELD(size) FIELD(raw) FIELD(height) FIELD(width) FIELD(checked) FIELD(crc32c) \
    FIELD(label) FIELD(name) FIELD(name_size) \
    FIELD(top) FIELD(left) FIELD(crop_height) FIELD(crop_width) FIELD(scaled_height) FIELD(scaled_width) FIELD(cut_top) \
    FIELD(cut_left) FIELD(out_height) FIELD(out_width) FIELD(flip) FIELD(interpolation) FIELD(padding) FIELD(fill) \
    FIELD(out)
#define DECLARED(name) int64_t name;

typedef struct {
    TASK(DECLARED)
} Task;

/* Values of `file` that are not descriptors. MEMORY: `position` is an address. NOWHERE: C does not run the task.
   BY_PATH: `position` is the address of a `Listed`; the image is the whole file. */
enum { MEMORY = -1, NOWHERE = -2, BY_PATH = -3 };

#endif
