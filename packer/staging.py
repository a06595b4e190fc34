"""Packs nearer to the processor: in memory, or on a disk of this node; either once for all processes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import mmap
import operator
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import DestinationError, PackError, printable
from packer.executors import available_memory
from packer.formats import open_pack
from packer.formats.files import AppendFile, disk_size, files_of, sync_directory, writing_to
from packer.locking import try_lock

__all__ = ["Kept", "copy_pack", "keep", "stage", "warm"]

_CHUNK = 16 << 20
_MOST_OF_MEMORY = 0.8
_SECONDS_BETWEEN_TRIES = 0.2

Progress = Callable[[int, int], None]


def warm(path: str | os.PathLike[str], *, progress: Progress | None = None) -> int:
    """Read a pack from its beginning to its end, so that it lies in the page cache; return its bytes.

    The cache is shared by every process of the node. The system drops what was not used for long when memory gets
    scarce; `keep` forbids that.

    Parameters
    ----------
    path : path
        The pack.
    progress : callable, optional
        Called with the number of bytes read and their total.

    Raises
    ------
    PackError
        If the path is no pack, or cannot be read.
    """
    size = _size(path)
    for _ in _chunks(Path(path), progress):
        pass
    return size


class Kept:
    """Files that are locked in the page cache until this is closed, or collected, or its process ends.

    Parameters
    ----------
    paths : sequence of path
        By default none. A pickled one comes back with none: one lock on a node is enough.

    Attributes
    ----------
    size : int
        How many bytes are locked.

    Raises
    ------
    OSError
        If the system does not lock that much for this process.
    """

    def __init__(self, paths: Sequence[Path] = ()) -> None:
        # A lock lasts as long as its mapping, which nobody reads: reads stay `pread`, which no cut file can kill.
        self._mappings: list[mmap.mmap] = []
        for path in paths:
            with open(path, "rb") as file:
                mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            _lock(mapping)
            self._mappings.append(mapping)
        self.size = sum(map(len, self._mappings))

    def close(self) -> None:
        """Give the memory back to the system, which keeps the bytes for as long as it likes."""
        for mapping in self._mappings:
            mapping.close()
        self._mappings, self.size = [], 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, ()


def keep(path: str | os.PathLike[str], *, progress: Progress | None = None) -> Kept:
    """Read a pack into the page cache and lock it there, where every process of the node finds it.

    Nothing is copied: processes that keep the same pack lock the same memory, and the last one frees it, however it
    ends. What a process that locks pays is its page table: 0.2 % of the size of the pack.

    Parameters
    ----------
    path : path
        The pack.
    progress : callable, optional
        Called with the number of bytes read and their total.

    Returns
    -------
    Kept
        The lock. It is empty, with a RuntimeWarning, where the system does not allow it: the limit on locked memory
        (``ulimit -l``) is often some MB only. Then the pack was read, and stays while memory lasts.

    Raises
    ------
    PackError
        If the path is no pack, cannot be read, or takes more than four fifths of the memory that this process is
        granted.
    """
    size, memory = _size(path), available_memory()
    if memory is not None and size > _MOST_OF_MEMORY * memory:
        raise PackError(
            f"{printable(os.fspath(path))}: {size / 1e9:.1f} GB cannot be kept in {memory / 1e9:.1f} GB of memory. "
            "Read it from the disk, in the order of a BlockShuffleSampler, or resize it."
        )
    warm(path, progress=progress)
    try:
        return Kept(files_of(path))
    except OSError as error:
        warnings.warn(
            f"{printable(os.fspath(path))}: was read into the page cache and is not locked there, so the system may "
            f"drop it when memory gets scarce: {error.strerror}. Raise the limit on locked memory (ulimit -l) to "
            f"{-(-size // 1024)} kB, or stage the pack in /dev/shm.",
            RuntimeWarning,
            stacklevel=3,
        )
        return Kept()


def stage(path: str | os.PathLike[str], directory: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
    """Copy a pack to a disk of this node, once for all processes that ask; return where the copy is.

    The first process copies, the others wait for it. A copy of this very pack that is there already is used; that of
    an earlier pack of the same name is left alone. ``/dev/shm`` is a directory in memory. Whoever wants the space back
    deletes the copy.

    Parameters
    ----------
    path : path
        The pack.
    directory : path
        Made where it is missing; the directory that it lies in is not.
    progress : callable, optional
        Called with the number of bytes copied, by whichever process, and their total.

    Raises
    ------
    DestinationError
        If the copy cannot be written, or what the directory lies in is missing.
    PackError
        If the path is no pack, or cannot be read.
    """
    source, root = Path(os.path.abspath(path)), Path(os.path.abspath(directory))
    with open_pack(source) as reader:
        identity = reader.manifest.identity()
    staged = root / f"{source.stem}-{identity}{source.suffix}"
    if staged.exists():
        return staged
    if not root.parent.is_dir():
        raise DestinationError(
            f"{printable(root)}: the directory {printable(root.parent)} does not exist. Make it first."
        )
    with writing_to(root):
        root.mkdir(exist_ok=True)
    partial = staged.with_name(staged.name + ".partial")
    lock_path = staged.with_name(staged.name + ".lock")
    with writing_to(lock_path):
        lock = open(lock_path, "a", encoding="utf-8")  # noqa: SIM115 - closed below
    with lock:
        while not try_lock(lock):
            if progress is not None:
                with contextlib.suppress(OSError):  # it is not there yet, or no longer
                    progress(disk_size(partial), disk_size(source))
            time.sleep(_SECONDS_BETWEEN_TRIES)
        if not staged.exists():
            copy_pack(source, partial, progress)
            with writing_to(staged):
                os.rename(partial, staged)
            sync_directory(root)
    return staged


def _size(path: str | os.PathLike[str]) -> int:
    """Return the size of a pack; PackError where it is something else."""
    with open_pack(path):
        return disk_size(path)


def copy_pack(source: Path, copy: Path, progress: Progress | None = None) -> None:
    """Write and sync a copy of a pack, in the place of whatever an interrupted process left there.

    Raises
    ------
    DestinationError
        If there is no room for it, or it cannot be written.
    """
    needed, free = disk_size(source), shutil.disk_usage(copy.parent).free
    if needed > free:
        raise DestinationError(
            f"{printable(copy.parent)}: {needed / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB are free. "
            "Stage to a larger disk, or read the pack where it is."
        )
    shutil.rmtree(copy, ignore_errors=True)
    for file, chunks in itertools.groupby(_chunks(source, progress), operator.itemgetter(0)):
        place = copy / file.relative_to(source)
        with writing_to(copy):
            place.parent.mkdir(parents=True, exist_ok=True)
        written = AppendFile(place)
        for _, chunk in chunks:
            written.append(chunk)
            written.flush()  # the chunk's memory is used again
        written.sync()
        written.close()


def _chunks(path: Path, progress: Progress | None) -> Iterator[tuple[Path, memoryview]]:
    """Yield the bytes of a pack, file by file, in memory that is used again for the next."""
    done, total = 0, disk_size(path)
    buffer = memoryview(bytearray(_CHUNK))
    for file in files_of(path):
        with _reading(file), open(file, "rb", buffering=0) as source:
            while count := source.readinto(buffer):
                yield file, buffer[:count]
                done += count
                if progress is not None:
                    progress(done, total)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PackError(f"{printable(path)}: cannot be read: {error.strerror}") from error


def _lock(mapping: mmap.mmap) -> None:
    """Keep a mapping's pages in memory; OSError where that is not allowed, or not possible on this system."""
    if os.name == "nt":
        raise OSError(errno.ENOSYS, "Windows does not lock files in memory")
    library = ctypes.CDLL(None, use_errno=True)
    address = np.frombuffer(mapping, np.uint8).ctypes.data
    if library.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(mapping))) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
