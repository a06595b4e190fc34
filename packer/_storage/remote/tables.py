"""Ranges of an object that are fetched as a whole, such as a table: once on each node, into a cache file per range."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import time
from collections.abc import Iterator
from types import TracebackType

import google_crc32c

from packer._storage.locks import try_lock
from packer._storage.packfile import Descriptor, FileBytes
from packer._storage.remote import client
from packer._storage.remote.blocks import Blocks
from packer._storage.remote.cache import TABLE, Home, new_name, touch, write_at
from packer._storage.safe_open import NO_LINK, open_regular
from packer.errors import PackerError

_NAME = re.compile(rf"(\d+)-(\d+)-([0-9a-f]{{8}}){re.escape(TABLE)}")
_STEP = 1 << 20  # bytes per checksum step


class TableFile:
    """A range that is written to a file; when it is complete, the file is renamed to a name with its checksum.

    OSError if the disk cannot store it.
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
        fd, self._fd = self._fd, -1  # a request under way may still write to it
        os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._new)

    def write(self, position: int, data: memoryview) -> None:
        """Write bytes that begin at a position of the object."""
        write_at(self._fd, data, position - self._begin)

    def finish(self) -> str:
        """Give the file its name, and return its path."""
        name = f"{self._begin}-{self._size}-{crc32c_of(self._fd, self._size):08x}{TABLE}"
        path = os.path.join(self._directory, name)
        os.replace(self._new, path)
        return path


def crc32c_of(fd: int, size: int) -> int:
    """Return the CRC-32C of the first `size` bytes of a file, or of the whole file if it is shorter."""
    found = 0
    for position in range(0, size, _STEP):
        found = google_crc32c.extend(found, os.pread(fd, min(_STEP, size - position), position))
    return found


def tables_in(directory: str) -> list[tuple[str, int, int, int]]:
    """Return path, begin, size and checksum of each range in a directory."""
    with contextlib.suppress(OSError):
        found = [(name, _NAME.fullmatch(name)) for name in os.listdir(directory)]
        return [(os.path.join(directory, name), int(m[1]), int(m[2]), int(m[3], 16)) for name, m in found if m]
    return []


_LOOK_AGAIN = 0.05  # seconds between two looks, while another process fetches the same


def whole(blocks: Blocks, begin: int, size: int) -> tuple[FileBytes | mmap.mmap, int]:
    """Return the cache file, or the memory, with a range of an object, and the position of the range in it.

    Raises
    ------
    RemoteError
        If the range cannot be fetched.
    """
    if blocks.home is not None:
        found = _kept(blocks.home.directory, begin, size)
        if found is None:
            with _first_come(blocks.home, begin, size, blocks.settings.timeout):
                found = _kept(blocks.home.directory, begin, size) or _fetched(blocks, begin, size)
        if found is not None:
            return found[0], begin - found[1]
    data = mmap.mmap(-1, size)  # no disk can store it
    data.write(client.get(blocks.url, begin, begin + size, blocks.version, blocks.settings))
    return data, 0


def _kept(directory: str, begin: int, size: int) -> tuple[FileBytes, int] | None:
    """Open a file that has the range with its checksum, and return its offset in the object."""
    for path, start, length, checksum in tables_in(directory):
        if start <= begin and begin + size <= start + length:
            found = _opened(path, length, checksum)
            if found is not None:
                touch(path)
                return found, start
            with contextlib.suppress(OSError):
                os.unlink(path)
    return None


def _opened(path: str, size: int, checksum: int) -> FileBytes | None:
    try:
        descriptor = Descriptor(open_regular(path, flags=os.O_RDONLY | NO_LINK))
        fd = descriptor.number
        intact = os.fstat(fd).st_size == size and crc32c_of(fd, size) == checksum
    except OSError:
        return None
    return FileBytes(descriptor, path, size) if intact else None


def _fetched(blocks: Blocks, start: int, size: int) -> tuple[FileBytes, int] | None:
    answer = client.ask_about(blocks.order("table", begin=start, size=size), blocks.url)
    found = answer["path"] and _kept(os.path.dirname(answer["path"]), start, size)
    return found or None


@contextlib.contextmanager
def _first_come(home: Home, begin: int, size: int, seconds: float) -> Iterator[None]:
    """Wait while another process fetches the range, up to a time limit, and only while that process is alive."""
    path = os.path.join(home.directory, f"{begin}-{size}.lock")
    try:
        home.make()
        lock = open(open_regular(path, flags=os.O_RDWR | os.O_CREAT | NO_LINK), "ab")  # noqa: SIM115 - closed below
    except OSError:
        yield
        return
    until = time.monotonic() + seconds
    with lock:
        with contextlib.suppress(PackerError):  # a file system without locks: then each process fetches it
            while not try_lock(lock) and time.monotonic() < until and not _is_kept(home.directory, begin, size):
                time.sleep(_LOOK_AGAIN)
        yield
    with contextlib.suppress(OSError):
        os.unlink(path)


def _is_kept(directory: str, begin: int, size: int) -> bool:
    return any(start <= begin and begin + size <= start + length for _, start, length, _ in tables_in(directory))
