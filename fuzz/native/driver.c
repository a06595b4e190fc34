/* Replaces libFuzzer if there is only gcc: changes inputs repeatedly, and keeps those that reach new edges.

       TARGET [-max_total_time=SECONDS] [-runs=COUNT] [-timeout=SECONDS] [-artifact_prefix=PREFIX] [-seed=NUMBER]
              (FOLDER | FILE) ...

   The options have the same meaning as in libFuzzer, whose other options are ignored. New inputs are made from those in
   all folders; those that reach new edges are written to the first folder. An input that ends the program is written to
   a file whose name begins with PREFIX, and the name is printed. */

#define _DEFAULT_SOURCE

#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *count, char ***arguments);
void __sanitizer_set_death_callback(void (*callback)(void));
void __sanitizer_cov_trace_pc(void);
__attribute__((visibility("default"))) const char *__ubsan_default_options(void);

enum { LONGEST = 1 << 16, WAYS = 1 << 18, MOST_INPUTS = 1 << 16, PATH = 4096 };

typedef struct {
    uint8_t *data;
    size_t size;
} Bytes;

static Bytes inputs[MOST_INPUTS];
static int count;
static const char *prefix = "", *folder;
static const uint8_t *running; /* the present input */
static size_t running_size;
static uint64_t chance = 1;

/* Edges, each from one branch to the next: how often the present input took each, and which powers of two were seen. */
static uint8_t times[WAYS], seen[WAYS];
static uint32_t gone[WAYS];
static int gone_count;
static uintptr_t before;

/* gcc calls this at each branch. */
void
__sanitizer_cov_trace_pc(void)
{
    uintptr_t place = (uintptr_t)__builtin_return_address(0);
    uint32_t way = (uint32_t)((place ^ before << 3) * 0x9E3779B1u) % WAYS;
    before = place;
    if (times[way] == 0)
        gone[gone_count++] = way;
    times[way] += times[way] < 255;
}

/* Tells whether the input took a new edge, or a known one with a new power of two; clears its counts. */
static int
is_new(void)
{
    int found = 0;
    for (; gone_count > 0; times[gone[gone_count]] = 0) {
        uint32_t way = gone[--gone_count];
        uint8_t bit = (uint8_t)(1u << (31 - __builtin_clz(times[way])));
        found |= !(seen[way] & bit);
        seen[way] |= bit;
    }
    return found;
}

static uint32_t
random_below(uint32_t most)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return most ? (uint32_t)(chance >> 20) % most : 0;
}

/* Writes an input under a name that depends on its content. */
static void
keep(const char *begin, const uint8_t *data, size_t size)
{
    char path[PATH];
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ data[i]) * 1099511628211u;
    snprintf(path, sizeof path, "%s%016llx", begin, (unsigned long long)hash);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        fprintf(stderr, "%s: it cannot be written\n", path);
    if (begin != folder)
        fprintf(stderr, "Test unit written to %s\n", path);
}

static void
keep_running(void)
{
    char begin[PATH];
    snprintf(begin, sizeof begin, "%scrash-", prefix);
    keep(begin, running, running_size);
}

static void
end_by_signal(int number)
{
    fprintf(stderr, "ERROR: %s\n", number == SIGALRM ? "an input takes too long" : "the program was ended");
    keep_running();
    _exit(1);
}

/* gcc's sanitizer of undefined behaviour asks for its options here. It knows of no callback. */
const char *
__ubsan_default_options(void)
{
    return "abort_on_error=1:print_stacktrace=1";
}

static void
run_input(const uint8_t *data, size_t size, unsigned seconds)
{
    running = malloc(size + !size);
    running_size = size;
    memcpy((uint8_t *)running, data, size);
    before = 0;
    alarm(seconds);
    LLVMFuzzerTestOneInput(running, size);
    alarm(0);
    free((uint8_t *)running);
}

static void
add_input(const uint8_t *data, size_t size)
{
    if (count == MOST_INPUTS || size > LONGEST)
        return;
    inputs[count].data = malloc(size + !size);
    inputs[count].size = size;
    memcpy(inputs[count++].data, data, size);
}

static void
read_input(const char *path)
{
    static uint8_t data[LONGEST + 1];
    struct stat status;
    DIR *directory;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
        if ((directory = opendir(path)) == NULL)
            return;
        for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
            char below[PATH];
            if (entry->d_name[0] != '.' && snprintf(below, sizeof below, "%s/%s", path, entry->d_name) < (int)sizeof below)
                read_input(below);
        }
        closedir(directory);
        return;
    }
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "%s: it cannot be read\n", path);
        exit(2);
    }
    add_input(data, fread(data, 1, sizeof data, file));
    fclose(file);
}

