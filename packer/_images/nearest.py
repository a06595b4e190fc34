"""Arrays cut, resized to the nearest pixel, mirrored and padded, as records of `CROP` say: for masks.

Every pixel is torchvision's, of ``resized_crop``, ``resize``, ``crop``, ``pad`` and ``horizontal_flip`` of a
``tv_tensors.Mask``. Pillow takes other neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._images.compiled import _native
from packer._images.geometry import PADDINGS, Box, sources
from packer._table import Ints

__all__ = ["Fill", "colour_of", "gather", "nearest", "places", "require_inside", "window_places"]

Fill = float | Sequence[float]
"""A number, or one of each channel."""

Pixels = npt.NDArray[Any]


def nearest(pixels: Pixels, box: Box, fill: Fill = 0, *, out: Pixels | None = None) -> Pixels:
    """Return the window of a box: its rectangle, resized to the nearest pixel.

    Parameters
    ----------
    pixels : (height, width) or (height, width, channels) array
        The whole image, of any dtype. The box's rectangle lies inside of it.
    box : Box
        What is wanted; how it interpolates is passed over, and so is the colour of its padding.
    fill : number or sequence of channels numbers
        What ``constant`` padding shows.
    out : contiguous (out_height, out_width) or (out_height, out_width, channels) array, optional
        Where the window is written; of the dtype of the pixels.

    Returns
    -------
    (out_height, out_width) or (out_height, out_width, channels) array

    Raises
    ------
    ValueError
        If the rectangle reaches outside of the pixels, the dtype cannot hold `fill`, or `out` is another array.
    """
    require_inside(pixels.shape, box)
    rows, columns = places(box)
    return gather(pixels, rows, columns, fill, out=out)


def require_inside(shape: Sequence[int], box: Box) -> None:
    """Raise ValueError where a box's rectangle reaches outside of pixels of a shape, (height, width, ...)."""
    top, left, height, width = box.rectangle
    if min(top, left) < 0 or min(height, width) < 1 or top + height > shape[0] or left + width > shape[1]:
        raise ValueError(f"{box.rectangle} is no rectangle of {shape[1]} x {shape[0]} pixels")


def places(box: Box) -> tuple[Ints, Ints]:
    """Return which row of the image each row of a box's window shows, and which column each column.

    Returns
    -------
    rows : (out_height,) int64 array
    columns : (out_width,) int64 array
        -1 where constant padding is shown.
    """
    rows, columns = window_places(box)
    top, left, height, width = box.rectangle
    return _of_image(rows, top, height, box.scaled_height), _of_image(columns, left, width, box.scaled_width)


def window_places(box: Box) -> tuple[Ints, Ints]:
    """Do the same as `places`, of the resized rectangle in place of the image."""
    rows, columns = sources(box)
    if PADDINGS[box.padding] == "constant":
        rows[_outside(box.cut_top, box.out_height, box.scaled_height)] = -1
        columns[_outside(box.cut_left, box.out_width, box.scaled_width)] = -1
    return rows, columns[::-1] if box.flip else columns


def _outside(first: int, count: int, side: int) -> npt.NDArray[np.bool_]:
    places = np.arange(first, first + count)
    return (places < 0) | (places >= side)


def _of_image(shown: Ints, first: int, side: int, scaled: int) -> Ints:
    """Return where places of a side that was resized lay before: by torch's arithmetic, which rounds to float32."""
    inside = shown >= 0
    if scaled != side:
        before = (shown.astype(np.float32) * (np.float32(side) / np.float32(scaled))).astype(np.int64)
        shown = np.where(inside, np.minimum(before, side - 1), -1)
    return np.where(inside, shown + first, -1)


def gather(pixels: Pixels, rows: Ints, columns: Ints, fill: Fill = 0, *, out: Pixels | None = None) -> Pixels:
    """Return the pixels in some rows and columns, and `fill` where a row or a column is -1.

    Parameters and errors are those of `nearest`.
    """
    shape = (len(rows), len(columns), *pixels.shape[2:])
    if out is None:
        out = np.empty(shape, pixels.dtype)
    elif out.shape != shape or out.dtype != pixels.dtype or not out.flags.c_contiguous:
        raise ValueError(f"a contiguous array of {pixels.dtype} {shape} is needed, not of {out.dtype} {out.shape}")
    colour = colour_of(fill, pixels)
    missing = min(rows.min(initial=0), columns.min(initial=0)) < 0
    if _native is None:
        out[:] = pixels[rows[:, None], columns]
        if missing:
            out[rows < 0] = colour
            out[:, columns < 0] = colour
        return out
    if not pixels[:1].flags.c_contiguous:
        pixels = np.ascontiguousarray(pixels)
    rows, columns = np.ascontiguousarray(rows), np.ascontiguousarray(columns)
    begin, stride, fills, to = pixels.ctypes.data, pixels.strides[0], colour.ctypes.data, out.ctypes.data
    places = rows.ctypes.data, columns.ctypes.data
    _native.gather(begin, stride, colour.nbytes, *places, len(rows), len(columns), fills, to)
    return out


def colour_of(fill: Fill, pixels: Pixels) -> Pixels:
    """Return one pixel of a fill, as the pixels have them."""
    colour = np.zeros(pixels.shape[2:], pixels.dtype)
    if isinstance(fill, int) and fill == 0:
        return colour
    with np.errstate(all="ignore"):
        colour[...] = np.asarray(fill).astype(pixels.dtype)
    if pixels.dtype.kind != "f" and not np.array_equal(colour, np.broadcast_to(fill, colour.shape)):
        raise ValueError(f"a fill of {fill!r} does not fit into {pixels.dtype}")
    return colour
