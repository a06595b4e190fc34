/* Implements lines.h. */

#include "geometry.h"
#include "png/inflating.h"
#include "png/lines.h"
#include "png/unfiltering.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST_ROW ((int64_t)1 << 27) /* bytes; longer rows are not supported */

typedef struct { /* a pass over an image: its first row and column, and the steps to the next ones */
    ptrdiff_t top, down, left, across;
} Pass;

static const Pass passes[7] = {{0, 8, 0, 8}, {0, 8, 4, 8}, {4, 8, 0, 4}, {0, 4, 2, 4}, {2, 4, 0, 2}, {0, 2, 1, 2}, {1, 2, 0, 1}};
static const Pass whole = {0, 1, 0, 1};

int
lines_init(Lines *lines)
{
    lines->inflating = inflating_new();
    return lines->inflating != NULL;
}

void
lines_clear(Lines *lines)
{
    inflating_free(lines->inflating);
    free(lines->rows.at);
}

size_t
lines_memory(const Lines *lines)
{
    return inflating_memory(lines->inflating) + lines->rows.size;
}

int
samples_of_pixel(const Header *header)
{
    switch (header->colour) {
    case COLOUR:
        return 3;
    case GREY_ALPHA:
        return 2;
    case COLOUR_ALPHA:
        return 4;
    default:
        return 1;
    }
}

void
unpack_samples(const uint8_t *from, ptrdiff_t count, int bits, int factor, uint8_t *to)
{
    int mask = (1 << bits) - 1, a_byte = 8 / bits;
    for (ptrdiff_t x = 0; x < count; from++)
        for (int shift = 8 - bits, end = x + a_byte <= count ? 0 : 8 - bits * (int)(count - x); shift >= end; shift -= bits)
            to[x++] = (uint8_t)((*from >> shift & mask) * factor);
}

/* Returns how many bytes `pixels` pixels take. */
static ptrdiff_t
bytes_of(const Header *header, ptrdiff_t pixels)
{
    return (ptrdiff_t)(((int64_t)pixels * samples_of_pixel(header) * header->depth + 7) / 8);
}

static Outcome
read_pass(Lines *lines, const Header *header, const Pass *pass, ptrdiff_t bottom, ptrdiff_t columns, TakeLine take, void *taker)
{
    ptrdiff_t count = ((ptrdiff_t)header->width - pass->left + pass->across - 1) / pass->across;
    ptrdiff_t size = bytes_of(header, count), needed = bytes_of(header, smaller(columns, count));
    ptrdiff_t step = larger(samples_of_pixel(header) * header->depth / 8, 1);
    uint8_t *above = lines->rows.at, *row = above + lines->rows.size / 2;
    memset(above, 0, (size_t)size);
    for (ptrdiff_t y = pass->top; y < bottom && count > 0; y += pass->down) {
        const uint8_t *filtered = inflating_take(lines->inflating, (size_t)size + 1);
        const Line line = {y, pass->left, pass->across, count};
        if (filtered == NULL || !unfilter_row(filtered[0], filtered + 1, above, needed, step, row) || !take(taker, row, &line))
            return UNDECODED;
        uint8_t *other = above;
        above = row;
        row = other;
    }
    return DECODED;
}

Outcome
read_lines(Lines *lines, const Header *header, const uint8_t *compressed, size_t size, ptrdiff_t bottom, ptrdiff_t columns,
           TakeLine take, void *taker)
{
    int64_t bits = (int64_t)header->width * samples_of_pixel(header) * header->depth;
    if (bits > 8 * LONGEST_ROW)
        return UNDECODED;
    if (header->interlaced) {
        bottom = (ptrdiff_t)header->height;
        columns = (ptrdiff_t)header->width;
    }
    int ends = bottom == (ptrdiff_t)header->height;
    size_t row = (size_t)bytes_of(header, (ptrdiff_t)header->width);
    if (!reserve(&lines->rows, 2 * row) || !inflating_begin(lines->inflating, compressed, size, row + 1, ends))
        return NO_MEMORY;
    Outcome outcome = DECODED;
    if (!header->interlaced)
        outcome = read_pass(lines, header, &whole, bottom, columns, take, taker);
    for (int k = 0; header->interlaced && k < 7 && outcome == DECODED; k++)
        outcome = read_pass(lines, header, &passes[k], bottom, columns, take, taker);
    return outcome == DECODED && ends && !inflating_ends(lines->inflating) ? UNDECODED : outcome;
}
