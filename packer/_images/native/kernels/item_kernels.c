/* Converts coefficients to items, and items to bits, in plain C and for vectors; see kernels.h and encoding.h. */

#include "compilers.h"
#include "kernels/kernels.h"

#include <string.h>

void
list_items_plain(const CodedBlock *blocks, const uint64_t *masks, ptrdiff_t mcus, Items *items)
{
    int16_t *values = items->values;
    uint8_t *places = items->places;
    for (ptrdiff_t i = 0; i < BLOCKS_OF_MCU * mcus; i++) {
        const int of_chroma = i % BLOCKS_OF_MCU < 4 ? 0 : OF_CHROMA;
        for (uint64_t mask = masks[i]; mask; mask &= mask - 1) {
            const int place = trailing_zeros(mask);
            *values++ = blocks[i].coefficients[place];
            *places++ = (uint8_t)(place + of_chroma);
        }
    }
    items->count = values - items->values;
}

/* Adds bits to the queue, at most 56, and writes all whole bytes. */
INLINE uint8_t *
put(BitQueue *queue, uint64_t bits, unsigned count, uint8_t *to)
{
    const unsigned all = queue->count + count;
    const uint64_t together = queue->bits | bits << ((64 - all) & 63);
    put_bits(to, together);
    queue->bits = together << (all & 56);
    queue->count = all & 7;
    return to + (all >> 3);
}

/* Returns the code of an item with the bits of its value: see Codes. */
INLINE uint32_t
code_of(const Items *items, ptrdiff_t i, const Codes *codes)
{
    const int place = items->places[i], value = items->values[i];
    const int zeros = place % OF_CHROMA ? place - items->places[i - 1] - 1 : FIRST_COEFFICIENT;
    const uint32_t kind = (uint32_t)(zeros + place / OF_CHROMA * KINDS_OF_ITEM), size = (uint32_t)(value < 0 ? -value : value);
    return (*codes)[kind][63 - leading_zeros(2 * size + 1)][value < 0] + ((uint32_t)value << CODE_LENGTH);
}

INLINE uint8_t *
put_items_by(const Items *items, const Codes *codes, BitQueue *queue, uint8_t *to)
{
    enum { LENGTH = (1 << CODE_LENGTH) - 1 };
    BitQueue q = *queue;
    ptrdiff_t i = 0;
    for (; i + 2 <= items->count; i += 2) {
        const uint32_t one = code_of(items, i, codes), other = code_of(items, i + 1, codes);
        const uint64_t bits = (uint64_t)(one >> CODE_LENGTH) << (other & LENGTH) | other >> CODE_LENGTH;
        to = put(&q, bits, (one & LENGTH) + (other & LENGTH), to);
    }
    if (i < items->count) {
        const uint32_t last = code_of(items, i, codes);
        to = put(&q, last >> CODE_LENGTH, last & LENGTH, to);
    }
    *queue = q;
    return to;
}

uint8_t *
put_items_plain(const Items *items, const Codes *codes, BitQueue *queue, uint8_t *to)
{
    return put_items_by(items, codes, queue, to);
}

/* Joined bits of several items; some elements are not used. */
enum { ITEMS_AT_ONCE = 256, MOST_JOINED = ITEMS_AT_ONCE / 2 + 8 };

#if HAS_AVX2
/* Eight coefficients at a time. Each bit of their mask is expanded to a byte, and these bytes extract the positions of
   the coefficients from the bytes 0 to 7. */
