/* Implements padding.h, with the results of numpy.pad and torchvision's functional.pad. */

#include "geometry.h"
#include "resizing/padding.h"

#include <string.h>

int
is_padded(const Wanted *window)
{
    return window->cut_top < 0 || window->cut_top > window->scaled_height - window->out_height || window->cut_left < 0
        || window->cut_left > window->scaled_width - window->out_width;
}

/* Returns the pixel of a line that padding shows at a position, which may be before or after the line; for CONSTANT, the
   nearest pixel. */
static int64_t
source(Mode mode, int64_t place, int64_t side)
{
    if (place >= 0 && place < side)
        return place;
    if (mode == CONSTANT || mode == EDGE)
        return place < 0 ? 0 : side - 1;
    int64_t twice = mode == SYMMETRIC, period = 2 * (side - 1 + twice); /* whether the pixels at the edges are repeated */
    if (period == 0)
        return 0;
    place %= period;
    place += place < 0 ? period : 0;
    return place < side ? place : period - place - twice;
}

static void
set_visible(Mode mode, ptrdiff_t side, ptrdiff_t *cut, ptrdiff_t *out)
{
    int64_t first = side, last = 0, begin = *cut, end = begin + *out;
    for (int64_t place = begin; place < end; place++) {
        int64_t at = source(mode, place, side);
        first = at < first ? at : first;
        last = at > last ? at : last;
    }
    *cut = (ptrdiff_t)first;
    *out = (ptrdiff_t)(last + 1 - first);
}

Wanted
visible_part(const Wanted *window, const Padding *padding)
{
    Wanted part = *window;
    set_visible(padding->mode, part.scaled_height, &part.cut_top, &part.out_height);
    set_visible(padding->mode, part.scaled_width, &part.cut_left, &part.out_width);
    return part;
}

typedef struct { /* a row of the window */
    /* Columns of the resized rectangle, mirrored if the window is; the first one in the window, and their number there. */
    ptrdiff_t side, cut, out;
    ptrdiff_t first;          /* the first column of the part */
    ptrdiff_t begin, end;     /* columns of the window that lie inside */
} Columns;

static Columns
columns_of(const Wanted *window, const Wanted *part)
{
    ptrdiff_t side = window->scaled_width, out = window->out_width, cut = window->cut_left, first = part->cut_left;
    if (window->flip) { /* then count from the right */
        cut = side - out - cut;
        first = side - part->out_width - first;
    }
    ptrdiff_t begin = smaller(larger(-cut, 0), out);
    return (Columns){side, cut, out, first, begin, larger(smaller(side - cut, out), begin)};
}

/* Writes the columns `column` to `end` - 1, which lie outside of the resized rectangle. `row` is a row of the part. */
static void
pad_columns(const Columns *columns, const Padding *padding, const uint8_t *row, ptrdiff_t column, ptrdiff_t end, uint8_t *out)
{
    for (; column < end; column++) {
        const uint8_t *pixel = padding->colour;
        if (padding->mode != CONSTANT)
            pixel = row + 3 * (source(padding->mode, (int64_t)columns->cut + column, columns->side) - columns->first);
        memcpy(out + 3 * column, pixel, 3);
    }
}

void
pad(const Wanted *window, const Wanted *part, const Padding *padding, const uint8_t *pixels, uint8_t *out)
{
    const Columns columns = columns_of(window, part), *c = &columns;
    for (ptrdiff_t y = 0; y < window->out_height; y++, out += 3 * c->out) {
        int64_t place = (int64_t)window->cut_top + y;
        if (padding->mode == CONSTANT && (place < 0 || place >= window->scaled_height)) {
            pad_columns(c, padding, pixels, 0, c->out, out);
            continue;
        }
        ptrdiff_t line = (ptrdiff_t)source(padding->mode, place, window->scaled_height) - part->cut_top;
        const uint8_t *row = pixels + 3 * line * part->out_width;
        pad_columns(c, padding, row, 0, c->begin, out);
        if (c->begin < c->end)
            memcpy(out + 3 * c->begin, row + 3 * (c->cut + c->begin - c->first), (size_t)(3 * (c->end - c->begin)));
        pad_columns(c, padding, row, c->end, c->out, out);
    }
}
