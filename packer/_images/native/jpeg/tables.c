/* Prepares Huffman codes for being decoded (ITU-T T.81, annex C). */

#include "compilers.h"
#include "jpeg/jpeg.h"

#include <string.h>

/* Adds a code of `length` bits, after which a value of `bits` bits follows. */
static void
add_code(Table *table, int32_t index, uint32_t code, int length, uint32_t run, int bits)
{
    const Symbol greatest = ((Symbol)1 << bits) - 1, size = (Symbol)bits << SIZE;
    const Symbol symbol = (0 - (code << bits) - greatest) << 16 | size | run << RUN | (Symbol)(length + bits);
    table->symbols[index] = symbol;
    if (length + (bits > 0) > LOOK)
        return;
    Symbol *look = table->look + (code << (LOOK - length));
    const int places = 1 << (LOOK - length);
    for (int i = 0; i < places; i++)
        look[i] = symbol;
    for (int i = places / 2; i < places; i++) /* a value that begins with 1 is positive */
        look[i] = symbol + (greatest << 16);
}

int
prepare_table(Table *table, const uint8_t *says, int size, int is_ac)
{
    const uint8_t *symbols = says + LENGTHS;
    int32_t code = 0, index = 0;
    memset(table->look, 0, sizeof table->look);
    table->has_runs = table->has_steps = 0;
    table->size = 0;
    for (int length = 1; length <= LENGTHS; length++, code <<= 1) {
        int32_t count = says[length - 1];
        if (code + count >= 1 << length)
            return 0;
        table->symbol[length] = index - code;
        for (int32_t last = index + count; index < last; index++, code++) {
            int run = symbols[index] >> 4, bits = symbols[index] & 15;
            if (is_ac ? bits > 10 : run || bits > 11)
                return 0;
            table->has_runs |= is_ac && !bits && run && run != 15;
            add_code(table, index, (uint32_t)code, length, (uint32_t)run, bits);
        }
        table->end[length] = code;
    }
    memcpy(table->says, says, (size_t)size);
    table->size = size;
    return 1;
}

/* Returns the step of a single coefficient. */
INLINE Step
single_step(Symbol symbol)
{
    return (Step){
        .bits = symbol & 63, .onward = (uint8_t)((symbol >> RUN & 15) + 1), .adder = (uint16_t)(symbol >> 16),
    };
}

/* Returns the step of a coefficient and of what comes after it, of which the bits of a look show enough. */
INLINE Step
double_step(unsigned look, Symbol symbol, Symbol next)
{
    const unsigned bits = symbol & 63, run = symbol >> RUN & 15, next_bits = next & 63, next_run = next >> RUN & 15;
    const unsigned before = look >> (LOOK - bits);
    return (Step){
        .bits = (uint8_t)(bits + next_bits), .onward = (uint8_t)(run + 1 + (next & HAS_VALUE ? next_run + 1 : AT_END)),
        .run = (uint8_t)run, .first = (int16_t)(before + (symbol >> 16)),
        .adder = (uint16_t)((next >> 16) - (before << next_bits)),
    };
}

INLINE Step
step_of(const Table *ac, unsigned look)
{
    const Symbol symbol = ac->look[look];
    const unsigned bits = symbol & 63;
    if (!(symbol & HAS_VALUE)) /* zeros without a value after them are rare, and may not be the last of a block */
        return (Step){.bits = (uint8_t)bits, .onward = symbol && !(symbol >> RUN & 15) ? AT_END : SINGLY};
    const Symbol next = ac->look[look << bits & ((1 << LOOK) - 1)];
    const unsigned size = next >> SIZE & 15, code = (next & 63) - size, is_zeros = !size && next >> RUN & 15;
    /* Its code is to be seen, and the first bit of its value. */
    return !next || is_zeros || bits + code + (size > 0) > LOOK ? single_step(symbol) : double_step(look, symbol, next);
}

void
prepare_steps(Table *ac)
{
    for (unsigned look = 0; look < 1 << LOOK && !ac->has_steps; look++)
        ac->steps[look] = step_of(ac, look);
    ac->has_steps = 1;
}
