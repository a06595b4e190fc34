/* Bytes that zlib deflated (RFC 1950 and 1951), for the PNGs of masks: long runs, which are copied run by run, and of which the
   first part is enough. Whatever zlib would complain about is left to zlib. */

#include "arguments.h"
#include "compilers.h"
#include "native.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LONGEST = 15, QUICK = 10, LITERALS = 286, DISTANCES = 30, LENGTHS = 19, END = 256 };

typedef struct { /* the input, and its next `count` bits or more, the lowest first; behind the input stand zeros */
    const uint8_t *at, *end;
    uint64_t bits;
    unsigned count, beyond; /* bits of those zeros */
} Bits;

typedef struct { /* a Huffman code */
    uint16_t quick[1 << QUICK]; /* by the next bits: the symbol and the length of its code; 0 where that is longer */
    uint16_t counts[LONGEST + 1]; /* of codes of each length */
    uint16_t symbols[LITERALS + 2]; /* by their codes */
} Code;

typedef struct {
    Bits in;
    uint8_t *begin, *at, *end; /* the output */
    int whole;                 /* whether the input must end where the output does */
    Code literals, distances;
} Inflating;

typedef enum { DAMAGED, FULL, FINISHED } Outcome; /* of a block; FULL: more stands in it than there is room for */

static inline void
refill(Bits *in)
{
    if (in->end - in->at >= 8) {
        uint64_t word = 0;
        for (int k = 0; k < 8; k++)
            word |= (uint64_t)in->at[k] << 8 * k;
        in->bits |= word << in->count;
        in->at += (63 - in->count) >> 3;
        in->count |= 56;
        return;
    }
    for (; in->count <= 56; in->count += 8) {
        if (in->at < in->end)
            in->bits |= (uint64_t)*in->at++ << in->count;
        else
            in->beyond += 8;
    }
}

/* Tells whether more bits were taken than there are. */
static inline int
is_over(const Bits *in)
{
    return in->beyond > in->count;
}

/* Takes up to 32 bits that are there since the last refill. */
static inline unsigned
take(Bits *in, unsigned count)
{
    unsigned taken = (unsigned)(in->bits & (((uint64_t)1 << count) - 1));
    in->bits >>= count;
    in->count -= count;
    return taken;
}

static inline unsigned
reversed(unsigned code, unsigned length)
{
    unsigned turned = 0;
    for (; length > 0; length--, code >>= 1)
        turned = turned << 1 | (code & 1);
    return turned;
}

/* Sets a code by the lengths of its symbols' codes; 0 of a code that is none. One code alone, or none, is allowed where `few`. */
static int
code_set(Code *code, const uint8_t *lengths, unsigned symbols, int few)
{
    unsigned first[LONGEST + 2] = {0}, place[LONGEST + 2] = {0};
    memset(code->quick, 0, sizeof code->quick);
    memset(code->counts, 0, sizeof code->counts);
    for (unsigned symbol = 0; symbol < symbols; symbol++)
        code->counts[lengths[symbol]]++;
    unsigned used = symbols - code->counts[0];
    int left = 1;
    code->counts[0] = 0;
    for (unsigned length = 1; length <= LONGEST; length++) {
        left = 2 * left - code->counts[length];
        if (left < 0)
            return 0;
        first[length + 1] = (first[length] + code->counts[length]) << 1;
        place[length + 1] = place[length] + code->counts[length];
    }
    if (left > 0 && !(few && (used == 0 || (used == 1 && code->counts[1] == 1))))
        return 0;
    for (unsigned symbol = 0; symbol < symbols; symbol++) {
        unsigned length = lengths[symbol];
        if (length == 0)
            continue;
        code->symbols[place[length]++] = (uint16_t)symbol;
        unsigned at = reversed(first[length]++, length);
        for (; length <= QUICK && at < 1 << QUICK; at += 1u << length)
            code->quick[at] = (uint16_t)(symbol << 4 | length);
    }
    return 1;
}

