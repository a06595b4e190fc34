/* Runs the twin of the device's kernels over batches whose tiles and tables are changed at random, under the compiler's
   sanitizers.

       driver TILES SEED FILE ...

   Each file is a batch, as `__main__.py` writes it. Every buffer has memory of its own, of exactly its size. The
   program ends after TILES changed tiles, and prints how many of them had each status. */

#include "kernels.c"

#include <sanitizer/common_interface_defs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SLAB, GROUPS, IMAGES, CHUNKS, HUFFMAN, QUANTA, WORDS, TILE_SPANS, STATUS, ORDER, ALL_TABLES, COEFFICIENTS, PLANES, SPANS,
    WEIGHTS, PRECISIONS, RESIZED, OUT, BUFFERS, GIVEN = WORDS
};

typedef struct {
    uint8_t *at[BUFFERS];
    uint32_t size[BUFFERS]; /* bytes */
} Buffers;

enum { MOST_FILES = 256, CHANGES = 4 /* of a batch, at most */ };

static Buffers batches[MOST_FILES];
static uint64_t chance;
static uint64_t seed; /* of the present round */
static const char *file; /* of the present round */

static uint32_t
random_below(uint32_t most)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return most ? (uint32_t)(chance >> 20) % most : 0;
}

static void
say_round(void)
{
    fprintf(stderr, "found with: driver 1 %llu %s\n", (unsigned long long)seed, file);
}

static void
end_by_signal(int number)
{
    (void)number;
    say_round();
    _Exit(1);
}

/* gcc's sanitizer of undefined behaviour asks for its options here. It knows of no callback. */
__attribute__((visibility("default"))) const char *__ubsan_default_options(void);

const char *
__ubsan_default_options(void)
{
    return "abort_on_error=1:print_stacktrace=1";
}

static void
read_bytes(void *to, size_t size, FILE *from, const char *path)
{
    if (fread(to, 1, size, from) != size) {
        fprintf(stderr, "%s: it is not a batch\n", path);
        exit(2);
    }
}

static void
read_batch(Buffers *batch, const char *path)
{
    FILE *from = fopen(path, "rb");
    if (from == NULL) {
        fprintf(stderr, "%s: it cannot be read\n", path);
        exit(2);
    }
    read_bytes(batch->size, sizeof batch->size, from, path);
    for (int i = 0; i < GIVEN; i++) {
        batch->at[i] = malloc(batch->size[i]);
        read_bytes(batch->at[i], batch->size[i], from, path);
    }
    fclose(from);
}

/* Changes some bytes of a group of tiles, within a tile or at the border of two. */
static void
change_tiles(const Buffers *batch)
{
    static const uint8_t odd[] = {0, 1, 0x7F, 0x80, 0xD0, 0xD7, 0xD9, 0xFE, 0xFF};
    const Group *group = (const Group *)(const void *)batch->at[GROUPS] + random_below(batch->size[GROUPS] / sizeof(Group));
    uint32_t place = random_below(group->size), some = 1 + random_below(random_below(4) ? 3 : 40);
    uint8_t *at = batch->at[SLAB] + group->from + place;
    some = some < group->size - place ? some : group->size - place;
    switch (random_below(5)) {
    case 0:
        *at ^= (uint8_t)(1u << random_below(8));
        break;
    case 1:
        *at = odd[random_below(sizeof odd)];
        break;
    case 2: /* the bits of some bytes move on */
        for (uint32_t i = 0; i + 1 < some; i++)
            at[i] = at[i + 1];
        break;
    default:
        for (uint32_t i = 0; i < some; i++)
            at[i] = (uint8_t)(random_below(6) ? random_below(256) : odd[random_below(sizeof odd)]);
    }
}

/* Changes a byte of the Huffman tables. */
static void
change_tables(const Buffers *batch)
{
    uint8_t *at = batch->at[HUFFMAN] + random_below(batch->size[HUFFMAN]);
    *at = (uint8_t)(random_below(2) ? random_below(256) : *at + random_below(5) - 2);
}

/* Returns buffers for the kernels: copies of the host's, and memory for the rest. */
static Buffers
prepared(const Buffers *batch)
{
    Buffers own = *batch;
    for (int i = 0; i < BUFFERS; i++) {
        own.at[i] = malloc(own.size[i]);
        if (i < GIVEN)
            memcpy(own.at[i], batch->at[i], own.size[i]);
        else /* the device clears these as well: parts of them may be read before they are written */
            memset(own.at[i], i == WORDS || i == STATUS || i == COEFFICIENTS || i == ALL_TABLES ? 0 : 0xA5, own.size[i]);
    }
    return own;
}

