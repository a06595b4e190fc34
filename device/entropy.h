/* Decodes the Huffman codes of tiles (ITU-T T.81, annex F.2), one tile in each thread. The kernel `tables` makes the tables of
   each image, and sorts its tiles by size, so that the threads of a warp have about the same work. In the kernel `entropy`
   each block decodes some tiles of an image. It accepts no more than packer's decoder on the CPU: see scan.c and tables.c of
   packer. */

#ifndef DEVICE_ENTROPY_H
#define DEVICE_ENTROPY_H

#include "layout.h"

enum {
    LOOK = 10,               /* bits that index the first level of a table */
    FURTHER = LENGTHS - LOOK, /* bits that index the second level, after a prefix */
    PREFIXES = 64,           /* of LOOK bits that longer codes have, at most, in all tables of an image */
    ENTRIES = (TABLES << LOOK) + (PREFIXES << FURTHER) + 2 * TABLES, /* padded to a multiple of four words */
    BUCKETS = 64, BUCKET = 32, /* of tiles, by size; the range of sizes in a bucket, in bytes */
    CHUNK = 128,             /* tiles that a block decodes */
    RING = 16,               /* words of a tile that a thread buffers; a power of two */
    REFILL = 4,              /* symbols between two refills: they have at most four words, as many as a refill */
    TABLE_THREADS = 256, ENTROPY_THREADS = 128 /* at most */
};

/* An entry of a table. The lowest 5 bits are the length of a code and its value together, the next 4 bits the length of the
   value, and the bits from ONWARD on the number of coefficients by which it advances. 0 is no code. The end of a block
   advances further than anything else can. */
enum { SIZE = 5, ONWARD = 9, TO_END = 80 };

typedef struct {
    int32_t end[LENGTHS + 1];  /* by length: the first 16 bits after all codes up to this length */
    int32_t index[LENGTHS + 1]; /* by length: the index of the first symbol, minus its code */
} Codes;

/* How to index a table: the position of its first level among all entries; that of its second level, minus `begin`; the first
   16 bits in the second level; and the 16 bits after its last ones, for which there is no code. */
typedef struct {
    ALIGNED(16) uint32_t look;
    uint32_t further, begin, end;
} Look;

/* The tables of an image. */
typedef struct {
    ALIGNED(16) uint16_t entries[ENTRIES]; /* first levels, then second levels, each followed by an entry that is no code */
    Look looks[TABLES];
    uint32_t is_bad; /* a status */
    uint32_t count;  /* of tiles to decode */
    uint32_t unused[2];
} Tables;

typedef struct {
    Codes codes[TABLES];
    uint32_t bucket[BUCKETS];
    uint32_t is_bad;
} TableShared;

/* A block of an MCU: how to look up its symbols; the position of the first such block, the distance to the same block in the
   next row of MCUs, and in the next MCU; and its component. */
typedef struct {
    Look dc, ac;
    int32_t first, row, step, component;
} Block;

typedef struct {
    ALIGNED(16) uint16_t entries[ENTRIES];
    Block blocks[BLOCKS];
    int32_t block_count;
    uint8_t zigzag[128];
    uint32_t ring[RING][ENTROPY_THREADS];
} EntropyShared;

/* The position of a coefficient in a block, column by column, by its index in zigzag order. A damaged tile may lead to an index
   that is up to 16 larger. */
TABLE uint8_t COLUMNWISE[80] = {
    0, 8, 1, 2, 9, 16, 24, 17, 10, 3, 4, 11, 18, 25, 32, 40, 33, 26, 19, 12, 5, 6, 13, 20, 27, 34, 41, 48, 56, 49, 42, 35,
    28, 21, 14, 7, 15, 22, 29, 36, 43, 50, 57, 58, 51, 44, 37, 30, 23, 31, 38, 45, 52, 59, 60, 53, 46, 39, 47, 54, 61, 62,
    55, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
};

/* Computes the codes of a table; returns DAMAGED if a JPEG cannot have them. */
FUNCTION uint32_t
set_codes(Codes *codes, const uint8_t *says, int32_t size)
{
    int32_t code = 0, index = 0;
    for (int32_t length = 1; length <= LENGTHS; length++, code *= 2) {
        const int32_t count = size ? says[length - 1] : 0;
        if (code + count >= 1 << length && size)
            return DAMAGED;
        codes->index[length] = index - code;
        index += count;
        code += count;
        codes->end[length] = code << (LENGTHS - length);
    }
    return index + LENGTHS == size || !size ? FINE : DAMAGED;
}

