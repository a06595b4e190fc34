"""What is wanted of one image, and how much of the image that touches. Arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Box", "Rectangle", "allowed_halvings", "from_corner", "touched"]

Rectangle = tuple[int, int, int, int]
"""top, left, height, width"""

_MAX_HALVINGS = 3


class Box(NamedTuple):
    """What is wanted of one image; see `packer.crops.Boxes`."""

    rectangle: Rectangle
    scaled: tuple[int, int]
    cut: tuple[int, int] = (0, 0)
    flip: bool = False

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Box:
        """Return the box of a row of a plan: the fields of `packer.crops.Boxes`, in their order."""
        top, left, height, width, scaled_height, scaled_width, cut_top, cut_left, _, _, flip = numbers
        return cls((top, left, height, width), (scaled_height, scaled_width), (cut_top, cut_left), bool(flip))


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
