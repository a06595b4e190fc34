/* Decodes the entropy-coded segments of JPEGs (ITU-T T.81, annex F.2): whatever is not as it should be ends it. */

#include "jpeg.h"

#include <string.h>

enum { RST0 = 0xD0, EOI = 0xD9 };

/* Copies bytes up to the first 0xFF, and not many more than `most`; returns how many. Behind them, 31 bytes of any value may
   be written, and what is read lies before `stop`. */
static size_t
copy_run(uint8_t *to, const uint8_t *from, size_t most, const uint8_t *stop)
{
    size_t size = (size_t)smaller((ptrdiff_t)most, stop - from);
    const uint8_t *found = memchr(from, 0xFF, size);
    size_t count = found != NULL ? (size_t)(found - from) : size;
    memcpy(to, from, count);
    return count;
}

/* Returns where the next 0xFF stands without a zero behind it, or NULL. */
static const uint8_t *
find_marker(const uint8_t *from, const uint8_t *stop)
{
    while ((from = memchr(from, 0xFF, (size_t)(stop - from))) != NULL) {
        if (stop - from < 2)
            return NULL;
        if (from[1])
            break;
        from += 2;
    }
    return from;
}

#if HAS_AVX2
enum { VECTOR = 32 };

/* The runs have some two hundred bytes: looking and copying at once takes half the time. */
AVX2 static size_t
copy_run_avx2(uint8_t *to, const uint8_t *from, size_t most, const uint8_t *stop)
{
    size_t count = 0;
    for (; count < most && stop - from >= VECTOR; count += VECTOR, from += VECTOR) {
        __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)from);
        _mm256_storeu_si256((__m256i *)(void *)(to + count), bytes);
        unsigned found = (unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_set1_epi8((char)0xFF)));
        if (found)
            return count + _tzcnt_u32(found);
    }
    return count < most ? count + copy_run(to + count, from, most - count, stop) : count;
}

AVX2 static const uint8_t *
find_marker_avx2(const uint8_t *from, const uint8_t *stop)
{
    for (; stop - from > VECTOR; from += VECTOR) {
        __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)from);
        __m256i behind = _mm256_loadu_si256((const __m256i *)(const void *)(from + 1));
        __m256i stuffed = _mm256_cmpeq_epi8(behind, _mm256_setzero_si256());
        __m256i marks = _mm256_andnot_si256(stuffed, _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8((char)0xFF)));
        unsigned found = (unsigned)_mm256_movemask_epi8(marks);
        if (found)
            return from + _tzcnt_u32(found);
    }
    return find_marker(from, stop);
}
#endif

/* Brings more of the segment's bytes, without the zeros that are stuffed behind 0xFF; 0 where it does not end with the
   marker that belongs there. */
static int
fill(Decoder *d)
{
    size_t (*copy)(uint8_t *, const uint8_t *, size_t, const uint8_t *) = copy_run;
#if HAS_AVX2
    if (has_avx2())
        copy = copy_run_avx2;
#endif
    for (int i = 0; i < d->count; i++) /* what a chunk adds is less than 2^30 */
        if (d->components[i].prediction > 1 << 30 || d->components[i].prediction < -(1 << 30))
            return 0;
    ptrdiff_t left = larger(d->end - d->at.next, 0);
    memmove(d->chunk, d->at.next, (size_t)left);
    uint8_t *to = d->chunk + left, *room = d->chunk + CHUNK;
    const uint8_t *from = d->from;
    d->at.next = d->chunk;
    while (to < room && !d->ended) {
        size_t count = copy(to, from, (size_t)(room - to), d->stop);
        to += count;
        from += count;
        if (to >= room)
            break;
        if (d->stop - from < 2)
            return 0;
        if (from[1]) {
            int last = !d->interval || (d->segment + 1) * d->interval >= d->rows * d->columns;
            if (from[1] != (last ? EOI : RST0 + (d->segment & 7)))
                return 0;
            d->ended = 1; /* damaged bits may go on for an MCU, in what was here before; then it is not taken */
        } else {
            *to++ = 0xFF;
            from += 2;
        }
    }
    d->from = from;
    d->end = to;
    return 1;
}

