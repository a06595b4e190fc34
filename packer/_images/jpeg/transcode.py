"""JPEGs to tiled JPEGs, losslessly: the same coefficients, coded again with restart markers and the best Huffman codes.

packer's own C reads and codes them (`packer/_images/native/tiling`), and `packer._images.jpeg.tiles` puts the
pieces together.
"""

from __future__ import annotations

import numpy as np

from packer._images.compiled import _native, shortcoming
from packer._images.geometry import MAX_PIXELS
from packer._images.jpeg import tiles
from packer._table import Buffer
from packer.errors import MissingDependencyError, NotTileableError

__all__ = ["require_transcoder", "transcode"]

_LEAST_TILE = 460  # bytes, on average: what lets ImageNet's photos grow by half a per cent


def require_transcoder() -> None:
    """Raise MissingDependencyError where packer's own C is not there."""
    if _native is None:
        short = shortcoming()
        assert short is not None
        raise MissingDependencyError(f"tiled JPEGs are written by packer's own C: {short.reason}. {short.cure}")


def transcode(data: Buffer) -> bytes:
    """Make a tiled JPEG of a JPEG. The pixels, and the metadata, stay what they are.

    Parameters
    ----------
    data : bytes-like
        A JPEG: 8 bits, one or three components, Huffman-coded; sequential or progressive.

    Raises
    ------
    NotTileableError
        If it is another kind of JPEG, or not quite well-formed; the reason says why.
    MissingDependencyError
        If packer's own C is not there.
    """
    require_transcoder()
    source = bytes(data)
    made = _native.transcode(source, MAX_PIXELS, _LEAST_TILE)
    if isinstance(made, str):
        raise NotTileableError(made)
    metadata, header, columns, row_sizes, scan, end = made
    return tiles.assemble(metadata, header, columns, np.frombuffer(row_sizes, np.int64), scan, memoryview(source)[end:])