/* Takes a symbol whose code is longer than QUICK, or is none: then -1. */
static int
take_slowly(Bits *in, const Code *code)
{
    int value = 0, first = 0, place = 0;
    for (unsigned length = 1; length <= LONGEST; length++) {
        value |= (int)(in->bits >> (length - 1) & 1);
        int count = code->counts[length];
        if (value - first < count) {
            take(in, length);
            return code->symbols[place + value - first];
        }
        place += count;
        first = (first + count) << 1;
        value <<= 1;
    }
    return -1;
}

static inline int
take_symbol(Bits *in, const Code *code)
{
    unsigned entry = code->quick[in->bits & ((1 << QUICK) - 1)];
    if (UNLIKELY(entry == 0))
        return take_slowly(in, code);
    take(in, entry & 15);
    return (int)(entry >> 4);
}

static int
set_fixed_codes(Inflating *state)
{
    uint8_t lengths[LITERALS + 2], five[DISTANCES + 2];
    memset(lengths, 8, sizeof lengths);
    memset(lengths + 144, 9, 112);
    memset(lengths + 256, 7, 24);
    memset(five, 5, sizeof five);
    return code_set(&state->literals, lengths, LITERALS + 2, 0) && code_set(&state->distances, five, DISTANCES + 2, 0);
}

/* Reads the codes of a block, whose lengths are themselves coded. */
static int
read_codes(Inflating *state)
{
    static const uint8_t order[LENGTHS] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    Bits *in = &state->in;
    uint8_t lengths[LITERALS + DISTANCES] = {0};
    refill(in);
    unsigned literals = 257 + take(in, 5), distances = 1 + take(in, 5), count = 4 + take(in, 4), number = 0;
    if (literals > LITERALS || distances > DISTANCES)
        return 0;
    for (unsigned k = 0; k < count; k++) {
        refill(in);
        lengths[order[k]] = (uint8_t)take(in, 3);
    }
    if (!code_set(&state->distances, lengths, LENGTHS, 0))
        return 0;
    memset(lengths, 0, sizeof lengths);
    while (number < literals + distances) {
        refill(in);
        int symbol = take_symbol(in, &state->distances);
        if (symbol < 0 || is_over(in))
            return 0;
        if (symbol < 16) {
            lengths[number++] = (uint8_t)symbol;
            continue;
        }
        unsigned times = symbol == 16 ? 3 + take(in, 2) : symbol == 17 ? 3 + take(in, 3) : 11 + take(in, 7);
        if ((symbol == 16 && number == 0) || times > literals + distances - number)
            return 0;
        memset(lengths + number, symbol == 16 ? lengths[number - 1] : 0, times);
        number += times;
    }
    return lengths[END] != 0 && code_set(&state->literals, lengths, literals, 1)
        && code_set(&state->distances, lengths + literals, distances, 1);
}

/* Copies `length` bytes, for which there is room, from `distance` before, over and over where these are fewer. */
static inline void
copy_back(uint8_t *to, size_t distance, size_t length)
{
    if (distance == 1) {
        memset(to, to[-1], length);
        return;
    }
    for (; length > distance; to += distance, length -= distance)
        memcpy(to, to - distance, distance);
    memcpy(to, to - distance, length);
}