FUNCTION void
begin_image(TableShared *shared, uint32_t thread, uint32_t threads)
{
    for (uint32_t i = thread; i < BUCKETS; i += threads)
        shared->bucket[i] = 0;
    if (thread == 0)
        shared->is_bad = FINE;
}

FUNCTION void
find_codes(TableShared *shared, const Image *image, const uint8_t *RESTRICT says, uint32_t thread, uint32_t threads)
{
    for (uint32_t table = thread; table < TABLES; table += threads) {
        const uint32_t status = set_codes(&shared->codes[table], says + table * SAYS, image->tables[table]);
        if (status)
            largest_shared(&shared->is_bad, status);
    }
}

/* Rejects symbols that no sequential JPEG has, and assigns positions to the second levels. */
FUNCTION void
check_codes(TableShared *shared, Tables *tables, const Image *image, const uint8_t *RESTRICT says, uint32_t thread,
            uint32_t threads)
{
    for (int32_t table = 0; table < TABLES; table++) {
        for (int32_t i = LENGTHS + (int32_t)thread; i < image->tables[table]; i += (int32_t)threads) {
            const uint32_t symbol = says[table * SAYS + i], run = symbol >> 4, size = symbol & 15;
            if (table < 2 ? symbol > 11 : size > 10 || (!size && run && run != 15))
                largest_shared(&shared->is_bad, DAMAGED);
        }
    }
    if (thread == 0) {
        uint32_t place = TABLES << LOOK, prefixes = 0;
        for (int32_t table = 0; table < TABLES; table++) {
            Look *look = &tables->looks[table];
            const uint32_t begin = (uint32_t)shared->codes[table].end[LOOK];
            const uint32_t count = ((uint32_t)shared->codes[table].end[LENGTHS] - begin + (1 << FURTHER) - 1) >> FURTHER;
            look->look = (uint32_t)table << LOOK;
            look->further = place - begin;
            look->begin = begin;
            look->end = begin + (count << FURTHER);
            prefixes += count;
            place += (count << FURTHER) + 1;
        }
        if (prefixes > PREFIXES)
            largest_shared(&shared->is_bad, UNSUPPORTED);
    }
}

/* Returns the entry of a table for 16 bits that begin with a code of `least` to `most` bits; 0 if they do not. */
FUNCTION uint32_t
entry_for(const Codes *codes, const uint8_t *RESTRICT says, uint32_t is_ac, int32_t bits, int32_t least, int32_t most)
{
    int32_t length = least;
    while (length <= most && bits >= codes->end[length])
        length++;
    if (length > most)
        return 0;
    const uint32_t symbol = says[LENGTHS + (((bits >> (LENGTHS - length)) + codes->index[length]) & 255)];
    const uint32_t run = symbol >> 4, size = symbol & 15, onward = is_ac && symbol == 0 ? (uint32_t)TO_END : run + 1;
    return ((uint32_t)length + size) | size << SIZE | onward << ONWARD;
}

FUNCTION void
fill_tables(const TableShared *shared, Tables *tables, const Image *image, const uint8_t *RESTRICT says, uint32_t thread,
            uint32_t threads)
{
    for (uint32_t table = 0; table < TABLES; table++, says += SAYS) {
        const Codes *codes = &shared->codes[table];
        const Look look = tables->looks[table];
        if (!image->tables[table] || shared->is_bad)
            continue;
        for (uint32_t i = thread; i < 1 << LOOK; i += threads)
            tables->entries[look.look + i] = (uint16_t)entry_for(codes, says, table > 1, (int32_t)(i << FURTHER), 1, LOOK);
        for (uint32_t bits = look.begin + thread; bits <= look.end; bits += threads) {
            const uint32_t entry = bits < look.end ? entry_for(codes, says, table > 1, (int32_t)bits, LOOK + 1, LENGTHS) : 0;
            tables->entries[look.further + bits] = (uint16_t)entry;
        }
    }
}

/* Returns the index in the batch of tile `i` of the window. */
FUNCTION uint32_t
tile_of(const Image *image, uint32_t i)
{
    const uint32_t row = i / (uint32_t)image->tile_columns;
    return image->tile + row * (uint32_t)image->image_columns + (i - row * (uint32_t)image->tile_columns);
}

