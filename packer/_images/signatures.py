"""Signatures and suffixes of the supported image formats.

The formats are `packer._images.pillow.FORMATS`. The signatures are stricter than Pillow's: Pillow at first treats any
text that begins with ``P1`` or ``BM`` as an image.
"""

from __future__ import annotations

import os
import re
from typing import BinaryIO

SUFFIXES = frozenset(
    [
        *(".bmp", ".dib", ".gif", ".ico", ".png", ".apng", ".webp", ".tif", ".tiff"),
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".avif", ".avifs"),
        *(".jp2", ".j2k", ".jpc", ".jpf", ".jpx", ".j2c"),
        *(".pbm", ".pgm", ".ppm", ".pnm", ".pfm", ".tga", ".icb", ".vda", ".vst"),
    ]
)
"""The suffixes of files in these formats, as Pillow knows them."""

_HEAD = 64  # bytes; an AVIF lists its brands there
_FOOT = b"TRUEVISION-XFILE.\0"
_BITMAP = rb"(\x0c\0\0\0|[\x28\x34\x38\x40\x6c\x7c]\0\0\0)"  # the known lengths of the header

_SIGNATURES = (
    rb"BM.{12}" + _BITMAP,  # BMP
    rb"[\x28\x34\x38\x40\x6c\x7c]\0\0\0.{8}\x01\0[\x01\x02\x04\x08\x10\x18\x20]\0",  # DIB
    rb"GIF8[79]a",
    rb"\xff\xd8\xff",  # JPEG
    rb"P([1-6f]|0CMYK|yP|yRGBA|yCMYK)[ \t\r\n#]",  # PPM
    rb"\x89PNG\r\n\x1a\n",
    rb".{4}ftyp(avif|avis|(mif1|msf1).{0,40}avi[fs])",  # AVIF
    rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n",  # JPEG 2000
    rb"\0\0\x01\0([^\0].|\0[^\0])",  # ICO
    rb"II\*\0|MM\0\*|MM\*\0|II\0\*|MM\0\+|II\+\0",  # TIFF
    rb"RIFF.{4}WEBP",
)
_SIGNATURE = re.compile(b"|".join(_SIGNATURES), re.DOTALL)


def is_image(file: BinaryIO) -> bool:
    """Tell whether an open file begins like an image of one of the formats, or ends like a TGA of version 2.

    A TGA of version 1 has no signature.
    """
    head = file.read(_HEAD)
    if _SIGNATURE.match(head):
        return True
    if file.seek(0, os.SEEK_END) < len(_FOOT):
        return False
    file.seek(-len(_FOOT), os.SEEK_END)
    return file.read(len(_FOOT)) == _FOOT