AVX2 void
list_items_avx2(const CodedBlock *blocks, const uint64_t *masks, ptrdiff_t mcus, Items *items)
{
    const uint64_t in_order = 0x0706050403020100, ones = 0x0101010101010101;
    int16_t *values = items->values;
    uint8_t *places = items->places;
    if (deposit_is_slow) {
        list_items_plain(blocks, masks, mcus, items);
        return;
    }
    for (ptrdiff_t i = 0; i < BLOCKS_OF_MCU * mcus; i++) {
        uint64_t mask = masks[i], begin = i % BLOCKS_OF_MCU < 4 ? 0 : OF_CHROMA * ones;
        const int16_t *from = blocks[i].coefficients;
        for (; mask; mask >>= 8, from += 8, begin += 8 * ones) {
            const uint64_t found = _pext_u64(in_order, _pdep_u64(mask & 255, ones) * 255), put = found + begin;
            __m128i pairs = _mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)found));
            pairs = _mm_add_epi16(_mm_mullo_epi16(pairs, _mm_set1_epi16(0x0202)), _mm_set1_epi16(0x0100));
            const __m128i eight = _mm_loadu_si128((const __m128i *)(const void *)from);
            _mm_storeu_si128((__m128i *)(void *)values, _mm_shuffle_epi8(eight, pairs));
            memcpy(places, &put, 8);
            const int count = count_ones(mask & 255);
            values += count;
            places += count;
        }
    }
    items->count = values - items->values;
}

/* Writes the kinds of 32 items: see Codes. */
AVX2_INLINE void
kinds_of_avx2(const uint8_t *places, uint8_t *kinds)
{
    __m256i place = _mm256_loadu_si256((const __m256i *)(const void *)places);
    __m256i before = _mm256_loadu_si256((const __m256i *)(const void *)(places - 1));
    __m256i kind = _mm256_sub_epi8(_mm256_sub_epi8(place, before), _mm256_set1_epi8(1));
    __m256i first = _mm256_cmpeq_epi8(_mm256_and_si256(place, _mm256_set1_epi8(OF_CHROMA - 1)), _mm256_setzero_si256());
    __m256i chroma = _mm256_cmpgt_epi8(place, _mm256_set1_epi8(OF_CHROMA - 1));
    kind = _mm256_blendv_epi8(kind, _mm256_set1_epi8(FIRST_COEFFICIENT), first);
    kind = _mm256_add_epi8(kind, _mm256_and_si256(chroma, _mm256_set1_epi8(KINDS_OF_ITEM)));
    _mm256_storeu_si256((__m256i *)(void *)kinds, kind);
}

enum { EIGHT = 8 };

/* Joins the bits of eight items: of four at a time if they have at most 56 bits, otherwise of two. Returns how many
   results there are. */
AVX2_INLINE int
join_eight(const int16_t *values, const uint8_t *kinds, const Codes *codes, uint64_t *joined, uint64_t *counts)
{
    const __m256i lower = _mm256_set1_epi64x(UINT32_MAX), zero = _mm256_setzero_si256();
    __m256i value = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(const void *)values));
    __m256i kind = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)kinds));
    /* The exponent of a float is the number of bits of its integer, plus a constant. */
    __m256i size = _mm256_castps_si256(_mm256_cvtepi32_ps(_mm256_abs_epi32(value)));
    size = _mm256_max_epi32(_mm256_sub_epi32(_mm256_srli_epi32(size, 23), _mm256_set1_epi32(126)), zero);
    __m256i place = _mm256_or_si256(_mm256_slli_epi32(kind, 5), _mm256_srli_epi32(value, 31));
    place = _mm256_add_epi32(place, _mm256_add_epi32(size, size));
    __m256i code = _mm256_i32gather_epi32((const int *)(const void *)codes, place, 4);
    __m256i count = _mm256_and_si256(code, _mm256_set1_epi32((1 << CODE_LENGTH) - 1));
    __m256i bits = _mm256_add_epi32(_mm256_srli_epi32(code, CODE_LENGTH), value), seconds = _mm256_srli_epi64(count, 32);
    bits = _mm256_or_si256(_mm256_sllv_epi64(_mm256_and_si256(bits, lower), seconds), _mm256_srli_epi64(bits, 32));
    count = _mm256_and_si256(_mm256_add_epi32(count, seconds), lower);
    seconds = _mm256_unpackhi_epi64(count, count);
    __m256i four = _mm256_unpacklo_epi64(_mm256_add_epi64(count, seconds), zero);
    if (UNLIKELY(!_mm256_testz_si256(_mm256_cmpgt_epi64(four, _mm256_set1_epi64x(56)), _mm256_set1_epi64x(-1)))) {
        _mm256_storeu_si256((__m256i *)(void *)joined, bits);
        _mm256_storeu_si256((__m256i *)(void *)counts, count);
        return 4;
    }
    bits = _mm256_or_si256(_mm256_sllv_epi64(bits, seconds), _mm256_unpackhi_epi64(bits, bits));
    bits = _mm256_permute4x64_epi64(bits, 0x88);
    _mm_storeu_si128((__m128i *)(void *)joined, _mm256_castsi256_si128(bits));
    _mm_storeu_si128((__m128i *)(void *)counts, _mm256_castsi256_si128(_mm256_permute4x64_epi64(four, 0x88)));
    return 2;
}