FUNCTION uint32_t
bucket_of(const uint32_t *RESTRICT spans, uint32_t tile) /* the largest first */
{
    const uint32_t bucket = (spans[2 * tile + 1] - spans[2 * tile]) / BUCKET;
    return BUCKETS - 1 - (bucket < BUCKETS ? bucket : BUCKETS - 1);
}

FUNCTION void
count_buckets(TableShared *shared, const Image *image, const uint32_t *RESTRICT spans, const uint8_t *status, uint32_t thread,
              uint32_t threads)
{
    const uint32_t count = (uint32_t)(image->tile_rows * image->tile_columns);
    for (uint32_t i = thread; i < count; i += threads)
        if (!status[tile_of(image, i)])
            add_shared(&shared->bucket[bucket_of(spans, tile_of(image, i))], 1);
}

FUNCTION void
begin_buckets(TableShared *shared, Tables *tables, uint32_t thread)
{
    if (thread == 0) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < BUCKETS; i++) {
            const uint32_t count = shared->bucket[i];
            shared->bucket[i] = sum;
            sum += count;
        }
        tables->count = sum;
        tables->is_bad = shared->is_bad;
    }
}

FUNCTION void
sort_tiles(TableShared *shared, const Image *image, const uint32_t *RESTRICT spans, const uint8_t *status, uint32_t *order,
           uint32_t thread, uint32_t threads)
{
    const uint32_t count = (uint32_t)(image->tile_rows * image->tile_columns);
    for (uint32_t i = thread; i < count; i += threads)
        if (!status[tile_of(image, i)])
            order[image->order + add_shared(&shared->bucket[bucket_of(spans, tile_of(image, i))], 1)] = i;
}

KERNEL(tables, TABLE_THREADS, 4, const Image *RESTRICT images, const uint8_t *RESTRICT says, const uint32_t *RESTRICT spans,
       const uint8_t *RESTRICT status, uint32_t *RESTRICT order, Tables *all)
{
    GRID {
        SHARED(TableShared, shared);
        const Image *image = images + block_x;
        Tables *own = all + block_x;
        const uint8_t *tables_say = says + block_x * (TABLES * SAYS);
        PHASE(begin_image(&shared, thread, threads));
        PHASE(find_codes(&shared, image, tables_say, thread, threads));
        PHASE(check_codes(&shared, own, image, tables_say, thread, threads));
        PHASE(fill_tables(&shared, own, image, tables_say, thread, threads));
        PHASE(count_buckets(&shared, image, spans, status, thread, threads));
        PHASE(begin_buckets(&shared, own, thread));
        LAST_PHASE(sort_tiles(&shared, image, spans, status, order, thread, threads));
    }
}

/* Bits of a tile: the next one is bit 31 - `used` of `high`. The words after `low`, before word `filled`, are in the thread's
   ring. Four more may be loading; the thread waits for them only some symbols later. */
typedef struct {
    uint32_t high, low;
    uint32_t used; /* 0 to 31 */
    uint32_t next, filled;
    uint32_t is_coming;
    Words coming;
} Bits;

FUNCTION uint32_t
word_at(const EntropyShared *shared, uint32_t at, uint32_t thread)
{
    return shared->ring[at & (RING - 1)][thread];
}

FUNCTION void
take_words(EntropyShared *shared, Bits *bits, const Words *words, uint32_t thread)
{
    UNROLLED
    for (uint32_t i = 0; i < 4; i++)
        shared->ring[(bits->filled + i) & (RING - 1)][thread] = words->at[i];
    bits->filled += 4;
}

/* Stores the loaded words in the ring, and begins to load more if there is room. */
FUNCTION void
refill(EntropyShared *shared, Bits *bits, const uint32_t *RESTRICT words, uint32_t thread)
{
    if (bits->is_coming)
        take_words(shared, bits, &bits->coming, thread);
    bits->is_coming = bits->filled + 4 - bits->next <= RING;
    if (bits->is_coming)
        bits->coming = load_words(words + bits->filled);
}

