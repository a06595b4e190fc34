/* Implements metadata.h, with the rules of packer/_images/jpeg.py.

   libjpeg ignores metadata. Pillow parses them when it opens an image, and refuses the whole image if one of them is
   malformed: a JFIF segment without a version, a profile without its number, a resource without a name. */

#include "jpeg/markers.h"
#include "jpeg/metadata.h"

#include <string.h>

enum { JFIF_SIZE = 14, ADOBE_SIZE = 12, PROFILE_SIZE = 14 }; /* bytes, at least */
enum { ORIENTATION = 0x0112, X_RESOLUTION = 0x011A, SHORT = 3, LONG = 4, RATIONAL = 5 };

typedef struct {
    const uint8_t *at;
    ptrdiff_t size;
    int upper_first; /* whether numbers are big-endian */
} Tiff;

static uint32_t
number(const Tiff *tiff, ptrdiff_t at, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint32_t)tiff->at[at + i] << 8 * (tiff->upper_first ? bytes - 1 - i : i);
    return value;
}

/* Tells whether all values of the first directory of a TIFF lie inside of the TIFF, and those that Pillow reads have
   their usual types. */
static int
is_usual_tiff(const uint8_t *content, ptrdiff_t size)
{
    static const uint8_t units[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8}; /* bytes of a value, by its type */
    if (size < 8 || (memcmp(content, "II*\0", 4) && memcmp(content, "MM\0*", 4)))
        return 0;
    const Tiff tiff = {content, size, content[0] == 'M'};
    uint64_t room = (uint64_t)size;
    if (number(&tiff, 4, 4) > (uint32_t)size - 2)
        return 0;
    ptrdiff_t directory = (ptrdiff_t)number(&tiff, 4, 4), entry = directory + 2;
    ptrdiff_t end = entry + 12 * (ptrdiff_t)number(&tiff, directory, 2);
    if (end > size)
        return 0;
    for (; entry < end; entry += 12) {
        uint32_t tag = number(&tiff, entry, 2), type = number(&tiff, entry + 2, 2), count = number(&tiff, entry + 4, 4);
        uint64_t bytes = type < sizeof units ? (uint64_t)count * units[type] : 0;
        if (bytes > 4) {
            uint64_t begin = number(&tiff, entry + 8, 4);
            if (bytes > room || begin + bytes > (uint64_t)size)
                return 0;
            room -= bytes;
        }
        if (tag == ORIENTATION && ((type != SHORT && type != LONG) || count != 1))
            return 0;
        if (tag == X_RESOLUTION && (type != RATIONAL || count != 1))
            return 0;
    }
    return 1;
}

/* Returns 0 if a Photoshop segment ends where the length of a resource's name should be. */
static int
is_usual_photoshop(const uint8_t *content, ptrdiff_t size)
{
    int64_t at = 14;
    while (size - at >= 4 && !memcmp(content + at, "8BIM", 4)) {
        at += 6; /* and its number */
        if (at == size)
            return 0;
        if (at > size)
            break;
        at += 1 + content[at];
        at += at & 1;
        if (size - at < 4)
            break;
        at += 4 + ((int64_t)two_bytes(content + at) << 16 | two_bytes(content + at + 2));
        at += at & 1;
    }
    return 1;
}

#define BEGINS_WITH(text) (size >= (ptrdiff_t)sizeof(text) - 1 && !memcmp(content, text, sizeof(text) - 1))

int
is_usual(uint8_t marker, const uint8_t *content, ptrdiff_t size, int *exifs)
{
    if (marker == APP0 && BEGINS_WITH("JFIF"))
        return size >= JFIF_SIZE && content[4] == 0;
    if (marker == APP1 && BEGINS_WITH("Exif\0\0"))
        return (*exifs)++ == 0 && is_usual_tiff(content + 6, size - 6);
    if (marker == APP2 && BEGINS_WITH("ICC_PROFILE\0"))
        return size >= PROFILE_SIZE;
    if (marker == APP13 && BEGINS_WITH("Photoshop 3.0\0"))
        return is_usual_photoshop(content, size);
    if (marker == APP14 && BEGINS_WITH("Adobe"))
        return size >= ADOBE_SIZE;
    return 1;
}

int
orientation_of(uint8_t marker, const uint8_t *content, ptrdiff_t size)
{
    if (marker != APP1 || !BEGINS_WITH("Exif\0\0"))
        return 0;
    const Tiff tiff = {content + 6, size - 6, content[6] == 'M'};
    ptrdiff_t directory = (ptrdiff_t)number(&tiff, 4, 4), entry = directory + 2;
    for (ptrdiff_t end = entry + 12 * (ptrdiff_t)number(&tiff, directory, 2); entry < end; entry += 12) {
        if (number(&tiff, entry, 2) != ORIENTATION)
            continue;
        uint32_t value = number(&tiff, entry + 8, number(&tiff, entry + 2, 2) == SHORT ? 2 : 4);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 0;
}

int
may_turn(uint8_t marker, const uint8_t *content, ptrdiff_t size)
{
    static const char said[] = "tiff:Orientation";
    if (marker != APP1 || !BEGINS_WITH("http://ns.adobe.com/xap/1.0/\0"))
        return 0;
    for (const uint8_t *at = content, *end = content + size; (at = memchr(at, 't', (size_t)(end - at))) != NULL; at++)
        if (end - at >= (ptrdiff_t)sizeof said - 1 && !memcmp(at, said, sizeof said - 1))
            return 1;
    return 0;
}
