/* Runs packer's module without Python: host MODULE IMAGE ...

   It tests the module of a wheel on systems without Python, for example under Wine or with musl. For each JPEG or PNG it
   prints a line: the name, the height and the width, and the CRC-32C of the pixels, of a resized and mirrored crop, and of
   the transcoder's result; or that the image is left to other decoders. tests/native/expected.py prints the same lines
   with other libraries, except that packer's transcoder is used there, too. */

#include "stand_in.h"
#include "../../packer/_images/native/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

enum { SIDE = 96 }; /* pixels of the resized crop */

typedef PyObject *(*Initialise)(void);
typedef PyObject *(*Function)(PyObject *module, PyObject *const *arguments, Py_ssize_t given);

static PyObject *module;

static void
end(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static Initialise
load(const char *path)
{
#ifdef _WIN32
    HMODULE library = LoadLibraryA(path);
    Initialise initialise = library ? (Initialise)(void (*)(void))GetProcAddress(library, "PyInit__native") : NULL;
    const char *why = "it does not load";
#else
    void *library = dlopen(path, RTLD_NOW);
    Initialise initialise = library ? (Initialise)dlsym(library, "PyInit__native") : NULL;
    const char *why = initialise ? NULL : dlerror();
#endif
    if (initialise == NULL)
        end(path, why);
    return initialise;
}

static Function
function(const char *name)
{
    PyCFunction found = stand_in_function(module, name);
    if (found == NULL)
        end(name, "the module has no such function");
    return (Function)(void (*)(void))found;
}

static char *
read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *data = NULL;
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        end(path, "it cannot be read");
    *size = (size_t)ftell(file);
    rewind(file);
    data = malloc(*size + 1);
    if (data == NULL || fread(data, 1, *size, file) != *size)
        end(path, "it cannot be read");
    fclose(file);
    return data;
}

/* Finds the height and width of a JPEG or a PNG; returns 0 if there are none. */
static int
find_size(const uint8_t *data, size_t size, Task *task)
{
    if (size > 24 && !memcmp(data, "\x89PNG", 4)) {
        task->width = (int64_t)data[16] << 24 | data[17] << 16 | data[18] << 8 | data[19];
        task->height = (int64_t)data[20] << 24 | data[21] << 16 | data[22] << 8 | data[23];
        return task->height > 0 && task->width > 0;
    }
    for (size_t at = 2; at + 9 <= size && data[at] == 0xFF; at += 2 + ((size_t)data[at + 2] << 8 | data[at + 3])) {
        uint8_t marker = data[at + 1];
        if (marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC) {
            task->height = data[at + 5] << 8 | data[at + 6];
            task->width = data[at + 7] << 8 | data[at + 8];
            return task->height > 0 && task->width > 0;
        }
    }
    return 0;
}

static uint32_t
checksum_of(const char *data, Py_ssize_t size)
{
    PyObject *arguments[] = {stand_in_bytes(data, size), stand_in_number(0)};
    return (uint32_t)stand_in_value(function("crc32c")(module, arguments, 2));
}

/* Runs a task and computes the checksum of the pixels; returns 0 if the task is left to other decoders. */
static int
decode(Task *task, uint32_t *checksum)
{
    size_t size = 3 * (size_t)task->out_height * (size_t)task->out_width;
    uint8_t *pixels = calloc(size, 1);
    if (pixels == NULL)
        end("decode_into", "no memory");
    task->out = (int64_t)(uintptr_t)pixels;
    PyObject *arguments[] = {
        stand_in_number((long long)(uintptr_t)task), stand_in_number(1), stand_in_number(0), stand_in_number(0),
        stand_in_number(0), stand_in_number(0), stand_in_number(0), stand_in_number(0),
    };
    PyObject *left = function("decode_into")(module, arguments, 8);
    if (left == NULL)
        end("decode_into", stand_in_error());
    int done = stand_in_length(left) == 0;
    *checksum = checksum_of((const char *)pixels, (Py_ssize_t)size);
    free(pixels);
    return done;
}

/* Returns the checksum of the transcoder's result: of the pieces of a tiled JPEG, which are the items of a tuple, with
   numbers as 8 bytes; or of the text that is the reason for a refusal. */
static uint32_t
checksum_of_all(PyObject *object)
{
    Py_ssize_t size, all = 0, items = stand_in_length(object);
    const char *bytes = stand_in_data(object, &size);
    if (items == 0)
        return checksum_of(bytes, size);
    char *content = NULL;
    for (Py_ssize_t place = 0; place < items; place++) {
        PyObject *item = stand_in_item(object, place);
        int64_t number = stand_in_value(item);
        bytes = stand_in_data(item, &size);
        if (bytes == NULL) {
            bytes = (const char *)&number;
            size = sizeof number;
        }
        content = realloc(content, (size_t)(all + size));
        if (content == NULL)
            end("transcode", "no memory");
        memcpy(content + all, bytes, (size_t)size);
        all += size;
    }
    uint32_t sum = checksum_of(content, all);
    free(content);
    return sum;
}

static uint32_t
transcode(const char *data, size_t size)
{
    enum { MOST_PIXELS = 1 << 27, LEAST_TILE = 460 };
    PyObject *arguments[] = {
        stand_in_bytes(data, (Py_ssize_t)size),
        stand_in_number(MOST_PIXELS),
        stand_in_number(LEAST_TILE),
    };
    PyObject *made = function("transcode")(module, arguments, 3);
    if (made == NULL)
        end("transcode", stand_in_error());
    return checksum_of_all(made);
}

static void
try_image(const char *path)
{
    const char *name = path + strlen(path);
    while (name > path && name[-1] != '/' && name[-1] != '\\')
        name--;
    size_t size;
    char *data = read_file(path, &size);
    Task task = {.file = MEMORY, .position = (int64_t)(uintptr_t)data, .size = (int64_t)size};
    uint32_t whole, crop;
    if (!find_size((const uint8_t *)data, size, &task))
        end(path, "this is neither a JPEG nor a PNG");
    int64_t height = task.height, width = task.width;
    task.crop_height = task.scaled_height = task.out_height = height;
    task.crop_width = task.scaled_width = task.out_width = width;
    int done = decode(&task, &whole);
    task.top = height / 4, task.left = width / 4;
    task.crop_height = (height + 1) / 2, task.crop_width = (width + 1) / 2;
    task.scaled_height = task.scaled_width = task.out_height = task.out_width = SIDE;
    task.flip = 1;
    if (done && decode(&task, &crop))
        printf("%s %d %d %08x %08x %08x\n", name, (int)height, (int)width, whole, crop, transcode(data, size));
    else
        printf("%s %d %d left\n", name, (int)height, (int)width);
    free(data);
}

int
main(int count, char **arguments)
{
    if (count < 3)
        end("usage", "host MODULE IMAGE ...");
    module = load(arguments[1])();
    if (module == NULL)
        end(arguments[1], stand_in_error());
    for (int i = 2; i < count; i++)
        try_image(arguments[i]);
    return 0;
}
