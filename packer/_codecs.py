"""The codecs of samples, the types of labels, and the suffixes of image files.

A new codec needs a row here and an encoder in `packer._images.encode`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Codec:
    """The encoding of the samples of a pack.

    Attributes
    ----------
    name : str
        The name of the codec in the manifest and in ``--codec``.
    suffixes : tuple of str
        The suffixes of files with such samples, in lower case. `packer.export` uses the first one for samples whose
        names have another suffix. If empty, exported files keep the names of the samples.
    lossy : bool
        Whether encoding changes pixels, so that the codec has a quality.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    lossy: bool = False


CODECS = {
    codec.name: codec
    for codec in [
        Codec("keep"),  # the bytes of the source's file
        Codec("jpeg", (".jpg", ".jpeg"), lossy=True),
        Codec("png", (".png",)),
        Codec("webp", (".webp",), lossy=True),
        Codec("bmp", (".bmp",)),  # 24 bits a pixel, not compressed: the least work of all that any program opens
        Codec("raw", (".png",)),  # pixels: uint8 RGB, rows from the top; exported as PNG
    ]
}

LOSSY = tuple(codec.name for codec in CODECS.values() if codec.lossy)
"""The codecs that have a quality."""

QUALITY = 90
"""The quality of these codecs, unless the user decides."""

TO_8_BIT = ("clip", "type", "file")
"""The ways to store an image of more than 8 bits a channel as 8-bit RGB; see `packer._images.depth.decode_to_8_bit`."""

RESIZE_MODES = ("short", "long", "exact", "crop", "pad")
"""Ways to fit an image to a size, the default first; see `ResizeSpec`."""

INTERPOLATIONS = ("bilinear", "bicubic")
"""Interpolations, all anti-aliased, the default first. Records of a crop have the index in this tuple."""

MAX_PIXELS = 2 * 89_478_485
"""The most pixels of an image: where `PIL.Image.open` refuses one as a decompression bomb."""

LABEL_TYPES: Mapping[str, str] = {"class": "<i8", "int": "<i8", "float": "<f8"}
"""The types of labels, as the manifest and ``--label-type`` call them, with the dtype of the table's column.

``class``: an index into the manifest's `classes`, or `UNLABELED`. ``int`` and ``float``: a number without classes.
"""

UNLABELED = -1
"""The label of a sample without a class."""

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""The suffixes of files that ImageFolder takes for images: IMG_EXTENSIONS in torchvision/datasets/folder.py."""
