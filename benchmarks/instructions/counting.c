/* A plugin of QEMU 5 to 8 that counts the instructions of a program, and writes their number into the file that it is given:
   qemu-aarch64 -plugin counting.so,into=FILE PROGRAM */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* These declarations are qemu-plugin.h's, a header that distributions do not carry. */
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, enum qemu_plugin_op, void *, uint64_t);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = 1;

static uint64_t count;

static void
translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, QEMU_PLUGIN_INLINE_ADD_U64, &count, qemu_plugin_tb_n_insns(block));
}

static void
ended(qemu_plugin_id_t id, void *path)
{
    (void)id;
    FILE *file = fopen(path, "w");
    if (file == NULL || fprintf(file, "%" PRIu64 "\n", count) < 0 || fclose(file))
        perror(path);
}

EXPORT int
qemu_plugin_install(qemu_plugin_id_t id, const void *information, int given, char **arguments)
{
    (void)information;
    if (given != 1 || strncmp(arguments[0], "into=", 5))
        return -1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, strdup(arguments[0] + 5));
    return 0;
}
