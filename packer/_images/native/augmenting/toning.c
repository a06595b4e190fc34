/* Tone operations, which map each level to another one by a table: see augmenting.h. */

#include "augmenting/augmenting.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

typedef uint8_t Tables[3][LEVELS]; /* of red, green and blue */

/* Converts a number to a level, as torch converts clamped numbers: without the fraction. */
static uint8_t
truncated(float number)
{
    return (uint8_t)(number > 0 ? number < 255 ? number : 255 : 0); /* NaN becomes 0 */
}

static void
share(Tables tables)
{
    memcpy(tables[1], tables[0], LEVELS);
    memcpy(tables[2], tables[0], LEVELS);
}

/* Mixes levels with a number: `factor` of the level, and 1 - `factor` of the number. */
static void
blend(uint8_t *table, double factor, float with)
{
    float share_of_level = (float)factor, rest = (float)(1 - factor);
    for (int level = 0; level < LEVELS; level++)
        table[level] = truncated(fmaf(with, rest, (float)level * share_of_level));
}

static void
stretch(const Image *image, Tables tables)
{
    uint8_t least[3], most[3];
    kernels->extremes(image->pixels, image->height * image->width, least, most);
    for (int colour = 0; colour < 3; colour++) {
        int flat = least[colour] == most[colour];
        float first = flat ? 0 : (float)least[colour];
        float scale = flat ? 1 : (float)(most[colour] - least[colour]) * (float)(1.0 / 255);
        for (int level = 0; level < LEVELS; level++)
            tables[colour][level] = truncated(((float)level - first) / scale);
    }
}

/* Counts levels. Every other pixel has separate counts, because adding to one count twice in a row takes longer. */
static void
count_levels(const Image *image, uint32_t counts[3][LEVELS])
{
    uint32_t others[3][LEVELS] = {{0}};
    const uint8_t *pixel = image->pixels, *end = pixel + 3 * image->height * image->width;
    memset(counts, 0, sizeof others);
    for (; end - pixel >= 6; pixel += 6) {
        counts[0][pixel[0]]++, counts[1][pixel[1]]++, counts[2][pixel[2]]++;
        others[0][pixel[3]]++, others[1][pixel[4]]++, others[2][pixel[5]]++;
    }
    for (int colour = 0; colour < 3; colour++) {
        if (pixel < end)
            counts[colour][pixel[colour]]++;
        for (int level = 0; level < LEVELS; level++)
            counts[colour][level] += others[colour][level];
    }
}

/* Pillow's equalization, which is torchvision's. */
static void
equalize(const Image *image, Tables tables)
{
    uint32_t counts[3][LEVELS];
    count_levels(image, counts);
    for (int colour = 0; colour < 3; colour++) {
        int last = LEVELS - 1;
        while (counts[colour][last] == 0)
            last--;
        int64_t step = (image->height * image->width - (int64_t)counts[colour][last]) / 255, sum = step / 2;
        for (int level = 0; level < LEVELS; level++) {
            int64_t equal = step == 0 ? level : sum / step;
            tables[colour][level] = (uint8_t)(equal < 255 ? equal : 255);
            sum += counts[colour][level];
        }
    }
}

void
tone(const Image *image, const Operation *operation)
{
    Tables tables;
    int bits = operation->kind == POSTERIZE ? (int)operation->factor : 8, mask = ((1 << bits) - 1) << (8 - bits);
    for (int level = 0; level < LEVELS; level++)
        switch (operation->kind) {
        case BRIGHTNESS:
            tables[0][level] = truncated((float)level * (float)operation->factor);
            break;
        case SOLARIZE:
            tables[0][level] = (uint8_t)((float)level >= (float)operation->factor ? 255 - level : level);
            break;
        case POSTERIZE:
            tables[0][level] = (uint8_t)(level & mask);
            break;
        default: /* INVERT */
            tables[0][level] = (uint8_t)(255 - level);
        }
    if (operation->kind == CONTRAST)
        blend(tables[0], operation->factor, (float)mean_grey(image));
    share(tables);
    if (operation->kind == AUTOCONTRAST)
        stretch(image, tables);
    else if (operation->kind == EQUALIZE)
        equalize(image, tables);
    kernels->exchange(image->pixels, image->height * image->width, tables);
}
