"""Images as MDS and LitData store those of Pillow: width, height and mode, and after them the pixels as they are.

Layout: u32 width, u32 height, u32 bytes of the mode, the mode, the pixels row after row.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from packer._containers.contract import Piece, PixelLayout

__all__ = ["pil_layout", "pil_pixels"]

_HEAD = struct.Struct("<3I")
_LAYOUTS = {b"RGB": PixelLayout("HWC", "RGB"), b"L": PixelLayout("HWC", "L")}
_LONGEST_MODE = 16


def pil_layout(read: Callable[[int, int], bytes], piece: Piece) -> PixelLayout:
    """Return how the pixels of an image lie; ValueError where they are of a mode that packer does not read."""
    return _LAYOUTS[_head(read, piece)[0]]


def pil_pixels(
    read: Callable[[int, int], bytes], piece: Piece, layout: PixelLayout | None
) -> tuple[Piece, tuple[int, int]]:
    """Return where the pixels of an image lie, and their height and width.

    Raises
    ------
    ValueError
        If they do not lie as `layout` says, or are more or fewer than the image has.
    """
    mode, width, height, start = _head(read, piece)
    found = _LAYOUTS[mode]
    if found != layout:
        raise ValueError(f"its pixels are of mode {mode.decode()}, and others are of another. {_REMEDY}")
    if found.size(height, width) != piece.size - start:
        raise ValueError(f"{piece.size - start} bytes are no pixels of {width} x {height}")
    return Piece(piece.file, piece.offset + start, piece.size - start), (height, width)


def _head(read: Callable[[int, int], bytes], piece: Piece) -> tuple[bytes, int, int, int]:
    """Return mode, width, height and where the pixels begin."""
    if piece.size < _HEAD.size:
        raise ValueError(f"{piece.size} bytes are no image of Pillow's")
    width, height, length = _HEAD.unpack(read(piece.offset, _HEAD.size))
    if length > _LONGEST_MODE or _HEAD.size + length > piece.size:
        raise ValueError(f"a mode of {length} bytes is none of Pillow's")
    mode = read(piece.offset + _HEAD.size, length)
    if mode not in _LAYOUTS:
        raise ValueError(f"its pixels are of mode {mode.decode('ascii', 'replace')}. {_REMEDY}")
    return mode, width, height, _HEAD.size + length


_REMEDY = "packer reads them where all are RGB, or all L: write the images as png or jpeg with the library itself"
