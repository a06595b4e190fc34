/* Levels of a batch as the numbers that a network takes: normalised, mixed with those of the image before, and converted. */

#include "arguments.h"
#include "kernels/vectorised.h"
#include "native.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { FLOAT32, FLOAT16, BFLOAT16, TYPES };
enum { UNMIXED, BLENDED, PASTED, MIXTURES };
enum { AT_ONCE = 512, VALUES = 3 * AT_ONCE }; /* pixels, and their levels, that lie in the first cache on their way */

typedef struct {
    const uint8_t *pixels; /* of all images, one after the other */
    ptrdiff_t count, height, width;
    uint8_t *out;
    int type, planes; /* whether numbers of a colour lie together, or those of a pixel */
    int mixture;
    ptrdiff_t top, left, bottom, right; /* what is pasted of the image before */
    float scale, share, other_share;
    float mean[VALUES], std[VALUES]; /* of red, green, blue, red and so on */
    float inverse[VALUES];           /* of std */
    int streams;                     /* whether `stream` writes them */
} Numbers;

/* These are the steps of torchvision's to_dtype and normalize, each rounded as theirs. */
INLINE void
normalise_body(const uint8_t *levels, ptrdiff_t count, const Numbers *numbers, float *restrict to)
{
    const float scale = numbers->scale, *mean = numbers->mean, *std = numbers->std;
    for (ptrdiff_t i = 0; i < count; i++)
        to[i] = ((float)levels[i] * scale - mean[i]) / std[i];
}

INLINE void
normalise_plane_body(const uint8_t *levels, ptrdiff_t count, const Numbers *numbers, ptrdiff_t colour, float *restrict to)
{
    const float scale = numbers->scale, mean = numbers->mean[colour], std = numbers->std[colour];
    for (ptrdiff_t i = 0; i < count; i++)
        to[i] = ((float)levels[i] * scale - mean) / std;
}

INLINE void
blend_body(float *restrict own, const float *restrict other, ptrdiff_t count, float share, float other_share)
{
    for (ptrdiff_t i = 0; i < count; i++)
        own[i] = other[i] * other_share + own[i] * share;
}

INLINE void
part_body(const uint8_t *restrict from, ptrdiff_t count, uint8_t *restrict to)
{
    for (ptrdiff_t i = 0; i < count; i++) {
        to[i] = from[3 * i];
        to[AT_ONCE + i] = from[3 * i + 1];
        to[2 * AT_ONCE + i] = from[3 * i + 2];
    }
}

static const uint32_t INFINITE = 0x7F800000, NO_NUMBER = 0x7FC00000; /* as floats */

INLINE void
shorten_body(const float *restrict from, ptrdiff_t count, uint16_t *restrict to)
{
    for (ptrdiff_t i = 0; i < count; i++) { /* to the nearest, of two the even one */
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        const uint32_t nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
        to[i] = (uint16_t)((bits & 0x7FFFFFFF) > INFINITE ? NO_NUMBER >> 16 : nearest);
    }
}

/* Halves have 5 bits of exponent and 10 of fraction. What is too small for these is added to a number whose last bit is the
   halves' smallest step, so that the addition rounds. */
INLINE void
halve_body(const float *restrict from, ptrdiff_t count, uint16_t *restrict to)
{
    const uint32_t step_bits = (127 - 15 + 23 - 10 + 1) << 23, least_normal = (127 - 14) << 23, infinite = (127 + 16) << 23;
    float step;
    memcpy(&step, &step_bits, sizeof step);
    for (ptrdiff_t i = 0; i < count; i++) {
        uint32_t bits, small_bits;
        memcpy(&bits, &from[i], sizeof bits);
        const uint32_t sign = bits >> 31 << 15, size = bits & 0x7FFFFFFF;
        float small;
        memcpy(&small, &size, sizeof small);
        small += step;
        memcpy(&small_bits, &small, sizeof small_bits);
        const uint32_t usual = (size - ((127 - 15) << 23) + 0xFFF + (size >> 13 & 1)) >> 13;
        const uint32_t large = size > INFINITE ? 0x7E00 : 0x7C00; /* no number, or infinite */
        const uint32_t half = size >= infinite ? large : size < least_normal ? small_bits - step_bits : usual;
        to[i] = (uint16_t)(sign | half);
    }
}

