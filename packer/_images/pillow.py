"""Decodes with Pillow, the reference: ImageFolder returns the pixels of `PIL.Image.open(f).convert("RGB")`.

Pillow detects a file's format by its content, and supports about forty formats. For EPS it starts Ghostscript, and for
WMF on Windows it starts the system's renderer. Both programs execute code from the image. So only the formats of
training sets are opened, and only in this module.

Plain BMPs, which most programs write, need no Pillow: they have 24 bits per pixel and are not compressed. After a
header of 54 bytes come the rows, beginning at the bottom, each padded to a multiple of 4 bytes. A pixel is blue, green
and red. (Microsoft: BITMAPFILEHEADER, BITMAPINFOHEADER.)
"""

from __future__ import annotations

import contextlib
import functools
import io
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from packer._images import tiff
from packer._images.tiff import require_few_bands, require_modest, require_modest_exif, unreadable
from packer._storage.stray_files import IS_POINTER, is_pointer
from packer._table import Buffer
from packer.errors import ImageError, ImageTooLargeError

FORMATS = (
    *("BMP", "DIB", "GIF", "JPEG", "MPO", "PPM", "PNG"),
    *("AVIF", "JPEG2000", "ICO", "TIFF", "TGA", "WEBP"),
)
"""The formats that are opened, by Pillow's names, in Pillow's order. Pillow recognises an MPO when it opens a JPEG."""

_STARTS = {"EPS": "Ghostscript", "WMF": "the Windows drawing functions"}
_UNKNOWN_TO_PILLOW = {
    "PDF": (0, b"%PDF"),
    "SVG": (0, b"<svg"),
    "HEIC": (4, b"ftyphe"),
    "HEIF": (4, b"ftypmi"),
    "JPEG XL": (0, b"\xff\x0a"),
}
"""The offset and the bytes of the signatures of other formats."""

_MACHINE_ORDER = {"I;16BS": "I;16NS", "I;32B": "I;32N", "I;32BS": "I;32NS", "F;32BF": "F;32NF"}
"""Raw modes of big-endian numbers, and the corresponding modes of numbers in native byte order."""

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The transposition that turns an image upright, by its EXIF orientation."""


@contextlib.contextmanager
def opened(data: Buffer, max_pixels: int | None = None) -> Iterator[Image.Image]:
    """Open an image of one of `FORMATS` without decoding it.

    Raises
    ------
    ImageTooLargeError
        If the image's header declares more than `max_pixels`, or more than Pillow's own limit.
    ImageError
        If the image has another format, or if reading its metadata would cost too much (see `packer._images.tiff`).
        Also if Pillow raises an error, here or in the body of the ``with`` statement.
    """
    with _listening(data) as complaints:
        try:
            require_modest(data)
            require_few_bands(data)
            with Image.open(io.BytesIO(data), formats=_installed()) as image:
                if max_pixels is not None:
                    require_pixels(image.height, image.width, max_pixels)
                yield image
        except ImageError:
            raise
        except Image.DecompressionBombError as error:
            raise ImageTooLargeError(str(error)) from error
        except Exception as error:  # Pillow's plugins raise OSError, SyntaxError, ValueError, struct.error, …
            raise ImageError(_complaint(error, data, complaints)) from error


def _listening(data: Buffer) -> contextlib.AbstractContextManager[list[str]]:
    """Collect libtiff's messages in the ``with`` block if the data are a TIFF; otherwise collect nothing."""
    return tiff.listening() if bytes(data[:2]) in (b"II", b"MM") else contextlib.nullcontext([])


def decode(data: Buffer, *, exif: str = "ignore", max_pixels: int | None = None) -> npt.NDArray[np.uint8]:
    """Decode any image to (height, width, 3) uint8 RGB; with ``exif="apply"``, turn it upright.

    Raises
    ------
    ImageTooLargeError, ImageError
        For the same reasons as `opened`.
    """
    with opened(data, max_pixels) as image:
        return np.array(upright(image, "RGB") if exif == "apply" else image.convert("RGB"))


def in_machine_order(image: Image.Image) -> Image.Image:
    """Correct the byte order of an opened image, so that its numbers are those of the file; return the image.

    libtiff returns the samples of a compressed TIFF in native byte order. Pillow takes this into account for 16-bit
    grey, but reads signed numbers and floats in the byte order of the file.
    """
    tiles: list[Any] = getattr(image, "tile", [])
    if len(tiles) == 1 and tiles[0][0] == "libtiff" and sys.byteorder == "little":
        codec, extents, offset, (mode, *others) = tiles[0]
        if mode in _MACHINE_ORDER:
            image.tile = [type(tiles[0])(codec, extents, offset, (_MACHINE_ORDER[mode], *others))]  # type: ignore[attr-defined]
    return image