static Outcome
inflate_block(Inflating *state)
{
    static const uint16_t lengths[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                         31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t more[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static const uint16_t distances[30] = {1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
                                           193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    Bits *in = &state->in;
    for (;;) {
        if (state->at == state->end && !state->whole)
            return FULL;
        refill(in);
        int symbol = take_symbol(in, &state->literals);
        if (symbol < 0 || is_over(in))
            return DAMAGED;
        if (symbol == END)
            return FINISHED;
        if (state->at == state->end)
            return FULL;
        if (symbol < END) {
            *state->at++ = (uint8_t)symbol;
            continue;
        }
        if (symbol - 257 >= 29)
            return DAMAGED;
        size_t length = lengths[symbol - 257] + take(in, more[symbol - 257]), room = (size_t)(state->end - state->at);
        int far = take_symbol(in, &state->distances);
        if (far < 0 || far >= DISTANCES)
            return DAMAGED;
        size_t distance = distances[far] + take(in, far < 4 ? 0 : (unsigned)far / 2 - 1);
        if (is_over(in) || distance > (size_t)(state->at - state->begin))
            return DAMAGED;
        copy_back(state->at, distance, length < room ? length : room);
        if (length > room) {
            state->at = state->end;
            return FULL;
        }
        state->at += length;
    }
}

/* Copies a block that was not deflated. */
static Outcome
copy_block(Inflating *state)
{
    Bits *in = &state->in;
    take(in, in->count & 7);
    refill(in);
    unsigned size = take(in, 16), check = take(in, 16);
    if (is_over(in) || (size ^ check) != 0xFFFF)
        return DAMAGED;
    for (; size > 0 && in->count >= 8 && !is_over(in) && state->at < state->end; size--)
        *state->at++ = (uint8_t)take(in, 8);
    if (is_over(in))
        return DAMAGED;
    if (in->count == 0)
        in->bits = 0; /* of the byte that stands next */
    else if (size > 0)
        return state->at == state->end ? FULL : DAMAGED;
    size_t room = (size_t)(state->end - state->at), there = (size_t)(in->end - in->at), count = size;
    count = count < room ? count : room;
    if (count > there)
        return DAMAGED;
    if (count > 0)
        memcpy(state->at, in->at, count);
    state->at += count;
    in->at += count;
    return count < size ? FULL : FINISHED;
}

/* Returns zlib's checksum, Adler-32. */
static uint32_t
adler(const uint8_t *data, size_t size)
{
    enum { PRIME = 65521, MOST = 5552 }; /* bytes after which the sums still fit into 32 bits */
    uint32_t sum = 1, sums = 0;
    while (size > 0) {
        size_t count = size < MOST ? size : MOST;
        size -= count;
        for (; count > 0; count--) {
            sum += *data++;
            sums += sum;
        }
        sum %= PRIME;
        sums %= PRIME;
    }
    return sums << 16 | sum;
}

/* Inflates until the output is full; 0 where that is not possible. */
static int
inflate_all(Inflating *state)
{
    Bits *in = &state->in;
    refill(in);
    unsigned method = take(in, 8), flags = take(in, 8), last = 0;
    if ((method & 15) != 8 || method >> 4 > 7 || (method << 8 | flags) % 31 || flags & 0x20)
        return 0;
    while (!last) {
        refill(in);
        last = take(in, 1);
        unsigned kind = take(in, 2);
        if (is_over(in) || kind == 3 || (kind == 1 && !set_fixed_codes(state)) || (kind == 2 && !read_codes(state)))
            return 0;
        Outcome outcome = kind == 0 ? copy_block(state) : inflate_block(state);
        if (outcome == DAMAGED)
            return 0;
        if (!state->whole && state->at == state->end)
            return 1;
        if (outcome == FULL)
            return 0;
    }
    take(in, in->count & 7);
    refill(in);
    uint32_t checksum = 0;
    for (int k = 0; k < 4; k++)
        checksum = checksum << 8 | take(in, 8);
    return state->at == state->end && !is_over(in) && checksum == adler(state->begin, (size_t)(state->end - state->begin));
}

PyObject *
inflate(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    const uint8_t *data;
    Py_ssize_t size;
    int64_t n[3];
    if (!read_arguments(arguments, given, &data, &size, n, 3))
        return NULL;
    if (n[1] < 0) {
        PyErr_SetString(PyExc_ValueError, "the number of bytes is negative");
        return NULL;
    }
    Inflating *state = PyMem_Malloc(sizeof *state);
    if (state == NULL)
        return PyErr_NoMemory();
    uint8_t *out = (uint8_t *)(uintptr_t)n[0];
    state->in = (Bits){data, data + size, 0, 0, 0};
    state->begin = state->at = out;
    state->end = out + n[1];
    state->whole = n[2] != 0;
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = inflate_all(state);
    Py_END_ALLOW_THREADS
    PyMem_Free(state);
    return PyBool_FromLong(done);
}
