"""Pixels to encoded images."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from PIL import Image

__all__ = ["encode", "encode_tiled"]

_MCU = 16  # pixels of a side, with 4:2:0 subsampling
_MOST_COLUMNS = 16  # of tiles: crops are a share of the image, so larger images need no more


def encode(pixels: npt.NDArray[np.uint8], codec: str, quality: int) -> bytes:
    """Encode (height, width, 3) uint8 RGB pixels.

    Parameters
    ----------
    codec : {"jpeg", "png", "webp", "raw"}
        ``raw``: the pixels themselves, rows from the top. ``png`` is lossless, ``jpeg`` and ``webp`` are not:
        they are what Pillow writes, JPEG with 4:2:0 subsampling.
    quality : int
        1 to 100, for ``jpeg`` and ``webp``.
    """
    if codec == "raw":
        return pixels.tobytes()
    if codec == "jpeg":
        from packer._images import opencv

        return opencv.encode_jpeg(pixels, quality)
    stream = io.BytesIO()
    options = {"png": {"compress_level": 6}, "webp": {"quality": quality, "method": 4}}[codec]
    Image.fromarray(pixels).save(stream, codec, **options)
    return stream.getvalue()


def encode_tiled(pixels: npt.NDArray[np.uint8], quality: int) -> bytes:
    """Encode (height, width, 3) uint8 RGB pixels as a tiled JPEG, which decodes as the one that `encode` makes."""
    from packer._images import opencv
    from packer._images.jpeg import tiles

    mcus = -(-pixels.shape[1] // _MCU)
    interval = mcus // tiles.choose_columns(mcus, _MOST_COLUMNS, 1)
    return tiles.annotate(opencv.encode_jpeg(pixels, quality, interval))
