"""The files of a pack: positional reads that cannot crash the process, appends that say why they failed."""

from __future__ import annotations

import errno
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import CorruptPackError, DestinationError, PackError, printable
from packer.sample import NOWHERE, Buffer

__all__ = [
    "AppendFile",
    "Descriptor",
    "PackFile",
    "PatchFile",
    "disk_size",
    "files_of",
    "sync_directory",
    "synced_directory",
    "writing_to",
]

_MAPPED_FROM = 1 << 16  # bytes; smaller arrays are read, which costs less than a page of address space each
_COLLECT = 8 << 20  # bytes
_COLLECT_PARTS = 500  # a system takes 1024 in one write
_BINARY = getattr(os, "O_BINARY", 0)
_seek_lock = threading.Lock()


class PackFile:
    """A file of a pack, open for reading.

    Reads name their position, so one open file serves many threads and, after a fork, many processes. Samples
    are read with `pread` and not through a mapping: where a disk fails or the file was cut short, a read raises,
    whereas touching a mapping kills the process with SIGBUS. Only the table is mapped, after its extent was
    compared with the file's size.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            self._fd = os.open(self.path, os.O_RDONLY | _BINARY)
        except FileNotFoundError as error:
            raise CorruptPackError("the file is missing", self.path) from error
        except OSError as error:
            raise PackError(f"{printable(self.path)}: cannot be opened: {error.strerror}") from error
        self._close = weakref.finalize(self, os.close, self._fd)
        self.size = os.fstat(self._fd).st_size

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`; CorruptPackError where they do not lie inside the file."""
        self._require(offset, size)
        self._require_open()
        try:
            data = _pread(self._fd, size, offset)
            while len(data) < size:
                more = _pread(self._fd, size - len(data), offset + len(data))
                if not more:
                    raise CorruptPackError("the file became shorter after it was opened", self.path)
                data += more
        except OSError as error:
            raise PackError(f"{printable(self.path)}: reading at byte {offset} failed: {error.strerror}") from error
        return data

    def locate(
        self, offset: npt.NDArray[np.int64], size: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], Descriptor | None]:
        """Return a descriptor for the bytes that lie inside of the file, and NOWHERE for others, to be read by C.

        The descriptor is another one than this file's, lest closing it meanwhile lets C read from whatever is opened
        next. It is closed with the second thing that is returned.
        """
        self._require_open()
        try:
            descriptor = Descriptor(os.dup(self._fd)) if hasattr(os, "pread") else None  # else C cannot read it
        except OSError:  # too many open files: reading one after the other needs no more
            descriptor = None
        if descriptor is None:
            return np.full(len(offset), NOWHERE), None
        inside = (offset >= 0) & (size >= 0) & (offset <= self.size - size)
        return np.where(inside, descriptor.number, NOWHERE), descriptor

    def array(self, offset: int, count: int, dtype: str) -> npt.NDArray[Any]:
        """Return a read-only vector of `count` elements that begins at byte `offset`; a mapping where it is large."""
        size = count * np.dtype(dtype).itemsize
        self._require(offset, size)
        if size < _MAPPED_FROM:
            return np.frombuffer(self.read(offset, size), dtype)
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        mapping = mmap.mmap(self._fd, offset + size - start, access=mmap.ACCESS_READ, offset=start)
        return np.frombuffer(mapping, dtype, count, offset - start)

    def require_whole(self) -> None:
        """Raise CorruptPackError where the file became shorter: touching a mapping of its end kills the process."""
        self._require_open()
        if os.fstat(self._fd).st_size < self.size:
            raise CorruptPackError("the file became shorter after it was opened", self.path)

    def close(self) -> None:
        """Close the file; arrays that were handed out stay valid."""
        self._close()

    def _require_open(self) -> None:
        if not self._close.alive:  # the number of the closed file may be another file's by now
            raise ValueError(f"{printable(self.path)}: is closed")

    def _require(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise CorruptPackError(
                f"bytes {offset} to {offset + size} of {self.size} are wanted: the file was cut short or changed",
                self.path,
            )


def _pread(fd: int, size: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(fd, size, offset)
    with _seek_lock:  # Windows
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, size)


class Descriptor:
    """A number that the system knows an open file by; closed when nobody holds this any more."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # `os` may be gone when Python ends
        close(self.number)


class AppendFile:
    """A file that grows at its end, with corrections at places already written.

    Appended data are collected, and written many at a time: by `flush` at the latest, until which they must not change.

    Parameters
    ----------
    path : path
        Created where it is missing.
    keep : int
        How many bytes of an existing file are kept.
    """

    def __init__(self, path: Path, keep: int = 0) -> None:
        self.path = path
        with writing_to(path):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | _BINARY, 0o666)
            self._close = weakref.finalize(self, os.close, self._fd)
            if os.fstat(self._fd).st_size < keep:
                raise DestinationError(f"{printable(path)}: shorter than its journal says. Start again with --fresh.")
            os.ftruncate(self._fd, keep)
            os.lseek(self._fd, keep, os.SEEK_SET)
        self.size = keep
        self._parts: list[Buffer] = []
        self._collected = 0

    def append(self, *parts: Buffer) -> None:
        """Add `parts`, one after the other, at the end."""
        self._parts += parts
        total = sum(map(len, parts))
        self.size += total
        self._collected += total
        if self._collected > _COLLECT or len(self._parts) > _COLLECT_PARTS:
            self.flush()

    def flush(self) -> None:
        """Write what was collected."""
        if not self._parts:
            return
        with writing_to(self.path):
            try:
                self._write_parts()
            except OSError:
                with suppress(OSError):  # leaves room on a full disk to record what was written before
                    os.ftruncate(self._fd, self.size - self._collected)
                raise
        self._parts, self._collected = [], 0

    def _write_parts(self) -> None:
        if hasattr(os, "writev"):
            written = os.writev(self._fd, self._parts)
        else:
            written = os.write(self._fd, b"".join(self._parts))
        if written < self._collected:  # a full disk shows here first; the next write says so
            rest = memoryview(b"".join(self._parts))[written:]
            while rest:
                rest = rest[os.write(self._fd, rest) :]

    def write_at(self, offset: int, data: Buffer) -> None:
        """Replace bytes that were appended before."""
        self.flush()
        with writing_to(self.path):
            os.lseek(self._fd, offset, os.SEEK_SET)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            os.lseek(self._fd, self.size, os.SEEK_SET)

    def read_at(self, offset: int, size: int) -> bytes:
        """Return bytes that were appended before."""
        self.flush()
        data = b""
        with writing_to(self.path):
            os.lseek(self._fd, offset, os.SEEK_SET)
            while len(data) < size and (more := os.read(self._fd, size - len(data))):
                data += more
            os.lseek(self._fd, self.size, os.SEEK_SET)
        if len(data) < size:
            raise DestinationError(f"{printable(self.path)}: became shorter while it was written")
        return data

    def sync(self) -> None:
        """Return once everything that was flushed is on the disk. May be called on another thread."""
        with writing_to(self.path):
            _sync(self._fd)

    def close(self) -> None:
        """Close the file."""
        self._close()


class PatchFile:
    """A file of a complete pack, some bytes of which are replaced by as many others.

    Parameters
    ----------
    path : Path
        Must exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with writing_to(path):
            self._fd = os.open(path, os.O_RDWR | _BINARY)
        self._close = weakref.finalize(self, os.close, self._fd)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`, or fewer where the file ends."""
        return _pread(self._fd, size, offset)

    def write(self, offset: int, data: Buffer) -> None:
        """Replace the bytes from `offset` on."""
        with writing_to(self.path):
            os.lseek(self._fd, offset, os.SEEK_SET)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]

    def close(self) -> None:
        """Return once everything that was written is on the disk."""
        with writing_to(self.path):
            _sync(self._fd)
        self._close()


@contextmanager
def writing_to(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an OSError into a DestinationError that names `path` and says what is needed."""
    try:
        yield
    except OSError as error:
        advice = {
            errno.ENOSPC: " Free some space, or convert to another disk; the same command then continues.",
            errno.EDQUOT: " Your quota is used up; free some, and the same command continues.",
            errno.EFBIG: " The limit on the size of files (ulimit -f) is too low for this pack.",
        }.get(error.errno or 0, "")
        raise DestinationError(f"{printable(os.fspath(path))}: cannot be written: {error.strerror}.{advice}") from error


def disk_size(path: str | os.PathLike[str]) -> int:
    """Return the size in bytes of a pack."""
    return sum(os.path.getsize(file) for file in files_of(path))


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a pack, a file or a directory, in the order of their paths."""
    if not os.path.isdir(path):
        return [Path(path)]
    return sorted(Path(folder, file) for folder, _, files in os.walk(path) for file in files)


def sync_directory(path: Path) -> None:
    """Return once the names in directory `path` are on the disk, where the system can say so."""
    with synced_directory(path):
        pass


@contextmanager
def synced_directory(path: Path) -> Iterator[None]:
    """Sync the names in directory `path` after the block, in which the directory itself may get another name."""
    if os.name == "nt":  # directories cannot be opened there; NTFS journals names by itself
        yield
        return
    with writing_to(path):
        fd = os.open(path, os.O_RDONLY)
    try:
        yield
        with writing_to(path):
            _sync_names(fd)
    finally:
        os.close(fd)


def _sync_names(fd: int) -> None:
    try:
        _sync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems
            raise


def _sync(fd: int) -> None:
    try:
        import fcntl

        full_sync = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone stops at the drive's cache
        if full_sync is not None:
            fcntl.fcntl(fd, full_sync)
            return
    except (ImportError, OSError):
        pass
    os.fsync(fd)