AVX2 uint8_t *
put_items_avx2(const Items *items, const Codes *codes, BitQueue *queue, uint8_t *to)
{
    const ptrdiff_t whole = items->count / EIGHT * EIGHT;
    BitQueue q = *queue;
    for (ptrdiff_t begin = 0; begin < whole; begin += ITEMS_AT_ONCE) {
        const ptrdiff_t count = whole - begin < ITEMS_AT_ONCE ? whole - begin : ITEMS_AT_ONCE;
        uint8_t kinds[ITEMS_AT_ONCE];
        uint64_t joined[MOST_JOINED], counts[MOST_JOINED];
        int made = 0;
        for (ptrdiff_t i = 0; i < count; i += 32)
            kinds_of_avx2(items->places + begin + i, kinds + i);
        for (ptrdiff_t i = 0; i < count; i += EIGHT)
            made += join_eight(items->values + begin + i, kinds + i, codes, joined + made, counts + made);
        for (int i = 0; i < made; i++)
            to = put(&q, joined[i], (unsigned)counts[i], to);
    }
    const Items rest = {items->values + whole, items->places + whole, items->count - whole};
    *queue = q;
    return put_items_by(&rest, codes, queue, to);
}
#endif

#if HAS_AVX512
AVX512 void
list_items_avx512(const CodedBlock *blocks, const uint64_t *masks, ptrdiff_t mcus, Items *items)
{
    int16_t *values = items->values;
    uint8_t *places = items->places, from_zero[64];
    for (int i = 0; i < 64; i++)
        from_zero[i] = (uint8_t)i;
    const __m512i all_places = _mm512_loadu_si512(from_zero);
    for (ptrdiff_t mcu = 0; mcu < mcus; mcu++) {
        for (int i = 0; i < BLOCKS_OF_MCU; i++, blocks++, masks++) {
            const uint64_t mask = *masks;
            const int lower = count_ones(mask & UINT32_MAX), count = count_ones(mask);
            __m512i low = _mm512_loadu_si512(blocks->coefficients), high = _mm512_loadu_si512(blocks->coefficients + 32);
            _mm512_storeu_si512(values, _mm512_maskz_compress_epi16((__mmask32)mask, low));
            _mm512_storeu_si512(values + lower, _mm512_maskz_compress_epi16((__mmask32)(mask >> 32), high));
            __m512i found = _mm512_maskz_compress_epi8(mask, all_places);
            _mm512_storeu_si512(places, i < 4 ? found : _mm512_or_si512(found, _mm512_set1_epi8(OF_CHROMA)));
            values += count;
            places += count;
        }
    }
    items->count = values - items->values;
}

/* Writes the kinds of 64 items: see Codes. */
AVX512_INLINE void
kinds_of(const uint8_t *places, uint8_t *kinds)
{
    __m512i place = _mm512_loadu_si512(places), before = _mm512_loadu_si512(places - 1);
    __m512i kind = _mm512_sub_epi8(_mm512_sub_epi8(place, before), _mm512_set1_epi8(1));
    const __mmask64 first = _mm512_testn_epi8_mask(place, _mm512_set1_epi8(OF_CHROMA - 1));
    const __mmask64 chroma = _mm512_test_epi8_mask(place, _mm512_set1_epi8(OF_CHROMA));
    kind = _mm512_mask_mov_epi8(kind, first, _mm512_set1_epi8(FIRST_COEFFICIENT));
    _mm512_storeu_si512(kinds, _mm512_mask_add_epi8(kind, chroma, kind, _mm512_set1_epi8(KINDS_OF_ITEM)));
}

