"""Reading the structure of a container's files: in large blocks where samples are small, else a few bytes at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from packer._fields.values import parsed_json
from packer._storage.packfile import PackFile
from packer.errors import PackError, SourceError, printable

__all__ = ["Reading", "Unpacked", "json_in", "reading"]

_BLOCK = 1 << 20  # bytes that are read at once where what is wanted lies close together
_CLOSE = 1 << 16  # bytes from one miss to the next
_LEAST = 1 << 10
_MOST_JSON = 1 << 28


class Unpacked:
    """A file that lay compressed, in memory.

    Parameters
    ----------
    path : path
    data : bytes
    """

    def __init__(self, path: str | os.PathLike[str], data: bytes) -> None:
        self.path, self.size = os.fspath(path), len(data)
        self._data = data

    def read(self, offset: int, size: int) -> bytes:
        """Return a range."""
        return self._data[offset : offset + size]


class Reading:
    """An open file of a container, mostly read from its beginning to its end.

    Attributes
    ----------
    path : str
        As messages show it.
    size : int
        Bytes of the file.
    """

    def __init__(self, file: PackFile | Unpacked) -> None:
        self._file = file
        self.path, self.size = printable(file.path), file.size
        self._block, self._begin, self._missed = b"", 0, -_CLOSE

    def read(self, offset: int, size: int) -> bytes:
        """Return a range of the file; SourceError where it does not lie in the file, or the disk fails."""
        start = offset - self._begin
        if start < 0 or start + size > len(self._block):
            if offset < 0 or size < 0 or offset + size > self.size:
                raise SourceError(
                    f"{self.path}: bytes {offset} to {offset + size} are wanted, and it has {self.size}: "
                    "it was cut short, or is damaged"
                )
            ahead = _BLOCK if 0 <= offset - self._missed < _CLOSE + len(self._block) else _LEAST
            self._missed, self._begin, start = offset, offset, 0
            try:
                self._block = self._file.read(offset, min(max(size, ahead), self.size - offset))
            except PackError as error:
                raise SourceError(str(error)) from error
        return self._block[start : start + size]


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[Reading]:
    """Open a file for reading; SourceError where it cannot be opened."""
    try:
        file = PackFile(path)
    except PackError as error:
        raise SourceError(str(error)) from error
    with file:
        yield Reading(file)


def json_in(path: str | os.PathLike[str]) -> Any:
    """Return what a JSON file says; SourceError where it says nothing, or is larger than any description."""
    with reading(path) as file:
        if file.size > _MOST_JSON:
            raise SourceError(f"{file.path}: {file.size:,} bytes are more than a description has")
        data = file.read(0, file.size)
    try:
        return parsed_json(data.decode("utf-8-sig"))
    except ValueError as error:
        raise SourceError(f"{printable(path)}: {error}") from error
