"""The codecs: what the data of a pack's samples are. A new codec is a row here and a way to write it in `encode`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CODECS", "LOSSY", "Codec"]


@dataclass(frozen=True)
class Codec:
    """How the samples of a pack are stored.

    Attributes
    ----------
    name : str
        What the manifest and ``--codec`` call the codec.
    suffixes : tuple of str
        The suffixes of a file of such a sample, in lower case. `packer.export` gives the first one to files of other
        suffixes. Empty: files keep the names of the samples.
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
        Codec("raw", (".png",)),  # pixels: uint8 RGB, rows from the top; exported as PNG
    ]
}

LOSSY = tuple(codec.name for codec in CODECS.values() if codec.lossy)
"""The codecs that have a quality."""
