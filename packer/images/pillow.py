"""Pillow: the reference. What `PIL.Image.open(f).convert("RGB")` gives is what ImageFolder shows."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from PIL import Image

from packer.errors import ImageError, ImageTooLargeError
from packer.sample import Buffer

__all__ = ["decode", "open_image"]

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""How to turn an image upright, by its EXIF orientation."""


def open_image(data: Buffer, *, exif: str = "ignore", max_pixels: int | None = None) -> Image.Image:
    """Decode any image to mode RGB; with ``exif="apply"`` turned upright.

    Raises
    ------
    ImageError
        If Pillow cannot read it.
    """
    try:
        with Image.open(io.BytesIO(data)) as image:
            if max_pixels is not None and image.width * image.height > max_pixels:
                raise ImageTooLargeError(
                    f"{image.width} x {image.height} pixels are more than the {max_pixels} allowed"
                )
            return _upright(image) if exif == "apply" else image.convert("RGB")
    except ImageTooLargeError:
        raise
    except Image.DecompressionBombError as error:
        raise ImageTooLargeError(str(error)) from error
    except Exception as error:  # Pillow's plugins raise OSError, SyntaxError, ValueError, struct.error, …
        raise ImageError(describe(error, data)) from error


def _upright(image: Image.Image) -> Image.Image:
    """Convert an image to mode RGB, turned as `PIL.ImageOps.exif_transpose` turns it.

    That function also writes the image's EXIF anew, and fails where they cannot be written.
    """
    rgb = image.convert("RGB")  # before the orientation: a TIFF is turned when it is loaded
    method = _TURNS.get(image.getexif().get(0x0112, 1))
    return rgb if method is None else rgb.transpose(method)


def decode(data: Buffer, *, exif: str = "ignore", max_pixels: int | None = None) -> npt.NDArray[np.uint8]:
    """Decode any image to (height, width, 3) uint8 RGB."""
    return np.array(open_image(data, exif=exif, max_pixels=max_pixels))


def describe(error: Exception, data: Buffer) -> str:
    """Say what Pillow complains about."""
    if not len(data):
        return "empty file"
    if type(error).__name__ == "UnidentifiedImageError":
        return "not an image that Pillow can read"
    return f"cannot be decoded: {error}"
