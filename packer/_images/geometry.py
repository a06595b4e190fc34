"""What is wanted of one image, and how much of the image that touches. Arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer._images.probe import MAX_PIXELS
from packer.errors import ImageTooLargeError

__all__ = ["Box", "Rectangle", "affordable", "allowed_halvings", "from_corner", "require_affordable", "touched"]

Rectangle = tuple[int, int, int, int]
"""top, left, height, width"""

_MAX_HALVINGS = 3
_LARGEST_SIDE = 1 << 20  # of what is resized: that takes memory for each row and column, however few come out
_LARGEST_SCALED = 1 << 30

Ints = npt.NDArray[np.int64]


class Box(NamedTuple):
    """What is wanted of one image; see `packer._loading.crops.Boxes`."""

    rectangle: Rectangle
    scaled: tuple[int, int]
    cut: tuple[int, int] = (0, 0)
    flip: bool = False

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Box:
        """Return the box of a row of a plan: the fields of `packer._loading.crops.Boxes`, in their order."""
        top, left, height, width, scaled_height, scaled_width, cut_top, cut_left, _, _, flip = numbers
        return cls((top, left, height, width), (scaled_height, scaled_width), (cut_top, cut_left), bool(flip))


def affordable(
    height: int | Ints, width: int | Ints, scaled: tuple[int | Ints, int | Ints], out: tuple[int | Ints, int | Ints]
) -> npt.NDArray[np.bool_]:
    """Tell for which of N rectangles, resized to `scaled`, windows of the sizes `out` can be had in little memory.

    Resizing goes across first: what comes between has the height of the rectangle and the width of the window. Neither
    that nor the window may have more than `MAX_PIXELS` pixels, so only what is both extreme and enlarged is refused.
    """
    longest = np.maximum(height, width) <= _LARGEST_SIDE
    longest &= np.maximum(*scaled) <= _LARGEST_SCALED
    between = np.multiply(height, out[1]) <= MAX_PIXELS
    copied = (np.equal(height, scaled[0])) & np.equal(width, scaled[1])
    return (np.multiply(*out) <= MAX_PIXELS) & (copied | (longest & between))


def require_affordable(box: Box, out: tuple[int, int]) -> None:
    """Raise ImageTooLargeError where `affordable` says no of a box and the height and width of its window."""
    (_, _, height, width), scaled = box.rectangle, box.scaled
    if affordable(height, width, scaled, out):
        return
    if out[0] * out[1] > MAX_PIXELS:
        raise ImageTooLargeError(f"{out[1]} x {out[0]} pixels are more than the {MAX_PIXELS} allowed")
    raise ImageTooLargeError(
        f"{width} x {height} pixels cannot be resized to {scaled[1]} x {scaled[0]}: the shape is too extreme"
    )


def allowed_halvings(box: Box) -> int:
    """Return how often a rectangle can be halved and still be as large as what it is resized to."""
    (_, _, height, width), (scaled_height, scaled_width) = box.rectangle, box.scaled
    halvings = 0
    while (
        halvings < _MAX_HALVINGS and height >> halvings + 1 >= scaled_height and width >> halvings + 1 >= scaled_width
    ):
        halvings += 1
    return halvings


def touched(box: Box, height: int, width: int) -> Rectangle:
    """Return what of a box's rectangle its result, `height` x `width` pixels, depends on."""
    if box.scaled == (height, width):
        return box.rectangle
    top, left, full_height, full_width = box.rectangle
    cut_top, cut_left = box.cut
    if box.scaled == (full_height, full_width):
        return top + cut_top, left + cut_left, height, width
    first_row, end_row = _span(cut_top, height, full_height, box.scaled[0])
    first, end = _span(cut_left, width, full_width, box.scaled[1])
    return top + first_row, left + first, end_row - first_row, end - first


def from_corner(box: Box, touched: Rectangle) -> Rectangle:
    """Return what is touched, and what lies between it and the rectangle's upper left corner where that is resized.

    The resizing kernel always begins at the corner; what lies before what is touched may have any colour.
    """
    if box.scaled == box.rectangle[2:]:
        return touched
    (top, left, height, width), (corner_top, corner_left, _, _) = touched, box.rectangle
    return corner_top, corner_left, top + height - corner_top, left + width - corner_left


def _span(first: int, count: int, full: int, scaled: int) -> tuple[int, int]:
    """Return which of `full` pixels those from `first` on, `count` of the `scaled` ones, depend on: first and end."""
    scale = full / scaled
    reach = max(scale, 1)
    return max(0, math.floor(first * scale - reach) - 1), min(full, math.ceil((first + count) * scale + reach) + 1)
