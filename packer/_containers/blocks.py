"""Reads container files in blocks, because these files have many small records, side by side or between images.

Containers that report no offset in their errors use `ContainerFile`, which raises a SourceError at any failure to read.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._fields.encoding import parsed_json
from packer._storage.packfile import PackFile
from packer._table import Buffer
from packer.errors import PackError, SourceError, printable

_LARGE, _SMALL = 1 << 17, 1 << 12  # bytes of a block: for many ranges, or for one and its neighbours
_CLOSE = 1 << 15  # bytes: a read this close behind the buffer continues the buffer


class BlockReader:
    """A buffer that holds a part of a file, and moves through the file as the file's structure is read.

    If a read continues close to the previous block, the next block is twice as large. After skipped data, the next
    block is small.

    Attributes
    ----------
    file : PackFile or Unpacked
    data : bytes
        The buffered bytes.
    begin : int
        The offset of `data` in the file.
    """

    def __init__(self, file: PackFile | Unpacked) -> None:
        self.file, self._size = file, file.size
        self.data, self.begin, self._block = b"", 0, _SMALL

    def at(self, offset: int, size: int) -> int:
        """Load `size` bytes at `offset`, fewer at the file's end; return the index of the first byte in `data`.

        Parameters
        ----------
        offset : int
            At most the file's size.
        size : int
        """
        position, loaded = offset - self.begin, len(self.data)
        if 0 <= position <= position + size <= loaded:
            return position
        size = max(0, min(size, self._size - offset))
        if not 0 <= position <= position + size <= loaded:
            is_close = 0 <= position < loaded + _CLOSE
            self._block = min(2 * self._block, _LARGE) if is_close else _SMALL
            self.data = self.file.read(offset, max(0, min(max(size, self._block), self._size - offset)))
            self.begin, position = offset, 0
        return position

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes at `offset`; fewer at the file's end."""
        position = self.at(offset, size)
        return self.data[position : position + size]


class Unpacked:
    """A compressed file, unpacked in memory.

    Parameters
    ----------
    path : path
    data : bytes
    """

    def __init__(self, path: str | os.PathLike[str], data: bytes) -> None:
        self.path, self.size = os.fspath(path), len(data)
        self._data = data

    def read(self, offset: int, size: int) -> bytes:
        """Return a range of the unpacked bytes."""
        return self._data[offset : offset + size]


class ContainerFile:
    """An open file of a container.

    Attributes
    ----------
    path : str
        The path that messages show.
    size : int
        The size of the file in bytes.
    """

    def __init__(self, file: PackFile | Unpacked) -> None:
        self.path, self.size = printable(file.path), file.size
        self._blocks = BlockReader(file)

    def read(self, offset: int, size: int) -> bytes:
        """Return a range of the file; SourceError if it ends beyond the file, or the disk fails."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise SourceError(
                f"{self.path}: bytes {offset} to {offset + size} are needed, but it has {self.size}: it was cut "
                "short, or is damaged"
            )
        with source_errors():
            return self._blocks.read(offset, size)


@contextlib.contextmanager
def source_errors() -> Iterator[None]:
    """Turn errors of opening and reading a file into SourceErrors."""
    try:
        yield
    except PackError as error:
        raise SourceError(str(error)) from error


@contextlib.contextmanager
def errors_in(where: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors about a file's content (ValueError by default) into SourceErrors that begin with `where`."""
    kinds = kinds or (ValueError,)
    try:
        yield
    except kinds as error:
        raise content_error(where, error) from error


def content_error(where: str, error: Exception) -> SourceError:
    """Return the error for a problem with the content of a file. The message begins with `where`."""
    return SourceError(f"{where}: {printable(error)[:_LONGEST_REASON]}")


def damaged(file: PackFile, at: int, why: str) -> SourceError:
    """Return the error for a file that is damaged at byte `at`."""
    return SourceError(f"{printable(file.path)}, byte {at}: damaged: {why}")


def damage(file: PackFile, at: int, *kinds: type[Exception]) -> AbstractContextManager[None]:
    """Turn errors about a file's content into an error that gives the offset of the damage."""
    return errors_in(f"{printable(file.path)}, byte {at}: damaged", *kinds)


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[ContainerFile]:
    """Open a file for reading; SourceError if it cannot be opened."""
    with source_errors():
        file = PackFile(path)
    with file:
        yield ContainerFile(file)


_MOST_TEXT = 1 << 28  # bytes
_LONGEST_REASON = 1000  # characters of an error in a message


