/* Decodes the entropy-coded segments of JPEGs (ITU-T T.81, annex F.2). Fails at the first violation of the standard. */

#include "compilers.h"
#include "jpeg/bits.h"
#include "jpeg/jpeg.h"
#include "kernels/kernels.h"

#include <string.h>

typedef struct { /* a block of each MCU */
    const Table *dc, *ac;
    const Step *steps;
    int component;
    const int16_t *quantum;
    uint8_t *to; /* the samples of this block in the next MCU */
    ptrdiff_t stride, step;
} Block;

/* Decodes one symbol of a block, or skips it unless `wanted`. Returns the index of the next coefficient; AT_END if the
   block ends; 0 if the bits are invalid. */
INLINE int
decode_symbol(Bits *b, const Table *ac, int16_t *block, int k, int wanted)
{
    Symbol symbol = next_symbol(b, ac);
    k += (int)(symbol >> RUN & 15);
    if (symbol & HAS_VALUE) {
        int value = take_value(b, symbol);
        if (wanted)
            block[zigzag[k]] = (int16_t)value;
        return k > 63 ? 0 : k + 1;
    }
    skip_bits(b, symbol);
    if (!(symbol >> RUN & 15))
        return symbol ? AT_END : 0;
    return k > 62 ? 0 : k + 1; /* a coefficient must follow a run of 16 zeros */
}

INLINE Step
next_step(const Bits *b, const Step *steps)
{
    return steps[b->bits >> (64 - LOOK)];
}

/* Returns the index of the next coefficient after a step at the index k. SINGLY or AT_END is set in it if take_step is
   not enough: the step ends the block, might go beyond its last coefficient, or is no step. */
INLINE ptrdiff_t
index_after(ptrdiff_t k, Step step)
{
    return k + (uint8_t)(step >> ONWARD);
}

/* Stores the first coefficient of a step at the index k; see Step. */
INLINE void
take_first(Step step, int16_t *block, ptrdiff_t k)
{
    block[zigzag[k + (uint8_t)(step >> ZEROS)]] = (int16_t)(step >> FIRST);
}

/* Takes a step at the index k, whose last coefficient has the index `next` - 1. */
INLINE void
take_step(Bits *b, Step step, int16_t *block, ptrdiff_t k, ptrdiff_t next, int wanted)
{
    if (wanted) {
        take_first(step, block, k);
        block[zigzag[next - 1]] = (int16_t)((uint32_t)(b->bits >> ((64 - (unsigned)step) & 63)) + (uint32_t)(step >> ADDER));
    }
    skip_bits(b, (unsigned)step);
}

/* Decodes the coefficients of a block from the index k on, which are 0 so far, or skips them unless `wanted`. Returns the
   index after the last coefficient in zigzag order; 0 if the bits are invalid.

   The next table look-up must wait until the length of a step is known. Work that the processor does meanwhile costs
   nothing; work that delays the look-up costs much. */
INLINE int
decode_others(Bits *bits, const Block *as, int16_t *block, ptrdiff_t k, int wanted)
{
    Bits b = *bits;
    for (;;) {
        for (int i = 0; i < 2; i++) {
            const Step step = next_step(&b, as->steps);
            if (i == 0)
                refill(&b); /* is enough for two */
            ptrdiff_t next = index_after(k, step);
            if (UNLIKELY(next & (SINGLY | AT_END))) {
                /* The block ends before its last coefficient; after that one, there is no code for the end. */
                if (!(next & SINGLY)) {
                    if (wanted)
                        take_first(step, block, k);
                    skip_bits(&b, (unsigned)step);
                    *bits = b;
                    return (int)(next - AT_END);
                }
                next = decode_symbol(&b, as->ac, block, (int)k, wanted);
                if (next == 0 || next >= 64) {
                    *bits = b;
                    return next == AT_END ? (int)k : (int)next;
                }
            } else {
                take_step(&b, step, block, k, next, wanted);
            }
            k = next;
        }
    }
}

/* Takes the next step of both streams if take_step is enough for both. Otherwise returns 0, and takes neither. */
INLINE int
take_of_both(Bits *a, Bits *b, const Step *steps, int16_t (*blocks)[64], ptrdiff_t *k, ptrdiff_t *l, int is_first)
{
    const Step step = next_step(a, steps), another = next_step(b, steps);
    if (is_first) { /* enough for two steps */
        refill(a);
        refill(b);
    }
    const ptrdiff_t next = index_after(*k, step), after = index_after(*l, another);
    if (UNLIKELY((next | after) & (SINGLY | AT_END)))
        return 0;
    take_step(a, step, blocks[0], *k, next, 1);
    *k = next;
    take_step(b, another, blocks[1], *l, after, 1);
    *l = after;
    return 1;
}

