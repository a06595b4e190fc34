"""Write JPEGs with any sampling factors and any scans from coefficients (ITU-T T.81, annexes B, F and G).

Common encoders write only a few of the samplings and scans that the standard allows. No code here is packer's.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

Coefficients = npt.NDArray[np.int64]
Factors = tuple[tuple[int, int], ...]

ZIGZAG = sorted(range(64), key=lambda at: (at // 8 + at % 8, (at // 8 if (at // 8 + at % 8) % 2 else at % 8)))
"""The positions of the coefficients in a block of 8 x 8, in zigzag order."""


class Scan(NamedTuple):
    """A scan: its components, first and last coefficient, and successive approximation (Ah and Al in T.81)."""

    components: tuple[int, ...]
    first: int = 0
    last: int = 63
    high: int = 0
    low: int = 0


def draw_coefficients(rng: np.random.Generator, size: tuple[int, int], factors: Factors) -> list[Coefficients]:
    """Draw the blocks of each component of an image of that height and width.

    Returns
    -------
    list of (rows, columns, 64) int64 array
        The blocks of whole MCUs, with coefficients in zigzag order. Most coefficients are 0.
    """
    (height, width), (across, down) = size, _most(factors)
    planes = []
    for wide, tall in factors:
        shape = -(-height // (8 * down)) * tall, -(-width // (8 * across)) * wide, 64
        spread = 60 * np.exp(-np.arange(64) / rng.choice([1.5, 4.0, 12.0]))
        blocks = np.rint(rng.laplace(0, spread + 0.05, shape)).astype(np.int64).clip(-1023, 1023)
        blocks[rng.random(shape[:2]) < 0.3, 1:] = 0
        blocks[..., 0] = rng.integers(-40, 41, shape[:2])
        planes.append(blocks)
    return planes


@st.composite
def scripts(draw: st.DrawFn, components: int) -> list[Scan]:
    """Draw progressive scans that transmit all bits of all coefficients, in an order that the standard allows."""
    everything = tuple(range(components))
    lowest = draw(st.integers(0, 3))
    together = [everything] if draw(st.booleans()) else [(index,) for index in everything]
    script = [Scan(some, 0, 0, 0, lowest) for some in together]
    waiting = [[Scan(everything, 0, 0, low + 1, low) for low in reversed(range(lowest))]]
    for index in everything:
        ends = sorted(draw(st.sets(st.integers(1, 62), max_size=2)) | {63})
        for first, last in zip([1, *(end + 1 for end in ends)], ends, strict=False):
            lowest = draw(st.integers(0, 3))
            band = [Scan((index,), first, last, 0, lowest)]
            waiting.append(band + [Scan((index,), first, last, low + 1, low) for low in reversed(range(lowest))])
    while waiting := [band for band in waiting if band]:
        script.append(draw(st.sampled_from(waiting)).pop(0))
    return script


def write(
    size: tuple[int, int],
    factors: Factors,
    planes: list[Coefficients],
    scans: list[Scan],
    restarts: int = 0,
    *,
    adobe: int | None = None,
    quantum: int = 3,
) -> bytes:
    """Write a JPEG.

    Parameters
    ----------
    size : (height, width)
    factors : tuple of (across, down)
        The sampling factors of each component.
    planes : list of arrays
        The blocks of each component, as `draw_coefficients` returns them.
    scans : list of Scan
        Scans of all coefficients make a sequential image, other scans a progressive one.
    restarts : int
        The number of MCUs between two restart markers; 0 for none.
    adobe : int, optional
        The colour transform in an Adobe segment; None for no such segment.
    quantum : int
        The quantisation step of all coefficients.
    """
    pieces = [b"\xff\xd8"]
    if adobe is not None:
        pieces.append(_segment(0xEE, b"Adobe\0d\0\0\0\0" + bytes([adobe])))
    pieces.append(_segment(0xDB, b"\0" + bytes([quantum]) * 64))
    frame = b"".join(bytes([1 + index, across << 4 | down, 0]) for index, (across, down) in enumerate(factors))
    marker = 0xC0 if _is_sequential(scans[0]) else 0xC2
    pieces.append(_segment(marker, struct.pack(">BHHB", 8, *size, len(factors)) + frame))
    for kind, (counts, symbols) in enumerate(_SEQUENTIAL if _is_sequential(scans[0]) else _PROGRESSIVE):
        pieces.append(_segment(0xC4, bytes([kind << 4]) + counts + symbols))
    if restarts:
        pieces.append(_segment(0xDD, struct.pack(">H", restarts)))
    for scan in scans:
        chosen = b"".join(bytes([1 + index, 0]) for index in scan.components)
        spectrum = bytes([scan.first, scan.last, scan.high << 4 | scan.low])
        pieces.append(_segment(0xDA, bytes([len(scan.components)]) + chosen + spectrum))
        pieces.append(_coded(size, factors, planes, scan, restarts))
    return b"".join([*pieces, b"\xff\xd9"])


def _is_sequential(scan: Scan) -> bool:
    return (scan.first, scan.last) == (0, 63)


def _most(factors: Factors) -> tuple[int, int]:
    return max(across for across, _ in factors), max(down for _, down in factors)


def _segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def _table(short: list[int], long: list[int]) -> tuple[bytes, bytes]:
    """Return a Huffman table with codes of 8 and of 16 bits."""
    counts = [0] * 16
    counts[7], counts[15] = len(short), len(long)
    return bytes(counts), bytes([*short, *long])


_ENDS = range(0x10, 0xF0, 0x10)  # end-of-band runs of several blocks, only in progressive scans
_SYMBOLS = [symbol for symbol in range(256) if symbol % 16 <= 10 and symbol not in _ENDS]
_DC_TABLE = _table(list(range(8)), list(range(8, 12)))
_SEQUENTIAL = _DC_TABLE, _table(_SYMBOLS[:120], _SYMBOLS[120:])
_PROGRESSIVE = _DC_TABLE, _table(_SYMBOLS[:120], [*_SYMBOLS[120:], *_ENDS])  # the codes of _SEQUENTIAL, and more


def _codes(counts: bytes, symbols: bytes) -> dict[int, str]:
    codes, code, at = {}, 0, 0
    for length, count in enumerate(counts, 1):
        for symbol in symbols[at : at + count]:
            codes[symbol] = f"{code:0{length}b}"
            code += 1
        at, code = at + count, code << 1
    return codes


_DC, _AC = (_codes(*table) for table in _PROGRESSIVE)


def _value(number: int) -> str:
    """Return the additional bits that follow the code of a number's size."""
    if number == 0:
        return ""
    bits = abs(number).bit_length()
    return f"{number if number > 0 else number + (1 << bits) - 1:0{bits}b}"


