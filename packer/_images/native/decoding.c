/* See decoding.h: which MCUs a rectangle depends on, and their samples made into pixels. */

#include "decoding.h"
#include "jpeg.h"
#include "kernels.h"

#include <stdlib.h>

enum { PAD = 64 }; /* bytes beside rows: the arithmetic takes many at once */

typedef struct {
    Rectangle wanted;
    ptrdiff_t next; /* row of the image that is converted next */
    ptrdiff_t top, left; /* where the planes begin */
    int16_t *sums;
    uint8_t *chroma[2];
    uint8_t *pixels;
    ptrdiff_t stride; /* of the pixels */
} Conversion;

/* Converts rows to pixels, down to before `bottom`, and hands them out. */
static void
convert_rows(const Decoder *d, Conversion *to, ptrdiff_t bottom, TakeRows take, void *taker)
{
    const Component *luma = &d->components[0];
    const ptrdiff_t left = to->wanted.left - to->left, width = to->wanted.width;
    const ptrdiff_t first = left / d->across, count_of_chroma = (left + width + d->across - 1) / d->across - first;
    ptrdiff_t count = 0;
    for (; to->next < bottom; to->next++, count++) {
        ptrdiff_t row = to->next - to->top;
        const uint8_t *lights = samples_of(luma, row) + left;
        uint8_t *pixels = to->pixels + count * to->stride;
        if (d->count == 1) {
            for (ptrdiff_t i = 0; i < width; i++)
                pixels[4 * i] = pixels[4 * i + 1] = pixels[4 * i + 2] = lights[i];
            continue;
        }
        /* A row of chroma that is half as high lies between two of luma: nearer to it is `near`. */
        ptrdiff_t near = row / d->down, last = (d->height + 1) / 2 - 1 - to->top / 2;
        ptrdiff_t other = row & 1 ? smaller(near + 1, last) : larger(near - 1, 0);
        const uint8_t *chroma[2];
        for (int i = 0; i < 2; i++) {
            const Component *c = &d->components[1 + i];
            const uint8_t *samples = samples_of(c, near) + first;
            const uint8_t *neighbour = d->down == 2 ? samples_of(c, other) + first : NULL;
            if (d->across == 2)
                kernels->widen(samples, neighbour, to->sums, to->chroma[i], count_of_chroma);
            else if (d->down == 2)
                for (ptrdiff_t j = 0; j < width; j++)
                    to->chroma[i][j] = (uint8_t)((3 * samples[j] + neighbour[j] + 1 + (row & 1)) >> 2);
            chroma[i] = d->across * d->down == 1 ? samples : to->chroma[i] + (left - first * d->across);
        }
        kernels->convert(lights, chroma[0], chroma[1], pixels, width);
    }
    if (count)
        take(taker, to->pixels, to->stride, count);
}

/* Puts a sample of chroma beside the image's edges, for upsampling, which looks at the neighbours. */
static void
repeat_edges(const Decoder *d, const Window *window, ptrdiff_t row)
{
    if (d->across == 1)
        return;
    for (int i = 1; i < d->count; i++) {
        const Component *c = &d->components[i];
        uint8_t *line = samples_of(c, (row - window->first_row) * 8);
        ptrdiff_t end = (d->width + 1) / 2 - window->first * 8;
        for (int y = 0; y < 8; y++, line += c->stride) {
            if (window->first == 0)
                line[-1] = line[0];
            if (window->end == d->columns)
                line[end] = line[end - 1];
        }
    }
}

/* Lays out the memory for the samples of `held` rows of MCUs and for the pixels of one; 0 without memory. */
static int
lay_out(Decoder *d, const Window *window, Conversion *to, int held)
{
    ptrdiff_t wide = (window->end - window->first) * 8;
    ptrdiff_t widest = wide * d->across + 2 * PAD;
    to->stride = 4 * ((to->wanted.width + PAD) & ~(ptrdiff_t)15);
    ptrdiff_t rows = (8 * d->down + 2) * to->stride;
    ptrdiff_t needed = rows + 4 * widest + PAD; /* some megabytes at most */
    for (Component *c = d->components; c < d->components + d->count; c++) {
        c->stride = wide * c->across + 2 * PAD;
        c->mask = held * 8 * c->down - 1;
        needed += c->stride * (c->mask + 1);
    }
    if (d->size < needed) {
        free(d->memory);
        d->memory = malloc((size_t)needed);
        d->size = d->memory == NULL ? 0 : needed;
    }
    if (d->memory == NULL)
        return 0;
    uint8_t *at = d->memory;
    to->pixels = at;
    at += rows;
    to->sums = (int16_t *)(void *)at + PAD;
    at += 2 * widest;
    to->chroma[0] = at;
    to->chroma[1] = at + widest;
    at += 2 * widest;
    for (int i = 0; i < d->count; i++) {
        Component *c = &d->components[i];
        c->plane = at + PAD;
        at += c->stride * (c->mask + 1);
    }
    return 1;
}

Decoder *
decoder_new(void)
{
    return calloc(1, sizeof(Decoder));
}

void
decoder_free(Decoder *d)
{
    if (d != NULL)
        free(d->memory);
    free(d);
}

size_t
decoder_memory(const Decoder *d)
{
    return sizeof *d + (size_t)d->size;
}

Outcome
decoder_decode(Decoder *d, const uint8_t *data, ptrdiff_t size, ptrdiff_t height, ptrdiff_t width, Rectangle wanted,
               TakeRows take, void *taker)
{
    d->height = height;
    d->width = width;
    if (!read_headers(d, data, size))
        return UNDECODED;
    /* Upsampling looks at the samples of chroma beside those that lie in the rectangle. */
    ptrdiff_t above = d->down - 1, beside = d->across - 1, tall = 8 * d->down, wide = 8 * d->across;
    Window window = {
        larger(wanted.top - above, 0) / tall, smaller((wanted.top + wanted.height + above + tall - 1) / tall, d->rows),
        larger(wanted.left - beside, 0) / wide, smaller((wanted.left + wanted.width + beside + wide - 1) / wide, d->columns),
    };
    Conversion to = {.wanted = wanted, .next = wanted.top, .left = window.first * wide, .top = window.first_row * tall};
    int together = rows_go_together(d) ? 2 : 1;
    if (!lay_out(d, &window, &to, 2 * together))
        return NO_MEMORY;
    if (!begin_scan(d))
        return UNDECODED;
    ptrdiff_t bottom = wanted.top + wanted.height;
    for (ptrdiff_t row = window.first_row; row < window.row_end;) {
        int rows = row + together <= window.row_end ? together : 1;
        if (!decode_rows(d, &window, row, rows))
            return UNDECODED;
        for (; rows > 0; rows--, row++) {
            repeat_edges(d, &window, row);
            /* The last row of the MCUs waits for the chroma below it. */
            ptrdiff_t ready = (row + 1) * tall - (d->down == 2 && row + 1 < d->rows);
            convert_rows(d, &to, smaller(ready, bottom), take, taker);
        }
    }
    return DECODED;
}
