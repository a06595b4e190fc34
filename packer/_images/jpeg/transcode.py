"""JPEGs to tiled JPEGs, losslessly: the same coefficients, coded again with restart markers and the best Huffman codes.

An interleaved sequential scan, which most photos are, is carried over symbol by symbol. All others are read into
coefficients first. Importing this module imports numba.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from packer._images.geometry import MAX_PIXELS
from packer._images.jpeg import huffman, scans, tiles, tokens
from packer._images.jpeg.structure import Frame, HuffmanTable, Scan, Walk, segment
from packer._table import Buffer
from packer.errors import NotTileableError

__all__ = ["transcode"]

_MAX_SCANS = 1000
_LEAST_TILE = 460  # bytes, on average: what lets ImageNet's photos grow by half a per cent

_Array = npt.NDArray[np.int64]


def transcode(data: Buffer) -> bytes:
    """Make a tiled JPEG of a JPEG. The pixels, and the metadata, stay what they are.

    Parameters
    ----------
    data : bytes-like
        A JPEG: 8 bits, one or three components, Huffman-coded; sequential or progressive.

    Raises
    ------
    NotTileableError
        If it is another kind of JPEG, or not quite well-formed; the reason says why.
    """
    source = memoryview(data).cast("B")
    if bytes(source[:3]) != b"\xff\xd8\xff":
        raise NotTileableError("not a JPEG")
    walk = Walk(source)
    scan = walk.next_scan(2)
    frame = walk.frame
    if scan is None or frame is None:
        raise NotTileableError("it has no scan")
    if frame.height * frame.width > MAX_PIXELS:
        raise NotTileableError("too many pixels")
    carried = not frame.progressive and scan.components == tuple(range(len(frame.components)))
    coded = (_carry_over if carried else _code_again)(source, walk, frame, scan)
    codes, widths, definitions = _best_codes(coded.counts)
    out = np.empty(int(coded.counts @ widths) // 4 + 8 * len(coded.ends), np.uint8)
    lengths = np.empty(len(coded.ends), np.int64)
    size = scans.write_tokens(coded.tokens, coded.ends, codes, widths, out, lengths)
    header = _header(walk, frame, definitions, coded.tile)
    row_sizes = (lengths + 2).reshape(-1, coded.columns).sum(1)
    return tiles.assemble(walk.metadata, header, coded.columns, row_sizes, out[:size].data, source[walk.end :])


class _Coded:
    """The tokens of the scan to be, which is to be cut into tiles: see `packer._images.jpeg.tokens.read_tokens`.

    `size` is how many bytes there were before, about.
    """

    def __init__(self, frame: Frame, capacity: int, size: int) -> None:
        across, down = frame.mcus
        self.columns = tiles.choose_columns(across, size / down, _LEAST_TILE)
        self.tile = across // self.columns
        self.tokens = np.empty(capacity, np.uint32)
        self.counts = np.zeros(huffman.KEYS, np.int64)
        self.ends = np.empty(self.columns * down, np.int64)


def _carry_over(source: memoryview, walk: Walk, frame: Frame, scan: Scan) -> _Coded:
    """Return the tokens of an image that is one interleaved sequential scan."""
    _require_sequential(scan)
    mcus = frame.mcus[0] * frame.mcus[1]
    order = _mcu(frame)
    pairs, ends, position = _clean(source, scan, mcus, least_bits=2 * len(order))
    size = int(ends[-1])
    coded = _Coded(frame, 8 * size + 64, size)
    blocks = np.array([(index, index, 3 + index, min(index, 1)) for index in order], np.int64)
    problem = tokens.read_tokens(
        pairs,
        ends,
        _decoding_tables(scan),
        blocks,
        mcus,
        scan.interval,
        coded.tile,
        coded.tokens,
        coded.counts,
        coded.ends,
    )
    _require_ok(problem)
    if walk.next_scan(position) is not None:
        raise NotTileableError("a component in two sequential scans")
    return coded


def _code_again(source: memoryview, walk: Walk, frame: Frame, first: Scan) -> _Coded:
    """Return the tokens of an image of any number of scans."""
    across, down = frame.mcus
    planes = _Planes(frame)
    coefficients: npt.NDArray[np.int16] | None = None
    progress = _Refinement(frame)
    size = 0
    scan: Scan | None = first
    while scan is not None:
        progress.add(scan)
        if len(scan.components) == 1:
            (index,) = scan.components
            scan_across, scan_down = frame.blocks(index)
            blocks = planes.of_scan(scan.components, alone=True)
        else:
            scan_across, scan_down = across, down
            blocks = planes.of_scan(scan.components)
        least = len(blocks) if scan.first == 0 else 0  # of AC, one code may stand for many blocks
        pairs, ends, position = _clean(source, scan, scan_across * scan_down, least_bits=least)
        size += int(ends[-1])
        if coefficients is None:
            coefficients = np.zeros((planes.count, 64), np.int16)
        problem = tokens.read_blocks(
            pairs,
            ends,
            _decoding_tables(scan),
            blocks,
            scan_across,
            scan_down,
            scan.interval,
            scan.first,
            scan.last,
            scan.high,
            scan.low,
            frame.progressive,
            coefficients,
        )
        _require_ok(problem)
        scan = walk.next_scan(position)
    progress.require_all()
    assert coefficients is not None
    coded = _Coded(frame, int(np.count_nonzero(coefficients)) + 5 * planes.count, size)
    problem = tokens.tokens_of_blocks(
        coefficients, planes.of_image(), across, down, coded.tile, coded.tokens, coded.counts, coded.ends
    )
    _require_ok(problem)
    return coded


def _mcu(frame: Frame) -> list[int]:
    """Return the component of each block in an MCU of all components."""
    counts = [horizontal * vertical for horizontal, vertical in map(frame.factors, range(len(frame.components)))]
    return [index for index, count in enumerate(counts) for _ in range(count)]


class _Planes:
    """Where the blocks of each component lie among the coefficients: rows of whole MCUs, component by component."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._starts: list[int] = []
        self.count = 0
        for index in range(len(frame.components)):
            horizontal, vertical = frame.factors(index)
            self._starts.append(self.count)
            self.count += frame.mcus[0] * horizontal * frame.mcus[1] * vertical

    def of_scan(self, components: tuple[int, ...], *, alone: bool = False) -> _Array:
        """Return the `blocks` of `packer._images.jpeg.tokens.read_blocks`; `alone`, an MCU is one block."""
        rows = []
        for number, index in enumerate(components):
            horizontal, vertical = self._frame.factors(index)
            stride = self._frame.mcus[0] * horizontal
            across, down = (1, 1) if alone else (horizontal, vertical)
            for line in range(down):
                for column in range(across):
                    start = self._starts[index] + line * stride + column
                    rows.append((index, number, 3 + number, start, across, down * stride))
        return np.array(rows, np.int64)

    def of_image(self) -> _Array:
        """Return the `blocks` of `packer._images.jpeg.tokens.tokens_of_blocks`."""
        rows = []
        for index in range(len(self._frame.components)):
            horizontal, vertical = self._frame.factors(index)
            stride = self._frame.mcus[0] * horizontal
            for line in range(vertical):
                for column in range(horizontal):
                    start = self._starts[index] + line * stride + column
                    place = (start, horizontal, vertical * stride, column, line, horizontal, vertical)
                    rows.append((index, min(index, 1), 0, *place, *self._frame.blocks(index)))
        return np.array(rows, np.int64)


