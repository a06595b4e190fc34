/* The markers of JPEGs (ITU-T T.81, table B.1), without their first byte, which is 0xFF. */

#ifndef PACKER_MARKERS_H
#define PACKER_MARKERS_H

#include <stddef.h>
#include <stdint.h>

enum {
    SOF0 = 0xC0, SOF1 = 0xC1, SOF2 = 0xC2, DHT = 0xC4, JPG = 0xC8, DAC = 0xCC, SOF15 = 0xCF, RST0 = 0xD0, SOI = 0xD8,
    EOI = 0xD9, SOS = 0xDA, DQT = 0xDB, DNL = 0xDC, DRI = 0xDD, APP0 = 0xE0, APP1 = 0xE1, APP2 = 0xE2, APP9 = 0xE9,
    APP13 = 0xED, APP14 = 0xEE, APP15 = 0xEF, COM = 0xFE,
};

static inline int
is_restart(uint8_t marker)
{
    return (marker & 0xF8) == RST0;
}

/* Returns a number of two bytes, such as the length of a segment. */
static inline ptrdiff_t
two_bytes(const uint8_t *at)
{
    return (ptrdiff_t)at[0] << 8 | at[1];
}

#endif
