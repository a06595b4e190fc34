"""Names for images that have none, or none of an image: the suffix that the bytes ask for."""

from __future__ import annotations

import re

__all__ = ["image_name", "is_image_name", "suffix_of"]

_SUFFIXES = {
    ".jpg": re.compile(rb"\xff\xd8\xff"),
    ".png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    ".webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
    ".bmp": re.compile(rb"BM"),
    ".gif": re.compile(rb"GIF8[79]a"),
    ".tif": re.compile(rb"II\*\0|MM\0\*"),
}

_ENDINGS = (*_SUFFIXES, ".jpeg", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm")


def suffix_of(head: bytes) -> str:
    """Return the suffix of an image's name by its first 16 bytes; none where they are no image's that packer knows."""
    return next((suffix for suffix, signature in _SUFFIXES.items() if signature.match(head)), "")


def image_name(name: str, suffix: str) -> str:
    """Return the name of an image: `suffix` is added where the name does not end as names of images do."""
    return name if is_image_name(name) else name + suffix


def is_image_name(name: str) -> bool:
    """Tell whether a name ends as names of images do."""
    return name.lower().endswith(_ENDINGS)
