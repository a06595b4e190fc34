/* Decodes the entropy-coded segments of JPEGs (ITU-T T.81, annex F.2), and ends at the first violation of the standard. */

#include "compilers.h"
#include "jpeg.h"
#include "kernels.h"
#include "markers.h"

#include <string.h>

/* Brings more of the segment's bytes, without the zeros that are stuffed after 0xFF; 0 where it does not end with the
   marker that belongs there. */
static int
fill(const Decoder *d, Stream *s)
{
    for (int i = 0; i < d->count; i++) /* what a chunk adds is less than 2^30 */
        if (s->predictions[i] > 1 << 30 || s->predictions[i] < -(1 << 30))
            return 0;
    ptrdiff_t left = larger(s->end - s->at.next, 0);
    memmove(s->chunk, s->at.next, (size_t)left);
    uint8_t *to = s->chunk + left, *room = s->chunk + CHUNK;
    const uint8_t *from = s->from;
    s->at.next = s->chunk;
    while (to < room && !s->ended) {
        size_t count = kernels->copy_run(to, from, (size_t)(room - to), d->stop);
        to += count;
        from += count;
        if (to >= room)
            break;
        if (d->stop - from < 2)
            return 0;
        if (from[1]) {
            int last = !d->interval || (s->segment + 1) * d->interval >= d->rows * d->columns;
            if (from[1] != (last ? EOI : RST0 + (s->segment & 7)))
                return 0;
            s->ended = 1; /* damaged bits may go on for an MCU, in what was here before; then it is not taken */
        } else {
            *to++ = 0xFF;
            from += 2;
        }
    }
    s->from = from;
    s->end = to;
    return 1;
}

/* Goes to the beginning of a segment after the present one. */
static int
enter(const Decoder *d, Stream *s, ptrdiff_t segment)
{
    for (; s->segment < segment; s->segment++, s->ended = 0) {
        const uint8_t *marker = s->ended ? s->from : kernels->find_marker(s->from, d->stop);
        if (marker == NULL || marker[1] != RST0 + (s->segment & 7))
            return 0;
        s->from = marker + 2;
    }
    s->mcu = segment * d->interval;
    s->ended = 0;
    s->at = (Bits){0, 0, s->chunk};
    s->end = s->chunk;
    memset(s->predictions, 0, sizeof s->predictions);
    return fill(d, s);
}

