/* Decodes the scans of progressive JPEGs (ITU-T T.81, annex G) into the coefficients of the requested MCUs, and
   converts these to samples. Fails at the first violation of the standard, and if data are missing at the end: libjpeg
   smooths these images.

   Of a block outside of the request, only the positions of its nonzero coefficients are stored, because later scans
   cannot be read without them. Below the requested rows, a scan is skipped. */

#include "compilers.h"
#include "jpeg/bits.h"
#include "jpeg/jpeg.h"
#include "jpeg/markers.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNED = 64 }; /* bytes */

/* The bit of the coefficient k in a number that has one for each coefficient of a block, in zigzag order from the
   highest bit on. */
#define FLAG(k) (UINT64_C(1) << 63 >> (k))

static ptrdiff_t
blocks_of(const Component *c)
{
    return (c->width + 7) / 8 * ((c->height + 7) / 8);
}

/* In the first scan of its component, each block has a code of its own, of one bit or more. Everything that looks like a
   scan counts as a pass over the image. Python counts in the same way, and reports an image with too many scans. */
int
is_plausible(const Decoder *d)
{
    int64_t blocks = 0, scans = 1;
    for (int i = 0; i < d->count; i++)
        blocks += blocks_of(&d->components[i]);
    for (const uint8_t *at = d->from; (at = kernels->find_marker(at, d->stop)) != NULL;) {
        scans += at[1] == SOS;
        at += at[1] == 0xFF ? 1 : 2;
    }
    return blocks <= 8 * (int64_t)(d->stop - d->from) && d->height * d->width <= MOST_PIXELS * PASSES / scans;
}

/* Returns how many blocks of a component a row of the requested MCUs has. */
static ptrdiff_t
wanted_columns(const Component *c, const Window *window)
{
    return (window->end - window->first) * c->across;
}

int
make_room_for_coefficients(Decoder *d, const Window *window)
{
    size_t wanted = 0, all = 0, needed;
    for (const Component *c = d->components; c < d->components + d->count; c++) {
        wanted += (size_t)(wanted_columns(c, window) * (window->row_end - window->first_row) * c->down);
        all += (size_t)(d->columns * c->across * window->row_end * c->down);
    }
    needed = wanted * 64 * sizeof(int16_t) + all * sizeof(uint64_t) + ALIGNED;
    if (d->stored_size < needed) {
        free(d->stored);
        d->stored = malloc(needed);
        d->stored_size = d->stored == NULL ? 0 : needed;
    }
    if (d->stored == NULL)
        return 0;
    memset(d->stored, 0, needed);
    int16_t *coefficients = (int16_t *)(void *)(d->stored + (-(uintptr_t)d->stored & (ALIGNED - 1)));
    uint64_t *nonzero = (uint64_t *)(void *)(coefficients + 64 * wanted);
    for (Component *c = d->components; c < d->components + d->count; c++) {
        c->coefficients = coefficients;
        c->nonzero = nonzero;
        coefficients += 64 * wanted_columns(c, window) * (window->row_end - window->first_row) * c->down;
        nonzero += d->columns * c->across * window->row_end * c->down;
    }
    return 1;
}

/* Returns the coefficients of a requested block. */
INLINE int16_t *
coefficients_of(const Component *c, const Window *window, ptrdiff_t row, ptrdiff_t column)
{
    row -= window->first_row * c->down;
    column -= window->first * c->across;
    return c->coefficients + 64 * (row * wanted_columns(c, window) + column);
}

/* Tells whether a scan may follow the earlier ones, and records the bits that it has. */
static int
follows(const Scan *scan)
{
    for (int i = 0; i < scan->count; i++) {
        int8_t *lowest = scan->components[i]->lowest;
        if (scan->first > 0 && lowest[0] < 0)
            return 0;
        for (int k = scan->first; k <= scan->last; k++) {
            if (lowest[k] != (scan->refines ? scan->low + 1 : -1))
                return 0;
            lowest[k] = (int8_t)scan->low;
        }
    }
    return 1;
}

static int
is_complete(const Decoder *d)
{
    for (int i = 0; i < d->count; i++)
        for (int k = 0; k < 64; k++)
            if (d->components[i].lowest[k])
                return 0;
    return 1;
}

typedef struct { /* MCUs of a scan, in one row; either all are requested or none */
    const Window *window;
    ptrdiff_t row, column, count;
} Piece;

typedef struct { /* one of the blocks of an MCU: its first coefficient, and the distance to that of the next MCU */
    int16_t *at;
    ptrdiff_t step;
    int component; /* its index in the scan */
} Place;

