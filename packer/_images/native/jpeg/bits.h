/* Reads the bits of scans, mostly by the codes of Huffman tables. */

#ifndef PACKER_BITS_H
#define PACKER_BITS_H

#include "compilers.h"
#include "jpeg/jpeg.h"

/* Fills the bit buffer. At least 56 bits are counted, but all 64 are bits of the scan. So if at most two codes with
   their values were taken since, a table can be looked up before the next refill, and the processor does both in
   parallel. */
INLINE void
refill(Bits *b)
{
    b->bits |= next_bits(b->next) >> (b->count & 63);
    b->next += ~b->count >> 3 & 7;
    b->count |= 56;
}

/* Returns the position after the last byte of which a bit was taken. */
INLINE const uint8_t *
position(const Bits *b)
{
    return b->next - (b->count >> 3 & 7);
}

/* Returns the symbol of a code that is too long for the table `look`, which also needs the sign of the value; 0 if the
   bits are no code. A processor cannot predict the length of such a code, so it is counted without a branch. */
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

/* Returns the symbol of the next code; 0 if the bits are no code. */
INLINE Symbol
next_symbol(const Bits *b, const Table *table)
{
    Symbol symbol = table->look[b->bits >> (64 - LOOK)];
    return UNLIKELY(!symbol) ? look_further(table, b->bits) : symbol;
}

/* Skips as many bits as the lowest 6 bits of `count` say. The bits must be in the buffer. */
INLINE void
skip_bits(Bits *b, unsigned count)
{
    b->bits <<= count & 63;
    b->count -= count;
}

/* Takes a code and the value after it, and returns the value (T.81, F.2.2.1: EXTEND). */
INLINE int
take_value(Bits *b, Symbol symbol)
{
    int value = (int16_t)((uint32_t)(b->bits >> ((64 - symbol) & 63)) + (symbol >> 16));
    skip_bits(b, symbol);
    return value;
}

/* Decodes the first coefficient of a block, and refills the buffer so that it has the bits of one more coefficient.
   Returns 0 if the bits are invalid. */
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

/* Makes sure that the chunk has the bytes of an MCU of `blocks` blocks, or the rest of the segment. Returns 0 if the
   segment is damaged. */
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

/* Returns the MCU after the last one of a segment. The last segment may be shorter than the others. */
INLINE ptrdiff_t
end_of_segment(const Decoder *d, const Stream *s)
{
    return d->interval ? smaller((s->segment + 1) * d->interval, d->mcus) : d->mcus;
}

/* Returns 0 if all MCUs of a segment were decoded, and bytes are left over. */
INLINE int
is_used_up(const Decoder *d, const Stream *s)
{
    return s->mcu < end_of_segment(d, s) || position(&s->at) == s->end;
}

#endif