VECTORISED(normalise, normalise_body,
           (const uint8_t *levels, ptrdiff_t count, const Numbers *numbers, float *restrict to), (levels, count, numbers, to))
VECTORISED(blend, blend_body,
           (float *restrict own, const float *restrict other, ptrdiff_t count, float share, float other_share),
           (own, other, count, share, other_share))
VECTORISED(normalise_plane, normalise_plane_body,
           (const uint8_t *levels, ptrdiff_t count, const Numbers *numbers, ptrdiff_t colour, float *restrict to),
           (levels, count, numbers, colour, to))
VECTORISED(part, part_body, (const uint8_t *restrict from, ptrdiff_t count, uint8_t *restrict to), (from, count, to))
VECTORISED(shorten, shorten_body, (const float *restrict from, ptrdiff_t count, uint16_t *restrict to), (from, count, to))
VECTORISED(halve, halve_body, (const float *restrict from, ptrdiff_t count, uint16_t *restrict to), (from, count, to))

static ptrdiff_t
size_of_number(const Numbers *numbers)
{
    return numbers->type == FLOAT32 ? 4 : 2;
}

static void
convert(const Numbers *numbers, const float *from, ptrdiff_t count, uint8_t *to)
{
    if (numbers->type == FLOAT16)
        halve(from, count, (uint16_t *)(void *)to);
    else
        shorten(from, count, (uint16_t *)(void *)to);
}

/* Writes some pixels, AT_ONCE at most, as numbers; blended with those of `other`, if there are any. */
static void
write_pixels(const Numbers *numbers, const uint8_t *levels, const uint8_t *other, ptrdiff_t count, uint8_t *to)
{
    float own[VALUES], others[VALUES];
    const int direct = numbers->type == FLOAT32;
    float *made = direct ? (float *)(void *)to : own;
    normalise(levels, 3 * count, numbers, made);
    if (other != NULL) {
        normalise(other, 3 * count, numbers, others);
        blend(made, others, 3 * count, numbers->share, numbers->other_share);
    }
    if (!direct)
        convert(numbers, made, 3 * count, to);
}

/* Does the same with numbers of a colour that lie together; `to` is where those of red begin. */
static void
write_planes(const Numbers *numbers, const uint8_t *levels, const uint8_t *other, ptrdiff_t count, uint8_t *to)
{
    uint8_t own_levels[VALUES], other_levels[VALUES];
    float own[AT_ONCE], others[AT_ONCE];
    const int direct = numbers->type == FLOAT32;
    const ptrdiff_t plane = numbers->height * numbers->width * size_of_number(numbers);
    part(levels, count, own_levels);
    if (other != NULL)
        part(other, count, other_levels);
    for (ptrdiff_t colour = 0; colour < 3; colour++, to += plane) {
        float *made = direct ? (float *)(void *)to : own; /* cppcheck-suppress legacyUninitvar */
        normalise_plane(own_levels + colour * AT_ONCE, count, numbers, colour, made);
        if (other != NULL) {
            normalise_plane(other_levels + colour * AT_ONCE, count, numbers, colour, others);
            blend(made, others, count, numbers->share, numbers->other_share);
        }
        if (!direct)
            convert(numbers, made, count, to);
    }
}

enum { MANY = 1 << 21, LINE = 64 }; /* bytes: what caches hold that no other processor uses, and what they hold together */

/* Tells whether each level becomes what a division makes of it by a product, and by what that leaves: in a third of the time. It
   does unless the numbers are odd ones. */
static int
can_be_multiplied(const Numbers *numbers)
{
    for (int colour = 0; colour < 3; colour++)
        for (int level = 0; level < 256; level++) {
            const float std = numbers->std[colour], inverse = numbers->inverse[colour];
            const float number = (float)level * numbers->scale - numbers->mean[colour];
            const float divided = number / std, near = number * inverse;
            const float multiplied = fmaf(fmaf(-near, std, number), inverse, near);
            if (memcmp(&divided, &multiplied, sizeof divided) != 0)
                return 0;
        }
    return 1;
}

