/* Implements decoding.h: finds the MCUs that a rectangle depends on, and converts their samples to pixels. */

#include "compilers.h"
#include "jpeg/decoding.h"
#include "jpeg/jpeg.h"
#include "kernels/kernels.h"

#include <stdlib.h>

enum { PAD = 64 }; /* spare bytes before and after rows, because kernels process many bytes at once */

typedef struct {
    Rectangle wanted;
    Layout layout;
    ptrdiff_t next; /* row of the image that is converted next */
    ptrdiff_t top, left; /* of the planes in the image */
    int narrow; /* whether one kernel widens and converts chroma */
    uint8_t *upsampled[COMPONENTS];
    uint8_t *pixels;
    ptrdiff_t stride; /* bytes of a row of pixels */
} Conversion;

/* Returns how libjpeg upsamples a component: by its "fancy" method, if it has one for these sampling factors. */
static Upsampling
upsampling_of(const Component *c)
{
    if (c->wide == 1 && c->tall <= 2)
        return c->tall == 1 ? AS_IT_IS : SMOOTH_DOWN;
    return c->wide == 2 && c->tall <= 2 && c->width > 2 ? SMOOTH : REPEATED;
}

/* NOLINTBEGIN(clang-analyzer-core.*): clang does not know that read_headers accepts no image without components, and
   that a component of half the height has a neighbouring row */

/* Returns the row of samples that is nearest to a row of pixels, which is relative to the planes. If the component has
   half the height and is smoothly upsampled, also returns the row of samples on the other side. */
INLINE Narrow
nearest(const Component *c, const Conversion *to, ptrdiff_t row)
{
    const ptrdiff_t near = c->tall <= 2 ? row >> (c->tall - 1) : row / c->tall;
    Narrow rows = {samples_of(c, near) + c->begin, NULL};
    if (c->upsampling != REPEATED && c->tall == 2) {
        ptrdiff_t last = c->height - 1 - to->top / 2;
        rows.other = samples_of(c, row & 1 ? smaller(near + 1, last) : larger(near - 1, 0)) + c->begin;
    }
    return rows;
}

/* Returns the samples of a component for the pixels of a row. */
INLINE const uint8_t *
upsample(const Component *c, const Conversion *to, ptrdiff_t row, uint8_t *out)
{
    const ptrdiff_t left = to->wanted.left - to->left, width = to->wanted.width, first = c->begin;
    if (c->upsampling == AS_IT_IS)
        return samples_of(c, row) + first;
    const Narrow rows = nearest(c, to, row);
    const uint8_t *samples = rows.row, *neighbour = rows.other;
    if (c->upsampling == SMOOTH) {
        kernels->widen(samples, neighbour, out, (left + width + 1) / 2 - first);
        return out + (left - 2 * first);
    }
    if (c->upsampling == SMOOTH_DOWN) {
        for (ptrdiff_t i = 0; i < width; i++)
            out[i] = (uint8_t)((3 * samples[i] + neighbour[i] + 1 + (row & 1)) >> 2);
        return out;
    }
    for (ptrdiff_t i = 0; i < width; i++)
        out[i] = samples[(left + i) / c->wide - first];
    return out;
}

/* Converts CMYK or YCCK, which is stored inverted, to RGB as Pillow does. */
static void
convert_print(const uint8_t *const samples[COMPONENTS], int is_ycck, uint8_t *pixels, ptrdiff_t width)
{
    if (is_ycck)
        kernels->convert(samples[0], samples[1], samples[2], pixels, width);
    for (ptrdiff_t i = 0; i < width; i++, pixels += 4) {
        const int light = samples[3][i];
        for (int colour = 0; colour < 3; colour++) {
            int ink = is_ycck ? pixels[colour] : 255 - samples[colour][i], product = ink * light + 128;
            pixels[colour] = (uint8_t)(light - ((product + (product >> 8)) >> 8));
        }
    }
}

/* Makes the pixels of a row, four bytes each. */
INLINE void
convert_row(const Decoder *d, const Conversion *to, ptrdiff_t row, uint8_t *pixels)
{
    const ptrdiff_t width = to->wanted.width;
    const Component *c = d->components;
    const uint8_t *samples[COMPONENTS];
    if (to->narrow) {
        const Narrow chroma[2] = {nearest(&c[1], to, row), nearest(&c[2], to, row)};
        const int odd = (int)(to->wanted.left - to->left - 2 * c[1].begin);
        kernels->convert_narrow(upsample(&c[0], to, row, to->upsampled[0]), chroma, odd, pixels, width);
        return;
    }
    for (int i = 0; i < d->count; i++)
        samples[i] = upsample(&c[i], to, row, to->upsampled[i]);
    if (d->colours == YCC)
        kernels->convert(samples[0], samples[1], samples[2], pixels, width);
    else if (d->colours == GREY)
        for (ptrdiff_t i = 0; i < width; i++)
            pixels[4 * i] = pixels[4 * i + 1] = pixels[4 * i + 2] = samples[0][i];
    else
        convert_print(samples, d->colours == YCCK, pixels, width);
}

/* NOLINTEND(clang-analyzer-core.*) */

/* Converts the rows above `bottom` to pixels, and passes them on. */
static void
convert_rows(const Decoder *d, Conversion *to, ptrdiff_t bottom, TakeRows take, void *taker)
{
    ptrdiff_t count = 0;
    for (; to->next < bottom; to->next++) {
        ptrdiff_t row = to->next - to->top;
        if (to->layout == ONE_BYTE)
            take(taker, upsample(&d->components[0], to, row, to->upsampled[0]), to->stride, 1);
        else
            convert_row(d, to, row, to->pixels + count++ * to->stride);
    }
    if (count)
        take(taker, to->pixels, to->stride, count);
}

