/* Extracts the tiles of a group of rows: the bits between its restart markers, without stuffed zeros (ITU-T T.81, B.1.1.5), as
   consecutive big-endian words. A block of threads handles a group, one piece at a time. */

#ifndef DEVICE_TILES_H
#define DEVICE_TILES_H

#include "layout.h"

enum {
    PIECE = 4096,         /* bytes */
    TILE_THREADS = 256,   /* at most */
    RST0 = 0xD0, EOI = 0xD9
};

typedef struct {
    uint32_t in[PIECE / 4 + 2];   /* from the word that contains the first byte of the piece */
    uint32_t out[PIECE / 4 + 2];  /* the bytes that are kept, after up to three of the previous piece */
    uint32_t sums[2][TILE_THREADS + 1]; /* of all threads up to one: bytes kept, plus 2^16 for each marker */
    uint32_t kept, marks;         /* in the previous pieces */
    uint32_t ended;               /* whether the last marker ends the group */
    uint32_t is_bad;
} TileShared;

FUNCTION uint32_t
byte_of(const uint32_t *words, uint32_t at)
{
    return words[at >> 2] >> 8 * (at & 3) & 255;
}

FUNCTION void
begin_group(TileShared *shared, const Group *group, uint32_t *RESTRICT spans, uint32_t thread)
{
    if (thread == 0) {
        shared->kept = shared->marks = shared->ended = shared->is_bad = 0;
        spans[2 * group->tile] = 4 * group->to;
    }
}

/* Loads the piece that begins at byte `begin` of the group, in whole words of the slab. */
FUNCTION void
load_piece(TileShared *shared, const uint32_t *RESTRICT slab, const Group *group, uint32_t begin, uint32_t thread,
           uint32_t threads)
{
    const uint32_t first = (group->from + begin) / 4;
    for (uint32_t i = thread; i < PIECE / 4 + 2; i += threads)
        shared->in[i] = slab[first + i];
}

/* The fate of a byte: it is dropped, kept, or the first of a marker; or the group is damaged. */
enum { DROPPED, KEPT, MARK, BROKEN };

FUNCTION uint32_t
fate_of(uint32_t before, uint32_t byte, uint32_t after, uint32_t has_after)
{
    if (byte == 0xFF)
        return before == 0xFF || !has_after || after == 0xFF ? BROKEN : after ? MARK : KEPT;
    return before == 0xFF ? DROPPED : KEPT;
}

/* The bytes of a thread, as offsets into `in`: the piece begins with byte `shift` of it. */
typedef struct {
    uint32_t at, end, last; /* of the thread; the last byte of the group */
} Slice;

FUNCTION Slice
slice_of(const Group *group, uint32_t begin, uint32_t thread, uint32_t threads)
{
    const uint32_t shift = (group->from + begin) & 3, left = group->size - begin, here = left < PIECE ? left : PIECE;
    const uint32_t each = (here + threads - 1) / threads, at = thread * each;
    Slice slice;
    slice.at = shift + (at < here ? at : here);
    slice.end = shift + (at + each < here ? at + each : here);
    slice.last = shift + left - 1;
    return slice;
}

/* Returns the byte before a slice. For the first slice it is `carried`: from the previous piece, or 0 before the group. */
FUNCTION uint32_t
before_slice(const TileShared *shared, const Slice *slice, uint32_t carried, uint32_t is_first)
{
    return is_first ? carried : byte_of(shared->in, slice->at - 1);
}

/* Counts the bytes that a thread keeps, and the markers in its slice. */
FUNCTION void
count_slice(TileShared *shared, const Group *group, uint32_t begin, uint32_t carried, uint32_t thread, uint32_t threads)
{
    const Slice slice = slice_of(group, begin, thread, threads);
    uint32_t sum = 0;
    if (slice.at < slice.end) {
        uint32_t before = before_slice(shared, &slice, carried, thread == 0), byte = byte_of(shared->in, slice.at);
        for (uint32_t at = slice.at; at < slice.end; at++) {
            const uint32_t after = byte_of(shared->in, at + 1), fate = fate_of(before, byte, after, at < slice.last);
            sum += fate == KEPT ? 1 : fate == MARK ? 1 << 16 : 0;
            if (fate == BROKEN)
                largest_shared(&shared->is_bad, 1);
            before = byte;
            byte = after;
        }
    }
    shared->sums[0][thread] = sum;
}

/* Adds the sum of the thread that is `by` before. After steps of 1, 2, 4 and so on, each sum includes all threads before. */
FUNCTION void
sum_up(TileShared *shared, uint32_t by, uint32_t from, uint32_t thread)
{
    shared->sums[1 - from][thread] = shared->sums[from][thread] + (thread >= by ? shared->sums[from][thread - by] : 0);
}

FUNCTION void
put_byte(TileShared *shared, uint32_t at, uint32_t byte)
{
    ((uint8_t *)shared->out)[at ^ 3] = (uint8_t)byte; /* a little-endian machine then loads a big-endian word */
}

