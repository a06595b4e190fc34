"""Images of which Pillow reads fewer bits than there are: 16 bits a sample in colour, floats of 64 bits."""

from __future__ import annotations

import re
from typing import Any

from PIL import Image

from packer._table import Buffer
from packer.errors import ImageError

__all__ = ["require_all_bits"]

_READ = {"I": 32, "F": 32}  # bits that Pillow reads of a sample, by the first letter of the mode; else 8, or 16 of I;16
_SIZ = re.compile(rb"\xff\x4f\xff\x51.{38}", re.DOTALL)  # of a JPEG 2000, up to the parameters of the components
_AV1C = re.compile(rb"av1C\x81.(.)", re.DOTALL)
_HIGH_BITDEPTH = 0x40
_BITS_PER_SAMPLE, _SAMPLE_FORMAT, _UNSIGNED = 258, 339, 1


def require_all_bits(image: Image.Image, data: Buffer) -> None:
    """Raise ImageError where Pillow's pixels of an image have fewer bits than the image.

    Parameters
    ----------
    image : PIL.Image.Image
        Opened, of `data`.
    data : bytes-like
    """
    stored, read = _stored(image, data), 16 if image.mode.startswith("I;16") else _READ.get(image.mode[0], 8)
    if stored > read:
        raise ImageError(
            f"it has {stored} bits a sample, of which Pillow reads {read}: such a {image.format} is decoded as RGB only"
        )
    if image.mode == "I" and image.format == "TIFF" and _tag(image, _SAMPLE_FORMAT, _UNSIGNED) == _UNSIGNED:
        low, _ = image.getextrema()
        if isinstance(low, (int, float)) and low < 0:
            raise ImageError("it has unsigned numbers above 2147483647, which Pillow reads as negative ones")


def _stored(image: Image.Image, data: Buffer) -> int:
    """Return how many bits the samples of an image have, as far as Pillow may read fewer; else 1."""
    match image.format:
        case "PNG":
            return int(data[24])
        case "TIFF":
            return _tag(image, _BITS_PER_SAMPLE, 1)
        case "PPM":
            return _bits_of_ppm(image)
        case "JPEG2000":
            return _bits_of_jpeg2000(data)
        case "AVIF":
            found = _AV1C.search(data)
            return 10 if found is not None and found[1][0] & _HIGH_BITDEPTH else 8
    return 1


def _tag(image: Image.Image, number: int, default: int) -> int:
    """Return the largest value of a tag of a TIFF."""
    values: Any = getattr(image, "tag_v2", {}).get(number, default)
    return max(
        (value for value in (values if isinstance(values, tuple) else (values,)) if isinstance(value, int)),
        default=default,
    )


def _bits_of_ppm(image: Image.Image) -> int:
    for tile in image.tile:  # type: ignore[attr-defined]
        arguments = tile[3]
        if isinstance(arguments, tuple) and len(arguments) == 2 and isinstance(arguments[1], int):
            return arguments[1].bit_length()
    return 1


def _bits_of_jpeg2000(data: Buffer) -> int:
    found = _SIZ.search(data)
    if found is None:
        return 1
    count = int.from_bytes(found[0][40:42], "big")
    parameters = bytes(data[found.end() : found.end() + 3 * count])
    return max((1 + (depth & 0x7F) for depth in parameters[::3]), default=1)
