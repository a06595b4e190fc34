"""Inspection of an image file by its content: type, size, and completeness.

JPEG, PNG, WebP and plain BMP are recognised by walking their structure, which takes a few microseconds. Other and
unusual files are opened and decoded by Pillow, the reference, if their format is one of `pillow.FORMATS`. A file is
accepted if Pillow can read it; otherwise it is reported.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from packer._codecs import MAX_PIXELS
from packer._images import jpeg, pillow, png, tiff
from packer._images.pillow import opened, orientation, require_pixels
from packer._images.tiff import Depth, depth_of, pictures_in, require_modest
from packer._table import Buffer
from packer.errors import ImageError, ImageTooLargeError

CLIPPED = "16 bits or floats a pixel: white or black when read as 8-bit RGB"
DEEP = "more than 8 bits a channel, read as 8"
SIGNED = "signed numbers of 8 bits, of which negative ones are read as 128 to 255"
ROTATED = "EXIF-rotated"
"""Findings that other modules refer to."""

_PAGES = "animated or many pages: the first is used"
_DETAILS = re.compile(r" at |(?<![A-Za-z0-9])[0-9]")  # begins the details in a message of libtiff, which are cut off
_NOT_SHOWN = re.compile(r"[0-9]+ bands, of which [0-9]+ (?:is|are) read as RGB")

_BYTE = 8
_SCANS = 16  # of an image of `MAX_PIXELS`; a smaller one may have more, because each is a pass over all pixels

_TURNED = (5, 6, 7, 8)


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """The properties of an image file.

    Attributes
    ----------
    kind : str
        The type in lower case: ``"jpeg"``, ``"png"``, ``"webp"``, or Pillow's name for the format.
    height, width : int
        Pixels as stored, before any rotation.
    orientation : int
        EXIF orientation, 1 to 8.
    findings : tuple of str
        Unusual properties, in words; a conversion's summary has the number of images with each.
    plain : bool
        Whether any decoder may be used; if not, only Pillow decodes the file.
    depth : Depth
        How many numbers a pixel has, and of how many bits.
    header : JPEGHeader, optional
        The header if the file is a JPEG and the header is small enough to keep; a decoder then need not read it again.
    """

    kind: str
    height: int
    width: int
    orientation: int = 1
    findings: tuple[str, ...] = ()
    plain: bool = True
    depth: Depth = field(default_factory=Depth)
    header: jpeg.JPEGHeader | None = field(default=None, compare=False, repr=False)

    def size_shown(self, exif: str) -> tuple[int, int]:
        """Return height and width of the decoded image, swapped if ``exif == "apply"`` turns it by 90 degrees."""
        turned = exif == "apply" and self.orientation in _TURNED
        return (self.width, self.height) if turned else (self.height, self.width)


def inspect(data: Buffer, max_pixels: int = MAX_PIXELS) -> ImageInfo:
    """Return the properties of an image file.

    Parameters
    ----------
    data : bytes-like
        The whole file.
    max_pixels : int
        Images whose headers declare more pixels are refused.

    Raises
    ------
    ImageTooLargeError
        If the header declares more than `max_pixels`.
    ImageError
        If no decoder, Pillow included, can read the image.
    """
    head = bytes(data[:16])
    info = None
    if head.startswith(b"\xff\xd8\xff"):
        info = _inspect_jpeg(data, max_pixels)
    elif head.startswith(png.SIGNATURE):
        info = _inspect_png(data)
    elif (plain := pillow.read_bmp(data)) is not None:
        info = ImageInfo("bmp", plain.height, plain.width)
    elif head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        info = _inspect_webp(data)
    if info is None or (info.height * info.width <= max_pixels and not info.plain):
        return _inspect_with_pillow(data, max_pixels, info)
    require_pixels(info.height, info.width, max_pixels)
    return info


def require_affordable(header: jpeg.JPEGHeader, data: Buffer, max_pixels: int) -> None:
    """Raise ImageTooLargeError if a JPEG has more pixels than allowed, or too many scans for that number of pixels."""
    require_pixels(header.height, header.width, max_pixels)
    if header.sequential and jpeg.one_scan(data, header):
        return
    scans = jpeg.scans(data, header)
    if header.height * header.width * scans > max_pixels * _SCANS:
        raise ImageTooLargeError(f"{scans} passes over {header.width} x {header.height} pixels exceed the limit")


def _inspect_jpeg(data: Buffer, max_pixels: int) -> ImageInfo | None:
    header = jpeg.read_header(data)
    if header is None:
        return None
    require_affordable(header, data, max_pixels)
    end = jpeg.end_of_image(data, header.scan)
    findings = []
    if header.components == 4:
        findings.append("CMYK")
    if header.orientation != 1:
        findings.append(ROTATED)
    if end is not None and end < len(data):
        findings.append("bytes after its end")
    if b"MPF\0" in bytes(memoryview(data)[: header.scan]) and pictures_in(data) > 1:
        findings.append(_PAGES)
    plain = end is not None and header.usual and (header.ordinary or header.components == 4)
    return ImageInfo("jpeg", header.height, header.width, header.orientation, tuple(findings), plain, header=header)


def _inspect_png(data: Buffer) -> ImageInfo | None:
    found = png.read(data)
    if found is None:
        return None
    findings = [DEEP] if found.depth == 16 else []
    if found.animated:
        findings.append(_PAGES)
    return ImageInfo("png", found.height, found.width, 1, tuple(findings), found.plain)


def _inspect_webp(data: Buffer) -> ImageInfo | None:
    """Inspect a complete WebP in a simple layout, lossy or lossless; None for others, which Pillow inspects."""
    if len(data) < 30 or struct.unpack_from("<I", data, 4)[0] + 8 != len(data):
        return None
    kind = bytes(data[12:16])
    if kind == b"VP8 " and bytes(data[23:26]) == b"\x9d\x01\x2a":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    elif kind == b"VP8L" and data[20] == 0x2F:
        bits = struct.unpack_from("<I", data, 21)[0]
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    else:
        return None
    return ImageInfo("webp", height, width)


def _inspect_with_pillow(data: Buffer, max_pixels: int, seen: ImageInfo | None) -> ImageInfo:
    """Inspect an image by opening and decoding it with Pillow."""
    with tiff.listening() as complaints, opened(data, max_pixels) as image:
        width, height = image.size
        depth = depth_of(image, data)
        image.convert("RGB")  # before the orientation: a TIFF is turned when it is loaded
        findings = list(seen.findings) if seen else []
        if image.mode in ("CMYK", "YCCK") and "CMYK" not in findings:
            findings.append("CMYK")
        if image.mode.startswith(("I", "F")):
            findings = [note for note in findings if note != DEEP]
            findings.append(CLIPPED if _is_clipped(image) else DEEP)
        elif DEEP not in findings and depth.is_deep:
            findings.append(DEEP if depth.bits > _BYTE else SIGNED)
        if depth.hidden:
            findings.append(_not_shown(depth))
        turn = _turn(image)
        kind = (image.format or "unknown").lower()
        if _PAGES not in findings and _has_second_page(image, data):
            findings.append(_PAGES)
        if turn != 1 and ROTATED not in findings:
            findings.append(ROTATED)
        if complaints:
            findings.append(f"damaged, and read as far as possible: {_DETAILS.split(complaints[0])[0].strip()}")
        header = seen.header if seen else None
        return ImageInfo(kind, height, width, turn, tuple(findings), False, depth, header)


def _not_shown(depth: Depth) -> str:
    shown = depth.bands - depth.hidden
    return f"{depth.bands} bands, of which {shown} {'is' if shown == 1 else 'are'} read as RGB"


def bands_not_shown(finding: str) -> bool:
    """Tell whether a finding reports bands that are lost when the image is read as RGB."""
    return _NOT_SHOWN.fullmatch(finding) is not None


def is_beyond_8_bit(finding: str) -> bool:
    """Tell whether a finding reports numbers or bands that 8-bit RGB cannot represent."""
    return finding in (CLIPPED, DEEP, SIGNED) or bands_not_shown(finding)


def _is_clipped(image: Image.Image) -> bool:
    """Tell whether conversion to RGB ruins an image of mode I or F.

    Pillow clips the numbers to 8 bits, so floats from 0.0 to 1.0 turn black.
    """
    values = np.asarray(image)
    low, high = values.min(), values.max()
    black = image.mode == "F" and 0 < high <= 1
    return bool(black or not (low >= 0 and high <= 255))  # also if a value is NaN


def _has_second_page(image: Image.Image, data: Buffer) -> bool:
    """Tell whether an image has a second page, and leave the image at that page. Counting all pages may take hours."""
    if image.format == "MPO":
        # The index of an MPO has the number of pages. Seeking would read the metadata of another JPEG.
        return getattr(image, "n_frames", 1) > 1
    try:
        require_modest(data, pages=2)
        image.seek(1)
    except Exception:  # EOFError, or a broken chain of pages, whose first one may be whole
        return False
    return True


def _turn(image: Image.Image) -> int:
    try:
        turn = orientation(image)
    except ImageError:
        raise
    except Exception:  # broken metadata
        return 1
    return turn if turn in range(1, 9) else 1
