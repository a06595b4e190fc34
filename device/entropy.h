/* Decodes the Huffman codes of tiles (ITU-T T.81, annex F.2): a block an image, a thread a tile. Accepts no more than packer's
   decoder on the CPU: see packer/_images/native/jpeg/scan.c and tables.c. */

#ifndef DEVICE_ENTROPY_H
#define DEVICE_ENTROPY_H

#include "layout.h"

enum {
    LOOK = 10,                       /* bits of a code that the first level of a table knows */
    FURTHER = LENGTHS - LOOK,        /* bits that the second level knows */
    PREFIXES = 64,                   /* of LOOK bits, of longer codes; of all tables of an image */
    BUCKETS = 64, BUCKET = 32,       /* of tiles by size; bytes by which they differ */
    ENTROPY_THREADS = 256            /* at most */
};

/* An entry of a table: in the lowest 5 bits how many bits a code and the value after it have together; then 4 bits of how many
   the value has; from bit ONWARD on by how much the index of the next coefficient grows. 0 is no code. The end of a block goes
   so far onward that nothing else comes there. */
enum { SIZE = 5, ONWARD = 9, TO_END = 80 };

typedef struct {
    int32_t end[LENGTHS + 1];  /* first 16 bits that are too large to begin with a code of so many bits or fewer */
    int32_t index[LENGTHS + 1]; /* of the first symbol of so many bits, minus its code */
} Codes;

/* How to look into a table: the places of its two levels among all entries, of the second one minus the first 16 bits that stand
   there; these; and the 16 bits after the last ones, where there is no code. */
typedef struct {
    uint32_t look, further, begin, end;
} Look;

typedef struct {
    uint16_t look[TABLES][1 << LOOK];
    uint16_t further[(PREFIXES << FURTHER) + TABLES]; /* after the entries of each table stands one that is no code */
    Codes codes[TABLES];
    Look looks[TABLES];
    uint8_t zigzag[128];
    int32_t block_component[BLOCKS], block_first[BLOCKS], block_row[BLOCKS], block_step[BLOCKS]; /* see set_blocks */
    int32_t block_dc[BLOCKS], block_ac[BLOCKS]; /* tables */
    int32_t block_count;
    uint32_t bucket[BUCKETS];
    int32_t sums[COMPONENTS][ENTROPY_THREADS]; /* of the differences of first coefficients */
    uint32_t is_bad; /* a status */
} EntropyShared;

/* Where a coefficient stands in a block, column by column, by its place in the zigzag order. A damaged tile may lead up to 16
   places further. */
TABLE uint8_t COLUMNWISE[80] = {
    0, 8, 1, 2, 9, 16, 24, 17, 10, 3, 4, 11, 18, 25, 32, 40, 33, 26, 19, 12, 5, 6, 13, 20, 27, 34, 41, 48, 56, 49, 42, 35,
    28, 21, 14, 7, 15, 22, 29, 36, 43, 50, 57, 58, 51, 44, 37, 30, 23, 31, 38, 45, 52, 59, 60, 53, 46, 39, 47, 54, 61, 62,
    55, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
};

/* Lays out the blocks of an MCU: the component of each; the first block's place, how many places further the same block of the
   next row of MCUs is, and that of the next MCU. */
FUNCTION void
set_blocks(EntropyShared *shared, const Image *image)
{
    int32_t count = 0;
    for (int32_t i = 0; i < image->count; i++) {
        const Component *c = &image->components[i];
        for (int32_t y = 0; y < c->down; y++) {
            for (int32_t x = 0; x < c->across && count < BLOCKS; x++, count++) {
                shared->block_component[count] = i;
                shared->block_first[count] = (int32_t)c->coefficients + y * c->blocks + x;
                shared->block_row[count] = c->down * c->blocks;
                shared->block_step[count] = c->across;
                shared->block_dc[count] = c->dc;
                shared->block_ac[count] = c->ac;
            }
        }
    }
    shared->block_count = count;
}

/* Finds the codes of a table; a status where they are none of a JPEG's. */
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
begin_image(EntropyShared *shared, const Image *image, uint32_t thread, uint32_t threads)
{
    for (uint32_t i = thread; i < 128; i += threads)
        shared->zigzag[i] = i < 80 ? COLUMNWISE[i] : 63;
    for (uint32_t i = thread; i < BUCKETS; i += threads)
        shared->bucket[i] = 0;
    if (thread == 0) {
        shared->is_bad = FINE;
        set_blocks(shared, image);
    }
}

FUNCTION void
find_codes(EntropyShared *shared, const Image *image, const uint8_t *RESTRICT says, uint32_t thread, uint32_t threads)
{
    for (uint32_t table = thread; table < TABLES; table += threads) {
        const uint32_t status = set_codes(&shared->codes[table], says + table * SAYS, image->tables[table]);
        if (status)
            largest_shared(&shared->is_bad, status);
    }
}

