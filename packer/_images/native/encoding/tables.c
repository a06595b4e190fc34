/* The tables and headers of the JPEGs that the encoder writes: see encoding.h. */

#include "compilers.h"
#include "encoding/encoding.h"
#include "jpeg/markers.h"
#include "jpeg/zigzag.h"

#include <string.h>

/* ITU-T T.81, annex K.1: of luma and of chroma, in zigzag order. */
static const uint8_t examples[2][TABLE] = {
    {
        16, 11, 12, 14, 12, 10, 16, 14, 13, 14, 18, 17, 16, 19, 24, 40, 26, 24, 22, 22, 24, 49, 35, 37, 29, 40, 58,
        51, 61, 60, 57, 51, 56, 55, 64, 72, 92, 78, 64, 68, 87, 69, 55, 56, 80, 109, 81, 87, 95, 98, 103, 104, 103,
        62, 77, 113, 121, 112, 100, 120, 92, 101, 103, 99,
    },
    {
        17, 18, 18, 24, 21, 24, 47, 26, 26, 47, 99, 66, 56, 66, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
        99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
        99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    },
};

/* ITU-T T.81, annex K.3: the number of codes of each length, and their symbols; of luma, then of chroma. */
enum { DC_TABLE = 16 + 12, AC_TABLE = 16 + 162 };
static const uint8_t dc_says[2][DC_TABLE] = {
    {
        0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
    },
    {
        0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
    },
};
static const uint8_t ac_says[2][AC_TABLE] = {
    {
        0x00, 0x02, 0x01, 0x03, 0x03, 0x02, 0x04, 0x03, 0x05, 0x05, 0x04, 0x04, 0x00, 0x00, 0x01, 0x7D, 0x01, 0x02,
        0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07, 0x22, 0x71, 0x14, 0x32,
        0x81, 0x91, 0xA1, 0x08, 0x23, 0x42, 0xB1, 0xC1, 0x15, 0x52, 0xD1, 0xF0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09,
        0x0A, 0x16, 0x17, 0x18, 0x19, 0x1A, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39,
        0x3A, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63,
        0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6A, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7A, 0x83, 0x84, 0x85,
        0x86, 0x87, 0x88, 0x89, 0x8A, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0xA2, 0xA3, 0xA4, 0xA5,
        0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3, 0xC4, 0xC5,
        0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xD2, 0xD3, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA, 0xE1, 0xE2, 0xE3, 0xE4,
        0xE5, 0xE6, 0xE7, 0xE8, 0xE9, 0xEA, 0xF1, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA,
    },
    {
        0x00, 0x02, 0x01, 0x02, 0x04, 0x04, 0x03, 0x04, 0x07, 0x05, 0x04, 0x04, 0x00, 0x01, 0x02, 0x77, 0x00, 0x01,
        0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71, 0x13, 0x22, 0x32, 0x81,
        0x08, 0x14, 0x42, 0x91, 0xA1, 0xB1, 0xC1, 0x09, 0x23, 0x33, 0x52, 0xF0, 0x15, 0x62, 0x72, 0xD1, 0x0A, 0x16,
        0x24, 0x34, 0xE1, 0x25, 0xF1, 0x17, 0x18, 0x19, 0x1A, 0x26, 0x27, 0x28, 0x29, 0x2A, 0x35, 0x36, 0x37, 0x38,
        0x39, 0x3A, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A,
        0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6A, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7A, 0x82, 0x83,
        0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0xA2, 0xA3,
        0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3,
        0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xD2, 0xD3, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA, 0xE2, 0xE3,
        0xE4, 0xE5, 0xE6, 0xE7, 0xE8, 0xE9, 0xEA, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA,
    },
};

static Codes codes;

/* Adds the codes of a table. A symbol of AC is the number of zeros before a coefficient, and its size; a symbol of DC is
   its size. */
