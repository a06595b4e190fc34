"""Huffman coding of DCT coefficients (ITU-T T.81, annexes F, G and K.2), compiled by numba.

A scan is read into *tokens* and written from them. A token is what stands in the scan for one coefficient, one run of
zeros or one end of block: the key of its symbol above the `AMPLITUDE` bits that follow the symbol. A key is the number
of the table (0 or 1), then 0 for DC and 1 for AC, then the eight bits of the symbol.

Compiled code does not check indices. So everything that comes from a file is compared with the extent of its array
before it is used; a test runs the same code with such checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from packer.errors import MissingDependencyError

try:
    import numba
except ImportError as error:
    raise MissingDependencyError("tiled JPEGs are written with numba (pip install numba, or '.[tiles]')") from error

__all__ = [
    "AMPLITUDE",
    "KEYS",
    "MARGIN",
    "OK",
    "PROBLEMS",
    "TABLE",
    "code_lengths",
    "fill_table",
    "read_blocks",
    "read_tokens",
    "tokens_of_blocks",
    "unstuff",
    "write_tokens",
]

OK, BAD_CODE, BAD_VALUE, SHORT, LONG = range(5)
PROBLEMS = ("", "an invalid code", "a coefficient out of range", "data that end too early", "data left over")
"""What is wrong with a scan, by the number that `read_tokens`, `read_blocks` and `tokens_of_blocks` return."""

AMPLITUDE = 11
KEYS = 4 * 256
MARGIN = 512  # bytes after the data: more than the longest block, since a position is checked once a block

_LOOK = 10  # bits; longer codes are searched for
_LIMITS = 1 << _LOOK
_COUNTS = _LIMITS + 17
_SYMBOLS = _COUNTS + 17
TABLE = _SYMBOLS + 256
"""Length of a decoding table: a row of the `tables` below.

