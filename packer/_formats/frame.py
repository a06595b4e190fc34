"""One sample in the layout of another tool."""

from __future__ import annotations

from packer._table import Buffer

__all__ = ["Frame"]


class Frame:
    """The bytes that a layout makes of one sample, and where in them the image and the blobs of the fields begin.

    What does not lie there in one piece, or not at all, is copied into packer's index.

    Parameters
    ----------
    blobs : int
        How many fields have blobs.

    Attributes
    ----------
    pieces : list of bytes-like
        One after the other.
    size : int
    image : int
        Negative where it is copied: -1 where it is the first byte that is copied.
    blobs : list of int, or None
        As `image`; None where there is no value.
    framing : list of bytes
        The pieces that are neither the image nor a blob.
    copies : list of bytes-like
        What is copied.
    copied : int
        Bytes of it.
    """

    def __init__(self, blobs: int) -> None:
        self.pieces: list[Buffer] = []
        self.size = 0
        self.image = 0
        self.blobs: list[int | None] = [None] * blobs
        self.framing: list[bytes] = []
        self.copies: list[Buffer] = []
        self.copied = 0

    def add(self, piece: bytes) -> int:
        """Add bytes of the layout; return where they begin."""
        self.framing.append(piece)
        return self._add(piece)

    def add_image(self, data: Buffer) -> int:
        """Add the image; return where it begins."""
        self.image = self._add(data)
        return self.image

    def add_blob(self, number: int, data: Buffer) -> int:
        """Add the blob of the field that is so many among those that have blobs; return where it begins."""
        self.blobs[number] = begin = self._add(data)
        return begin

    def copy_image(self, data: Buffer) -> None:
        """Have the image copied."""
        self.image = self._copy(data)

    def copy_blob(self, number: int, data: Buffer) -> None:
        """Have a blob copied; `number` is as of `add_blob`."""
        self.blobs[number] = self._copy(data)

    def _add(self, piece: Buffer) -> int:
        begin = self.size
        self.pieces.append(piece)
        self.size += len(piece)
        return begin

    def _copy(self, piece: Buffer) -> int:
        begin = self.copied
        self.copies.append(piece)
        self.copied += len(piece)
        return ~begin
