/* What the table of a pack says of samples, as the records that tasks begin with. */

#include "arguments.h"
#include "native.h"
#include "task.h"

/* What `locate` takes of a table: addresses of columns, numbers, and how many bytes lie between the items of each of the first
   columns; see packer/_images/native/locating.py. */
enum { LABEL, HEIGHT, WIDTH, OFFSET, SIZE, CRC32C, NAME_END, NAMES, NAMES_SIZE, LONGEST, RAW, CHECKED, STEPS };

/* Returns a number of a column, whose items are little-endian and may lie anywhere, and have 4 or 8 bytes. */
static uint64_t
item(const int64_t *table, int column, int64_t row, int bytes)
{
    const uint8_t *at = (const uint8_t *)(uintptr_t)table[column] + row * table[STEPS + column];
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++)
        number |= (uint64_t)at[i] << 8 * i;
    return number;
}

/* Writes all that a table says of a row into a task; the file is none where its name does not lie among the names. */
static void
locate_row(const int64_t *table, int64_t row, Task *task)
{
    int64_t end = (int64_t)item(table, NAME_END, row, 8), start = row > 0 ? (int64_t)item(table, NAME_END, row - 1, 8) : 0;
    int named = start >= 0 && start <= end && end <= table[NAMES_SIZE] && end - start <= table[LONGEST];
    task->file = named ? MEMORY : NOWHERE;
    task->position = (int64_t)item(table, OFFSET, row, 8);
    task->size = (int64_t)item(table, SIZE, row, 8);
    task->raw = table[RAW];
    task->height = (int32_t)item(table, HEIGHT, row, 4);
    task->width = (int32_t)item(table, WIDTH, row, 4);
    task->checked = table[CHECKED];
    task->crc32c = (int64_t)item(table, CRC32C, row, 4);
    task->label = (int64_t)item(table, LABEL, row, 8);
    task->name = named ? table[NAMES] + start : 0;
    task->name_size = named ? end - start : 0;
}

PyObject *
locate(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[4];
    if (!read_integers(arguments, given, n, 4))
        return NULL;
    const int64_t *table = (const int64_t *)(uintptr_t)n[0], *rows = (const int64_t *)(uintptr_t)n[1];
    Task *tasks = (Task *)(uintptr_t)n[3];
    for (int64_t i = 0; i < n[2]; i++)
        locate_row(table, rows[i], &tasks[i]);
    Py_RETURN_NONE;
}
