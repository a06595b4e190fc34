"""A file of a pack on a store: what `PackFile` is for one on a disk."""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._storage.locations import MEMORY, NOWHERE
from packer._storage.packfile import LARGEST_READ, MOST_HELD, Descriptor, FileBytes, PackFile
from packer._storage.remote import client, tables
from packer._storage.remote.blocks import Blocks
from packer._storage.remote.client import Version
from packer._storage.remote.settings import Settings, chosen
from packer._storage.remote.urls import join, shown
from packer._table import Vector
from packer.errors import CorruptPackError

__all__ = ["RemoteFile"]

_FIRST = 64 << 10  # bytes that come with the version
_WHOLE_FROM = 1 << 16  # bytes; smaller arrays are read
_BETWEEN = 1 << 16  # bytes between two columns that are fetched together


class RemoteFile(PackFile):
    """An object that is read as a file of a pack, by ranges.

    Every byte that is returned is of the version that the object had when it was opened. Like a `PackFile`, it serves
    many threads, and processes that were forked.

    Parameters
    ----------
    url : str
        The object, or what the objects of a pack lie in.
    inside : str, optional
        The object's place in that.
    version : Version, optional
        The version to read, where it is known: then nobody asks for it.
    settings : Settings, optional
        By default those chosen for the URL.

    Attributes
    ----------
    path : str
        The URL as it is shown, without secrets.
    url : str
        The whole URL.
    version : Version
        Size, ETag and time of the object.
    size, modified, mode, links, inode
        What a `PackFile` has; see there.

    Raises
    ------
    CorruptPackError
        If there is no such object.
    RemoteError
        If it cannot be had.
    """

    def __init__(
        self, url: str, inside: str = "", *, version: Version | None = None, settings: Settings | None = None
    ) -> None:
        self.url = join(url, inside) if inside else os.fspath(url)
        self.path = shown(self.url)
        settings = settings or chosen(self.url)
        first = b""
        if version is None:
            found = client.look(self.url, _FIRST, settings)
            if found is None:
                raise CorruptPackError("the object is missing", self.path)
            version, first = found
        self.version = version
        self._blocks = Blocks(self.url, version, settings)
        self._blocks.keep_first(first)
        self._together: tuple[FileBytes | mmap.mmap, int] | None = None  # a part of the object, and where it begins
        self.size, self.modified, self.mode, self.links = version.size, version.modified, 0o644, 1
        self.inode = (-1, zlib.crc32(self._blocks.identity.encode()))
        self._bytes = FileBytes(Descriptor(-1), self.path, self.size)  # of no file: the blocks are read

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`; CorruptPackError where they do not lie inside the object."""
        self._require(offset, size)
        if size > LARGEST_READ:
            raise CorruptPackError(
                f"{size} bytes are wanted at once, of which there are {LARGEST_READ} at most", self.path
            )
        self._require_open()
        return self._blocks.read(offset, size)

    def locate(
        self, offset: npt.NDArray[np.int64], size: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], object]:
        """Fetch what lacks, and return descriptors and positions of the bytes, as `PackFile.locate`."""
        self._require_open()
        inside = (offset >= 0) & (size >= 0) & (size <= LARGEST_READ) & (offset <= self.size - size)
        file, position, held = np.full(len(offset), NOWHERE), offset.copy(), list[object]()
        rows = np.flatnonzero(inside)
        found = self._blocks.places(list(zip(offset[rows].tolist(), size[rows].tolist(), strict=True)))
        for row, place in zip(rows.tolist(), found, strict=True):
            if isinstance(place, bytes):
                file[row], position[row] = MEMORY, np.frombuffer(place or b"\0", np.uint8).ctypes.data
                held.append(place)
            else:
                file[row], position[row] = place[0].fd, place[1]
                held.append(place[0])
        return file, position, held

    def duplicate(self) -> Descriptor | None:
        return None

    def ahead(self, ranges: Iterable[tuple[int, int]], *, urgent: bool = False) -> None:
        """Have ranges of the object fetched, in their order, without waiting for them.

        A range is joined with the one before it where it begins at that one's end, or little after it. What was
        ordered before is not ordered again.

        Parameters
        ----------
        ranges : iterable of (int, int)
            Offset and size of each. What lies outside of the object is left out.
        urgent : bool
            Whether they are read at once: then they are fetched before others, and reading only waits for them.
        """
        self._require_open()
        inside = [(begin, size) for begin, size in ranges if 0 <= begin < begin + size <= self.size]
        self._blocks.ahead(inside, urgent=urgent)

    def keep_together(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Have ranges kept in one file of this node, where little lies between them; the columns of a table, say."""
        self._require_open()
        if not any(size >= _WHOLE_FROM for _, size in ranges):
            return
        begin, end = min(ranges)[0], max(map(sum, ranges))
        self._require(begin, end - begin)
        if end - begin <= sum(size for _, size in ranges) + _BETWEEN * len(ranges):
            found, at = tables.whole(self._blocks, begin, end - begin)
            self._together = found, begin - at

    def vectors(self, places: Mapping[str, tuple[int, int, str]]) -> Mapping[str, Vector | npt.NDArray[Any]]:
        """Return vectors of the object, as `PackFile.vectors`; fetched now, and kept where there is a cache."""
        self._require_open()
        sizes = {name: count * np.dtype(dtype).itemsize for name, (_, count, dtype) in places.items()}
        held = sum(sizes.values()) <= MOST_HELD
        return {name: self._vector(*place, held=held) for name, place in places.items()}

    def _vector(self, offset: int, count: int, dtype: str, *, held: bool) -> Vector | npt.NDArray[Any]:
        size = count * np.dtype(dtype).itemsize
        self._require(offset, size)
        together = self._in_together(offset, size)
        if together is None and size < _WHOLE_FROM:
            return np.frombuffer(self.read(offset, size), dtype)
        found, begin = together or tables.whole(self._blocks, offset, size)
        if isinstance(found, FileBytes):
            return Vector(found, begin, count, dtype, held=held)
        values = np.frombuffer(found, dtype, count, begin)
        values.flags.writeable = False
        return values

    def _in_together(self, offset: int, size: int) -> tuple[FileBytes | mmap.mmap, int] | None:
        """Return where a range is in what was compared with its checksum as a whole."""
        if self._together is not None:
            found, first = self._together
            if first <= offset and offset + size <= first + len(found):
                return found, offset - first
        return None

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from `offset` on, at most to the object's end; return the count of bytes."""
        count = max(0, min(len(buffer), self.size - offset))
        buffer[:count] = self.read(offset, count) if count else b""
        return count

    def changed(self) -> bool:
        """Tell that the bytes are not others than when the object was opened: others would be refused."""
        self._require_open()
        return False

    def require_whole(self) -> None:
        """Do nothing but require that the file is open: an object does not shrink."""
        self._require_open()
