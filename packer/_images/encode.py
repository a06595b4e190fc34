"""Encodes pixels as JPEG, PNG, WebP or BMP."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import Image

from packer._images import native
from packer.errors import ImageError

_LONGEST_SIDE = 65_500  # of an image that libjpeg encodes

_MCU = 16  # pixels of a side, with 4:2:0 subsampling
_MOST_COLUMNS = 16  # of tiles: crops grow with the image, so larger images need no more


def encode(pixels: npt.NDArray[np.uint8], codec: str, quality: int) -> bytes:
    """Encode (height, width, 3) uint8 RGB pixels.

    Parameters
    ----------
    codec : {"jpeg", "png", "webp", "bmp", "raw"}
        ``raw`` stores the pixels themselves, rows from the top. ``png`` and ``bmp`` are lossless, ``jpeg`` and ``webp``
        are not. The bytes are the same as from Pillow; JPEG has 4:2:0 subsampling.
    quality : int
        1 to 100, for ``jpeg`` and ``webp``.
    """
    if codec == "raw":
        return pixels.tobytes()
    if codec == "jpeg":
        return _encode_jpeg(pixels, quality)
    image = Image.fromarray(pixels)
    if codec == "png":
        return encode_png(image)
    stream = io.BytesIO()
    options = {"quality": quality, "method": 4} if codec == "webp" else {}
    image.save(stream, codec, **options)
    return stream.getvalue()


def encode_png(image: Image.Image) -> bytes:
    """Encode an image of any mode that PNG supports, without loss; OSError for other modes."""
    stream = io.BytesIO()
    image.save(stream, "PNG", compress_level=6)
    return stream.getvalue()


def encode_tiled(pixels: npt.NDArray[np.uint8], quality: int) -> bytes:
    """Encode (height, width, 3) uint8 RGB pixels as a tiled JPEG that decodes to the same pixels as `encode`'s JPEG."""
    from packer._images import jpeg_tiles

    mcus = -(-pixels.shape[1] // _MCU)
    interval = mcus // jpeg_tiles.choose_columns(mcus, _MOST_COLUMNS)
    return jpeg_tiles.annotate(_encode_jpeg(pixels, quality, interval))


def _encode_jpeg(pixels: npt.NDArray[np.uint8], quality: int, interval: int = 0) -> bytes:
    """Encode a JPEG with 4:2:0 subsampling, and optionally a restart marker after every `interval` MCUs."""
    if max(pixels.shape) > _LONGEST_SIDE:
        raise ImageError(f"a JPEG has at most {_LONGEST_SIDE} pixels on each side")
    return jpeg_encoder()[1](pixels, quality, interval)


@functools.cache
def jpeg_encoder() -> tuple[str, Callable[[npt.NDArray[np.uint8], int, int], bytes]]:
    """Return the JPEG encoder and its name: packer's own if the CPU has vector units, otherwise OpenCV's or Pillow's.

    All encoders write the same bytes; packer's own is the fastest, and Pillow's the slowest.
    """
    if native.WRITES_JPEGS:
        return "packer", native.encode_jpeg
    try:
        from packer._images.opencv import encode_jpeg
    except ImportError:
        return "pillow", _by_pillow
    return "opencv", encode_jpeg


def _by_pillow(pixels: npt.NDArray[np.uint8], quality: int, interval: int) -> bytes:
    stream = io.BytesIO()
    restarts = {"restart_marker_blocks": interval} if interval else {}
    Image.fromarray(pixels).save(stream, "jpeg", quality=quality, **restarts)
    return stream.getvalue()
