/* Colour operations, which mix the channels of each pixel: see augmenting.h. Pixels are processed a few at a time, in
   one plane for each channel; compilers vectorise the loops over planes. */

#include "augmenting/augmenting.h"
#include "kernels/vectorised.h"

#include <math.h>

enum { RUN = 1024 }; /* pixels that are changed at a time: whole strips */

typedef struct {
    uint8_t red[RUN], green[RUN], blue[RUN];
} Planes;

/* Changes `count` pixels by two parameters, and also the bytes after them up to the end of a strip. */
typedef void (*Change)(Planes *planes, ptrdiff_t count, float one, float other);

static void
change_all(const Image *image, Change change, float one, float other)
{
    Planes planes = {{0}, {0}, {0}};
    uint8_t *pixels = image->pixels;
    for (ptrdiff_t left = image->height * image->width; left > 0; left -= RUN, pixels += 3 * RUN) {
        ptrdiff_t count = left < RUN ? left : RUN;
        kernels->split(pixels, count, planes.red, planes.green, planes.blue);
        change(&planes, count, one, other);
        kernels->join(planes.red, planes.green, planes.blue, count, pixels);
    }
}

/* Returns the grey of a pixel, before its fraction is cut off, with torch's rounding. */
INLINE float
grey_of(uint8_t red, uint8_t green, uint8_t blue)
{
    return fmaf(blue, 0.114f, fmaf(green, 0.587f, (float)red * 0.2989f));
}

INLINE void
add_greys_body(const Planes *planes, ptrdiff_t count, int32_t *sum)
{
    int32_t total = 0;
    for (ptrdiff_t i = 0; i < count; i++)
        total += (int32_t)grey_of(planes->red[i], planes->green[i], planes->blue[i]);
    *sum += total;
}

VECTORISED(add_greys, add_greys_body, (const Planes *planes, ptrdiff_t count, int32_t *sum), (planes, count, sum))

double
mean_grey(const Image *image)
{
    Planes planes;
    ptrdiff_t all = image->height * image->width;
    const uint8_t *pixels = image->pixels;
    int64_t total = 0;
    for (ptrdiff_t left = all; left > 0; left -= RUN, pixels += 3 * RUN) {
        ptrdiff_t count = left < RUN ? left : RUN;
        int32_t sum = 0;
        kernels->split(pixels, count, planes.red, planes.green, planes.blue);
        add_greys(&planes, count, &sum);
        total += sum;
    }
    return (double)total / (double)all;
}

/* Mixes a level with a grey. */
INLINE uint8_t
blended(uint8_t level, float grey, float factor, float rest)
{
    int32_t number = (int32_t)fmaf(grey, rest, (float)level * factor);
    number = number > 0 ? number : 0;
    return (uint8_t)(number < 255 ? number : 255);
}

INLINE void
saturate_body(Planes *planes, ptrdiff_t count, float factor, float rest)
{
    for (ptrdiff_t strip = 0; strip < count; strip += STRIP)
        for (ptrdiff_t i = strip; i < strip + STRIP; i++) {
            uint8_t red = planes->red[i], green = planes->green[i], blue = planes->blue[i];
            float grey_level = (float)(int32_t)grey_of(red, green, blue);
            planes->red[i] = blended(red, grey_level, factor, rest);
            planes->green[i] = blended(green, grey_level, factor, rest);
            planes->blue[i] = blended(blue, grey_level, factor, rest);
        }
}

VECTORISED(saturate_planes, saturate_body, (Planes * planes, ptrdiff_t count, float factor, float rest),
           (planes, count, factor, rest))

void
saturate(const Image *image, double factor)
{
    factor = limited(factor);
    change_all(image, saturate_planes, (float)factor, (float)(1 - factor));
}

/* Grey is a saturation of 0. */
void
make_grey(const Image *image)
{
    saturate(image, 0);
}

/* Returns the level of a channel. `sixth` is the sixth of the circle that has the hue, counted from the channel's own
   hue. */
INLINE uint8_t
placed(uint8_t sixth, uint8_t upper, uint8_t between, uint8_t lower)
{
    uint8_t is_upper = (uint8_t)-((sixth == 0) | (sixth == 5)), is_lower = (uint8_t)-((sixth == 2) | (sixth == 3));
    return (uint8_t)((upper & is_upper) | (lower & is_lower) | (between & (uint8_t)~(is_upper | is_lower)));
}

/* Turns hues by sixths of the circle and a part of one.

   The largest and the least of a pixel's three levels do not depend on its hue. The sixth of the circle determines which
   channels have them. The position in the sixth determines the third level, which rises from the least in even sixths,
   and falls from the largest in odd ones. So to turn the hue, the third level is moved by a part of their range; at the
   end of the range, the hue enters the next sixth, and the level moves back. */
INLINE void
turn_body(Planes *planes, ptrdiff_t count, float part, float sixths)
{
    const uint8_t turned = (uint8_t)sixths;
    for (ptrdiff_t strip = 0; strip < count; strip += STRIP) {
        uint8_t most[STRIP], least[STRIP], start[STRIP], way[STRIP], third[STRIP], sixth[STRIP];
        int8_t sign[STRIP];
        uint8_t *red = planes->red + strip, *green = planes->green + strip, *blue = planes->blue + strip;
        for (int i = 0; i < STRIP; i++) {
            uint8_t r = red[i], g = green[i], b = blue[i];
            uint8_t high = r > g ? r : g, low = r > g ? g : r, below = high < b ? high : b;
            uint8_t upper = high > b ? high : b, lower = low < b ? low : b, middle = low > below ? low : below;
            uint8_t is_red = r == upper, is_green = g == upper;
            uint8_t falls = is_red ? g < b : is_green ? b < r : r < g;
            uint8_t at = (uint8_t)((is_red ? 6 : is_green ? 8 : 10) - falls + turned), odd = at & 1;
            most[i] = upper, least[i] = lower, sixth[i] = at;
            way[i] = (uint8_t)(falls ? upper - middle : middle - lower);
            start[i] = odd ? upper : lower, sign[i] = (int8_t)(1 - 2 * odd);
        }
        for (int i = 0; i < STRIP; i++) {
            float range = (float)(uint8_t)(most[i] - least[i]), moved = (float)way[i] + part * range;
            float back = 2 * range - moved, level = (float)start[i] + (float)sign[i] * (moved < back ? moved : back);
            sixth[i] = (uint8_t)(sixth[i] + (moved >= range));
            third[i] = (uint8_t)(int32_t)(level * (255.999f / 255));
        }
        for (int i = 0; i < STRIP; i++) {
            uint8_t at = sixth[i], upper = most[i], lower = least[i], between = third[i];
            at = at >= 12 ? (uint8_t)(at - 12) : at;
            at = at >= 6 ? (uint8_t)(at - 6) : at;
            red[i] = placed(at, upper, between, lower);
            green[i] = placed(at >= 2 ? (uint8_t)(at - 2) : (uint8_t)(at + 4), upper, between, lower);
            blue[i] = placed(at >= 4 ? (uint8_t)(at - 4) : (uint8_t)(at + 2), upper, between, lower);
        }
    }
}

VECTORISED(turn, turn_body, (Planes * planes, ptrdiff_t count, float part, float sixths), (planes, count, part, sixths))

void
turn_hue(const Image *image, double shift)
{
    double turned = 6 * (shift - floor(shift)), sixths = floor(turned);
    change_all(image, turn, (float)(turned - sixths), (float)sixths);
}
