"""The first directory of a TIFF: how many bands an image has, of how many bits (TIFF 6.0, sections 2 and 8).

Pillow tells of such numbers only what it reads itself. It shows three of four bands and reads 8 of 16 bits in colour,
and calls a TIFF of thirteen bands no image.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from packer._table import Buffer

__all__ = ["TIFF", "grey_copy", "read"]

WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC = 256, 257, 258, 259, 262
STRIP_OFFSETS, ORIENTATION, SAMPLES, ROWS_PER_STRIP, STRIP_SIZES = 273, 274, 277, 278, 279
PLANAR, PREDICTOR = 284, 317
TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS, TILE_SIZES = 322, 323, 324, 325
EXTRA_SAMPLES, SAMPLE_FORMAT = 338, 339
"""Numbers of tags."""

_READ = frozenset(
    [
        *(WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC, STRIP_OFFSETS, ORIENTATION, SAMPLES, ROWS_PER_STRIP),
        *(STRIP_SIZES, PLANAR, PREDICTOR, TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS, TILE_SIZES, EXTRA_SAMPLES),
        SAMPLE_FORMAT,
    ]
)
_KINDS = {1: "B", 3: "H", 4: "I", 16: "Q"}
"""The types whose values are whole numbers, as `struct` calls them."""

_JPEG, _COLOURS = 7, (2, 6)  # a compression, and RGB and YCbCr, which have three bands where nothing else is said
_NUMBERS = {1: "u", 2: "i", 3: "f"}  # kinds of numbers by SampleFormat
_SEPARATE = 2  # PlanarConfiguration: each band stands by itself
_BLACK_IS_ZERO = 1
_MOST_ENTRIES = 4096


class TIFF(NamedTuple):
    """The first directory of a TIFF.

    Attributes
    ----------
    order : {"<", ">"}
        The order of bytes.
    long : bool
        Whether it is a BigTIFF.
    tags : mapping of int to tuple of int
        The values of the tags that are named here.
    """

    order: str
    long: bool
    tags: Mapping[int, tuple[int, ...]]

    def value(self, tag: int, default: int) -> int:
        """Return the first value of a tag."""
        return self.tags.get(tag, (default,))[0]

    @property
    def bands(self) -> int:
        """How many numbers a pixel has."""
        jpeg = self.value(COMPRESSION, 1) == _JPEG and self.value(PHOTOMETRIC, 0) in _COLOURS
        return self.value(SAMPLES, 3 if jpeg else 1)

    @property
    def bits(self) -> int:
        """How many bits the largest number of a pixel has."""
        return max(self.tags.get(BITS, (1,)))

    @property
    def kind(self) -> str:
        """The kind of the numbers: ``"u"``, ``"i"`` or ``"f"``."""
        return _NUMBERS.get(max(self.tags.get(SAMPLE_FORMAT, (1,))), "u")

    @property
    def is_uniform(self) -> bool:
        """Whether all bands have numbers of one kind, and of as many bits."""
        return len(set(self.tags.get(BITS, (1,)))) == len(set(self.tags.get(SAMPLE_FORMAT, (1,)))) == 1

    @property
    def is_separate(self) -> bool:
        """Whether each band stands by itself, all its pixels together."""
        return self.value(PLANAR, 1) == _SEPARATE and self.bands > 1

    @property
    def seen_by_pillow(self) -> int:
        """How many bands Pillow counts: of separate ones, it forgets those that are declared to mean nothing."""
        extra = self.tags.get(EXTRA_SAMPLES, ())
        return self.bands - len(extra) if self.value(PLANAR, 1) == _SEPARATE and not any(extra) else self.bands


def read(data: Buffer) -> TIFF | None:
    """Read the first directory of a TIFF; None of other files, or where the directory is damaged."""
    head = bytes(data[:16])
    order = {b"II": "<", b"MM": ">"}.get(head[:2])
    if order is None or head[2:4] not in (b"*\0", b"\0*", b"+\0", b"\0+"):
        return None
    long = b"+" in head[2:4]
    place, number, entry = _structs(order, long)
    try:
        (at,) = place.unpack_from(data, place.size)
        (count,) = number.unpack_from(data, at)
        if count > _MOST_ENTRIES:
            return None
        view = memoryview(data)[at + number.size :][: count * entry.size]
        tags, left = {}, len(data)  # bytes of values: those of two tags do not lie in one place
        for start in range(0, len(view) - entry.size + 1, entry.size):
            tag, kind, length, _ = entry.unpack_from(view, start)
            if kind in _KINDS and length:
                code = f"{order}{length}{_KINDS[kind]}"
                inline = (size := struct.calcsize(code)) <= place.size
                begin = at + number.size + start + entry.size - place.size
                begin = begin if inline else place.unpack_from(data, begin)[0]
                if tag not in _READ or begin + size > len(data):
                    continue
                left -= size
                if left < 0:
                    return None
                tags[tag] = struct.unpack_from(code, data, begin)
    except (struct.error, OverflowError):
        return None
    return TIFF(order, long, tags)


def grey_copy(data: Buffer, tiff: TIFF, band: int | None) -> bytes:
    """Return a TIFF of grey that has the same samples: of one band that stands by itself, or of all.

    Where the numbers of a pixel stand side by side, the grey image is as many times as wide.
    """
    tags, times = tiff.tags, 1 if band is not None else tiff.bands
    tiled = TILE_OFFSETS in tags
    offsets, sizes = (TILE_OFFSETS, TILE_SIZES) if tiled else (STRIP_OFFSETS, STRIP_SIZES)
    if band is not None:
        pieces = len(tags[offsets]) // tiff.bands
        own = slice(band * pieces, (band + 1) * pieces)
    else:
        own = slice(None)
    changed: dict[int, Sequence[int]] = {
        WIDTH: (tags[WIDTH][0] * times,),
        BITS: tags[BITS][:1],
        PHOTOMETRIC: (_BLACK_IS_ZERO,),
        SAMPLES: (1,),
        PLANAR: (1,),
        SAMPLE_FORMAT: tags.get(SAMPLE_FORMAT, (1,))[:1],
        offsets: tags[offsets][own],
    }
    if sizes in tags:
        changed[sizes] = tags[sizes][own]
    if tiled:
        changed[TILE_WIDTH] = (tags[TILE_WIDTH][0] * times,)
    same = {tag: tags[tag] for tag in (HEIGHT, COMPRESSION, ROWS_PER_STRIP, PREDICTOR, TILE_HEIGHT) if tag in tags}
    return _with_directory(data, tiff, same | changed)


def _with_directory(data: Buffer, tiff: TIFF, tags: Mapping[int, Sequence[int]]) -> bytes:
    """Return a TIFF with another first directory, which stands at its end."""
    place, number, entry = _structs(tiff.order, tiff.long)
    file = bytearray(data)
    file += bytes(len(file) % 2)
    at = len(file)
    beyond = at + number.size + len(tags) * entry.size + place.size
    entries, values = b"", b""
    code = "Q" if tiff.long else "I"
    for tag, numbers in sorted(tags.items()):
        short = tag in (BITS, COMPRESSION, PHOTOMETRIC, SAMPLES, PLANAR, PREDICTOR, SAMPLE_FORMAT)
        kind, each = (3, "H") if short else (16 if tiff.long else 4, code)
        packed = struct.pack(f"{tiff.order}{len(numbers)}{each}", *numbers)
        if len(packed) > place.size:
            packed, values = place.pack(beyond + len(values)), values + packed
        head = struct.pack(f"{tiff.order}HH{code}", tag, kind, len(numbers))
        entries += head + packed.ljust(place.size, b"\0")
    file += number.pack(len(tags)) + entries + place.pack(0) + values
    place.pack_into(file, place.size, at)
    return bytes(file)


def _structs(order: str, long: bool) -> tuple[struct.Struct, struct.Struct, struct.Struct]:
    """Return how a position, the number of entries and an entry are laid out."""
    codes = ("Q", "Q", "HHQQ") if long else ("I", "H", "HHII")
    place, number, entry = (struct.Struct(order + code) for code in codes)
    return place, number, entry