/* Goes to the beginning of a segment behind the present one. */
static int
enter(Decoder *d, ptrdiff_t segment)
{
    const uint8_t *(*find)(const uint8_t *, const uint8_t *) = find_marker;
#if HAS_AVX2
    if (has_avx2())
        find = find_marker_avx2;
#endif
    for (; d->segment < segment; d->segment++, d->ended = 0) {
        const uint8_t *marker = d->ended ? d->from : find(d->from, d->stop);
        if (marker == NULL || marker[1] != RST0 + (d->segment & 7))
            return 0;
        d->from = marker + 2;
    }
    d->mcu = segment * d->interval;
    d->ended = 0;
    d->at = (Bits){0, 0, d->chunk};
    d->end = d->chunk;
    for (int i = 0; i < d->count; i++)
        d->components[i].prediction = 0;
    return fill(d);
}

INLINE void
refill(Bits *b)
{
#if defined(__GNUC__) || defined(__clang__)
    uint64_t word;
    memcpy(&word, b->next, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
#else
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word = word << 8 | b->next[i];
#endif
    b->bits |= word >> b->count;
    b->next += (63 - b->count) >> 3;
    b->count |= 56;
}

/* Returns where the byte behind the last one begins of which a bit was taken. */
INLINE const uint8_t *
position(const Bits *b)
{
    return b->next - (b->count >> 3);
}

/* Returns the symbol of a code that is longer than those in the table. */
static Symbol
look_further(const Table *table, uint64_t bits)
{
    for (int length = LOOK + 1; length <= 16; length++) {
        int32_t code = (int32_t)(bits >> (64 - length));
        if (code < table->end[length])
            return table->symbols[(code + table->symbol[length]) & 255];
    }
    return 0;
}

/* Returns the value that follows a code (T.81, F.2.2.1: EXTEND), and goes on behind it. */
INLINE int
take_value(Bits *b, Symbol symbol)
{
    int least = symbol >> 16, value = (int)(b->bits >> (-symbol & 63)) & -least;
    b->bits <<= symbol & 63;
    b->count -= symbol & 63;
    return 2 * value + least <= 0 ? value + least : value;
}

/* Decodes a block into coefficients, which were zeros, or past it where it is not wanted. Returns the index behind the
   last coefficient in zigzag order, 0 where the bits are none of a block. */
INLINE int
decode_block(Bits *b, int *prediction, const Table *dc, const Table *ac, int16_t *block, int wanted)
{
    refill(b);
    Symbol symbol = dc->look[b->bits >> (64 - LOOK)];
    if (UNLIKELY(!symbol) && !(symbol = look_further(dc, b->bits)))
        return 0;
    *prediction += take_value(b, symbol);
    if (wanted)
        block[0] = (int16_t)*prediction;
    for (int k = 1;;) {
        refill(b); /* is enough for two */
        for (int i = 0; i < 2; i++) {
            symbol = ac->look[b->bits >> (64 - LOOK)];
            if (UNLIKELY(symbol >= 0)) {
                if (!symbol && !(symbol = look_further(ac, b->bits)))
                    return 0;
                if (symbol >= 0) {
                    take_value(b, symbol);
                    if (!(symbol >> 8))
                        return k;
                    k += 16; /* zeros */
                    if (k > 63)
                        return 0;
                    continue;
                }
            }
            k += symbol >> 8 & 0xFF;
            int value = take_value(b, symbol);
            if (wanted)
                block[zigzag[k]] = (int16_t)value;
            if (++k > 63)
                return k == 64 ? k : 0;
        }
    }
}

typedef struct { /* a block of each MCU */
    const Table *dc, *ac;
    int *prediction;
    const int16_t *quantum;
    uint8_t *to; /* the samples of the next MCU's */
    ptrdiff_t stride, step;
} Block;

enum { MOST_WAITING = 2 * BLOCKS };

typedef struct { /* blocks that were decoded and not yet transformed */
    _Alignas(64) int16_t coefficients[MOST_WAITING][64]; /* zeros, where nothing waits */
    Coded blocks[MOST_WAITING];
    int count;
} Waiting;

/* Lays out the blocks of the wanted MCUs of a row; returns how many an MCU has. */
static int
lay_out_blocks(Decoder *d, Block *block, ptrdiff_t row)
{
    Block *first = block;
    for (Component *c = d->components; c < d->components + d->count; c++) {
        for (ptrdiff_t y = 0; y < c->down; y++) {
            for (ptrdiff_t x = 0; x < c->across; x++, block++) {
                uint8_t *to = samples_of(c, (row * c->down + y) * 8) + x * 8;
                *block = (Block){c->dc, c->ac, &c->prediction, c->quantum, to, c->stride, 8 * c->across};
            }
        }
    }
    return (int)(block - first);
}

static void
fill_block(int dc, uint8_t *to, ptrdiff_t stride)
{
    int sample = (((int16_t)(dc * 4) + 16) >> 5) + 128; /* what the transform gives of a block without other coefficients */
    sample = sample < 0 ? 0 : sample > 255 ? 255 : sample;
    for (int row = 0; row < 8; row++, to += stride)
        memset(to, sample, 8);
}

static void
transform_waiting(Waiting *waiting, const Kernels *kernels)
{
    kernels->transform(waiting->blocks, waiting->count);
    waiting->count = 0;
}

/* Decodes MCUs up to `stop`, which is not behind the segment's end; leaves out those that nobody is `waiting` for. */
INLINE int
decode_mcus(Decoder *d, Block *blocks, int count, ptrdiff_t stop, Waiting *waiting, const Kernels *kernels)
{
    Bits bits = d->at;
    for (; d->mcu < stop; d->mcu++) {
        if (UNLIKELY(d->end - bits.next < MCU_BYTES && !d->ended)) {
            d->at = bits;
            if (!fill(d))
                return 0;
            bits = d->at;
        }
        /* First the bits of some MCUs, then their samples: the processor loads slowly in wide pieces what it has just
           stored in small ones. */
        if (waiting != NULL && waiting->count + count > MOST_WAITING)
            transform_waiting(waiting, kernels);
        for (Block *block = blocks; block < blocks + count; block++) {
            int16_t *coefficients = waiting != NULL ? waiting->coefficients[waiting->count] : NULL;
            int end = decode_block(&bits, block->prediction, block->dc, block->ac, coefficients, waiting != NULL);
            if (UNLIKELY(!end))
                return 0;
            if (waiting == NULL)
                continue;
            if (end > 1)
                waiting->blocks[waiting->count++] = (Coded){coefficients, block->quantum, block->to, block->stride};
            else
                fill_block(coefficients[0] * block->quantum[0], block->to, block->stride);
            block->to += block->step;
        }
        if (UNLIKELY(d->ended && position(&bits) > d->end))
            return 0;
    }
    d->at = bits;
    return 1;
}

INLINE int
decode_row_with(Decoder *d, const Window *window, ptrdiff_t row, const Kernels *kernels)
{
    const ptrdiff_t first = row * d->columns + window->first, end = row * d->columns + window->end;
    Block blocks[BLOCKS];
    Waiting waiting;
    int count = lay_out_blocks(d, blocks, row - window->first_row);
    memset(waiting.coefficients, 0, sizeof waiting.coefficients);
    waiting.count = 0;
    while (d->mcu < end) {
        ptrdiff_t segment = d->interval ? larger(d->mcu, first) / d->interval : 0;
        if (segment != d->segment) {
            if (d->mcu == (d->segment + 1) * d->interval && position(&d->at) != d->end) /* bytes are left over */
                return 0;
            if (!enter(d, segment))
                return 0;
        }
        ptrdiff_t segment_end = d->interval ? (segment + 1) * d->interval : end;
        if (d->mcu < first && !decode_mcus(d, blocks, count, smaller(first, segment_end), NULL, kernels))
            return 0;
        if (!decode_mcus(d, blocks, count, smaller(end, segment_end), &waiting, kernels))
            return 0;
    }
    transform_waiting(&waiting, kernels);
    /* After the last MCU of all, no bytes may be left over either: what libjpeg says of them depends on what they are. */
    return d->mcu < d->rows * d->columns || position(&d->at) == d->end;
}

int
begin_scan(Decoder *d)
{
    d->segment = 0;
    d->ended = 0;
    return enter(d, 0);
}

static int
decode_row_plain(Decoder *d, const Window *window, ptrdiff_t row)
{
    return decode_row_with(d, window, row, best_kernels());
}

#if HAS_AVX2
AVX2 static int
decode_row_avx2(Decoder *d, const Window *window, ptrdiff_t row) /* what counts here is BMI2's shifts */
{
    return decode_row_with(d, window, row, best_kernels());
}
#endif

int
decode_row(Decoder *d, const Window *window, ptrdiff_t row)
{
#if HAS_AVX2
    if (has_avx2())
        return decode_row_avx2(d, window, row);
#endif
    return decode_row_plain(d, window, row);
}
