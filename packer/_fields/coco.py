"""Converts annotations in COCO's format to field values, and masks to run lengths or back. No I/O.

Each annotation of an object becomes one row in each field that describes objects (boxes, categories and so on). Each
caption becomes one row in each field that describes captions. Members that are not in COCO's format, and numbers that a
field would round, are stored unchanged in the field ``members``, so nothing is lost. Polygons are stored unchanged,
because a mask can be drawn from polygons, but polygons cannot be recovered from a mask. Masks are equal to those of
pycocotools, pixel for pixel.

A mask can be stored as the lengths of runs of equal pixels. Runs go down the columns of a mask, from the left column to
the right one. The first run is of zeros, the second run of ones, and so on. A *segmentation* describes the mask of an
annotation. It is one of

- a list of polygons, each a list x y x y ... of three points or more; the mask is the union of the polygons;
- ``{"size": [height, width], "counts": runs}``, with the runs as a list of numbers, or compressed as text.

The text encodes the length of a run in one or more characters, with the lowest 5 bits first. A character's code minus
48 contains 5 bits of the length, and a sixth bit that is set if more characters follow. The highest of the 5 bits in
the last character is the sign. From the fourth run on, the text encodes a difference instead of the length: the length
minus that of the run two places earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Runs = npt.NDArray[np.int64]
"""(R,) int64 array: the lengths of runs, alternately of zeros and ones."""

_FINER = 5  # polygons are drawn on a grid with this number of points per pixel, in each direction
_FARTHEST = 1e6  # largest coordinate of a polygon in pixels, because no image is so large
_MOST_CROSSED = 1 << 22  # most crossings of edges with columns; each takes some 100 bytes of memory
_FIRST, _MORE, _SIGN, _LOW, _BITS = 48, 0x20, 0x10, 0x1F, 5


def runs_of(segmentation: Any, height: int, width: int) -> Runs:
    """Return the runs of a segmentation of an image; None and an empty list mean an empty mask.

    Raises
    ------
    ValueError
        If the value is not a segmentation, has run lengths for another size, or would need too much memory.
    """
    if problem := segmentation_problem(segmentation):
        raise ValueError(problem)
    if isinstance(segmentation, dict):
        if segmentation["size"] != [height, width]:
            raise ValueError(f"its size is {segmentation['size']}, but the image's is {[height, width]}")
        counts = segmentation["counts"]
        return counts_of_text(counts) if isinstance(counts, str) else np.array(counts, np.int64)
    shapes = [_on_grid(np.array(shape, np.float64).reshape(-1, 2)) for shape in segmentation or () if shape]
    crossed = sum(int(_columns_crossed(corners, width)[1].sum()) for corners in shapes)
    if crossed > _MOST_CROSSED:
        raise ValueError(f"its edges cross pixel columns {crossed:,} times, but at most {_MOST_CROSSED:,} are allowed")
    drawn = [_runs_of_polygon(corners, height, width) for corners in shapes]
    return drawn[0] if len(drawn) == 1 else _union(drawn, height * width)


def mask_of(runs: Runs, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Return the mask that `runs` encode, (height, width) uint8 of 0 and 1.

    Raise ValueError if the lengths of the runs do not add up to height x width pixels.
    """
    if ((runs < 0) | (runs > height * width)).any() or int(runs.sum()) != height * width:  # the sum alone may overflow
        raise ValueError(f"the run lengths do not add up to {height * width} pixels")
    pixels = np.repeat((np.arange(len(runs)) % 2).astype(np.uint8), runs)
    return np.ascontiguousarray(pixels.reshape(width, height).T)


def counts_of_mask(mask: npt.NDArray[Any]) -> Runs:
    """Return the runs of a (height, width) mask; all nonzero values count as ones."""
    pixels = np.concatenate(([False], mask.T.ravel() != 0))
    return _between(np.flatnonzero(pixels[1:] != pixels[:-1]), mask.size)


