"""Decodes a rectangle of an image with as little work as possible, and resizes it into its slot of a batch.

JPEGs and PNGs are decoded, resized and padded in C (`packer._images.native`). The Python code of this module handles
all other images, and installations without the C extension.

In a tiled JPEG only the tiles that the rectangle touches are decoded. In other sequential JPEGs the rows below the
rectangle are skipped, by giving the decoder a header with a smaller height. Windows that extend beyond the image are
padded in the same way as by numpy.pad and torchvision's functional.pad.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from packer._codecs import INTERPOLATIONS, MAX_PIXELS
from packer._images import decode, jpeg, native, pillow
from packer._images.geometry import (
    PADDINGS,
    Box,
    Rectangle,
    colour_of_fill,
    from_corner,
    is_padded,
    outside,
    require_affordable,
    scratch,
    sources,
    touched,
    visible_part,
)
from packer._images.jpeg_tiles import cut_out, first_rows
from packer._images.resize import resize_batch
from packer._table import Buffer
from packer.errors import ImageError, ImageTooLargeError

Pixels = npt.NDArray[np.uint8]

_BLOCK = 1 << 18  # pixels that are padded at a time: their source positions take far more memory than the pixels


def pad_into(pixels: Pixels, part: Box, box: Box, out: Pixels) -> None:
    """Fill the window of a box from the visible pixels of the resized rectangle.

    Parameters
    ----------
    pixels : (part.out_height, part.out_width, 3) uint8 array
        Not mirrored.
    part : Box
        The result of `packer._images.geometry.visible_part` for the box.
    out : (box.out_height, box.out_width, 3) uint8 array
        The output window; the pixels are mirrored if `box.flip` is set.
    """
    unmirrored = out[:, ::-1] if box.flip else out
    across = max(1, min(box.out_width, _BLOCK))
    down = _BLOCK // across
    for top in range(0, box.out_height, down):
        for left in range(0, box.out_width, across):
            _pad_block(pixels, part, box, unmirrored, (top, left, down, across))


def _pad_block(pixels: Pixels, part: Box, box: Box, window: Pixels, rectangle: Rectangle) -> None:
    """Fill a rectangle of the window; the rectangle may extend beyond the window."""
    top, left, height, width = rectangle
    block = window[top : top + height, left : left + width]
    first, count = (box.cut_top + top, box.cut_left + left), block.shape
    rows, columns = sources(box._replace(cut_top=first[0], cut_left=first[1], out_height=count[0], out_width=count[1]))
    block[:] = pixels[(rows - part.cut_top)[:, None], columns - part.cut_left]
    if PADDINGS[box.padding] == "constant":
        colour = colour_of_fill(box.fill)
        block[outside(first[0], count[0], box.scaled_height)] = colour
        block[:, outside(first[1], count[1], box.scaled_width)] = colour


@functools.cache
def _mirror() -> Callable[[Pixels, Pixels], object]:
    """Return a function that writes mirrored pixels: that of OpenCV, the fastest, if OpenCV is installed."""
    try:
        from packer._images.opencv import mirror
    except ImportError:
        return lambda pixels, out: np.copyto(out, torch.from_numpy(pixels).flip(1).numpy())
    return mirror


class _Part(NamedTuple):
    """A decoded part of an image: its pixels, and its upper left corner in the image."""

    pixels: Pixels
    top: int = 0
    left: int = 0

    def cut(self, rectangle: Rectangle) -> Pixels:
        """Return a rectangle of the image; the pixels outside of the part are arbitrary."""
        top, left, height, width = rectangle
        top, left = top - self.top, left - self.left
        if top < 0 or left < 0:
            return scratch.framed(self.pixels, -top, -left, height, width)
        return self.pixels[top : top + height, left : left + width]


class RectangleDecoder:
    """Decodes rectangles of images; the pixels equal those of the whole image from `packer._images.decode.decode`.

    Parameters
    ----------
    exif, decoder, max_pixels
        The same as for `decode`.

    Attributes
    ----------
    native : bool
        Whether packer's own decoder is tried first. This decoder does not support EXIF orientations.
    """

    def __init__(self, exif: str = "ignore", decoder: str = "auto", max_pixels: int = MAX_PIXELS) -> None:
        name, function = decode.fast_decoder(decoder)
        self._library = name
        self._decode_part: Any = function if name in decode.LIBJPEG_TURBO else None
        self._in_c = decoder == "auto" and native.PREFERRED
        self.native = self._in_c and exif == "ignore"
        self._reads_bmp = decoder != "pillow"
        self._exif = exif
        self._max_pixels = max_pixels

    def decode_into(
        self,
        data: Buffer,
        size: tuple[int, int],
        box: Box,
        out: torch.Tensor,
        *,
        refused: bool = False,
    ) -> None:
        """Decode a crop's rectangle from an image of any type, resize it, and write the crop's window into `out`.

        Parameters
        ----------
        data : bytes-like
            The encoded image.
        size : (height, width)
            Known size of the whole image; the box's rectangle lies inside of it.
        out : (1, 3, out_height, out_width) uint8 tensor
            In channels-last memory format.
        refused : bool
            Whether packer's own decoder has already declined this image.

        Raises
        ------
        ImageError
            If Pillow cannot read the image, or the image does not have this `size`.
        """
        in_c = self._in_c and not refused and size[0] * size[1] <= self._max_pixels
        upright = self._exif == "ignore" or not in_c or _is_upright(data)
        if in_c and upright and native.decode_one(data, size, box, _address(out, box)):
            return
        seen = touched(box)
        resize_into(self.decode(data, from_corner(box, seen), size, seen), box, out)

    def decode(
        self,
        data: Buffer,
        rectangle: Rectangle,
        size: tuple[int, int],
        touched: Rectangle | None = None,
    ) -> Pixels:
        """Decode a rectangle of an image.

        Parameters
        ----------
        data : bytes-like
            The encoded image.
        rectangle : (top, left, height, width)
            In pixels of the whole image; the rectangle must lie inside the image.
        size : (height, width)
            Known size of the whole image.
        touched : (top, left, height, width), optional
            The part of the rectangle that the caller uses, which reaches to the rectangle's lower right corner. Other
            pixels may have any colour.

        Returns
        -------
        (height, width, 3) uint8 array
            RGB: exactly the pixels of the rectangle in the whole decoded image. Valid until this thread decodes the
            next rectangle.

        Raises
        ------
        ImageError
            If Pillow cannot read the image, or the image does not have this `size`.
        """
        part = self._cut_bmp(data, rectangle, size)
        part = part or self._decode_part_of_jpeg(data, rectangle, size, touched or rectangle)
        if part is None:
            pixels = decode.decode(data, exif=self._exif, decoder=self._library, max_pixels=self._max_pixels)
            _require_size(pixels.shape[:2], size)
            part = _Part(pixels)
        return part.cut(rectangle)

    def _cut_bmp(self, data: Buffer, rectangle: Rectangle, size: tuple[int, int]) -> _Part | None:
        """Take the rectangle out of a plain BMP; None for other images."""
        found = pillow.read_bmp(data) if self._reads_bmp else None
        if found is None or found.height * found.width > self._max_pixels:
            return None
        _require_size((found.height, found.width), size)
        return _Part(found.decode(*rectangle), *rectangle[:2])

    def _decode_part_of_jpeg(
        self, data: Buffer, rectangle: Rectangle, size: tuple[int, int], touched: Rectangle
    ) -> _Part | None:
        """Decode the touched tiles, or the first rows, of an ordinary JPEG; None for other images."""
        if self._decode_part is None or size[0] * size[1] > self._max_pixels:
            return None
        if self._exif == "apply" and not _is_upright(data):
            return None
        tiles = cut_out(data, size, touched)
        if tiles is not None:
            top, left, height, width = tiles.rectangle
            out = scratch.image("decoded", height, width)
            with contextlib.suppress(ImageError):
                return _Part(self._decode_part(tiles.data, out), top, left)
        rows = first_rows(data, size, rectangle[0] + rectangle[2])
        if rows is None:
            return None
        first, count = rows
        out = scratch.image("decoded", count, size[1])
        try:
            pixels = self._decode_part(first, out, cut=count < size[0])
        except ImageError:
            return _Part(decode.decode(data, exif=self._exif, decoder="pillow", max_pixels=self._max_pixels))
        return _Part(pixels)


def _is_upright(data: Buffer) -> bool:
    return (header := jpeg.read_header(data)) is not None and header.orientation == 1


def _require_size(found: tuple[int, ...], expected: tuple[int, int]) -> None:
    if tuple(found) != tuple(expected):
        raise ImageError(
            f"it has {found[1]} x {found[0]} pixels, but its row in the table says {expected[1]} x {expected[0]}"
        )


def resize_into(pixels: Pixels, box: Box, out: torch.Tensor) -> None:
    """Resize the pixels of a crop's rectangle with anti-aliasing, and write the crop's window, padded, into `out`.

    Parameters
    ----------
    pixels : (H, W, 3) uint8 array
        The pixels of the rectangle ``from_corner(box, touched(box))``.
    out : (1, 3, out_height, out_width) uint8 tensor
        In channels-last memory format.

    Raises
    ------
    ImageTooLargeError
        If resizing needs too much memory: see `packer._images.geometry.affordable` and `resize_by_torch`.
    """
    if is_padded(box):
        part = visible_part(box)
        require_channels_last(out)
        pad_into(_resized(pixels, part._replace(flip=0)), part, box, out[0].permute(1, 2, 0).numpy())
        return
    if native.PREFERRED:
        present = box
        if box.scaled == box.crop:  # without resizing, the pixels are those of the window alone
            present = Box.of((0, 0, *box.out), box.out, flip=bool(box.flip))
        if native.resize(pixels, present, _address(out, box)):
            return
    resize_by_torch(pixels, box, out)


def _resized(pixels: Pixels, box: Box) -> Pixels:
    """Return the window of the resized pixels; `pixels` are the same as for `resize_into`."""
    if box.scaled == box.crop:
        return pixels
    window = np.empty((*box.out, 3), np.uint8)
    resize_into(pixels, box, _as_batch(window))
    return window


def resize_by_torch(pixels: Pixels, box: Box, out: torch.Tensor) -> None:
    """Resize like `resize_into`, without padding, with torch's slower kernel, which returns the same pixels.

    torch's kernel also resizes all pixels between the upper left corner and the window; packer's own kernel skips them.
    """
    if not pixels.flags.writeable:
        pixels = np.array(pixels)  # torch warns of read-only arrays
    if box.scaled == box.crop:
        out.copy_(_as_batch(_mirrored(pixels) if box.flip else pixels))
        return
    require_affordable(box)
    if box.scaled == box.out:
        # Mirroring before instead of after resizing changes no pixel, and the kernel copies such a rectangle anyway.
        pixels = _mirrored(pixels) if box.flip else pixels
        resize_batch(_as_batch(pixels), box.out, INTERPOLATIONS[box.interpolation], out=out)
        return
    (top, left), (height, width) = box.cut, box.out
    scale = [scaled / side for scaled, side in zip(box.scaled, box.crop, strict=True)]
    # Whatever the scale, the kernel only copies a side that keeps its number of pixels, so one more pixel is requested.
    ends, sides = (top + height, left + width), pixels.shape
    size = [end + (end == side != whole) for end, side, whole in zip(ends, sides, box.scaled, strict=False)]
    if (sides[0] + size[0]) * size[1] > MAX_PIXELS:
        crop, to = f"{box.crop_width} x {box.crop_height}", f"{box.scaled_width} x {box.scaled_height}"
        raise ImageTooLargeError(
            f"{crop} pixels cannot be resized to {to} by torch, which is used because packer's compiled code is missing"
        )
    interpolation = INTERPOLATIONS[box.interpolation]
    resized = resize_batch(_as_batch(pixels), (size[0], size[1]), interpolation, (scale[0], scale[1]))
    resized = resized[:, :, top : top + height, left : left + width]
    out.copy_(resized.flip(3) if box.flip else resized)


def require_channels_last(images: torch.Tensor) -> None:
    """Raise ValueError if an (N, 3, H, W) tensor does not have the memory layout that C assumes."""
    channels_last = images.is_contiguous(memory_format=torch.channels_last)
    if images.device.type != "cpu" or images.dtype != torch.uint8 or not channels_last:
        raise ValueError("images can be decoded only into uint8 CPU tensors in the memory format channels_last")


def _address(out: torch.Tensor, box: Box) -> int:
    """Return the address of a tensor's memory; ValueError if its size is not exactly that of a box's window."""
    require_channels_last(out)
    if tuple(out.shape) != (1, 3, *box.out):
        raise ValueError(f"the tensor for an image must have the shape {(1, 3, *box.out)}, not {tuple(out.shape)}")
    return out.data_ptr()


def _mirrored(pixels: Pixels) -> Pixels:
    """Return pixels mirrored, left to right; valid until this thread mirrors other pixels."""
    out = scratch.image("mirrored", *pixels.shape[:2])
    _mirror()(pixels, out)
    return out


def _as_batch(pixels: Pixels) -> torch.Tensor:
    """Return (H, W, 3) pixels as a (1, 3, H, W) tensor on the same memory."""
    return torch.from_numpy(pixels[None].transpose(0, 3, 1, 2))
