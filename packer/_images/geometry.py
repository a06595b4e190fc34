"""Crop geometry: rectangles of images, the windows cut out of them, and the pixels that a window depends on.

Python and C share the record `CROP`. `scratch` has buffers that a thread reuses, because allocating fresh memory costs
more than copying.
"""

from __future__ import annotations

import functools
import math
import threading
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._codecs import INTERPOLATIONS, MAX_PIXELS
from packer._table import Ints
from packer.errors import ImageTooLargeError

Rectangle = tuple[int, int, int, int]
"""top, left, height, width"""

PADDINGS = ("constant", "edge", "reflect", "symmetric")
"""torchvision's padding modes, for pixels of a window outside of the resized rectangle. `CROP` stores the index."""

_LARGEST_SIDE = 1 << 20  # pixels of a rectangle: resizing takes memory for each row and column
_LARGEST_SCALED = 1 << 30  # pixels of a side of the resized rectangle
_POSITIONS = 1 << 18  # rows or columns that are computed at a time
_SAFE_SIDE = 13_377  # pixels: an image with smaller sides has fewer pixels than MAX_PIXELS
_FARTHEST = (1 << 31) - 1  # rows or columns between the corners of a rectangle and a window

Crops = npt.NDArray[Any]
"""(N,) array of `CROP`"""


class Box(NamedTuple):
    """A crop: the fields of a `CROP` record as Python integers."""

    top: int
    left: int
    crop_height: int
    crop_width: int
    scaled_height: int
    scaled_width: int
    cut_top: int
    cut_left: int
    out_height: int
    out_width: int
    flip: int = 0
    interpolation: int = 0
    padding: int = 0
    fill: int = 0

    @classmethod
    def of(
        cls,
        rectangle: Rectangle,
        scaled: tuple[int, int],
        cut: tuple[int, int] = (0, 0),
        out: tuple[int, int] | None = None,
        flip: bool = False,
    ) -> Box:
        """Return the box of a rectangle; by default the window is the whole resized rectangle."""
        return cls(*rectangle, *scaled, *cut, *(out or scaled), int(flip))

    @property
    def rectangle(self) -> Rectangle:
        return self.top, self.left, self.crop_height, self.crop_width

    @property
    def crop(self) -> tuple[int, int]:
        """The height and the width of the rectangle in the image."""
        return self.crop_height, self.crop_width

    @property
    def scaled(self) -> tuple[int, int]:
        return self.scaled_height, self.scaled_width

    @property
    def cut(self) -> tuple[int, int]:
        return self.cut_top, self.cut_left

    @property
    def out(self) -> tuple[int, int]:
        return self.out_height, self.out_width


CROP = np.dtype([(name, np.int64) for name in Box._fields])
"""The crop of one image: a rectangle of the image is resized, and a window is cut out of the result.

``top``, ``left``, ``crop_height``, ``crop_width``
    The rectangle, in pixels of the image; it lies inside of the image.
``scaled_height``, ``scaled_width``
    The size that the rectangle is resized to.
``cut_top``, ``cut_left``, ``out_height``, ``out_width``
    The upper left corner of the window in the resized rectangle, and the size of the window.
``flip``
    1 if the window is mirrored, left to right; otherwise 0.
``interpolation``
    An index into `INTERPOLATIONS`.
``padding``, ``fill``
    The pixels of the window outside of the resized rectangle: an index into `PADDINGS`, and the colour of ``constant``
    padding, red + 256 green + 65536 blue.
"""