def counts_of_text(text: str) -> Runs:
    """Return the runs that a compressed text encodes; ValueError if the text is invalid."""
    codes = np.frombuffer(text.encode("utf-8"), np.uint8).astype(np.int64) - _FIRST
    if ((codes < 0) | (codes >= 2 * _MORE)).any() or (len(codes) and codes[-1] & _MORE):
        raise ValueError("the counts are not compressed run lengths")
    last = codes & _MORE == 0
    firsts = np.flatnonzero(np.concatenate(([True], last[:-1])))[: int(last.sum())]
    lengths = np.flatnonzero(last) + 1 - firsts
    if (lengths > 12).any():  # 13 characters of 5 bits would be more than 64 bits
        raise ValueError("the counts are not compressed run lengths")
    digit = np.arange(len(codes)) - np.repeat(firsts, lengths)
    bits = (codes & _LOW) << (_BITS * digit)
    runs = np.add.reduceat(bits, firsts) if len(codes) else bits
    runs -= np.where(codes[last] & _SIGN, np.left_shift(np.int64(1), _BITS * lengths), 0)
    for start in (1, 2):
        runs[start::2] = np.cumsum(runs[start::2])
    return runs


def text_of(runs: Runs) -> str:
    """Return runs as compressed text."""
    differences = runs.copy()
    differences[3:] -= runs[1:-2]
    codes = bytearray()
    for left in differences.tolist():
        while True:
            low, left = left & _LOW, left >> _BITS
            if left == (-1 if low & _SIGN else 0):
                codes.append(low + _FIRST)
                break
            codes.append((low | _MORE) + _FIRST)
    return codes.decode("ascii")


def segmentation_problem(segmentation: Any) -> str | None:
    """Return the reason why a value is not a segmentation; None if it is a segmentation.

    The value None is an empty segmentation.
    """
    if segmentation is None:
        return None
    if isinstance(segmentation, dict):
        return _rle_problem(segmentation)
    if not isinstance(segmentation, list) or not all(isinstance(shape, list) for shape in segmentation):
        return "a segmentation must be a list of polygons x y x y ..., or run lengths"
    if any(len(shape) % 2 or 0 < len(shape) < 6 for shape in segmentation):
        return "a polygon must have three points or more, x y x y x y ..."
    try:
        shapes = [np.array(shape) for shape in segmentation if shape]
        good = all(shape.dtype.kind in "if" and np.abs(shape).max() <= _FARTHEST for shape in shapes)
    except (TypeError, ValueError):
        good = False
    if not good:
        return f"the points of a polygon must be numbers, at most {_FARTHEST:,.0f}"
    return None


def _rle_problem(rle: dict[str, Any]) -> str | None:
    size, counts = rle.get("size"), rle.get("counts")
    if not isinstance(size, list) or len(size) != 2 or any(type(side) is not int or side < 0 for side in size):
        return "the size of run lengths must be [height, width]"
    try:
        if isinstance(counts, str):
            runs = counts_of_text(counts).tolist()
        elif isinstance(counts, list) and all(type(count) is int for count in counts):
            runs = counts
        else:
            return "the counts of run lengths must be whole numbers or a string"
    except ValueError as error:
        return str(error)
    if min(runs, default=0) < 0 or sum(runs) != size[0] * size[1]:
        return f"the run lengths add up to {sum(runs)} pixels, but a mask of the size {size} has {size[0] * size[1]}"
    return None


def _runs_of_polygon(corners: Runs, height: int, width: int) -> Runs:
    """Return the runs of the mask of one polygon, given as (P, 2) points on a grid finer than the pixels.

    Each edge is traced on this grid, along the axis in which the edge is longer. Where an edge crosses the middle of a
    column of pixels, the mask changes in this column from outside to inside or back. The change is at the first pixel
    whose middle is below the edge.
    """
    above, column = _crossings(corners, width)
    row = np.ceil(np.clip((above + 0.5) / _FINER - 0.5, 0, height)).astype(np.int64)
    changes, times = np.unique(column * height + row, return_counts=True)
    return _between(changes[times % 2 == 1], height * width)  # two changes at the same pixel cancel out


def _on_grid(corners: npt.NDArray[np.float64]) -> Runs:
    points: Runs = np.trunc(_FINER * corners + 0.5).astype(np.int64)
    return points