static void
move(uint8_t *data, size_t *size, size_t to, size_t from, size_t tail)
{
    if (to + tail > LONGEST)
        return;
    memmove(data + to, data + from, tail);
    *size = to + tail;
}

/* Changes an input once. */
static void
change(uint8_t *data, size_t *size)
{
    static const uint8_t odd[] = {0, 1, 2, 3, 4, 8, 0x0F, 0x10, 0x11, 0x21, 0x22, 0x3F, 0x40, 0x7F, 0x80, 0xFE, 0xFF};
    size_t at = random_below((uint32_t)*size), left = *size - at, some = 1 + random_below(random_below(2) ? 8 : 64);
    const Bytes *other = &inputs[random_below((uint32_t)count)];
    size_t from = random_below((uint32_t)other->size), there = other->size - from;
    some = some < left ? some : left;
    if (*size == 0)
        data[(*size)++] = 0;
    switch (random_below(10)) {
    case 0:
        data[at] ^= (uint8_t)(1u << random_below(8));
        break;
    case 1:
        data[at] = odd[random_below(sizeof odd)];
        break;
    case 2:
        data[at] = (uint8_t)random_below(256);
        break;
    case 3:
        data[at] += (uint8_t)(random_below(17) - 8);
        break;
    case 4: /* a number of two bytes */
        data[at] = (uint8_t)(random_below(2) ? 0 : random_below(256));
        if (left > 1)
            data[at + 1] = odd[random_below(sizeof odd)];
        break;
    case 5:
        move(data, size, at, at + some, left - some);
        break;
    case 6: /* writes some bytes twice */
        move(data, size, at + some, at, left);
        break;
    case 7:
        *size = random_below(4) ? *size - random_below((uint32_t)(*size < 16 ? *size : 16)) : at;
        break;
    case 8: /* overwrites with some of another */
        some = some < there ? some : there;
        memcpy(data + at, other->data + from, some);
        break;
    default: /* ends as another does */
        if (at + there <= LONGEST) {
            memcpy(data + at, other->data + from, there);
            *size = at + there;
        }
    }
}

static double
now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Returns the number of an option, or a default. */
static long
number_of(const char *argument, const char *name, long otherwise)
{
    size_t length = strlen(name);
    return strncmp(argument, name, length) ? otherwise : atol(argument + length);
}

int
main(int argument_count, char **arguments)
{
    static uint8_t data[LONGEST];
    long seconds = 0, most_runs = -1, timeout = 1200, runs = 0;
    LLVMFuzzerInitialize(&argument_count, &arguments);
    for (int i = 1; i < argument_count; i++) {
        const char *argument = arguments[i];
        struct stat status;
        seconds = number_of(argument, "-max_total_time=", seconds);
        most_runs = number_of(argument, "-runs=", most_runs);
        timeout = number_of(argument, "-timeout=", timeout);
        chance = (uint64_t)number_of(argument, "-seed=", (long)chance) | 1;
        if (!strncmp(argument, "-artifact_prefix=", 17))
            prefix = argument + 17;
        if (argument[0] == '-')
            continue;
        if (folder == NULL && stat(argument, &status) == 0 && S_ISDIR(status.st_mode)) {
            static char begin[PATH];
            snprintf(begin, sizeof begin, "%s/", argument);
            folder = begin;
        }
        read_input(argument);
    }
    __sanitizer_set_death_callback(keep_running);
    signal(SIGABRT, end_by_signal);
    signal(SIGALRM, end_by_signal);
    double end = now() + (double)seconds;
    int given = count;
    for (; runs < given; runs++) {
        run_input(inputs[runs].data, inputs[runs].size, (unsigned)timeout);
        is_new();
    }
    for (; given > 0 && folder != NULL && (most_runs < 0 || runs < most_runs) && (seconds == 0 || now() < end); runs++) {
        const Bytes *input = &inputs[random_below((uint32_t)count)];
        size_t size = input->size;
        memcpy(data, input->data, size);
        for (uint32_t changes = 1 + random_below(4); changes > 0; changes--)
            change(data, &size);
        run_input(data, size, (unsigned)timeout);
        if (is_new()) {
            add_input(data, size);
            keep(folder, data, size);
        }
    }
    fprintf(stderr, "Done %ld runs, %d inputs go ways of their own\n", runs, count);
    return 0;
}
