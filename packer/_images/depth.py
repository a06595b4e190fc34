"""Converts values of more than 8 bits to levels of 0 to 255, in the ways that `--to-8-bit` offers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._codecs import MAX_PIXELS
from packer._images import pillow
from packer._images.decode import decode
from packer._images.modes import decode_unchanged
from packer._images.tiff import Depth
from packer._table import Buffer
from packer.errors import ImageError, option

FOUND = {
    "clip": "more than 8 bits a channel: cut to 8 bits as Pillow cuts them",
    "type": "more than 8 bits a channel: scaled to 8 bits by the range of the type",
    "file": "more than 8 bits a channel: scaled to 8 bits by the lowest and the highest value of each file",
}
"""For each value of `--to-8-bit`, the finding that is recorded for an image whose bit depth was reduced."""

_BLOCK = 1 << 20  # numbers that are scaled at a time


def require_8_bit(depth: Depth, codec: str) -> None:
    """Raise ImageError if 8-bit RGB cannot represent the values of pixels with this depth."""
    if not depth.excess:
        return
    how = f"{option('to_8_bit', 'clip')} stores {depth.bands - depth.hidden} of them"
    if depth.is_deep:
        how = (
            f"pass {option('to_8_bit', 'clip')} (cut off at 255, as Pillow does), type (scaled by the range of "
            "the type) or file (by the lowest and the highest value of the file)"
        )
    raise ImageError(
        f"it has {depth.excess}, but {codec} stores 8-bit RGB: {how}. {option('codec', 'keep')} without "
        f"{option('resize')} stores the file's own bytes"
    )


def decode_to_8_bit(
    data: Buffer, how: str, depth: Depth, *, exif: str = "ignore", max_pixels: int = MAX_PIXELS
) -> npt.NDArray[np.uint8]:
    """Decode an image of more than 8 bits per channel to 8-bit RGB, without alpha and additional bands.

    Parameters
    ----------
    data, exif, max_pixels
        The same as for `packer._images.decode.decode`.
    how : {"clip", "type", "file"}
        ``clip``: like `packer._images.decode.decode`. Pillow clips grey at 255, and keeps the upper 8 bits of colours.

        ``type``: takes the upper 8 bits of unsigned numbers, so that 65535 becomes 255, as in `skimage.img_as_ubyte`
        and OpenCV. Of signed numbers, it takes the 8 bits below the sign; negative numbers become 0. Floats from 0 to 1
        become ``round(255 * x)``.

        ``file``: maps the lowest number of the file to 0 and the highest to 255, with one scale for all colours. If all
        numbers are equal, all become 0.

        With ``type`` and ``file`` NaN becomes 0; with ``file`` infinities become 0 or 255.
    depth : Depth
        The bands and bits of the file's pixels.

    Returns
    -------
    (height, width, 3) uint8 array
        RGB, writable.

    Raises
    ------
    ImageError
        If the image cannot be decoded. With ``type``, if there are floats outside of 0 to 1, because floats have no
        other natural range. With ``file``, if packer cannot read all bits.
    """
    if how == "clip" or not depth.is_deep:
        return decode(data, exif=exif, max_pixels=max_pixels)
    with pillow.opened(data, max_pixels) as image:
        mode, is_tiff = image.mode, image.format == "TIFF"
    if how == "type" and mode[0] not in "IF" and not (is_tiff and mode in ("L", "RGB")):
        return decode(data, exif=exif, max_pixels=max_pixels)  # the upper 8 bits, which Pillow reads in colour
    if mode == "CMYK":
        raise ImageError(
            "it has CMYK of 16 bits, which cannot be scaled by its lowest and highest values: pass "
            f"{option('to_8_bit', 'type')}"
        )
    numbers = _colours(data, depth, mode if is_tiff else "", exif, max_pixels)
    if how == "file":
        levels = _by_file(numbers)
    else:
        levels = _by_type(numbers, depth.bits if is_tiff else 8 * numbers.dtype.itemsize, depth.kind)
    return np.repeat(levels, 3, axis=2) if levels.shape[2] == 1 else levels


def _colours(data: Buffer, depth: Depth, mode: str, exif: str, max_pixels: int) -> npt.NDArray[Any]:
    """Return the numbers of an image, (height, width, 1 or 3), without alpha.

    For a TIFF, `mode` is the mode in which Pillow opens the image; for other images, it is empty.
    """
    misread = {("u", "I"): np.uint32, ("i", "L"): np.int8}.get((depth.kind, mode))
    if misread is not None:  # Pillow mistakes the sign of these numbers, whose bits it keeps
        with pillow.opened(data, max_pixels) as image:
            return np.asarray(pillow.in_machine_order(image)).view(misread)[..., None]
    try:
        numbers = decode_unchanged(data, exif=exif, max_pixels=max_pixels)
    except ImageError as error:
        raise ImageError(f"{error.reason}. Pass {option('to_8_bit', 'clip')}, which reads it as Pillow does") from error
    return numbers[..., :3] if numbers.shape[2] >= 3 else numbers[..., :1]


def _by_type(numbers: npt.NDArray[Any], bits: int, kind: str) -> npt.NDArray[np.uint8]:
    if kind == "f":
        levels = np.empty(numbers.shape, np.uint8)
        for part, to in _blocks(numbers, levels):
            present = np.where(np.isnan(part), part.dtype.type(0), part)
            if present.min() < 0 or present.max() > 1:
                low, high = _limits(numbers)
                raise ImageError(
                    f"it has floats from {low:g} to {high:g}, but {option('to_8_bit', 'type')} scales floats from 0 to "
                    f"1. Pass {option('to_8_bit', 'file')}, which scales by the lowest and the highest value"
                )
            to[:] = np.rint(present * part.dtype.type(255))
        return levels
    positive, shift = (np.maximum(numbers, 0), bits - 9) if kind == "i" else (numbers, bits - 8)
    scaled = positive.astype(np.int16) << -shift if shift < 0 else positive >> shift
    cut: npt.NDArray[np.uint8] = np.minimum(scaled, 255).astype(np.uint8)
    return cut


def _by_file(numbers: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    low, high = _limits(numbers)
    levels = np.zeros(numbers.shape, np.uint8)
    if low < high:
        for part, to in _blocks(numbers, levels):
            to[:] = np.rint(np.nan_to_num((part.astype(np.float64).clip(low, high) - low) * 255 / (high - low)))
    return levels


def _limits(numbers: npt.NDArray[Any]) -> tuple[float, float]:
    """Return the lowest and the highest finite number; 0 and 0 if there are none."""
    if numbers.dtype.kind != "f":
        return float(numbers.min()), float(numbers.max())
    finite = np.isfinite(numbers)
    if not finite.any():
        return 0.0, 0.0
    return float(numbers.min(where=finite, initial=np.inf)), float(numbers.max(where=finite, initial=-np.inf))


def _blocks(numbers: npt.NDArray[Any], levels: npt.NDArray[np.uint8]) -> Iterator[tuple[Any, Any]]:
    """Yield blocks of rows, each with the output array for its levels. Small blocks keep memory use low."""
    rows = max(1, _BLOCK // (numbers.shape[1] * numbers.shape[2]))
    for top in range(0, len(numbers), rows):
        yield numbers[top : top + rows], levels[top : top + rows]
