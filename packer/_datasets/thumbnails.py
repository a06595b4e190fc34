"""Small JPEGs of samples, for pages and notebooks; if a sample cannot be read, its error replaces the picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from packer._datasets.batch_decoder import BatchDecoder
from packer._display import legible
from packer._images.encode import encode
from packer._images.geometry import CROP, Box, Crops, require_affordable
from packer._table import Ints
from packer.errors import CorruptPackError, ImageError, PackerError

SMALL_QUALITY = 80
"""The quality of JPEGs in a grid."""


@dataclass(frozen=True)
class Picture:
    """A sample as a JPEG, or the reason why it cannot be shown.

    Attributes
    ----------
    index : int
    jpeg : bytes
        The JPEG; empty if the sample cannot be shown.
    error : str
        The reason why the sample cannot be shown; empty if it can.
    is_damaged : bool
        Whether the sample is damaged, and not the machine at fault, as with too little memory, a failing disk or too
        many open files.
    """

    index: int
    jpeg: bytes = b""
    error: str = ""
    is_damaged: bool = False


def thumbnails(decoder: BatchDecoder, rows: Ints, side: int, quality: int = SMALL_QUALITY) -> list[Picture]:
    """Return pictures of rows of a pack, at most `side` pixels wide and high. A failed batch is made one by one.

    A single picture may also fail for lack of memory, which torch raises as a RuntimeError; the others are still shown.
    """
    try:
        images = decoder.cut(rows, _fitting(decoder, rows, side))
        return [Picture(0, encode(image, "jpeg", quality)) for image in images]
    except (PackerError, OSError, ValueError, MemoryError, RuntimeError) as error:
        if len(rows) == 1:
            damaged = isinstance(error, CorruptPackError | ImageError | ValueError)
            return [Picture(0, error=legible(str(error) or type(error).__name__), is_damaged=damaged)]
    return [picture for row in rows for picture in thumbnails(decoder, np.array([row]), side, quality)]


def _fitting(decoder: BatchDecoder, rows: Ints, side: int) -> Crops:
    """Return crops of whole images, resized if they do not fit into a square of `side` pixels.

    Raises PackerError if a size in the table is invalid, or the table was cut short.
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