def affordable(crops: Crops) -> npt.NDArray[np.bool_]:
    """Return an (N,) mask of the crops that need only moderate memory.

    Resizing is horizontal first, so the intermediate pixels have the height of the rectangle and the width of the
    window. Neither the intermediate pixels nor the window may exceed `MAX_PIXELS`. Only crops that are enlarged to an
    extreme shape, or padded beyond this limit, are refused.
    """
    numbers = np.ascontiguousarray(crops)[:, None].view(np.int64)[:, : Box._fields.index("flip")]
    if numbers.min(initial=0) > -_SAFE_SIDE and numbers.max(initial=0) < _SAFE_SIDE:
        return np.ones(len(crops), np.bool_)
    height, width, out_width = crops["crop_height"], crops["crop_width"], crops["out_width"]
    scaled_height, scaled_width = crops["scaled_height"], crops["scaled_width"]
    resizable = np.maximum(height, width) <= _LARGEST_SIDE
    resizable &= np.maximum(scaled_height, scaled_width) <= _LARGEST_SCALED
    resizable &= _product(height, np.minimum(out_width, scaled_width)) <= MAX_PIXELS  # padding needs no resizing
    copied = (height == scaled_height) & (width == scaled_width)
    fits: npt.NDArray[np.bool_] = _product(crops["out_height"], out_width) <= MAX_PIXELS
    fits &= copied | resizable
    for cut in (crops["cut_top"], crops["cut_left"]):
        fits &= (cut >= -_FARTHEST) & (cut <= _FARTHEST)
    return fits


def _product(one: Ints, other: Ints) -> npt.NDArray[np.float64]:
    """Multiply as floats, which do not overflow, and are exact far beyond `MAX_PIXELS`."""
    return one.astype(np.float64) * other


@functools.lru_cache(1 << 12)  # sizes recur, and an array of one takes as long as an array of a hundred
def _is_affordable(box: Box) -> bool:
    return bool(affordable(np.array([box], CROP))[0])


def require_affordable(box: Box) -> None:
    """Raise ImageTooLargeError for a box that is not `affordable`."""
    if _is_affordable(box):
        return
    if box.out_height * box.out_width > MAX_PIXELS:
        pixels = f"{box.out_width} x {box.out_height} pixels" + ", padding included," * is_padded(box)
        raise ImageTooLargeError(f"{pixels} exceed the {MAX_PIXELS} allowed")
    if max(abs(box.cut_top), abs(box.cut_left)) > _FARTHEST:
        raise ImageTooLargeError(f"a window cannot begin at row {box.cut_top} and column {box.cut_left}")
    raise ImageTooLargeError(
        f"{box.crop_width} x {box.crop_height} pixels cannot be resized to {box.scaled_width} x {box.scaled_height}: "
        "the shape is too extreme"
    )


def is_padded(box: Box) -> bool:
    """Tell whether the window reaches outside of the resized rectangle."""
    inside = box.cut_top >= 0 and box.cut_top + box.out_height <= box.scaled_height
    return not inside or box.cut_left < 0 or box.cut_left + box.out_width > box.scaled_width


def visible_part(box: Box) -> Box:
    """Return a box whose window is reduced to the part of the resized rectangle that the original window shows.

    The part is never larger than the original window. If the window shows nothing of the rectangle, the part consists
    of the nearest pixels, so that a damaged image is still detected.
    """
    if not is_padded(box):
        return box
    mode = PADDINGS[box.padding]
    top, end = _extent(mode, box.cut_top, box.out_height, box.scaled_height)
    left, right = _extent(mode, box.cut_left, box.out_width, box.scaled_width)
    return box._replace(cut_top=top, cut_left=left, out_height=end - top, out_width=right - left)


def sources(box: Box) -> tuple[Ints, Ints]:
    """Return the row of the resized rectangle that each window row shows, and the column for each window column.

    Where the window shows ``constant`` padding, the result is the nearest row or column.
    """
    mode = PADDINGS[box.padding]
    return (
        _sources(mode, box.cut_top, box.out_height, box.scaled_height),
        _sources(mode, box.cut_left, box.out_width, box.scaled_width),
    )


def _sources(mode: str, first: int, count: int, side: int) -> Ints:
    """Return the pixel index for each of `count` positions from `first` on.

    For positions outside of the `side` pixels, the padding mode determines the index.
    """
    positions = np.arange(first, first + count)
    if mode in ("constant", "edge"):
        return positions.clip(0, side - 1)
    twice = int(mode == "symmetric")  # which repeats the pixels at the edge
    period = max(2 * (side - 1 + twice), 1)
    positions %= period
    return np.minimum(positions, period - twice - positions)


