/* Implements tokens.h. The end of a scan is checked once a block: the MARGIN zeros after it are more bytes than a block
   can take, and the buffer has room for the tokens of one more block than the scan can have. */

#include "jpeg/markers.h"
#include "kernels/kernels.h"
#include "tiling/tokens.h"

#include <string.h>

const char bad_code[] = "a damaged scan: an invalid code", bad_value[] = "a damaged scan: a coefficient out of range",
           too_short[] = "a damaged scan: data that end too early", left_over[] = "a damaged scan: data left over";

const uint8_t *
unstuff(const uint8_t *from, const uint8_t *stop, uint8_t *bytes, ptrdiff_t *ends, ptrdiff_t intervals)
{
    uint8_t *to = bytes;
    for (ptrdiff_t interval = 0;;) {
        size_t run = kernels->copy_run(to, from, (size_t)(stop - from), stop);
        to += run;
        from += run;
        if (stop - from < 2)
            return NULL;
        const uint8_t *marker = from;
        if (from[1] == 0) {
            *to++ = 0xFF;
            from += 2;
            continue;
        }
        for (; from[1] == 0xFF; from++) /* fill bytes */
            if (stop - from < 3)
                return NULL;
        int restarts = from[1] >= RST0 && from[1] <= RST0 + 7;
        ends[interval++] = to - bytes;
        if (!restarts && from[1] && interval == intervals) {
            memset(to, 0, MARGIN);
            return marker;
        }
        if (!restarts || interval >= intervals || from[1] != RST0 + ((interval - 1) & 7))
            return NULL;
        from += 2;
    }
}

typedef struct { /* a block of each MCU */
    int component;
    const Code *dc, *ac;
    uint32_t key; /* the first key of its DC table */
} Block;

/* Returns how many blocks an MCU has. */
static int
lay_out_blocks(const CodedScan *scan, const Frame *frame, Block *blocks)
{
    int count = 0;
    for (int i = 0; i < frame->count; i++) {
        const FrameComponent *c = &frame->components[i];
        for (int block = 0; block < c->across * c->down; block++)
            blocks[count++] = (Block){i, scan->dc[i], scan->ac[i], i ? SECOND_TABLE : 0};
    }
    return count;
}

/* Reads the AC coefficients of a block into tokens; `first` is the token of the first key. Returns their end, or NULL
   with a problem. */
INLINE uint32_t *
read_others(Bits *bits, const Code *code, uint32_t first, uint32_t *token, uint32_t *counts, Problem *problem)
{
    Bits b = *bits;
    for (int k = 1;;) {
        refill(&b); /* is enough for two */
        for (int i = 0; i < 2; i++) {
            Entry entry = code->look[b.bits >> (64 - LOOK)];
            if (UNLIKELY(entry <= 0) && (entry < 0 || (entry = look_further(code, b.bits)) <= 0)) {
                *problem = bad_code;
                return NULL;
            }
            *token = (((uint32_t)entry & (255u << SYMBOL)) + first) | take_amplitude(&b, entry);
            counts[*token++ >> AMPLITUDE]++;
            k += entry >> SKIP;
            if (k < 64)
                continue;
            *bits = b;
            if (k == 64 || k >= AT_END)
                return token;
            *problem = bad_value;
            return NULL;
        }
    }
}

INLINE Problem
read_tokens_with(const CodedScan *scan, const Frame *frame, Tokens *tokens)
{
    Block blocks[MCU_BLOCKS];
    const int count = lay_out_blocks(scan, frame, blocks);
    const ptrdiff_t mcus = frame->across * frame->down;
    const uint8_t *end = scan->bytes + scan->ends[0];
    Bits b = {0, 0, scan->bytes};
    Problem problem = NULL;
    uint32_t *token = tokens->tokens;
    ptrdiff_t restart = scan->interval ? scan->interval : mcus, new_restart = tokens->tile, interval = 0, tile = 0;
    int32_t value[COMPONENTS] = {0}, sent[COMPONENTS] = {0}; /* the last DC values, of the old scan and of the new one */
    for (ptrdiff_t mcu = 0; mcu < mcus; mcu++) {
        if (mcu == restart) {
            if ((problem = judge_end(&b, end)) != NULL)
                return problem;
            b = (Bits){0, 0, end};
            end = scan->bytes + scan->ends[++interval];
            restart += scan->interval;
            memset(value, 0, sizeof value);
        }
        if (mcu == new_restart) {
            tokens->ends[tile++] = token - tokens->tokens;
            new_restart += tokens->tile;
            memset(sent, 0, sizeof sent);
        }
        for (const Block *block = blocks; block < blocks + count; block++) {
            if (UNLIKELY(bits_left(&b, end) < 0))
                return too_short;
            refill(&b);
            Entry entry = find_code(block->dc, b.bits);
            if (UNLIKELY(!entry || symbol_of(entry) > 11))
                return bad_code;
            int32_t *now = &value[block->component], *before = &sent[block->component];
            *now += take_value(&b, entry);
            if (UNLIKELY(!put_value(token++, tokens->counts, block->key, *now - *before, 11)))
                return bad_value;
            *before = *now; /* no overflow: it is at most 2047 from the last one, and a tile is at most a row */
            token = read_others(&b, block->ac, (block->key + AC_KEY) << AMPLITUDE, token, tokens->counts, &problem);
            if (UNLIKELY(token == NULL))
                return problem;
        }
    }
    tokens->ends[tile] = token - tokens->tokens;
    return judge_end(&b, end);
}

