/* Writes JPEGs, without Python's lock: see encoding.h. */

#include "encoding/encoding.h"
#include "arguments.h"
#include "compilers.h"
#include "geometry.h"
#include "jpeg/markers.h"
#include "kernels/kernels.h"
#include "native.h"

#include <stdlib.h>
#include <string.h>

enum {
    LONGEST_SIDE = 65500, /* pixels: libjpeg's own limit */
    GROUP = 16,           /* MCUs that go through all steps together; their data stay in the first-level cache */
    GROUP_BLOCKS = GROUP * BLOCKS_OF_MCU,
    BLOCK_BITS = 22 + 63 * 26, /* the longest codes with their values */
    GROUP_BYTES = (GROUP_BLOCKS * BLOCK_BITS + 7) / 8 + 1,
    OVERREAD = 16,  /* bytes after the pixels of a strip that may be read */
    BESIDE = 64,    /* bytes after samples, items and bits that may be read or written */
    LINE = 64,      /* bytes of a cache line */
    MOST_ROOM = 1 << 22 /* bytes that are allocated at first, at most */
};

typedef struct {
    CodedBlock blocks[GROUP_BLOCKS + BLOCKS_OF_MCU]; /* with those of one extra MCU */
    uint64_t masks[GROUP_BLOCKS + BLOCKS_OF_MCU]; /* which coefficients are not 0 */
    int16_t values[GROUP_BLOCKS * BLOCK_ITEMS + BESIDE];
    uint8_t places[1 + GROUP_BLOCKS * BLOCK_ITEMS + BESIDE];
    uint8_t bits[GROUP_BYTES + BESIDE];
    uint8_t tails[2][3 * 2 * STRIP_PIXELS + OVERREAD]; /* of two rows of pixels */
    /* The following fields are 0 at first. */
    const uint8_t *pixels;
    ptrdiff_t height, width, stride;
    ptrdiff_t interval; /* MCUs between two restart markers; 0 without them */
    ptrdiff_t across, down; /* MCUs */
    ptrdiff_t direct, strips; /* pixels of a row that are not copied to `tails`; samples of a row */
    uint8_t *luma, *blue, *red; /* samples of a row of MCUs */
    uint8_t *out;
    size_t size, room;
    ptrdiff_t to_restart; /* MCUs */
    int restarts;
    int previous[3]; /* first coefficients */
    BitQueue queue;
    Divisors divisors[2]; /* of luma and chroma */
} Encoding;

/* Makes room for `more` bytes. Returns 0 without memory. */
static int
make_room(Encoding *e, size_t more)
{
    if (e->room - e->size >= more)
        return 1;
    const size_t room = e->room + e->room / 2 + more;
    uint8_t *out = realloc(e->out, room);
    if (out == NULL)
        return 0;
    e->out = out;
    e->room = room;
    return 1;
}

/* Copies the end of a row of pixels, and repeats its last pixel up to the end of an MCU. */
static void
copy_tail(const Encoding *e, const uint8_t *row, uint8_t *to)
{
    const uint8_t *last = row + 3 * (e->width - 1), red = last[0], green = last[1], blue = last[2];
    memcpy(to, row + 3 * e->direct, 3 * (size_t)(e->width - e->direct));
    for (ptrdiff_t i = e->width - e->direct; i < MCU * e->across - e->direct; i++)
        to[3 * i] = red, to[3 * i + 1] = green, to[3 * i + 2] = blue;
}

/* Converts two rows of pixels to samples. To the right of the image, the last pixels are repeated. */
static void
sample_pair(Encoding *e, const uint8_t *upper, const uint8_t *lower, ptrdiff_t pair)
{
    uint8_t *luma = e->luma + 2 * pair * e->strips;
    SampleRows to = {luma, luma + e->strips, e->blue + pair * e->strips / 2, e->red + pair * e->strips / 2};
    if (e->direct)
        kernels->sample_rows(upper, lower, &to, e->direct);
    copy_tail(e, upper, e->tails[0]);
    copy_tail(e, lower, e->tails[1]);
    to = (SampleRows){to.upper + e->direct, to.lower + e->direct, to.blue + e->direct / 2, to.red + e->direct / 2};
    kernels->sample_rows(e->tails[0], e->tails[1], &to, e->strips - e->direct);
}

/* Makes the samples of a row of MCUs. Below the image, the last row of each component is repeated. */
static void
sample_row(Encoding *e, ptrdiff_t row)
{
    const ptrdiff_t top = MCU * row, half = e->strips / 2;
    const ptrdiff_t pairs = smaller(MCU / 2, (e->height - top + 1) / 2);
    for (ptrdiff_t pair = 0; pair < pairs; pair++) {
        const uint8_t *upper = e->pixels + (top + 2 * pair) * e->stride;
        sample_pair(e, upper, top + 2 * pair + 1 < e->height ? upper + e->stride : upper, pair);
    }
    for (ptrdiff_t pair = pairs; pair < MCU / 2; pair++) {
        uint8_t *luma = e->luma + 2 * pair * e->strips, *blue = e->blue + pair * half, *red = e->red + pair * half;
        memcpy(luma, luma - e->strips, (size_t)e->strips);
        memcpy(luma + e->strips, luma - e->strips, (size_t)e->strips);
        memcpy(blue, blue - half, (size_t)half);
        memcpy(red, red - half, (size_t)half);
    }
}