def text_in(path: str | os.PathLike[str], most: int = _MOST_TEXT) -> str:
    """Return the text of a small sidecar file; SourceError if it has more than `most` bytes, or is not UTF-8."""
    with reading(path) as file, errors_in(f"{file.path}: is not a text file", UnicodeDecodeError):
        if file.size > most:
            raise SourceError(f"{file.path}: {file.size:,} bytes are too many for a metadata file")
        return file.read(0, file.size).decode("utf-8-sig")


def json_in(path: str | os.PathLike[str]) -> Any:
    """Return the content of a JSON file; SourceError if the file is not JSON, or is too large for a metadata file."""
    with errors_in(printable(path)):
        return parsed_json(text_in(path))


_MOST_OF_HEADER = 10_000  # bytes of a .npy file


def npy_array(data: Buffer) -> npt.NDArray[Any]:
    """Return the array in the bytes of a ``.npy`` file; ValueError if the bytes hold no valid array.

    NumPy's own reader is not used, because it allocates the size that the header declares before it checks the length
    of the data.
    """
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}.get(version[0])
        if read is None:
            raise ValueError(f"version {version[0]} of .npy is not supported")
        shape, transposed, dtype = read(stream, max_header_size=_MOST_OF_HEADER)
        if dtype.hasobject:
            raise ValueError("it contains pickled objects, which packer never executes")
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
            raise ValueError(f"its size is not that of {dtype} of shape {shape}")
        elements = np.frombuffer(data, dtype, offset=stream.tell()) if math.prod(shape) else np.empty(0, dtype)
        return elements.reshape(shape, order="F" if transposed else "C")
    except Exception as error:  # NumPy parses the header as Python, which can raise many errors
        raise ValueError(f"it is not a .npy file of numbers: {error}") from error


PIECE = 256
"""The number of bytes that `RangeReader` reads at once."""

_LONGEST = 1 << 28  # bytes of one line or value


class RangeReader:
    """A sequential reader of a range of a file.

    Parameters
    ----------
    file : PackFile
    offset, size : int
        The offset and the size of the range, in bytes.
    head : bytes, optional
        The first bytes of the range, if the caller has read them already.

    Raises
    ------
    ValueError
        From every method, if the range ends within the requested value.
    """

    __slots__ = ("_at", "_data", "_end", "_file", "_start")

    def __init__(self, file: PackFile, offset: int, size: int, head: bytes = b"") -> None:
        self._file, self._start, self._end = file, offset, offset + size
        self._data, self._at = head or file.read(offset, min(size, PIECE)), 0

    def tell(self) -> int:
        """Return the offset of the next byte in the file."""
        return self._start + self._at

    @property
    def left(self) -> int:
        """Number of remaining bytes."""
        return self._end - self._start - self._at

    def byte(self) -> int:
        """Return the next byte."""
        if self._at == len(self._data):
            self._read_on(1)
        self._at += 1
        return self._data[self._at - 1]

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        if self._at + count > len(self._data):
            self._read_on(count)
        self._at += count
        return self._data[self._at - count : self._at]

    def skip(self, count: int) -> None:
        """Skip the next `count` bytes."""
        if not 0 <= count <= self.left:
            raise ValueError(f"{count} bytes are declared, but only {self.left} are left")
        self._at += count
        if self._at > len(self._data):
            self._start, self._data, self._at = self._start + self._at, b"", 0

    def line(self) -> bytes:
        """Return the bytes before the next line break, and skip the line break."""
        found = self._data.find(b"\n", self._at)
        while found < 0:
            loaded = len(self._data) - self._at
            if loaded == self.left:
                raise ValueError("a line does not end")
            self._read_on(min(self.left, 2 * loaded + PIECE))
            found = self._data.find(b"\n", self._at + loaded)
        line = self._data[self._at : found]
        self._at = found + 1
        return line

    def varint(self) -> int:
        """Return the next 64-bit number, stored as a varint of Protocol Buffers: 7 bits in each byte."""
        at = self._at
        if at < len(self._data) and self._data[at] < 0x80:
            self._at = at + 1
            return self._data[at]
        number = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & 0xFFFF_FFFF_FFFF_FFFF
        raise ValueError("a number has more than 64 bits")

    def _read_on(self, count: int) -> None:
        """Make sure that at least the next `count` bytes are loaded."""
        left = self.left
        if not 0 <= count <= left:
            raise ValueError(f"{count} bytes are declared, but only {left} are left")
        if count > _LONGEST:
            raise ValueError(f"{count} bytes are too many for one value")
        self._start += self._at
        rest = self._data[self._at :]
        self._data = rest + self._file.read(self._start + len(rest), min(left, max(count, PIECE)) - len(rest))
        self._at = 0