#define AT(type, buffer) ((type *)(void *)own->at[buffer])

static void
run_kernels(const Buffers *own, uint32_t threads, uint32_t backwards, uint32_t kind)
{
    const uint32_t images = own->size[IMAGES] / sizeof(Image), groups = own->size[GROUPS] / sizeof(Group);
    const Image *image = AT(Image, IMAGES);
    const uint32_t pixels = (uint32_t)(image->axes[0].out * image->axes[1].out);
    static const uint32_t table[3 * 256];
    tiles(groups, 1, threads, backwards, AT(uint32_t, SLAB), AT(Group, GROUPS), AT(uint32_t, WORDS), AT(uint32_t, TILE_SPANS),
          AT(uint8_t, STATUS));
    tables(images, 1, threads, backwards, image, AT(uint8_t, HUFFMAN), AT(uint32_t, TILE_SPANS), AT(uint8_t, STATUS),
           AT(uint32_t, ORDER), AT(Tables, ALL_TABLES));
    entropy(own->size[CHUNKS] / sizeof(Chunk), 1, threads, backwards, image, AT(Chunk, CHUNKS), AT(Tables, ALL_TABLES),
            AT(uint32_t, WORDS), AT(uint32_t, TILE_SPANS), AT(uint8_t, STATUS), AT(uint32_t, ORDER), AT(int16_t, COEFFICIENTS));
    idct(1, images, threads, backwards, image, AT(uint32_t, QUANTA), AT(uint32_t, COEFFICIENTS), AT(uint32_t, PLANES), 1);
    weights(2, images, threads, backwards, image, AT(Span, SPANS), AT(int16_t, WEIGHTS), AT(int32_t, PRECISIONS));
    across(1, images, threads, backwards, image, AT(uint8_t, PLANES), AT(Span, SPANS), AT(int16_t, WEIGHTS),
           AT(int32_t, PRECISIONS), AT(uint32_t, RESIZED), 1);
    down((pixels + threads - 1) / threads, images, threads, backwards, image, AT(uint32_t, RESIZED), AT(Span, SPANS),
         AT(int16_t, WEIGHTS), AT(int32_t, PRECISIONS), own->at[OUT], table, kind, kind != LEVELS_OUT);
}

int
main(int count, char **arguments)
{
    if (count < 4 || count - 3 > MOST_FILES) {
        fprintf(stderr, "driver TILES SEED FILE ...\n");
        return 2;
    }
    const uint64_t most = strtoull(arguments[1], NULL, 10);
    uint64_t states[3] = {0}, changed = 0, rounds = 0;
    seed = strtoull(arguments[2], NULL, 10);
    for (int i = 3; i < count; i++)
        read_batch(&batches[i - 3], arguments[i]);
    __sanitizer_set_death_callback(say_round);
    signal(SIGABRT, end_by_signal);
    for (; changed < most; rounds++, seed++) {
        chance = seed * 0x9E3779B97F4A7C15u | 1;
        random_below(2);
        const uint32_t number = random_below((uint32_t)count - 3), changes = 1 + random_below(CHANGES);
        file = arguments[3 + number];
        Buffers own = prepared(&batches[number]);
        for (uint32_t i = 0; i < changes; i++)
            change_tiles(&own);
        if (random_below(16) == 0)
            change_tables(&own);
        run_kernels(&own, 1 + random_below(40), random_below(2), random_below(3));
        for (uint32_t i = 0; i < own.size[STATUS]; i++) {
            if (own.at[STATUS][i] > UNSUPPORTED) {
                fprintf(stderr, "a tile has status %d\n", own.at[STATUS][i]);
                say_round();
                return 1;
            }
            states[own.at[STATUS][i]]++;
        }
        for (int i = 0; i < BUFFERS; i++)
            free(own.at[i]);
        changed += changes;
    }
    printf("%llu tiles changed in %llu batches; tiles fine %llu, damaged %llu, left to the processor %llu\n",
           (unsigned long long)changed, (unsigned long long)rounds, (unsigned long long)states[FINE],
           (unsigned long long)states[DAMAGED], (unsigned long long)states[UNSUPPORTED]);
    return 0;
}
