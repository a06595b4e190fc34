/* Delivers the bytes of entropy-coded segments without stuffed bytes (ITU-T T.81, B.1.1.5). */

#include "jpeg/jpeg.h"
#include "jpeg/markers.h"
#include "kernels/kernels.h"

#include <string.h>

int
fill(const Decoder *d, Stream *s)
{
    for (int i = 0; i < d->count; i++) /* so that no sum overflows: a chunk adds less than 2^30 */
        if (s->predictions[i] > 1 << 30 || s->predictions[i] < -(1 << 30))
            return 0;
    ptrdiff_t left = larger(s->end - s->at.next, 0);
    memmove(s->chunk, s->at.next, (size_t)left);
    uint8_t *to = s->chunk + left, *room = s->chunk + CHUNK;
    const uint8_t *from = s->from;
    s->at.next = s->chunk;
    while (to < room && !s->ended) {
        size_t count = kernels->copy_run(to, from, (size_t)(room - to), d->stop);
        to += count;
        from += count;
        if (to >= room)
            break;
        if (d->stop - from < 2)
            return 0;
        if (from[1]) {
            int last = !d->interval || (s->segment + 1) * d->interval >= d->mcus;
            if (last && d->progressive ? is_restart(from[1]) : from[1] != (last ? EOI : RST0 + (s->segment & 7)))
                return 0;
            s->ended = 1; /* a damaged MCU may read old bytes after `end`; the caller then rejects it */
        } else {
            *to++ = 0xFF;
            from += 2;
        }
    }
    s->from = from;
    s->end = to;
    return 1;
}

int
enter_segment(const Decoder *d, Stream *s, ptrdiff_t segment)
{
    for (; s->segment < segment; s->segment++, s->ended = 0) {
        const uint8_t *marker = s->ended ? s->from : kernels->find_marker(s->from, d->stop);
        if (marker == NULL || marker[1] != RST0 + (s->segment & 7))
            return 0;
        s->from = marker + 2;
    }
    s->mcu = segment * d->interval;
    s->ended = 0;
    s->at = (Bits){0, 0, s->chunk};
    s->end = s->chunk;
    memset(s->predictions, 0, sizeof s->predictions);
    return fill(d, s);
}

int
begin_scan(Decoder *d)
{
    Stream *s = &d->streams[0];
    d->current = 0;
    s->from = d->from;
    s->segment = 0;
    s->ended = 0;
    return enter_segment(d, s, 0);
}

