"""Decodes and crops masks, and images of any mode, as records of `CROP` specify.

Masks are resized with nearest-pixel interpolation, mirrored, padded, and moved by affine operations. Every pixel equals
the result of torchvision's ``resized_crop``, ``resize``, ``crop``, ``pad`` and ``horizontal_flip`` on a
``tv_tensors.Mask``. Pillow rounds differently and picks other pixels. RGB images are decoded by
`packer._images.rectangle`, which decodes only the part that a crop needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._codecs import INTERPOLATIONS, MAX_PIXELS
from packer._images.extension import _native
from packer._images.geometry import PADDINGS, Box, colour_of_fill, outside, sources
from packer._images.modes import decode_as, decode_unchanged, holds_ids
from packer._images.operations import AFFINE, NO_FILL, Operations
from packer._images.resize import resize_numbers
from packer._table import Buffer, Ints
from packer.errors import ImageError, ImageTooLargeError

Fill = float | Sequence[float]
"""A number, or a sequence with a number for each channel."""

Pixels = npt.NDArray[Any]


def nearest(pixels: Pixels, box: Box, fill: Fill = 0) -> Pixels:
    """Resize a crop's rectangle with nearest-pixel interpolation, and return the crop's window.

    Parameters
    ----------
    pixels : (height, width) or (height, width, channels) array
        The whole image, of any dtype. The box's rectangle lies inside of it.
    box : Box
        The crop. Its interpolation and its padding colour are ignored.
    fill : number or sequence of numbers
        The colour of ``constant`` padding; a sequence has one number for each channel.

    Returns
    -------
    (out_height, out_width) or (out_height, out_width, channels) array

    Raises
    ------
    ValueError
        If the rectangle is not inside of the image, or the dtype cannot hold `fill`.
    """
    require_inside(pixels.shape, box)
    rows, columns = source_pixels(box)
    return gather(pixels, rows, columns, fill)


def require_inside(shape: Sequence[int], box: Box) -> None:
    """Raise ValueError if a box's rectangle is not inside of an image of this shape, (height, width, ...)."""
    top, left, height, width = box.rectangle
    if min(top, left) < 0 or min(height, width) < 1 or top + height > shape[0] or left + width > shape[1]:
        raise ValueError(f"{box.rectangle} is not a rectangle inside of {shape[1]} x {shape[0]} pixels")


def source_pixels(box: Box) -> tuple[Ints, Ints]:
    """Return the image row that each row of a crop's window shows, and the image column for each window column.

    Returns
    -------
    rows : (out_height,) int64 array
    columns : (out_width,) int64 array
        -1 for rows and columns that show constant padding.
    """
    rows, columns = window_places(box)
    top, left, height, width = box.rectangle
    return _of_image(rows, top, height, box.scaled_height), _of_image(columns, left, width, box.scaled_width)


def window_places(box: Box) -> tuple[Ints, Ints]:
    """Return rows and columns like `source_pixels`, but as positions in the resized rectangle."""
    rows, columns = sources(box)
    if PADDINGS[box.padding] == "constant":
        rows[outside(box.cut_top, box.out_height, box.scaled_height)] = -1
        columns[outside(box.cut_left, box.out_width, box.scaled_width)] = -1
    return rows, columns[::-1] if box.flip else columns


def _of_image(shown: Ints, first: int, side: int, scaled: int) -> Ints:
    """Map positions along one side of the resized rectangle to positions in the image; -1 stays -1.

    The arithmetic is torch's, which rounds to float32.
    """
    inside = shown >= 0
    if scaled != side:
        before = (shown.astype(np.float32) * (np.float32(side) / np.float32(scaled))).astype(np.int64)
        shown = np.where(inside, np.minimum(before, side - 1), -1)
    return np.where(inside, shown + first, -1)


