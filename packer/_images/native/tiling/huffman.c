/* Implements huffman.h: builds Huffman codes for reading, and optimal ones for writing. */

#include "tiling/huffman.h"

enum { SYMBOLS = 256, LONGEST = 16 };

/* Returns the entry of a code of `length` bits for this symbol. */
static Entry
entry_of(int length, int symbol)
{
    int size = symbol & 15, is_end = symbol == 0, is_zeros = symbol == 0xF0;
    Entry skip = is_end ? AT_END : (symbol >> 4) + 1;
    Entry entry = skip << SKIP | symbol << SYMBOL | size << SIZE | (length + size);
    return size > 10 || (!size && !is_end && !is_zeros) ? entry | INT32_MIN : entry;
}

void
prepare_code(Code *code, const uint8_t *table)
{
    const uint8_t *symbol = table + 16;
    int32_t rank = 0, end = 0;
    Entry *look = code->look;
    code->end[0] = code->before[0] = 0;
    for (int length = 1; length <= LONGEST; length++) {
        code->before[length] = rank;
        for (int i = 0; i < table[length - 1]; i++, symbol++) {
            Entry entry = entry_of(length, *symbol);
            code->entries[rank++] = entry;
            end += 1 << (LONGEST - length);
            if (length <= LOOK)
                for (const Entry *stop = code->look + (end >> (LONGEST - LOOK)); look < stop; look++)
                    *look = entry;
        }
        code->end[length] = end;
    }
    for (; look < code->look + (1 << LOOK); look++)
        *look = 0;
}

Entry
look_further(const Code *code, uint64_t bits)
{
    int32_t next = (int32_t)(bits >> 48);
    for (int length = LOOK + 1; length <= LONGEST; length++)
        if (next < code->end[length])
            return code->entries[code->before[length] + ((next - code->end[length - 1]) >> (LONGEST - length))];
    return 0;
}

/* Inserts a key into keys that are sorted, the largest first. */
static void
insert(uint64_t *keys, int count, uint64_t key)
{
    for (; count > 0 && keys[count - 1] < key; count--)
        keys[count] = keys[count - 1];
    keys[count] = key;
}

/* Finds the lengths of the symbols' codes in Huffman's tree. There must be two symbols or more. */
static void
find_lengths(const uint32_t *frequencies, int count, int *lengths)
{
    /* A key stands for a tree: how often its symbols occur, above LAST minus the index of one of them. So among trees
       that occur equally often, the one of the last symbol is the least. */
    enum { BITS = 9, LAST = (1 << BITS) - 1 };
    uint64_t keys[SYMBOLS + 1] = {0};
    int root[SYMBOLS + 1] = {0}, parent[2 * SYMBOLS + 1] = {0}, depth[2 * SYMBOLS + 1] = {0}, nodes = 0;
    for (; nodes < count; nodes++) {
        insert(keys, nodes, (uint64_t)frequencies[nodes] << BITS | (uint64_t)(LAST - nodes));
        root[nodes] = nodes;
    }
    for (int trees = count - 1; trees > 0; trees--) {
        uint64_t least = keys[trees], second = keys[trees - 1];
        int symbol = LAST - (int)(least & LAST), other = LAST - (int)(second & LAST);
        parent[root[symbol]] = parent[root[other]] = nodes;
        root[symbol] = nodes++;
        insert(keys, trees - 1, least + (second >> BITS << BITS));
    }
    depth[--nodes] = 0;
    while (--nodes >= 0)
        depth[nodes] = depth[parent[nodes]] + 1;
    memcpy(lengths, depth, (size_t)count * sizeof *lengths);
}

/* Shortens codes of more than 16 bits (T.81, figure K.3); `number` is the number of codes of each length. */
static void
shorten(int *number)
{
    for (int length = SYMBOLS; length > LONGEST; length--) {
        /* One of two codes becomes a bit shorter, the other one shares the prefix of a shorter code. */
        while (number[length] > 0) {
            int shorter = length - 2;
            while (number[shorter] == 0)
                shorter--;
            number[length] -= 2;
            number[length - 1]++;
            number[shorter + 1] += 2;
            number[shorter]--;
        }
    }
}

int
find_best_code(const uint32_t *counts, uint8_t *lengths, uint8_t *symbols)
{
    uint32_t frequencies[SYMBOLS + 1];
    uint8_t occurring[SYMBOLS];
    int length_of[SYMBOLS + 1], number[SYMBOLS + 1] = {0}, place[SYMBOLS + 1], real = 0;
    for (int symbol = 0; symbol < SYMBOLS; symbol++) {
        if (counts[symbol]) {
            frequencies[real] = counts[symbol];
            occurring[real++] = (uint8_t)symbol;
        }
    }
    if (!real)
        return 0;
    frequencies[real] = 1; /* one more symbol gets the longest code, and is removed at the end, so that no code is all ones */
    find_lengths(frequencies, real + 1, length_of);
    for (int i = 0; i < real; i++)
        number[length_of[i]]++;
    for (int length = 1, before = 0; length <= SYMBOLS; before += number[length++])
        place[length] = before;
    for (int i = 0; i < real; i++)
        symbols[place[length_of[i]]++] = occurring[i];
    number[length_of[real]]++;
    shorten(number);
    int longest = LONGEST;
    while (number[longest] == 0)
        longest--;
    number[longest]--;
    for (int length = 1; length <= LONGEST; length++)
        lengths[length - 1] = (uint8_t)number[length];
    return real;
}