def outside(first: int, count: int, side: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the `count` positions from `first` on: True where a position is below 0, or at least `side`."""
    positions = np.arange(first, first + count)
    return (positions < 0) | (positions >= side)


def colour_of_fill(fill: int) -> list[int]:
    """Return red, green and blue of the fill colour in a box or in an operation."""
    return [int(fill) >> shift & 0xFF for shift in (0, 8, 16)]


def _extent(mode: str, first: int, count: int, side: int) -> tuple[int, int]:
    """Return the range of pixels that are visible at `count` positions from `first` on.

    There are `side` pixels, at the positions 0 to `side` - 1. Other positions show the pixels that the padding mode
    selects.
    """
    starts = range(first, first + count, _POSITIONS)
    positions = (_sources(mode, start, min(_POSITIONS, first + count - start), side) for start in starts)
    extents = [(int(block.min()), int(block.max())) for block in positions]
    return min(begin for begin, _ in extents), max(last for _, last in extents) + 1


def touched(box: Box) -> Rectangle:
    """Return the part of a box's rectangle that its window depends on."""
    box = visible_part(box)
    if box.scaled == box.out:
        return box.rectangle
    if box.scaled == box.crop:
        return box.top + box.cut_top, box.left + box.cut_left, box.out_height, box.out_width
    reach = 2 if INTERPOLATIONS[box.interpolation] == "bicubic" else 1
    first_row, end_row = _span(box.cut_top, box.out_height, box.crop_height, box.scaled_height, reach)
    first, end = _span(box.cut_left, box.out_width, box.crop_width, box.scaled_width, reach)
    return box.top + first_row, box.left + first, end_row - first_row, end - first


def from_corner(box: Box, touched: Rectangle) -> Rectangle:
    """Return the touched part, extended to the upper left corner of the box's rectangle if the rectangle is resized.

    The resizing kernel begins at that corner. Pixels above and left of the touched part do not affect the result, and
    may have any colour.
    """
    if box.scaled == box.crop:
        return touched
    top, left, height, width = touched
    return box.top, box.left, top + height - box.top, left + width - box.left


def _span(first: int, count: int, full: int, scaled: int, reach: int) -> tuple[int, int]:
    """Return the range of source pixels that determine `count` result pixels from `first` on.

    One side has `full` source pixels and `scaled` result pixels. `reach` is the radius of the kernel, in pixels of the
    rectangle or of the result, whichever has fewer pixels.
    """
    scale = full / scaled
    distance = reach * max(scale, 1)
    begin, end = math.floor(first * scale - distance) - 1, math.ceil((first + count) * scale + distance) + 1
    return max(0, begin), min(full, end)


Pixels = npt.NDArray[np.uint8]

_NO_MEMORY: Pixels = np.empty(0, np.uint8)


class _Scratch(threading.local):
    """The scratch buffers of one thread, one buffer for each purpose."""

    def __init__(self) -> None:
        self._buffers: dict[str, Pixels] = {}

    def image(self, purpose: str, height: int, width: int) -> Pixels:
        """Return an image buffer, valid until the next call with the same purpose."""
        size = height * width * 3
        buffer = self._buffers[purpose] = _resized(self._buffers.get(purpose, _NO_MEMORY), size)
        return buffer[:size].reshape(height, width, 3)

    def framed(self, pixels: Pixels, top: int, left: int, height: int, width: int) -> Pixels:
        """Return a (height, width) image that shows `pixels` at (top, left); its other pixels are arbitrary."""
        framed = self.image("framed", height, width)
        inside = framed[max(top, 0) :, max(left, 0) :]
        inside[:] = pixels[max(-top, 0) :, max(-left, 0) :][: inside.shape[0], : inside.shape[1]]
        return framed


def _resized(memory: Pixels, size: int) -> Pixels:
    """Return memory of at least this size: a new array if the old one is too small or far too large."""
    if size <= memory.size <= max(4 * size, 1 << 24):
        return memory
    return np.empty(max(size, 1 << 21), np.uint8)


scratch = _Scratch()


def sides_of(heights: Ints, widths: Ints) -> tuple[Ints, Ints]:
    """Return heights and widths of N images as (N,) int64 arrays, or raise ValueError if their lengths differ."""
    down, across = np.asarray(heights, np.int64), np.asarray(widths, np.int64)
    if down.ndim != 1 or down.shape != across.shape:
        raise ValueError(f"heights and widths must have the same shape (N,), not {down.shape} and {across.shape}")
    return down, across