class _Refinement:
    """Which bits of which coefficients the scans have brought (T.81, G.1.1.1): Al, and 99 where nothing came."""

    def __init__(self, frame: Frame) -> None:
        self._progressive = frame.progressive
        self._bits = np.full((len(frame.components), 64), 99)
        self._scans = 0

    def add(self, scan: Scan) -> None:
        """Account for a scan, before it is read."""
        self._scans += 1
        if self._scans > _MAX_SCANS:
            raise NotTileableError(f"more than {_MAX_SCANS} scans")
        bits = self._bits[list(scan.components), scan.first : scan.last + 1]
        if not self._progressive:
            _require_sequential(scan)
            fits = bool((bits == 99).all())
        elif scan.first == 0:
            fits = scan.last == 0
        else:
            fits = len(scan.components) == 1 and scan.first <= scan.last <= 63
            fits = fits and self._bits[scan.components[0], 0] != 99
        fits = fits and scan.low <= 13 and bool((bits == (scan.high or 99)).all())
        if not fits or (scan.high and scan.low != scan.high - 1):
            raise NotTileableError("scans that do not follow from each other")
        self._bits[list(scan.components), scan.first : scan.last + 1] = scan.low

    def require_all(self) -> None:
        """Require that everything has come; decoders would smooth what has not."""
        if self._bits.any():
            raise NotTileableError("scans are missing")