def upright(image: Image.Image, mode: str) -> Image.Image:
    """Convert an image to a mode, and turn it upright like `PIL.ImageOps.exif_transpose`.

    Pillow's function would also rewrite the image's EXIF, and fail if that is impossible.
    """
    converted = image.convert(mode)  # before the orientation: a TIFF is turned when it is loaded
    method = _TURNS.get(orientation(image))
    return converted if method is None else converted.transpose(method)


def orientation(image: Image.Image) -> Any:
    """Return the orientation in the EXIF of an opened image, which may be any value; 1 if there is none.

    Raises
    ------
    ImageError
        If reading the EXIF would cost too much.
    Exception
        The errors of Pillow for broken EXIF.
    """
    require_modest_exif(image.info)
    return image.getexif().get(0x0112, 1)


def require_pixels(height: int, width: int, max_pixels: int) -> None:
    """Raise ImageTooLargeError if an image has more pixels than allowed."""
    if height * width > max_pixels:
        raise ImageTooLargeError(f"{width} x {height} pixels exceed the {max_pixels} allowed")


@functools.cache
def _installed() -> tuple[str, ...]:
    """Return the formats among `FORMATS` that this Pillow knows; given any other, `Image.open` fails."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _complaint(error: Exception, data: Buffer, complaints: Sequence[str]) -> str:
    """Return the reason why Pillow cannot decode an image."""
    if not len(data):
        return "empty file"
    if is_pointer(data):
        return IS_POINTER
    if not isinstance(error, UnidentifiedImageError):
        return f"cannot be decoded: {error}" + (f" (libtiff: {complaints[0]})" if complaints else "")
    name = _refused(bytes(data[:16]))
    if name is None:
        return unreadable(data) or "not an image that Pillow can read"
    reason = f": it would start {_STARTS[name]}" if name in _STARTS else ""
    return f"{name} is not among the formats that packer opens{reason}"


def _refused(head: bytes) -> str | None:
    """Return the refused format whose signature begins `head`, the first 16 bytes of a file; None if there is none."""
    for name, (offset, signature) in _UNKNOWN_TO_PILLOW.items():
        if head[offset:].startswith(signature):
            return name
    for name, (_, accepts) in Image.OPEN.items():
        with contextlib.suppress(Exception):  # plugins differ in how they take a file that is too short
            if name not in FORMATS and accepts is not None and accepts(head):
                return name
    return None


SIGNATURE = b"BM"

_HEADER = struct.Struct("<2s4x4xIIiiHHI")
_SIZE = 54  # bytes of both headers
_INFO = 40  # bytes of the second header
_UNCOMPRESSED = 0


class PlainBMP(NamedTuple):
    """A whole plain BMP.

    Attributes
    ----------
    data : bytes-like
    height, width : int
        Pixels.
    """

    data: Buffer
    height: int
    width: int

    def decode(self, top: int = 0, left: int = 0, height: int | None = None, width: int | None = None) -> PixelArray:
        """Return the (height, width, 3) uint8 RGB pixels of a rectangle that lies inside of the image; writable."""
        bottom = self.height if height is None else top + height
        right = self.width if width is None else left + width
        rows = np.frombuffer(self.data, np.uint8, self.height * _row(self.width), _SIZE).reshape(self.height, -1)
        part = rows[self.height - bottom : self.height - top][::-1, 3 * left : 3 * right]
        pixels = np.empty((bottom - top, right - left, 3), np.uint8)
        for channel in range(3):  # three times as fast as reversing the last axis
            pixels[..., channel] = part[:, 2 - channel :: 3]
        return pixels


PixelArray = npt.NDArray[np.uint8]


def read_bmp(data: Buffer) -> PlainBMP | None:
    """Read the header of a BMP; None if the file is not a plain BMP, or is cut short."""
    if len(data) < _SIZE or bytes(data[:2]) != SIGNATURE:
        return None
    _, begin, info, width, height, _, bits, compression = _HEADER.unpack_from(data)
    if (begin, info, bits, compression) != (_SIZE, _INFO, 24, _UNCOMPRESSED) or width < 1 or height < 1:
        return None
    return PlainBMP(data, height, width) if len(data) >= _SIZE + height * _row(width) else None


def _row(width: int) -> int:
    """Return the number of bytes in a row."""
    return (3 * width + 3) // 4 * 4
