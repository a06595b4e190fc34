"""OpenCV: a faster JPEG encoder, mirroring, and an alternative decoder. `ImportError` if it is not installed."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from packer._images import jpeg
from packer._images.geometry import scratch
from packer._table import Buffer
from packer.errors import ImageError

_BETWEEN_SCANS = frozenset({0xC4, 0xDA, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0)})  # DHT, SOS, DQT, DRI, COM, APPn

_FLAGS = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION


def decode_jpeg(data: Buffer) -> npt.NDArray[np.uint8]:
    """Decode to (height, width, 3) uint8 RGB, not rotated; ImageError on bad data."""
    if not _is_whole(data):
        raise ImageError("a marker in the middle of the data is out of place")
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), _FLAGS)
    except cv2.error as error:
        raise ImageError(str(error)) from error
    if pixels is None:
        raise ImageError("OpenCV cannot decode it")
    return pixels  # type: ignore[return-value]


def encode_jpeg(pixels: npt.NDArray[np.uint8], quality: int, interval: int) -> bytes:
    """Encode (height, width, 3) uint8 RGB with 4:2:0 subsampling: the same bytes as from Pillow, in less time.

    With an `interval`, there is a restart marker after every `interval` MCUs.
    """
    options = [cv2.IMWRITE_JPEG_QUALITY, quality]
    if interval:
        options += [cv2.IMWRITE_JPEG_RST_INTERVAL, interval]
    bgr = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR, dst=scratch.image("BGR", *pixels.shape[:2]))
    written, data = cv2.imencode(".jpg", bgr, options)
    if not written:
        raise ImageError("OpenCV cannot encode it as JPEG")
    return data.tobytes()


def mirror(pixels: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]) -> None:
    """Write (height, width, 3) uint8 pixels into `out`, mirrored left to right."""
    cv2.flip(pixels, 1, dst=out)


def _is_whole(data: Buffer) -> bool:
    """Tell whether the data between scans are whole segments: OpenCV skips other data, which libjpeg refuses.

    If an image is coded in one pass, bytes after its scan count as damage, because they are seldom another scan.
    """
    header = jpeg.read_header(data)
    position = header.scan if header is not None else len(data)
    while (found := jpeg.IN_SCAN.search(data, position)) is not None:
        marker, end = data[found.end() - 1], found.end()
        if marker == 0xD9:
            return True
        if marker not in _BETWEEN_SCANS or header is None or header.sequential or end + 2 > len(data):
            return False
        position = end + (data[end] << 8 | data[end + 1])
    return False
