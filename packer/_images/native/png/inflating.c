/* Implements inflating.h.

   In photos nearly every symbol is a literal with a code of about six bits. So one table lookup yields two literals if
   both codes fit into its bits. Output follows the last 32 KiB, which matches refer to; when the memory is full, these
   move to its beginning. */

#include "compilers.h"
#include "png/inflating.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST = 15, LITERALS = 286, DISTANCES = 30, LENGTHS = 19, END = 256, FIXED = 288, FIXED_DISTANCES = 32 };
enum { LOOK = 11, LOOK_FAR = 9, LOOK_LENGTHS = 7 }; /* bits that index a table */
enum { TABLE = (1 << LOOK) + (LITERALS / 2 << (LONGEST - LOOK)), TABLE_FAR = (1 << LOOK_FAR) + (DISTANCES / 2 << (LONGEST - LOOK_FAR)) };
enum { HISTORY = 1 << 15, ROOM = 1 << 16, SLACK = 320 }; /* SLACK: more bytes than one iteration of the loop writes */
enum { MUCH = 1 << 12 }; /* bytes of input for which it is worthwhile to join literals in the table */
/* How often tables are filled at most: ALWAYS times, and once more for each BLOCK bytes of output. */
enum { ALWAYS = 1 << 10, BLOCK = 1 << 6 };

/* A table entry. The lowest byte is the number of bits of the code and of the extra bits of its value. Above it are one
   or two literals of a byte each; or the least value and the bits of the code alone; or for longer codes, the index of
   another table. */
typedef uint32_t Entry;
#define VALUE(entry) ((entry) >> 8 & 0x7FFF)
#define CODE_BITS(entry) ((entry) >> 23 & 15)
#define COUNT(entry) ((entry) >> 27 & 3) /* of literals */
enum { VALUE_AT = 8, SECOND_AT = 16, CODE_BITS_AT = 23, COUNT_AT = 27 };
#define LITERAL ((Entry)1 << COUNT_AT)
#define PAIR ((Entry)2 << COUNT_AT)
#define ANY_LITERAL (LITERAL | PAIR)
#define LONGER ((Entry)1 << 29)
#define STOP ((Entry)1 << 30)
#define NONE ((Entry)1 << 31) /* no code, or a code without a meaning */

typedef struct { /* the input, and at least its next `count` bits, the lowest first; zeros follow the input */
    const uint8_t *at, *end;
    uint64_t bits;
    unsigned count, beyond; /* bits of those zeros */
} Bits;

typedef enum { BETWEEN, CODED, STORED, ENDED, DAMAGED } Place; /* in the stream: BETWEEN blocks, or in one */