static int
lay_out_places(const Scan *scan, const Piece *piece, Place *place, int wanted)
{
    const Place *first = place;
    for (int i = 0; i < scan->count; i++) {
        const Component *c = scan->components[i];
        ptrdiff_t across = scan->count == 1 ? 1 : c->across, down = scan->count == 1 ? 1 : c->down;
        for (ptrdiff_t y = 0; y < down; y++) {
            for (ptrdiff_t x = 0; x < across; x++, place++) {
                *place = (Place){NULL, 64 * across, i};
                if (wanted)
                    place->at = coefficients_of(c, piece->window, piece->row * down + y, piece->column * across + x);
            }
        }
    }
    return (int)(place - first);
}

/* Tells whether no more bits were taken than the segment has. */
INLINE int
were_there(const Stream *s, const Bits *bits)
{
    return !s->ended || position(bits) <= s->end;
}

/* Decodes the first coefficients of MCUs, or one more bit of each. */
INLINE int
decode_first_coefficients(const Decoder *d, Stream *s, const Piece *piece, int wanted)
{
    const Scan *scan = &d->scan;
    Place places[BLOCKS];
    const int count = lay_out_places(scan, piece, places, wanted);
    const Place *end = places + count;
    const int low = scan->low, refines = scan->refines;
    Bits bits = s->at;
    for (ptrdiff_t left = piece->count; left > 0; left--) {
        if (!provide(d, s, &bits, count))
            return 0;
        refill(&bits);
        for (Place *place = places; place < end; place++) {
            int *prediction = &s->predictions[place->component], coefficient = 0;
            if (refines) {
                refill(&bits);
                coefficient = (int)(bits.bits >> 63) << low;
                skip_bits(&bits, 1);
            } else {
                if (UNLIKELY(!decode_first(&bits, prediction, scan->components[place->component]->dc)))
                    return 0;
                coefficient = (int)((uint32_t)*prediction << low);
            }
            if (wanted) {
                *place->at = (int16_t)(*place->at | coefficient);
                place->at += place->step;
            }
        }
        if (UNLIKELY(!were_there(s, &bits)))
            return 0;
    }
    s->at = bits;
    return 1;
}

/* Takes the bits after the code of a run of blocks that end, and returns the length of the run. The code was already
   taken. */
INLINE int
take_run(Bits *b, Symbol symbol)
{
    unsigned length = symbol >> RUN & 15;
    int run = (1 << length) + (int)(b->bits >> 1 >> (63 - length));
    skip_bits(b, length);
    return run;
}

/* Decodes coefficients of a block that are 0 so far, or skips them if `block` is NULL. If a run of blocks ends here,
   returns its length, this block included; 0 if the block has all coefficients up to the last; -1 if the bits are
   invalid. */
INLINE int
decode_band(Bits *b, const Scan *scan, const Table *ac, int16_t *block, uint64_t *nonzero)
{
    const int last = scan->last, low = scan->low;
    for (int k = scan->first; k <= last;) {
        refill(b); /* enough for two symbols */
        for (int i = 0; i < 2 && k <= last; i++) {
            Symbol symbol = next_symbol(b, ac);
            k += (int)(symbol >> RUN & 15); /* zeros */
            if (UNLIKELY(!(symbol & HAS_VALUE))) {
                skip_bits(b, symbol);
                if ((symbol >> RUN & 15) != 15)
                    return symbol ? take_run(b, symbol) : -1;
                if (++k > last)
                    return -1;
                continue;
            }
            int value = take_value(b, symbol);
            if (UNLIKELY(k > last))
                return -1;
            if (block != NULL)
                block[zigzag[k]] = (int16_t)(value * (1 << low));
            *nonzero |= FLAG(k++);
        }
    }
    return 0;
}

/* Moves the lowest bits to the positions of the ones in a mask, as the instruction PDEP does; NULL if the processor has
   no fast PDEP. */
typedef uint64_t (*Deposit)(uint64_t bits, uint64_t mask);

/* Returns the bit of `places` that has `before` others above it; 0 if there is none. */
INLINE uint64_t
find_place(uint64_t places, int before, Deposit deposit)
{
    if (deposit != NULL) {
        int after = count_ones(places) - 1 - before;
        return after < 0 ? 0 : deposit(UINT64_C(1) << after, places);
    }
    for (; before > 0 && places; before--)
        places ^= FLAG(leading_zeros(places));
    return places ? FLAG(leading_zeros(places)) : 0;
}

