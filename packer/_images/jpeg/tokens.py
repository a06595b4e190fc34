"""Scans into tokens, by way of coefficients where the scan is progressive or not interleaved; compiled by numba.

See `packer._images.jpeg.huffman` for what a token is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from packer._images.jpeg.huffman import (
    AMPLITUDE,
    BAD_CODE,
    BAD_VALUE,
    COUNTS,
    LIMITS,
    LONG,
    LOOK,
    OK,
    SHORT,
    SYMBOLS,
    compiled,
)

__all__ = ["read_blocks", "read_tokens", "tokens_of_blocks"]


@compiled()
def _search(tables: npt.NDArray[np.int32], table: int, bits: int) -> int:
    """Return length << 8 | symbol of a code of more than `LOOK` bits, which begins 16 `bits`; 0 if there is none."""
    for length in range(LOOK + 1, 17):
        if bits < tables[table, LIMITS + length]:
            rank = bits - tables[table, LIMITS + length - 1] >> 16 - length
            return length << 8 | int(tables[table, SYMBOLS + tables[table, COUNTS + length] + rank])
    return 0


@compiled()
def _code(tables: npt.NDArray[np.int32], table: int, ahead: int) -> int:
    """Return length << 8 | symbol of the code that the 64 bits `ahead` begin with; 0 if they begin with none."""
    entry = np.int64(tables[table, ahead >> 64 - LOOK & (1 << LOOK) - 1])
    return entry if entry else _search(tables, table, ahead >> 48 & 0xFFFF)


@compiled()
def _extend(amplitude: int, size: int) -> int:
    """Return the value that an amplitude of `size` bits stands for (T.81, F.2.2.1)."""
    return amplitude if size == 0 or amplitude >> size - 1 else amplitude - (1 << size) + 1


@compiled()
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


@compiled(
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


@compiled()
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


@compiled()
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


@compiled(
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


@compiled("int64(int16[:, ::1], int64[:, ::1], int64, int64, int64, uint32[::1], int64[::1], int64[::1])")
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
