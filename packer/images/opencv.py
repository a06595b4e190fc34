"""OpenCV's JPEG codec, for machines without libturbojpeg. `ImportError` where it is not installed."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from packer.errors import ImageError
from packer.sample import Buffer

__all__ = ["decode_jpeg", "encode_jpeg"]

_FLAGS = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION


def decode_jpeg(data: Buffer) -> npt.NDArray[np.uint8]:
    """Decode to (height, width, 3) uint8 RGB, not rotated; ImageError on bad data."""
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), _FLAGS)
    except cv2.error as error:
        raise ImageError(str(error)) from error
    if pixels is None:
        raise ImageError("OpenCV cannot decode it")
    return pixels  # type: ignore[return-value]


def encode_jpeg(pixels: npt.NDArray[np.uint8], quality: int) -> bytes:
    """Encode (height, width, 3) uint8 RGB with 4:2:0 subsampling."""
    _, data = cv2.imencode(".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
    return data.tobytes()
