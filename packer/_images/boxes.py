"""Moves boxes, keypoints and polygons in the same way as crops, EXIF rotations and augmentations move the pixels.

Positions are in pixels: x to the right and y down from the upper left corner of the image. Augmentations rotate and
scale around the middle of the image, at half of its width and height. The arithmetic is the same as in torchvision's
transforms.v2.functional. A box ends where its last pixel ends, so it is mirrored by ``width - x``. A keypoint lies on a
pixel, so it is mirrored by ``width - 1 - x``. A corner of a polygon is measured like a corner of a box: 0 is the edge
of the first pixel, not its middle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from packer._images.geometry import PADDINGS, Box, is_padded
from packer._images.operations import AFFINE, Operations
from packer._table import Ints
from packer.errors import OptionError

Coordinates = npt.NDArray[np.float32]
Points = npt.NDArray[np.float64]
_Float = TypeVar("_Float", np.float32, np.float64)


class KeptBoxes(NamedTuple):
    """The boxes that remain in an image after a crop or an operation.

    Attributes
    ----------
    boxes : (M, 4) float32 array
        The remaining boxes in their original order: left, top, right, bottom, within 0 and the width and height of the
        image.
    kept : (K,) bool array
        Whether each of the original boxes was kept.
    """

    boxes: Coordinates
    kept: npt.NDArray[np.bool_]


def crop_boxes(boxes: Coordinates, box: Box, *, min_visible: float = 0.0, min_size: float = 1.0) -> KeptBoxes:
    """Move boxes into the coordinates of a crop's window, and clip them to the visible part of the image.

    The positions equal the results of torchvision's ``resized_crop``, ``pad``, ``horizontal_flip`` and
    ``clamp_bounding_boxes``. By default, the function drops the boxes that ``SanitizeBoundingBoxes()`` would drop.

    Parameters
    ----------
    boxes : (K, 4) float32 array
        left, top, right, bottom.
    box : Box
        The crop.
    min_visible : float
        The minimum share of a box's area, 0 to 1, that must remain; boxes with less are dropped.
    min_size : float
        The minimum width and height, in pixels of the window; smaller boxes are dropped. With 0, only boxes without any
        area are dropped.

    Returns
    -------
    KeptBoxes

    Raises
    ------
    ValueError
        If the window is padded with the image's own pixels, because boxes in the padding are unknown.
    """
    corners = np.asarray(boxes, np.float64).reshape(-1, 2, 2)
    placed = _placed(corners, box)
    inner, outer = _limits(box)
    clipped = placed.clip(inner, outer)
    sides = clipped[:, 1] - clipped[:, 0]
    before, after = np.abs(placed[:, 1] - placed[:, 0]).prod(1), sides.prod(1)
    kept = (sides.min(1, initial=np.inf) >= min_size) & (after > 0) & (after >= min_visible * before)
    result = clipped - (box.cut_left, box.cut_top)
    if box.flip:
        result[..., 0] = box.out_width - result[:, ::-1, 0]
    return KeptBoxes(result[kept].reshape(-1, 4).astype(np.float32), kept)


def crop_keypoints(keypoints: Coordinates, box: Box) -> Coordinates:
    """Move keypoints into the coordinates of a crop's window.

    The positions equal the results of torchvision's ``resized_crop``, ``pad``, ``horizontal_flip`` and
    ``clamp_keypoints``.

    Parameters
    ----------
    keypoints : (K, P, 3) float32 array
        x, y, and visibility, which is 0 if a keypoint is unknown.
    box : Box
        The crop.

    Returns
    -------
    (K, P, 3) float32 array
        x from 0 to ``out_width - 1``, y from 0 to ``out_height - 1``. Keypoints outside the visible part of the image
        get the visibility 0.

    Raises
    ------
    ValueError
        For the same reason as `crop_boxes`.
    """
    keypoints = np.asarray(keypoints, np.float32)
    placed = _placed(keypoints[..., :2].astype(np.float64), box)
    inner, outer = _limits(box)
    seen = ((placed >= inner) & (placed < outer)).all(-1)
    places = placed - (box.cut_left, box.cut_top)
    if box.flip:
        places[..., 0] = box.out_width - 1 - places[..., 0]
    places = places.clip(0, (box.out_width - 1, box.out_height - 1))
    return np.concatenate([places, np.where(seen, keypoints[..., 2], 0)[..., None]], -1, dtype=np.float32)


def crop_points(points: Points, box: Box) -> Points:
    """Move points, such as corners of polygons, into the coordinates of a crop's window.

    As for boxes, the coordinate 0 is the edge of the first pixel, not its middle.

    Parameters
    ----------
    points : (..., 2) float64 array
        x, y.
    box : Box
        The crop.

    Returns
    -------
    (..., 2) float64 array
        x and y relative to the window. Coordinates are not clipped: those of points outside the window are negative, or
        exceed ``out_width`` or ``out_height``.

    Raises
    ------
    ValueError
        For the same reason as `crop_boxes`.
    """
    places = _placed(points, box) - (box.cut_left, box.cut_top)
    if box.flip:
        places[..., 0] = box.out_width - places[..., 0]
    return places


def turn_boxes(boxes: Coordinates, orientation: int, size: tuple[int, int]) -> Coordinates:
    """Return the positions of boxes after the image was rotated upright.

    Parameters
    ----------
    boxes : (K, 4) float32 array
        left, top, right, bottom.
    orientation : int
        1 to 8 (EXIF 2.32, tag 0x0112).
    size : (height, width)
        The size of the image before the rotation.

    Returns
    -------
    (K, 4) float32 array
    """
    corners = _turned(np.asarray(boxes, np.float32).reshape(-1, 2, 2), orientation, size)
    return np.concatenate([corners.min(1), corners.max(1)], 1)


def turn_keypoints(keypoints: Coordinates, orientation: int, size: tuple[int, int]) -> Coordinates:
    """Rotate (K, P, 3) float32 keypoints (x, y, visibility) as `turn_boxes` rotates boxes."""
    keypoints = np.asarray(keypoints, np.float32)
    height, width = size
    places = _turned(keypoints[..., :2], orientation, (height - 1, width - 1))
    return np.concatenate([places, keypoints[..., 2:]], -1)


def turn_points(points: Points, orientation: int, size: tuple[int, int]) -> Points:
    """Rotate (..., 2) float64 points (x, y), measured like corners of boxes, as `turn_boxes` rotates boxes."""
    return _turned(points, orientation, size)


def _placed(points: Points, box: Box) -> Points:
    """Convert (..., 2) points, x and y, from positions in the image to positions in the resized rectangle."""
    if is_padded(box) and PADDINGS[box.padding] != "constant":
        raise OptionError(
            f"boxes and keypoints cannot be moved by a crop with {PADDINGS[box.padding]} padding, which shows pixels "
            "of the image again: use constant padding"
        )
    return (points - (box.left, box.top)) * (box.scaled_width / box.crop_width, box.scaled_height / box.crop_height)


def _limits(box: Box) -> tuple[Points, Points]:
    """Return the upper left and the lower right corner (x, y) of the visible part of the resized rectangle."""
    first = np.array([box.cut_left, box.cut_top], np.float64)
    end = np.add(first, (box.out_width, box.out_height))
    sides = box.scaled_width, box.scaled_height
    return first.clip(0, sides), end.clip(0, sides)


def _turned(points: npt.NDArray[_Float], orientation: int, size: tuple[int, int]) -> npt.NDArray[_Float]:
    """Rotate (..., 2) points, x and y, as `packer._images.decode.apply_orientation` rotates pixels."""
    height, width = size
    if orientation >= 5:
        points, (height, width) = points[..., ::-1], (width, height)
    mirrored, upside_down = orientation in (2, 3, 6, 7), orientation in (3, 4, 7, 8)
    x = width - points[..., 0] if mirrored else points[..., 0]
    y = height - points[..., 1] if upside_down else points[..., 1]
    return np.stack([x, y], -1)


def warp_boxes(
    boxes: Sequence[KeptBoxes | None], operations: Operations, sizes: Ints, *, min_visible: float = 0.0
) -> list[KeptBoxes | None]:
    """Move the boxes of N images as augmentations move the pixels, and clip the boxes to the image.

    The positions equal the results of torchvision's ``affine_bounding_boxes`` and ``rotate_bounding_boxes``: the four
    corners are moved, and the smallest box around them is clamped to the image. After each operation that moves pixels,
    boxes less than one pixel wide or high are dropped, as by ``SanitizeBoundingBoxes()``.

    Parameters
    ----------
    boxes : N KeptBoxes, or None for an image without boxes
    operations : (N, M) array of OPERATION
    sizes : (N, 2) array
        Heights and widths.
    min_visible : float
        The minimum share of a box's area, 0 to 1, that must remain inside the image after an operation; boxes with less
        are dropped.
    """
    counts = [0 if one is None else len(one.boxes) for one in boxes]
    image = np.repeat(np.arange(len(boxes)), counts)
    places = np.concatenate([np.empty((0, 4)), *(one.boxes for one in boxes if one is not None)]).astype(np.float64)
    left = np.ones(len(places), bool)

    def move(number: int) -> None:
        ours = left & (operations["kind"][image, number] == AFFINE)
        here, (x, y, end, bottom) = image[ours], places[ours].T
        corners = np.stack([[x, y], [end, y], [end, bottom], [x, bottom]]).transpose(2, 0, 1)
        put = _forward(corners, operations["matrix"][here, number], sizes[here])
        whole = np.concatenate([put.min(1), put.max(1)], 1)
        inside = whole.clip(0, np.tile(sizes[here, ::-1], 2))
        sides = inside[:, 2:] - inside[:, :2]
        before, after = (whole[:, 2:] - whole[:, :2]).prod(1), sides.prod(1)
        places[ours] = inside
        left[ours] = (sides >= 1).all(1) & (after >= min_visible * before)

    _each(operations, move)
    made: list[KeptBoxes | None] = []
    for one, start, count in zip(boxes, np.cumsum([0, *counts]).tolist(), counts, strict=False):
        if one is None or count == 0:
            made.append(one)
            continue
        own = left[start : start + count]
        kept = one.kept.copy()
        kept[np.flatnonzero(kept)[~own]] = False
        made.append(KeptBoxes(places[start : start + count][own].astype(np.float32), kept))
    return made


def warp_keypoints(
    keypoints: Sequence[Coordinates | None], operations: Operations, sizes: Ints
) -> list[Coordinates | None]:
    """Move the keypoints of N images as augmentations move the pixels.

    The positions equal the results of torchvision's ``affine_keypoints`` and ``rotate_keypoints``, followed by
    ``clamp_keypoints``.

    Parameters
    ----------
    keypoints : N (K, P, 3) float32 arrays, or None for an image without keypoints
        x, y, visibility. Keypoints that move outside the image get the visibility 0.
    operations, sizes
        The same as for `warp_boxes`.
    """
    points = [np.empty((0, 3)) if one is None else one.reshape(-1, 3) for one in keypoints]
    counts = [len(one) for one in points]
    image = np.repeat(np.arange(len(points)), counts)
    joined = np.concatenate([np.empty((0, 3)), *points]).astype(np.float64)

    def move(number: int) -> None:
        ours = operations["kind"][image, number] == AFFINE
        here, size = image[ours], sizes[image[ours], ::-1]
        put = _forward(joined[ours, None, :2], operations["matrix"][here, number], sizes[here])[:, 0]
        seen = ((put >= 0) & (put < size)).all(1)
        joined[ours] = np.concatenate([put.clip(0, size - 1), np.where(seen, joined[ours, 2], 0)[:, None]], 1)

    _each(operations, move)
    parts = np.split(joined.astype(np.float32), np.cumsum(counts)[:-1])
    return [None if one is None else part.reshape(one.shape) for one, part in zip(keypoints, parts, strict=True)]


def _each(operations: Operations, move: Callable[[int], None]) -> None:
    """Call `move` with the index of each operation that moves pixels in at least one image."""
    for number in np.flatnonzero((operations["kind"] == AFFINE).any(0)).tolist():
        move(number)


def _forward(points: Points, matrices: npt.NDArray[Any], sizes: Ints) -> Points:
    """Move (N, P, 2) points (x, y) of N images to their positions after an operation.

    The matrices map in the opposite direction: from the changed images to the original ones.
    """
    middle = sizes[:, None, ::-1] * 0.5
    a, b, across, c, d, down = matrices.T
    with np.errstate(all="ignore"):  # a matrix may collapse the image to a line
        inverse = np.stack([[d, -b], [-c, a]]).transpose(2, 0, 1) / (a * d - b * c)[:, None, None]
        moved: Points = (points - middle - np.stack([across, down], 1)[:, None]) @ inverse.transpose(0, 2, 1) + middle
    return np.nan_to_num(moved, nan=-1e9, posinf=1e9, neginf=-1e9)
