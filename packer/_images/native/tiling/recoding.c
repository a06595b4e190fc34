/* Implements recoding.h. */

#include "kernels/kernels.h"
#include "tiling/recoding.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_AC = 1023, MOST_DC = 2047 }; /* of 8-bit images */

void
lay_out_planes(Planes *planes, const Frame *frame)
{
    planes->count = 0;
    for (int i = 0; i < frame->count; i++) {
        const FrameComponent *c = &frame->components[i];
        planes->first[i] = planes->count;
        planes->stride[i] = frame->across * c->across;
        planes->count += planes->stride[i] * frame->down * c->down;
    }
}

/* Returns how many columns or rows of a component's blocks the image touches (T.81, A.1.1 and A.2.4). */
static ptrdiff_t
touched(ptrdiff_t pixels, int factor, int most)
{
    return (pixels * factor + 8 * most - 1) / (8 * most);
}

ptrdiff_t
mcus_of_scan(const Frame *frame, const Scan *scan, ptrdiff_t *down)
{
    const FrameComponent *c = &frame->components[scan->components[0]];
    int alone = scan->count == 1;
    *down = alone ? touched(frame->height, c->down, frame->most_down) : frame->down;
    return alone ? touched(frame->width, c->across, frame->most_across) : frame->across;
}

typedef struct { /* a block of each MCU */
    int component;           /* of the frame */
    const Code *dc, *ac;     /* to read it */
    ptrdiff_t column, row;   /* its position in its component, for the first MCU */
    ptrdiff_t across, down;  /* from one MCU to the next */
} Block;

/* Lays out the blocks of an MCU of some components. `coded` is the scan that is read, or has no codes if a scan is
   written. */
static int
lay_out_blocks(Block *blocks, const Frame *frame, const int *components, int count, const CodedScan *coded)
{
    int made = 0, alone = count == 1;
    for (int i = 0; i < count; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.ArraySubscript): a frame has 3 components at most */
        const FrameComponent *c = &frame->components[components[i]];
        ptrdiff_t across = alone ? 1 : c->across, down = alone ? 1 : c->down;
        for (ptrdiff_t row = 0; row < down; row++)
            for (ptrdiff_t column = 0; column < across; column++)
                blocks[made++] = (Block){components[i], coded->dc[i], coded->ac[i], column, row, across, down};
    }
    return made;
}

/* Reads the coefficients from k to the last one of a scan (T.81, G.1.2.2). `run` receives the number of next blocks that
   have no coefficients. */
INLINE Problem
read_others(Bits *bits, const Code *code, int k, const Scan *scan, int16_t *block, int *run)
{
    const int last = scan->last, low = scan->low;
    Bits b = *bits;
    for (; k <= last; k++) {
        refill(&b);
        Entry entry = find_code(code, b.bits);
        int zeros = symbol_of(entry) >> 4, size = symbol_of(entry) & 15;
        if (!entry || size > 10)
            return bad_code;
        int value = take_value(&b, entry) * (1 << low);
        if (!size && zeros < 15) {
            *run = (1 << zeros) - 1 + take(&b, zeros);
            *bits = b;
            return NULL;
        }
        k += zeros;
        if (!size)
            continue;
        if (k > last || abs(value) > MOST_AC)
            return bad_value;
        block[k] = (int16_t)value;
    }
    *bits = b;
    return k == last + 1 ? NULL : bad_value;
}

/* Reads one bit more of a coefficient that is not 0. */
INLINE int16_t
refined(Bits *b, int coefficient, int low)
{
    if (UNLIKELY(b->count < 1))
        refill(b);
    int bit = take(b, 1) << low;
    return (int16_t)(coefficient > 0 ? coefficient + bit : coefficient - bit);
}

/* Reads one bit more of the coefficients from k to the last one of a scan (T.81, G.1.2.3). `run` is how many blocks, this one and
   those after it, get no new coefficients. */
