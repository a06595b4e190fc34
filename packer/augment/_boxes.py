"""New positions of the boxes and keypoints of many images after operations on the images.

The arithmetic is the same as in torchvision's transforms.v2.functional: positions are relative to the middle of the
image, at half of its width and height.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._images.masks import AFFINE
from packer._images.operations import Operations
from packer.crops._boxes import Moved, Numbers
from packer.crops._steps import Floats, Pairs


def moved_boxes(
    boxes: Sequence[Moved | None], operations: Operations, sizes: Pairs, *, min_visible: float = 0.0
) -> list[Moved | None]:
    """Return the positions of the boxes of N images after operations, clipped to the image.

    The positions equal the results of torchvision's ``affine_bounding_boxes`` and ``rotate_bounding_boxes``: the
    smallest box around the four corners, which is then clamped to the image. After each operation that moves the image,
    boxes narrower or lower than a pixel are dropped, as by ``SanitizeBoundingBoxes()``.

    Parameters
    ----------
    boxes : N Moved, or None for an image without boxes
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
    made: list[Moved | None] = []
    for one, start, count in zip(boxes, np.cumsum([0, *counts]).tolist(), counts, strict=False):
        if one is None or count == 0:
            made.append(one)
            continue
        own = left[start : start + count]
        kept = one.kept.copy()
        kept[np.flatnonzero(kept)[~own]] = False
        made.append(Moved(places[start : start + count][own].astype(np.float32), kept))
    return made


def moved_keypoints(keypoints: Sequence[Numbers | None], operations: Operations, sizes: Pairs) -> list[Numbers | None]:
    """Return the positions of the keypoints of N images after operations.

    The positions equal the results of torchvision's ``affine_keypoints`` and ``rotate_keypoints``, followed by
    ``clamp_keypoints``.

    Parameters
    ----------
    keypoints : N (K, P, 3) float32 arrays, or None for an image without keypoints
        x, y, visibility. Keypoints that move outside the image get the visibility 0.
    operations, sizes
        The same as for `moved_boxes`.
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
    """Call `move` with the index of each operation that moves at least one image."""
    for number in np.flatnonzero((operations["kind"] == AFFINE).any(0)).tolist():
        move(number)


def _forward(points: Floats, matrices: npt.NDArray[Any], sizes: Pairs) -> Floats:
    """Return the new positions of (N, P, 2) points, x and y, under matrices that map results to images."""
    middle = sizes[:, None, ::-1] * 0.5
    a, b, across, c, d, down = matrices.T
    with np.errstate(all="ignore"):  # a matrix may press the image to a line
        inverse = np.stack([[d, -b], [-c, a]]).transpose(2, 0, 1) / (a * d - b * c)[:, None, None]
        moved: Floats = (points - middle - np.stack([across, down], 1)[:, None]) @ inverse.transpose(0, 2, 1) + middle
    return np.nan_to_num(moved, nan=-1e9, posinf=1e9, neginf=-1e9)