/* Tells whether the marker after a tile is the one that belongs there. */
FUNCTION uint32_t
belongs(const Group *group, uint32_t tile, uint32_t marker)
{
    const uint32_t ends = group->is_last && tile + 1 == group->tiles;
    return marker == (ends ? (uint32_t)EOI : RST0 + ((group->number + tile) & 7));
}

/* Records where a tile ends and the next one begins. */
FUNCTION void
end_tile(const Group *group, uint32_t *RESTRICT spans, uint32_t tile, uint32_t at)
{
    spans[2 * (group->tile + tile) + 1] = at;
    if (tile + 1 < group->tiles)
        spans[2 * (group->tile + tile) + 2] = at;
}

/* Moves the bytes that a thread keeps to their positions, and records where tiles end. */
FUNCTION void
move_slice(TileShared *shared, const Group *group, uint32_t *RESTRICT spans, uint32_t begin, uint32_t carried, uint32_t from,
           uint32_t thread, uint32_t threads)
{
    const Slice slice = slice_of(group, begin, thread, threads);
    const uint32_t sum = thread ? shared->sums[from][thread - 1] : 0, base = shared->kept;
    uint32_t kept = sum & 0xFFFF, tile = shared->marks + (sum >> 16);
    if (slice.at >= slice.end)
        return;
    uint32_t before = before_slice(shared, &slice, carried, thread == 0), byte = byte_of(shared->in, slice.at);
    for (uint32_t at = slice.at; at < slice.end; at++) {
        const uint32_t after = byte_of(shared->in, at + 1), fate = fate_of(before, byte, after, at < slice.last);
        if (fate == KEPT) {
            put_byte(shared, (base & 3) + kept++, byte);
        } else if (fate == MARK) {
            if (tile >= group->tiles || !belongs(group, tile, after))
                largest_shared(&shared->is_bad, 1);
            else
                end_tile(group, spans, tile, 4 * group->to + base + kept);
            if (at + 1 == slice.last)
                shared->ended = 1;
            tile++;
        }
        before = byte;
        byte = after;
    }
}

/* Stores whole words; after the last piece also the remaining bytes, padded with zeros. */
FUNCTION void
store_piece(const TileShared *shared, const Group *group, uint32_t *RESTRICT words, uint32_t sums, uint32_t is_last,
            uint32_t thread, uint32_t threads)
{
    const uint32_t bytes = (shared->kept & 3) + (sums & 0xFFFF), count = is_last ? (bytes + 3) / 4 : bytes / 4;
    for (uint32_t i = thread; i < count; i += threads) {
        const uint32_t left = bytes - 4 * i, own = left < 4 ? 0xFFFFFFFFu << 8 * (4 - left) : 0xFFFFFFFFu;
        words[group->to + shared->kept / 4 + i] = shared->out[i] & own;
    }
}

FUNCTION void
end_piece(TileShared *shared, uint32_t sums, uint32_t thread)
{
    if (thread == 0) {
        const uint32_t bytes = (shared->kept & 3) + (sums & 0xFFFF);
        shared->out[0] = shared->out[bytes / 4];
        shared->kept += sums & 0xFFFF;
        shared->marks += sums >> 16;
    }
}

FUNCTION void
judge_group(const TileShared *shared, const Group *group, uint8_t *RESTRICT status, uint32_t thread, uint32_t threads)
{
    const uint32_t is_bad = shared->is_bad || shared->marks != group->tiles || !shared->ended;
    for (uint32_t i = thread; i < group->tiles; i += threads)
        status[group->tile + i] = is_bad ? DAMAGED : FINE;
}

KERNEL(tiles, TILE_THREADS, 4, const uint32_t *RESTRICT slab, const Group *RESTRICT groups, uint32_t *RESTRICT words,
       uint32_t *RESTRICT spans, uint8_t *RESTRICT status)
{
    GRID {
        SHARED(TileShared, shared);
        const Group *group = groups + block_x;
        PHASE(begin_group(&shared, group, spans, thread));
        for (uint32_t begin = 0; begin < group->size; begin += PIECE) {
            uint32_t from = 0, carried = 0;
            if (begin > 0) /* the previous piece is still loaded */
                carried = byte_of(shared.in, ((group->from + begin) & 3) + PIECE - 1);
            PHASE((void)0); /* all threads have read it */
            PHASE(load_piece(&shared, slab, group, begin, thread, threads));
            PHASE(count_slice(&shared, group, begin, carried, thread, threads));
            for (uint32_t by = 1; by < threads; by *= 2, from = 1 - from)
                PHASE(sum_up(&shared, by, from, thread));
            const uint32_t sums = shared.sums[from][threads - 1];
            PHASE(move_slice(&shared, group, spans, begin, carried, from, thread, threads));
            PHASE(store_piece(&shared, group, words, sums, begin + PIECE >= group->size, thread, threads));
            PHASE(end_piece(&shared, sums, thread));
        }
        LAST_PHASE(judge_group(&shared, group, status, thread, threads));
    }
}

#endif
