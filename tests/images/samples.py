"""Encoded images for the tests of `packer._images`, and Pillow's pixels of them."""

from __future__ import annotations

import functools
import io
import struct
import zlib
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from PIL import Image

from packer._table import Buffer
from packer.testing.photos import draw_photo

SUBSAMPLINGS = ("4:4:4", "4:2:2", "4:2:0", "4:4:0", "4:1:1", "grey")
_NOT_PILLOWS = {  # Pillow writes 4:2:0 when asked for 4:1:1
    "4:4:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "4:1:1": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}
SIZES = ((48, 64), (37, 53), (1, 1), (1, 17), (17, 1), (15, 9), (2, 33))
VARIANTS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "progressive": {"progressive": True},
    "optimised": {"optimize": True},
    "restarts": {"restart_marker_blocks": 1},
    "coarse": {"quality": 10},
}


@functools.cache
def photo(height: int, width: int) -> npt.NDArray[np.uint8]:
    """Draw a photo; read-only."""
    pixels = draw_photo(np.random.default_rng(height * 1000 + width), max(height, 2), max(width, 2))[:height, :width]
    pixels.flags.writeable = False
    return pixels


def encoded(pixels: npt.NDArray[Any] | Image.Image, kind: str, **options: Any) -> bytes:
    """Encode with Pillow."""
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


@functools.cache
def jpeg(subsampling: str = "4:2:0", variant: str = "baseline", size: tuple[int, int] = (48, 64)) -> bytes:
    """Draw a photo and encode it as JPEG."""
    image = Image.fromarray(photo(*size))
    options = VARIANTS[variant]
    if subsampling == "grey":
        return encoded(image.convert("L"), "JPEG", **options)
    if subsampling not in _NOT_PILLOWS:
        return encoded(image, "JPEG", subsampling=subsampling, **options)
    settings = [
        *(cv2.IMWRITE_JPEG_SAMPLING_FACTOR, _NOT_PILLOWS[subsampling]),
        *(cv2.IMWRITE_JPEG_QUALITY, options.get("quality", 75)),
        *(cv2.IMWRITE_JPEG_PROGRESSIVE, int("progressive" in options)),
        *(cv2.IMWRITE_JPEG_OPTIMIZE, int("optimize" in options)),
        *(cv2.IMWRITE_JPEG_RST_INTERVAL, options.get("restart_marker_blocks", 0)),
    ]
    written, data = cv2.imencode(".jpg", np.ascontiguousarray(photo(*size)[..., ::-1]), settings)
    assert written
    return data.tobytes()


def oriented(pixels: npt.NDArray[Any], orientation: int, kind: str = "JPEG") -> bytes:
    """Encode with an EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(pixels, kind, exif=exif)


def tiff_orientation(order: str, kind: int, value: int) -> bytes:
    """Return the EXIF payload of an APP1 segment with the orientation as TIFF type `kind`."""
    magic = {"<": b"II*\0", ">": b"MM\0*"}[order]
    field = struct.pack(order + {1: "B3x", 3: "H2x", 4: "I"}[kind], value)
    return b"Exif\0\0" + magic + struct.pack(order + "IHHHI", 8, 1, 0x0112, kind, 1) + field + struct.pack("I", 0)


def segment(marker: int, payload: bytes) -> bytes:
    """Return a marker segment of a JPEG."""
    return struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload


def png_chunk(name: bytes, body: bytes) -> bytes:
    """Return a PNG chunk with a valid CRC."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def pillow_pixels(data: Buffer) -> npt.NDArray[np.uint8] | None:
    """Return the pixels that ImageFolder returns, or None if Pillow cannot read the image."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(image.convert("RGB"))
    except Exception:  # each of Pillow's plugins has errors of its own
        return None


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Cut, flip bits of, overwrite, shorten or lengthen `data`."""
    place = draw(st.integers(0, len(data) - 1))
    match draw(st.sampled_from(("cut", "flip", "overwrite", "remove", "insert"))):
        case "cut":
            return data[:place]
        case "flip":
            return data[:place] + bytes([data[place] ^ 1 << draw(st.integers(0, 7))]) + data[place + 1 :]
        case "overwrite":
            junk = draw(st.binary(min_size=1, max_size=16))
            return data[:place] + junk + data[place + len(junk) :]
        case "remove":
            return data[:place] + data[place + draw(st.integers(1, 40)) :]
        case _:
            return data[:place] + draw(st.binary(min_size=1, max_size=40)) + data[place:]