INLINE void
refill(Bits *b)
{
#if defined(__GNUC__) || defined(__clang__)
    uint64_t word;
    memcpy(&word, b->next, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
#else
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word = word << 8 | b->next[i];
#endif
    b->bits |= word >> b->count;
    b->next += (63 - b->count) >> 3;
    b->count |= 56;
}

/* Returns where the byte begins that follows the last one of which a bit was taken. */
INLINE const uint8_t *
position(const Bits *b)
{
    return b->next - (b->count >> 3);
}

/* Returns the symbol of a code that is longer than those in the table. */
static Symbol
look_further(const Table *table, uint64_t bits)
{
    for (int length = LOOK + 1; length <= 16; length++) {
        int32_t code = (int32_t)(bits >> (64 - length));
        if (code < table->end[length])
            return table->symbols[(code + table->symbol[length]) & 255];
    }
    return 0;
}

/* Returns the value that follows a code (T.81, F.2.2.1: EXTEND), and goes on after it. */
INLINE int
take_value(Bits *b, Symbol symbol)
{
    int least = symbol >> 16, value = (int)(b->bits >> (-symbol & 63)) & -least;
    b->bits <<= symbol & 63;
    b->count -= symbol & 63;
    return value + (least & (2 * value + least) >> 31); /* no branch, which would be guessed wrong every other time */
}

/* Decodes the first coefficient; 0 where the bits are none of one. */
INLINE int
decode_first(Bits *b, int *prediction, const Table *dc)
{
    Symbol symbol = dc->look[b->bits >> (64 - LOOK)];
    if (UNLIKELY(!symbol) && !(symbol = look_further(dc, b->bits)))
        return 0;
    *prediction += take_value(b, symbol);
    return 1;
}

/* Decodes the coefficients of a block from index k on, which were zeros, or past them where they are not wanted. Returns
   the index after the last coefficient in zigzag order, 0 where the bits are none of a block. */
INLINE int
decode_others(Bits *b, const Table *ac, int16_t *block, int k, int wanted)
{
    while (k < 64) {
        refill(b); /* is enough for two */
        for (int i = 0; i < 2; i++) {
            Symbol symbol = ac->look[b->bits >> (64 - LOOK)];
            if (UNLIKELY(symbol >= 0)) {
                if (!symbol && !(symbol = look_further(ac, b->bits)))
                    return 0;
                if (symbol >= 0) {
                    take_value(b, symbol);
                    if (!(symbol >> 8))
                        return k;
                    k += 16; /* zeros */
                    if (k > 63)
                        return 0;
                    continue;
                }
            }
            k += symbol >> 8 & 0xFF;
            int value = take_value(b, symbol);
            if (wanted)
                block[zigzag[k]] = (int16_t)value;
            if (++k > 63)
                return k == 64 ? k : 0;
        }
    }
    return k == 64 ? k : 0;
}

/* Decodes the next coefficient of both streams, where both are ordinary ones; tells whether there may be more such. */
INLINE int
take_of_both(Bits *a, Bits *b, const Table *ac, int16_t *block, int16_t *other, int *k, int *l)
{
    Symbol symbol = ac->look[a->bits >> (64 - LOOK)], another = ac->look[b->bits >> (64 - LOOK)];
    if (UNLIKELY((symbol & another) >= 0))
        return 0;
    *k += symbol >> 8 & 0xFF;
    *l += another >> 8 & 0xFF;
    block[zigzag[(*k)++]] = (int16_t)take_value(a, symbol);
    other[zigzag[(*l)++]] = (int16_t)take_value(b, another);
    return (*k | *l) <= 63;
}

/* Decodes a block of each of two streams, as decode_others does. Where a code ends must be known before the next one can be
   looked at; while the processor waits for that in one stream, it goes on in the other. */
INLINE void
decode_both(Bits *first, Bits *second, const Table *ac, int16_t *block, int16_t *other, int ends[2])
{
    Bits a = *first, b = *second;
    int k = 1, l = 1;
    do { /* what is at hand is enough for two */
        refill(&a);
        refill(&b);
    } while (take_of_both(&a, &b, ac, block, other, &k, &l) && take_of_both(&a, &b, ac, block, other, &k, &l));
    ends[0] = decode_others(&a, ac, block, k, 1);
    ends[1] = decode_others(&b, ac, other, l, 1);
    *first = a;
    *second = b;
}

typedef struct { /* a block of each MCU */
    const Table *dc, *ac;
    int component;
    const int16_t *quantum;
    uint8_t *to; /* the samples of the next MCU's */
    ptrdiff_t stride, step;
} Block;

enum { MOST_WAITING = 2 * BLOCKS };

typedef struct { /* blocks that were decoded and not yet transformed */
    _Alignas(64) int16_t coefficients[MOST_WAITING][64]; /* all but the first of each are zeros, where nothing waits */
    Coded blocks[MOST_WAITING];
    int count, used; /* of the blocks; of the room for coefficients */
} Waiting;

/* Lays out the blocks of the wanted MCUs of a row; returns how many an MCU has. */
static int
lay_out_blocks(Decoder *d, Block *block, ptrdiff_t row)
{
    Block *first = block;
    for (Component *c = d->components; c < d->components + d->count; c++) {
        for (ptrdiff_t y = 0; y < c->down; y++) {
            for (ptrdiff_t x = 0; x < c->across; x++, block++) {
                uint8_t *to = samples_of(c, (row * c->down + y) * 8) + x * 8;
                *block = (Block){c->dc, c->ac, (int)(c - d->components), c->quantum, to, c->stride, 8 * c->across};
            }
        }
    }
    return (int)(block - first);
}

static void
fill_block(int dc, uint8_t *to, ptrdiff_t stride)
{
    int sample = (((int16_t)(dc * 4) + 16) >> 5) + 128; /* what the transform gives of a block without other coefficients */
    sample = sample < 0 ? 0 : sample > 255 ? 255 : sample;
    for (int row = 0; row < 8; row++, to += stride)
        memset(to, sample, 8);
}

static void
transform_waiting(Waiting *waiting)
{
    kernels->transform(waiting->blocks, waiting->count);
    waiting->count = waiting->used = 0;
}

/* Makes room for the coefficients of so many blocks. First come the bits of some MCUs, then their samples: the processor
   loads slowly in wide pieces what it has just stored in small ones. */
INLINE void
make_room(Waiting *waiting, int count)
{
    if (waiting->used + count > MOST_WAITING)
        transform_waiting(waiting);
}

/* Lets a block wait, or makes its samples at once where that is easy, and goes to that of the next MCU. */
INLINE void
take_block(Waiting *waiting, Block *block, int16_t *coefficients, int end)
{
    if (end > 1)
        waiting->blocks[waiting->count++] = (Coded){coefficients, block->quantum, block->to, block->stride};
    else
        fill_block(coefficients[0] * block->quantum[0], block->to, block->stride);
    block->to += block->step;
}

/* Sees to it that the bytes of an MCU are at hand. */
INLINE int
provide(const Decoder *d, Stream *s, Bits *bits)
{
    if (UNLIKELY(s->end - bits->next < MCU_BYTES && !s->ended)) {
        s->at = *bits;
        if (!fill(d, s))
            return 0;
        *bits = s->at;
    }
    return 1;
}

/* Decodes MCUs up to `stop`, which is not beyond the segment's end; leaves out those that nobody is `waiting` for. */
INLINE int
decode_mcus(const Decoder *d, Stream *s, Block *blocks, int count, ptrdiff_t stop, Waiting *waiting)
{
    Bits bits = s->at;
    int16_t *coefficients = NULL;
    for (; s->mcu < stop; s->mcu++) {
        if (!provide(d, s, &bits))
            return 0;
        if (waiting != NULL)
            make_room(waiting, count);
        for (Block *block = blocks; block < blocks + count; block++) {
            refill(&bits);
            if (UNLIKELY(!decode_first(&bits, &s->predictions[block->component], block->dc)))
                return 0;
            if (waiting != NULL) {
                coefficients = waiting->coefficients[waiting->used++];
                coefficients[0] = (int16_t)s->predictions[block->component];
            }
            int end = decode_others(&bits, block->ac, coefficients, 1, waiting != NULL);
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

/* Decodes MCUs up to `stop`, and as many of another stream, whose blocks are `others`. */
INLINE int
decode_mcus_of_both(const Decoder *d, Stream *s, Stream *t, Block *blocks, Block *others, int count, ptrdiff_t stop,
                    Waiting *waiting)
{
    Bits a = s->at, b = t->at;
    for (; s->mcu < stop; s->mcu++, t->mcu++) {
        if (!provide(d, s, &a) || !provide(d, t, &b))
            return 0;
        make_room(waiting, 2 * count);
        for (int i = 0; i < count; i++) {
            int component = blocks[i].component, ends[2];
            refill(&a);
            refill(&b);
            if (UNLIKELY(!decode_first(&a, &s->predictions[component], blocks[i].dc)
                         || !decode_first(&b, &t->predictions[component], blocks[i].dc)))
                return 0;
            int16_t *block = waiting->coefficients[waiting->used++], *other = waiting->coefficients[waiting->used++];
            block[0] = (int16_t)s->predictions[component];
            other[0] = (int16_t)t->predictions[component];
            decode_both(&a, &b, blocks[i].ac, block, other, ends);
            if (UNLIKELY(!ends[0] || !ends[1]))
                return 0;
            take_block(waiting, &blocks[i], block, ends[0]);
            take_block(waiting, &others[i], other, ends[1]);
        }
        if (UNLIKELY((s->ended && position(&a) > s->end) || (t->ended && position(&b) > t->end)))
            return 0;
    }
    s->at = a;
    t->at = b;
    return 1;
}

/* Returns the MCU after the last one of a segment. The last segment of all may have fewer than the others. */
INLINE ptrdiff_t
end_of_segment(const Decoder *d, const Stream *s)
{
    const ptrdiff_t all = d->rows * d->columns;
    return d->interval ? smaller((s->segment + 1) * d->interval, all) : all;
}

/* Tells whether nothing is left over of a segment, where its MCUs were all decoded. */
INLINE int
is_used_up(const Decoder *d, const Stream *s)
{
    return s->mcu < end_of_segment(d, s) || position(&s->at) == s->end;
}

/* Goes to an MCU of this or a later segment. */
INLINE int
go_to(const Decoder *d, Stream *s, ptrdiff_t mcu, Block *blocks, int count)
{
    ptrdiff_t segment = d->interval ? mcu / d->interval : 0;
    if (segment != s->segment && (!is_used_up(d, s) || !enter(d, s, segment)))
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
            if (mcu == first) { /* it goes on from there */
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
    /* After the last MCU of all, no bytes may be left over either: what libjpeg says of them depends on what they are. */
    if (rows == 2)
        d->current = 1 - d->current;
    return is_used_up(d, s) && (rows == 1 || is_used_up(d, t));
}

int
begin_scan(Decoder *d)
{
    Stream *s = &d->streams[0];
    d->current = 0;
    s->from = d->from;
    s->segment = 0;
    s->ended = 0;
    return enter(d, s, 0);
}

int
rows_go_together(const Decoder *d)
{
    return d->interval && d->columns % d->interval == 0;
}

static int
decode_rows_plain(Decoder *d, const Window *window, ptrdiff_t row, int rows)
{
    return decode_rows_with(d, window, row, rows);
}

#if HAS_AVX2
AVX2 static int
decode_rows_avx2(Decoder *d, const Window *window, ptrdiff_t row, int rows) /* what counts here is BMI2's shifts */
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
