"""A parser of JPEG headers (ITU-T T.81, annex B) and metadata.

libjpeg ignores metadata. Pillow reads metadata when it opens an image. It refuses the whole image if one segment is
malformed: a JFIF segment without a version, a profile without its number, a resource without a name. So an image with
unusual metadata is left to Pillow, which decides whether the image can be read. `is_usual` checks every segment, and a
second EXIF segment counts as unusual. ``native/jpeg/metadata.c`` implements the same rules in C.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from packer._images.tiff import UNITS, directory_entries
from packer._table import Buffer
from packer.errors import ImageError

_APP0, _APP1, _APP2, _APP13, _APP14 = 0xE0, 0xE1, 0xE2, 0xED, 0xEE
_EXIF = b"Exif\0\0"
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_XMP_ORIENTATION = re.compile(rb"tiff:Orientation(?:=\"|>)([0-9])")
_ORIENTATION, _X_RESOLUTION = 0x0112, 0x011A
_SHORT, _LONG, _RATIONAL = 3, 4, 5
_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}


def is_usual(marker: int, content: bytes) -> bool:
    """Tell whether Pillow is known to accept a segment of metadata.

    Parameters
    ----------
    marker : int
        The second byte of the segment's marker.
    content : bytes
        The bytes after the segment's length.
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
    """Return the orientation in an APP1 segment with EXIF, 0 if unset; None if the segment is not EXIF."""
    return _read_orientation(content[len(_EXIF) :]) if content.startswith(_EXIF) else None


def orientation_of_xmp(content: bytes) -> int | None:
    """Return the orientation in an APP1 segment with XMP, 0 if unset; None if the segment is not XMP."""
    if not content.startswith(_XMP):
        return None
    found = _XMP_ORIENTATION.search(content)
    return int(found[1]) if found else 0


def _is_usual_tiff(tiff: bytes) -> bool:
    """Tell whether the values of a TIFF's first directory lie inside the TIFF, and relevant tags have usual types."""
    order = _ORDERS.get(tiff[:4])
    if order is None:
        return False
    room = len(tiff)
    try:
        for entry in directory_entries(tiff, order):
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
    """Return False if a Photoshop segment ends where the length of a resource's name should be, otherwise True."""
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
    """Return the orientation in the first directory of a TIFF; 0 if there is none, or the TIFF is broken."""
    order = _ORDERS.get(tiff[:4])
    if order is None:
        return 0
    try:
        for entry in directory_entries(tiff, order):
            tag, kind = struct.unpack_from(order + "HH", tiff, entry)
            if tag == _ORIENTATION:
                if kind not in (_SHORT, _LONG):  # SHORT as specified; Pillow takes LONG as well
                    return 1
                (value,) = struct.unpack_from(order + " HI"[kind - 2], tiff, entry + 8)
                return value if 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 0


AFTER_THE_LAST_ROW = "extraneous bytes before marker"
"""libjpeg's warning about data after the last row, or about unused data before a restart marker.

libjpeg continues after this warning, and Pillow ignores it, so the decoded rows equal Pillow's.
"""

IN_SCAN = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
"""Matches a marker that ends a scan; stuffed bytes, restart markers and fill bytes do not match."""

_SOF = frozenset({0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})
_HUFFMAN_DCT = frozenset({0xC0, 0xC1, 0xC2})
_RST0, _EOI, _SOS, _APP1 = 0xD0, 0xD9, 0xDA, 0xE1
_METADATA = frozenset({*range(0xE0, 0xF0), 0xFE})  # APPn, COM
_OTHERS = frozenset({0xC4, 0xCC, 0xDA, 0xDB, 0xDC, 0xDD})  # DHT, DAC, SOS, DQT, DNL, DRI
_KNOWN = _SOF | _METADATA | _OTHERS


