/* Implements unfiltering.h.

   Each pixel depends on its left neighbour, so a vector holds the samples of one pixel as 16-bit integers, for pixels
   of 3 or 4 bytes, as in photos. x86-64 and aarch64 always have these vectors. */

#include "compilers.h"
#include "png/unfiltering.h"

#include <string.h>

enum { NONE, SUB, UP, AVERAGE, PAETH };

#if (defined(__GNUC__) || defined(__clang__)) && !defined(PACKER_PLAIN) && (defined(__SSE2__) || defined(__aarch64__))
#define HAS_PIXELS 1
typedef int16_t Pixel __attribute__((vector_size(16)));

#if defined(__SSE2__)
#include <emmintrin.h>

INLINE Pixel
load_pixel(const uint8_t *at)
{
    int32_t bytes;
    memcpy(&bytes, at, 4);
    return (Pixel)_mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), _mm_setzero_si128());
}

/* Writes the lower bytes of samples. The upper bytes must be 0. */
INLINE void
store_pixel(uint8_t *at, Pixel pixel)
{
    int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16((__m128i)pixel, (__m128i)pixel));
    memcpy(at, &bytes, 4);
}

INLINE Pixel
smaller_of(Pixel a, Pixel b)
{
    return (Pixel)_mm_min_epi16((__m128i)a, (__m128i)b);
}

INLINE Pixel
larger_of(Pixel a, Pixel b)
{
    return (Pixel)_mm_max_epi16((__m128i)a, (__m128i)b);
}
#else
#include <arm_neon.h>

INLINE Pixel
load_pixel(const uint8_t *at)
{
    uint32_t bytes;
    memcpy(&bytes, at, 4);
    return (Pixel)vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes)));
}

INLINE void
store_pixel(uint8_t *at, Pixel pixel)
{
    uint32_t bytes = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16((uint16x8_t)pixel)), 0);
    memcpy(at, &bytes, 4);
}

INLINE Pixel
smaller_of(Pixel a, Pixel b)
{
    return (Pixel)vminq_s16((int16x8_t)a, (int16x8_t)b);
}

INLINE Pixel
larger_of(Pixel a, Pixel b)
{
    return (Pixel)vmaxq_s16((int16x8_t)a, (int16x8_t)b);
}
#endif

/* Undoes SUB, AVERAGE or PAETH for pixels of 3 or 4 bytes, except the last ones. Returns how many bytes are done. */
INLINE ptrdiff_t
undo_pixels(int filter, const uint8_t *from, const uint8_t *above, ptrdiff_t size, ptrdiff_t step, uint8_t *to)
{
    Pixel left = {0}, corner = {0};
    ptrdiff_t i = 0;
    for (; i + 4 <= size; i += step) {
        Pixel value = load_pixel(from + i);
        if (filter == SUB) {
            left += value;
        } else if (filter == AVERAGE) {
            left = value + ((left + load_pixel(above + i)) >> 1);
        } else {
            /* The neighbour nearest to left + up - corner: `low` if 3 * corner - up - left is at least `high`, `high` if
               it is at most `low`, otherwise the corner. */
            Pixel up = load_pixel(above + i), low = smaller_of(left, up), high = larger_of(left, up);
            Pixel turn = 3 * corner - up - left;
            Pixel nearest = corner ^ ((high <= turn) & (low ^ corner)) ^ ((turn <= low) & (high ^ corner));
            left = value + nearest;
            corner = up;
        }
        left &= 0xFF;
        store_pixel(to + i, left);
    }
    return i;
}
#else
#define HAS_PIXELS 0
#endif

/* Returns the neighbour that is nearest to left + above - corner (PNG specification, 9.4). */
static inline uint8_t
paeth(int left, int above, int corner)
{
    int to_left = above - corner, to_above = left - corner, to_corner = to_left + to_above;
    to_left = to_left < 0 ? -to_left : to_left;
    to_above = to_above < 0 ? -to_above : to_above;
    to_corner = to_corner < 0 ? -to_corner : to_corner;
    if (to_left <= to_above && to_left <= to_corner)
        return (uint8_t)left;
    return (uint8_t)(to_above <= to_corner ? above : corner);
}

/* Undoes SUB, AVERAGE or PAETH from the byte `i` on; the bytes before it are done. */
static void
undo_bytes(int filter, const uint8_t *from, const uint8_t *above, ptrdiff_t i, ptrdiff_t size, ptrdiff_t step, uint8_t *to)
{
    for (; i < size && i < step; i++)
        to[i] = (uint8_t)(from[i] + (filter == SUB ? 0 : filter == AVERAGE ? above[i] / 2 : above[i]));
    if (filter == SUB)
        for (; i < size; i++)
            to[i] = (uint8_t)(from[i] + to[i - step]);
    else if (filter == AVERAGE)
        for (; i < size; i++)
            to[i] = (uint8_t)(from[i] + (to[i - step] + above[i]) / 2);
    else
        for (; i < size; i++)
            to[i] = (uint8_t)(from[i] + paeth(to[i - step], above[i], above[i - step]));
}

int
unfilter_row(int filter, const uint8_t *from, const uint8_t *above, ptrdiff_t size, ptrdiff_t step, uint8_t *to)
{
    ptrdiff_t done = 0;
    switch (filter) {
    case NONE:
        memcpy(to, from, (size_t)size);
        return 1;
    case UP:
        for (ptrdiff_t i = 0; i < size; i++)
            to[i] = (uint8_t)(from[i] + above[i]);
        return 1;
    case SUB:
    case AVERAGE:
    case PAETH:
#if HAS_PIXELS
#define UNDO(filter, step) undo_pixels(filter, from, above, size, step, to)
        if (step == 3)
            done = filter == SUB ? UNDO(SUB, 3) : filter == AVERAGE ? UNDO(AVERAGE, 3) : UNDO(PAETH, 3);
        else if (step == 4)
            done = filter == SUB ? UNDO(SUB, 4) : filter == AVERAGE ? UNDO(AVERAGE, 4) : UNDO(PAETH, 4);
#undef UNDO
#endif
        undo_bytes(filter, from, above, done, size, step, to);
        return 1;
    default:
        return 0;
    }
}
