"""What is wanted of one image, and how much of the image that touches. Arithmetic only."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["Box", "Rectangle", "allowed_halvings", "rows_touched"]

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


def rows_touched(box: Box, height: int) -> int:
    """Return how many rows of a box's rectangle the window of the result depends on, counted from above."""
    full = box.rectangle[2]
    if box.scaled[0] == full:
        return box.cut[0] + height
    scale = full / box.scaled[0]
    return min(full, math.ceil((box.cut[0] + height) * scale + max(scale, 1)) + 1)