/* Writes the first of some levels as numbers past the caches, whole lines of them; returns how many. What no cache holds would
   else be read before it is written. */
#if HAS_AVX512
AVX512 static ptrdiff_t
stream_avx512(const Numbers *numbers, const uint8_t *levels, ptrdiff_t count, float *to)
{
    enum { VECTOR = 16 };
    const __m512 scale = _mm512_set1_ps(numbers->scale);
    __m512 mean[3], std[3], inverse[3];
    for (int part = 0; part < 3; part++) {
        mean[part] = _mm512_loadu_ps(numbers->mean + VECTOR * part);
        std[part] = _mm512_loadu_ps(numbers->std + VECTOR * part);
        inverse[part] = _mm512_loadu_ps(numbers->inverse + VECTOR * part);
    }
    ptrdiff_t at = 0;
    for (; at + 3 * VECTOR <= count; at += 3 * VECTOR)
        for (int part = 0; part < 3; part++) {
            const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(levels + at + VECTOR * part));
            const __m512 level = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
            const __m512 number = _mm512_sub_ps(_mm512_mul_ps(level, scale), mean[part]);
            const __m512 near = _mm512_mul_ps(number, inverse[part]);
            const __m512 rest = _mm512_fnmadd_ps(near, std[part], number);
            _mm512_stream_ps(to + at + VECTOR * part, _mm512_fmadd_ps(rest, inverse[part], near));
        }
    _mm_sfence(); /* others see what was written no later than what this thread does next */
    return at;
}
#endif

#if HAS_AVX2
AVX2_FMA static ptrdiff_t
stream_avx2(const Numbers *numbers, const uint8_t *levels, ptrdiff_t count, float *to)
{
    enum { VECTOR = 8 };
    const __m256 scale = _mm256_set1_ps(numbers->scale);
    ptrdiff_t at = 0;
    for (; at + 6 * VECTOR <= count; at += 6 * VECTOR)
        for (int part = 0; part < 6; part++) {
            const ptrdiff_t first = VECTOR * (part % 3);
            const __m256 std = _mm256_loadu_ps(numbers->std + first), inverse = _mm256_loadu_ps(numbers->inverse + first);
            const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(levels + at + VECTOR * part));
            const __m256 level = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
            const __m256 number = _mm256_sub_ps(_mm256_mul_ps(level, scale), _mm256_loadu_ps(numbers->mean + first));
            const __m256 near = _mm256_mul_ps(number, inverse);
            const __m256 rest = _mm256_fnmadd_ps(near, std, number);
            _mm256_stream_ps(to + at + VECTOR * part, _mm256_fmadd_ps(rest, inverse, near));
        }
    _mm_sfence();
    return at;
}
#endif

static ptrdiff_t
stream(const Numbers *numbers, const uint8_t *levels, ptrdiff_t count, float *to)
{
    if ((uintptr_t)to % LINE != 0)
        return 0;
#if HAS_AVX512
    if (kernels->has_avx512)
        return stream_avx512(numbers, levels, count, to);
#endif
#if HAS_AVX2
    if (kernels->has_avx2)
        return stream_avx2(numbers, levels, count, to);
#endif
    (void)numbers, (void)levels, (void)count;
    return 0;
}

/* Writes `count` pixels of an image from the given one on. */
static void
write_run(const Numbers *numbers, const uint8_t *levels, const uint8_t *other, ptrdiff_t first, ptrdiff_t count, uint8_t *image)
{
    const ptrdiff_t size = size_of_number(numbers), pixel = numbers->planes ? size : 3 * size;
    ptrdiff_t begin = first;
    if (numbers->streams && other == NULL)
        begin += stream(numbers, levels + 3 * first, 3 * count, (float *)(void *)(image + first * pixel)) / 3;
    for (ptrdiff_t place = begin; place < first + count; place += AT_ONCE) {
        const ptrdiff_t some = first + count - place < AT_ONCE ? first + count - place : AT_ONCE;
        const uint8_t *beside = other == NULL ? NULL : other + 3 * place;
        if (numbers->planes)
            write_planes(numbers, levels + 3 * place, beside, some, image + place * pixel);
        else
            write_pixels(numbers, levels + 3 * place, beside, some, image + place * pixel);
    }
}