enum { JOINED = 16 };

/* Joins the bits of up to 16 items: of four at a time if they have at most 56 bits, otherwise of two. Returns how many
   results there are. */
AVX512_INLINE int
join_items(const int16_t *values, const uint8_t *kinds, __mmask16 some, const Codes *codes, uint64_t *joined, uint64_t *counts)
{
    const __mmask16 even = 0x5555;
    __m512i value = _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(some, values));
    __m512i kind = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(some, kinds));
    /* Codes has SIZES sizes of each kind, and two codes of each. The size is 32 minus the number of zeros above the
       value. */
    __m512i place = _mm512_or_si512(_mm512_slli_epi32(kind, 5), _mm512_srli_epi32(value, 31));
    __m512i zeros = _mm512_lzcnt_epi32(_mm512_abs_epi32(value));
    place = _mm512_sub_epi32(_mm512_add_epi32(place, _mm512_set1_epi32(2 * 32)), _mm512_add_epi32(zeros, zeros));
    __m512i code = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), some, place, (const int *)(const void *)codes, 4);
    __m512i count = _mm512_and_si512(code, _mm512_set1_epi32((1 << CODE_LENGTH) - 1));
    __m512i bits = _mm512_add_epi32(_mm512_srli_epi32(code, CODE_LENGTH), value), seconds = _mm512_srli_epi64(count, 32);
    bits = _mm512_or_si512(_mm512_sllv_epi64(_mm512_maskz_mov_epi32(even, bits), seconds), _mm512_srli_epi64(bits, 32));
    count = _mm512_maskz_add_epi32(even, count, seconds);
    seconds = _mm512_unpackhi_epi64(count, count);
    __m512i four = _mm512_add_epi64(count, seconds);
    if (UNLIKELY(_mm512_cmpgt_epu64_mask(four, _mm512_set1_epi64(56)) & 0x55)) {
        _mm512_storeu_si512(joined, bits);
        _mm512_storeu_si512(counts, count);
        return 8;
    }
    bits = _mm512_or_si512(_mm512_sllv_epi64(bits, seconds), _mm512_unpackhi_epi64(bits, bits));
    _mm512_storeu_si512(joined, _mm512_maskz_compress_epi64(0x55, bits));
    _mm512_storeu_si512(counts, _mm512_maskz_compress_epi64(0x55, four));
    return 4;
}

AVX512 uint8_t *
put_items_avx512(const Items *items, const Codes *codes, BitQueue *queue, uint8_t *to)
{
    BitQueue q = *queue;
    for (ptrdiff_t begin = 0; begin < items->count; begin += ITEMS_AT_ONCE) {
        const ptrdiff_t count = items->count - begin < ITEMS_AT_ONCE ? items->count - begin : ITEMS_AT_ONCE;
        uint8_t kinds[ITEMS_AT_ONCE];
        uint64_t joined[MOST_JOINED], counts[MOST_JOINED];
        int made = 0;
        for (ptrdiff_t i = 0; i < count; i += 64)
            kinds_of(items->places + begin + i, kinds + i);
        for (ptrdiff_t i = 0; i < count; i += JOINED) {
            const __mmask16 some = (__mmask16)(count - i < JOINED ? (1u << (count - i)) - 1 : 0xFFFF);
            made += join_items(items->values + begin + i, kinds + i, some, codes, joined + made, counts + made);
        }
        for (int i = 0; i < made; i++)
            to = put(&q, joined[i], (unsigned)counts[i], to);
    }
    *queue = q;
    return to;
}
#endif