/* Writes a byte, and a stuffed zero after 0xFF. */
INLINE uint8_t *
put_byte(uint8_t *to, uint8_t byte)
{
    *to++ = byte;
    if (byte == 0xFF)
        *to++ = 0;
    return to;
}

/* Writes the whole bytes of the first `held` of 64 bits; the bits after these must be 0. May write more bytes, of any
   value. */
INLINE uint8_t *
put_bytes(uint8_t *to, uint64_t bits, int held)
{
    if (UNLIKELY((~bits - 0x0101010101010101) & bits & 0x8080808080808080)) { /* one of them is 0xFF */
        for (; held >= 8; held -= 8, bits <<= 8)
            to = put_byte(to, (uint8_t)(bits >> 56));
        return to;
    }
#if (defined(__GNUC__) || defined(__clang__)) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    bits = __builtin_bswap64(bits);
    memcpy(to, &bits, 8);
#else
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(bits >> (56 - 8 * i));
#endif
    return to + (held >> 3);
}

INLINE uint8_t *
write_tile(const uint32_t *token, const uint32_t *end, const uint32_t *codes, uint8_t *to)
{
    uint64_t bits = 0;
    int held = 0;
    while (token < end) {
        for (int i = 0; i < 2 && token < end; i++, token++) { /* of 27 bits each, at most */
            uint32_t code = codes[*token >> AMPLITUDE];
            held += (int)(code & ((1 << WIDTH) - 1));
            bits |= (uint64_t)((code >> WIDTH) | (*token & ((1 << AMPLITUDE) - 1))) << (64 - held);
        }
        to = put_bytes(to, bits, held);
        bits <<= held & ~7;
        held &= 7;
    }
    return held ? put_byte(to, (uint8_t)(bits >> 56 | 0xFF >> held)) : to;
}

INLINE uint8_t *
write_tokens_with(const Tokens *tokens, const uint32_t *codes, uint8_t *scan, int64_t *sizes)
{
    const uint32_t *token = tokens->tokens;
    const ptrdiff_t *tile = tokens->ends;
    for (ptrdiff_t row = 0; row < tokens->rows; row++) {
        uint8_t *begin = scan;
        for (ptrdiff_t column = 0; column < tokens->columns; column++, tile++) {
            const uint32_t *end = tokens->tokens + *tile;
            scan = write_tile(token, end, codes, scan);
            *scan++ = 0xFF;
            *scan++ = (uint8_t)(RST0 + ((tile - tokens->ends) & 7));
            token = end;
        }
        sizes[row] = scan - begin;
    }
    return scan - 2;
}

static Problem
read_tokens_plain(const CodedScan *scan, const Frame *frame, Tokens *tokens)
{
    return read_tokens_with(scan, frame, tokens);
}

static uint8_t *
write_tokens_plain(const Tokens *tokens, const uint32_t *codes, uint8_t *scan, int64_t *sizes)
{
    return write_tokens_with(tokens, codes, scan, sizes);
}

#if HAS_AVX2 /* these are faster because of BMI2's shifts */
AVX2 static Problem
read_tokens_avx2(const CodedScan *scan, const Frame *frame, Tokens *tokens)
{
    return read_tokens_with(scan, frame, tokens);
}

AVX2 static uint8_t *
write_tokens_avx2(const Tokens *tokens, const uint32_t *codes, uint8_t *scan, int64_t *sizes)
{
    return write_tokens_with(tokens, codes, scan, sizes);
}
#endif

Problem
read_tokens(const CodedScan *scan, const Frame *frame, Tokens *tokens)
{
#if HAS_AVX2
    if (kernels->has_avx2)
        return read_tokens_avx2(scan, frame, tokens);
#endif
    return read_tokens_plain(scan, frame, tokens);
}

uint8_t *
write_tokens(const Tokens *tokens, const uint32_t *codes, uint8_t *scan, int64_t *sizes)
{
#if HAS_AVX2
    if (kernels->has_avx2)
        return write_tokens_avx2(tokens, codes, scan, sizes);
#endif
    return write_tokens_plain(tokens, codes, scan, sizes);
}