/* Writes an image, of which a rectangle is that of the image before. */
static void
write_pasted(const Numbers *numbers, const uint8_t *levels, const uint8_t *other, uint8_t *image)
{
    const ptrdiff_t width = numbers->width;
    ptrdiff_t place = 0; /* pixels before it are written */
    for (ptrdiff_t y = numbers->top; y < numbers->bottom && numbers->left < numbers->right; y++) {
        const ptrdiff_t begin = y * width + numbers->left, end = y * width + numbers->right;
        write_run(numbers, levels, NULL, place, begin - place, image);
        write_run(numbers, other, NULL, begin, end - begin, image);
        place = end;
    }
    write_run(numbers, levels, NULL, place, numbers->height * width - place, image);
}

static void
write_images(const Numbers *numbers, ptrdiff_t begin, ptrdiff_t end)
{
    const ptrdiff_t pixels = numbers->height * numbers->width;
    for (ptrdiff_t i = begin; i < end; i++) {
        const uint8_t *own = numbers->pixels + 3 * pixels * i;
        const uint8_t *before = numbers->pixels + 3 * pixels * (i > 0 ? i - 1 : numbers->count - 1);
        uint8_t *image = numbers->out + 3 * pixels * size_of_number(numbers) * i;
        if (numbers->mixture == PASTED)
            write_pasted(numbers, own, before, image);
        else
            write_run(numbers, own, numbers->mixture == BLENDED ? before : NULL, 0, pixels, image);
    }
}

static const char *
find_wrong(const int64_t *n)
{
    const int64_t count = n[1], begin = n[2], end = n[3], height = n[4], width = n[5];
    if (begin < 0 || begin > end || end > count || height < 1 || height > INT32_MAX || width < 1 || width > INT32_MAX)
        return "there are no such images in the batch";
    if (n[7] < 0 || n[7] >= TYPES || n[10] < 0 || n[10] >= MIXTURES)
        return "there is no such type of numbers, or no such mixture";
    if (n[10] == PASTED && (n[11] < 0 || n[11] > n[13] || n[13] > height || n[12] < 0 || n[12] > n[14] || n[14] > width))
        return "what is pasted does not lie inside of the images";
    return NULL;
}

PyObject *
write_numbers(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    int64_t n[15];
    if (!read_integers(arguments, given, n, 15))
        return NULL;
    const char *wrong = find_wrong(n);
    if (wrong != NULL) {
        PyErr_SetString(PyExc_ValueError, wrong);
        return NULL;
    }
    const float *constants = (const float *)(uintptr_t)n[9];
    Numbers numbers = {
        .pixels = (const uint8_t *)(uintptr_t)n[0], .count = (ptrdiff_t)n[1], .height = (ptrdiff_t)n[4],
        .width = (ptrdiff_t)n[5], .out = (uint8_t *)(uintptr_t)n[6], .type = (int)n[7], .planes = n[8] != 0,
        .mixture = (int)n[10], .top = (ptrdiff_t)n[11], .left = (ptrdiff_t)n[12], .bottom = (ptrdiff_t)n[13],
        .right = (ptrdiff_t)n[14], .scale = constants[0], .share = constants[7], .other_share = constants[8],
    };
    for (int i = 0; i < VALUES; i++) {
        numbers.mean[i] = constants[1 + i % 3];
        numbers.std[i] = constants[4 + i % 3];
        numbers.inverse[i] = 1 / numbers.std[i];
    }
    const double pixels = (double)(n[3] - n[2]) * (double)n[4] * (double)n[5];
    numbers.streams = kernels->has_avx2 && numbers.type == FLOAT32 && !numbers.planes && 12 * pixels >= MANY
        && can_be_multiplied(&numbers);
    Py_BEGIN_ALLOW_THREADS
    write_images(&numbers, (ptrdiff_t)n[2], (ptrdiff_t)n[3]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