def _require_sequential(scan: Scan) -> None:
    if (scan.first, scan.last, scan.high, scan.low) != (0, 63, 0, 0):
        raise NotTileableError("an invalid scan header")


def _require_ok(problem: int) -> None:
    if problem != huffman.OK:
        raise NotTileableError(f"a damaged scan: {huffman.PROBLEMS[problem]}")


def _clean(source: memoryview, scan: Scan, mcus: int, least_bits: int) -> tuple[_Array, _Array, int]:
    """Return a scan's data as 64 bits from every 32nd on, where its restart intervals end, and where the scan ends.

    `least_bits` is what an MCU takes at least: who asks for an image that the data cannot hold gets no memory for it.
    """
    room = len(source) - scan.data
    if mcus * least_bits > 8 * room:
        raise NotTileableError(f"a damaged scan: {huffman.PROBLEMS[huffman.SHORT]}")
    intervals = -(-mcus // scan.interval) if scan.interval else 1
    if intervals > room:
        raise NotTileableError("a damaged scan: its restart markers are wrong")
    ends = np.empty(intervals, np.int64)
    clean = np.empty((room + huffman.MARGIN + 7) // 4 * 4, np.uint8)
    position = huffman.unstuff(np.frombuffer(source, np.uint8), scan.data, clean, ends)
    if position < 0:
        raise NotTileableError("a damaged scan: no end, or its restart markers are wrong")
    words = clean[: (int(ends[-1]) + huffman.MARGIN) // 4 * 4].view(">u4").astype(np.int64)
    return words[:-1] << 32 | words[1:], ends, position


def _decoding_tables(scan: Scan) -> npt.NDArray[np.int32]:
    """Return the decoding tables of a scan: row i for DC, row 3 + i for AC, of its i-th component."""
    tables = np.zeros((6, huffman.TABLE), np.int32)
    made: dict[tuple[HuffmanTable, bool], int] = {}
    for base, chosen, needed in (
        (0, scan.dc, scan.first == 0 and scan.high == 0),
        (3, scan.ac, scan.last > 0),
    ):
        for index, table in enumerate(chosen):
            if not needed:
                continue
            if table is None:
                raise NotTileableError("a missing Huffman table")
            if base == 0 and max(table[1], default=0) > 15:
                raise NotTileableError("an invalid Huffman table")
            row = base + index
            known = made.setdefault((table, base == 0), row)
            if known != row:
                tables[row] = tables[known]
            else:
                huffman.fill_table(tables[row], *(np.frombuffer(part, np.uint8) for part in table))
    return tables


def _best_codes(counts: _Array) -> tuple[_Array, _Array, bytes]:
    """Return code and width by key, as of `scans.write_tokens`, and the DHT segment that says them."""
    codes, widths = np.zeros(huffman.KEYS, np.int64), np.zeros(huffman.KEYS, np.int64)
    definitions = b""
    numbers, symbols = np.empty(16, np.uint8), np.empty(256, np.uint8)
    for group in range(4):
        count = scans.code_lengths(counts[256 * group : 256 * group + 256], numbers, symbols)
        if not count:
            continue
        values = symbols[:count].astype(np.int64)
        lengths = np.repeat(np.arange(1, 17), numbers)
        ends = np.cumsum(1 << 16 - lengths)
        amplitudes = values & 15
        codes[256 * group + values] = (ends >> 16 - lengths) - 1 << amplitudes
        widths[256 * group + values] = lengths + amplitudes
        table = (group & 1) << 4 | group >> 1
        definitions += bytes([table]) + numbers.tobytes() + symbols[:count].tobytes()
    return codes, widths, segment(0xC4, definitions)


def _header(walk: Walk, frame: Frame, definitions: bytes, tile: int) -> bytes:
    """Return the header of a scan of all components, from the quantisation tables on."""
    used = sorted({component.quantisation for component in frame.components})
    quantisation = b"".join(walk.quantisation[number] for number in used)
    start = bytearray(walk.frame_segment)
    if frame.progressive:
        start[1] = 0xC0 if all(walk.quantisation[number][0] < 16 for number in used) else 0xC1
    selectors = b"".join(
        bytes([component.identifier, 0x11 * min(index, 1)]) for index, component in enumerate(frame.components)
    )
    scan = bytes([len(frame.components)]) + selectors + b"\x00\x3f\x00"
    return b"".join(
        [
            segment(0xDB, quantisation),
            bytes(start),
            definitions,
            segment(0xDD, struct.pack(">H", tile)),
            segment(0xDA, scan),
        ]
    )