/* Finds places for the second level, and symbols that no sequential JPEG has. */
FUNCTION void
check_codes(EntropyShared *shared, const Image *image, const uint8_t *RESTRICT says, uint32_t thread, uint32_t threads)
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
            Look *look = &shared->looks[table];
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

/* Returns the entry of a table for 16 bits that begin with a code of `least` bits or more; 0 where they do not. */
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
fill_tables(EntropyShared *shared, const Image *image, const uint8_t *RESTRICT says, uint32_t thread, uint32_t threads)
{
    uint16_t *tables = &shared->look[0][0];
    for (uint32_t table = 0; table < TABLES; table++, says += SAYS) {
        const Codes *codes = &shared->codes[table];
        const Look look = shared->looks[table];
        if (!image->tables[table])
            continue;
        for (uint32_t i = thread; i < 1 << LOOK; i += threads)
            tables[look.look + i] = (uint16_t)entry_for(codes, says, table > 1, (int32_t)(i << FURTHER), 1, LOOK);
        for (uint32_t bits = look.begin + thread; bits <= look.end; bits += threads) {
            const uint32_t entry = bits < look.end ? entry_for(codes, says, table > 1, (int32_t)bits, LOOK + 1, LENGTHS) : 0;
            tables[look.further + bits] = (uint16_t)entry;
        }
    }
}

/* Returns the number, in the batch, of a tile of the window. */
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
count_buckets(EntropyShared *shared, const Image *image, const uint32_t *RESTRICT spans, const uint8_t *status, uint32_t thread,
              uint32_t threads)
{
    const uint32_t count = (uint32_t)(image->tile_rows * image->tile_columns);
    for (uint32_t i = thread; i < count; i += threads)
        if (!status[tile_of(image, i)])
            add_shared(&shared->bucket[bucket_of(spans, tile_of(image, i))], 1);
}

FUNCTION void
begin_buckets(EntropyShared *shared, uint32_t thread)
{
    if (thread == 0) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < BUCKETS; i++) {
            const uint32_t count = shared->bucket[i];
            shared->bucket[i] = sum;
            sum += count;
        }
    }
}

FUNCTION void
sort_tiles(EntropyShared *shared, const Image *image, const uint32_t *RESTRICT spans, const uint8_t *status,
           uint32_t *order, uint32_t thread, uint32_t threads)
{
    const uint32_t count = (uint32_t)(image->tile_rows * image->tile_columns);
    for (uint32_t i = thread; i < count; i += threads)
        if (!status[tile_of(image, i)])
            order[image->order + add_shared(&shared->bucket[bucket_of(spans, tile_of(image, i))], 1)] = i;
}

/* Bits of a tile: the next one is bit 31 - `used` of `high`. */
typedef struct {
    uint32_t high, low, ahead;
    uint32_t used; /* 0 to 31 */
    uint32_t next; /* word after the one ahead */
} Bits;

FUNCTION Bits
bits_from(const uint32_t *RESTRICT words, uint32_t byte)
{
    Bits bits;
    bits.next = byte / 4;
    bits.used = byte % 4 * 8;
    bits.high = words[bits.next++];
    bits.low = words[bits.next++];
    bits.ahead = words[bits.next++];
    return bits;
}

FUNCTION void
skip(Bits *bits, const uint32_t *RESTRICT words, uint32_t count)
{
    bits->used += count;
    if (bits->used >= 32) {
        bits->used -= 32;
        bits->high = bits->low;
        bits->low = bits->ahead;
        bits->ahead = words[bits->next++];
    }
}

/* Returns how many bits were taken since bit 0 of word 0, modulo 2^32. */
FUNCTION uint32_t
position(const Bits *bits)
{
    return (bits->next - 3) * 32 + bits->used;
}

/* Returns the value whose bits are the lowest `size` of some (T.81, F.2.2.1: EXTEND). */
FUNCTION int32_t
value_of(uint32_t bits, uint32_t size)
{
    const uint32_t most = (1u << size) - 1, value = bits & most;
    return (int32_t)(value > most >> 1 ? value : value - most);
}

/* Returns the entry for some bits: of the second level where the first does not know the code. */
FUNCTION uint32_t
look_up(const EntropyShared *shared, const Look *look, uint32_t bits)
{
    const uint32_t code = bits >> (32 - LENGTHS), end = code < look->end ? code : look->end;
    const uint16_t *tables = &shared->look[0][0];
    return tables[code < look->begin ? look->look + (bits >> (32 - LOOK)) : look->further + end];
}

#ifdef COUNTED
uint32_t symbols[2]; /* decoded by the twin since these were set to 0: of all tiles modulo 2^32, and of the longest */

FUNCTION void
count_symbols(uint32_t count)
{
    symbols[0] += count;
    symbols[1] = symbols[1] < count ? count : symbols[1];
}
#endif

