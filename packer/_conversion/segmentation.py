"""Segmentations on their way into a pack: turned and resized as their image is, polygons as polygons, runs as runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._conversion.change import Change
from packer._fields.rle import counts_of_mask, mask_of, runs_of, text_of
from packer._images.decode import apply_orientation
from packer._images.geometry import Box, is_padded
from packer._images.nearest import nearest
from packer.errors import ImageError

__all__ = ["moved_segmentations", "require_size_of_runs"]

Points = npt.NDArray[np.float64]

_DECIMALS = 3  # of the pixels of polygons that were moved: masks are drawn on a grid of fifths


def require_size_of_runs(segmentations: Sequence[Any], size: tuple[int, int]) -> None:
    """Raise ImageError where run lengths are those of a mask of another size than their image's, (height, width)."""
    for place, one in enumerate(segmentations):
        if isinstance(one, dict) and tuple(one["size"]) != size:
            height, width = one["size"]
            raise ImageError(
                f"the run lengths of segmentation {place} are of {width} x {height} pixels, and its image has "
                f"{size[1]} x {size[0]}: they belong to another image, or to this one at another size"
            )


def moved_segmentations(segmentations: Sequence[Any], change: Change) -> list[Any]:
    """Return where segmentations of the image before a change lie after the change.

    The corners of polygons are moved as those of boxes are. What lies outside of what a crop leaves stays there, and
    masks that are drawn lack it; but what lies outside of the image is cut off where there is a border, which would
    show it. Run lengths are those of the mask, resized to the nearest pixel.
    """
    return [_moved(one, change) for one in segmentations]


def _moved(segmentation: Any, change: Change) -> Any:
    if isinstance(segmentation, dict):
        return _moved_runs(segmentation, change)
    return None if segmentation is None else [_moved_polygon(shape, change) for shape in segmentation]


def _moved_polygon(shape: Sequence[float], change: Change) -> list[float]:
    from packer.crops._points import move_points, turn_points  # imports torch

    corners = np.array(shape, np.float64).reshape(-1, 2)
    if change.orientation != 1:
        corners = turn_points(corners, change.orientation, change.size)
    if change.box is not None:
        corners = move_points(corners, change.box)
        if is_padded(change.box):
            corners = _inside_the_image(corners, change.box)
    moved: list[float] = corners.ravel().round(_DECIMALS).tolist()
    return moved


def _inside_the_image(corners: Points, box: Box) -> Points:
    """Cut a polygon, (P, 2), by the edges of what a window shows of the image."""
    first = -box.cut_left, -box.cut_top
    ends = first[0] + box.scaled_width, first[1] + box.scaled_height
    for axis in (0, 1):
        corners = _on_one_side(corners, axis, first[axis], 1)
        corners = _on_one_side(corners, axis, ends[axis], -1)
    return corners


def _on_one_side(corners: Points, axis: int, edge: int, sign: int) -> Points:
    """Cut a polygon by a straight edge, as Sutherland and Hodgman do; what is beyond it by `sign` stays."""
    inside = sign * (corners[:, axis] - edge) >= 0
    kept: list[Points] = []
    for place in range(len(corners)):
        here, before = corners[place], corners[place - 1]
        if inside[place] != inside[place - 1]:
            kept.append(before + (edge - before[axis]) / (here[axis] - before[axis]) * (here - before))
        if inside[place]:
            kept.append(here)
    return np.array(kept, np.float64).reshape(-1, 2)


def _moved_runs(given: dict[str, Any], change: Change) -> dict[str, Any]:
    """Return run lengths after the change, as text or as numbers as they were given."""
    mask = apply_orientation(mask_of(runs_of(given, *change.size), *change.size), change.orientation)
    if change.box is not None:
        mask = nearest(mask, change.box)
    runs = counts_of_mask(mask)
    counts = text_of(runs) if isinstance(given["counts"], str) else runs.tolist()
    return {**given, "size": list(mask.shape), "counts": counts}