/* Takes a bit of the scan for each bit of `places`, at most 32, and returns those for which it is 1. */
INLINE uint64_t
take_bits(Bits *b, uint64_t places, Deposit deposit)
{
    const int count = count_ones(places);
    refill(b);
    uint64_t bits = b->bits, ones = 0;
    skip_bits(b, (unsigned)count);
    if (deposit != NULL)
        return deposit(bits >> 1 >> (63 - count), places);
    for (; places; places ^= FLAG(leading_zeros(places)), bits <<= 1)
        ones |= bits >> 63 ? FLAG(leading_zeros(places)) : 0;
    return ones;
}

/* Takes a correction bit for each of the known coefficients, and returns those whose absolute value grows. */
INLINE uint64_t
take_corrections(Bits *b, uint64_t known, Deposit deposit)
{
    const uint64_t lower = UINT32_MAX;
    if (UNLIKELY(count_ones(known) > 32))
        return take_bits(b, known & ~lower, deposit) | take_bits(b, known & lower, deposit);
    return take_bits(b, known, deposit);
}

/* As decode_band, but decodes one more bit of each coefficient. `run` is the rest of a run of blocks that end; 0 if the
   block has codes. */
INLINE int
refine_band(Bits *b, const Scan *scan, const Table *ac, int16_t *block, uint64_t *nonzero, int run, Deposit deposit)
{
    const uint64_t known = *nonzero; /* the correction bits of these come between the codes of new ones */
    const int low = scan->low;
    uint64_t left = ~UINT64_C(0) >> scan->first & ~UINT64_C(0) << (63 - scan->last), grown = 0;
    while (!run && left) {
        refill(b);
        Symbol symbol = next_symbol(b, ac);
        int zeros = (int)(symbol >> RUN & 15), value = 0;
        if (symbol & HAS_VALUE) {
            value = take_value(b, symbol);
            if (UNLIKELY(value != 1 && value != -1)) /* a new coefficient has no other value */
                return -1;
        } else if (symbol) {
            skip_bits(b, symbol);
            if (zeros != 15) {
                run = take_run(b, symbol);
                break;
            }
        }
        const uint64_t place = symbol ? find_place(left & ~known, zeros, deposit) : 0;
        if (UNLIKELY(!place))
            return -1;
        grown |= take_corrections(b, left & known & -(place << 1), deposit);
        left &= place - 1;
        if (value) {
            *nonzero |= place;
            if (block != NULL)
                block[zigzag[leading_zeros(place)]] = (int16_t)(value * (1 << low));
        }
    }
    grown |= take_corrections(b, left & known, deposit);
    if (block == NULL)
        return run;
    for (; grown; grown &= grown - 1) {
        int16_t *at = block + zigzag[leading_zeros(grown & -grown)];
        *at = (int16_t)(*at + (*at >> 15 | 1) * (1 << low));
    }
    return run;
}

/* Decodes some coefficients after the first ones, in blocks of one component, or one more bit of each. The first `*run`
   of the blocks have no codes. */
INLINE int
decode_other_coefficients(const Decoder *d, Stream *s, const Piece *piece, int *run, int wanted, Deposit deposit)
{
    const Scan *scan = &d->scan;
    const Component *c = scan->components[0];
    const Table *ac = c->ac;
    int16_t *block = wanted ? coefficients_of(c, piece->window, piece->row, piece->column) : NULL;
    uint64_t *nonzero = c->nonzero + piece->row * d->columns * c->across + piece->column, *end = nonzero + piece->count;
    int blocks = *run;
    Bits bits = s->at;
    while (nonzero < end) {
        ptrdiff_t some = 1;
        if (blocks && !scan->refines) {
            some = smaller(blocks, end - nonzero);
            blocks -= (int)some;
        } else {
            if (!provide(d, s, &bits, 1))
                return 0;
            blocks = scan->refines ? refine_band(&bits, scan, ac, block, nonzero, blocks, deposit)
                                   : decode_band(&bits, scan, ac, block, nonzero);
            if (UNLIKELY(blocks < 0 || !were_there(s, &bits)))
                return 0;
            blocks -= blocks > 0;
        }
        nonzero += some;
        if (wanted)
            block += 64 * some;
    }
    *run = blocks;
    s->at = bits;
    return 1;
}

INLINE int
decode_piece(const Decoder *d, Stream *s, const Piece *piece, int *run, int wanted, Deposit deposit)
{
    return d->scan.first == 0 ? decode_first_coefficients(d, s, piece, wanted)
                              : decode_other_coefficients(d, s, piece, run, wanted, deposit);
}

