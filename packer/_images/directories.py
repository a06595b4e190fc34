"""The directories of EXIF and TIFF: which of them Pillow may read.

A directory lists values, each by the place of its bytes. Pillow copies the bytes of every value, so a directory whose
values share their bytes makes gigabytes of a small file. Pillow warns of each value that it leaves out, and joins the
EXIF segments of a JPEG one by one, which takes time by the square of their number. So images are looked through first.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

from packer._table import Buffer
from packer.errors import ImageError

__all__ = ["UNITS", "pictures_in", "require_modest", "require_modest_exif"]

UNITS = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
"""How many bytes a value takes, by its type."""

_MOST_COPIED = 4  # times the bytes that there are
_MOST_LEFT_OUT = 64  # values of a directory
_MOST_SEGMENTS = 64  # of EXIF in a JPEG: 4 MB
_MOST_STARTS = 64  # of a TIFF in an AVIF: by chance a start stands in one of 10 files of 100 MB

_TIFF = re.compile(rb"II\*\0|MM\0\*|II\0\*|MM\*\0|II\+\0|MM\0\+")  # as Pillow takes them
_EXIF = re.compile(rb"(?:Exif\0\0){0,2}")
_MARKER = re.compile(rb"\xff([^\0\xff])")
_BARE_MARKERS = frozenset({0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)})  # RSTn, SOI, EOI, JPG, JPGn
_NUMBER_OF_PICTURES = 0xB001
_SOS, _APP1, _APP2 = 0xDA, 0xE1, 0xE2


def require_modest(data: Buffer, pages: int = 1) -> None:
    """Raise ImageError where Pillow should not open an image, for what its metadata would cost.

    The directories of the first `pages` pages of a TIFF are looked at.
    The EXIF of a PNG and of a WebP are read later: `require_modest_exif` is for them. In an AVIF they may be scattered,
    and are found where they are in one piece, as programs write them.
    """
    view = memoryview(data)
    head = bytes(view[:16])
    if head.startswith(b"\xff\xd8\xff"):
        for tiff in _in_jpeg(view):
            _require_modest_tiff(memoryview(tiff))
    elif _TIFF.match(head):
        _require_modest_tiff(view, pages)
    elif head[4:8] == b"ftyp":
        for number, start in enumerate(_TIFF.finditer(view)):
            if number == _MOST_STARTS:
                raise ImageError(f"its metadata begin at more than {_MOST_STARTS} places")
            _require_modest_tiff(view[start.start() :])


def require_modest_exif(info: dict[Any, Any]) -> None:
    """Raise ImageError where Pillow should not read the EXIF in the `info` of an image that it opened."""
    exif = info.get("exif")
    if exif is None and "Raw profile type exif" in info:
        exif = bytes.fromhex("".join(info["Raw profile type exif"].split("\n")[3:]))
    if exif is not None:
        _require_modest_tiff(_without_prefix(exif))


def pictures_in(jpeg: Buffer) -> int:
    """Return how many pictures the index of a JPEG lists, as phones and stereo cameras write it; 1 without one.

    The index is the Multi-Picture Format's of CIPA DC-007: a directory of TIFF with the number under 0xB001.
    """
    _, index = _in_jpeg(memoryview(jpeg))
    try:
        order = {b"II": "<", b"MM": ">"}[index[:2]]
        (at,) = struct.unpack_from(f"{order}I", index, 4)
        (count,) = struct.unpack_from(f"{order}H", index, at)
        for entry in range(at + 2, at + 2 + 12 * count, 12):
            tag, _, _, number = struct.unpack_from(f"{order}HHII", index, entry)
            if tag == _NUMBER_OF_PICTURES:
                return max(1, int(number))
    except (KeyError, struct.error):
        pass
    return 1


def _in_jpeg(view: memoryview) -> Iterator[bytes]:
    """Yield the EXIF of a JPEG, joined, and its index of pictures, found as Pillow finds them, between whatever."""
    exif: list[bytes] = []
    pictures = b""
    at = 2
    while found := _MARKER.search(view, at):
        marker, at = found[1][0], found.end()
        if marker == _SOS or marker < 0xC0:
            break
        if marker in _BARE_MARKERS:
            continue
        end = at + max(2, int.from_bytes(view[at : at + 2], "big"))
        content = bytes(view[at + 2 : end]) if marker in (_APP1, _APP2) else b""
        if marker == _APP1 and content.startswith(b"Exif\0\0"):
            exif.append(content[6:])
        elif marker == _APP2 and content.startswith(b"MPF\0"):
            pictures = content[4:]
        at = end
    if len(exif) > _MOST_SEGMENTS:
        raise ImageError(f"its EXIF come in {len(exif)} segments, which are more than {_MOST_SEGMENTS}")
    yield bytes(_without_prefix(b"".join(exif)))
    yield pictures


def _without_prefix(exif: bytes) -> memoryview:
    start = _EXIF.match(exif)
    return memoryview(exif)[start.end() if start else 0 :]


def _require_modest_tiff(tiff: memoryview, pages: int = 1) -> None:
    """Walk the first directories of a TIFF."""
    order = "<" if tiff[:1].tobytes() == b"I" else ">"
    long = tiff[2:3].tobytes() == b"+"
    place = struct.Struct(order + "Q" if long else order + "I")
    number = struct.Struct(order + "Q" if long else order + "H")
    entry = struct.Struct(order + "HHQQ" if long else order + "HHII")
    try:
        (at,) = place.unpack_from(tiff, place.size)
        for _ in range(pages):
            (count,) = number.unpack_from(tiff, at)
            at += number.size
            end = min(at + count * entry.size, len(tiff))
            whole = end - (end - at) % entry.size
            _require_modest_values(entry.iter_unpack(tiff[at:whole]), len(tiff), place.size)
            (at,) = place.unpack_from(tiff, end)
    except (struct.error, OverflowError):  # it ends there
        return


def _require_modest_values(entries: Iterator[tuple[int, ...]], size: int, inline: int) -> None:
    """Add up what the values of a directory take; those of at most `inline` bytes stand in the directory itself."""
    claimed = copied = left_out = 0
    for _, kind, count, begin in entries:
        taken = count * UNITS.get(kind, 0)
        if taken <= inline:
            continue
        claimed += taken
        fits = begin + taken <= size
        copied += taken if fits else 0
        left_out += not fits or claimed > size
    if copied > _MOST_COPIED * size or left_out > _MOST_LEFT_OUT:
        raise ImageError(f"its metadata claim {claimed} bytes of {size}")
