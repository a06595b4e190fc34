"""Operations on crops: N records of `CROP`, changed in place.

Each function acts on the result that the records say so far, so coordinates and sizes are those of the result: where it
is mirrored, a cut from the left is a cut of the image's right. Corners are (top, left) and sizes (height, width), in
pixels: pairs for all records, or (N, 2) int64 arrays.
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
    """The pixels that are shown outside of an image.

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


class _Columns(NamedTuple):
    """Parts of records, as views."""

    corner: Pairs
    crop: Pairs
    scaled: Pairs
    cut: Pairs
    out: Pairs


def whole(sizes: Pairs) -> Crops:
    """Return new crops, of whole images."""
    crops = np.zeros(len(sizes), CROP)
    columns = _columns(crops)
    for column in (columns.crop, columns.scaled, columns.out):
        column[:] = sizes
    return crops


def cropped(crops: Crops, corner: Pairs, size: Pairs | tuple[int, int]) -> None:
    """Cut rectangles out of the results; they may reach outside of them.

    Where nothing is resized, a window inside of the rectangle becomes the rectangle.
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
    """Resize results that are unresized rectangles; `interpolation` is a name, or places in `INTERPOLATIONS`."""
    columns = _columns(crops)
    columns.scaled[:] = columns.out[:] = sizes
    crops["interpolation"] = INTERPOLATIONS.index(interpolation) if isinstance(interpolation, str) else interpolation


def mirrored(crops: Crops, where: npt.NDArray[np.bool_]) -> None:
    """Mirror some of the results, left to right."""
    crops["flip"] ^= where


def padded(crops: Crops, before: Pairs, after: Pairs, padding: Padding) -> None:
    """Widen results of which nothing was cut away after they were resized or padded.

    They become wider by `before` at the top and on the left, by `after` at the bottom and on the right.
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
