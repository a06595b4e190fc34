/* Copies, searches and separates bytes, in plain C and for AVX2: see kernels.h for each function. */

#include "geometry.h"
#include "kernels/kernels.h"

#include <string.h>

size_t
copy_run_plain(uint8_t *to, const uint8_t *from, size_t most, const uint8_t *stop)
{
    size_t size = (size_t)smaller((ptrdiff_t)most, stop - from);
    const uint8_t *found = memchr(from, 0xFF, size);
    size_t count = found != NULL ? (size_t)(found - from) : size;
    memcpy(to, from, count);
    return count;
}

const uint8_t *
find_marker_plain(const uint8_t *from, const uint8_t *stop)
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

void
expand_plain(const uint8_t *rgb, uint8_t *rgbx, ptrdiff_t count)
{
    for (; count > 1; count--, rgb += 3, rgbx += 4)
        memcpy(rgbx, rgb, 4);
    if (count > 0)
        memcpy(rgbx, rgb, 3);
}

void
copy_rows_plain(uint8_t *to, const uint8_t *from, ptrdiff_t stride, ptrdiff_t size, ptrdiff_t count)
{
    for (; count > 0; count--, to += size, from += stride)
        memcpy(to, from, (size_t)size);
}

void
pick_plain(const uint8_t *pixels, const int32_t *from, ptrdiff_t count, uint8_t *to)
{
    for (; count > 1; count--, from++, to += 3)
        memcpy(to, pixels + *from, 4); /* the next pixel replaces the fourth byte */
    if (count > 0)
        memcpy(to, pixels + *from, 3);
}

#if HAS_AVX2
enum { VECTOR = 32, LINE = 64 }; /* bytes of a vector, and of a cache line */

/* A usual write first reads its cache line from memory. Whole lines that bypass the cache avoid that. Lines that a row
   covers only partly are written as usual, because memory is slow to write parts. */
AVX2 void
copy_rows_avx2(uint8_t *to, const uint8_t *from, ptrdiff_t stride, ptrdiff_t size, ptrdiff_t count)
{
    for (; count > 0; count--, to += size, from += stride) {
        const ptrdiff_t first = smaller((ptrdiff_t)(-(uintptr_t)to % LINE), size), end = first + (size - first) / LINE * LINE;
        memcpy(to, from, (size_t)first);
        for (ptrdiff_t i = first; i < end; i += LINE) {
            const __m256i left = _mm256_loadu_si256((const __m256i *)(const void *)(from + i));
            const __m256i right = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + VECTOR));
            _mm256_stream_si256((__m256i *)(void *)(to + i), left);
            _mm256_stream_si256((__m256i *)(void *)(to + i + VECTOR), right);
        }
        memcpy(to + end, from + end, (size_t)(size - end));
    }
    _mm_sfence(); /* other threads see these writes before the next ones of this thread */
}

/* Runs have some two hundred bytes. To search and copy in one loop takes half the time. */
AVX2 size_t
copy_run_avx2(uint8_t *to, const uint8_t *from, size_t most, const uint8_t *stop)
{
    size_t count = 0;
    for (; count + VECTOR <= most && stop - from >= VECTOR; count += VECTOR, from += VECTOR) {
        __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)from);
        _mm256_storeu_si256((__m256i *)(void *)(to + count), bytes);
        unsigned found = (unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_set1_epi8((char)0xFF)));
        if (found)
            return count + _tzcnt_u32(found);
    }
    return count + copy_run_plain(to + count, from, most - count, stop);
}

AVX2 const uint8_t *
find_marker_avx2(const uint8_t *from, const uint8_t *stop)
{
    for (; stop - from > VECTOR; from += VECTOR) {
        __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)from);
        __m256i after = _mm256_loadu_si256((const __m256i *)(const void *)(from + 1));
        __m256i stuffed = _mm256_cmpeq_epi8(after, _mm256_setzero_si256());
        __m256i marks = _mm256_andnot_si256(stuffed, _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8((char)0xFF)));
        unsigned found = (unsigned)_mm256_movemask_epi8(marks);
        if (found)
            return from + _tzcnt_u32(found);
    }
    return find_marker_plain(from, stop);
}

AVX2 void
expand_avx2(const uint8_t *rgb, uint8_t *rgbx, ptrdiff_t count)
{
    const __m256i halves = _mm256_setr_epi32(0, 1, 2, 7, 3, 4, 5, 7);
    const __m256i apart = _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,
                                           0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    ptrdiff_t done = 0;
    for (; done + 11 <= count; done += 8) { /* 32 bytes are loaded for 24 */
        __m256i pixels = _mm256_loadu_si256((const __m256i *)(const void *)(rgb + 3 * done));
        pixels = _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(pixels, halves), apart);
        _mm256_storeu_si256((__m256i *)(void *)(rgbx + 4 * done), pixels);
    }
    expand_plain(rgb + 3 * done, rgbx + 4 * done, count - done);
}

AVX2 void
pick_avx2(const uint8_t *pixels, const int32_t *from, ptrdiff_t count, uint8_t *to)
{
    const __m256i together = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
                                              0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const __m256i halves = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7);
    ptrdiff_t done = 0;
    for (; done + 11 <= count; done += 8) { /* 32 bytes are written for 24 */
        __m256i places = _mm256_loadu_si256((const __m256i *)(const void *)(from + done));
        __m256i made = _mm256_i32gather_epi32((const int *)(const void *)pixels, places, 1);
        made = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(made, together), halves);
        _mm256_storeu_si256((__m256i *)(void *)(to + 3 * done), made);
    }
    pick_plain(pixels, from + done, count - done, to + 3 * done);
}
#endif

#if HAS_AVX512
AVX512 void
pick_avx512(const uint8_t *pixels, const int32_t *from, ptrdiff_t count, uint8_t *to)
{
    enum { PIXELS = 16 };
    const __mmask64 written = ((__mmask64)1 << 3 * PIXELS) - 1;
    uint8_t order[64];
    for (int i = 0; i < 64; i++)
        order[i] = (uint8_t)(i / 3 * 4 + i % 3);
    const __m512i together = _mm512_loadu_si512(order);
    ptrdiff_t done = 0;
    for (; done + PIXELS <= count; done += PIXELS) {
        __m512i made = _mm512_i32gather_epi32(_mm512_loadu_si512(from + done), pixels, 1);
        _mm512_mask_storeu_epi8(to + 3 * done, written, _mm512_permutexvar_epi8(together, made));
    }
    pick_plain(pixels, from + done, count - done, to + 3 * done);
}
#endif