/* Decodes a tile, up to the last MCU of the window. One loop goes over all symbols, so that the threads of a warp stay together
   whichever blocks their symbols belong to. Returns its status.

   At the end of a block the bits must not have ended before: so at most those of a block are read beyond a tile. */
FUNCTION uint32_t
decode_tile(EntropyShared *shared, const Image *image, const uint32_t *RESTRICT words, int16_t *RESTRICT coefficients,
            uint32_t row, uint32_t column, uint32_t begin, uint32_t end, uint32_t thread)
{
    const int32_t first = (int32_t)column * image->interval - image->skipped; /* MCU of the window */
    const int32_t last = smaller(first + image->interval, image->columns), blocks = shared->block_count;
    const uint32_t bits_end = end * 8;
    Bits bits = bits_from(words, begin);
    int32_t mcu = first, block = 0, component = shared->block_component[0];
    uint32_t k = 0, status = FINE;
#ifdef COUNTED
    uint32_t steps = 0;
#endif
    Look look = shared->looks[shared->block_dc[0]];
    int16_t *to = coefficients + 64 * (uint32_t)(shared->block_first[0] + (int32_t)row * shared->block_row[0]
                                                 + mcu * shared->block_step[0]);
    for (int32_t i = 0; i < image->count; i++)
        shared->sums[i][thread] = 0;
    while (mcu < last) {
        const uint32_t next = shifted(bits.high, bits.low, bits.used), entry = look_up(shared, &look, next);
        const uint32_t total = entry & 31, size = entry >> SIZE & 15;
#ifdef COUNTED
        steps++;
#endif
        int32_t value = value_of(next >> ((32 - total) & 31), size);
        const uint32_t is_first = k == 0;
        k += entry >> ONWARD;
        skip(&bits, words, total);
        if (is_first) {
            value = plus(shared->sums[component][thread], value);
            shared->sums[component][thread] = value;
            look = shared->looks[shared->block_ac[block]];
        }
        if ((size || is_first) && mcu >= 0)
            to[shared->zigzag[(k - 1) & 127]] = (int16_t)value;
        if (k >= 64 || !entry) {
            /* Zeros may not be the last of a block, nor lead beyond it. */
            if (!entry || (k < TO_END && (k > 64 || !size)) || (int32_t)(bits_end - position(&bits)) < 0) {
                status = DAMAGED;
                break;
            }
            k = 0;
            if (++block == blocks) {
                block = 0;
                mcu++;
            }
            component = shared->block_component[block];
            look = shared->looks[shared->block_dc[block]];
            to = coefficients + 64 * (uint32_t)(shared->block_first[block] + (int32_t)row * shared->block_row[block]
                                                + mcu * shared->block_step[block]);
        }
    }
    if (mcu == first + image->interval && (position(&bits) + 7) / 8 != end)
        status = DAMAGED;
#ifdef COUNTED
    count_symbols(steps);
#endif
    return status;
}

FUNCTION void
decode_tiles(EntropyShared *shared, const Image *image, const uint32_t *RESTRICT words, const uint32_t *RESTRICT spans,
             const uint32_t *order, int16_t *RESTRICT coefficients, uint8_t *status, uint32_t thread, uint32_t threads)
{
    const uint32_t count = shared->bucket[BUCKETS - 1]; /* where the last bucket ends */
    for (uint32_t i = thread; i < count; i += threads) {
        const uint32_t place = order[image->order + i], row = place / (uint32_t)image->tile_columns;
        const uint32_t column = place - row * (uint32_t)image->tile_columns, tile = tile_of(image, place);
        status[tile] = (uint8_t)(shared->is_bad ? shared->is_bad
                                                : decode_tile(shared, image, words, coefficients, row, column, spans[2 * tile],
                                                              spans[2 * tile + 1], thread));
    }
}

KERNEL(entropy, ENTROPY_THREADS, 4, const Image *RESTRICT images, const uint8_t *RESTRICT says,
       const uint32_t *RESTRICT words, const uint32_t *RESTRICT spans, uint8_t *status, uint32_t *order,
       int16_t *RESTRICT coefficients)
{
    GRID;
    SHARED(EntropyShared, shared);
    const Image *image = images + block_x;
    says += block_x * (TABLES * SAYS);
    (void)block_y;
    PHASE(begin_image(&shared, image, thread, threads));
    PHASE(find_codes(&shared, image, says, thread, threads));
    PHASE(check_codes(&shared, image, says, thread, threads));
    if (!shared.is_bad) /* the same for all threads */
        PHASE(fill_tables(&shared, image, says, thread, threads));
    PHASE(count_buckets(&shared, image, spans, status, thread, threads));
    PHASE(begin_buckets(&shared, thread));
    PHASE(sort_tiles(&shared, image, spans, status, order, thread, threads));
    LAST_PHASE(decode_tiles(&shared, image, words, spans, order, coefficients, status, thread, threads));
}

#endif
