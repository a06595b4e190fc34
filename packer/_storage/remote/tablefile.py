"""A range of an object in one file of the cache, which is fetched as a whole: a table, most of all."""

from __future__ import annotations

import contextlib
import os
import re
from types import TracebackType

import google_crc32c

from packer._storage.opening import NO_LINK, open_regular
from packer._storage.remote.cache import TABLE, Home
from packer._storage.remote.stretches import new_name

__all__ = ["TableFile", "crc32c_of", "tables_in"]

_NAME = re.compile(rf"(\d+)-(\d+)-([0-9a-f]{{8}}){re.escape(TABLE)}")
_STEP = 1 << 20  # bytes of which a checksum is taken at once


class TableFile:
    """A range that is being written to a file, which gets its name, and its checksum in that, when it is whole.

    OSError where the disk does not take it.
    """

    def __init__(self, home: Home, begin: int, size: int) -> None:
        home.make()
        self._begin, self._size, self._directory = begin, size, home.directory
        self._new = new_name(os.path.join(self._directory, f"{begin}-{size}"))
        self._fd = open_regular(self._new, flags=os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK)

    def __enter__(self) -> TableFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fd, self._fd = self._fd, -1  # which what is still under way may want to write to
        os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._new)

    def write(self, position: int, data: memoryview) -> None:
        """Write bytes that begin at a position of the object."""
        position -= self._begin
        while data:
            written = os.pwrite(self._fd, data, position)
            data, position = data[written:], position + written

    def finish(self) -> str:
        """Give the file its name, and return its path."""
        name = f"{self._begin}-{self._size}-{crc32c_of(self._fd, self._size):08x}{TABLE}"
        path = os.path.join(self._directory, name)
        os.replace(self._new, path)
        return path


def crc32c_of(fd: int, size: int) -> int:
    """Return the CRC-32C of the first `size` bytes of a file, or of all that it has."""
    found = 0
    for position in range(0, size, _STEP):
        found = google_crc32c.extend(found, os.pread(fd, min(_STEP, size - position), position))
    return found


def tables_in(directory: str) -> list[tuple[str, int, int, int]]:
    """Return path, begin, size and checksum of each range that is kept in a directory."""
    with contextlib.suppress(OSError):
        found = [(name, _NAME.fullmatch(name)) for name in os.listdir(directory)]
        return [(os.path.join(directory, name), int(m[1]), int(m[2]), int(m[3], 16)) for name, m in found if m]
    return []
