"""The bands of a TIFF that Pillow leaves out, and the bits of which it reads 8: infrared beside red, green and blue.

Pillow reads grey of 8, 16 and 32 bits whole. So a TIFF of several bands is given to it as one of grey with the same
samples, in which the bands stand side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from packer._images import pillow, tiff
from packer._images.decode import apply_orientation
from packer._images.geometry import MAX_PIXELS
from packer._images.tiff import TIFF
from packer._table import Buffer

__all__ = ["decode"]

_MODES = {("u", 8): np.uint8, ("u", 16): np.uint16, ("i", 16): np.int32, ("i", 32): np.int32, ("f", 32): np.float32}
"""The numbers that Pillow reads as grey, and what it makes of them."""

_COLOURS = (1, 2, 5)  # grey, RGB and CMYK
_UNCOMPRESSED = (1, 32773)  # and PackBits
_PREDICTED = (5, 8, 32946, 50000)  # LZW, Deflate and Zstandard, of which a predictor may be undone
_DIFFERENCES = 2
_MOST_SEPARATE = 256  # bands that stand by themselves, each of which takes a copy of the file
_ASSOCIATED = 1  # alpha by which the colours were multiplied, which Pillow undoes


def decode(data: Buffer, directory: TIFF) -> npt.NDArray[Any] | None:
    """Return all bands of a TIFF as they are stored, upright as Pillow shows a TIFF.

    Returns
    -------
    (height, width, bands) array or None
        uint8, uint16, int32 or float32; writable. None of TIFFs in other colours than grey, RGB and CMYK, with a
        palette, compressed as JPEG is, or with numbers that Pillow does not read as grey.

    Raises
    ------
    ImageError
        If the file is damaged, or has far too many numbers.
    """
    dtype = _MODES.get((directory.kind, directory.bits))
    if dtype is None or not _is_known(directory):
        return None
    height, width, bands = directory.value(tiff.HEIGHT, 0), directory.value(tiff.WIDTH, 0), directory.bands
    pillow.require_pixels(height, width * bands, MAX_PIXELS)
    numbers = np.empty((height, width, bands), dtype)
    if directory.is_separate:
        for band in range(bands):
            numbers[..., band] = _grey(tiff.grey_copy(data, directory, band), (height, width), dtype)
    else:
        wide = _grey(tiff.grey_copy(data, directory, None), (height, width * bands), dtype)
        numbers[:] = _undone(wide, directory).reshape(numbers.shape)
    turn = directory.value(tiff.ORIENTATION, 1)
    return apply_orientation(numbers, turn) if turn in range(2, 9) else numbers


def _is_known(directory: TIFF) -> bool:
    tags, compression = directory.tags, directory.value(tiff.COMPRESSION, 1)
    predictor = directory.value(tiff.PREDICTOR, 1)
    predicted = compression in _PREDICTED and predictor in (1, _DIFFERENCES)
    offsets = tags.get(tiff.TILE_OFFSETS, tags.get(tiff.STRIP_OFFSETS, ()))
    return (
        (compression in _UNCOMPRESSED or predicted)
        and directory.value(tiff.PHOTOMETRIC, 0) in _COLOURS
        and directory.is_uniform
        and not (directory.is_separate and _ASSOCIATED in tags.get(tiff.EXTRA_SAMPLES, ()))
        and {tiff.WIDTH, tiff.HEIGHT, tiff.BITS} <= tags.keys()
        and (tiff.TILE_OFFSETS not in tags or {tiff.TILE_WIDTH, tiff.TILE_HEIGHT} <= tags.keys())
        and bool(offsets)
        and (not directory.is_separate or (len(offsets) % directory.bands == 0 and directory.bands <= _MOST_SEPARATE))
    )


def _grey(data: bytes, size: tuple[int, int], dtype: type[Any]) -> npt.NDArray[Any]:
    with pillow.opened(data) as image:
        numbers = np.asarray(pillow.in_machine_order(image))
        if numbers.shape != size:  # which `opened` makes an ImageError
            raise ValueError(f"{numbers.shape[1]} x {numbers.shape[0]} numbers are there of {size[1]} x {size[0]}")
    return numbers.astype(dtype, copy=False)


def _undone(wide: npt.NDArray[Any], directory: TIFF) -> npt.NDArray[Any]:
    """Undo the differences of pixels, which were summed up as if each number were a pixel of its own."""
    compression, predictor = directory.value(tiff.COMPRESSION, 1), directory.value(tiff.PREDICTOR, 1)
    if predictor != _DIFFERENCES or compression not in _PREDICTED or directory.bands == 1:
        return wide
    height, width = wide.shape
    step = directory.value(tiff.TILE_WIDTH, width // directory.bands) * directory.bands
    kind = f"u{directory.bits // 8}"  # whose sums run over as those of the file do
    unsigned = wide.view(kind).copy() if directory.kind == "f" else wide.astype(kind)
    for start in range(0, width, step):
        part = unsigned[:, start : start + step]
        part[:, 1:] -= part[:, :-1].copy()
        sums = part.reshape(height, -1, directory.bands).cumsum(axis=1, dtype=unsigned.dtype)
        part[:] = sums.reshape(part.shape)
    signed = unsigned.view(f"{directory.kind}{directory.bits // 8}")
    return signed.astype(wide.dtype, copy=False)
