"""Plain BMPs: 24 bits a pixel, not compressed, as most programs write them. Pillow reads all others.

A header of 54 bytes, and then the rows from the bottom, each filled up to a multiple of 4 bytes; a pixel is blue, green
and red. (Microsoft: BITMAPFILEHEADER, BITMAPINFOHEADER.)
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer._table import Buffer

__all__ = ["SIGNATURE", "PlainBMP", "read"]

SIGNATURE = b"BM"

_HEADER = struct.Struct("<2s4x4xIIiiHHI")
_SIZE = 54  # bytes of both headers
_INFO = 40  # bytes of the second one
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
        for channel in range(3):  # three times as fast as to copy them in reverse
            pixels[..., channel] = part[:, 2 - channel :: 3]
        return pixels


PixelArray = npt.NDArray[np.uint8]


def read(data: Buffer) -> PlainBMP | None:
    """Read the header of a BMP; None where the file is no plain one, or is cut short."""
    if len(data) < _SIZE or bytes(data[:2]) != SIGNATURE:
        return None
    _, begin, info, width, height, _, bits, compression = _HEADER.unpack_from(data)
    if (begin, info, bits, compression) != (_SIZE, _INFO, 24, _UNCOMPRESSED) or width < 1 or height < 1:
        return None
    return PlainBMP(data, height, width) if len(data) >= _SIZE + height * _row(width) else None


def _row(width: int) -> int:
    """Return how many bytes a row has."""
    return (3 * width + 3) // 4 * 4
