"""Chooses random crops and augmentations in C, without Python's lock, and computes the random numbers for them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._images.extension import _native, require_fields
from packer._images.geometry import CROP, Box, Crops
from packer._images.operations import OPERATION, Operations
from packer._table import Ints

KINDS = (
    *("resized", "resized by side", "center cut", "random cut", "random resized cut", "mirrored", "padded"),
    "random cut of v1",
)
"""The kinds of crop steps; `STEP` stores the index into this tuple. The classes in packer.crops document the kinds."""

STEP = np.dtype(
    [
        *((name, np.int64) for name in ("kind", "randoms", "chosen", "height", "width", "interpolation")),
        *((name, np.int64) for name in ("padding", "fill")),
        *((name, np.int64) for name in ("above", "left", "below", "right")),
        *((name, np.float64) for name in ("least", "most", "narrowest", "widest", "log_narrowest", "log_widest", "p")),
    ]
)
"""One step of a crop rule: a rule resizes, cuts, pads or mirrors an image in one or more steps.

``kind``
    An index into `KINDS`.
``randoms``, ``chosen``
    The number of random numbers that an image needs, and the number of choices that are made from them.
``height``, ``width``, ``interpolation``, ``padding``, ``fill``
    The result, as in `packer._images.geometry.CROP`. For "resized by side", the height is the length of the shorter
    side; for "padded", height and width are the minimum size of the result.
``above``, ``left``, ``below``, ``right``
    For "padded", the number of pixels that are added on each side.
``least``, ``most``, ``narrowest``, ``widest``, ``log_narrowest``, ``log_widest``
    For "random resized cut", the limits of the share of the area, of the ratio of width to height, and of the logarithm
    of this ratio.
``p``
    For "mirrored", the probability.
"""

RULES = ("of table", "erasing")
"""The kinds of rules; `RULE` stores the index into this tuple. Each rule chooses one operation for an image."""

ANY = -1
"""Stands for the index of a strength that a random number chooses."""

RULE = np.dtype(
    [
        *((name, np.int64) for name in ("kind", "randoms", "table", "operations", "strengths", "strength", "fill")),
        *((name, np.float64) for name in ("p", "least", "most", "log_narrowest", "log_widest")),
    ]
)
"""One rule of `decide`.

``kind``, ``randoms``
    An index into `RULES`; the number of random numbers that an image needs.
``table``, ``operations``, ``strengths``, ``strength``
    For "of table", the address of an (operations, strengths, 2) array of `OPERATION`, whose last axis has the two
    signs; the size of the array; and the index of the strength, or `ANY`.
``fill``, ``p``, ``least``, ``most``, ``log_narrowest``, ``log_widest``
    For "erasing", the colour, as in `OPERATION`; the probability; and the limits of the share of the area, and of the
    logarithm of the ratio of width to height.
"""

require_fields(STEP.names, "STEP_FIELDS")
require_fields(RULE.names, "RULE_FIELDS")


def uniforms(seed: int, epoch: int, indices: Ints, randoms: int) -> npt.NDArray[np.float64]:
    """Return the same random numbers as `packer.samplers._random.uniforms`, computed in C.

    Parameters
    ----------
    seed, epoch : int
        Integers of any size; only their value modulo 2**64 matters.
    indices : (N,) int64 array
    """
    indices = np.ascontiguousarray(indices, np.int64)
    numbers = np.empty((len(indices), randoms))
    key = _signed(seed), _signed(epoch)
    _native.uniforms(*key, indices.ctypes.data, len(indices), randoms, numbers.ctypes.data)
    return numbers


def require_uniform(random: npt.NDArray[np.float64], shape: tuple[int, ...]) -> None:
    """Raise ValueError if a caller's random numbers have another shape, or are not in [0, 1)."""
    if random.shape != shape:
        raise ValueError(f"random must have the shape {shape}, not {random.shape}")
    if random.size and not (random.min() >= 0 and random.max() < 1):  # otherwise C would read outside of its tables
        raise ValueError("random must contain only numbers from 0 up to, but not including, 1")