By the next ten bits, length << 8 | symbol of a code that is not longer, or 0; by length, the end of the codes up to
this length, as 16 bits from the left; by length, how many codes are shorter; the symbols in the order of their codes.
"""

_F = TypeVar("_F", bound=Callable[..., Any])


def _compiled(signature: str | None = None) -> Callable[[_F], _F]:
    """Compile ahead of the first call, or load what an earlier process compiled."""

    def compile_(function: _F) -> _F:
        try:
            return cast(_F, numba.njit(signature, cache=True, nogil=True)(function))
        except RuntimeError:  # neither beside this file nor in the home directory can anything be written
            return cast(_F, numba.njit(signature, nogil=True)(function))

    return compile_


@_compiled("int64(Array(uint8, 1, 'C', readonly=True), int64, uint8[::1], int64[::1])")
def unstuff(
    data: npt.NDArray[np.uint8], position: int, clean: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]
) -> int:
    """Copy a scan without its stuffed zeros and its restart markers.

    Parameters
    ----------
    data, position
        The file, and where the entropy-coded data begin.
    clean
        Receives the bytes, then `MARGIN` zeros; at least as long as both.
    ends
        Receives where each restart interval ends in `clean`; as long as there must be intervals.

    Returns
    -------
    int
        Where the marker that ends the scan begins; -1 where there is none, or the restart markers are not in order.
    """
    filled = interval = 0
    while position + 1 < data.size:
        byte = data[position]
        if byte != 0xFF:
            clean[filled] = byte
            filled += 1
            position += 1
            continue
        marker = data[position + 1]
        if marker == 0:
            clean[filled] = 0xFF
            filled += 1
            position += 2
            continue
        begin = position
        while marker == 0xFF:  # fill bytes
            position += 1
            if position + 1 >= data.size:
                return -1
            marker = data[position + 1]
        if 0xD0 <= marker <= 0xD7:
            if interval + 1 >= ends.size or marker & 7 != interval & 7:
                return -1
            ends[interval] = filled
            interval += 1
            position += 2
            continue
        if marker == 0 or interval + 1 != ends.size:
            return -1
        ends[interval] = filled
        clean[filled : filled + MARGIN] = 0
        return begin
    return -1


@_compiled("void(int32[::1], Array(uint8, 1, 'C', readonly=True), Array(uint8, 1, 'C', readonly=True))")
def fill_table(table: npt.NDArray[np.int32], numbers: npt.NDArray[np.uint8], symbols: npt.NDArray[np.uint8]) -> None:
    """Make a decoding table, of `TABLE` zeros, from the numbers of the codes of each length and the symbols."""
    rank = end = filled = 0
    for length in range(1, 17):
        table[_COUNTS + length] = rank
        for _ in range(numbers[length - 1]):
            table[_SYMBOLS + rank] = symbols[rank]
            end += 1 << 16 - length
            while length <= _LOOK and filled < end >> 16 - _LOOK:
                table[filled] = length << 8 | symbols[rank]
                filled += 1
            rank += 1
        table[_LIMITS + length] = end


@_compiled()
def _search(tables: npt.NDArray[np.int32], table: int, bits: int) -> int:
    """Return length << 8 | symbol of a code of more than `_LOOK` bits, which begins 16 `bits`; 0 if there is none."""
    for length in range(_LOOK + 1, 17):
        if bits < tables[table, _LIMITS + length]:
            rank = bits - tables[table, _LIMITS + length - 1] >> 16 - length
            return length << 8 | int(tables[table, _SYMBOLS + tables[table, _COUNTS + length] + rank])
    return 0


@_compiled()
def _code(tables: npt.NDArray[np.int32], table: int, ahead: int) -> int:
    """Return length << 8 | symbol of the code that the 64 bits `ahead` begin with; 0 if they begin with none."""
    entry = np.int64(tables[table, ahead >> 64 - _LOOK & (1 << _LOOK) - 1])
    return entry if entry else _search(tables, table, ahead >> 48 & 0xFFFF)


@_compiled()
def _extend(amplitude: int, size: int) -> int:
    """Return the value that an amplitude of `size` bits stands for (T.81, F.2.2.1)."""
    return amplitude if size == 0 or amplitude >> size - 1 else amplitude - (1 << size) + 1


@_compiled()
def _add_value(
    tokens: npt.NDArray[np.uint32], at: int, counts: npt.NDArray[np.int64], key: int, value: int, most: int
) -> bool:
    """Write the token of a value whose run is in `key`; tell whether the value has at most `most` bits."""
    size, rest = 0, abs(value)
    while rest:
        size += 1
        rest >>= 1
    amplitude = value if value >= 0 else value + (1 << size) - 1
    tokens[at] = (key + size) << AMPLITUDE | (amplitude & (1 << AMPLITUDE) - 1)
    counts[key + (size & 15)] += 1
    return size <= most


@_compiled(
    "int64(int64[::1], int64[::1], int32[:, ::1], int64[:, ::1], int64, int64, int64,"
    " uint32[::1], int64[::1], int64[::1])"
)
def read_tokens(
    pairs: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    tables: npt.NDArray[np.int32],
    blocks: npt.NDArray[np.int64],
    mcus: int,
    interval: int,
    tile: int,
    tokens: npt.NDArray[np.uint32],
    counts: npt.NDArray[np.int64],
    tile_ends: npt.NDArray[np.int64],
) -> int:
    """Read an interleaved sequential scan; only the DC differences after old and new restarts are changed.

    Parameters
    ----------
    pairs
        The data: element i has the 64 bits from bit 32 * i on.
    ends
        Where each restart interval ends, in bytes.
    tables
        Decoding tables.
    blocks
        A row for each block of an MCU: its component (0 to 2), the rows of its DC and AC table in `tables`, the table
        (0 or 1) of its tokens.
    mcus, interval, tile
        How many MCUs there are, in a restart interval (0: in one), in a tile.
    tokens
        Receives the tokens; as long as there are bits in the data, and 64 more.
    counts
        Receives how often each key occurs; `KEYS` zeros.
    tile_ends
        Receives how many tokens there are up to the end of each tile.
    """
    value = np.zeros(3, np.int64)
    sent = np.zeros(3, np.int64)
    position = made = restart = 0
    end = ends[0] * 8
    for mcu in range(mcus):
        if interval and mcu and mcu % interval == 0:
            if not end - 8 < position <= end:
                return SHORT if position > end else LONG
            position = end
            restart += 1
            end = ends[restart] * 8
            value[:] = 0
        if mcu % tile == 0:
            if mcu:
                tile_ends[mcu // tile - 1] = made
            sent[:] = 0
        for block in range(blocks.shape[0]):
            if position > end:
                return SHORT
            component, dc, ac = blocks[block, 0], blocks[block, 1], blocks[block, 2]
            key = blocks[block, 3] << 9
            ahead = pairs[position >> 5] << (position & 31)
            entry = _code(tables, dc, ahead)
            used = (entry >> 8) + (entry & 255)
            size = entry & 255
            if entry == 0 or size > 11:
                return BAD_CODE
            value[component] += _extend(ahead >> 64 - used & (1 << size) - 1, size)
            position += used
            if not _add_value(tokens, made, counts, key, value[component] - sent[component], 11):
                return BAD_VALUE
            sent[component] = value[component]
            made += 1
            key += 256
            k = 1
            while k < 64:
                ahead = pairs[position >> 5] << (position & 31)
                entry = _code(tables, ac, ahead)
                size = entry & 15
                used = (entry >> 8) + size
                symbol = entry & 255
                if entry == 0 or size > 10:
                    return BAD_CODE
                tokens[made] = (key + symbol) << AMPLITUDE | (ahead >> 64 - used & (1 << size) - 1)
                counts[key + symbol] += 1
                made += 1
                position += used
                if size == 0 and symbol != 0xF0:
                    if symbol:
                        return BAD_CODE
                    break
                k += (symbol >> 4) + 1
            if k > 64:
                return BAD_VALUE
    tile_ends[tile_ends.size - 1] = made
    return OK if end - 8 < position <= end else SHORT if position > end else LONG


@_compiled()
def _read_ac(
    pairs: npt.NDArray[np.int64],
    position: int,
    tables: npt.NDArray[np.int32],
    table: int,
    k: int,
    last: int,
    low: int,
    block: npt.NDArray[np.int16],
    run: npt.NDArray[np.int64],
) -> int:
    """Read the coefficients k to `last` of a block (T.81, G.1.2.2); return the new position, or a problem, negative.

    `run` receives how many blocks more end where this one does.
    """
    while k <= last:
        ahead = pairs[position >> 5] << (position & 31)
        entry = _code(tables, table, ahead)
        length, zeros, size = entry >> 8, entry >> 4 & 15, entry & 15
        if entry == 0 or size > 10:
            return -BAD_CODE
        if size == 0 and zeros < 15:
            run[0] = (1 << zeros) - 1 + (ahead >> 64 - length - zeros & (1 << zeros) - 1)
            return position + length + zeros
        position += length + size
        k += zeros
        if size:
            value = _extend(ahead >> 64 - length - size & (1 << size) - 1, size) * (1 << low)
            if k > last or abs(value) > 1023:
                return -BAD_VALUE
            block[k] = value
        k += 1
    return position if k == last + 1 else -BAD_VALUE


@_compiled()
def _refine_ac(
    pairs: npt.NDArray[np.int64],
    position: int,
    tables: npt.NDArray[np.int32],
    table: int,
    k: int,
    last: int,
    low: int,
    block: npt.NDArray[np.int16],
    run: npt.NDArray[np.int64],
) -> int:
    """Read one bit more of the coefficients k to `last` of a block (T.81, G.1.2.3); return as `_read_ac` does.

    `run` is how many blocks, this one and those after it, get no new coefficients.
    """
    while k <= last:
        zeros, value = 64, 0
        if run[0] == 0:
            ahead = pairs[position >> 5] << (position & 31)
            entry = _code(tables, table, ahead)
            length, zeros, size = entry >> 8, entry >> 4 & 15, entry & 15
            if entry == 0 or size > 1:
                return -BAD_CODE
            if size:
                value = 1 << low if ahead << length < 0 else -(1 << low)
            elif zeros < 15:
                run[0] = (1 << zeros) + (ahead >> 64 - length - zeros & (1 << zeros) - 1)
                size, zeros = zeros, 64
            position += length + size
        while k <= last and (block[k] or zeros):
            if block[k]:
                if pairs[position >> 5] << (position & 31) < 0:
                    block[k] += 1 << low if block[k] > 0 else -(1 << low)
                position += 1
            else:
                zeros -= 1
            k += 1
        if run[0] == 0:
            if k > last:
                return -BAD_VALUE
            block[k] = value
            k += 1
    if run[0]:
        run[0] -= 1
    return position


@_compiled(
    "int64(int64[::1], int64[::1], int32[:, ::1], int64[:, ::1], int64, int64, int64,"
    " int64, int64, int64, int64, boolean, int16[:, ::1])"
)
def read_blocks(
    pairs: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    tables: npt.NDArray[np.int32],
    blocks: npt.NDArray[np.int64],
    mcus_across: int,
    mcus_down: int,
    interval: int,
    first: int,
    last: int,
    high: int,
    low: int,
    progressive: bool,
    coefficients: npt.NDArray[np.int16],
) -> int:
    """Read a scan of any kind into coefficients.

    Parameters
    ----------
    pairs, ends, tables, interval
        As of `read_tokens`.
    blocks
        A row for each block of an MCU: its component (0 to 2), the rows of its DC and AC table in `tables`; the row of
        `coefficients` that the first such block has, the distance to the next MCU's on the right, and to the one below.
    mcus_across, mcus_down
        MCUs of this scan.
    first, last, high, low
        Ss, Se, Ah and Al of the scan; of a sequential one 0, 63, 0, 0.
    progressive
        Whether the frame is.
    coefficients
        (blocks, 64), in zigzag order; zeros before the first scan.
    """
    value = np.zeros(3, np.int64)
    run = np.zeros(1, np.int64)
    position = restart = mcu = 0
    end = ends[0] * 8
    for down in range(mcus_down):
        for across in range(mcus_across):
            if interval and mcu and mcu % interval == 0:
                if not end - 8 < position <= end:
                    return SHORT if position > end else LONG
                position = end
                restart += 1
                end = ends[restart] * 8
                value[:] = 0
                run[0] = 0
            mcu += 1
            for block in range(blocks.shape[0]):
                if position > end:
                    return SHORT
                dc, ac = blocks[block, 1], blocks[block, 2]
                row = blocks[block, 3] + across * blocks[block, 4] + down * blocks[block, 5]
                k = first
                if k == 0:
                    ahead = pairs[position >> 5] << (position & 31)
                    if high:
                        position += 1
                        if ahead < 0:
                            coefficients[row, 0] |= 1 << low
                        continue
                    entry = _code(tables, dc, ahead)
                    size = entry & 255
                    used = (entry >> 8) + size
                    if entry == 0 or size > 11:
                        return BAD_CODE
                    position += used
                    value[blocks[block, 0]] += _extend(ahead >> 64 - used & (1 << size) - 1, size)
                    difference = value[blocks[block, 0]] * (1 << low)
                    if abs(difference) > 2047:
                        return BAD_VALUE
                    coefficients[row, 0] = difference
                    k = 1
                if high:
                    position = _refine_ac(pairs, position, tables, ac, k, last, low, coefficients[row], run)
                elif run[0]:
                    run[0] -= 1
                else:
                    position = _read_ac(pairs, position, tables, ac, k, last, low, coefficients[row], run)
                    if run[0] and not progressive:
                        return BAD_CODE
                if position < 0:
                    return -position
    return OK if end - 8 < position <= end else SHORT if position > end else LONG


@_compiled("int64(int16[:, ::1], int64[:, ::1], int64, int64, int64, uint32[::1], int64[::1], int64[::1])")
def tokens_of_blocks(
    coefficients: npt.NDArray[np.int16],
    blocks: npt.NDArray[np.int64],
    mcus_across: int,
    mcus_down: int,
    tile: int,
    tokens: npt.NDArray[np.uint32],
    counts: npt.NDArray[np.int64],
    tile_ends: npt.NDArray[np.int64],
) -> int:
    """Make the tokens of an interleaved scan.

    Parameters
    ----------
    coefficients
        As of `read_blocks`.
    blocks
        A row for each block of an MCU: its component (0 to 2), the table (0 or 1) of its tokens, 0; the three
        numbers of its rows in `coefficients`, as of `read_blocks`; its column and row in the first MCU, the distance to
        the next MCU's column and row, and how many columns and rows the image has; blocks beyond them are padding.
    mcus_across, mcus_down, tile, counts, tile_ends
        As of `read_tokens`.
    tokens
        As long as there are coefficients other than 0, and 5 a block more.
    """
    sent = np.zeros(3, np.int64)
    made = mcu = 0
    for down in range(mcus_down):
        for across in range(mcus_across):
            if mcu % tile == 0:
                if mcu:
                    tile_ends[mcu // tile - 1] = made
                sent[:] = 0
            mcu += 1
            for block in range(blocks.shape[0]):
                component, key = blocks[block, 0], blocks[block, 1] << 9
                row = blocks[block, 3] + across * blocks[block, 4] + down * blocks[block, 5]
                column = blocks[block, 6] + across * blocks[block, 8]
                line = blocks[block, 7] + down * blocks[block, 9]
                padding = column >= blocks[block, 10] or line >= blocks[block, 11]
                dc = sent[component] if padding else np.int64(coefficients[row, 0])
                if not _add_value(tokens, made, counts, key, dc - sent[component], 11):
                    return BAD_VALUE
                sent[component] = dc
                made += 1
                key += 256
                run = 0
                for k in range(1, 1 if padding else 64):
                    coefficient = np.int64(coefficients[row, k])
                    if coefficient == 0:
                        run += 1
                        continue
                    while run > 15:
                        tokens[made] = (key + 0xF0) << AMPLITUDE
                        counts[key + 0xF0] += 1
                        made += 1
                        run -= 16
                    if not _add_value(tokens, made, counts, key + (run << 4), coefficient, 10):
                        return BAD_VALUE
                    made += 1
                    run = 0
                if run or padding:
                    tokens[made] = key << AMPLITUDE
                    counts[key] += 1
                    made += 1
    tile_ends[tile_ends.size - 1] = made
    return OK


@_compiled("int64(int64[::1], uint8[::1], uint8[::1])")
def code_lengths(counts: npt.NDArray[np.int64], numbers: npt.NDArray[np.uint8], symbols: npt.NDArray[np.uint8]) -> int:
    """Find the Huffman code of least total length in which no code is longer than 16 bits or all ones (T.81, K.2).

    Parameters
    ----------
    counts
        How often each of 256 symbols occurs.
    numbers
        Receives the number of codes of each length, 1 to 16.
    symbols
        Receives the symbols in the order of their codes.

    Returns
    -------
    int
        How many symbols there are.
    """
    # One symbol more, which gets the longest code and is left out at the end: so no code is all ones.
    frequency = np.zeros(257, np.int64)
    symbol_of = np.zeros(257, np.int64)
    used = 0
    for symbol in range(256):
        if counts[symbol]:
            frequency[used] = counts[symbol]
            symbol_of[used] = symbol
            used += 1
    real = used
    frequency[used] = 1
    used += 1
    length = np.zeros(257, np.int64)
    other = np.full(257, -1)
    while True:
        least = second = -1
        for i in range(used):
            if frequency[i] and (least < 0 or frequency[i] <= frequency[least]):
                second = least
                least = i
            elif frequency[i] and (second < 0 or frequency[i] <= frequency[second]):
                second = i
        if second < 0:
            break
        frequency[least] += frequency[second]
        frequency[second] = 0
        tail = least
        while True:
            length[tail] += 1
            if other[tail] < 0:
                break
            tail = other[tail]
        other[tail] = second
        tail = second
        while tail >= 0:
            length[tail] += 1
            tail = other[tail]
    number = np.zeros(259, np.int64)
    for i in range(used):
        number[length[i]] += 1
    for i in range(258, 16, -1):
        while number[i] > 0:
            j = i - 2
            while number[j] == 0:
                j -= 1
            number[i] -= 2
            number[i - 1] += 1
            number[j + 1] += 2
            number[j] -= 1
    longest = 16
    while longest and number[longest] == 0:
        longest -= 1
    number[longest] -= 1
    for i in range(16):
        numbers[i] = number[i + 1]
    at = 0
    for i in range(1, 258):
        for j in range(real):
            if length[j] == i:
                symbols[at] = symbol_of[j]
                at += 1
    return real


@_compiled()
def _put(scan: npt.NDArray[np.uint8], at: int, byte: int) -> int:
    """Write a byte, and a stuffed zero where it needs one; return where the next one goes."""
    scan[at] = byte
    if byte != 0xFF:
        return at + 1
    scan[at + 1] = 0
    return at + 2


@_compiled("int64(uint32[::1], int64[::1], int64[::1], int64[::1], uint8[::1], int64[::1])")
def write_tokens(
    tokens: npt.NDArray[np.uint32],
    tile_ends: npt.NDArray[np.int64],
    codes: npt.NDArray[np.int64],
    widths: npt.NDArray[np.int64],
    scan: npt.NDArray[np.uint8],
    lengths: npt.NDArray[np.int64],
) -> int:
    """Write a scan with a restart marker between each two tiles.

    Parameters
    ----------
    tokens, tile_ends
        As of `read_tokens`.
    codes, widths
        By key: the code with zeros after it for the amplitude, and the bits of both.
    scan
        Receives the bytes; must have room for all of them, twice, and 4 a tile more.
    lengths
        Receives the length of each tile without its marker.

    Returns
    -------
    int
        The length of the scan.
    """
    at = token = 0
    for tile in range(tile_ends.size):
        if tile:
            scan[at] = 0xFF
            scan[at + 1] = 0xD0 + (tile - 1) % 8
            at += 2
        begin = at
        bits = np.int64(0)
        held = 0
        while token < tile_ends[tile]:
            key = tokens[token] >> AMPLITUDE
            bits = bits << widths[key] | codes[key] | np.int64(tokens[token] & (1 << AMPLITUDE) - 1)
            held += widths[key]
            token += 1
            if held >= 32:
                held -= 32
                word = bits >> held & 0xFFFFFFFF
                if (0xFEFEFEFE - word) & word & 0x80808080:
                    for shift in range(24, -8, -8):
                        at = _put(scan, at, word >> shift & 0xFF)
                else:
                    scan[at] = word >> 24
                    scan[at + 1] = word >> 16 & 0xFF
                    scan[at + 2] = word >> 8 & 0xFF
                    scan[at + 3] = word & 0xFF
                    at += 4
        while held >= 8:
            held -= 8
            at = _put(scan, at, bits >> held & 0xFF)
        if held:
            at = _put(scan, at, (bits << 8 - held | (1 << 8 - held) - 1) & 0xFF)
        lengths[tile] = at - begin
    return at