def _mcus(size: tuple[int, int], factors: Factors, scan: Scan) -> Iterator[list[tuple[int, int, int]]]:
    """Yield the blocks of each MCU of a scan: component, row and column."""
    (height, width), (across, down) = size, _most(factors)
    if len(scan.components) == 1:
        (index,) = scan.components
        wide, tall = factors[index]
        rows, columns = -(-math.ceil(height * tall / down) // 8), -(-math.ceil(width * wide / across) // 8)
        if len(factors) == 1:
            rows, columns = -(-height // 8), -(-width // 8)
        yield from ([(index, row, column)] for row in range(rows) for column in range(columns))
        return
    for row in range(-(-height // (8 * down))):
        for column in range(-(-width // (8 * across))):
            yield [
                (index, row * factors[index][1] + y, column * factors[index][0] + x)
                for index in scan.components
                for y in range(factors[index][1])
                for x in range(factors[index][0])
            ]


def _coded(size: tuple[int, int], factors: Factors, planes: list[Coefficients], scan: Scan, restarts: int) -> bytes:
    """Return the entropy-coded segments of a scan."""
    segments: list[bytes] = []
    writer = _Segment(scan)
    for number, blocks in enumerate(_mcus(size, factors, scan)):
        if restarts and number and number % restarts == 0:
            segments.append(writer.finished() + bytes([0xFF, 0xD0 + len(segments) % 8]))
            writer = _Segment(scan)
        for index, row, column in blocks:
            writer.write(index, [int(number) for number in planes[index][row, column]])
    return b"".join([*segments, writer.finished()])


class _Segment:
    """The bits of one entropy-coded segment."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._bits: list[str] = []
        self._sent: dict[int, int] = {}
        self._run = 0  # blocks of an end-of-band run that is not yet written
        self._corrections: list[str] = []  # the correction bits of these blocks

    def write(self, index: int, block: list[int]) -> None:
        if self._scan.first == 0 and self._scan.high:
            self._bits.append(str(block[0] >> self._scan.low & 1))
            return
        if self._scan.first == 0:
            level = block[0] >> self._scan.low
            difference = level - self._sent.get(index, 0)
            self._sent[index] = level
            self._bits += [_DC[abs(difference).bit_length()], _value(difference)]
        if self._scan.high:
            self._refine(block)
        elif self._scan.last:
            self._others(block)

    def finished(self) -> bytes:
        self._end_run()
        bits = "".join(self._bits)
        bits += "1" * (-len(bits) % 8)
        return int(bits or "0", 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")

    def _end_run(self) -> None:
        if self._run:
            length = self._run.bit_length() - 1
            self._bits += [_AC[length << 4], f"{self._run:b}"[1:], *self._corrections]
            self._run, self._corrections = 0, []

    def _others(self, block: list[int]) -> None:
        zeros = 0
        for k in range(max(self._scan.first, 1), self._scan.last + 1):
            level = (abs(block[k]) >> self._scan.low) * (1 if block[k] > 0 else -1)
            if not level:
                zeros += 1
                continue
            self._end_run()
            self._bits += [_AC[0xF0]] * (zeros // 16)
            self._bits += [_AC[zeros % 16 << 4 | abs(level).bit_length()], _value(level)]
            zeros = 0
        if zeros:
            self._run += 1
            if _is_sequential(self._scan) or self._run == 0x7FFF:
                self._end_run()

    def _refine(self, block: list[int]) -> None:
        scan = self._scan
        levels = {k: abs(block[k]) >> scan.low for k in range(scan.first, scan.last + 1)}
        last_new = max((k for k, level in levels.items() if level == 1), default=-1)
        zeros, corrections = 0, list[str]()
        for k, level in levels.items():
            if not level:
                zeros += 1
                continue
            while zeros > 15 and k <= last_new:
                self._end_run()
                self._bits += [_AC[0xF0], *corrections]
                zeros, corrections = zeros - 16, []
            if level > 1:
                corrections.append(str(level & 1))
                continue
            self._end_run()
            self._bits += [_AC[zeros << 4 | 1], "1" if block[k] > 0 else "0", *corrections]
            zeros, corrections = 0, []
        if zeros or corrections:
            self._run += 1
            self._corrections += corrections
            if self._run == 0x7FFF:
                self._end_run()