FUNCTION Bits
bits_from(EntropyShared *shared, const uint32_t *RESTRICT words, uint32_t byte, uint32_t thread)
{
    Bits bits;
    bits.next = byte / 4;
    bits.filled = bits.next & ~3u;
    bits.used = byte % 4 * 8;
    bits.is_coming = 0;
    for (uint32_t i = 0; i < RING / 4 - 1; i++) {
        bits.coming = load_words(words + bits.filled);
        take_words(shared, &bits, &bits.coming, thread);
    }
    bits.high = word_at(shared, bits.next++, thread);
    bits.low = word_at(shared, bits.next++, thread);
    return bits;
}

FUNCTION void
skip(const EntropyShared *shared, Bits *bits, uint32_t count, uint32_t thread)
{
    bits->used += count;
    if (bits->used >= 32) {
        bits->used -= 32;
        bits->high = bits->low;
        bits->low = word_at(shared, bits->next++, thread);
    }
}

/* Returns the number of bits before the next one, from bit 0 of word 0 on, modulo 2^32. */
FUNCTION uint32_t
position(const Bits *bits)
{
    return (bits->next - 2) * 32 + bits->used;
}

/* Returns the value of the lowest `size` bits (T.81, F.2.2.1: EXTEND). */
FUNCTION int32_t
value_of(uint32_t bits, uint32_t size)
{
    const uint32_t most = (1u << size) - 1, value = bits & most;
    return (int32_t)(value > most >> 1 ? value : value - most);
}

/* Returns the entry for the next bits, from the second level if the code is too long for the first. */
FUNCTION uint32_t
look_up(const EntropyShared *shared, const Look *look, uint32_t bits)
{
    const uint32_t code = bits >> (32 - LENGTHS), end = code < look->end ? code : look->end;
    return shared->entries[code < look->begin ? look->look + (bits >> (32 - LOOK)) : look->further + end];
}

#ifdef COUNTED
uint32_t symbols[2]; /* that the twin decoded since these were set to 0: of all tiles, modulo 2^32; of the longest tile */

FUNCTION void
count_symbols(uint32_t count)
{
    symbols[0] += count;
    symbols[1] = symbols[1] < count ? count : symbols[1];
}
#endif

/* The predictions of DC coefficients: for each component, the sum of their differences. */
typedef struct {
    int32_t of_0, of_1, of_2;
} Predictions;

/* Returns a DC coefficient: the sum of the previous one and a difference. */
FUNCTION int32_t
predicted(Predictions *sums, int32_t component, int32_t difference)
{
    const int32_t value = plus(component == 0 ? sums->of_0 : component == 1 ? sums->of_1 : sums->of_2, difference);
    sums->of_0 = component == 0 ? value : sums->of_0;
    sums->of_1 = component == 1 ? value : sums->of_1;
    sums->of_2 = component == 2 ? value : sums->of_2;
    return value;
}

/* Decodes a tile, up to the last MCU of the window. One loop goes over all symbols, so that the threads of a warp stay together
   whichever blocks their symbols belong to. A coefficient is stored one symbol later, while the next one is looked up. Returns
   the tile's status.

   At the end of each block it checks that the tile has not ended before; so it reads at most one block beyond a tile. */
FUNCTION uint32_t
decode_tile(EntropyShared *shared, const Image *image, const uint32_t *RESTRICT words, int16_t *RESTRICT coefficients,
            uint32_t row, uint32_t column, uint32_t begin, uint32_t end, uint32_t thread)
{
    const int32_t first = (int32_t)column * image->interval - image->skipped; /* MCU of the window */
    const int32_t last = smaller(first + image->interval, image->columns), blocks = shared->block_count;
    HELD(thread);
    Bits bits = bits_from(shared, words, begin, thread);
    Predictions sums = {0, 0, 0};
    int32_t mcu = first, number = 0;
    Block block = shared->blocks[0];
    Look look = block.dc;
    uint32_t k = 0, status = FINE, is_stored = 0, turn = 0;
    int32_t value = 0;
    uint32_t place = 0;
    int16_t *to = coefficients + 64 * (uint32_t)(block.first + (int32_t)row * block.row + mcu * block.step), *into = to;
#ifdef COUNTED
    uint32_t steps = 0;
#endif
    while (mcu < last) {
        if (turn++ % REFILL == 0)
            refill(shared, &bits, words, thread);
        const uint32_t next = shifted(bits.high, bits.low, bits.used), entry = look_up(shared, &look, next);
        const uint32_t total = entry & 31, size = entry >> SIZE & 15, is_first = k == 0;
        if (is_stored)
            into[place] = (int16_t)value;
        skip(shared, &bits, total, thread);
        k += entry >> ONWARD;
        value = value_of(next >> ((32 - total) & 31), size);
        place = shared->zigzag[(k - 1) & 127];
        into = to;
        is_stored = (size || is_first) && mcu >= 0;
#ifdef COUNTED
        steps++;
#endif
        if (is_first) {
            value = predicted(&sums, block.component, value);
            look = block.ac;
        }
        if (k >= 64 || !entry) {
            /* Zeros may not end a block, and no symbol may lead beyond it. */
            if (!entry || (k < TO_END && (k > 64 || !size)) || (int32_t)(end * 8 - position(&bits)) < 0) {
                status = DAMAGED;
                break;
            }
            k = 0;
            if (++number == blocks) {
                number = 0;
                mcu++;
            }
            block = shared->blocks[number];
            look = block.dc;
            to = coefficients + 64 * (uint32_t)(block.first + (int32_t)row * block.row + mcu * block.step);
        }
    }
    if (is_stored)
        into[place] = (int16_t)value;
    if (mcu == first + image->interval && (position(&bits) + 7) / 8 != end)
        status = DAMAGED;
#ifdef COUNTED
    count_symbols(steps);
#endif
    return status;
}

