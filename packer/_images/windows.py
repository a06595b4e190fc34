"""Encoded masks, and images of any mode, decoded and cut as records of `CROP` say.

Images in RGB are `packer._images.rectangle`'s, which decodes no more of them than it must.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from packer._images.geometry import INTERPOLATIONS, MAX_PIXELS, Box
from packer._images.modes import decode_as, decode_unchanged, holds_ids
from packer._images.nearest import Fill, gather, nearest, places, require_inside, window_places
from packer._images.resize import resize_numbers
from packer._table import Buffer
from packer.errors import ImageError, ImageTooLargeError

__all__ = ["cut_image", "cut_mask", "decode_mask", "smooth"]

Pixels = npt.NDArray[Any]


def decode_mask(
    data: Buffer,
    *,
    exif: str = "ignore",
    max_pixels: int = MAX_PIXELS,
    size: tuple[int, int] | None = None,
    rows: tuple[int, int] | None = None,
) -> Pixels:
    """Decode a mask: an image whose pixels are ids.

    Parameters
    ----------
    data, exif, max_pixels, size, rows
        As for `packer._images.modes.decode_unchanged`.

    Returns
    -------
    (height, width) uint8, uint16 or int32 array
        The indices of a palette, the levels of grey, or the bits. Writable.

    Raises
    ------
    ImageError
        As for `decode_unchanged`; and if the image has several channels, or floats.
    """
    pixels = decode_unchanged(data, exif=exif, max_pixels=max_pixels, size=size, rows=rows)
    if pixels.shape[2] != 1 or pixels.dtype.kind == "f":
        numbers = "floats" if pixels.dtype.kind == "f" else "numbers"
        raise ImageError(f"a mask has one id a pixel, and this image has {pixels.shape[2]} channels of {numbers}")
    return pixels[..., 0]


def cut_mask(
    data: Buffer,
    size: tuple[int, int],
    box: Box,
    *,
    fill: int = 0,
    exif: str = "ignore",
    max_pixels: int = MAX_PIXELS,
    out: Pixels | None = None,
) -> Pixels:
    """Decode a mask as far as a box wants it, and return the window, resized to the nearest pixel.

    Parameters
    ----------
    data, exif, max_pixels
        As for `decode_mask`.
    size : (height, width)
        The size of the image that the mask belongs to; the box's rectangle lies inside of it.
    box, fill
        As for `packer._images.nearest.nearest`.
    out : contiguous (out_height, out_width) array, optional
        Where the window is written. Its dtype holds all numbers of the mask's.

    Returns
    -------
    (out_height, out_width) array
        The window, of the mask's dtype; or `out`.

    Raises
    ------
    ImageError
        As for `decode_mask`; and if the mask has another size, or its dtype does not fit into that of `out`.
    ValueError
        As for `nearest`.
    """
    require_inside(size, box)
    rows, columns = places(box)
    shown = rows[rows >= 0]
    first, end = (int(shown.min()), int(shown.max()) + 1) if shown.size else (0, 1)
    pixels = decode_mask(data, exif=exif, max_pixels=max_pixels, size=size, rows=(first, end))
    rows = np.where(rows >= 0, rows - first, -1)
    if out is None or out.dtype == pixels.dtype:
        return gather(pixels, rows, columns, fill, out=out)
    if not np.can_cast(pixels.dtype, out.dtype, "safe"):
        raise ImageError(f"a mask of {pixels.dtype} does not fit into {out.dtype}")
    out[:] = gather(pixels.astype(out.dtype), rows, columns, fill)
    return out


def cut_image(
    data: Buffer,
    size: tuple[int, int],
    box: Box,
    mode: str,
    *,
    fill: Fill | None = None,
    exif: str = "ignore",
    max_pixels: int = MAX_PIXELS,
) -> Pixels:
    """Decode an image to a mode, and return the window of a box, resized as `smooth` does.

    Where an image is decoded unchanged, the indices of a palette and single bits are resized to the nearest pixel, as
    Pillow resizes them.

    Parameters
    ----------
    data, mode, exif, max_pixels
        As for `packer._images.modes.decode_as`.
    size : (height, width)
        The size that the image must have; the box's rectangle lies inside of it.
    box, fill
        As for `smooth`.

    Returns
    -------
    (out_height, out_width, channels) array

    Raises
    ------
    ImageError
        As for `decode_as` and `smooth`; and if the image has another size.
    ValueError
        As for `smooth`.
    """
    require_inside(size, box)
    pixels = decode_as(data, mode, exif=exif, max_pixels=max_pixels, size=size)
    if mode == "unchanged" and box.scaled != box.crop and holds_ids(data):
        return nearest(pixels, box, _fill(fill, pixels, box))
    return smooth(pixels, box, fill)


def smooth(pixels: Pixels, box: Box, fill: Fill | None = None) -> Pixels:
    """Return the window of a box: its rectangle, resized anti-aliased as torchvision resizes tensors.

    Parameters
    ----------
    pixels : (height, width, channels) array
        The whole image, of uint8, uint16, int32, float32 or float64. The box's rectangle lies inside of it.
    box : Box
    fill : number or sequence of channels numbers, optional
        What ``constant`` padding shows; by default the box's colour, which an image without three channels takes only
        where the colour is a grey.

    Returns
    -------
    (out_height, out_width, channels) array
        The window, of the dtype of the pixels.

    Raises
    ------
    ImageTooLargeError
        If the resized rectangle has too many pixels.
    ValueError
        If the rectangle reaches outside of the pixels, or their dtype cannot hold `fill`.
    """
    require_inside(pixels.shape, box)
    if box.scaled_height * box.scaled_width > MAX_PIXELS:
        scaled = f"{box.scaled_width} x {box.scaled_height}"
        raise ImageTooLargeError(f"a rectangle of it would be resized to {scaled} pixels, more than {MAX_PIXELS}")
    top, left, height, width = box.rectangle
    part = pixels[top : top + height, left : left + width]
    resized = resize_numbers(part, *box.scaled, INTERPOLATIONS[box.interpolation])
    return gather(resized, *window_places(box), _fill(fill, pixels, box))


def _fill(fill: Fill | None, pixels: Pixels, box: Box) -> Fill:
    """Return a fill, or the box's colour where there is none."""
    if fill is not None:
        return fill
    colour = [box.fill >> shift & 0xFF for shift in (0, 8, 16)]
    if pixels.shape[2] == 3:
        return colour
    if len(set(colour)) > 1:
        raise ValueError(f"an image of {pixels.shape[2]} channels cannot be padded with the colour {tuple(colour)}")
    return colour[0]