INLINE Problem
refine_others(Bits *bits, const Code *code, int k, const Scan *scan, int16_t *block, int *run)
{
    const int last = scan->last, low = scan->low;
    Bits b = *bits;
    while (k <= last) {
        int zeros = 64, value = 0; /* zeros before the next new coefficient, and its value */
        if (!*run) {
            refill(&b);
            Entry entry = find_code(code, b.bits);
            int size = symbol_of(entry) & 15;
            if (!entry || size > 1)
                return bad_code;
            zeros = symbol_of(entry) >> 4;
            value = take_value(&b, entry) * (1 << low);
            if (!size && zeros < 15) {
                *run = (1 << zeros) + take(&b, zeros);
                zeros = 64;
            }
        }
        for (; k <= last && (block[k] || zeros); k++) {
            if (block[k])
                block[k] = refined(&b, block[k], low);
            else
                zeros--;
        }
        if (!*run) {
            if (k > last)
                return bad_value;
            block[k++] = (int16_t)value;
        }
    }
    if (*run)
        --*run;
    *bits = b;
    return NULL;
}

/* Reads a DC coefficient, or one bit more of it. */
INLINE Problem
read_first(Bits *b, const Code *code, const Scan *scan, int *last, int16_t *block)
{
    refill(b);
    if (scan->high) {
        block[0] = (int16_t)(block[0] | take(b, 1) << scan->low);
        return NULL;
    }
    Entry entry = find_code(code, b->bits);
    if (!entry || symbol_of(entry) > 11)
        return bad_code;
    *last += take_value(b, entry);
    int value = *last * (1 << scan->low);
    if (abs(value) > MOST_DC)
        return bad_value;
    block[0] = (int16_t)value;
    return NULL;
}

typedef struct { /* the position of the reader in a scan */
    Bits bits;
    const uint8_t *end;    /* of the restart interval */
    int last[COMPONENTS];  /* DC coefficients */
    int run;               /* blocks that have no coefficients, or no new ones */
} Reading;

INLINE Problem
read_block(Reading *r, const Block *block, const Scan *scan, int progressive, int16_t *coefficients)
{
    int k = scan->first;
    Problem problem = NULL;
    if (bits_left(&r->bits, r->end) < 0)
        return too_short;
    if (k == 0) {
        problem = read_first(&r->bits, block->dc, scan, &r->last[block->component], coefficients);
        if (problem != NULL || scan->high)
            return problem;
        k = 1;
    }
    if (scan->high)
        return refine_others(&r->bits, block->ac, k, scan, coefficients, &r->run);
    if (r->run) {
        r->run--;
        return NULL;
    }
    problem = read_others(&r->bits, block->ac, k, scan, coefficients, &r->run);
    return r->run && !progressive ? bad_code : problem;
}

/* Returns the problem at the end of a restart interval, or NULL. No run of blocks may continue after it (T.81, G.1.2.2). */
INLINE Problem
end_interval(const Reading *r)
{
    return r->run ? left_over : judge_end(&r->bits, r->end);
}

INLINE Problem
read_coefficients_with(const CodedScan *coded, const Scan *scan, const Frame *frame, const Planes *planes)
{
    Block blocks[MCU_BLOCKS];
    const int count = lay_out_blocks(blocks, frame, scan->components, scan->count, coded);
    ptrdiff_t down, across = mcus_of_scan(frame, scan, &down), interval = 0;
    ptrdiff_t restart = coded->interval ? coded->interval : across * down;
    Reading r = {.bits = {0, 0, coded->bytes}, .end = coded->bytes + coded->ends[0]};
    for (ptrdiff_t mcu = 0, row = 0; row < down; row++) {
        for (ptrdiff_t column = 0; column < across; column++, mcu++) {
            if (mcu == restart) {
                Problem problem = end_interval(&r);
                if (problem != NULL)
                    return problem;
                r = (Reading){.bits = {0, 0, r.end}, .end = coded->bytes + coded->ends[++interval]};
                restart += coded->interval;
            }
            for (const Block *block = blocks; block < blocks + count; block++) {
                ptrdiff_t line = block->row + row * block->down;
                ptrdiff_t place = planes->first[block->component] + line * planes->stride[block->component]
                                + block->column + column * block->across;
                Problem problem = read_block(&r, block, scan, frame->progressive, planes->coefficients + 64 * place);
                if (problem != NULL)
                    return problem;
            }
        }
    }
    return end_interval(&r);
}

/* Returns which coefficients of a block are not 0, the first one in the lowest bit. */
INLINE uint64_t
find_coefficients(const int16_t *block)
{
    uint64_t found = 0;
    for (int k = 0; k < 64; k++)
        found |= (uint64_t)(block[k] != 0) << k;
    return found;
}

INLINE int
lowest_bit(uint64_t bits)
{
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_ctzll(bits);
#else
    int place = 0;
    for (; !(bits & 1); bits >>= 1)
        place++;
    return place;
#endif
}

