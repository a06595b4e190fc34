"""Writes files: appends, patches, replaces atomically, and syncs; holds locks, and makes temporary files.

There are two kinds of temporary files: spools, for data that grow with a pack, and a process's scratch directory.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shutil
import socket
import stat
import struct
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from packer._storage.packfile import pread
from packer._storage.safe_open import KINDS, NO_LINK, open_regular
from packer._table import COLUMNS, Buffer, Names, Table
from packer.errors import DestinationError, option, printable

_DONTCACHE = 0x80  # RWF_DONTCACHE of pwritev2(2)
_OLDEST = (6, 16)  # Linux has the flag since 6.14, and bugs in it were fixed up to this version
_UNABLE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_NO_FOLDER, _NOREPLACE = -100, 1  # AT_FDCWD and RENAME_NOREPLACE of renameat2(2)


def _is_known() -> bool:
    """Tell whether the system knows the flag for uncached writes; the file system may still refuse it."""
    if sys.platform != "linux" or not hasattr(os, "pwritev"):
        return False
    numbers = platform.release().split(".")[:2]
    return all(map(str.isdecimal, numbers)) and tuple(map(int, numbers)) >= _OLDEST


_KNOWN = _is_known()


def write_uncached(fd: int, parts: Sequence[Buffer]) -> int | None:
    """Write at the file's position like `os.writev`, but drop the bytes from the page cache once they are on disk.

    The system starts writing the bytes to disk immediately, and then reuses their memory for the next bytes. After a
    sync, the file is as durable as after ordinary writes.

    Returns
    -------
    int or None
        The number of bytes written. None if nothing was written, because the system or the file system does not support
        uncached writes.
    """
    if not _KNOWN:
        return None
    try:
        return os.pwritev(fd, parts, -1, _DONTCACHE)
    except NotImplementedError:  # the C library does not pass on the flags
        return None
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
        return None


def write_all(fd: int, data: Buffer) -> None:
    """Write all bytes at the file's position, in several system calls if necessary."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


_COLLECT = 512 << 10  # bytes of one write; see `_pieces`
_COLLECT_PARTS = 500  # a system takes 1024 in one write


class AppendFile:
    """A file that grows at its end and allows changes to bytes already written.

    Appended data are buffered, and written at the latest by `flush`. The caller must not change the data before they
    are written.

    Parameters
    ----------
    path : path
        The file, which is created if missing. A symbolic link is refused.
    keep : int
        The size in bytes to which an existing file is truncated.
    new : bool
        Whether to refuse an existing file.
    mode : int
        Permissions of a new file.
    shown : path, optional
        The path that errors show instead of `path`.
    cached : bool
        Whether the system's cache should keep the appended bytes. False is a hint that a system may ignore.
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
                    f"{printable(self.path)}: the file is shorter than its journal says. Start over with "
                    f"{option('fresh', True)}."
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
        """Write the collected bytes."""
        if not self._parts:
            return
        with writing_to(self.path):
            try:
                self._write_parts()
            except OSError:
                with suppress(OSError):  # leaves room on a full disk to record the bytes written before
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
        if written < sum(map(len, parts)):  # a full disk shows here first; the next write raises the error
            write_all(self._fd, memoryview(b"".join(parts))[written:])

    def write_at(self, offset: int, data: Buffer) -> None:
        """Replace bytes that were appended before."""
        self.flush()
        with writing_to(self.path):
            os.lseek(self._fd, offset, os.SEEK_SET)
            write_all(self._fd, data)
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
            raise DestinationError(f"{printable(self.path)}: the file became shorter while packer was writing it")
        return data

    def sync(self) -> None:
        """Wait until everything that was flushed is on the disk. May be called on another thread."""
        with writing_to(self.path):
            _sync(self._fd)

    def close(self) -> None:
        """Close the file."""
        self._close()


class PatchFile:
    """A file of a complete pack, in which bytes are replaced by the same number of other bytes.

    Parameters
    ----------
    path : Path
        The file, or the directory of the pack.
    inside : str, optional
        The file's path below that directory; see `open_regular`.
    """

    def __init__(self, path: Path, inside: str = "") -> None:
        self.path = path / inside
        with writing_to(self.path):
            self._fd = open_regular(path, inside, os.O_RDWR)
        self._close = weakref.finalize(self, os.close, self._fd)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`, or fewer at the end of the file."""
        return pread(self._fd, size, offset)

    def write(self, offset: int, data: Buffer) -> None:
        """Replace the bytes from `offset` on."""
        with writing_to(self.path):
            os.lseek(self._fd, offset, os.SEEK_SET)
            write_all(self._fd, data)

    def close(self) -> None:
        """Return once everything that was written is on the disk."""
        with writing_to(self.path):
            _sync(self._fd)
        self._close()


