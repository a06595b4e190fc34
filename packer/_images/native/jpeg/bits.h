/* Reads the bits of scans, mostly by the codes of Huffman tables. */

#ifndef PACKER_BITS_H
#define PACKER_BITS_H

#include "compilers.h"
#include "jpeg/jpeg.h"

/* Brings bits: 56 or more are counted, and all 64 are those of the scan. So where no more than twice a code and a value were
   taken since, the table can be looked into before the next refill, and the processor does both at once. */
INLINE void
refill(Bits *b)
{
    b->bits |= next_bits(b->next) >> (b->count & 63);
    b->next += ~b->count >> 3 & 7;
    b->count |= 56;
}

/* Returns where the byte begins that follows the last one of which a bit was taken. */
INLINE const uint8_t *
position(const Bits *b)
{
    return b->next - (b->count >> 3 & 7);
}

/* Returns the symbol of a code that does not stand in the table with the sign of its value. How long such a code is, a
   processor cannot predict; so that is counted without a branch. */
static inline Symbol
look_further(const Table *table, uint64_t bits)
{
    const uint32_t next = (uint32_t)(bits >> (64 - LENGTHS));
    unsigned length = LOOK;
    for (int shorter = LOOK; shorter < LENGTHS; shorter++)
        length += next >= table->end[shorter];
    if (next >= table->end[LENGTHS])
        return 0;
    const int32_t code = (int32_t)(next >> (LENGTHS - length));
    const Symbol symbol = table->symbols[(code + table->symbol[length]) & 255];
    const unsigned is_positive = bits >> (63 - length) & 1;
    return symbol + ((is_positive << ((symbol & 63) - length)) - is_positive) * 0x10000;
}

/* Returns the symbol of the next code; 0 where the bits are none. */
INLINE Symbol
next_symbol(const Bits *b, const Table *table)
{
    Symbol symbol = table->look[b->bits >> (64 - LOOK)];
    return UNLIKELY(!symbol) ? look_further(table, b->bits) : symbol;
}

/* Goes past as many bits as the lowest 6 bits of `count` say, which are at hand. */
INLINE void
skip_bits(Bits *b, unsigned count)
{
    b->bits <<= count & 63;
    b->count -= count;
}

/* Returns the value that follows a code (T.81, F.2.2.1: EXTEND), and goes on after it. */
INLINE int
take_value(Bits *b, Symbol symbol)
{
    int value = (int16_t)((uint32_t)(b->bits >> ((64 - symbol) & 63)) + (symbol >> 16));
    skip_bits(b, symbol);
    return value;
}

/* Decodes the first coefficient, and brings bits for one more; 0 where the bits are none of one. */
INLINE int
decode_first(Bits *b, int *prediction, const Table *dc)
{
    Symbol symbol = dc->look[b->bits >> (64 - LOOK)];
    refill(b);
    if (UNLIKELY(!symbol) && !(symbol = look_further(dc, b->bits)))
        return 0;
    *prediction += take_value(b, symbol);
    return 1;
}

/* Sees to it that the bytes of an MCU of so many blocks are at hand. */
INLINE int
provide(const Decoder *d, Stream *s, Bits *bits, int blocks)
{
    if (UNLIKELY(s->end - bits->next < blocks * BLOCK_BYTES + BEYOND && !s->ended)) {
        s->at = *bits;
        if (!fill(d, s))
            return 0;
        *bits = s->at;
    }
    return 1;
}

/* Returns the MCU after the last one of a segment. The last segment of all may have fewer than the others. */
INLINE ptrdiff_t
end_of_segment(const Decoder *d, const Stream *s)
{
    return d->interval ? smaller((s->segment + 1) * d->interval, d->mcus) : d->mcus;
}

/* Tells whether nothing is left over of a segment, where its MCUs were all decoded. */
INLINE int
is_used_up(const Decoder *d, const Stream *s)
{
    return s->mcu < end_of_segment(d, s) || position(&s->at) == s->end;
}

#endif
