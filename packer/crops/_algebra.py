"""What can be done with crops: N records of `CROP` in, N records out.

Each function acts on the result that the records say so far, so coordinates and sizes are those of the result: where it
is mirrored, a cut from the left is a cut of the image's right. Sides are in pixels, as (N,) int64 arrays or numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer._images.geometry import INTERPOLATIONS, PADDINGS, Crops, crops_of
from packer._table import Ints

__all__ = ["Margins", "Padding", "cropped", "mirrored", "padded", "resized", "whole"]

Sides = Ints | int


class Margins(NamedTuple):
    """How much wider a result becomes at each side."""

    left: Sides
    top: Sides
    right: Sides
    bottom: Sides


class Padding(NamedTuple):
    """What is shown outside of an image.

    Attributes
    ----------
    mode : {"constant", "edge", "reflect", "symmetric"}
    fill : int
        The colour of ``constant``, red + 256 green + 65536 blue; else 0.
    """

    mode: str = "constant"
    fill: int = 0

    def __str__(self) -> str:
        colour = self.fill & 255, self.fill >> 8 & 255, self.fill >> 16
        return f"constant padding of {colour}" if self.mode == "constant" else f"{self.mode} padding"


def whole(heights: Ints, widths: Ints) -> Crops:
    """Return the crops of whole images."""
    return crops_of((0, 0, heights, widths), (heights, widths))


def cropped(crops: Crops, top: Sides, left: Sides, size: tuple[Sides, Sides]) -> Crops:
    """Cut a rectangle of (height, width) `size` out of the results; it may reach outside of them.

    Where nothing is resized, a window inside of the rectangle becomes the rectangle.
    """
    crops = crops.copy()
    height, width = size
    crops["cut_top"] += top
    crops["cut_left"] += np.where(crops["flip"] == 1, crops["out_width"] - width - left, left)
    crops["out_height"], crops["out_width"] = height, width
    folded = _inside(crops, "height", "top") & _inside(crops, "width", "left")
    for corner, cut, side in (("top", "cut_top", "height"), ("left", "cut_left", "width")):
        crops[corner] += np.where(folded, crops[cut], 0)
        crops[cut][folded] = 0
        crops[f"crop_{side}"] = np.where(folded, crops[f"out_{side}"], crops[f"crop_{side}"])
        crops[f"scaled_{side}"] = np.where(folded, crops[f"out_{side}"], crops[f"scaled_{side}"])
    return crops


def resized(crops: Crops, heights: Sides, widths: Sides, interpolation: Sides | str) -> Crops:
    """Resize results that are unresized rectangles; `interpolation` is a name, or places in `INTERPOLATIONS`."""
    crops = crops.copy()
    crops["scaled_height"] = crops["out_height"] = heights
    crops["scaled_width"] = crops["out_width"] = widths
    crops["interpolation"] = INTERPOLATIONS.index(interpolation) if isinstance(interpolation, str) else interpolation
    return crops


def mirrored(crops: Crops, where: npt.NDArray[np.bool_]) -> Crops:
    """Mirror some of the results, left to right."""
    crops = crops.copy()
    crops["flip"] ^= where
    return crops


def padded(crops: Crops, margins: Margins, padding: Padding) -> Crops:
    """Widen results of which nothing was cut away after they were resized or padded."""
    crops = crops.copy()
    left, top, right, bottom = margins
    crops["cut_top"] -= top
    crops["cut_left"] -= np.where(crops["flip"] == 1, right, left)
    crops["out_height"] += top + bottom
    crops["out_width"] += left + right
    wider = (left + right + top + bottom) > 0
    crops["padding"] = np.where(wider, PADDINGS.index(padding.mode), crops["padding"])
    crops["fill"] = np.where(wider, padding.fill, crops["fill"])
    return crops


def _inside(crops: Crops, side: str, cut: str) -> npt.NDArray[np.bool_]:
    """Tell where the window lies inside of an unresized rectangle, down (height, top) or across (width, left)."""
    begin, full = crops[f"cut_{cut}"], crops[f"crop_{side}"]
    inside: npt.NDArray[np.bool_] = (begin >= 0) & (begin + crops[f"out_{side}"] <= full)
    inside &= crops[f"scaled_{side}"] == full
    return inside