/* Lays out the blocks of an MCU. */
FUNCTION void
set_blocks(EntropyShared *shared, const Image *image, const Tables *tables)
{
    int32_t count = 0;
    for (int32_t i = 0; i < image->count; i++) {
        const Component *c = &image->components[i];
        for (int32_t y = 0; y < c->down; y++) {
            for (int32_t x = 0; x < c->across && count < BLOCKS; x++, count++) {
                Block *block = &shared->blocks[count];
                block->dc = tables->looks[c->dc];
                block->ac = tables->looks[c->ac];
                block->first = (int32_t)c->coefficients + y * c->blocks + x;
                block->row = c->down * c->blocks;
                block->step = c->across;
                block->component = i;
            }
        }
    }
    shared->block_count = count;
}

FUNCTION void
load_tables(EntropyShared *shared, const Image *image, const Tables *tables, uint32_t thread, uint32_t threads)
{
    const uint32_t *from = (const uint32_t *)(const void *)tables->entries;
    uint32_t *to = (uint32_t *)(void *)shared->entries;
    for (uint32_t i = thread; i < ENTRIES / 2; i += threads)
        to[i] = from[i];
    for (uint32_t i = thread; i < 128; i += threads)
        shared->zigzag[i] = i < 80 ? COLUMNWISE[i] : 63;
    if (thread == 0)
        set_blocks(shared, image, tables);
}

FUNCTION void
decode_tiles(EntropyShared *shared, const Image *image, const Tables *tables, const uint32_t *RESTRICT words,
             const uint32_t *RESTRICT spans, const uint32_t *RESTRICT order, int16_t *RESTRICT coefficients,
             uint8_t *RESTRICT status, uint32_t first, uint32_t thread, uint32_t threads)
{
    const uint32_t end = first + CHUNK < tables->count ? first + CHUNK : tables->count;
    for (uint32_t i = first + thread; i < end; i += threads) {
        const uint32_t place = order[image->order + i], row = place / (uint32_t)image->tile_columns;
        const uint32_t column = place - row * (uint32_t)image->tile_columns, tile = tile_of(image, place);
        status[tile] = (uint8_t)(tables->is_bad ? tables->is_bad
                                                : decode_tile(shared, image, words, coefficients, row, column, spans[2 * tile],
                                                              spans[2 * tile + 1], thread));
    }
}

KERNEL(entropy, ENTROPY_THREADS, 6, const Image *RESTRICT images, const Chunk *RESTRICT chunks, const Tables *RESTRICT tables,
       const uint32_t *RESTRICT words, const uint32_t *RESTRICT spans, uint8_t *RESTRICT status, const uint32_t *RESTRICT order,
       int16_t *RESTRICT coefficients)
{
    GRID {
        SHARED(EntropyShared, shared);
        const Chunk chunk = chunks[block_x];
        const Image *image = images + chunk.image;
        const Tables *own = tables + chunk.image;
        PHASE(load_tables(&shared, image, own, thread, threads));
        LAST_PHASE(decode_tiles(&shared, image, own, words, spans, order, coefficients, status, chunk.first, thread, threads));
    }
}

#endif