static void
note_codes(const uint8_t *says, int chroma, int is_ac)
{
    const uint8_t *symbol = says + 16;
    uint32_t code = 0;
    for (int length = 1; length <= 16; length++, code <<= 1) {
        for (int i = 0; i < says[length - 1]; i++, code++, symbol++) {
            const uint32_t size = *symbol & 15u, bits = code << size;
            uint32_t *to = codes[KINDS_OF_ITEM * chroma + (is_ac ? *symbol >> 4 : FIRST_COEFFICIENT)][size];
            to[0] = bits << CODE_LENGTH | ((uint32_t)length + size);
            to[1] = to[0] + (((1u << size) - 1) << CODE_LENGTH); /* -1 is coded as 0 */
        }
    }
}

void
encoding_init(void)
{
    for (int chroma = 0; chroma < 2; chroma++) {
        note_codes(dc_says[chroma], chroma, 0);
        note_codes(ac_says[chroma], chroma, 1);
    }
}

const Codes *
standard_codes(void)
{
    return (const Codes *)&codes;
}

void
scale_quantisation(int quality, uint8_t tables[2][TABLE])
{
    const int percent = quality < 50 ? 5000 / quality : 200 - 2 * quality;
    for (int chroma = 0; chroma < 2; chroma++) {
        for (int i = 0; i < TABLE; i++) {
            const int scaled = (examples[chroma][i] * percent + 50) / 100;
            tables[chroma][i] = (uint8_t)(scaled < 1 ? 1 : scaled > 255 ? 255 : scaled);
        }
    }
}

/* Finds two multiplications that replace the division by 8 times a table's entry. Their results were compared for every
   entry and coefficient. */
void
set_divisors(const uint8_t *table, Divisors *divisors)
{
    for (int i = 0; i < TABLE; i++) {
        const uint32_t divisor = 8u * table[i];
        uint32_t bits = 63 - (uint32_t)leading_zeros(divisor), half = divisor / 2;
        uint32_t reciprocal = (1u << (16 + bits)) / divisor, rest = (1u << (16 + bits)) % divisor;
        if (rest == 0) {
            reciprocal /= 2;
            bits--;
        } else if (rest <= half) {
            half++;
        } else {
            reciprocal++;
        }
        divisors->half[zigzag[i]] = (uint16_t)half;
        divisors->reciprocal[zigzag[i]] = (uint16_t)reciprocal;
        divisors->scale[zigzag[i]] = (uint16_t)(1u << (16 - bits));
    }
}

/* Writes a segment: its marker, its length, the byte `first` unless that is negative, and the rest. */
static uint8_t *
write_segment(uint8_t *to, uint8_t marker, int first, const uint8_t *rest, size_t size)
{
    const size_t length = 2 + (first >= 0) + size;
    *to++ = 0xFF;
    *to++ = marker;
    *to++ = (uint8_t)(length >> 8);
    *to++ = (uint8_t)length;
    if (first >= 0)
        *to++ = (uint8_t)first;
    memcpy(to, rest, size);
    return to + size;
}

uint8_t *
write_header(uint8_t *to, ptrdiff_t height, ptrdiff_t width, ptrdiff_t interval, const uint8_t tables[2][TABLE])
{
    static const uint8_t jfif[] = {'J', 'F', 'I', 'F', 0, 1, 1, 0, 0, 1, 0, 1, 0, 0};
    static const uint8_t scan[] = {3, 1, 0x00, 2, 0x11, 3, 0x11, 0, 63, 0};
    const uint8_t frame[] = {
        8, (uint8_t)(height >> 8), (uint8_t)height, (uint8_t)(width >> 8), (uint8_t)width,
        3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1,
    };
    const uint8_t restarts[] = {(uint8_t)(interval >> 8), (uint8_t)interval};
    *to++ = 0xFF;
    *to++ = SOI;
    to = write_segment(to, APP0, -1, jfif, sizeof jfif);
    for (int chroma = 0; chroma < 2; chroma++)
        to = write_segment(to, DQT, chroma, tables[chroma], TABLE);
    to = write_segment(to, SOF0, -1, frame, sizeof frame);
    for (int chroma = 0; chroma < 2; chroma++) {
        to = write_segment(to, DHT, chroma, dc_says[chroma], DC_TABLE);
        to = write_segment(to, DHT, 0x10 | chroma, ac_says[chroma], AC_TABLE);
    }
    if (interval)
        to = write_segment(to, DRI, -1, restarts, sizeof restarts);
    return write_segment(to, SOS, -1, scan, sizeof scan);
}
