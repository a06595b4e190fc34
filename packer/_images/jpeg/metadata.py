"""The metadata of a JPEG: the orientation in it, and whether it is such as no decoder stumbles over.

libjpeg passes over metadata. Pillow looks into them when it opens an image, and refuses the whole image where it
stumbles over one of them: a JFIF segment without a version, a profile without its number, a resource without a name.
An image whose metadata are not the usual ones is left to Pillow, which decides whether the image can be read.
`packer._images.jpeg.header` asks `is_usual` of every segment, and finds a second EXIF segment unusual. In C the same
rules are those of ``native/jpeg/metadata.c``.
"""

from __future__ import annotations

import re
import struct

from packer._images.directories import UNITS

__all__ = ["is_usual", "orientation_of_exif", "orientation_of_xmp"]

_APP0, _APP1, _APP2, _APP13, _APP14 = 0xE0, 0xE1, 0xE2, 0xED, 0xEE
_EXIF = b"Exif\0\0"
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_XMP_ORIENTATION = re.compile(rb"tiff:Orientation(?:=\"|>)([0-9])")
_ORIENTATION, _X_RESOLUTION = 0x0112, 0x011A
_SHORT, _LONG, _RATIONAL = 3, 4, 5
_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}


def is_usual(marker: int, content: bytes) -> bool:
    """Tell whether a segment is such as Pillow is known to read.

    Parameters
    ----------
    marker : int
        The second byte of the segment's marker.
    content : bytes
        What follows the segment's length.
    """
    if marker == _APP0 and content.startswith(b"JFIF"):
        return len(content) >= 14 and content[4] == 0
    if marker == _APP1 and content.startswith(_EXIF):
        return _is_usual_tiff(content[len(_EXIF) :])
    if marker == _APP2 and content.startswith(b"ICC_PROFILE\0"):
        return len(content) >= 14
    if marker == _APP13 and content.startswith(b"Photoshop 3.0\0"):
        return _is_usual_photoshop(content)
    if marker == _APP14 and content.startswith(b"Adobe"):
        return len(content) >= 12
    return True


def orientation_of_exif(content: bytes) -> int | None:
    """Return the orientation that an APP1 segment says, 0 where it says none; None where it holds no EXIF."""
    return _read_orientation(content[len(_EXIF) :]) if content.startswith(_EXIF) else None


def orientation_of_xmp(content: bytes) -> int | None:
    """Return the orientation that an APP1 segment says, 0 where it says none; None where it holds no XMP."""
    if not content.startswith(_XMP):
        return None
    found = _XMP_ORIENTATION.search(content)
    return int(found[1]) if found else 0


def _is_usual_tiff(tiff: bytes) -> bool:
    """Tell whether the values of the first directory lie inside of a TIFF, and those that matter are of usual types."""
    order = _ORDERS.get(tiff[:4])
    if order is None:
        return False
    room = len(tiff)
    try:
        (directory,) = struct.unpack_from(order + "I", tiff, 4)
        (count,) = struct.unpack_from(order + "H", tiff, directory)
        for entry in range(directory + 2, directory + 2 + 12 * count, 12):
            tag, kind, values, begin = struct.unpack_from(order + "HHII", tiff, entry)
            size = values * UNITS.get(kind, 0)
            if size > 4:
                room -= size
                if room < 0 or begin + size > len(tiff):
                    return False
            if tag == _ORIENTATION and (kind not in (_SHORT, _LONG) or values != 1):
                return False
            if tag == _X_RESOLUTION and (kind != _RATIONAL or values != 1):
                return False
    except struct.error:
        return False
    return True


def _is_usual_photoshop(content: bytes) -> bool:
    """Tell whether no resource of a Photoshop segment ends before the length of its name."""
    at = 14
    while content[at : at + 4] == b"8BIM":
        at += 6  # and its number
        if at == len(content):
            return False
        if at > len(content):
            break
        at += 1 + content[at]
        at += at & 1
        if at + 4 > len(content):
            break
        at += 4 + int.from_bytes(content[at : at + 4], "big")
        at += at & 1
    return True


def _read_orientation(tiff: bytes) -> int:
    """Return the orientation in the first directory of a TIFF; 0 where there is none, or the TIFF is broken."""
    order = _ORDERS.get(tiff[:4])
    if order is None:
        return 0
    try:
        (directory,) = struct.unpack_from(order + "I", tiff, 4)
        (count,) = struct.unpack_from(order + "H", tiff, directory)
        for entry in range(directory + 2, directory + 2 + 12 * count, 12):
            tag, kind = struct.unpack_from(order + "HH", tiff, entry)
            if tag == _ORIENTATION:
                if kind not in (_SHORT, _LONG):  # SHORT as specified; Pillow takes LONG as well
                    return 1
                (value,) = struct.unpack_from(order + " HI"[kind - 2], tiff, entry + 8)
                return value if 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 0