/* Decodes a block of each of two streams, as decode_others does. While the processor waits for the length of a step in
   one stream, it continues with the other. */
INLINE void
decode_both(Bits *first, Bits *second, const Block *as, int16_t (*blocks)[64], int ends[2])
{
    Bits a = *first, b = *second;
    ptrdiff_t k = 1, l = 1;
    while (take_of_both(&a, &b, as->steps, blocks, &k, &l, 1) && take_of_both(&a, &b, as->steps, blocks, &k, &l, 0))
        ;
    ends[0] = decode_others(&a, as, blocks[0], k, 1);
    ends[1] = decode_others(&b, as, blocks[1], l, 1);
    *first = a;
    *second = b;
}

enum { MOST_WAITING = 12 }; /* all blocks of an MCU, or those of two MCUs with common sampling factors */

typedef struct { /* blocks that were decoded and not yet transformed */
    _Alignas(64) int16_t coefficients[MOST_WAITING][64]; /* in unused blocks, all but the first are 0 */
    Coded blocks[MOST_WAITING];
    int count, used; /* of waiting blocks; of used elements of `coefficients` */
} Waiting;

/* Lays out the blocks of the requested MCUs of a row; returns how many an MCU has. */
static int
lay_out_blocks(Decoder *d, Block *block, ptrdiff_t row)
{
    Block *first = block;
    for (Component *c = d->components; c < d->components + d->count; c++) {
        for (ptrdiff_t y = 0; y < c->down; y++) {
            for (ptrdiff_t x = 0; x < c->across; x++, block++) {
                uint8_t *to = samples_of(c, (row * c->down + y) * 8) + x * 8;
                *block = (Block){
                    c->dc, c->ac, c->ac->steps, (int)(c - d->components), c->quantum, to, c->stride, 8 * c->across,
                };
            }
        }
    }
    return (int)(block - first);
}

static void
transform_waiting(Waiting *waiting)
{
    kernels->transform(waiting->blocks, waiting->count);
    waiting->count = waiting->used = 0;
}

/* Makes room for the coefficients of `count` blocks. Several MCUs are decoded before they are transformed, because a
   processor is slow to load wide vectors from memory that it has just stored in small pieces. */
INLINE void
make_room(Waiting *waiting, int count)
{
    if (waiting->used + count > MOST_WAITING)
        transform_waiting(waiting);
}

/* Queues a block, or writes its samples at once if it has only the first coefficient; advances to the block of the next
   MCU. */
INLINE void
take_block(Waiting *waiting, Block *block, int16_t *coefficients, int end)
{
    if (end > 1)
        waiting->blocks[waiting->count++] = (Coded){coefficients, block->quantum, block->to, block->stride};
    else
        fill_block(coefficients[0] * block->quantum[0], block->to, block->stride);
    block->to += block->step;
}

/* Decodes the MCUs before `stop`, which is in this segment or its end; only skips them if `waiting` is NULL. */
INLINE int
decode_mcus(const Decoder *d, Stream *s, Block *blocks, int count, ptrdiff_t stop, Waiting *waiting)
{
    Bits bits = s->at;
    int16_t *coefficients = NULL;
    for (; s->mcu < stop; s->mcu++) {
        if (!provide(d, s, &bits, count))
            return 0;
        refill(&bits);
        if (waiting != NULL)
            make_room(waiting, count);
        for (Block *block = blocks; block < blocks + count; block++) {
            if (UNLIKELY(!decode_first(&bits, &s->predictions[block->component], block->dc)))
                return 0;
            if (waiting != NULL) {
                coefficients = waiting->coefficients[waiting->used++];
                coefficients[0] = (int16_t)s->predictions[block->component];
            }
            int end = decode_others(&bits, block, coefficients, 1, waiting != NULL);
            if (UNLIKELY(!end))
                return 0;
            if (waiting != NULL)
                take_block(waiting, block, coefficients, end);
        }
        if (UNLIKELY(s->ended && position(&bits) > s->end))
            return 0;
    }
    s->at = bits;
    return 1;
}

