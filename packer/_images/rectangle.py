"""A rectangle of an image, decoded with as little work as gives the same pixels, and resized into its place.

Baseline JPEGs are drawn in C (`packer._images.native`). What follows is for all others, for halving, and for machines
without it.

Of a tiled JPEG only the tiles that the rectangle touches are decoded. Of another sequential JPEG the rows below the
rectangle are left out, by giving the decoder a header with a smaller height.
Where the rectangle is at least twice as large as what it is resized to, and the caller allows it, the decoder halves
the image while decoding (libjpeg's scaled DCT), which changes the pixels a little.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
import torch

from packer._images import decode, native
from packer._images.geometry import Box, Rectangle, allowed_halvings, from_corner, require_affordable, touched
from packer._images.jpeg import header as jpeg
from packer._images.jpeg.cutting import cut_out, first_rows
from packer._images.probe import MAX_PIXELS
from packer._table import Buffer
from packer.errors import ImageError, ImageTooLargeError

__all__ = ["RectangleDecoder", "require_drawable", "resize_by_torch", "resize_into"]

Ints = npt.NDArray[np.int64]
Pixels = npt.NDArray[np.uint8]

_resize: Any = torch._C._nn._upsample_bilinear2d_aa  # what torch.nn.functional.interpolate calls, with `out`
_resize_by = torch.ops.aten._upsample_bilinear2d_aa  # the same, where the scale is not that of the sizes


class _Scratch(threading.local):
    """Memory of a thread for what it decodes and resizes, used again and again: fresh memory costs more than a copy."""

    def __init__(self) -> None:
        self._decoded = np.empty(0, np.uint8)
        self._framed = np.empty(0, np.uint8)
        self._mirrored = np.empty(0, np.uint8)

    def decoded(self, height: int, width: int, halvings: int) -> Pixels:
        """Return memory for an image of that size, halved so many times."""
        height, width = -(-height >> halvings), -(-width >> halvings)
        self._decoded = _enough(self._decoded, height * width * 3)
        return self._decoded[: height * width * 3].reshape(height, width, 3)

    def framed(self, pixels: Pixels, top: int, left: int, height: int, width: int) -> Pixels:
        """Return a rectangle with pixels in it from (top, left) on, and whatever was there before elsewhere."""
        self._framed = _enough(self._framed, height * width * 3)
        framed = self._framed[: height * width * 3].reshape(height, width, 3)
        inside = framed[max(top, 0) :, max(left, 0) :]
        inside[:] = pixels[max(-top, 0) :, max(-left, 0) :][: inside.shape[0], : inside.shape[1]]
        return framed

    def mirrored(self, pixels: Pixels) -> Pixels:
        """Return pixels mirrored, left to right."""
        self._mirrored = _enough(self._mirrored, pixels.size)
        mirrored = self._mirrored[: pixels.size].reshape(pixels.shape)
        return cv2.flip(pixels, 1, dst=mirrored)  # type: ignore[return-value]


def _enough(memory: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """Return memory of that size or more, but not of very much more."""
    if size <= memory.size <= max(4 * size, 1 << 24):
        return memory
    return np.empty(max(size, 1 << 21), np.uint8)


_scratch = _Scratch()


class _Around(NamedTuple):
    """Pixels of a part of the image that holds the rectangle, where the part begins, and how often it is halved."""

    pixels: Pixels
    top: int = 0
    left: int = 0
    halvings: int = 0

    def cut(self, rectangle: Rectangle) -> Pixels:
        top, left, height, width = rectangle
        top, left = top - self.top, left - self.left
        if top < 0 or left < 0:
            return _scratch.framed(self.pixels, -top, -left, height, width)
        bottom, right = top + height, left + width
        if self.halvings:
            step = 1 << self.halvings
            top, left = top // step, left // step
            bottom, right = -(-bottom // step), -(-right // step)
        return self.pixels[top:bottom, left:right]


class RectangleDecoder:
    """Decodes rectangles of images, as `packer._images.decode.decode` would decode the whole.

    Parameters
    ----------
    exif, decoder, max_pixels
        As for `decode`.

    Attributes
    ----------
    native : bool
        Whether packer's own decoder comes first, whatever the image. It knows nothing of orientations.
    """

    def __init__(self, exif: str = "ignore", decoder: str = "auto", max_pixels: int = MAX_PIXELS) -> None:
        name, function = decode.fast_decoder(decoder)
        self._library = name
        self._decode_part: Any = function if name == "turbojpeg" else None
        self._drawn = decoder == "auto" and native.PREFERRED
        self.native = self._drawn and exif == "ignore"
        self._exif = exif
        self._max_pixels = max_pixels

    def suits(self, stored: npt.NDArray[Any], plan: Ints, scaled: bool = False) -> npt.NDArray[np.bool_]:
        """Tell which of N images packer's own decoder may draw, as `draw` would.

        Parameters
        ----------
        stored : (N,) array of LOCATION
        plan : (N, 11) int64 array
            See `packer._loading.crops.Boxes.plan`.
        scaled : bool
            As for `draw`.
        """
        suited: npt.NDArray[np.bool_] = stored["height"] * stored["width"] <= self._max_pixels
        if scaled:
            suited &= (plan[:, 2:4] < 2 * plan[:, 4:6]).any(1)
        return suited

    def draw(
        self,
        data: Buffer,
        size: tuple[int, int],
        box: Box,
        out: torch.Tensor,
        scaled: bool = False,
        *,
        refused: bool = False,
    ) -> None:
        """Decode what is wanted of any image, and resize it into its place.

        Parameters
        ----------
        data : bytes-like
            The encoded image.
        size : (height, width)
            What the whole image is known to be; the box's rectangle lies inside of it.
        out : (1, 3, height, width) uint8 tensor
            Its memory is channels last.
        scaled : bool
            Whether the decoder may halve what is at least twice as large as wanted.
        refused : bool
            Whether packer's own decoder has left this image to others before.

        Raises
        ------
        ImageError
            If Pillow cannot read the image, or its size is another.
        """
        halvings = allowed_halvings(box) if scaled else 0
        drawn = self._drawn and not refused and not halvings and size[0] * size[1] <= self._max_pixels
        upright = self._exif == "ignore" or not drawn or _upright(data)
        if drawn and upright and not native.decode_into(native.task_of(data, size, box, *_place(out))):
            return
        seen = box.rectangle if halvings else touched(box, out.shape[2], out.shape[3])
        pixels, halvings = self.decode(data, from_corner(box, seen), size, halvings, seen)
        resize_into(pixels, box, out, halvings)

    def decode(
        self,
        data: Buffer,
        rectangle: Rectangle,
        size: tuple[int, int],
        halvings: int = 0,
        touched: Rectangle | None = None,
    ) -> tuple[Pixels, int]:
        """Decode a rectangle of an image.

        Parameters
        ----------
        data : bytes-like
            The encoded image.
        rectangle : (top, left, height, width)
            In pixels of the whole image; it lies inside of it.
        size : (height, width)
            What the whole image is known to be.
        halvings : int
            How often the decoder may halve the image.
        touched : (top, left, height, width), optional
            What of the rectangle matters, down to its lower right corner; the rest may come in any colour.

        Returns
        -------
        pixels : (ceil(height / 2**h), ceil(width / 2**h), 3) uint8 array
            RGB. Valid until this thread decodes the next rectangle. Without halvings, exactly the rectangle of what
            `decode` gives.
        h : int
            How often the pixels are halved.

        Raises
        ------
        ImageError
            If Pillow cannot read the image, or its size is another.
        """
        around = self._decode_around(data, rectangle, size, halvings, touched or rectangle)
        if around is None:
            pixels = decode.decode(data, exif=self._exif, decoder=self._library, max_pixels=self._max_pixels)
            _require_size(pixels.shape[:2], size)
            around = _Around(pixels)
        return around.cut(rectangle), around.halvings

    def _decode_around(
        self, data: Buffer, rectangle: Rectangle, size: tuple[int, int], halvings: int, touched: Rectangle
    ) -> _Around | None:
        """Decode a part of an ordinary JPEG, the tiles that are touched or the first rows; None where it is another."""
        if self._decode_part is None or size[0] * size[1] > self._max_pixels:
            return None
        if self._exif == "apply" and not _upright(data):
            return None
        part = cut_out(data, size, touched, halvings)
        if part is not None:
            top, left, height, width = part.rectangle
            out = _scratch.decoded(height, width, halvings)
            with contextlib.suppress(ImageError):
                return _Around(self._decode_part(part.data, out, scaled=halvings > 0), top, left, halvings)
        rows = first_rows(data, size, rectangle[0] + rectangle[2])
        if rows is None:
            return None
        first, count = rows
        out = _scratch.decoded(count, size[1], halvings)
        try:
            pixels = self._decode_part(first, out, scaled=halvings > 0, cut=count < size[0])
        except ImageError:
            return _Around(decode.decode(data, exif=self._exif, decoder="pillow", max_pixels=self._max_pixels))
        return _Around(pixels, halvings=halvings)


def _upright(data: Buffer) -> bool:
    return (header := jpeg.read_header(data)) is not None and header.orientation == 1


def _require_size(found: tuple[int, ...], expected: tuple[int, int]) -> None:
    if tuple(found) != tuple(expected):
        raise ImageError(
            f"it has {found[1]} x {found[0]} pixels and its row in the table says {expected[1]} x {expected[0]}"
        )


def resize_into(pixels: Pixels, box: Box, out: torch.Tensor, halvings: int = 0) -> None:
    """Resize the pixels of a box's rectangle, anti-aliased, and write the box's window of the result.

    Parameters
    ----------
    pixels : (H, W, 3) uint8 array
        What `from_corner` says of the rectangle; the whole rectangle where it was halved.
    out : (1, 3, height, width) uint8 tensor
        Its memory is channels last.
    halvings : int
        How often the pixels are halved.

    Raises
    ------
    ImageTooLargeError
        If that takes too much memory: see `packer._images.geometry.affordable`, and `resize_by_torch`.
    """
    if native.PREFERRED and not halvings:
        present = box
        if box.scaled == box.rectangle[2:]:  # then it is the window alone that is there
            height, width = out.shape[2:]
            present = Box((0, 0, height, width), (height, width), flip=box.flip)
        if native.resize(pixels, present, *_place(out)):
            return
    resize_by_torch(pixels, box, out, halvings)


def resize_by_torch(pixels: Pixels, box: Box, out: torch.Tensor, halvings: int = 0) -> None:
    """Do the same as `resize_into`, by torch's kernel: the same pixels, more slowly.

    The kernel resizes all that lies between the corner and the window, which may be more than packer's own would need.
    """
    if not pixels.flags.writeable:
        pixels = np.array(pixels)  # torch warns of others
    size = (out.shape[2], out.shape[3])
    full = box.rectangle[2:]
    if box.scaled == full:
        out.copy_(_as_batch(_scratch.mirrored(pixels) if box.flip else pixels))
        return
    require_affordable(box, size)
    if box.scaled == size:
        # Mirroring before instead of after resizing changes no pixel, and the kernel copies such a rectangle anyway.
        _resize(_as_batch(_scratch.mirrored(pixels) if box.flip else pixels), size, False, None, out=out)
    else:
        (top, left), (height, width) = box.cut, size
        scale = [(scaled << halvings) / side for scaled, side in zip(box.scaled, full, strict=True)]
        # Where the kernel is asked for as many pixels as there are, it copies them, whatever the scale: ask for more.
        ends, sides = (top + height, left + width), pixels.shape
        wanted = [end + (end == side != whole) for end, side, whole in zip(ends, sides, box.scaled, strict=False)]
        if (sides[0] + wanted[0]) * wanted[1] > MAX_PIXELS:
            to = f"{box.scaled[1]} x {box.scaled[0]}"
            raise ImageTooLargeError(
                f"{full[1]} x {full[0]} pixels cannot be resized to {to} by torch, for want of AVX2"
            )
        resized = _resize_by(_as_batch(pixels), wanted, False, *scale)
        resized = resized[:, :, top : top + height, left : left + width]
        out.copy_(resized.flip(3) if box.flip else resized)


def require_drawable(images: torch.Tensor) -> None:
    """Raise ValueError where C must not write into an (N, 3, H, W) tensor, which it knows by its address alone."""
    channels_last = images.is_contiguous(memory_format=torch.channels_last)
    if images.device.type != "cpu" or images.dtype != torch.uint8 or not channels_last:
        raise ValueError("images are drawn into uint8 tensors of the CPU that are laid out channels last")


def _place(out: torch.Tensor) -> tuple[tuple[int, int], int]:
    """Return height and width of a (1, 3, height, width) uint8 tensor, and where its memory begins."""
    require_drawable(out)
    if out.shape[0] != 1:
        raise ValueError(f"an image is drawn into a tensor of shape (1, 3, H, W), not {tuple(out.shape)}")
    return tuple(out.shape[2:]), out.data_ptr()  # type: ignore[return-value]


def _as_batch(pixels: Pixels) -> torch.Tensor:
    """Return (H, W, 3) pixels as a (1, 3, H, W) tensor on the same memory."""
    return torch.from_numpy(pixels[None].transpose(0, 3, 1, 2))
