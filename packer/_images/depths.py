"""How many bands an image has, of how many bits; and images of which Pillow reads fewer than there are."""

from __future__ import annotations

import re
from typing import NamedTuple

from PIL import Image

from packer._images import tiff
from packer._table import Buffer
from packer.errors import ImageError

__all__ = ["Depth", "depth_of", "is_whole", "require_all_bits", "require_few_bands", "unreadable"]

_READ = {"I": 32, "F": 32}  # bits that Pillow reads of a sample, by the first letter of the mode; else 8, or 16 of I;16
_SIZ = re.compile(rb"\xff\x4f\xff\x51.{38}", re.DOTALL)  # of a JPEG 2000, up to the parameters of the components
_AV1C = re.compile(rb"av1C\x81.(.)", re.DOTALL)
_HIGH_BITDEPTH = 0x40
_BYTE = 8
_MOST_BANDS = 6  # of a TIFF that Pillow opens; of others it complains to whoever listens to its log


class Depth(NamedTuple):
    """What a pixel of a file has.

    Attributes
    ----------
    bands : int
        How many numbers; those of a palette's index are 1.
    bits : int
        Of the largest number.
    kind : {"u", "i", "f"}
        The kind of the numbers, as NumPy calls kinds.
    hidden : int
        How many of the bands Pillow leaves out.
    """

    bands: int = 3
    bits: int = 8
    kind: str = "u"
    hidden: int = 0

    @property
    def is_deep(self) -> bool:
        """Whether the numbers are others than levels of 0 to 255."""
        return self.bits > _BYTE or self.kind != "u"

    @property
    def excess(self) -> str:
        """What 8-bit RGB does not hold of an image, in words; empty where it holds all but alpha."""
        what = {"u": "", "i": "signed numbers of ", "f": "floats of "}[self.kind]
        bits = f"{what}{self.bits} bits a channel" if self.is_deep else ""
        if not self.hidden:
            return bits
        return f"{self.bands} bands" + (f" ({bits})" if bits else "")


def depth_of(image: Image.Image, data: Buffer) -> Depth:
    """Return what a pixel of an image has that Pillow opened and did not load yet.

    Parameters
    ----------
    image : PIL.Image.Image
        Opened, of `data`.
    data : bytes-like
    """
    bands, bits, kind = len(image.getbands()), _BYTE, "u"
    directory = tiff.read(data) if image.format == "TIFF" else None
    if directory is not None:
        return Depth(directory.bands, directory.bits, directory.kind, max(0, directory.bands - bands))
    if image.mode == "F":
        bits, kind = 32, "f"
    elif image.format == "PNG":
        bits = int(data[24])
    elif image.mode.startswith("I"):
        bits = 16
    elif image.format == "PPM":
        bits = _bits_of_ppm(image)
    elif image.format == "JPEG2000":
        bits = max(_bits_of_jpeg2000(data), default=_BYTE)
    elif image.format == "AVIF":
        found = _AV1C.search(data)
        bits = 10 if found is not None and found[1][0] & _HIGH_BITDEPTH else _BYTE
    return Depth(bands, bits, kind)


def is_whole(image: Image.Image, depth: Depth) -> bool:
    """Tell whether Pillow's numbers of an image are all those that there are, with all their bits."""
    return not depth.hidden and depth.bits <= _read(image)


def require_all_bits(image: Image.Image, depth: Depth) -> None:
    """Raise ImageError where Pillow's pixels of an image have fewer bits or bands than the image, or other numbers."""
    if depth.hidden:
        raise ImageError(
            f"it has {depth.bands} bands, of which Pillow reads {depth.bands - depth.hidden}: all of them are read of "
            "TIFFs in grey, RGB or CMYK of 8, 16 or 32 bits that are not compressed as JPEG is. "
            "mode='RGB' shows such an image as ImageFolder does"
        )
    if not is_whole(image, depth):
        raise ImageError(
            f"it has {depth.bits} bits a sample, of which Pillow reads {_read(image)}: such a {image.format} is "
            "decoded as RGB only"
        )
    if image.mode == "L" and depth.kind == "i":
        raise ImageError("it has signed numbers of 8 bits, of which Pillow reads negative ones as 128 to 255")
    if image.mode == "I" and image.format == "TIFF" and depth.kind == "u":
        low, _ = image.getextrema()
        if isinstance(low, (int, float)) and low < 0:
            raise ImageError("it has unsigned numbers above 2147483647, which Pillow reads as negative ones")


def unreadable(data: Buffer) -> str | None:
    """Say of which bands and bits an image is that Pillow cannot read; None where that is not the reason."""
    components = _bits_of_jpeg2000(data)
    if len(components) > 4:
        return _not_read("JPEG 2000", Depth(len(components), max(components)))
    directory = tiff.read(data)
    if directory is None or not {tiff.WIDTH, tiff.HEIGHT} <= directory.tags.keys():
        return None
    depth = Depth(directory.bands, directory.bits, directory.kind)
    return _not_read("TIFF", depth) if depth.is_deep or depth.bands not in (1, 3) else None


def require_few_bands(data: Buffer) -> None:
    """Raise ImageError of a TIFF with more bands than Pillow opens, before it writes a line to its log."""
    directory = tiff.read(data)
    if directory is not None and directory.seen_by_pillow > _MOST_BANDS:
        raise ImageError(str(unreadable(data)))


def _not_read(format: str, depth: Depth) -> str:
    what = {"u": "", "i": "signed numbers of ", "f": "floats of "}[depth.kind]
    bands = f"{depth.bands} band{'s' * (depth.bands != 1)} (channel{'s' * (depth.bands != 1)})"
    remedy = "Save it with numbers of 8 or 16 bits, or floats of 32"
    if depth.bands > 1:
        remedy = "Make an image of one, three or four bands of it"
    return (
        f"it is a {format} of {bands} of {what}{depth.bits} bits, which Pillow does not read. {remedy}; all that it "
        "has can go along as a field: of numbers (`array`), or of the file's bytes (`bytes`)"
    )


def _read(image: Image.Image) -> int:
    return 16 if image.mode.startswith("I;16") else _READ.get(image.mode[0], _BYTE)


def _bits_of_ppm(image: Image.Image) -> int:
    for tile in image.tile:  # type: ignore[attr-defined]
        arguments = tile[3]
        if isinstance(arguments, tuple) and len(arguments) == 2 and isinstance(arguments[1], int):
            return arguments[1].bit_length()
    return 1


def _bits_of_jpeg2000(data: Buffer) -> list[int]:
    """Return the bits of each component of a JPEG 2000; nothing of other files."""
    head = bytes(data[:12])
    if not head.startswith((b"\xff\x4f\xff\x51", b"\0\0\0\x0cjP  \r\n\x87\n")):
        return []
    found = _SIZ.search(data)
    if found is None:
        return []
    count = int.from_bytes(found[0][40:42], "big")
    parameters = bytes(data[found.end() : found.end() + 3 * count])
    return [1 + (depth & 0x7F) for depth in parameters[::3]]