/* Decodes the MCUs before `stop`, and as many of a second stream, whose blocks are `others`. */
INLINE int
decode_mcus_of_both(const Decoder *d, Stream *s, Stream *t, Block *blocks, Block *others, int count, ptrdiff_t stop,
                    Waiting *waiting)
{
    Bits a = s->at, b = t->at;
    for (; s->mcu < stop; s->mcu++, t->mcu++) {
        if (!provide(d, s, &a, count) || !provide(d, t, &b, count))
            return 0;
        refill(&a);
        refill(&b);
        make_room(waiting, 2 * count);
        for (int i = 0; i < count; i++) {
            int component = blocks[i].component, ends[2];
            if (UNLIKELY(!decode_first(&a, &s->predictions[component], blocks[i].dc)
                         || !decode_first(&b, &t->predictions[component], blocks[i].dc)))
                return 0;
            int16_t (*two)[64] = &waiting->coefficients[waiting->used];
            waiting->used += 2;
            two[0][0] = (int16_t)s->predictions[component];
            two[1][0] = (int16_t)t->predictions[component];
            decode_both(&a, &b, &blocks[i], two, ends);
            if (UNLIKELY(!ends[0] || !ends[1]))
                return 0;
            take_block(waiting, &blocks[i], two[0], ends[0]);
            take_block(waiting, &others[i], two[1], ends[1]);
        }
        if (UNLIKELY((s->ended && position(&a) > s->end) || (t->ended && position(&b) > t->end)))
            return 0;
    }
    s->at = a;
    t->at = b;
    return 1;
}

/* Goes to an MCU of this or a later segment. */
INLINE int
go_to(const Decoder *d, Stream *s, ptrdiff_t mcu, Block *blocks, int count)
{
    ptrdiff_t segment = d->interval ? mcu / d->interval : 0;
    if (segment != s->segment && (!is_used_up(d, s) || !enter_segment(d, s, segment)))
        return 0;
    return decode_mcus(d, s, blocks, count, mcu, NULL);
}

INLINE int
decode_rows_with(Decoder *d, const Window *window, ptrdiff_t row, int rows)
{
    const ptrdiff_t first = row * d->columns + window->first, end = row * d->columns + window->end;
    Stream *s = &d->streams[d->current], *t = &d->streams[1 - d->current];
    Block blocks[BLOCKS], others[BLOCKS];
    Waiting waiting;
    int count = lay_out_blocks(d, blocks, row - window->first_row);
    memset(waiting.coefficients, 0, sizeof waiting.coefficients);
    waiting.count = waiting.used = 0;
    if (rows == 2)
        lay_out_blocks(d, others, row + 1 - window->first_row);
    for (ptrdiff_t mcu = first; mcu < end;) {
        ptrdiff_t stop = d->interval ? smaller(end, (mcu / d->interval + 1) * d->interval) : end;
        if (!go_to(d, s, mcu, blocks, count))
            return 0;
        if (rows == 2) {
            if (mcu == first) { /* the second stream starts at the position of the first */
                t->from = s->from;
                t->segment = s->segment;
                t->mcu = s->mcu;
                t->ended = s->ended;
            }
            if (!go_to(d, t, mcu + d->columns, others, count)
                || !decode_mcus_of_both(d, s, t, blocks, others, count, stop, &waiting))
                return 0;
        } else if (!decode_mcus(d, s, blocks, count, stop, &waiting)) {
            return 0;
        }
        mcu = stop;
    }
    transform_waiting(&waiting);
    /* No bytes may be left over after the last MCU either: whether libjpeg accepts them depends on their values. */
    if (rows == 2)
        d->current = 1 - d->current;
    return is_used_up(d, s) && (rows == 1 || is_used_up(d, t));
}

int
rows_go_together(const Decoder *d)
{
    int blocks = 0;
    for (int i = 0; i < d->count; i++)
        blocks += (int)(d->components[i].across * d->components[i].down);
    return d->interval && d->columns % d->interval == 0 && 2 * blocks <= MOST_WAITING;
}

static int
decode_rows_plain(Decoder *d, const Window *window, ptrdiff_t row, int rows)
{
    return decode_rows_with(d, window, row, rows);
}

#if HAS_AVX2
/* The speed depends on BMI2 shifts, and on the position of the loops in cache lines, which must not depend on the code
   of other files: 16 bytes after the beginning of a line, tiled photos took 1.04 times as long. */
AVX2 __attribute__((aligned(64))) static int
decode_rows_avx2(Decoder *d, const Window *window, ptrdiff_t row, int rows)
{
    return decode_rows_with(d, window, row, rows);
}
#endif

int
decode_rows(Decoder *d, const Window *window, ptrdiff_t row, int rows)
{
#if HAS_AVX2
    if (kernels->has_avx2)
        return decode_rows_avx2(d, window, row, rows);
#endif
    return decode_rows_plain(d, window, row, rows);
}
