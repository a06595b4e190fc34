"""Packs nearer to the processor: in the page cache, or on a disk of this node."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from packer.errors import DestinationError, printable
from packer.formats import open_pack
from packer.formats.files import sync_directory, writing_to
from packer.locking import try_lock

__all__ = ["stage", "warm"]

_CHUNK = 16 << 20
_SECONDS_BETWEEN_TRIES = 0.2


def warm(path: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> int:
    """Read a pack from its beginning to its end, so that it lies in the page cache; return its bytes.

    The cache is shared by every process of the node. The system keeps what is in use as long as memory lasts.

    Parameters
    ----------
    path : path
        The pack.
    progress : callable, optional
        Called with the number of bytes read and their total.

    Raises
    ------
    PackError
        If the path is no pack.
    """
    with open_pack(path):  # says what is wrong with anything else
        pass
    files = list(_files(Path(path)))
    total = sum(file.stat().st_size for file in files)
    done = 0
    buffer = memoryview(bytearray(_CHUNK))
    for file in files:
        with open(file, "rb", buffering=0) as source:
            while count := source.readinto(buffer):
                done += count
                if progress is not None:
                    progress(done, total)
    return total


def stage(path: str | os.PathLike[str], directory: str | os.PathLike[str]) -> Path:
    """Copy a pack to a disk of this node, once for all processes that ask; return where the copy is.

    The first process copies, the others wait for it. A copy of this very pack that is there already is used; that of
    an earlier pack of the same name is left alone. ``/dev/shm`` is a directory in memory.

    Parameters
    ----------
    path : path
        The pack.
    directory : path
        Made where it is missing.

    Raises
    ------
    DestinationError
        If the copy cannot be written.
    """
    source, root = Path(os.path.abspath(path)), Path(os.path.abspath(directory))
    with open_pack(source) as reader:
        identity = reader.manifest.identity()
    staged = root / f"{source.stem}-{identity}{source.suffix}"
    if staged.exists():
        return staged
    with writing_to(root):
        root.mkdir(parents=True, exist_ok=True)
    lock_path = staged.with_name(staged.name + ".lock")
    with writing_to(lock_path):
        lock = open(lock_path, "a", encoding="utf-8")  # noqa: SIM115 - closed below
    with lock:
        while not try_lock(lock):
            time.sleep(_SECONDS_BETWEEN_TRIES)
        if not staged.exists():
            _copy(source, staged)
    return staged


def _copy(source: Path, staged: Path) -> None:
    needed = sum(file.stat().st_size for file in _files(source))
    free = shutil.disk_usage(staged.parent).free
    if needed > free:
        raise DestinationError(
            f"{printable(staged)}: {needed / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB are free. "
            "Stage to a larger disk, or read the pack where it is."
        )
    partial = staged.with_name(staged.name + ".partial")
    with writing_to(staged):
        if source.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(source, partial)
        else:
            shutil.copyfile(source, partial)
        os.rename(partial, staged)
    sync_directory(staged.parent)


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(file for file in path.iterdir() if file.is_file())
    else:
        yield path
