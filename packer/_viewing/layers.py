"""The fields of a sample that are pixels, as pictures: masks and run lengths in colours, further images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from packer._fields import Field
from packer._fields.rle import Runs, runs_of
from packer._formats import Reader
from packer._images.encode import encode, encode_png
from packer._images.modes import decode_as, decode_unchanged
from packer._images.probe import CLIPPED, DEEP, inspect
from packer._table import Buffer, Ints
from packer._viewing.catalog import Catalog
from packer.errors import ImageError

__all__ = ["further_image", "mask_picture"]

_MOST_PAINTED = 1 << 29  # pixels of a picture, times the objects that are painted over each other there
_LARGEST_NUMBER = 1e9  # of a mask, from which on numbers share a colour
_DO_NOT_CARE = 255  # in the masks of many data sets
_GOLDEN_ANGLE = 137.508 / 360
_LIGHTNESS, _CONTRAST = 0.55, 0.765  # of colours; the contrast is that of 85 % saturation
_QUALITY = 90

Numbers = npt.NDArray[Any]


def mask_picture(catalog: Catalog, index: int, name: str, side: int) -> bytes:
    """Return a mask, or run lengths of a segmentation, as a PNG of colours over nothing; at most `side` pixels a side.

    0 is not coloured, as it is the background in nearly all masks. Values keep their colours in all samples. The value
    of a mask with three channels is red + 256 green + 65,536 blue, as in COCO's panoptic masks.

    Raises
    ------
    PackerError
        If the value is damaged.
    ValueError
        If the sample has no such mask.
    """
    reader, row, field = _found(catalog, index, name)
    if field.kind == "segmentation":
        height, width = int(reader.table.height[row]), int(reader.table.width[row])
        return _coloured(_painted(field.decode(reader.value(row, name)) or [], height, width, side))
    if field.kind != "mask":
        raise ValueError(f"{name} is no mask")
    pixels = decode_unchanged(_encoded(reader, row, index, name), exif=reader.manifest.exif)
    return _coloured(_ids(_fewer(pixels, side)))


def further_image(catalog: Catalog, index: int, name: str, side: int) -> bytes:
    """Return a further image of a sample as a JPEG; errors as of `mask_picture`.

    Where it has more than 8 bits, such as depth, all its levels go from black to white.
    """
    reader, row, field = _found(catalog, index, name)
    if field.kind != "image":
        raise ValueError(f"{name} is no image")
    blob, exif = _encoded(reader, row, index, name), reader.manifest.exif
    if {DEEP, CLIPPED} & set(inspect(blob).findings):
        return encode(_levels(_fewer(decode_as(blob, "unchanged", exif=exif), side)), "jpeg", _QUALITY)
    image = Image.fromarray(decode_as(blob, "RGB", exif=exif))
    image.thumbnail((side, side))
    return encode(np.asarray(image), "jpeg", _QUALITY)


def _found(catalog: Catalog, index: int, name: str) -> tuple[Reader, int, Field]:
    pack, row = catalog.place(index)
    reader = catalog.readers[pack]
    if name not in reader.fields:
        raise ValueError(f"there is no field {name}")
    return reader, row, reader.fields[name]


def _encoded(reader: Reader, row: int, index: int, name: str) -> Buffer:
    blob = reader.value(row, name)
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise ValueError(f"sample {index} has no {name}")
    return blob


def _places(length: int, step: float) -> Ints:
    """Return which of so many rows, or columns, are shown where each stands for `step`."""
    return (np.arange(max(int(length / step), 1)) * step).astype(np.int64)


def _step(height: int, width: int, side: int) -> float:
    if min(height, width) < 1:
        raise ImageError("it has no pixels")
    return max(1.0, max(height, width) / side)


def _fewer(pixels: Numbers, side: int) -> Numbers:
    """Return the nearest pixels of a picture of at most `side` a side: between two ids there is none."""
    height, width = pixels.shape[:2]
    step = _step(height, width, side)
    fewer: Numbers = pixels[_places(height, step)][:, _places(width, step)]
    return fewer


def _ids(pixels: Numbers) -> Numbers:
    """Return (H, W) numbers of (H, W, channels)."""
    if pixels.shape[2] < 3 or pixels.dtype != np.uint8:
        first: Numbers = pixels[..., 0]
        return first
    red, green, blue = (pixels[..., channel].astype(np.int64) for channel in range(3))
    return np.asarray(red + (green << 8) + (blue << 16))


def _levels(pixels: Numbers) -> npt.NDArray[np.uint8]:
    """Return (H, W, channels) numbers as RGB, from black, the least, to white; what is no number is black."""
    values = pixels[..., :3] if pixels.shape[2] >= 3 else np.repeat(pixels[..., :1], 3, axis=2)
    halves = values.astype(np.float64) / 2  # the largest less the least is finite then
    finite = np.isfinite(halves)
    low, high = (halves[finite].min(), halves[finite].max()) if finite.any() else (0.0, 0.0)
    share = (np.where(finite, halves, low) - low) / (high - low if high > low else 1.0)
    return np.asarray(np.rint(share * 255), np.uint8)


def _painted(segmentations: Sequence[Any], height: int, width: int, side: int) -> Ints:
    """Return which object's run lengths cover each pixel of a picture, counted from 1; the last where several do.

    Nothing of the image's own size is made. What are no run lengths of that size paints nothing.
    """
    objects = [(number, one) for number, one in enumerate(segmentations, 1) if isinstance(one, dict)]
    step = _step(height, width, min(side, max(math.isqrt(_MOST_PAINTED // max(len(objects), 1)), 1)))
    rows, columns = _places(height, step), _places(width, step)
    numbers = np.zeros((len(columns), len(rows)), np.int64)
    for number, one in objects:
        try:
            runs = runs_of(one, height, width)
        except ValueError:  # which `annotations_of` says
            continue
        before = np.diff(_pixels_before(np.cumsum(runs), rows, columns, height), prepend=0)
        covered = np.repeat(np.arange(len(runs)) % 2 == 1, before)
        numbers[covered.reshape(numbers.shape)] = number
    painted: Ints = numbers.T
    return painted


def _pixels_before(ends: Runs, rows: Ints, columns: Ints, height: int) -> Ints:
    """Return how many of the pixels that are shown lie before each end of a run; runs go down one column by one."""
    column, row = np.divmod(ends, height)
    at = np.searchsorted(columns, column)
    within = np.append(columns, -1)[at] == column
    return np.asarray(at * len(rows) + np.where(within, np.searchsorted(rows, row), 0))


def _coloured(numbers: Numbers) -> bytes:
    """Return a PNG in which each number but 0 has a colour of its own."""
    near = np.clip(np.nan_to_num(numbers), -_LARGEST_NUMBER, _LARGEST_NUMBER)
    present, places = np.unique(near, return_inverse=True)
    return encode_png(Image.fromarray(_colours(present)[places.reshape(numbers.shape)], "RGBA"))


def _colours(numbers: Numbers) -> npt.NDArray[np.uint8]:
    """Return red, green, blue and opacity, (N, 4); overlays.js gives the objects of a sample the same colours."""
    hue = (numbers.astype(np.float64) - 1) * _GOLDEN_ANGLE % 1
    waves = np.clip(np.abs((hue[:, None] * 6 + np.array([0, 4, 2])) % 6 - 3) - 1, 0, 1)
    colours = np.full((len(numbers), 4), 255, np.uint8)
    colours[:, :3] = np.rint((_LIGHTNESS + _CONTRAST * (waves - 0.5)) * 255)
    colours[numbers == _DO_NOT_CARE, :3] = 230
    colours[numbers == 0] = 0
    return colours
