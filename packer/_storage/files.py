"""Files that packer writes: appends, corrections, whole files that say why they failed; sizes; synced directories."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from packer._storage.opening import NO_LINK, open_regular
from packer._storage.packfile import pread
from packer._storage.uncached import write_uncached
from packer._table import Buffer
from packer.errors import DestinationError, printable

__all__ = [
    "AppendFile",
    "PatchFile",
    "disk_size",
    "remove",
    "replacing",
    "require_directory",
    "sync_directory",
    "synced_directory",
    "writing_to",
]

_COLLECT = 512 << 10  # bytes of one write; see `_pieces`
_COLLECT_PARTS = 500  # a system takes 1024 in one write


class AppendFile:
    """A file that grows at its end, with corrections at places already written.

    Appended data are collected, and written many at a time: by `flush` at the latest, until which they must not change.

    Parameters
    ----------
    path : path
        Created where it is missing. A symbolic link there is refused.
    keep : int
        How many bytes of an existing file are kept.
    new : bool
        Refuse what is there already.
    mode : int
        Permissions of a file that is created.
    shown : path, optional
        What errors name in place of `path`.
    cached : bool
        Whether the system's cache shall hold what is appended. False is a wish, which a system may not know.
    """

    def __init__(
        self,
        path: Path,
        keep: int = 0,
        *,
        new: bool = False,
        mode: int = 0o666,
        shown: Path | None = None,
        cached: bool = True,
    ) -> None:
        self.path = shown or path
        self._cached = cached
        with writing_to(self.path):
            flags = os.O_RDWR | os.O_CREAT | NO_LINK | (os.O_EXCL if new else 0)
            self._fd = open_regular(path, flags=flags, mode=mode)
            self._close = weakref.finalize(self, os.close, self._fd)
            if os.fstat(self._fd).st_size < keep:
                raise DestinationError(
                    f"{printable(self.path)}: shorter than its journal says. Start again with --fresh."
                )
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
        for piece in _pieces(self._parts) if self._collected > 2 * _COLLECT else [self._parts]:
            self._write_piece(piece)

    def _write_piece(self, parts: Sequence[Buffer]) -> None:
        written = None if self._cached else write_uncached(self._fd, parts)
        if written is None:
            self._cached = True
            written = os.writev(self._fd, parts) if hasattr(os, "writev") else os.write(self._fd, b"".join(parts))
        if written < sum(map(len, parts)):  # a full disk shows here first; the next write says so
            rest = memoryview(b"".join(parts))[written:]
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
        The file, or the directory of the pack.
    inside : str, optional
        The file's place in that directory; see `open_regular`.
    """

    def __init__(self, path: Path, inside: str = "") -> None:
        self.path = path / inside
        with writing_to(self.path):
            self._fd = open_regular(path, inside, os.O_RDWR)
        self._close = weakref.finalize(self, os.close, self._fd)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`, or fewer where the file ends."""
        return pread(self._fd, size, offset)

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


def _pieces(parts: Iterable[Buffer]) -> Iterator[list[Buffer]]:
    """Yield what is written at once: some `_COLLECT` bytes.

    For longer writes Linux takes memory in larger pieces than it has at hand, which a virtual machine has to ask its
    host for: measured, a write of 2 MiB took ten times as long for each byte as one of half a MiB.
    """
    piece, size = list[Buffer](), 0
    for part in parts:
        for start in range(0, len(part), _COLLECT):
            cut = part if len(part) <= _COLLECT else memoryview(part)[start : start + _COLLECT]
            if size + len(cut) > _COLLECT and piece:
                yield piece
                piece, size = [], 0
            piece.append(cut)
            size += len(cut)
    yield piece


@contextmanager
def writing_to(path: str | os.PathLike[str], then: str = "then run the same command again") -> Iterator[None]:
    """Turn an OSError into a DestinationError that names `path`, and says what is needed and what to do `then`."""
    try:
        yield
    except OSError as error:
        advice = {
            errno.ENOSPC: f" Free some space, or use another disk; {then}.",
            errno.EDQUOT: f" Your quota is used up. Free some of it; {then}.",
            errno.EFBIG: " The limit on the size of files (ulimit -f) is too low.",
        }.get(error.errno or 0, "")
        raise DestinationError(f"{printable(os.fspath(path))}: cannot be written: {error.strerror}.{advice}") from error


@contextmanager
def replacing(path: Path, shown: Path | None = None) -> Iterator[AppendFile]:
    """Write a file that has its name, and replaces what stood there, when the block ends and all of it is on the disk.

    Where the block fails, nothing is replaced and nothing left behind. Errors name `path`, or what is `shown` in its
    place.
    """
    # A name of its own, for several processes may write a file of this name at the same time.
    partial = path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}.partial")
    file = AppendFile(partial, shown=shown or path)
    try:
        yield file
        file.flush()
        file.sync()
        file.close()
        with writing_to(file.path):
            os.replace(partial, path)
    except BaseException:
        file.close()
        with suppress(OSError):
            os.unlink(partial)
        raise
    sync_directory(path.parent)


def require_directory(directory: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Raise DestinationError, which names `path`, where there is no directory for it, or none that can be looked at."""
    try:
        if stat.S_ISDIR(os.stat(directory).st_mode):
            return
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise DestinationError(f"{printable(os.fspath(path))}: cannot be written: {error.strerror}.") from error
    raise DestinationError(
        f"{printable(os.fspath(path))}: the directory {printable(os.fspath(directory))} does not exist. Make it first."
    )


def disk_size(path: str | os.PathLike[str]) -> int:
    """Return the size in bytes of a file, or of the regular files below a directory; links there count for nothing.

    Nor does what is removed meanwhile; FileNotFoundError where there is nothing at `path`.
    """
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    return sum(_sizes_below(path))


def _sizes_below(directory: str | os.PathLike[str]) -> Iterator[int]:
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                status = os.lstat(os.path.join(folder, name))
                if stat.S_ISREG(status.st_mode):
                    yield status.st_size


def remove(path: Path) -> None:
    """Remove a file, a symbolic link or a directory with all that is in it; another process may be removing it too."""
    with writing_to(path):
        while os.path.lexists(path):
            with suppress(FileNotFoundError):
                if stat.S_ISDIR(os.lstat(path).st_mode):
                    shutil.rmtree(path)
                else:
                    path.unlink()


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