/* Repeats the samples at the left and right edges of the image, because upsampling reads the neighbours. */
static void
repeat_edges(const Decoder *d, const Window *window, ptrdiff_t row)
{
    for (const Component *c = d->components; c < d->components + d->count; c++) {
        if (c->upsampling != SMOOTH)
            continue;
        ptrdiff_t end = c->width - window->first * 8 * c->across, first = (row - window->first_row) * 8 * c->down;
        for (ptrdiff_t y = 0; y < 8 * c->down; y++) {
            uint8_t *line = samples_of(c, first + y);
            if (window->first == 0)
                line[-1] = line[0];
            if (window->end == d->columns)
                line[end] = line[end - 1];
        }
    }
}

/* Lays out the memory for the samples of `held` rows of MCUs and for the pixels of one. Returns 0 without memory. */
static int
lay_out(Decoder *d, const Window *window, Conversion *to, int held)
{
    ptrdiff_t wide = (window->end - window->first) * 8;
    ptrdiff_t widest = (wide * d->across + 3 * PAD - 1) / PAD * PAD;
    to->stride = 4 * ((to->wanted.width + PAD) & ~(ptrdiff_t)15);
    ptrdiff_t rows = (8 * d->down + 2) * to->stride;
    ptrdiff_t needed = rows + d->count * widest + 2 * PAD; /* some megabytes at most */
    for (Component *c = d->components; c < d->components + d->count; c++) {
        ptrdiff_t height = 8;
        while (height < held * 8 * c->down)
            height *= 2;
        c->stride = wide * c->across + 2 * PAD;
        c->mask = height - 1;
        c->begin = (to->wanted.left - to->left) / c->wide;
        needed += c->stride * height;
    }
    if (d->size < needed) {
        free(d->memory);
        d->memory = malloc((size_t)needed);
        d->size = d->memory == NULL ? 0 : needed;
    }
    if (d->memory == NULL)
        return 0;
    /* Vectors that do not cross a cache line are stored faster. */
    uint8_t *at = d->memory + (PAD - (uintptr_t)d->memory % PAD) % PAD;
    to->pixels = at;
    at += rows;
    for (int i = 0; i < d->count; i++) {
        Component *c = &d->components[i];
        to->upsampled[i] = at;
        at += widest;
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
    if (d != NULL) {
        free(d->memory);
        free(d->stored);
    }
    free(d);
}

size_t
decoder_memory(const Decoder *d)
{
    return sizeof *d + (size_t)d->size + d->stored_size;
}

/* Returns the MCUs on which a rectangle depends. Upsampling also needs the samples next to those in the rectangle. */
static Window
window_of(const Decoder *d, const Rectangle *wanted, ptrdiff_t above, ptrdiff_t beside)
{
    const ptrdiff_t tall = 8 * d->down, wide = 8 * d->across;
    return (Window){
        larger(wanted->top - above, 0) / tall, smaller((wanted->top + wanted->height + above + tall - 1) / tall, d->rows),
        larger(wanted->left - beside, 0) / wide, smaller((wanted->left + wanted->width + beside + wide - 1) / wide, d->columns),
    };
}

/* Decodes rows of MCUs to samples. Returns 0 if the scan is damaged. */
static int
decode_samples(Decoder *d, const Window *window, ptrdiff_t row, int rows)
{
    if (!d->progressive)
        return decode_rows(d, window, row, rows);
    transform_mcus(d, window, row);
    return 1;
}

Outcome
decoder_decode(Decoder *d, const uint8_t *data, ptrdiff_t size, ptrdiff_t height, ptrdiff_t width, Rectangle wanted,
               Layout layout, TakeRows take, void *taker)
{
    d->height = height;
    d->width = width;
    if (!read_headers(d, data, size) || (layout == ONE_BYTE && d->colours != GREY))
        return UNDECODED;
    ptrdiff_t above = 0, beside = 0;
    for (Component *c = d->components; c < d->components + d->count; c++) {
        c->upsampling = upsampling_of(c);
        above |= c->upsampling != REPEATED && c->tall == 2;
        beside |= c->upsampling == SMOOTH;
    }
    const Component *blue = &d->components[1], *red = &d->components[2];
    const Window window = window_of(d, &wanted, above, beside);
    Conversion to = {
        .wanted = wanted, .layout = layout, .next = wanted.top, .left = window.first * 8 * d->across,
        .top = window.first_row * 8 * d->down,
        .narrow = d->colours == YCC && blue->upsampling == SMOOTH && red->upsampling == SMOOTH && blue->tall == red->tall
            && kernels->convert_narrow != NULL,
    };
    int together = !d->progressive && rows_go_together(d) ? 2 : 1;
    if (d->progressive && !is_plausible(d))
        return UNDECODED;
    if (!lay_out(d, &window, &to, 2 * together) || (d->progressive && !make_room_for_coefficients(d, &window)))
        return NO_MEMORY;
    if (!(d->progressive ? decode_scans(d, &window) : begin_scan(d)))
        return UNDECODED;
    ptrdiff_t bottom = wanted.top + wanted.height;
    for (ptrdiff_t row = window.first_row; row < window.row_end;) {
        int rows = row + together <= window.row_end ? together : 1;
        if (!decode_samples(d, &window, row, rows))
            return UNDECODED;
        for (; rows > 0; rows--, row++) {
            repeat_edges(d, &window, row);
            /* The last row of pixels is converted later, because it needs the samples below it. */
            ptrdiff_t ready = (row + 1) * 8 * d->down - (above && row + 1 < d->rows);
            convert_rows(d, &to, smaller(ready, bottom), take, taker);
        }
    }
    return DECODED;
}