def _signed(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def choose(
    steps: npt.NDArray[Any], heights: Ints, widths: Ints, numbers: npt.NDArray[np.float64], *, chosen: bool = False
) -> Crops | None:
    """Choose the crops of N images.

    Parameters
    ----------
    steps : (M,) array of STEP
    heights, widths : (N,) int64 arrays
        Sizes of the images.
    numbers : (N, randoms) or (N, chosen) float64 array
        Random numbers, uniform in [0, 1); if `chosen` is True, the choices that were made from random numbers instead.
        Rows may be strided.

    Returns
    -------
    (N,) array of CROP, or None
        None if an image is empty, too large, or too small for a step; the Python code then raises the error.
    """
    crops = np.empty(len(heights), CROP)
    heights, widths = np.ascontiguousarray(heights, np.int64), np.ascontiguousarray(widths, np.int64)
    numbers, stride = _rows(numbers)
    sizes = heights.ctypes.data, widths.ctypes.data, len(heights)
    done = _native.choose(steps.ctypes.data, len(steps), *sizes, numbers.ctypes.data, stride, chosen, crops.ctypes.data)
    return crops if done else None


class _OneImage(threading.local):
    """Buffers in which a thread chooses the crop of one image, and the addresses of these buffers for C."""

    def __init__(self) -> None:
        self.size, self.crop = np.empty(2, np.int64), np.empty(CROP.itemsize // 8, np.int64)
        self.numbers = np.empty(0)
        self.at = self.size.ctypes.data, self.size.ctypes.data + 8
        self.crop_at, self.numbers_at = self.crop.ctypes.data, 0

    def hold(self, numbers: Sequence[float]) -> None:
        if len(numbers) > len(self.numbers):
            self.numbers = np.empty(len(numbers))
            self.numbers_at = self.numbers.ctypes.data
        self.numbers[: len(numbers)] = numbers


_one = _OneImage()


def choose_one(
    steps: npt.NDArray[Any], height: int, width: int, numbers: Sequence[float], *, chosen: bool = False
) -> Box | None:
    """Choose the crop of one image, several times as fast as `choose` does for an array of one image."""
    one = _one
    one.size[:] = height, width
    one.hold(numbers)
    sizes = *one.at, 1
    done = _native.choose(steps.ctypes.data, len(steps), *sizes, one.numbers_at, len(numbers), chosen, one.crop_at)
    return Box(*one.crop.tolist()) if done else None


def choose_drawn(  # noqa: PLR0917
    steps: npt.NDArray[Any], heights: Ints, widths: Ints, numbers: npt.NDArray[np.float64], crops: Crops, done: int
) -> tuple[int, int] | None:
    """Choose the crops of images one after the other, with random numbers from a generator's sequence.

    Parameters
    ----------
    steps : (M,) array of STEP
    heights, widths : (N,) int64 arrays
        Sizes of the images.
    numbers : contiguous (1 + kinds, L) float64 array
        The next L numbers of a generator, in each form in which the steps use them. The first row has them as 32-bit
        numbers. Each step "random resized cut" adds a row for the share of the area and a row for the ratio. Each step
        "mirrored" adds a row of numbers in [0, 1).
    crops : (N,) array of CROP
        The output for the crops.
    done : int
        The number of images that already have a crop.

    Returns
    -------
    (int, int) or None
        How many images now have a crop, and how many numbers were used. The function stops when the next image might
        need more numbers than are left. None for the same reasons as `choose`.
    """
    heights, widths = np.ascontiguousarray(heights, np.int64), np.ascontiguousarray(widths, np.int64)
    counts = np.array([done, 0])
    sizes = heights.ctypes.data, widths.ctypes.data, len(heights)
    draws = numbers.ctypes.data, numbers.shape[1], counts.ctypes.data, crops.ctypes.data
    if not _native.choose_drawn(steps.ctypes.data, len(steps), *sizes, *draws):
        return None
    images, used = counts.tolist()
    return images, used


def decide(rules: npt.NDArray[Any], height: int, width: int, numbers: npt.NDArray[np.float64]) -> Operations:
    """Choose the operations for N images of one size from random numbers.

    Parameters
    ----------
    rules : (M,) array of RULE
    numbers : (N, randoms) float64 array
        Uniform in [0, 1); rows may be strided.

    Returns
    -------
    (N, M) array of OPERATION
    """
    made = np.empty((len(numbers), len(rules)), OPERATION)
    numbers, stride = _rows(numbers)
    draws = numbers.ctypes.data, stride
    _native.decide(rules.ctypes.data, len(rules), height, width, len(numbers), *draws, made.ctypes.data)
    return made


def _rows(numbers: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], int]:
    """Make each row of numbers contiguous; return the rows, and the stride from row to row, counted in numbers."""
    if numbers.dtype != np.float64 or (numbers.shape[1] and numbers.strides[1] != 8) or numbers.strides[0] % 8:
        numbers = np.ascontiguousarray(numbers, np.float64)
    return numbers, numbers.strides[0] // 8
