"""JPEGs of parts of tiled JPEGs.

Between two restart markers a scan can be decoded without what comes before. So the tiles that a rectangle touches,
joined behind a header that announces a smaller image, are a JPEG of that part of the image, with the same pixels.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer.images.box import Rectangle
from packer.images.tiles import RESTARTS, Tiles, Window
from packer.sample import Buffer

__all__ = ["Part", "cut_out"]

Ints = npt.NDArray[np.int64]

_EOI = 0xD9


class Part(NamedTuple):
    """A JPEG of a part of an image, and which part: its rectangle in the whole."""

    data: Buffer
    rectangle: Rectangle


def cut_out(
    images: Sequence[tuple[Buffer, Tiles]], rectangles: Sequence[Rectangle], halvings: Sequence[int]
) -> list[Part]:
    """Return JPEGs of the tiles that a rectangle of each image depends on.

    Parameters
    ----------
    images : sequence of (bytes-like, Tiles)
    rectangles : sequence of (top, left, height, width)
        In pixels of the whole images; they lie inside of them.
    halvings : sequence of int
        How often the decoder is going to halve each image.

    Returns
    -------
    list of Part
        The whole image where nothing can be left out, or the markers are not where the table says.
    """
    windows = [
        tiles.grid.window(rectangle, halved)
        for (_, tiles), rectangle, halved in zip(images, rectangles, halvings, strict=True)
    ]
    some = [(*image, window) for image, window in zip(images, windows, strict=True) if window is not None]
    joined = iter(_join(some) if some else ())
    made = []
    for (data, tiles), window in zip(images, windows, strict=True):
        piece = next(joined) if window is not None else None
        if window is None or piece is None:
            made.append(Part(data, (0, 0, tiles.grid.height, tiles.grid.width)))
        else:
            made.append(Part(piece, tiles.grid.extent(window)))
    return made


def _join(images: list[tuple[Buffer, Tiles, Window]]) -> list[memoryview | None]:
    """Return the headers and some tiles of each image; None where its scan is damaged, as its decoder will find.

    All images in one go: their arrays are short, and NumPy's calls cost more than the work.
    """
    # Tiles are counted through all images; `before` is the number of an image's first one.
    sizes = np.frombuffer(b"".join([data[tiles.table : tiles.header] for data, tiles, _ in images]), ">u2").astype(
        np.int64
    )
    ends = np.zeros(len(sizes) + 1, np.int64)
    sizes.cumsum(out=ends[1:])
    figures = [(*tiles.grid[4:6], tiles.scan, tiles.segment + tiles.scan - tiles.header) for _, tiles, _ in images]
    rows, columns, scan, header = np.array(figures).T
    first_row, row_end, first, end = np.array([window for _, _, window in images]).T
    tiles_after = (rows * columns).cumsum()
    before = tiles_after - rows * columns
    behind = (scan + ends[tiles_after] - ends[before]).tolist()
    sound = [data[at - 2 : at] == b"\xff\xd9" for (data, _, _), at in zip(images, behind, strict=True)]
    if not all(sound):
        return [_join([image])[0] if fine else None for image, fine in zip(images, sound, strict=True)]

    # The tiles of a row lie in one piece.
    tall, wide = row_end - first_row, end - first
    image = np.arange(len(images)).repeat(tall)
    left = (before + first)[image] + columns[image] * (_counted(tall) + first_row[image])
    shift = (scan - ends[before])[image]
    starts, stops = (ends[left] + shift).tolist(), (ends[left + wide[image]] + shift).tolist()
    pieces: list[Buffer] = []
    row = 0
    for (data, tiles, _), count in zip(images, tall.tolist(), strict=True):
        pieces += data[: tiles.segment], data[tiles.header : tiles.scan]
        pieces += [
            data[start:stop] for start, stop in zip(starts[row : row + count], stops[row : row + count], strict=True)
        ]
        row += count
    joined = bytearray().join(pieces)

    # Each tile has brought the marker behind it, whose number is another one now; behind the last the image ends.
    tile = left.repeat(wide[image]) + _counted(wide[image])
    count = tall * wide
    image = np.arange(len(images)).repeat(count)
    at = sizes[tile].cumsum() + header.cumsum()[image] - 1
    last = count.cumsum() - 1
    written = np.frombuffer(joined, np.uint8)
    wrong = written[at] != RESTARTS[tile - before[image]]
    wrong[last] = False
    written[at] = RESTARTS[_counted(count)]
    written[at[last] - 1], written[at[last]] = 0xFF, _EOI

    made: list[memoryview | None] = []
    start = 0
    for (_, tiles, window), stop in zip(images, (at[last] + 1).tolist(), strict=True):
        _, _, height, width = tiles.grid.extent(window)
        struct.pack_into(">HH", joined, start + tiles.segment + tiles.frame - tiles.header + 1, height, width)
        made.append(memoryview(joined)[start:stop])
        start = stop
    for place in set(image[wrong].tolist()):
        made[place] = None
    return made


def _counted(counts: Ints) -> Ints:
    """Return 0, 1, … up to each count in turn."""
    ends = counts.cumsum()
    return np.arange(ends[-1]) - (ends - counts).repeat(counts)
