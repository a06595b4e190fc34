/* Builds the decoding tables of Huffman codes (ITU-T T.81, annex C). */

#include "compilers.h"
#include "jpeg/jpeg.h"
#include "kernels/vectorised.h"

#include <string.h>

/* Adds a code of `length` bits that is followed by a value of `bits` bits. */
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
        table->end[length] = (uint32_t)code << (LENGTHS - length);
    }
    memcpy(table->says, says, (size_t)size);
    table->size = size;
    return 1;
}

/* Computes the step for each index: its lower half, then its upper half. Without branches, so that compilers vectorise
   the loop: most images have tables of their own. */
INLINE void
prepare_body(const Symbol *restrict looks, uint32_t *restrict words)
{
    for (uint32_t look = 0; look < 1 << LOOK; look++) {
        const Symbol symbol = looks[look];
        const uint32_t bits = symbol & 63, run = symbol >> RUN & 15, has_value = 0 - (uint32_t)((symbol & HAS_VALUE) != 0);
        /* The symbol after the first coefficient, if the index contains its code and the first bit of its value. Runs of
           16 zeros are left out: they are rare, and must not end a block. */
        const Symbol next = looks[look << (bits & 31) & ((1 << LOOK) - 1)];
        const uint32_t next_bits = next & 63, next_run = next >> RUN & 15, size = next >> SIZE & 15;
        const uint32_t is_value = 0 - (uint32_t)(size != 0), shown = bits + next_bits - size - is_value;
        const uint32_t hidden = (0 - (uint32_t)(next == 0)) | (~is_value & next_run) | (0 - (uint32_t)(shown > LOOK));
        const uint32_t two = has_value & (0 - (uint32_t)(hidden == 0));
        /* A single coefficient is stored like the last of two. A symbol without a value ends the block, is a run of 16
           zeros, or is no code. */
        const uint32_t ends = 0 - (uint32_t)((symbol != 0) & (run == 0)), alone = (ends & AT_END) | (~ends & SINGLY);
        const uint32_t onward = (has_value & (run + 1)) | (~has_value & alone);
        const uint32_t further = (is_value & (next_run + 1)) | (~is_value & AT_END);
        const uint32_t before = look >> ((LOOK - bits) & 31), first = (before + (symbol >> 16)) & 0xFFFF;
        const uint32_t last = (next >> 16) - (before << (next_bits & 31));
        words[2 * look] = (bits + (two & next_bits)) | (onward + (two & further)) << ONWARD | (two & run) << ZEROS;
        words[2 * look + 1] = (two & first) | ((two & last) | (~two & has_value & symbol >> 16)) << 16;
    }
}

VECTORISED(prepare_all, prepare_body, (const Symbol *restrict looks, uint32_t *restrict words), (looks, words))

void
prepare_steps(Table *ac)
{
    if (ac->has_steps)
        return;
    prepare_all(ac->look, ac->words);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    for (int look = 0; look < 1 << LOOK; look++)
        ac->steps[look] = ac->words[2 * look] | (Step)ac->words[2 * look + 1] << 32;
#endif
    ac->has_steps = 1;
}