class JPEGHeader(NamedTuple):
    """The properties of a JPEG that its header declares.

    Attributes
    ----------
    height, width : int
        Pixels, before any rotation.
    components : int
        1 (grey), 3 (colour) or 4 (CMYK, YCCK), seldom 2.
    precision : int
        Bits per component.
    process : int
        Second byte of the start-of-frame marker: 0xC0 baseline, 0xC2 progressive, …
    orientation : int
        EXIF orientation 1 to 8; 1 if there is none.
    frame : int
        The offset of the start-of-frame segment's parameters (precision, height, width, components).
    sampling : bytes
        Sampling factors of the components: horizontal in the upper four bits, vertical in the lower.
    scan : int
        The offset of the first scan's entropy-coded data.
    usual : bool
        Whether Pillow is known to accept the metadata; see `packer._images.jpeg`.
    """

    height: int
    width: int
    components: int
    precision: int
    process: int
    orientation: int
    frame: int
    sampling: bytes
    scan: int
    usual: bool

    @property
    def mcu_height(self) -> int:
        """The pixel rows of a minimum coded unit.

        With one component, the unit is a single block, whatever the sampling factors.
        """
        return 8 if self.components == 1 else 8 * max(factors & 15 for factors in self.sampling)

    @property
    def sequential(self) -> bool:
        """Whether the image is coded in one pass from top to bottom, so that decoding may stop early."""
        return self.process in (0xC0, 0xC1)

    @property
    def ordinary(self) -> bool:
        """Whether this is an 8-bit Huffman-coded grey or three-component DCT image, which all decoders read alike."""
        return self.usual and self.process in _HUFFMAN_DCT and self.precision == 8 and self.components in (1, 3)


def read_header(data: Buffer) -> JPEGHeader | None:
    """Read the markers up to the first scan; None if the image is not well-formed."""
    try:
        return _header_of(data)
    except ImageError:
        return None


def _header_of(data: Buffer) -> JPEGHeader | None:
    """Read a header like `read_header`, but raise ImageError if its segments are not well-formed."""
    frame: tuple[int, int, int, int, int] | None = None
    frame_at = from_exif = from_xmp = exifs = 0
    usual = True
    for marker, position, end in segments(data):
        if marker not in _KNOWN:
            return None
        if marker == _SOS:
            if frame is None or 0 in frame[:3]:
                return None
            sampling = bytes(data[frame_at + 7 : frame_at + 6 + 3 * frame[2] : 3])
            orientation = from_exif or (from_xmp if 1 <= from_xmp <= 8 else 1)
            return JPEGHeader(*frame, orientation, frame_at, sampling, end, usual and exifs < 2)
        if marker in _SOF:
            if frame is not None or end < position + 10:
                return None
            precision, height, width, components = struct.unpack_from(">BHHB", data, position + 4)
            frame, frame_at = (height, width, components, precision, marker), position + 4
        elif marker in _METADATA:
            content = bytes(data[position + 4 : end])
            usual = usual and is_usual(marker, content)
            if marker == _APP1 and (found := orientation_of_exif(content)) is not None:
                exifs += 1
                from_exif = from_exif or found
            elif marker == _APP1 and (found := orientation_of_xmp(content)) is not None:
                from_xmp = found
    return None


def segments(data: Buffer, at: int = 2) -> Iterator[tuple[int, int, int]]:
    """Yield, for each segment, the second byte of its marker, its begin and its end.

    The last of these segments is the header of the first scan.

    Raises
    ------
    ImageError
        If the data contain anything other than segments.
    """
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        end = at + 2 + (data[at + 2] << 8 | data[at + 3])
        if marker < 0xC0 or _RST0 <= marker <= _EOI or end < at + 4 or end > len(data):
            break
        yield marker, at, end
        if marker == _SOS:
            return
        at = end
    raise ImageError("its header is not that of a JPEG")


def size_of(data: Buffer) -> tuple[int, int] | None:
    """Return height and width of a JPEG, which may be cut after its frame header; None for other images."""
    try:
        for marker, at, end in segments(data):
            if marker in _SOF and end >= at + 9:
                height, width = struct.unpack_from(">HH", data, at + 5)
                return height, width
    except ImageError:
        return None
    return None


def one_scan(data: Buffer, header: JPEGHeader) -> bool:
    """Tell whether the first scan has all components of a sequential image, so that decoders read no other scan."""
    size = 6 + 2 * header.components
    start = b"\xff\xda" + struct.pack(">HB", size, header.components)
    return bytes(data[header.scan - size - 2 :][: len(start)]) == start


def scans(data: Buffer, header: JPEGHeader) -> int:
    """Return the apparent number of scans: the number of start-of-scan markers in the data."""
    return 1 + bytes(data[header.scan :]).count(bytes([0xFF, _SOS]))


def end_of_image(data: Buffer, scan: int) -> int | None:
    """Return the position after the end-of-image marker; None if there is none."""
    if data[-2:] == b"\xff\xd9":
        return len(data)
    # Inside entropy-coded data 0xFF is followed by 0x00 or a restart marker, so the first match is the marker.
    found = bytes(data[scan:]).find(b"\xff\xd9")
    return None if found < 0 else scan + found + 2
