/* Inflating data of zlib at once and in pieces, with the same result. */

#include "target.h"
#include "../../packer/_images/native/png/inflating.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Inflates in pieces of changing sizes; returns whether there was enough data for all. */
static int
inflate_pieces(const uint8_t *data, size_t size, uint8_t *out, size_t wanted, size_t most, int whole)
{
    Inflating *state = inflating_new();
    int done = state != NULL && inflating_begin(state, data, size, most, whole);
    for (size_t at = 0, piece = 1; done && at < wanted; at += piece) {
        piece = (7 * piece + 3) % most + 1;
        piece = piece < wanted - at ? piece : wanted - at;
        const uint8_t *bytes = inflating_take(state, piece);
        done = bytes != NULL;
        if (done)
            memcpy(out + at, bytes, piece);
    }
    done = done && (!whole || inflating_ends(state));
    inflating_free(state);
    return done;
}

static int
inflate_at_once(const uint8_t *data, size_t size, uint8_t *out, size_t wanted, int whole)
{
    Inflating *state = inflating_new();
    const uint8_t *bytes = NULL;
    if (state != NULL && inflating_begin(state, data, size, wanted, whole))
        bytes = inflating_take(state, wanted);
    int done = bytes != NULL && (!whole || inflating_ends(state));
    if (done)
        memcpy(out, bytes, wanted);
    inflating_free(state);
    return done;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { CONTROLS = 5, WHOLE = 1, LONG = 2 };
    if (size < CONTROLS)
        return 0;
    Input controls = {data, data + CONTROLS};
    int flags = next_byte(&controls);
    size_t wanted = (size_t)next_byte(&controls) << 8;
    wanted += (size_t)next_byte(&controls);
    size_t most = 1 + ((size_t)next_byte(&controls) << 8);
    most += (size_t)next_byte(&controls);
    wanted *= flags & LONG ? 5 : 1;
    data += CONTROLS;
    size -= CONTROLS;
    uint8_t *out = memory(wanted), *others = memory(wanted);
    int at_once = inflate_at_once(data, size, out, wanted, flags & WHOLE);
    int in_pieces = inflate_pieces(data, size, others, wanted, most, flags & WHOLE);
    if (at_once)
        require_set(out, wanted);
    if (flags & WHOLE) /* otherwise only one of the two may read damaged data after the wanted bytes */
        require(at_once == in_pieces);
    if (at_once && in_pieces)
        require(!memcmp(out, others, wanted));
    free(out);
    free(others);
    return 0;
}