/* Writes the tokens of the AC coefficients of a block. Returns their end, or NULL if a coefficient is out of range. */
INLINE uint32_t *
put_others(uint32_t *token, uint32_t *counts, uint32_t key, const int16_t *block)
{
    int last = 0;
    for (uint64_t left = find_coefficients(block) & ~(uint64_t)1; left; left &= left - 1) {
        int k = lowest_bit(left), zeros = k - last - 1;
        for (; zeros > 15; zeros -= 16) {
            *token++ = (key + 0xF0) << AMPLITUDE;
            counts[key + 0xF0]++;
        }
        if (!put_value(token++, counts, key + ((uint32_t)zeros << 4), block[k], 10))
            return NULL;
        last = k;
    }
    if (last < 63) {
        *token++ = key << AMPLITUDE;
        counts[key]++;
    }
    return token;
}

INLINE Problem
put_coefficients_with(const Planes *planes, const Frame *frame, Tokens *tokens)
{
    static const int all[COMPONENTS] = {0, 1, 2};
    static const CodedScan to_be = {0};
    static const int16_t nothing[64] = {0}; /* the AC coefficients of padding */
    Block blocks[MCU_BLOCKS];
    const int count = lay_out_blocks(blocks, frame, all, frame->count, &to_be);
    uint32_t *token = tokens->tokens;
    ptrdiff_t new_restart = 0, tile = 0, columns[COMPONENTS] = {0}, rows[COMPONENTS] = {0}; /* blocks beyond them are padding */
    int sent[COMPONENTS] = {0};
    for (int i = 0; i < frame->count; i++) {
        columns[i] = touched(frame->width, frame->components[i].across, frame->most_across);
        rows[i] = touched(frame->height, frame->components[i].down, frame->most_down);
    }
    for (ptrdiff_t mcu = 0, row = 0; row < frame->down; row++) {
        for (ptrdiff_t column = 0; column < frame->across; column++, mcu++) {
            if (mcu == new_restart) {
                if (mcu)
                    tokens->ends[tile++] = token - tokens->tokens;
                new_restart += tokens->tile;
                memset(sent, 0, sizeof sent);
            }
            for (const Block *block = blocks; block < blocks + count; block++) {
                const int i = block->component;
                ptrdiff_t x = block->column + column * block->across, y = block->row + row * block->down;
                int padding = x >= columns[i] || y >= rows[i];
                const int16_t *from = planes->coefficients + 64 * (planes->first[i] + y * planes->stride[i] + x);
                uint32_t key = i ? SECOND_TABLE : 0;
                int dc = padding ? sent[i] : from[0];
                if (!put_value(token++, tokens->counts, key, dc - sent[i], 11))
                    return bad_value;
                sent[i] = dc;
                token = put_others(token, tokens->counts, key + AC_KEY, padding ? nothing : from);
                if (token == NULL)
                    return bad_value;
            }
        }
    }
    tokens->ends[tile] = token - tokens->tokens;
    return NULL;
}

static Problem
read_coefficients_plain(const CodedScan *coded, const Scan *scan, const Frame *frame, const Planes *planes)
{
    return read_coefficients_with(coded, scan, frame, planes);
}

static Problem
put_coefficients_plain(const Planes *planes, const Frame *frame, Tokens *tokens)
{
    return put_coefficients_with(planes, frame, tokens);
}

#if HAS_AVX2 /* these are faster because of BMI2's shifts */
AVX2 static Problem
read_coefficients_avx2(const CodedScan *coded, const Scan *scan, const Frame *frame, const Planes *planes)
{
    return read_coefficients_with(coded, scan, frame, planes);
}

AVX2 static Problem
put_coefficients_avx2(const Planes *planes, const Frame *frame, Tokens *tokens)
{
    return put_coefficients_with(planes, frame, tokens);
}
#endif

Problem
read_coefficients(const CodedScan *coded, const Scan *scan, const Frame *frame, const Planes *planes)
{
#if HAS_AVX2
    if (kernels->has_avx2)
        return read_coefficients_avx2(coded, scan, frame, planes);
#endif
    return read_coefficients_plain(coded, scan, frame, planes);
}

Problem
put_coefficients(const Planes *planes, const Frame *frame, Tokens *tokens)
{
#if HAS_AVX2
    if (kernels->has_avx2)
        return put_coefficients_avx2(planes, frame, tokens);
#endif
    return put_coefficients_plain(planes, frame, tokens);
}
