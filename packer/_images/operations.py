"""Records of augmentation operations with their parameters; the operations change pixels in place."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._images.geometry import CROP, Crops

KINDS = (
    "nothing",
    "brightness",
    "contrast",
    "saturation",
    "hue",
    "grayscale",
    "blur",
    "solarize",
    "posterize",
    "equalize",
    "autocontrast",
    "invert",
    "sharpness",
    "affine",
    "erase",
)
"""The operations; `OPERATION` has the index in this tuple.

Each has the result of the corresponding function in torchvision's ``transforms.v2.functional`` for a uint8 tensor.
"""

AFFINE = KINDS.index("affine")

FILTERS = ("nearest", "bilinear")
"""The interpolations of affine moves; `OPERATION` has the index in this tuple."""

NO_FILL = -1

LONGEST_MOVED = 1 << 20
"""The longest side of an image that can be moved, in pixels: on longer sides float32 does not resolve single pixels."""

Operations = npt.NDArray[Any]
"""(N, M) array of `OPERATION`: M operations on each of N images, one after the other."""

OPERATION = np.dtype(
    [
        ("kind", np.int64),
        ("factor", np.float64),
        ("matrix", np.float64, 6),
        *((name, np.int64) for name in ("interpolation", "fill", "top", "left", "height", "width")),
    ]
)
"""One operation.

``kind``
    An index into `KINDS`.
``factor``
    For brightness, contrast, saturation, hue and sharpness, the factor of torchvision's ``adjust_`` functions; for
    solarize the threshold, for posterize the number of bits, and for blur sigma.
``matrix``
    For affine, the 2 x 3 matrix that maps a point of the result to the point of the image that it shows, both relative
    to the centre.
``interpolation``
    For affine, an index into `FILTERS`.
``fill``
    For affine, the colour of pixels from outside of the image; for erase, that of the rectangle: red + 256 green +
    65536 blue. `NO_FILL` is torchvision's None, black.
``top``, ``left``, ``height``, ``width``
    For erase, the rectangle; for blur, the height and the width of the kernel.
"""


def nothing(images: int, count: int) -> Operations:
    """Return operations that change nothing, as records to be filled in."""
    return np.zeros((images, count), OPERATION)


def with_operations(crops: Crops, operations: Operations) -> Crops:
    """Return N crops with an additional field: the operations on the result of each crop."""
    count = operations.shape[1]
    made = np.empty(len(crops), _with(count))
    bytes_of = as_bytes(made)  # NumPy copies records field by field, which takes ten times as long
    bytes_of[:, : CROP.itemsize] = as_bytes(crops)
    bytes_of[:, CROP.itemsize :] = as_bytes(operations).reshape(len(crops), count * OPERATION.itemsize)
    return made


def parted(crops: Crops) -> tuple[Crops, Operations | None]:
    """Split crops, (N,) or (N, V), into an array of CROP and the operations on their results, if there are any."""
    if crops.dtype == CROP:
        return crops, None
    bytes_of = as_bytes(crops)
    bare, operations = (np.ascontiguousarray(part) for part in np.split(bytes_of, [CROP.itemsize], -1))
    return bare.view(CROP)[..., 0], operations.view(OPERATION)


def as_bytes(records: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return records as bytes, (*shape, bytes); contiguous records are not copied."""
    records = np.ascontiguousarray(records)
    return records.view(np.uint8).reshape(*records.shape, records.dtype.itemsize)


def as_numbers(records: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return records of 64-bit fields as numbers, (*shape, fields); contiguous records are not copied.

    Fields of other types become integers with the same bits. Copying numbers takes a tenth of the time of copying
    records.
    """
    return np.ascontiguousarray(records).view(np.int64).reshape(*records.shape, records.dtype.itemsize // 8)


def crops_from(data: bytes, shape: tuple[int, ...]) -> Crops:
    """Convert bytes back to an array of crops of this shape, with or without operations."""
    count = math.prod(shape)
    size = len(data) // count - CROP.itemsize if count else 0
    return np.frombuffer(data, _with(size // OPERATION.itemsize) if size else CROP).reshape(shape)


def gathered(count: int, parts: Sequence[tuple[Any, Crops]]) -> Crops:
    """Assemble the crops of `count` images from parts; each part has positions, and the crops for these positions."""
    made = np.zeros((count, *parts[0][1].shape[1:]) if parts else count, _widest([crops for _, crops in parts]))
    for positions, crops in parts:
        as_bytes(made)[positions, ..., : crops.dtype.itemsize] = as_bytes(crops)
    return made


def side_by_side(views: Sequence[Crops]) -> Crops:
    """Return the crops of V views of N images, (N, V), from one (N,) array for each view."""
    made = np.zeros((len(views[0]), len(views)), _widest(views))
    for number, crops in enumerate(views):
        as_bytes(made)[:, number, : crops.dtype.itemsize] = as_bytes(crops)
    return made


def _widest(parts: Sequence[Crops]) -> np.dtype[Any]:
    """Return the dtype of the part with the most operations.

    The crops of the other parts are filled up with operations that have no effect.
    """
    return max((crops.dtype for crops in parts), key=lambda dtype: dtype.itemsize, default=CROP)


@functools.lru_cache(maxsize=64)
def _with(count: int) -> np.dtype[np.void]:
    return np.dtype([*CROP.descr, ("operations", OPERATION, (count,))])