struct Inflating {
    Bits in;
    Place place;
    int last; /* whether no other block follows */
    unsigned stored; /* bytes that are left of a stored block */
    uint8_t *memory, *taken, *at, *stop; /* the output: handed out up to `taken`, inflated up to `at` */
    size_t size, moved; /* bytes of the memory; bytes of output that precede it */
    size_t filled;      /* how often the tables of a block were filled */
    int holds_fixed;    /* whether the tables are those of the fixed codes */
    int checked;
    uint32_t sum, sums; /* zlib's checksum, Adler-32, of the bytes that were handed out */
    Entry literals[TABLE], distances[TABLE_FAR], lengths[1 << LOOK_LENGTHS];
};

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
    for (; in->count < 56; in->count += 8) {
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

static inline void
drop(Bits *in, unsigned count)
{
    in->bits >>= count;
    in->count -= count;
}

/* Takes up to 32 bits, which must be in the buffer. */
static inline unsigned
take(Bits *in, unsigned count)
{
    unsigned taken = (unsigned)(in->bits & (((uint64_t)1 << count) - 1));
    drop(in, count);
    return taken;
}

static inline unsigned
low_bits(uint64_t bits, unsigned count)
{
    return (unsigned)bits & ((1u << count) - 1);
}

static inline unsigned
reversed(unsigned code, unsigned length)
{
    code = (code & 0x5555) << 1 | (code >> 1 & 0x5555);
    code = (code & 0x3333) << 2 | (code >> 2 & 0x3333);
    code = (code & 0x0F0F) << 4 | (code >> 4 & 0x0F0F);
    code = (code & 0x00FF) << 8 | (code >> 8 & 0x00FF);
    return code >> (16 - length);
}

/* Sorts symbols by the lengths of their codes, and counts the codes of each length. Returns 0 if the lengths are
   invalid. With `few`, a single code of one bit, or none, is allowed. `*whole` tells whether all codes are used. */
static int
sort_symbols(const uint8_t *lengths, unsigned symbols, int few, uint16_t *counts, uint16_t *sorted, int *whole)
{
    uint16_t place[LONGEST + 2] = {0};
    memset(counts, 0, (LONGEST + 1) * sizeof *counts);
    for (unsigned symbol = 0; symbol < symbols; symbol++)
        counts[lengths[symbol]]++;
    unsigned used = symbols - counts[0];
    int left = 1;
    counts[0] = 0;
    for (unsigned length = 1; length <= LONGEST; length++) {
        left = 2 * left - counts[length];
        if (left < 0)
            return 0;
        place[length + 1] = (uint16_t)(place[length] + counts[length]);
    }
    *whole = left == 0;
    if (left > 0 && !(few && (used == 0 || (used == 1 && counts[1] == 1))))
        return 0;
    for (unsigned symbol = 0; symbol < symbols; symbol++)
        if (lengths[symbol] > 0)
            sorted[place[lengths[symbol]]++] = (uint16_t)symbol;
    return 1;
}

/* Fills a table that `look` bits index, from the lengths of the symbols' codes. `meanings` are the entries of the
   symbols without their codes. Returns 0 as `sort_symbols` does. */
static int
fill_table(Entry *table, unsigned look, const uint8_t *lengths, unsigned symbols, int few, const Entry *meanings)
{
    uint16_t counts[LONGEST + 1], sorted[FIXED];
    int whole;
    if (!sort_symbols(lengths, symbols, few, counts, sorted, &whole))
        return 0;
    for (unsigned at = 0; !whole && at < 1u << look; at++)
        table[at] = NONE | 1;
    const uint16_t *symbol = sorted;
    /* `prefix`: the index of the table for longer codes that ends at `next` */
    unsigned code = 0, next = 1u << look, prefix = next;
    for (unsigned length = 1; length <= LONGEST; length++, code <<= 1)
        for (unsigned count = counts[length]; count > 0; count--, code++) {
            Entry entry = meanings[*symbol++] + (length | length << CODE_BITS_AT);
            unsigned at = reversed(code, length), end = 1u << look, step = 1u << length;
            if (length > look) {
                if (prefix != low_bits(at, look)) {
                    prefix = low_bits(at, look);
                    table[prefix] = LONGER | next << VALUE_AT;
                    next += 1u << (LONGEST - look);
                }
                at = next - (1u << (LONGEST - look)) + (at >> look);
                end = next;
                step >>= look;
            }
            for (; at < end; at += step)
                table[at] = entry;
        }
    return 1;
}

/* Joins two literals in one entry if both codes fit into the index. Starts at the end, because the second entry, which
   must not be joined yet, has a lower index. */
static void
join_literals(Entry *table)
{
    for (unsigned at = 1u << LOOK; at-- > 0;) {
        Entry first = table[at];
        if (!(first & LITERAL))
            continue;
        Entry second = table[at >> (first & 0xFF)];
        unsigned bits = (first & 0xFF) + (second & 0xFF);
        if ((second & LITERAL) && bits <= LOOK)
            table[at] = PAIR | (second & 0xFF00) << (SECOND_AT - VALUE_AT) | (first & 0xFF00) | bits;
    }
}

/* Fills the tables of a block's codes. Returns 0 if the codes are invalid, or the tables were filled too often. Filling
   them takes as long as inflating hundreds of bytes, and a block may be empty; so each time needs BLOCK bytes of output.
   Encoders write far larger blocks, unless they are told to end a block every few bytes. */
static int
set_codes(Inflating *s, const uint8_t *lengths, unsigned literals, unsigned distances, int few)
{
    static const uint16_t values[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                        31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    Entry meanings[FIXED], far[FIXED_DISTANCES];
    if (s->filled++ >= ALWAYS + (s->moved + (size_t)(s->at - s->memory)) / BLOCK)
        return 0;
    s->holds_fixed = 0;
    for (unsigned symbol = 0; symbol < END; symbol++)
        meanings[symbol] = LITERAL | symbol << VALUE_AT;
    meanings[END] = STOP;
    for (unsigned k = 0; k < 31; k++) /* the last two have no meaning, nor have the last two distances */
        meanings[END + 1 + k] = k < 29 ? (Entry)values[k] << VALUE_AT | (k < 8 || k == 28 ? 0 : k / 4 - 1) : NONE;
    for (unsigned k = 0; k < FIXED_DISTANCES; k++)
        far[k] = k < 4 ? (k + 1) << VALUE_AT : k < DISTANCES ? (((2 + (k & 1)) << (k / 2 - 1)) + 1) << VALUE_AT | (k / 2 - 1) : NONE;
    if (!fill_table(s->literals, LOOK, lengths, literals, few, meanings)
        || !fill_table(s->distances, LOOK_FAR, lengths + literals, distances, few, far))
        return 0;
    if (s->in.end - s->in.at > MUCH)
        join_literals(s->literals);
    return 1;
}

static int
set_fixed_codes(Inflating *s)
{
    uint8_t lengths[FIXED + FIXED_DISTANCES];
    if (s->holds_fixed)
        return 1;
    memset(lengths, 8, FIXED);
    memset(lengths + 144, 9, 112);
    memset(lengths + 256, 7, 24);
    memset(lengths + FIXED, 5, FIXED_DISTANCES);
    s->holds_fixed = set_codes(s, lengths, FIXED, FIXED_DISTANCES, 0);
    return s->holds_fixed;
}

/* Reads the codes of a block, whose lengths are themselves coded. */
static int
read_codes(Inflating *s)
{
    static const uint8_t order[LENGTHS] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    Bits *in = &s->in;
    uint8_t lengths[LITERALS + DISTANCES] = {0};
    Entry meanings[LENGTHS];
    refill(in);
    unsigned literals = 257 + take(in, 5), distances = 1 + take(in, 5), count = 4 + take(in, 4), number = 0;
    if (literals > LITERALS || distances > DISTANCES)
        return 0;
    for (unsigned k = 0; k < LENGTHS; k++)
        meanings[k] = k << VALUE_AT;
    for (unsigned k = 0; k < count; k++) {
        refill(in);
        lengths[order[k]] = (uint8_t)take(in, 3);
    }
    if (!fill_table(s->lengths, LOOK_LENGTHS, lengths, LENGTHS, 0, meanings))
        return 0;
    memset(lengths, 0, sizeof lengths);
    while (number < literals + distances) {
        refill(in);
        Entry entry = s->lengths[low_bits(in->bits, LOOK_LENGTHS)];
        unsigned symbol = VALUE(entry);
        drop(in, entry & 0xFF);
        if (is_over(in))
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
    return lengths[END] != 0 && set_codes(s, lengths, literals, distances, 1);
}

/* Copies `length` bytes from `distance` bytes before `to`; repeats them if `distance` is shorter. May write 15 more
   bytes. */
static inline void
copy_back(uint8_t *to, size_t distance, size_t length)
{
    const uint8_t *from = to - distance, *end = to + length;
    if (distance >= 16) {
        for (; to < end; to += 16, from += 16)
            memcpy(to, from, 16);
    } else if (distance == 1) {
        memset(to, *from, length);
    } else if (length <= 16) {
        while (to < end)
            *to++ = *from++;
    } else {
        for (size_t there = distance; to < end; there += there) { /* the bytes to copy from double each time */
            size_t count = there < (size_t)(end - to) ? there : (size_t)(end - to);
            memcpy(to, from, count);
            to += count;
        }
    }
}

/* Writes one literal or two. May write one more byte. */
static inline uint8_t *
put_literals(uint8_t *to, Entry entry)
{
    to[0] = (uint8_t)(entry >> VALUE_AT);
    to[1] = (uint8_t)(entry >> SECOND_AT);
    return to + COUNT(entry);
}

/* Takes a code and its extra bits, and returns the value. */
static inline size_t
take_value(Bits *in, Entry entry)
{
    size_t value = VALUE(entry) + (low_bits(in->bits, entry & 0xFF) >> CODE_BITS(entry));
    drop(in, entry & 0xFF);
    return value;
}

/* Inflates a block until it ends or there is no more room. */
static Place
inflate_codes(Inflating *s)
{
    Bits in = s->in; /* which the compiler keeps in registers */
    uint8_t *to = s->at;
    Place place = CODED;
    while (to < s->stop) {
        refill(&in);
        if (UNLIKELY(is_over(&in)))
            break;
        Entry entry = s->literals[low_bits(in.bits, LOOK)];
        int looks = 0;
        /* 56 bits are enough for three look-ups, or for two and a length of 20 bits. */
        for (; (entry & ANY_LITERAL) && looks < 3; looks++) {
            to = put_literals(to, entry);
            drop(&in, entry & 0xFF);
            entry = s->literals[low_bits(in.bits, LOOK)];
        }
        if (looks == 3)
            continue;
        if (entry & LONGER)
            entry = s->literals[VALUE(entry) + low_bits(in.bits >> LOOK, LONGEST - LOOK)];
        if (UNLIKELY(entry & (ANY_LITERAL | STOP | NONE))) {
            drop(&in, entry & 0xFF);
            if (entry & (STOP | NONE)) {
                place = entry & STOP ? BETWEEN : DAMAGED;
                break;
            }
            to = put_literals(to, entry);
            continue;
        }
        size_t length = take_value(&in, entry);
        refill(&in);
        entry = s->distances[low_bits(in.bits, LOOK_FAR)];
        if (entry & LONGER)
            entry = s->distances[VALUE(entry) + low_bits(in.bits >> LOOK_FAR, LONGEST - LOOK_FAR)];
        size_t distance = take_value(&in, entry);
        if (UNLIKELY((entry & NONE) || distance > (size_t)(to - s->memory))) {
            place = DAMAGED;
            break;
        }
        copy_back(to, distance, length);
        to += length;
    }
    s->in = in;
    s->at = to;
    return is_over(&in) ? DAMAGED : place;
}

/* Begins a stored block. Its size is at the next whole byte. */
static Place
begin_stored(Inflating *s)
{
    Bits *in = &s->in;
    take(in, in->count & 7);
    refill(in);
    unsigned size = take(in, 16), check = take(in, 16);
    if (is_over(in) || (size ^ check) != 0xFFFF)
        return DAMAGED;
    in->at -= (in->count - in->beyond) / 8;
    in->bits = in->count = in->beyond = 0;
    s->stored = size;
    return STORED;
}

static Place
copy_stored(Inflating *s)
{
    size_t room = (size_t)(s->stop - s->at), there = (size_t)(s->in.end - s->in.at), count = s->stored;
    count = count < room ? count : room;
    if (count > there)
        return DAMAGED;
    if (count > 0)
        memcpy(s->at, s->in.at, count);
    s->at += count;
    s->in.at += count;
    s->stored -= (unsigned)count;
    return s->stored > 0 ? STORED : BETWEEN;
}

static Place
begin_block(Inflating *s)
{
    Bits *in = &s->in;
    if (s->last)
        return ENDED;
    refill(in);
    s->last = (int)take(in, 1);
    unsigned kind = take(in, 2);
    if (is_over(in) || kind == 3 || (kind == 1 && !set_fixed_codes(s)) || (kind == 2 && !read_codes(s)))
        return DAMAGED;
    return kind == 0 ? begin_stored(s) : CODED;
}

/* Moves the bytes that are still needed to the beginning of the memory: those that were not handed out, and those that
   matches may refer to. */
static void
make_room(Inflating *s)
{
    uint8_t *kept = s->at - s->taken > HISTORY ? s->taken : s->at - HISTORY;
    ptrdiff_t distance = kept - s->memory;
    memmove(s->memory, kept, (size_t)(s->at - kept));
    s->taken -= distance;
    s->at -= distance;
    s->moved += (size_t)distance;
}

/* Begins a block, or continues it. */
static void
go_on(Inflating *s)
{
    if (s->at >= s->stop)
        make_room(s);
    switch (s->place) {
    case BETWEEN:
        s->place = begin_block(s);
        break;
    case CODED:
        s->place = inflate_codes(s);
        break;
    case STORED:
        s->place = copy_stored(s);
        break;
    case ENDED:
    case DAMAGED:
        break;
    }
}

/* Adds bytes to zlib's checksum, in sixteen separate sums, so that compilers vectorise the loop. */
static void
add_to_checksum(Inflating *s, const uint8_t *data, size_t size)
{
    enum { PRIME = 65521, BESIDE = 16, MOST = 5552 / BESIDE }; /* steps after which the sums still fit into 32 bits */
    while (size > 0) {
        uint32_t sum[BESIDE] = {0}, sums[BESIDE] = {0};
        size_t steps = size / BESIDE < MOST ? size / BESIDE : MOST;
        for (size_t step = 0; step < steps; step++, data += BESIDE)
            for (int k = 0; k < BESIDE; k++) {
                sum[k] += data[k];
                sums[k] += sum[k];
            }
        size -= steps * BESIDE;
        s->sums += (uint32_t)(steps * BESIDE % PRIME * s->sum % PRIME);
        for (uint32_t k = 0; k < BESIDE; k++) {
            s->sum += sum[k];
            s->sums += (BESIDE * (sums[k] % PRIME) + PRIME * BESIDE - k * (sum[k] % PRIME)) % PRIME;
        }
        for (; steps < MOST && size > 0; size--) { /* the last bytes */
            s->sum += *data++;
            s->sums += s->sum % PRIME;
        }
        s->sum %= PRIME;
        s->sums %= PRIME;
    }
}

Inflating *
inflating_new(void)
{
    return calloc(1, sizeof(Inflating));
}

void
inflating_free(Inflating *s)
{
    if (s != NULL)
        free(s->memory);
    free(s);
}

size_t
inflating_memory(const Inflating *s)
{
    return sizeof *s + s->size;
}

int
inflating_begin(Inflating *s, const uint8_t *data, size_t size, size_t most, int checked)
{
    size_t needed = HISTORY + ROOM + SLACK + most;
    if (s->size < needed) {
        free(s->memory);
        s->memory = malloc(needed);
        s->size = s->memory == NULL ? 0 : needed;
    }
    if (s->memory == NULL)
        return 0;
    s->at = s->taken = s->memory;
    s->stop = s->memory + s->size - SLACK;
    s->in = (Bits){data, data + size, 0, 0, 0};
    s->last = 0;
    s->moved = s->filled = 0;
    s->holds_fixed = 0; /* the tables of a short stream are not joined */
    s->checked = checked;
    s->sum = 1;
    s->sums = 0;
    refill(&s->in);
    unsigned method = take(&s->in, 8), flags = take(&s->in, 8);
    int known = (method & 15) == 8 && method >> 4 <= 7 && (method << 8 | flags) % 31 == 0 && !(flags & 0x20);
    s->place = known ? BETWEEN : DAMAGED;
    return 1;
}

const uint8_t *
inflating_take(Inflating *s, size_t size)
{
    while ((size_t)(s->at - s->taken) < size) {
        if (s->place == ENDED || s->place == DAMAGED)
            return NULL;
        go_on(s);
    }
    if (s->place == DAMAGED) /* the last bytes may come from the zeros after the input */
        return NULL;
    const uint8_t *piece = s->taken;
    if (s->checked)
        add_to_checksum(s, piece, size);
    s->taken += size;
    return piece;
}

int
inflating_ends(Inflating *s)
{
    while (s->at == s->taken && s->place != ENDED && s->place != DAMAGED)
        go_on(s);
    if (s->at != s->taken || s->place == DAMAGED)
        return 0;
    Bits *in = &s->in;
    take(in, in->count & 7);
    refill(in);
    uint32_t checksum = 0;
    for (int k = 0; k < 4; k++)
        checksum = checksum << 8 | take(in, 8);
    return !is_over(in) && (!s->checked || checksum == (s->sums << 16 | s->sum));
}
