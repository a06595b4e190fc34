"""Huffman coding of DCT coefficients (ITU-T T.81, annexes F, G and K.2), compiled by numba: what all of it stands on.

A scan is read into *tokens* by `packer._images.jpeg.tokens`, and written from them by `packer._images.jpeg.scans`. A
token is what stands in the scan for one coefficient, one run of zeros or one end of block: the key of its symbol above
the `AMPLITUDE` bits that follow the symbol. A key is the number of the table (0 or 1), then 0 for DC and 1 for AC, then
the eight bits of the symbol.

Compiled code does not check indices. So everything that comes from a file is compared with the extent of its array
before it is used; a test runs the same code with such checks.

Compiled functions that call each other stand in one module: numba asks only the file of a function whether what it has
compiled before is out of date.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from packer.errors import MissingDependencyError, pip_install

try:
    import numba
except ImportError as error:
    raise MissingDependencyError(f"tiled JPEGs are written with numba: {pip_install('tiles')} ({error})") from error

__all__ = [
    "AMPLITUDE",
    "BAD_CODE",
    "BAD_VALUE",
    "COUNTS",
    "KEYS",
    "LIMITS",
    "LONG",
    "LOOK",
    "MARGIN",
    "OK",
    "PROBLEMS",
    "SHORT",
    "SYMBOLS",
    "TABLE",
    "compiled",
    "fill_table",
    "unstuff",
]

OK, BAD_CODE, BAD_VALUE, SHORT, LONG = range(5)
PROBLEMS = ("", "an invalid code", "a coefficient out of range", "data that end too early", "data left over")
"""What is wrong with a scan, by the number that `read_tokens`, `read_blocks` and `tokens_of_blocks` return."""

AMPLITUDE = 11
KEYS = 4 * 256
MARGIN = 512  # bytes after the data: more than the longest block, since a position is checked once a block

LOOK = 10  # bits; longer codes are searched for
LIMITS = 1 << LOOK
COUNTS = LIMITS + 17
SYMBOLS = COUNTS + 17
TABLE = SYMBOLS + 256
"""Length of a decoding table: a row of the `tables` below.

By the next ten bits, length << 8 | symbol of a code that is not longer, or 0; by length, the end of the codes up to
this length, as 16 bits from the left; by length, how many codes are shorter; the symbols in the order of their codes.
"""

_F = TypeVar("_F", bound=Callable[..., Any])


def compiled(signature: str | None = None) -> Callable[[_F], _F]:
    """Compile ahead of the first call, or load what an earlier process compiled."""

    def compile_(function: _F) -> _F:
        try:
            return cast(_F, numba.njit(signature, cache=True, nogil=True)(function))
        except RuntimeError:  # neither beside this file nor in the home directory can anything be written
            return cast(_F, numba.njit(signature, nogil=True)(function))

    return compile_


@compiled("int64(Array(uint8, 1, 'C', readonly=True), int64, uint8[::1], int64[::1])")
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


@compiled("void(int32[::1], Array(uint8, 1, 'C', readonly=True), Array(uint8, 1, 'C', readonly=True))")
def fill_table(table: npt.NDArray[np.int32], numbers: npt.NDArray[np.uint8], symbols: npt.NDArray[np.uint8]) -> None:
    """Make a decoding table, of `TABLE` zeros, from the numbers of the codes of each length and the symbols."""
    rank = end = filled = 0
    for length in range(1, 17):
        table[COUNTS + length] = rank
        for _ in range(numbers[length - 1]):
            table[SYMBOLS + rank] = symbols[rank]
            end += 1 << 16 - length
            while length <= LOOK and filled < end >> 16 - LOOK:
                table[filled] = length << 8 | symbols[rank]
                filled += 1
            rank += 1
        table[LIMITS + length] = end