def gather(pixels: Pixels, rows: Ints, columns: Ints, fill: Fill = 0) -> Pixels:
    """Return the pixels at which rows and columns cross, and `fill` where the row or the column is -1.

    Raise ValueError if the pixels' dtype cannot hold `fill`.
    """
    out: Pixels = np.empty((len(rows), len(columns), *pixels.shape[2:]), pixels.dtype)
    colour = colour_of(fill, pixels)
    missing = min(rows.min(initial=0), columns.min(initial=0)) < 0
    if _native is None:
        out[:] = pixels[rows[:, None], columns]
        if missing:
            out[rows < 0] = colour
            out[:, columns < 0] = colour
        return out
    if not pixels[:1].flags.c_contiguous:
        pixels = np.ascontiguousarray(pixels)
    rows, columns = np.ascontiguousarray(rows), np.ascontiguousarray(columns)
    begin, stride, fills, to = pixels.ctypes.data, pixels.strides[0], colour.ctypes.data, out.ctypes.data
    indices = rows.ctypes.data, columns.ctypes.data
    _native.gather(begin, stride, colour.nbytes, *indices, len(rows), len(columns), fills, to)
    return out


def colour_of(fill: Fill, pixels: Pixels) -> Pixels:
    """Return a fill colour as one pixel, with the dtype and the channels of `pixels`."""
    colour = np.zeros(pixels.shape[2:], pixels.dtype)
    if isinstance(fill, int) and fill == 0:
        return colour
    with np.errstate(all="ignore"):
        colour[...] = np.asarray(fill).astype(pixels.dtype)
    if pixels.dtype.kind != "f" and not np.array_equal(colour, np.broadcast_to(fill, colour.shape)):
        raise ValueError(f"a fill of {fill!r} does not fit into {pixels.dtype}")
    return colour


def decode_mask(
    data: Buffer,
    *,
    max_pixels: int = MAX_PIXELS,
    size: tuple[int, int] | None = None,
    rows: tuple[int, int] | None = None,
) -> Pixels:
    """Decode a mask: an image whose pixels are ids.

    Parameters
    ----------
    data, max_pixels, size, rows
        The same as for `packer._images.modes.decode_unchanged`.

    Returns
    -------
    (height, width) uint8, uint16 or int32 array
        Writable. The numbers are palette indices, grey levels, or bits.

    Raises
    ------
    ImageError
        For the same reasons as `decode_unchanged`, or if the image has several channels or floats.
    """
    pixels = decode_unchanged(data, max_pixels=max_pixels, size=size, rows=rows)
    if pixels.shape[2] != 1 or pixels.dtype.kind == "f":
        numbers = "floats" if pixels.dtype.kind == "f" else "numbers"
        raise ImageError(
            f"a mask has one id for each pixel, but this image has {pixels.shape[2]} channels of {numbers}"
        )
    return pixels[..., 0]


def crop_mask(data: Buffer, size: tuple[int, int], box: Box, *, fill: int = 0) -> Pixels:
    """Decode the part of a mask that a crop needs, and return the crop's window as `nearest` does.

    Parameters
    ----------
    data : bytes-like
        The same as for `decode_mask`.
    size : (height, width)
        The size of the image that the mask belongs to; the box's rectangle lies inside of it.
    box, fill
        The same as for `packer._images.cropping.nearest`.

    Returns
    -------
    (out_height, out_width) array
        The window, of the mask's dtype.

    Raises
    ------
    ImageError
        For the same reasons as `decode_mask`, or if the mask does not have this `size`.
    ValueError
        For the same reasons as `nearest`.
    """
    require_inside(size, box)
    rows, columns = source_pixels(box)
    shown = rows[rows >= 0]
    first, end = (int(shown.min()), int(shown.max()) + 1) if shown.size else (0, 1)
    pixels = decode_mask(data, size=size, rows=(first, end))
    return gather(pixels, np.where(rows >= 0, rows - first, -1), columns, fill)


def crop_image(data: Buffer, size: tuple[int, int], box: Box, mode: str, *, exif: str = "ignore") -> Pixels:
    """Decode an image to a mode such as "L", resize a crop's rectangle as `smooth` does, and return the crop's window.

    In the mode "unchanged", palette indices and single bits are resized with nearest-pixel interpolation, as in Pillow.

    Parameters
    ----------
    data, mode, exif
        The same as for `packer._images.modes.decode_as`.
    size : (height, width)
        The size that the image must have; the box's rectangle lies inside of it.
    box
        The same as for `smooth`.

    Returns
    -------
    (out_height, out_width, channels) array

    Raises
    ------
    ImageError
        For the same reasons as `decode_as` and `smooth`, or if the image does not have this `size`.
    ValueError
        For the same reasons as `smooth`.
    """
    require_inside(size, box)
    pixels = decode_as(data, mode, exif=exif, size=size)
    if mode == "unchanged" and box.scaled != box.crop and holds_ids(data):
        return nearest(pixels, box, _padding_colour(pixels, box))
    return smooth(pixels, box)


