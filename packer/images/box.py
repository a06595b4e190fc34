"""What is wanted of one image, and how much of the image that touches. Arithmetic only."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["Box", "Rectangle", "allowed_halvings", "touched"]

Rectangle = tuple[int, int, int, int]
"""top, left, height, width"""

_MAX_HALVINGS = 3


class Box(NamedTuple):
    """What is wanted of one image; see `packer.crops.Boxes`."""

    rectangle: Rectangle
    scaled: tuple[int, int]
    cut: tuple[int, int] = (0, 0)
    flip: bool = False


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
    """Return what of a box's rectangle its result, `height` x `width` pixels, depends on.

    Where the rectangle is resized, it begins where the rectangle begins: resizing could not be told to begin elsewhere.
    """
    top, left, full_height, full_width = box.rectangle
    cut_top, cut_left = box.cut
    if box.scaled == (full_height, full_width):
        return top + cut_top, left + cut_left, height, width
    tall = _needed(cut_top + height, full_height, box.scaled[0])
    return top, left, tall, _needed(cut_left + width, full_width, box.scaled[1])


def _needed(count: int, full: int, scaled: int) -> int:
    """Return how many of `full` pixels the first `count` of the `scaled` ones depend on."""
    scale = full / scaled
    return min(full, math.ceil(count * scale + max(scale, 1)) + 1)
