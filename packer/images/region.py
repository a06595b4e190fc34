"""A rectangle of an image, decoded with as little work as gives the same pixels, and resized into its place.

Of a sequential JPEG the rows below the rectangle are left out, by giving the decoder a header with a smaller height.
Where the rectangle is at least twice as large as what it is resized to, and the caller allows it, the decoder halves
the image while decoding (libjpeg's scaled DCT), which changes the pixels a little.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt
import torch

from packer.errors import ImageError, ImageTooLargeError
from packer.images import decode, jpeg
from packer.images.box import Box, Rectangle
from packer.images.inspect import MAX_PIXELS
from packer.sample import Buffer

__all__ = ["decode_rectangle", "resize_into"]

_resize = torch.ops.aten._upsample_bilinear2d_aa


class _Scratch(threading.local):
    """Memory for one decoded image a thread, used again and again: fresh memory costs more than a copy."""

    def __init__(self) -> None:
        self._pixels = np.empty(0, np.uint8)

    def pixels(self, height: int, width: int) -> npt.NDArray[np.uint8]:
        size = height * width * 3
        if self._pixels.size < size or self._pixels.size > max(4 * size, 1 << 24):
            self._pixels = np.empty(max(size, 1 << 21), np.uint8)
        return self._pixels[:size].reshape(height, width, 3)


_scratch = _Scratch()


def decode_rectangle(
    data: Buffer,
    rectangle: Rectangle,
    size: tuple[int, int],
    *,
    exif: str = "ignore",
    decoder: str = "auto",
    halvings: int = 0,
    max_pixels: int = MAX_PIXELS,
) -> npt.NDArray[np.uint8]:
    """Decode a rectangle of an image.

    Parameters
    ----------
    data : bytes-like
        The encoded image.
    rectangle : (top, left, height, width)
        In pixels of the whole image; lies inside of it.
    size : (height, width)
        What the whole image is known to be.
    halvings : int
        How often the decoder may halve the image.

    Returns
    -------
    (ceil(height / 2**h), ceil(width / 2**h), 3) uint8 array
        RGB, with h the halvings done. Valid until this thread decodes the next rectangle. Without halvings, exactly
        the rectangle of what `decode` gives.

    Raises
    ------
    ImageError
        If Pillow cannot read the image, or its size is another.
    """
    pixels, halved = _decode_rows(data, rectangle, size, exif, decoder, halvings, max_pixels)
    top, left, height, width = rectangle
    bottom, right = top + height, left + width
    if halved:
        step = 1 << halved
        top, left = top // step, left // step
        bottom, right = -(-bottom // step), -(-right // step)
    return pixels[top:bottom, left:right]


def _decode_rows(  # noqa: PLR0917
    data: Buffer, rectangle: Rectangle, size: tuple[int, int], exif: str, decoder: str, halvings: int, max_pixels: int
) -> tuple[npt.NDArray[np.uint8], int]:
    """Return the rows of the image down to the rectangle's last, or more, and how often they are halved."""
    header = jpeg.read_header(data) if bytes(data[:3]) == b"\xff\xd8\xff" else None
    fast = header is not None and header.ordinary and decode.fast_decoder(decoder)[0] == "turbojpeg"
    if header is None or not fast or (exif == "apply" and header.orientation != 1):
        pixels = decode.decode(data, exif=exif, decoder=decoder, max_pixels=max_pixels)
        _require_size(pixels.shape[:2], size)
        return pixels, 0
    if header.height * header.width > max_pixels:
        raise ImageTooLargeError(f"{header.width} x {header.height} pixels are more than the {max_pixels} allowed")
    _require_size((header.height, header.width), size)
    from packer.images import turbojpeg

    rows = _rows_needed(header, rectangle[0] + rectangle[2])
    cut = rows < header.height
    height, width = -(-rows // (1 << halvings)), -(-header.width // (1 << halvings))
    try:
        shortened = jpeg.with_height(data, header, rows) if cut else data
        out = _scratch.pixels(height, width)
        return turbojpeg.decode_jpeg(shortened, out, scaled=halvings > 0, cut=cut), halvings
    except ImageError:
        return decode.decode(data, exif=exif, decoder="pillow", max_pixels=max_pixels), 0


def _rows_needed(header: jpeg.JPEGHeader, bottom: int) -> int:
    """Return how many rows to decode so that those above `bottom` come out as in the whole image."""
    step = header.mcu_height
    if not header.sequential or step not in (8, 16, 32):
        return header.height
    rows = -(-bottom // step) * step
    if step > 8:
        rows += step  # upsampling of the chroma planes looks at the row below
    return min(rows, header.height)


def _require_size(found: tuple[int, ...], expected: tuple[int, int]) -> None:
    if tuple(found) != tuple(expected):
        raise ImageError(
            f"it has {found[1]} x {found[0]} pixels and its row in the table says {expected[1]} x {expected[0]}"
        )


def resize_into(pixels: npt.NDArray[np.uint8], box: Box, out: torch.Tensor) -> None:
    """Resize the pixels of a box's rectangle, anti-aliased, and write the box's window of the result.

    Parameters
    ----------
    pixels : (H, W, 3) uint8 array
        The rectangle, or as much of it from above as `rows_touched` says.
    out : (3, height, width) uint8 tensor
        Its memory is channels last.
    """
    # In this order: see `packer.images.resize`.
    source = torch.from_numpy(pixels)[None].permute(0, 3, 1, 2)
    height, width = out.shape[1:]
    (cut_top, cut_left), (_, _, full_height, full_width) = box.cut, box.rectangle
    halved = pixels.shape[1] / full_width
    if box.scaled == (full_height, full_width) and halved == 1:  # nothing to resize
        resized = source[0, :, cut_top : cut_top + height, cut_left : cut_left + width]
    elif box.scaled == (height, width):
        _resize.out(source, (height, width), False, None, None, out=out[None])
        resized = out
    else:
        scale = box.scaled[0] / (full_height * halved), box.scaled[1] / pixels.shape[1]
        resized = _resize(source, (cut_top + height, cut_left + width), False, *scale)[0, :, cut_top:, cut_left:]
    if box.flip:
        out.copy_(resized.flip(2))
    elif resized is not out:
        out.copy_(resized)