/* Computes the coefficients of some MCUs, four blocks at a time: those of luma of one MCU, and those of chroma of two. */
static void
code_blocks(Encoding *e, ptrdiff_t mcu, ptrdiff_t count)
{
    FourBlocks fours[GROUP + (GROUP + 1) / 2], *four = fours;
    const ptrdiff_t stride = e->strips;
    for (ptrdiff_t i = 0; i < count; i++, mcu++) {
        const uint8_t *luma = e->luma + MCU * mcu;
        const uint8_t place = (uint8_t)(BLOCKS_OF_MCU * i);
        *four++ = (FourBlocks){
            luma, luma + 8 * stride, stride, &e->divisors[0],
            {place, (uint8_t)(place + 1), (uint8_t)(place + 2), (uint8_t)(place + 3)},
        };
        if (i % 2 == 0)
            *four++ = (FourBlocks){
                e->blue + 8 * mcu, e->red + 8 * mcu, stride / 2, &e->divisors[1],
                {(uint8_t)(place + 4), (uint8_t)(place + 10), (uint8_t)(place + 5), (uint8_t)(place + 11)},
            };
    }
    kernels->code_blocks(fours, four - fours, e->blocks, e->masks);
}

/* Returns the coefficients of a block that become items: the first one; those in `mask`, which are not 0; of each 16
   consecutive zeros before another coefficient, the last one, which stands for all 16; and the one after the last, which
   stands for the end of the block. */
static inline uint64_t
items_of(uint64_t mask)
{
    mask |= 1;
    const int last = 63 - leading_zeros(mask);
    for (;;) {
        uint64_t zeros = ~mask;
        zeros &= zeros >> 1;
        zeros &= zeros >> 2;
        zeros &= zeros >> 4;
        zeros &= zeros >> 8;
        zeros &= ((uint64_t)1 << last) - 1; /* where 16 zeros begin */
        if (!zeros)
            return mask | (uint64_t)2 << last;
        mask |= (zeros & (0 - zeros)) << 15;
    }
}

/* Replaces first coefficients by their differences, and determines the items of blocks. Blocks of luma outside of the
   image repeat the first coefficient of the one before, and have no others. */
static void
finish_blocks(Encoding *e, ptrdiff_t row, ptrdiff_t mcu, ptrdiff_t count)
{
    static const int component[BLOCKS_OF_MCU] = {0, 0, 0, 0, 1, 2};
    const unsigned below = e->height - MCU * row <= 8 ? 1 << 2 | 1 << 3 : 0, right = 1 << 1 | 1 << 3;
    const ptrdiff_t cut = e->width - MCU * (e->across - 1) <= 8 ? e->across - 1 : -1; /* the MCU whose right half is missing */
    CodedBlock *block = e->blocks;
    uint64_t *mask = e->masks;
    for (const ptrdiff_t end = mcu + count; mcu < end; mcu++) {
        const unsigned missing = below | (mcu == cut ? right : 0);
        for (unsigned place = 0; place < BLOCKS_OF_MCU; place++, block++, mask++) {
            int *previous = &e->previous[component[place]];
            const int first = block->coefficients[0];
            if (UNLIKELY(missing >> place & 1)) {
                block->coefficients[0] = block->coefficients[1] = 0;
                *mask = items_of(0);
                continue;
            }
            block->coefficients[0] = (int16_t)(first - *previous);
            *previous = first;
            *mask = items_of(*mask);
        }
    }
}

/* Writes bytes of a scan, with a zero after each 0xFF. */
static int
stuff(Encoding *e, const uint8_t *from, const uint8_t *stop)
{
    if (!make_room(e, 2 * (size_t)(stop - from) + BESIDE))
        return 0;
    uint8_t *to = e->out + e->size;
    while (from < stop) {
        const size_t count = kernels->copy_run(to, from, (size_t)(stop - from), stop);
        to += count;
        from += count;
        if (from < stop) {
            *to++ = *from++;
            *to++ = 0;
        }
    }
    e->size = (size_t)(to - e->out);
    return 1;
}

