"""Stretches of an object in files of the cache: blocks with checksums, written by anybody, read without a lock.

A file holds 64 MiB of the object at most, in blocks of 16 KiB. A list of entries stands in front of them, one for each
block: 0 where the block lacks, or its CRC-32C and a mark. An entry is written after its block. So a writer that is
killed at any moment leaves blocks that are not there, and none that are wrong; what a power failure or a disk makes of
a block is found by its checksum. Two that write the same block write the same bytes, as a stretch is of one version of
an object. A stretch is removed by its name alone, and stays whole for whoever has it open.

The mark is that of the process for which a block was fetched. This process need not compare the block again, which its
own fetcher wrote while it lived; every other process compares the block when it first reads it.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import struct
import weakref
from collections.abc import Iterator

import google_crc32c

from packer._storage.opening import NO_LINK, open_regular

__all__ = ["BLOCK", "DATA_AT", "NEW", "STRETCH", "SUFFIX", "Stretch", "new_name", "stretch_name"]

BLOCK = 16 << 10
"""Bytes that are fetched, checked and kept together."""

STRETCH = 64 << 20
"""Bytes of an object in one file."""

SUFFIX, NEW = ".stretch", ".new"
"""How names of stretches end, and those of files that are not whole yet."""

_BLOCKS = STRETCH // BLOCK
_MAGIC = b"stretch of an object, kept by packer; 2\n"
_ENTRIES_AT = 4096
DATA_AT = _ENTRIES_AT + 8 * _BLOCKS
"""Where the blocks begin in a file."""

try:
    import fcntl

    _LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None) if struct.calcsize("P") == 8 else None
except ImportError:
    _LOCK = None

_CHECKSUM = (1 << 32) - 1  # the lower half of an entry; the mark is the upper one, and never 0


def stretch_name(number: int) -> str:
    """Return the name of the file that holds a stretch."""
    return f"{number:06d}{SUFFIX}"


class Stretch:
    """A file of the cache, open.

    Parameters
    ----------
    directory : str
        That of the object's version.
    number : int
        Which stretch it is.
    object_size : int
        Bytes of the whole object.
    writing : bool
        Make the file where it is missing.

    Attributes
    ----------
    fd : int
        Its descriptor, closed when nobody holds this any more.

    Raises
    ------
    OSError
        If it cannot be opened, or is none.
    """

    def __init__(self, directory: str, number: int, object_size: int, *, writing: bool = False) -> None:
        self.path = os.path.join(directory, stretch_name(number))
        self.size = min(STRETCH, object_size - number * STRETCH)
        if writing and not os.path.exists(self.path):
            _make(self.path, self.size)
        self.fd = open_regular(self.path, flags=(os.O_RDWR if writing else os.O_RDONLY) | NO_LINK)
        weakref.finalize(self, os.close, self.fd)
        if os.pread(self.fd, len(_MAGIC), 0) != _MAGIC or os.fstat(self.fd).st_size != DATA_AT + self.size:
            raise OSError(errno.EINVAL, "is no stretch of an object", self.path)

    def is_named(self) -> bool:
        """Tell whether the file is still the one that its path names."""
        try:
            return os.path.samestat(os.fstat(self.fd), os.stat(self.path))
        except OSError:
            return False

    def entries(self, first: int, last: int) -> array.array[int]:
        """Return the entries of blocks `first` to before `last`."""
        found = array.array("Q")
        found.frombytes(os.pread(self.fd, 8 * (last - first), _ENTRIES_AT + 8 * first))
        return found

    def lacking(self, first: int, last: int) -> list[int]:
        """Return the blocks that are not there, between `first` and before `last`."""
        return [block for block, entry in enumerate(self.entries(first, last), first) if not entry]

    def is_marked(self, first: int, last: int, mark: int) -> bool:
        """Tell whether blocks `first` to before `last` are there and have a mark."""
        return all(entry >> 32 == mark for entry in self.entries(first, last))

    def claim(self, first: int, last: int) -> bool:
        """Claim blocks `first` to before `last`, to be fetched; False where another open file has claimed one of them.

        A claim ends with `release`, or with the file or the process that has it. It is a lock on the blocks' entries
        that nobody needs for reading or writing: it spares two processes fetching the same. Where the system has no
        such locks, as Linux has, or the file system none at all, every claim succeeds.
        """
        try:
            self._lock(first, last, "F_WRLCK")
        except OSError as error:
            return error.errno not in (errno.EAGAIN, errno.EACCES)
        return True

    def release(self, first: int, last: int) -> None:
        """End the claim of blocks."""
        with contextlib.suppress(OSError):
            self._lock(first, last, "F_UNLCK")

    def _lock(self, first: int, last: int, kind: str) -> None:
        if _LOCK is not None:
            where = _ENTRIES_AT + 8 * first, 8 * (last - first)
            fcntl.fcntl(self.fd, _LOCK, struct.pack("hhqqq", getattr(fcntl, kind), os.SEEK_SET, *where, 0))

    def write(self, first: int, data: memoryview, mark: int) -> None:
        """Write whole blocks from the block `first` on; the last one of an object may be shorter.

        `mark` is a number from 1 to 2**32 - 1.
        """
        found = array.array("Q", (mark << 32 | google_crc32c.value(piece.tobytes()) for piece in _blocks(data)))
        _write_at(self.fd, data, DATA_AT + first * BLOCK)
        _write_at(self.fd, memoryview(found).cast("B"), _ENTRIES_AT + 8 * first)

    def read(self, first: int, last: int) -> bytes | None:
        """Return the bytes of blocks `first` to before `last`; None where one lacks or is not what was written."""
        entries = self.entries(first, last)
        if 0 in entries:
            return None
        size = min(last * BLOCK, self.size) - first * BLOCK
        data = os.pread(self.fd, size, DATA_AT + first * BLOCK)
        if len(data) < size:
            return None
        for at, entry in zip(range(0, size, BLOCK), entries, strict=True):
            if entry & _CHECKSUM != google_crc32c.value(data[at : at + BLOCK]):
                return None
        return data


def new_name(path: str) -> str:
    """Return a name for a file that is made whole and then renamed to `path`."""
    return f"{path}.{os.urandom(6).hex()}{NEW}"


def _blocks(data: memoryview) -> Iterator[memoryview]:
    for begin in range(0, len(data), BLOCK):
        yield data[begin : begin + BLOCK]


def _write_at(fd: int, data: memoryview, position: int) -> None:
    while data:
        written = os.pwrite(fd, data, position)
        data, position = data[written:], position + written


def _make(path: str, size: int) -> None:
    """Make a stretch without blocks: whole, or not at all. Another one's that is there meanwhile stays."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = new_name(path)
    fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.write(fd, _MAGIC)
        os.ftruncate(fd, DATA_AT + size)
        with contextlib.suppress(FileExistsError):
            try:
                os.link(new, path)
            except PermissionError:  # what a file system without links says
                os.replace(new, path)
    finally:
        os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
