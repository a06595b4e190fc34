"""Masks and images of any kind moved as affine operations say, to the nearest pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from packer._images.compiled import _native
from packer._images.nearest import Fill, colour_of
from packer._images.operations import KINDS, NO_FILL, Operations

__all__ = ["AFFINE", "moved"]

Pixels = npt.NDArray[Any]

AFFINE = KINDS.index("affine")


def moved(pixels: Pixels, operations: Operations, fill: Fill | None = None) -> Pixels:
    """Return pixels as operations move them, one after the other; those that move nothing are passed over.

    The pixels are torchvision's, of ``affine_mask`` and ``rotate_mask``, and those of ``affine_image`` with nearest
    interpolation.

    Parameters
    ----------
    pixels : (height, width) or (height, width, channels) array
    operations : (M,) array of OPERATION
    fill : number or sequence of channels numbers, optional
        What comes from outside; by default the colour of each operation, which an image without three channels takes
        only where the colour is a grey.

    Returns
    -------
    array of the same kind
        The same array where nothing is moved.

    Raises
    ------
    ValueError
        If the dtype cannot hold `fill`, or the colour is none of such an image.
    """
    for operation in operations[operations["kind"] == AFFINE]:
        colour = colour_of(_own_fill(operation, pixels) if fill is None else fill, pixels)
        matrix = np.ascontiguousarray(operation["matrix"], np.float64)
        if _native is None:
            pixels = _moved(pixels, matrix, colour)
            continue
        source, out = np.ascontiguousarray(pixels), np.empty(pixels.shape, pixels.dtype)
        begin, height, width, item = source.ctypes.data, len(source), source.shape[1], colour.nbytes
        _native.move(begin, height, width, item, matrix.ctypes.data, colour.ctypes.data, out.ctypes.data)
        pixels = out
    return pixels


def _moved(pixels: Pixels, matrix: npt.NDArray[np.float64], colour: Pixels) -> Pixels:
    """Do what C does, with the same roundings: those of torchvision's affine and torch's grid_sample."""
    height, width = sides = pixels.shape[:2]
    half_height, half_width = (np.float32(side) * np.float32(0.5) for side in sides)
    x, y = (np.arange(side, dtype=np.float32) + np.float32(1 - side) * np.float32(0.5) for side in (width, height))
    a, b, across, c, d, down = (matrix.astype(np.float32).reshape(2, 3) / [[half_width], [half_height]]).ravel()
    columns = np.rint((x * a + (y * b)[:, None] + across + 1) * half_width - np.float32(0.5))
    rows = np.rint((x * c + (y * d)[:, None] + down + 1) * half_height - np.float32(0.5))
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    out = np.empty(pixels.shape, pixels.dtype)
    out[...] = colour
    out[inside] = pixels[rows[inside].astype(np.int64), columns[inside].astype(np.int64)]
    return out


def _own_fill(operation: Any, pixels: Pixels) -> Fill:
    if operation["fill"] == NO_FILL:
        return 0
    colour = [int(operation["fill"]) >> shift & 0xFF for shift in (0, 8, 16)]
    if pixels.shape[2:] == (3,):
        return colour
    if len(set(colour)) > 1:
        raise ValueError(f"an image that has not three channels cannot be filled with the colour {tuple(colour)}")
    return colour[0]