def _pieces(parts: Iterable[Buffer]) -> Iterator[list[Buffer]]:
    """Yield blocks of about `_COLLECT` bytes.

    Longer writes need larger contiguous pieces of memory. If Linux has none free, a virtual machine has to request
    them from its host. In a measurement, a write of 2 MiB took ten times as long per byte as one of half
    a MiB.
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
    """Turn an OSError into a DestinationError with `path`, the cause, and the advice `then`."""
    try:
        yield
    except OSError as error:
        advice = {
            errno.ENOSPC: f" Free some space, or use another disk; {then}.",
            errno.EDQUOT: f" Your quota is used up. Delete some files; {then}.",
            errno.EFBIG: " The limit on the size of files (ulimit -f) is too low.",
        }.get(error.errno or 0, "")
        raise DestinationError(f"{printable(os.fspath(path))}: cannot be written: {error.strerror}.{advice}") from error


@contextmanager
def replacing(path: Path, shown: Path | None = None) -> Iterator[AppendFile]:
    """Write a file atomically: after the ``with`` block, sync the file, and then rename it to `path`.

    If the block fails, nothing is replaced and no file is left behind. Errors show `shown`, by default `path`.
    """
    # A unique name, because several processes may write a file of this name at the same time.
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


def rename_new(old: Path, new: Path) -> None:
    """Rename a file or a directory; FileExistsError if `new` exists, unless the system or file system cannot tell."""
    if sys.platform == "linux" and (library := ctypes.CDLL(None, use_errno=True)) and hasattr(library, "renameat2"):
        sys.audit("os.rename", old, new, -1, -1)  # as os.rename does
        if library.renameat2(_NO_FOLDER, os.fsencode(old), _NO_FOLDER, os.fsencode(new), _NOREPLACE) == 0:
            return
        if ctypes.get_errno() == errno.EEXIST:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(new))
    # The other errors do not matter: some systems refuse renameat2 with EPERM or ENOSYS, and others refuse its flag.
    os.rename(old, new)


def require_directory(directory: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Raise DestinationError if the directory of `path` does not exist or cannot be accessed."""
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
    """Return the size in bytes of a file, or the total size of the regular files below a directory.

    Symbolic links below the directory are not counted, and neither are files that are removed meanwhile.
    FileNotFoundError is raised if nothing exists at `path`.
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
    """Remove a file, a symbolic link, or a directory with all its content, even if another process removes it too."""
    with writing_to(path):
        while os.path.lexists(path):
            with suppress(FileNotFoundError):
                if stat.S_ISDIR(os.lstat(path).st_mode):
                    shutil.rmtree(path)
                else:
                    path.unlink()


def sync_directory(path: Path) -> None:
    """Return once the names in directory `path` are on disk, if the system can sync directories."""
    with synced_directory(path):
        pass


@contextmanager
def synced_directory(path: Path) -> Iterator[None]:
    """Sync the names in directory `path` after the ``with`` block, which may rename the directory itself."""
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


PICTURES = {".png": (b"\x89png\r\n\x1a\n",), ".svg": (b"<?xml", b"<svg")}
"""The suffixes of pictures, and the first bytes of their files, in lower case."""


def require_output(
    path: str | os.PathLike[str],
    what: str,
    begins: tuple[bytes, ...],
    is_right: Callable[[IO[bytes]], bool] = lambda file: True,
) -> None:
    """Refuse a path if no file can be written there, or if a file of another kind would be replaced.

    Without this check, a mistake such as ``--html train.lmdb`` would replace a pack by a report.

    Parameters
    ----------
    path : path
    what : str
        The kind of file, for messages.
    begins : tuple of bytes
        The possible beginnings of files of this kind, in lower case.
    is_right : callable, optional
        Tells whether a file with such a beginning is of this kind.

    Raises
    ------
    DestinationError
        If the file cannot be written, or a file of another kind exists at `path`. An empty file may be replaced.
    """
    shown = printable(os.fspath(path))
    parent = os.path.dirname(os.path.abspath(path))
    require_directory(parent, path)
    if os.path.isdir(path):
        raise DestinationError(f"{shown}: is a directory. Pass the name of a file for the {what}.")
    if os.path.exists(path) and (kind := stat.S_IFMT(os.stat(path).st_mode)) in (stat.S_IFBLK, stat.S_IFSOCK):
        raise DestinationError(f"{shown}: is {KINDS[kind]}. Pass the name of a file for the {what}.")
    if not os.access(path if os.path.exists(path) else parent, os.W_OK):
        raise DestinationError(f"{shown}: the {what} cannot be written: Permission denied")
    if os.path.isfile(path):  # reading anything else, such as a FIFO, may not end
        with writing_to(path), open(path, "rb") as file:
            start = file.read(max(map(len, begins)))
            file.seek(0)
            fits = not start or (start.lower().startswith(begins) and is_right(file))
        if not fits:
            raise DestinationError(
                f"{shown}: the {what} would replace a file that is not a {what}. Choose another name, or delete it "
                "yourself first."
            )


def write_output(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file completely, or leave the existing file unchanged.

    Raises
    ------
    DestinationError
        If the file cannot be written.
    """
    target = Path(os.path.realpath(path))
    if os.path.exists(target) and not os.path.isfile(target):  # such as a FIFO, or a terminal
        with writing_to(path), open(target, "wb") as file:
            file.write(content)
        return
    with replacing(target, shown=Path(path)) as new:
        new.append(content)


