"""Samples as JPEGs that a page shows: small ones of many, one as it is, and its crops."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from packer._images.encode import encode
from packer._images.geometry import CROP, Box, Crops, require_affordable
from packer._loading.decoding import BatchDecoder
from packer._storage.limits import available_cpus
from packer._table import Ints
from packer._viewing.catalog import Catalog
from packer._viewing.names import legible
from packer.crops import RandomResizedCrop
from packer.errors import CorruptPackError, ImageError, PackerError

__all__ = ["SMALL_QUALITY", "Cut", "Picture", "Pictures"]

SMALL_QUALITY = 80
"""The quality of JPEGs in a grid; a picture that is looked at alone has `_QUALITY`."""

_QUALITY = 92


@dataclass(frozen=True)
class Picture:
    """A sample as a JPEG, or why there is none.

    Attributes
    ----------
    index : int
    jpeg : bytes
        Empty where the sample cannot be shown.
    error : str
        What is wrong with it; empty where nothing is.
    is_damaged : bool
        Whether it is the sample that is wrong; no memory, a disk that fails and too many open files are the machine's.
    """

    index: int
    jpeg: bytes = b""
    error: str = ""
    is_damaged: bool = False


@dataclass(frozen=True)
class Cut:
    """A crop of a sample: the rectangle, in pixels of the image, and what a network would see."""

    epoch: int
    top: int
    left: int
    height: int
    width: int
    jpeg: bytes


class Pictures:
    """Makes pictures of samples, a bounded number at a time.

    Parameters
    ----------
    catalog : Catalog

    Attributes
    ----------
    turn : threading.BoundedSemaphore
        Held by whoever decodes, or else takes much memory.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._decoders = [BatchDecoder(reader, scaled=True) for reader in catalog.readers]
        self._exact = [BatchDecoder(reader) for reader in catalog.readers]
        self.turn = threading.BoundedSemaphore(available_cpus() + 1)

    def small(self, indices: Ints, side: int) -> list[Picture]:
        """Return pictures of samples, of which none is wider or higher than `side` pixels.

        A sample that cannot be read or decoded has an error in place of a picture.
        """
        found: list[Picture] = [Picture(0)] * len(indices)
        with self.turn:
            for share in self._catalog.shares(indices):
                pictures = _pictures(self._decoders[share.pack], share.rows, side, SMALL_QUALITY)
                for place, picture in zip(share.places.tolist(), pictures, strict=True):
                    found[place] = replace(picture, index=int(indices[place]))
        return found

    def whole(self, index: int, side: int) -> Picture:
        """Return one sample's picture, in its own size unless that is above `side` pixels, or its error.

        The bytes are checked and decoded as training reads them.
        """
        pack, row = self._catalog.place(index)
        with self.turn:
            (picture,) = _pictures(self._exact[pack], np.array([row]), side, _QUALITY)
        return replace(picture, index=index)

    def cuts(self, index: int, crop: RandomResizedCrop, seed: int, epochs: Sequence[int]) -> list[Cut]:
        """Return the crops that a dataset with a seed takes of a sample, in each of several epochs.

        PackerError where the sample cannot be read.
        """
        pack, row = self._catalog.place(index)
        decoder, rows = self._exact[pack], np.full(len(epochs), row)
        crops = np.zeros(len(epochs), CROP)
        own = self._catalog.seed_of(pack, seed)
        for place, epoch in enumerate(epochs):
            crops[place] = decoder.choose_crops(crop, [row], epoch, own)[0]
        with self.turn:
            images = decoder.cut(rows, crops)
        return [
            Cut(epoch, *Box(*chosen).rectangle, encode(image, "jpeg", _QUALITY))
            for epoch, chosen, image in zip(epochs, crops.tolist(), images, strict=True)
        ]


def _pictures(decoder: BatchDecoder, rows: Ints, side: int, quality: int) -> list[Picture]:
    """Return pictures of rows of a pack; all at once, and one by one where that fails.

    One may fail for lack of memory too, which torch calls a RuntimeError: the others are shown all the same.
    """
    try:
        images = decoder.cut(rows, _fitting(decoder, rows, side))
        return [Picture(0, encode(image, "jpeg", quality)) for image in images]
    except (PackerError, OSError, ValueError, MemoryError, RuntimeError) as error:
        if len(rows) == 1:
            damaged = isinstance(error, CorruptPackError | ImageError | ValueError)
            return [Picture(0, error=legible(str(error) or type(error).__name__), is_damaged=damaged)]
    return [picture for row in rows for picture in _pictures(decoder, np.array([row]), side, quality)]


def _fitting(decoder: BatchDecoder, rows: Ints, side: int) -> Crops:
    """Return crops that are whole images, made smaller where they do not fit into a square of `side` pixels.

    PackerError where a size in the table is none, or the table was cut short.
    """
    decoder.reader.require_table()
    table = decoder.reader.table
    heights, widths = table.height[rows].astype(np.int64), table.width[rows].astype(np.int64)
    for wrong in np.flatnonzero(np.minimum(heights, widths) < 1)[:1]:
        raise ImageError(f"its row in the table says {widths[wrong]} x {heights[wrong]} pixels")
    scale = np.minimum(1.0, side / np.maximum(heights, widths))
    crops = np.zeros(len(rows), CROP)
    for name, size in (("height", heights), ("width", widths)):
        crops[f"crop_{name}"] = size
        crops[f"scaled_{name}"] = crops[f"out_{name}"] = np.maximum(1, np.rint(size * scale))
    for record in crops.tolist():
        require_affordable(Box(*record))
    return crops
