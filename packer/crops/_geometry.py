"""Operations on crops, which are N records of `CROP` and are changed in place.

Each function acts on the result of the records so far, so coordinates and sizes are those of that result: if it is
mirrored, a cut at its left side cuts the right side of the image. Corners are (top, left) and sizes (height, width), in
pixels: one pair for all records, or (N, 2) int64 arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer._images.geometry import CROP, INTERPOLATIONS, PADDINGS, Box, Crops
from packer._table import Ints

Pairs = Ints
"""(N, 2) int64: down and across."""


class Padding(NamedTuple):
    """The pixels that appear outside an image.

    Attributes
    ----------
    mode : {"constant", "edge", "reflect", "symmetric"}
    fill : int
        The colour for the mode ``constant``, as red + 256 green + 65536 blue; 0 for other modes.
    """

    mode: str = "constant"
    fill: int = 0

    def __str__(self) -> str:
        colour = self.fill & 255, self.fill >> 8 & 255, self.fill >> 16
        return f"constant padding of {colour}" if self.mode == "constant" else f"{self.mode} padding"


class _Columns(NamedTuple):
    """The parts of records, as views on their memory."""

    corner: Pairs
    crop: Pairs
    scaled: Pairs
    cut: Pairs
    out: Pairs


def whole(sizes: Pairs) -> Crops:
    """Return new crops that contain whole images."""
    crops = np.zeros(len(sizes), CROP)
    columns = _columns(crops)
    for column in (columns.crop, columns.scaled, columns.out):
        column[:] = sizes
    return crops


def cropped(crops: Crops, corner: Pairs, size: Pairs | tuple[int, int]) -> None:
    """Cut rectangles out of the results; a rectangle may extend beyond its result.

    If a crop is not resized and its window lies inside its rectangle, the window becomes the rectangle.
    """
    columns = _columns(crops)
    if crops["flip"].any():
        mirrored_left = columns.out[:, 1] - np.asarray(size)[..., 1] - corner[:, 1]
        corner = np.stack([corner[:, 0], np.where(crops["flip"] == 1, mirrored_left, corner[:, 1])], 1)
    columns.cut[:] += corner
    columns.out[:] = size
    inside = (columns.cut >= 0) & (columns.cut + columns.out <= columns.crop) & (columns.scaled == columns.crop)
    folded = inside.all(1, keepdims=True)
    np.add(columns.corner, columns.cut, out=columns.corner, where=folded)
    np.copyto(columns.crop, columns.out, where=folded)
    np.copyto(columns.scaled, columns.out, where=folded)
    np.copyto(columns.cut, 0, where=folded)


def resized(crops: Crops, sizes: Pairs | tuple[int, int], interpolation: Ints | str) -> None:
    """Resize results that are unresized rectangles; `interpolation` is a name, or indices into `INTERPOLATIONS`."""
    columns = _columns(crops)
    columns.scaled[:] = columns.out[:] = sizes
    crops["interpolation"] = INTERPOLATIONS.index(interpolation) if isinstance(interpolation, str) else interpolation


def mirrored(crops: Crops, where: npt.NDArray[np.bool_]) -> None:
    """Mirror those results left to right for which `where` is true."""
    crops["flip"] ^= where


def padded(crops: Crops, before: Pairs, after: Pairs, padding: Padding) -> None:
    """Pad results. Nothing may have been cut away from them after they were resized or padded.

    They grow by `before` at the top and on the left, and by `after` at the bottom and on the right.
    """
    columns = _columns(crops)
    margins = before + after
    columns.cut[:, 0] -= before[:, 0]
    columns.cut[:, 1] -= np.where(crops["flip"] == 1, after[:, 1], before[:, 1])
    columns.out[:] += margins
    wider = margins.any(1)
    crops["padding"][wider] = PADDINGS.index(padding.mode)
    crops["fill"][wider] = padding.fill


def _columns(crops: Crops) -> _Columns:
    numbers = crops.view(np.int64).reshape(len(crops), len(Box._fields))
    return _Columns(*(numbers[:, place : place + 2] for place in (0, 2, 4, 6, 8)))  # in the order of `CROP`