/* Fills up the last byte, and writes a restart marker, unless the scan ends here. */
static int
restart(Encoding *e, int is_end)
{
    if (e->queue.count) {
        const uint8_t last = (uint8_t)(e->queue.bits >> 56 | 0xFFu >> e->queue.count);
        if (!stuff(e, &last, &last + 1))
            return 0;
    }
    if (!make_room(e, 2))
        return 0;
    e->out[e->size++] = 0xFF;
    e->out[e->size++] = (uint8_t)(is_end ? EOI : RST0 + (e->restarts++ & 7));
    e->queue = (BitQueue){0, 0};
    memset(e->previous, 0, sizeof e->previous);
    e->to_restart = e->interval;
    return 1;
}

/* Encodes some MCUs of a row. Returns 0 without memory. */
static int
encode_group(Encoding *e, ptrdiff_t row, ptrdiff_t mcu, ptrdiff_t count)
{
    Items items = {e->values, e->places + 1, 0};
    code_blocks(e, mcu, count);
    finish_blocks(e, row, mcu, count);
    kernels->list_items(e->blocks, e->masks, count, &items);
    return stuff(e, e->bits, kernels->put_items(&items, standard_codes(), &e->queue, e->bits));
}

static int
encode_image(Encoding *e)
{
    for (ptrdiff_t row = 0; row < e->down; row++) {
        sample_row(e, row);
        for (ptrdiff_t mcu = 0, count; mcu < e->across; mcu += count) {
            if (e->interval && !e->to_restart && !restart(e, 0))
                return 0;
            count = smaller(GROUP, e->across - mcu);
            if (e->interval)
                count = smaller(count, e->to_restart);
            if (!encode_group(e, row, mcu, count))
                return 0;
            e->to_restart -= count;
        }
    }
    return restart(e, 1);
}

/* Writes an image to `out`, which the caller must free. Returns 0 without memory. */
static int
encode_to(Encoding *e, int quality)
{
    uint8_t tables[2][TABLE];
    const ptrdiff_t row = 3 * e->width - OVERREAD;
    e->across = (e->width + MCU - 1) / MCU;
    e->down = (e->height + MCU - 1) / MCU;
    e->direct = row > 0 ? row / 3 / STRIP_PIXELS * STRIP_PIXELS : 0;
    e->strips = (e->width + STRIP_PIXELS - 1) / STRIP_PIXELS * STRIP_PIXELS;
    e->to_restart = e->interval;
    scale_quantisation(quality, tables);
    for (int chroma = 0; chroma < 2; chroma++)
        set_divisors(tables[chroma], &e->divisors[chroma]);
    const size_t samples = (size_t)(MCU + MCU / 2) * (size_t)e->strips;
    uint8_t *memory = malloc(samples + BESIDE);
    const uint64_t usual = (uint64_t)e->height * (uint64_t)e->width / 2;
    if (memory == NULL || !make_room(e, HEADER_BYTES + (size_t)(usual < MOST_ROOM ? usual : MOST_ROOM))) {
        free(memory);
        return 0;
    }
    memset(memory + samples, 0, BESIDE); /* because bytes after the last samples are read */
    e->luma = memory;
    e->blue = memory + MCU * e->strips;
    e->red = e->blue + MCU / 2 * e->strips / 2;
    e->places[0] = 0;
    /* The pixels after the last MCU of a row are converted, too; they may have any value. */
    memset(e->tails, 0, sizeof e->tails);
    e->size = (size_t)(write_header(e->out, e->height, e->width, e->interval, (const uint8_t(*)[TABLE])tables) - e->out);
    const int done = encode_image(e);
    free(memory);
    return done;
}

PyObject *
encode_jpeg(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[6];
    if (!read_integers(arguments, given, n, 6))
        return NULL;
    if (n[1] < 1 || n[1] > LONGEST_SIDE || n[2] < 1 || n[2] > LONGEST_SIDE) {
        PyErr_Format(PyExc_ValueError, "a JPEG must have 1 to %d pixels on each side", LONGEST_SIDE);
        return NULL;
    }
    if (n[4] < 1 || n[4] > 100 || n[5] < 0 || n[5] > UINT16_MAX) {
        PyErr_SetString(PyExc_ValueError, "the quality or the restart interval is out of range");
        return NULL;
    }
    uint8_t *memory = malloc(sizeof(Encoding) + LINE);
    if (memory == NULL)
        return PyErr_NoMemory();
    Encoding *e = (Encoding *)(void *)(memory + (-(uintptr_t)memory % LINE));
    memset((uint8_t *)e + offsetof(Encoding, pixels), 0, sizeof *e - offsetof(Encoding, pixels));
    e->pixels = (const uint8_t *)(uintptr_t)n[0];
    e->height = (ptrdiff_t)n[1], e->width = (ptrdiff_t)n[2], e->stride = (ptrdiff_t)n[3], e->interval = (ptrdiff_t)n[5];
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = encode_to(e, (int)n[4]);
    Py_END_ALLOW_THREADS
    PyObject *data = done ? PyBytes_FromStringAndSize((const char *)e->out, (Py_ssize_t)e->size) : PyErr_NoMemory();
    free(e->out);
    free(memory);
    return data;
}
