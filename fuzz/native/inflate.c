/* What zlib deflated: at once, and piece by piece, which gives the same. */

#include "target.h"
#include "../../packer/_images/native/inflating.h"
#include "../../packer/_images/native/native.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Inflates in pieces of changing sizes; returns whether all were there. */
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
    PyObject *done = call(inflate, data, size, (int64_t)(uintptr_t)out, (int64_t)wanted, (int64_t)(flags & WHOLE), NOTHING_MORE);
    int in_pieces = inflate_pieces(data, size, others, wanted, most, flags & WHOLE);
    if (stand_in_value(done))
        require_set(out, wanted);
    if (flags & WHOLE) /* of others, one may find damage behind the wanted bytes that the other does not come to */
        require(stand_in_value(done) == in_pieces);
    if (stand_in_value(done) && in_pieces)
        require(!memcmp(out, others, wanted));
    Py_DECREF(done);
    free(out);
    free(others);
    return 0;
}
