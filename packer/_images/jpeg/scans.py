"""Tokens into scans: the best Huffman codes for them, and the bits; compiled by numba.

See `packer._images.jpeg.huffman` for what a token is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from packer._images.jpeg.huffman import AMPLITUDE, compiled

__all__ = ["code_lengths", "write_tokens"]


@compiled()
def _lengths_of_codes(frequency: npt.NDArray[np.int64], used: int) -> npt.NDArray[np.int64]:
    """Return how long the codes of the first `used` symbols are in Huffman's tree; `frequency` is used up."""
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
    return length


@compiled()
def _numbers_of_lengths(length: npt.NDArray[np.int64], used: int) -> npt.NDArray[np.int64]:
    """Return how many codes there are of each length, after codes of more than 16 bits were made shorter."""
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
    return number


@compiled("int64(int64[::1], uint8[::1], uint8[::1])")
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
    length = _lengths_of_codes(frequency, used)
    number = _numbers_of_lengths(length, used)
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


@compiled()
def _put(scan: npt.NDArray[np.uint8], at: int, byte: int) -> int:
    """Write a byte, and a stuffed zero where it needs one; return where the next one goes."""
    scan[at] = byte
    if byte != 0xFF:
        return at + 1
    scan[at + 1] = 0
    return at + 2


@compiled("int64(uint32[::1], int64[::1], int64[::1], int64[::1], uint8[::1], int64[::1])")
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
