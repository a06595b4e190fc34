"""The whole structure of a Huffman-coded JPEG, strictly: its segments, its frame, its scans (ITU-T T.81, annex B).

Decoders are lenient, each in its own way. Whatever one of them would pass over, guess or repair is refused here, so
that what is left means the same to all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from packer.errors import NotTileableError

__all__ = ["Component", "Frame", "HuffmanTable", "Scan", "Walk", "segment"]

HuffmanTable = tuple[bytes, bytes]
"""The number of codes of each length, 1 to 16, and the symbols in the order of their codes."""

_MAX_SIDE = 65_500  # libjpeg's
_REFUSED = {
    **dict.fromkeys((0xC3, 0xC7, 0xCB, 0xCF), "lossless"),
    **dict.fromkeys((0xC5, 0xC6, 0xCD, 0xCE, 0xDE, 0xDF), "hierarchical"),
    **dict.fromkeys((0xC9, 0xCA, 0xCC), "arithmetic coding"),
    0xDC: "a height that is defined after the scan",
}
_TILES, _MPF = b"TILES\0", b"MPF\0"


@dataclass(frozen=True, slots=True)
class Component:
    """A component of a frame: its identifier, sampling factors and quantisation table."""

    identifier: int
    horizontal: int
    vertical: int
    quantisation: int


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame: the second byte of its marker, its size in pixels, its components."""

    process: int
    height: int
    width: int
    components: tuple[Component, ...]

    @property
    def progressive(self) -> bool:
        """Whether coefficients come in several scans."""
        return self.process == 0xC2

    @property
    def mcu_blocks(self) -> tuple[int, int]:
        """How many blocks an MCU of the scan of all components has across and down."""
        if len(self.components) == 1:
            return 1, 1
        return max(c.horizontal for c in self.components), max(c.vertical for c in self.components)

    @property
    def mcus(self) -> tuple[int, int]:
        """How many MCUs of the scan of all components there are across and down."""
        across, down = self.mcu_blocks
        return -(-self.width // (8 * across)), -(-self.height // (8 * down))

    def factors(self, component: int) -> tuple[int, int]:
        """Return how many blocks of a component are in an MCU of the scan of all components, across and down."""
        chosen = self.components[component]
        return (1, 1) if len(self.components) == 1 else (chosen.horizontal, chosen.vertical)

    def blocks(self, component: int) -> tuple[int, int]:
        """Return how many blocks of a component the image touches, across and down (T.81, A.1.1 and A.2.4)."""
        horizontal, vertical = self.factors(component)
        across, down = self.mcu_blocks
        return -(-self.width * horizontal // (8 * across)), -(-self.height * vertical // (8 * down))


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan's header, and what was in force when it came.

    Attributes
    ----------
    components : tuple of int
        Indices of the frame's components, in the scan's order.
    dc, ac : tuple of HuffmanTable or None
        Table of each component; None where no such table was defined.
    first, last, high, low : int
        Spectral selection (Ss, Se) and successive approximation (Ah, Al).
    interval : int
        MCUs in a restart interval; 0: no restarts.
    data : int
        Where the entropy-coded data begin.
    """

    components: tuple[int, ...]
    dc: tuple[HuffmanTable | None, ...]
    ac: tuple[HuffmanTable | None, ...]
    first: int
    last: int
    high: int
    low: int
    interval: int
    data: int


def segment(marker: int, payload: bytes) -> bytes:
    """Return a marker segment."""
    return struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload


class Walk:
    """Walks through a JPEG from scan to scan; who asks for the next scan says where the last one ended.

    Attributes
    ----------
    frame : Frame or None
        Known from the first scan on.
    frame_segment : bytes
        The frame's header, as it is in the file.
    metadata : bytearray
        All APPn and COM segments but a tile segment.
    quantisation : dict
        DQT entries by the number of their table: its precision and number, and its values.
    end : int
        Where the image ends; known after the last scan.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._tables: dict[int, HuffmanTable] = {}
        self._interval = 0
        self._scans = 0
        self.frame: Frame | None = None
        self.frame_segment = b""
        self.metadata = bytearray()
        self.quantisation: dict[int, bytes] = {}
        self.end = 0

    def next_scan(self, position: int) -> Scan | None:
        """Read the segments from `position` on to the next scan; None at the end of the image."""
        data = self._data
        while True:
            marker, position = self._marker(position)
            if marker == 0xD9:
                self.end = position
                return None
            if position + 2 > len(data):
                raise NotTileableError("it is cut short")
            end = position + int.from_bytes(data[position : position + 2], "big")
            if end < position + 2 or end > len(data):
                raise NotTileableError("a segment's length is wrong")
            payload = bytes(data[position + 2 : end])
            if marker == 0xDA:
                return self._scan(payload, end)
            self._read(marker, payload)
            position = end

    def _marker(self, position: int) -> tuple[int, int]:
        data = self._data
        if position >= len(data) or data[position] != 0xFF:
            raise NotTileableError("bytes between its segments" if position < len(data) else "it is cut short")
        while position < len(data) and data[position] == 0xFF:
            position += 1
        if position >= len(data):
            raise NotTileableError("it is cut short")
        return data[position], position + 1

    def _read(self, marker: int, payload: bytes) -> None:
        if marker in _REFUSED:
            raise NotTileableError(_REFUSED[marker])
        if 0xE0 <= marker <= 0xEF or marker == 0xFE:
            if self._scans:
                raise NotTileableError("metadata after its first scan")
            if marker == 0xE2 and payload.startswith(_MPF):
                raise NotTileableError("several images in one file (MPO)")
            if not (marker == 0xE9 and payload.startswith(_TILES)):
                self.metadata += segment(marker, payload)
        elif marker == 0xDB:
            self._define_quantisation(payload)
        elif marker == 0xC4:
            self._define_huffman(payload)
        elif marker == 0xDD:
            if len(payload) != 2:
                raise NotTileableError("a segment's length is wrong")
            self._interval = int.from_bytes(payload, "big")
        elif 0xC0 <= marker <= 0xC2:
            self._begin_frame(marker, payload)
        else:
            raise NotTileableError("an unexpected marker")

    def _define_quantisation(self, payload: bytes) -> None:
        position = 0
        while position < len(payload):
            size = 1 + (128 if payload[position] >> 4 else 64)
            entry = payload[position : position + size]
            if len(entry) != size or entry[0] >> 4 > 1 or entry[0] & 15 > 3:
                raise NotTileableError("an invalid quantisation table")
            if self._scans and self.quantisation.get(entry[0] & 15) != entry:
                raise NotTileableError("quantisation tables that change between its scans")
            self.quantisation[entry[0] & 15] = entry
            position += size

    def _define_huffman(self, payload: bytes) -> None:
        position = 0
        while position < len(payload):
            number, lengths = payload[position], payload[position + 1 : position + 17]
            symbols = payload[position + 17 : position + 17 + sum(lengths)]
            room = 1 << 16
            for length, count in enumerate(lengths, 1):
                room -= count << 16 - length
            if len(lengths) != 16 or len(symbols) != sum(lengths) or len(symbols) > 256 or room <= 0:
                raise NotTileableError("an invalid Huffman table")
            if number & 0xEC:
                raise NotTileableError("an invalid Huffman table")
            self._tables[number] = lengths, symbols
            position += 17 + len(symbols)

    def _begin_frame(self, marker: int, payload: bytes) -> None:
        if self.frame is not None:
            raise NotTileableError("a second frame")
        if len(payload) < 6 or len(payload) != 6 + 3 * payload[5]:
            raise NotTileableError("a segment's length is wrong")
        precision, height, width, count = struct.unpack_from(">BHHB", payload)
        if precision != 8:
            raise NotTileableError("12-bit" if precision == 12 else "an invalid precision")
        if count not in (1, 3):
            raise NotTileableError("CMYK" if count == 4 else f"{count} components")
        if not 0 < height <= _MAX_SIDE or not 0 < width <= _MAX_SIDE:
            raise NotTileableError("its height is not in its header" if not height else "its size is out of range")
        components = tuple(_components(payload[6:]))
        if len({component.identifier for component in components}) != count:
            raise NotTileableError("two components with one identifier")
        if any(not 1 <= c.horizontal <= 4 or not 1 <= c.vertical <= 4 for c in components):
            raise NotTileableError("sampling factors out of range")
        if count > 1 and sum(c.horizontal * c.vertical for c in components) > 10:
            raise NotTileableError("more than 10 blocks in an MCU")
        self.frame = Frame(marker, height, width, components)
        self.frame_segment = segment(marker, payload)

    def _scan(self, payload: bytes, end: int) -> Scan:
        frame = self.frame
        if frame is None or not payload or not payload[0] or len(payload) != 4 + 2 * payload[0]:
            raise NotTileableError("an invalid scan header")
        identifiers = [component.identifier for component in frame.components]
        chosen = [identifiers.index(i) if i in identifiers else -1 for i in payload[1:-3:2]]
        if -1 in chosen or len(set(chosen)) != len(chosen):
            raise NotTileableError("an invalid scan header")
        if any(frame.components[index].quantisation not in self.quantisation for index in chosen):
            raise NotTileableError("a missing quantisation table")
        self._scans += 1
        selectors = payload[2:-3:2]
        return Scan(
            components=tuple(chosen),
            dc=tuple(self._tables.get(selector >> 4) for selector in selectors),
            ac=tuple(self._tables.get(0x10 | selector & 15) if selector & 15 < 4 else None for selector in selectors),
            first=payload[-3],
            last=payload[-2],
            high=payload[-1] >> 4,
            low=payload[-1] & 15,
            interval=self._interval,
            data=end,
        )


def _components(payload: bytes) -> Iterator[Component]:
    for identifier, factors, table in struct.iter_unpack("BBB", payload):
        yield Component(identifier, factors >> 4, factors & 15, table)
