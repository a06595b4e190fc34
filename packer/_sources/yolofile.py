"""One file of labels in YOLO's format: a line an object, numbers as shares of the image's width and height.

A line is ``class x y width height``, where x and y are the centre of the box; the same with keypoints after them; or
``class x y x y x y ...``, a polygon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packer._fields import MARGIN

__all__ = ["Label", "read_label", "require_inside", "turned"]

Points = npt.NDArray[np.float64]
"""(..., 2) float64 array: x and y as shares of width and height."""

_TURNS = {
    1: ((1, 0), (0, 1), (0, 0)),
    2: ((-1, 0), (0, 1), (1, 0)),
    3: ((-1, 0), (0, -1), (1, 1)),
    4: ((1, 0), (0, -1), (0, 1)),
    5: ((0, 1), (1, 0), (0, 0)),
    6: ((0, 1), (-1, 0), (0, 1)),
    7: ((0, -1), (-1, 0), (1, 1)),
    8: ((0, -1), (1, 0), (1, 0)),
}
"""By EXIF orientation: a matrix, row by row, and what is added, that take a place upright to its place in the file."""


@dataclass(frozen=True, slots=True)
class Label:
    """What a file says.

    Attributes
    ----------
    lines : list of int
        The line of each object.
    classes : list of int
    boxes : (K, 2, 2) array of points
        Left top, and right bottom; of a polygon those around it.
    polygons : list of (P, 2) arrays of points, or of None
        None where there is a box alone.
    keypoints : (K, P, 2) array of points
    visible : (K, P) float64 array
        As the file says; where it says nothing, 2, or 0 of a point with a coordinate below 0.
    """

    lines: list[int]
    classes: list[int]
    boxes: Points
    polygons: list[Points | None]
    keypoints: Points
    visible: npt.NDArray[np.float64]


def read_label(text: str, keypoints: tuple[int, int] | None = None) -> Label:
    """Read the text of a file.

    Parameters
    ----------
    text : str
    keypoints : (int, int), optional
        How many keypoints each object has, and how many numbers each of them: 2, or 3 with the visibility.

    Raises
    ------
    ValueError
        If a line is none of these; the message begins with the number of the line.
    """
    lines: list[int] = []
    classes: list[int] = []
    boxes: list[Points] = []
    polygons: list[Points | None] = []
    rest: list[list[float]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        try:
            numbers = _numbers(words)
            box, polygon = _shape(numbers, keypoints)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        lines.append(number)
        classes.append(int(numbers[0]))
        boxes.append(box)
        polygons.append(polygon)
        rest.append(numbers[5:] if keypoints else [])
    points, each = keypoints or (0, 2)
    table = np.array(rest, np.float64).reshape(len(rest), points, each)
    places = table[:, :, :2]
    visible = table[:, :, 2] if each == 3 else np.where((places < 0).any(2), 0.0, 2.0)
    return Label(lines, classes, np.array(boxes, np.float64).reshape(-1, 2, 2), polygons, places, visible)


def require_inside(label: Label, height: int, width: int) -> None:
    """Raise ValueError where a box lies outside of its image, which has a size when it is upright."""
    beside = MARGIN / np.array([width, height])
    outside = ((label.boxes < -beside) | (label.boxes > 1 + beside)).any((1, 2))
    for place in np.flatnonzero(outside)[:1].tolist():
        raise ValueError(
            f"line {label.lines[place]}: it lies outside of its image of {width} x {height} pixels: positions are "
            "shares of width and height, 0 to 1"
        )


def turned(points: Points, orientation: int) -> Points:
    """Return the places in a file of points of its upright image, as the file's EXIF orientation says."""
    across, down, offset = _TURNS[orientation]
    moved: Points = points @ np.array((across, down), np.float64).T + offset
    return moved


def _numbers(words: list[str]) -> list[float]:
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        raise ValueError("a word is no number") from None
    if not all(map(math.isfinite, numbers)) or numbers[0] < 0 or numbers[0] % 1:
        raise ValueError("numbers are finite, and the first is the id of a class")
    return numbers


def _shape(numbers: list[float], keypoints: tuple[int, int] | None) -> tuple[Points, Points | None]:
    """Return the box and, if there is one, the polygon of a line."""
    expected = 5 + (keypoints[0] * keypoints[1] if keypoints else 0)
    polygon = None
    if len(numbers) == expected:
        centre, half = np.array(numbers[1:3]), np.array(numbers[3:5]) / 2
        box = np.array([centre - half, centre + half])
        if (half < 0).any():
            raise ValueError("a box has a side below 0: boxes are x y width height")
    elif keypoints is None and len(numbers) >= 7 and len(numbers) % 2:
        polygon = np.array(numbers[1:]).reshape(-1, 2)
        box = np.array([polygon.min(0), polygon.max(0)])
    else:
        shapes = f"a box with keypoints has {expected}" if keypoints else "a box has 5, a polygon 7, 9, 11, ..."
        raise ValueError(f"it has {len(numbers)} numbers, and {shapes}")
    return box, polygon
