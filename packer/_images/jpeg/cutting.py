"""JPEGs of parts of JPEGs: the rows down to some place, and the tiles that a rectangle touches.

Where a header announces fewer rows than there are, the decoder stops after them. Between two restart markers a scan
can be decoded without what comes before. So the tiles that a rectangle touches, joined to a header that announces a
smaller image, are a JPEG of that part of the image, with the same pixels.

This is for decoders that know no rectangles.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from packer._images.compiled import _native
from packer._images.geometry import Rectangle
from packer._images.jpeg import header as jpeg
from packer._images.jpeg.tiles import Tiles, Window, read_tiles, restarts
from packer._table import Buffer

__all__ = ["CutOut", "cut_out", "cut_out_in_python", "first_rows", "first_rows_in_python"]

_END = b"\xff\xd9"
_WORTH_PYTHON = 50_000  # bytes of an image; in a smaller one, cutting takes Python longer than decoding the rest


class CutOut(NamedTuple):
    """A JPEG of a part of an image, and which part: its rectangle in the whole."""

    data: Buffer
    rectangle: Rectangle


def first_rows(data: Buffer, size: tuple[int, int], bottom: int) -> tuple[Buffer, int] | None:
    """Return a JPEG of the rows of a JPEG that those above `bottom` depend on, or more, and how many those are.

    Parameters
    ----------
    data : bytes-like
        Any image.
    size : (height, width)
        Its pixels.
    bottom : int
        1 or more; in pixels of the whole image.

    Returns
    -------
    (bytes-like, int) or None
        The whole image where nothing can be left out. None where it is no ordinary JPEG of that size in one scan, in
        which the decoder goes over the pixels once.
    """
    if _native is None:
        return first_rows_in_python(data, size, bottom)
    return _native.first_rows(bytes(data), *size, bottom)


def first_rows_in_python(data: Buffer, size: tuple[int, int], bottom: int) -> tuple[Buffer, int] | None:
    """Do the same as `first_rows`, more slowly."""
    header = _read_header(data)
    if header is None or (header.height, header.width) != size:
        return None
    step = header.mcu_height
    if step not in (8, 16, 32):
        return data, header.height
    rows = -(-bottom // step) * step
    if step > 8:
        rows += step  # upsampling of the chroma planes looks at the row below
    if rows >= header.height:
        return data, header.height
    part = bytearray(data)
    struct.pack_into(">H", part, header.frame + 1, rows)
    return part, rows


def cut_out(data: Buffer, size: tuple[int, int], rectangle: Rectangle, halvings: int = 0) -> CutOut | None:
    """Return a JPEG of the tiles that a rectangle of a tiled JPEG depends on.

    Parameters
    ----------
    data : bytes-like
        Any image.
    size : (height, width)
        Its pixels.
    rectangle : (top, left, height, width)
        In pixels of the whole image; it lies inside of it.
    halvings : int
        How often the decoder is going to halve the image.

    Returns
    -------
    CutOut or None
        The whole image where nothing can be left out. None where the image is no tiled JPEG of that size, its
        markers are not where its table says, or cutting is not worth its while.
    """
    if _native is None:
        return cut_out_in_python(data, size, rectangle, halvings) if len(data) >= _WORTH_PYTHON else None
    made = _native.cut_out(bytes(data), *size, *rectangle, halvings)
    return None if made is None else CutOut(*made)


def cut_out_in_python(data: Buffer, size: tuple[int, int], rectangle: Rectangle, halvings: int = 0) -> CutOut | None:
    """Do the same as `cut_out`, more slowly."""
    tiles = read_tiles(data) if _read_header(data) is not None else None
    if tiles is None or tiles.grid[:2] != size:
        return None
    top, left, height, width = rectangle
    if not (height >= 1 <= width and 0 <= top <= size[0] - height and 0 <= left <= size[1] - width):
        raise ValueError("the rectangle does not lie inside of the image")
    if not 0 <= halvings <= 3:
        raise ValueError("halvings are 0 to 3")
    window = tiles.grid.window(rectangle, halvings)
    if window is None:
        return CutOut(data, (0, 0, *size))
    joined = _join(data, tiles, window)
    if joined is None:
        return None
    part = tiles.grid.extent(window)
    struct.pack_into(">HH", joined, tiles.segment + tiles.frame - tiles.header + 1, *part[2:])
    return CutOut(joined, part)


def _read_header(data: Buffer) -> jpeg.JPEGHeader | None:
    """Read the header of an ordinary JPEG that is coded in one scan; None of others."""
    header = jpeg.read_header(data) if bytes(data[:3]) == b"\xff\xd8\xff" else None
    if header is None or not header.ordinary or not header.sequential or not jpeg.one_scan(data, header):
        return None
    return header


def _join(data: Buffer, tiles: Tiles, window: Window) -> bytearray | None:
    """Return the headers and some tiles; None where the rows of tiles have other markers than they should."""
    grid, group = tiles.grid, tiles.group
    first_group, group_end = window.first_row // group, -(-window.row_end // group)
    first_row, row_end = first_group * group, min(group_end * group, grid.rows)
    begin = int(tiles.group_ends[first_group - 1]) if first_group else tiles.scan
    before, count = first_row * grid.columns, (row_end - first_row) * grid.columns
    expected = restarts(before, count)
    if row_end == grid.rows:
        expected[-1] = _END[1]
    scan = np.frombuffer(data, np.uint8)[begin : tiles.group_ends[group_end - 1]]
    markers = np.flatnonzero(scan[:-1] == 0xFF)
    markers = markers[scan[markers + 1] != 0]
    if not np.array_equal(scan[markers + 1], expected):
        return None
    ends = (markers + 2).reshape(-1, grid.columns)
    last_rows = [*range(group - 1, len(ends) - 1, group), -1]
    if not np.array_equal(begin + ends[last_rows, -1], tiles.group_ends[first_group:group_end]):
        return None
    if before and data[begin - 2 : begin] != bytes([0xFF, *restarts(before - 1, 1)]):
        return None

    # The tiles of a row lie in one piece.
    rows = slice(window.first_row - first_row, window.row_end - first_row)
    starts = np.concatenate([[0], ends.ravel()[:-1]]).reshape(ends.shape)[rows, window.first]
    ends = ends[rows, window.first : window.end]
    joined = bytearray(data[: tiles.segment]) + data[tiles.header : tiles.scan]
    head = len(joined)
    for start, end in zip(starts.tolist(), ends[:, -1].tolist(), strict=True):
        joined += data[begin + start : begin + end]

    # Each tile has brought the marker after it, whose number is another one now; after the last the image ends.
    lengths = ends[:, -1] - starts
    at = head + ends + (lengths.cumsum() - lengths - starts)[:, None] - 1
    np.frombuffer(joined, np.uint8)[at.ravel()] = restarts(0, at.size)
    joined[-2:] = _END
    return joined
