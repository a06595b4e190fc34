"""Pixels to encoded images."""

from __future__ import annotations

import functools
import importlib
import io
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import Image

from packer.errors import MissingDependencyError

__all__ = ["encode", "jpeg_encoder"]


@functools.cache
def jpeg_encoder() -> tuple[str, Callable[[npt.NDArray[np.uint8], int], bytes]]:
    """Return the name of the fastest JPEG encoder of this machine, and the encoder."""
    for name in ("turbojpeg", "opencv"):
        try:
            return name, importlib.import_module(f"packer.images.{name}").encode_jpeg
        except ImportError:
            continue
    raise MissingDependencyError("encoding JPEG needs OpenCV (pip install opencv-python-headless)")


def encode(pixels: npt.NDArray[np.uint8], codec: str, quality: int) -> bytes:
    """Encode (height, width, 3) uint8 RGB pixels.

    Parameters
    ----------
    codec : {"jpeg", "png", "webp", "raw"}
        ``raw``: the pixels themselves, rows from the top. ``png`` is lossless, ``jpeg`` and ``webp`` are not.
    quality : int
        1 to 100, for ``jpeg`` and ``webp``.
    """
    if codec == "raw":
        return pixels.tobytes()
    if codec == "jpeg":
        return jpeg_encoder()[1](pixels, quality)
    stream = io.BytesIO()
    options = {"png": {"compress_level": 6}, "webp": {"quality": quality, "method": 4}}[codec]
    Image.fromarray(pixels).save(stream, codec, **options)
    return stream.getvalue()
