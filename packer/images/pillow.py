"""Pillow: the reference. What `PIL.Image.open(f).convert("RGB")` gives is what ImageFolder shows."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from packer.errors import ImageError, ImageTooLargeError
from packer.sample import Buffer

__all__ = ["decode", "open_image"]


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
            upright: Image.Image = ImageOps.exif_transpose(image) if exif == "apply" else image
            return upright.convert("RGB")
    except ImageTooLargeError:
        raise
    except Image.DecompressionBombError as error:
        raise ImageTooLargeError(str(error)) from error
    except Exception as error:  # Pillow's plugins raise OSError, SyntaxError, ValueError, struct.error, …
        raise ImageError(describe(error, data)) from error


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