def smooth(pixels: Pixels, box: Box) -> Pixels:
    """Resize a crop's rectangle with anti-aliasing, as torchvision resizes tensors, and return the crop's window.

    Parameters
    ----------
    pixels : (height, width, channels) array
        The whole image, of uint8, uint16, int32, float32 or float64. The box's rectangle lies inside of it.
    box : Box
        The crop. If the image does not have three channels, the colour of ``constant`` padding must be grey.

    Returns
    -------
    (out_height, out_width, channels) array
        The window, of the dtype of the pixels.

    Raises
    ------
    ImageTooLargeError
        If the resized rectangle has too many pixels.
    ValueError
        If the rectangle is not inside of the image, or the pixels' dtype cannot hold the padding colour.
    """
    require_inside(pixels.shape, box)
    if box.scaled_height * box.scaled_width > MAX_PIXELS:
        scaled = f"{box.scaled_width} x {box.scaled_height}"
        raise ImageTooLargeError(f"a rectangle of it would be resized to {scaled} pixels, more than {MAX_PIXELS}")
    top, left, height, width = box.rectangle
    part = pixels[top : top + height, left : left + width]
    resized = resize_numbers(part, *box.scaled, INTERPOLATIONS[box.interpolation])
    return gather(resized, *window_places(box), _padding_colour(pixels, box))


def _padding_colour(pixels: Pixels, box: Box) -> Fill:
    return _colour_for(pixels, box.fill, f"an image of {pixels.shape[2]} channels cannot be padded")


def _colour_for(pixels: Pixels, fill: int, refusal: str) -> Fill:
    """Return a fill as three numbers if the pixels have three channels, otherwise as one number.

    Raise ValueError if one number cannot represent the fill, because it is not grey.
    """
    colour = colour_of_fill(fill)
    if pixels.shape[2:] == (3,):
        return colour
    if len(set(colour)) > 1:
        raise ValueError(f"{refusal} with the colour {tuple(colour)}")
    return colour[0]


def warp_pixels(pixels: Pixels, operations: Operations, fill: Fill | None = None) -> Pixels:
    """Apply geometric operations to pixels, one after the other; other operations are skipped.

    The pixels equal those of torchvision's ``affine_mask`` and ``rotate_mask``, and of ``affine_image`` with nearest
    interpolation.

    Parameters
    ----------
    pixels : (height, width) or (height, width, channels) array
    operations : (M,) array of OPERATION
    fill : number or sequence of numbers, optional
        The colour of pixels that come from outside of the image, in the same form as for `nearest`. By default, each
        operation's own colour is used. If the image does not have three channels, an operation's colour must be grey.

    Returns
    -------
    array of the same shape and dtype
        The input array itself if no operation moves pixels.

    Raises
    ------
    ValueError
        If the dtype cannot hold `fill`, or the colour does not fit the image.
    """
    for operation in operations[operations["kind"] == AFFINE]:
        colour = colour_of(_own_fill(operation, pixels) if fill is None else fill, pixels)
        matrix = np.ascontiguousarray(operation["matrix"], np.float64)
        if _native is None:
            pixels = _warp(pixels, matrix, colour)
            continue
        source, out = np.ascontiguousarray(pixels), np.empty(pixels.shape, pixels.dtype)
        begin, height, width, item = source.ctypes.data, len(source), source.shape[1], colour.nbytes
        _native.move(begin, height, width, item, matrix.ctypes.data, colour.ctypes.data, out.ctypes.data)
        pixels = out
    return pixels


def _warp(pixels: Pixels, matrix: npt.NDArray[np.float64], colour: Pixels) -> Pixels:
    """Apply one operation to pixels, rounding as torchvision's affine and torch's grid_sample do."""
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
    return _colour_for(pixels, operation["fill"], "an image without three channels cannot be filled")
