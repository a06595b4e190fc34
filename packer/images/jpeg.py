"""What the header of a JPEG says, without decoding it (ITU-T T.81, annex B; EXIF 2.32, section 4.5)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from packer.errors import ImageError
from packer.sample import Buffer

__all__ = ["JPEGHeader", "end_of_image", "one_scan", "read_header", "scans", "segments"]

_SOF = frozenset({0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})
_HUFFMAN_DCT = frozenset({0xC0, 0xC1, 0xC2})
_RST0, _SOI, _EOI, _SOS, _APP1 = 0xD0, 0xD8, 0xD9, 0xDA, 0xE1
_ORIENTATION = 0x0112
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_XMP_ORIENTATION = re.compile(rb"tiff:Orientation(?:=\"|>)([0-9])")


class JPEGHeader(NamedTuple):
    """The header of a JPEG.

    Attributes
    ----------
    height, width : int
        Pixels, before any rotation.
    components : int
        1 (grey), 3 (colour) or 4 (CMYK, YCCK), seldom 2.
    precision : int
        Bits a component.
    process : int
        Second byte of the start-of-frame marker: 0xC0 baseline, 0xC2 progressive, …
    orientation : int
        EXIF orientation 1 to 8; 1 where there is none.
    frame : int
        Where the start-of-frame segment's parameters begin (precision, height, width, components).
    sampling : bytes
        Sampling factors of the components: horizontal in the upper four bits, vertical in the lower.
    scan : int
        Where the first scan's entropy-coded data begin.
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

    @property
    def mcu_height(self) -> int:
        """Rows of a minimum coded unit; of one component it is a block, whatever its factors say."""
        return 8 if self.components == 1 else 8 * max(factors & 15 for factors in self.sampling)

    @property
    def sequential(self) -> bool:
        """Whether the image is coded in one pass from top to bottom, so that decoding may stop on the way."""
        return self.process in (0xC0, 0xC1)

    @property
    def ordinary(self) -> bool:
        """Whether this is an 8-bit Huffman-coded grey or three-component DCT image, which every decoder knows."""
        return self.process in _HUFFMAN_DCT and self.precision == 8 and self.components in (1, 3)


def read_header(data: Buffer) -> JPEGHeader | None:
    """Read the markers up to the first scan; None where they are not those of a well-formed image."""
    frame: tuple[int, int, int, int, int] | None = None
    frame_at = orientation = from_xmp = 0
    position, length = 2, len(data)
    while position + 4 <= length:
        if data[position] != 0xFF:
            return None
        marker = data[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
            continue
        size = data[position + 2] << 8 | data[position + 3]
        end = position + 2 + size
        if size < 2 or end > length or marker in (0x00, 0x01, _SOI, _EOI) or 0xD0 <= marker <= 0xD7:
            return None
        if marker == _SOS:
            if frame is None or 0 in frame[:3]:
                return None
            sampling = bytes(data[frame_at + 7 : frame_at + 6 + 3 * frame[2] : 3])
            return JPEGHeader(*frame, orientation or (from_xmp if 1 <= from_xmp <= 8 else 1), frame_at, sampling, end)
        if marker in _SOF:
            if frame is not None or size < 8:
                return None
            precision, height, width, components = struct.unpack_from(">BHHB", data, position + 4)
            frame, frame_at = (height, width, components, precision, marker), position + 4
        elif marker == _APP1 and not orientation and bytes(data[position + 4 : position + 10]) == b"Exif\0\0":
            orientation = _read_orientation(bytes(data[position + 10 : end]))
        elif marker == _APP1 and bytes(data[position + 4 : position + 4 + len(_XMP)]) == _XMP:
            found = _XMP_ORIENTATION.search(bytes(data[position + 4 : end]))
            from_xmp = int(found[1]) if found else 0
        position = end
    return None


def segments(data: Buffer, at: int = 2) -> Iterator[tuple[int, int, int]]:
    """Yield the segments up to the first scan's header, each as its marker's second byte and where it begins and ends.

    Raises
    ------
    ImageError
        If something else than segments stands there.
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
    raise ImageError("its header is not one of a JPEG")


def one_scan(data: Buffer, header: JPEGHeader) -> bool:
    """Tell whether the first scan has all components of a sequential image: its decoder then reads no other."""
    size = 6 + 2 * header.components
    start = b"\xff\xda" + struct.pack(">HB", size, header.components)
    return bytes(data[header.scan - size - 2 :][: len(start)]) == start


def scans(data: Buffer, header: JPEGHeader) -> int:
    """Return how many scans an image seems to have: how often a start-of-scan marker stands in the data."""
    return 1 + bytes(data[header.scan :]).count(bytes([0xFF, _SOS]))


def end_of_image(data: Buffer, scan: int) -> int | None:
    """Return where the image ends, behind its end-of-image marker; None where it has none."""
    if data[-2:] == b"\xff\xd9":
        return len(data)
    # Inside entropy-coded data 0xFF is followed by 0x00 or a restart marker, so the first match is the marker.
    found = bytes(data[scan:]).find(b"\xff\xd9")
    return None if found < 0 else scan + found + 2


def _read_orientation(tiff: bytes) -> int:
    """Return the orientation in the first directory of a TIFF; 1 where there is none, or the TIFF is broken."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        return 0
    try:
        (directory,) = struct.unpack_from(order + "I", tiff, 4)
        (count,) = struct.unpack_from(order + "H", tiff, directory)
        for entry in range(directory + 2, directory + 2 + 12 * count, 12):
            tag, kind = struct.unpack_from(order + "HH", tiff, entry)
            if tag == _ORIENTATION:
                if kind not in (3, 4):  # SHORT as specified; Pillow takes LONG as well
                    return 1
                (value,) = struct.unpack_from(order + " HI"[kind - 2], tiff, entry + 8)
                return value if 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 0
