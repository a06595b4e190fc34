"""The codecs of samples, the types of labels, and the suffixes of image files.

A new codec needs an entry in `CODECS` and an encoder in `packer._images.encode`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Codec:
    """An encoding for the images of a pack.

    Attributes
    ----------
    name : str
        The name of the codec in the manifest and in ``--codec``.
    suffixes : tuple of str
        The suffixes of image files with this encoding, in lower case. If the name of a sample has none of these
        suffixes, `packer.export` adds the first one to the file's name. If `suffixes` is empty, exported files have the
        names of the samples.
    lossy : bool
        True if encoding changes pixels; then the codec has a quality setting.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    lossy: bool = False


CODECS = {
    codec.name: codec
    for codec in [
        Codec("keep"),  # the bytes of the source's file, unchanged
        Codec("jpeg", (".jpg", ".jpeg"), lossy=True),
        Codec("png", (".png",)),
        Codec("webp", (".webp",), lossy=True),
        Codec("bmp", (".bmp",)),  # 24 bits a pixel, not compressed: any program opens it, and decoding takes least work
        Codec("raw", (".png",)),  # uint8 RGB pixels, from the top row to the bottom row; exported as PNG
    ]
}

LOSSY = tuple(codec.name for codec in CODECS.values() if codec.lossy)
"""The names of the codecs that have a quality setting."""

QUALITY = 90
"""The default quality of lossy codecs."""

TO_8_BIT = ("clip", "type", "file")
"""Ways to convert an image of more than 8 bits per channel to 8-bit RGB; see `packer._images.depth.decode_to_8_bit`."""

RESIZE_MODES = ("short", "long", "exact", "crop", "pad")
"""Ways to fit an image to a size, the default first; see `ResizeSpec`."""

INTERPOLATIONS = ("bilinear", "bicubic")
"""Interpolations, all anti-aliased, the default first. Records of crops contain an index into this tuple."""

MAX_PIXELS = 2 * 89_478_485
"""The largest number of pixels of an image: `PIL.Image.open` refuses more pixels as a decompression bomb."""

LABEL_TYPES: Mapping[str, str] = {"class": "<i8", "int": "<i8", "float": "<f8"}
"""The types of labels, by their names in the manifest and in ``--label-type``, with the dtype of the table's column.

``class``: an index into the manifest's `classes`, or `UNLABELED`. ``int`` and ``float``: a number without classes.
"""

UNLABELED = -1
"""The label of a sample without a class."""


def largest_id(samples: int) -> int:
    """Return the largest number that can be a class id in a list of samples; larger numbers have another meaning."""
    return 1000 + 10 * samples


def are_few(different: int, samples: int) -> bool:
    """Tell whether labels of another kind than those of most samples are so few that they are mistakes."""
    return 2 * different < samples and different <= max(1, samples // 10)


IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""The suffixes by which ImageFolder recognises images: IMG_EXTENSIONS in torchvision/datasets/folder.py."""
