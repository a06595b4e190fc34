"""The structure of a file, read in large blocks where samples are small, and in small ones between large samples."""

from __future__ import annotations

from packer._storage.packfile import PackFile

__all__ = ["Window"]

_LARGE = 1 << 16  # bytes of a sample that are skipped rather than read
_BLOCK = 1 << 20
_SMALL_BLOCK = 1 << 12


class Window:
    """Some bytes of a file in memory, which move on as its structure is read.

    Attributes
    ----------
    file : PackFile
    data : bytes
        The bytes in memory.
    begin : int
        Where in the file they begin.
    """

    def __init__(self, file: PackFile) -> None:
        self.file = file
        self.data = b""
        self.begin = 0
        self._block = _SMALL_BLOCK

    def expect(self, size: int) -> None:
        """Say how large the sample is that is read next."""
        self._block = _BLOCK if size < _LARGE else _SMALL_BLOCK

    def at(self, offset: int, size: int) -> int:
        """Have `size` bytes from `offset` on in memory, or those up to the file's end; return where in `data` they are.

        Parameters
        ----------
        offset : int
            Not after the file's end.
        size : int
        """
        place = offset - self.begin
        if place < 0 or place + size > len(self.data):
            size = min(size, self.file.size - offset)
            if place < 0 or place + size > len(self.data):
                self.data = self.file.read(offset, min(max(size, self._block), self.file.size - offset))
                self.begin, place = offset, 0
        return place

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes that lie in the file."""
        place = self.at(offset, size)
        return self.data[place : place + size]