SECONDS_BETWEEN_TRIES = 0.2
"""Seconds between two attempts to take a lock."""


@contextmanager
def held(path: Path, wait: Callable[[], None]) -> Iterator[None]:
    """Hold a lock on the file `path`; the file exists only while a process holds the lock or waits for it.

    Parameters
    ----------
    path : Path
    wait : callable
        Called repeatedly while another process holds the lock.

    Raises
    ------
    DestinationError
        If the file cannot be made or locked.
    """
    while True:
        with writing_to(path):
            lock = open(path, "ab", opener=_open_lock)  # noqa: SIM115 - closed below
        with lock:
            while not try_lock(lock):
                wait()
                time.sleep(SECONDS_BETWEEN_TRIES)
            if not is_at(lock, path):  # its holder removed the file after we opened it and before we locked it
                continue
            try:
                yield
            finally:
                if os.name == "nt":  # an open file cannot be removed there, here or by the next holder
                    lock.close()
                with suppress(OSError):
                    os.unlink(path)
            return


def _open_lock(path: str, flags: int) -> int:
    return open_regular(path, flags=flags | NO_LINK, mode=0o600)


def is_at(file: IO[Any], path: Path) -> bool:
    """Tell whether `path` still refers to this open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def try_lock(file: IO[Any]) -> bool:
    """Try to lock an open file until it is closed or the process dies.

    Return False if another process holds the lock.
    """
    try:
        if os.name == "nt":
            import msvcrt

            file.seek(1 << 30)  # far beyond the text, so that others can still read it
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            return False
        raise DestinationError(
            f"{printable(file.name)}: cannot be locked: {error.strerror}. This file system does not support locks "
            "(Lustre: mount it with -o flock); write to another disk, and copy the complete pack."
        ) from error
    return True


_SPOOL_BUFFER = 1 << 16  # bytes
_CODES = {"<i8": "q", "<i4": "i", "<i2": "h", "|i1": "b", "<u4": "I", "|u1": "B", "<f8": "d", "<f4": "f"}
"""The codes of `struct` for the dtypes of columns."""


class Spool:
    """An unnamed temporary file of bytes, which is deleted when it is closed.

    Parameters
    ----------
    directory : Path, optional
        The file's directory; by default the system's directory for temporary files.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or Path(tempfile.gettempdir())
        with writing_to(self._directory):
            self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - held until `close`
        self._close = weakref.finalize(self, _close, self._file)
        self._collected = bytearray()
        self._size = 0

    def append(self, data: Buffer) -> None:
        """Add bytes at the end."""
        self._collected += data
        if len(self._collected) >= _SPOOL_BUFFER:
            self._write()

    def array(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a mapping of all bytes appended so far. It stays valid after `append` and `close`."""
        self._write()
        if not self._size:  # an empty file cannot be mapped
            return np.empty(0, dtype)
        return np.asarray(np.memmap(self._file, dtype, "r"))

    def close(self) -> None:
        """Close the file; arrays that were returned stay valid."""
        self._close()

    def _write(self) -> None:
        with writing_to(self._directory):
            self._file.write(self._collected)
            self._file.flush()
        self._size += len(self._collected)
        self._collected.clear()


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # the error of a full disk was already reported when the file was written
        file.close()


class TableBuilder:
    """Collects the rows of a table in temporary files.

    Parameters
    ----------
    directory : Path, optional
        The directory of the temporary files.
    types : mapping, optional
        The columns and their dtypes; see `packer._table.column_types`.
    """

    def __init__(self, directory: Path | None = None, types: Mapping[str, str] = COLUMNS) -> None:
        self._types = types
        of_a_row = {name: dtype for name, dtype in types.items() if name != "names"}
        self._row = struct.Struct("<" + "".join(map(_CODES.__getitem__, of_a_row.values())))
        self._row_type = np.dtype(list(of_a_row.items()))
        self._rows, self._names = Spool(directory), Spool(directory)
        self._count = 0
        self._name_end = 0

    def __len__(self) -> int:
        return self._count

    def append(
        self,
        *,
        label: int | float,
        height: int,
        width: int,
        offset: int,
        size: int,
        crc32c: int,
        name: bytes,
        more: Sequence[int | float] = (),
    ) -> None:
        """Add one row; `more` has the values of the fields' columns, in the order of the columns."""
        self._count += 1
        self._name_end += len(name)
        self._rows.append(self._row.pack(label, height, width, offset, size, crc32c, self._name_end, *more))
        self._names.append(name)

    def extend(self, columns: Mapping[str, npt.NDArray[Any]], names: Names) -> None:
        """Add rows.

        `columns` has all columns except ``name_end`` and ``names``, possibly with wider dtypes than the table's.
        """
        rows = np.empty(len(names), self._row_type)
        for name in rows.dtype.names or ():
            rows[name] = names.ends + self._name_end if name == "name_end" else columns[name]
        self._count += len(names)
        self._name_end += len(names.blob)
        self._rows.append(rows.tobytes())
        self._names.append(names.blob.tobytes())

    def build(self) -> Table:
        """Return a table of the rows added so far; the table stays valid."""
        rows = self._rows.array(self._row_type)
        columns = {name: rows[name] for name in self._types if name != "names"}
        return Table.of({**columns, "names": self._names.array(np.uint8)}, self._types)

    def close(self) -> None:
        """Close the files; tables that were built stay valid."""
        self._rows.close()
        self._names.close()


SHARED_MEMORY = Path("/dev/shm")

_LOCK = "lock"
_ROOM = 1 << 30  # bytes that must be free in the memory
_directories: dict[tuple[int, str, Path], Path] = {}
"""The scratch directories by process, prefix and parent; a forked process makes its own."""


def process_directory(prefix: str) -> Path:
    """Return this process's scratch directory, whose name begins with `prefix`; the directory is removed at exit.

    The directory is in memory if there is room, and contains a locked file. If a process is killed, its directory
    remains without a lock, and the next process removes the directory.
    """
    parent = Path(tempfile.gettempdir())
    if os.access(SHARED_MEMORY, os.W_OK) and shutil.disk_usage(SHARED_MEMORY).free >= _ROOM:
        parent = SHARED_MEMORY
    _remove_abandoned(parent, prefix)
    key = os.getpid(), prefix, parent
    if key not in _directories or not os.path.isdir(_directories[key]):  # some systems empty it when a user logs out
        _directories[key] = _make_directory(parent, prefix)
    return _directories[key]


def _make_directory(parent: Path, prefix: str) -> Path:
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    lock = open(made / f"new-{_LOCK}", "wb")  # noqa: SIM115 - open as long as the process lives
    try_lock(lock)
    if os.name != "nt":  # where an open file cannot be renamed
        os.rename(lock.name, made / _LOCK)
    # Not atexit, which children of multiprocessing do not run. With this priority, this process's children end first.
    Finalize(None, _remove_own, (made, lock), exitpriority=-100)
    return made


def _remove_own(directory: Path, lock: IO[bytes]) -> None:
    lock.close()
    shutil.rmtree(directory, ignore_errors=True)


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove the directories of killed processes of this user."""
    for path in parent.glob(f"{prefix}*/{_LOCK}"):
        with suppress(OSError, DestinationError), open(path, "ab", opener=_open_existing_lock) as lock:
            owner = os.lstat(path.parent)
            if stat.S_ISDIR(owner.st_mode) and owner.st_uid == os.geteuid() and try_lock(lock):
                shutil.rmtree(path.parent)


def _open_existing_lock(path: str, flags: int) -> int:
    return _open_lock(path, flags & ~os.O_CREAT)