/* Decodes a scan down to the last requested row. Of other MCUs, only the data that later MCUs and scans need are stored. */
INLINE int
decode_scan_with(Decoder *d, const Window *window, Deposit deposit)
{
    Stream *s = &d->streams[0];
    const Scan *scan = &d->scan;
    const ptrdiff_t across = scan->count == 1 ? scan->components[0]->across : 1;
    const ptrdiff_t down = scan->count == 1 ? scan->components[0]->down : 1;
    const ptrdiff_t first = window->first * across, stop = smaller(window->end * across, scan->columns);
    const ptrdiff_t rows = smaller(window->row_end * down, scan->rows);
    int run = 0;
    if (!begin_scan(d))
        return 0;
    for (Piece piece = {window, 0, 0, 0}; piece.row < rows; piece.row++) {
        for (piece.column = 0; piece.column < scan->columns; piece.column += piece.count) {
            if (s->mcu == end_of_segment(d, s) && (run || !is_used_up(d, s) || !enter_segment(d, s, s->segment + 1)))
                return 0;
            int wanted = piece.row >= window->first_row * down && piece.column >= first && piece.column < stop;
            ptrdiff_t end = wanted ? stop : piece.column < first ? first : scan->columns;
            piece.count = smaller(end - piece.column, end_of_segment(d, s) - s->mcu);
            if (!(wanted ? decode_piece(d, s, &piece, &run, 1, deposit) : decode_piece(d, s, &piece, &run, 0, deposit)))
                return 0;
            s->mcu += piece.count;
        }
    }
    return s->mcu < d->mcus || (!run && is_used_up(d, s));
}

static int
decode_scan_plain(Decoder *d, const Window *window)
{
    return decode_scan_with(d, window, NULL);
}

#if HAS_AVX2
AVX2 static uint64_t
deposit_bmi2(uint64_t bits, uint64_t mask)
{
    return _pdep_u64(bits, mask);
}

AVX2 static int
decode_scan_bmi2(Decoder *d, const Window *window)
{
    return decode_scan_with(d, window, deposit_bmi2);
}

AVX2 static int
decode_scan_slow_bmi2(Decoder *d, const Window *window)
{
    return decode_scan_with(d, window, NULL);
}
#endif

static int
decode_scan(Decoder *d, const Window *window)
{
#if HAS_AVX2
    if (kernels->has_avx2)
        return deposit_is_slow ? decode_scan_slow_bmi2(d, window) : decode_scan_bmi2(d, window);
#endif
    return decode_scan_plain(d, window);
}

/* Skips the rest of a scan. Returns the marker after it, or NULL. */
static const uint8_t *
find_end(const Decoder *d)
{
    const Stream *s = &d->streams[0];
    const uint8_t *marker = s->ended ? s->from : kernels->find_marker(s->from, d->stop);
    while (marker != NULL && is_restart(marker[1]))
        marker = kernels->find_marker(marker + 2, d->stop);
    return marker;
}

int
decode_scans(Decoder *d, const Window *window)
{
    for (;;) {
        const uint8_t *end;
        if (!follows(&d->scan) || !decode_scan(d, window) || (end = find_end(d)) == NULL)
            return 0;
        switch (read_after_scan(d, end)) {
        case ANOTHER_SCAN:
            break;
        case NO_MORE_SCANS:
            return is_complete(d);
        default:
            return 0;
        }
    }
}

enum { TOGETHER = 8 }; /* blocks that are transformed at a time */

void
transform_mcus(const Decoder *d, const Window *window, ptrdiff_t row)
{
    Coded coded[TOGETHER];
    int count = 0;
    for (const Component *c = d->components; c < d->components + d->count; c++) {
        for (ptrdiff_t y = 0; y < c->down; y++) {
            ptrdiff_t line = row * c->down + y;
            const uint64_t *nonzero = c->nonzero + (line * d->columns + window->first) * c->across;
            const uint64_t *end = nonzero + wanted_columns(c, window);
            int16_t *block = coefficients_of(c, window, line, window->first * c->across);
            uint8_t *to = samples_of(c, (line - window->first_row * c->down) * 8);
            for (; nonzero < end; nonzero++, block += 64, to += 8) {
                if (!*nonzero) {
                    fill_block(*block * c->quantum[0], to, c->stride);
                    continue;
                }
                coded[count++] = (Coded){block, c->quantum, to, c->stride};
                if (count == TOGETHER) {
                    kernels->transform(coded, count);
                    count = 0;
                }
            }
        }
    }
    kernels->transform(coded, count);
}