def _columns_crossed(corners: Runs, width: int) -> tuple[Runs, Runs]:
    """Return, for each edge of a polygon, the first column whose middle it crosses, and the number of these columns."""
    across = np.stack((corners[:, 0], np.roll(corners[:, 0], -1)))
    middle = _FINER // 2
    first = np.clip(-((middle - across.min(0)) // _FINER), 0, width)
    end = np.clip((across.max(0) - 1 - middle) // _FINER + 1, 0, width)
    return first, np.maximum(end - first, 0)


def _crossings(corners: Runs, width: int) -> tuple[Runs, Runs]:
    """Return every point where an edge crosses the middle of a column: y of the grid point above it, and the column."""
    nexts = np.roll(corners, -1, axis=0)
    main = (np.abs(nexts - corners) @ np.array([-1, 1]) > 0).astype(np.int64)  # the axis in which each edge is longer
    edges = np.arange(len(corners))
    turned = corners[edges, main] > nexts[edges, main]
    start = np.where(turned[:, None], nexts, corners)
    end = np.where(turned[:, None], corners, nexts)
    steps = (end - start)[edges, main]
    slope = (end - start)[edges, 1 - main] / np.maximum(steps, 1)
    first, count = _columns_crossed(corners, width)
    of = np.repeat(edges, count)
    column = np.arange(len(of)) - np.repeat(np.cumsum(count) - count - first, count)
    fine = _FINER * column + _FINER // 2  # a column's middle is between this point and the next one

    def shorter(along: Runs) -> Runs:
        points: Runs = np.trunc(start[of, 1 - main[of]] + slope[of] * along + 0.5).astype(np.int64)
        return points

    flat = main[of] == 0
    before = np.where(flat, fine - start[of, 0], 0)  # the last step of the edge before the middle
    after = np.where(flat, before + 1, steps[of])
    while (after - before > 1).any():  # a binary search, because x of a steep edge only grows, or only falls
        between = (before + after) // 2
        passed = ~flat & np.where(slope[of] > 0, shorter(between) > fine, shorter(between) <= fine)
        before, after = np.where(passed, before, between), np.where(passed, between, after)
    return np.where(flat, np.minimum(shorter(before), shorter(after)), start[of, 1] + before), column


def _union(several: Sequence[Runs], pixels: int) -> Runs:
    """Return the runs of the union of several masks, each of `pixels` pixels."""
    positions, turns = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for runs in several:
        ends = np.cumsum(runs)[: len(runs) // 2 * 2]  # without the end of a last run of zeros, where nothing changes
        positions.append(np.concatenate((ends, [pixels] * (len(ends) % 2))).astype(np.int64))
        turns.append(np.where(np.arange(len(positions[-1])) % 2, -1, 1))
    at, which = np.unique(np.concatenate(positions), return_inverse=True)
    depth = np.zeros(len(at), np.int64)
    np.add.at(depth, which, np.concatenate(turns))
    inside = np.concatenate(([False], np.cumsum(depth) > 0))
    return _between(at[inside[1:] != inside[:-1]], pixels)


def _between(changes: npt.NDArray[Any], pixels: int) -> Runs:
    """Return the runs of a mask that changes at the positions `changes`, which are in ascending order."""
    ends = np.concatenate((changes[changes < pixels], [pixels])).astype(np.int64)
    ends[1:] -= ends[:-1].copy()
    return ends


_MOST_PIXELS = 178_956_970  # most pixels of an image

Boxes = npt.NDArray[np.float32]


def boxes_of(rows: Any) -> Boxes:
    """Convert boxes x y width height to x y x y, (K, 4) float32, computed in float32 as torchvision does."""
    boxes: Boxes = np.array(rows, np.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    return boxes


def keypoints_of(rows: Sequence[Sequence[float] | None], points: int) -> Boxes:
    """Convert keypoints x y visibility x y visibility ... to (K, points, 3) float32; missing points are zeros."""
    keypoints: Boxes = np.zeros((len(rows), 3 * points), np.float32)
    for row, numbers in zip(keypoints, rows, strict=True):
        row[: len(numbers or ())] = numbers or ()
    return keypoints.reshape(-1, points, 3)


def drawn(
    segmentations: Sequence[Any], categories: Sequence[int], crowds: Sequence[int], height: int, width: int
) -> npt.NDArray[np.int64]:
    """Draw annotations; return the category of each pixel, (height, width) int64, 0 where there is no annotation.

    Crowds are drawn below other annotations, and larger masks below smaller ones; of equally large masks, the later one
    is on top. Raises ValueError if a segmentation is invalid, or the image has more than 178,956,970 pixels.
    """
    if height * width > _MOST_PIXELS:
        raise ValueError(
            f"a mask of {height} x {width} pixels is too large: at most {_MOST_PIXELS:,} pixels are allowed"
        )
    runs = [runs_of(one, height, width) for one in segmentations]
    order = sorted(range(len(runs)), key=lambda number: (not crowds[number], -int(runs[number][1::2].sum())))
    pixels = np.zeros((height, width), np.int64)
    for number in order:
        pixels[mask_of(runs[number], height, width).astype(bool)] = categories[number]
    return pixels
