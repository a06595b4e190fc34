"""Copies of packs on a disk or in the memory of this node, which all processes of the node share.

Copies lie in a directory to which only this user may write, so nobody else can plant a false copy.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from packer._formats import open_pack
from packer._formats.files import PackFiles, ProgressCallback, copy_pack
from packer._storage.files import disk_size, held, remove, require_directory, sync_directory, writing_to
from packer._storage.place import place_of
from packer._storage.progress import shown_progress
from packer._storage.remote.urls import user_path
from packer._storage.system import available_memory, in_units
from packer.errors import DestinationError, PackerError, PackError, PackLockedError, printable, warn


def own_directory(directory: Path) -> Path:
    """Return a directory to which only this user may write: `directory` or a subdirectory. Create it if missing.

    The returned path has no symbolic links, so changing a link later cannot redirect it.
    """
    with writing_to(directory):
        require_directory(directory.parent, directory)
        _require_trusted_link(directory)
        _make_directory(directory)
        directory = _resolved(directory)
        if _is_private(os.stat(directory)):
            return directory
        _require_guarded(directory)
    own = directory / _own_name()
    with writing_to(own):
        _make_directory(own)
        if _is_private(os.lstat(own)):
            return own
    raise DestinationError(
        f"{printable(own)}: must be a directory that belongs to you and that nobody else may write to. "
        "Remove it, or stage to another directory."
    )


def own_directories(directory: Path) -> list[Path]:
    """Return the existing directories that earlier calls of `own_directory` with `directory` may have returned.

    Raises DestinationError if the directory does not exist, or if `own_directory` would refuse it because another user
    could redirect it.
    """
    with writing_to(directory), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        _require_trusted_link(directory)
        directory = _resolved(directory)
        found = [directory] if _is_private(os.stat(directory)) else []
        if not found:
            _require_guarded(directory)
        own = directory / _own_name()
        with contextlib.suppress(FileNotFoundError):
            if _is_private(os.lstat(own)):
                found.append(own)
        return found
    raise DestinationError(
        f"{printable(directory)}: no such directory. Name the directory to which the pack was staged."
    )


def _resolved(directory: Path) -> Path:
    """Return a path without symbolic links, after checking that no stranger can replace any directory on it."""
    directory = Path(os.path.realpath(directory, strict=True))
    for parent in directory.parents:
        _require_guarded(parent)
    return directory


def _own_name() -> str:
    return f"packer-{os.geteuid()}" if hasattr(os, "geteuid") else "packer"


def _require_trusted_link(path: Path) -> None:
    """Raise DestinationError if a path is a symbolic link of another user, who could redirect it at any time."""
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode) and not _is_trusted(status):
            raise DestinationError(
                f"{printable(path)}: is a link that belongs to another user. Stage to another directory."
            )


def _require_guarded(directory: Path) -> None:
    """Raise DestinationError if everybody may write to a directory and strangers can rename its entries.

    With the sticky bit, only an entry's owner and the directory's owner can rename the entry. If only owner and group
    may write to a directory, they are trusted.
    """
    status = os.stat(directory)
    if not hasattr(os, "geteuid") or not status.st_mode & stat.S_IWOTH:
        return
    if not status.st_mode & stat.S_ISVTX:
        reason = "is writable by everybody, and has no sticky bit (chmod +t)"
    elif not _is_trusted(status):
        reason = "is writable by everybody, and belongs to somebody else"
    else:
        return
    raise DestinationError(
        f"{printable(directory)}: {reason}, so others could replace a copy there. Stage to another directory."
    )


def _make_directory(path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def _is_private(status: os.stat_result) -> bool:
    if not hasattr(os, "geteuid"):
        return True
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and _is_closed(status)


def _is_closed(status: os.stat_result) -> bool:
    return not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_trusted(status: os.stat_result) -> bool:
    """Tell whether a file belongs to this user, or to root, who has all rights anyway."""
    return not hasattr(os, "geteuid") or status.st_uid in (0, os.geteuid(), _uid_of_unmapped_root())


def _uid_of_unmapped_root() -> int:
    """Return the uid that root's files have here: 0, except in a container that does not map root's uid.

    See user_namespaces(7): an id without a mapping appears as the overflow id.
    """
    try:
        mapped = [line.split()[1] for line in Path("/proc/self/uid_map").read_bytes().splitlines()]
        return 0 if b"0" in mapped else int(Path("/proc/sys/kernel/overflowuid").read_bytes())
    except (OSError, ValueError, IndexError):  # another system than Linux
        return 0


_MOST_OF_MEMORY = 0.8
_UNFINISHED = ".staging"  # the end of the names of unfinished copies; unfinished conversions have another suffix
_LOCK = ".staging.lock"


def warm(path: str | os.PathLike[str], *, progress: ProgressCallback | bool | None = None) -> int:
    """Read the files of a pack from beginning to end into the system's page cache; return their size in bytes.

    All processes of the node share the cache. When memory is scarce, the system drops pages that were not used for a
    long time; ``ImageDataset(..., cache="ram")`` prevents this.

    Parameters
    ----------
    path : path
        The pack.
    progress : bool or callable, optional
        True shows a progress bar. A callable is called with the number of bytes read and their total.

    Raises
    ------
    PackError
        If the path is not a pack, or cannot be read.
    """
    return _read(PackFiles.of(path), shown_progress(progress, path, "B"))


def _read(pack: PackFiles, progress: ProgressCallback | None = None) -> int:
    return sum(len(data) for _, _, data in pack.chunks(progress))


class PageLock:
    """The files of a pack, locked in the page cache until the lock is closed or deleted, or the process ends.

    Parameters
    ----------
    pack : PackFiles, optional
        The files to lock; by default none. A pickled lock is restored without files, because one lock on a node is
        enough.

    Attributes
    ----------
    size : int
        The number of locked bytes.

    Raises
    ------
    OSError
        If the system does not allow this process to lock that much memory.
    PackError
        If a file has changed since it was listed.
    """

    def __init__(self, pack: PackFiles | None = None) -> None:
        # A lock lasts as long as its mapping. The mapping is never read: if a file was truncated, that would kill the
        # process.
        self._mappings: list[mmap.mmap] = []
        if pack is not None:
            for name in [name for name, size in pack.sizes.items() if size]:  # an empty file cannot be mapped
                with pack.open(name) as file:
                    self._mappings.append(file.mapping())
                _lock(self._mappings[-1])
        self.size = sum(map(len, self._mappings))

    def close(self) -> None:
        """Unlock the memory; the system may then drop the bytes from its cache at any time."""
        for mapping in self._mappings:
            mapping.close()
        self._mappings, self.size = [], 0

    def __reduce__(self) -> tuple[Any, ...]:
        return PageLock, ()


def lock_in_memory(path: str | os.PathLike[str]) -> PageLock:
    """Read a pack into the page cache and lock it there, for every process of the node.

    All processes that lock the same pack lock the same memory, without copies. The memory is freed when the last of
    these processes ends, even if it is killed. Each of these processes needs a page table of 0.2 % of the size of the
    pack.

    Parameters
    ----------
    path : path
        The pack.

    Returns
    -------
    PageLock
        The lock. If the system does not allow locking, the lock is empty and a RuntimeWarning is given. A common reason
        is a limit on locked memory (``ulimit -l``) of only a few MB. The pack is then in the page cache, and stays
        there as long as memory suffices.

    Raises
    ------
    PackError
        If the path is not a pack, cannot be read, or needs more than four fifths of the memory that this process may
        use.
    """
    pack, memory = PackFiles.of(path), available_memory()
    if pack.place.remote:
        raise PackError(
            f"{printable(pack.place)}: cache='ram' applies only to files on a disk. Stage the pack, or cache it with "
            "cache_dir="
        )
    size = pack.size
    if memory is not None and size > _MOST_OF_MEMORY * memory:
        raise PackError(
            f"{printable(user_path(path))}: the pack has {in_units(size)}, too much for {in_units(memory)} of memory. "
            "Read it from the disk, in the order of a BlockShuffleSampler, or convert it to a smaller size."
        )
    _read(pack)
    try:
        return PageLock(pack)
    except OSError as error:
        warn(
            f"{printable(user_path(path))}: was read into the page cache but could not be locked there, so the system "
            f"may drop it when memory becomes scarce: {error.strerror}. Raise the limit on locked memory (ulimit -l) "
            f"to {-(-size // 1024)} kB, or stage the pack in /dev/shm.",
            RuntimeWarning,
        )
        return PageLock()


def stage(
    path: str | os.PathLike[str], directory: str | os.PathLike[str], *, progress: ProgressCallback | bool | None = None
) -> Path:
    """Copy a pack to a disk of this node, once for all processes of a user, and return the path of the copy.

    The first process copies; the others wait for it. An existing copy is used if it was made from the same path, and if
    the pack's manifest and the sizes and times of its files have not changed since then. A copy of an earlier version
    of the pack is left unchanged; `unstage` removes copies. Remains of an interrupted call are removed when a pack of
    the same name is staged to the directory again. Other packs and unfinished conversions in the directory are left
    unchanged.

    If only this user may write to `directory`, for example because `stage` created it, the copy lies directly in
    `directory`. If other users may write to `directory`, for example to ``/dev/shm``, the copy lies in a subdirectory
    ``packer-UID`` that belongs to the user. So nobody else can plant a false copy. Therefore only the owner, type and
    size of an existing copy's files are checked, and not every byte. On Windows, packer does not check who owns
    `directory`; it must belong to the user.

    `stage` refuses `directory` if a stranger could replace ``packer-UID``. This is possible if everybody may write to
    `directory` or to one of its parents, unless that directory has the sticky bit and belongs to root or to this user.
    Owners and groups of directories are trusted; access control lists are ignored.

    Parameters
    ----------
    path : path
        The pack.
    directory : path
        The directory for the copy. A missing directory is created for this user only; the parent directory must exist.
        ``~`` is the user's home directory.
    progress : bool or callable, optional
        True shows a progress bar. A callable is called with two numbers: the bytes copied so far, by whichever process
        copies them, and the bytes to copy in all.

    Returns
    -------
    Path
        The copy: ``DIRECTORY/STEM-DIGITS-DIGITS.SUFFIX``, or the same name in ``DIRECTORY/packer-UID``. The second
        group of digits identifies the manifest; `unstage` recognises a copy by this group.

    Raises
    ------
    DestinationError
        If the copy cannot be written, or the parent of `directory` is missing. If ``packer-UID`` belongs to another
        user, or others could replace the copy.
    PackError
        If the path is not a pack, or cannot be read.
    """
    show, pack = shown_progress(progress, path, "B"), PackFiles.of(path)
    root = own_directory(Path(os.path.abspath(os.path.expanduser(directory))))
    staged = root / _copy_name(pack)
    if pack.are_at(staged):
        return staged
    partial = staged.with_name(staged.name + _UNFINISHED)

    def wait() -> None:
        if show is not None:
            show(_size_so_far(partial), pack.size)

    with held(staged.with_name(staged.name + _LOCK), wait):
        if not pack.are_at(staged):
            remove(staged)  # an incomplete copy
            _remove_abandoned(staged, Path(pack.place.path))
            copy_pack(pack, partial, show)
            with writing_to(staged):
                os.rename(partial, staged)
            sync_directory(root)
    return staged


def unstage(path: str | os.PathLike[str], directory: str | os.PathLike[str], *, all_versions: bool = False) -> int:
    """Remove the copy of a pack that `stage` made, and return its size in bytes.

    Only complete copies in directories of this user are removed. If the pack is an LMDB or HDF5 file, an open dataset
    can continue to read the removed copy. The system frees the space when the last dataset is closed. If the pack is a
    directory, the dataset can read only the files that it has already opened.

    Parameters
    ----------
    path : path
        The pack.
    directory : path
        The directory that was passed to `stage`.
    all_versions : bool
        Whether to remove the copies of all packs of this name, including earlier versions of the pack, and packs that
        lie in other directories. If so, the pack itself need not exist. Only packs whose manifest matches the digits in
        their name count as copies. Other files are not removed, and neither is a damaged copy whose manifest cannot be
        read.

    Returns
    -------
    int
        The size of the removed copies in bytes; 0 if there was no copy.

    Raises
    ------
    PackLockedError
        If another process is making the copy.
    DestinationError
        If a copy cannot be removed; if `directory` does not exist; or if `stage` would refuse `directory`.
    PackError
        If the path is not a pack, or cannot be read.
    """
    pack = Path(place_of(os.path.expanduser(path)).name)
    this = None if all_versions else _copy_name(PackFiles.of(path))
    removed = 0
    for root in own_directories(Path(os.path.abspath(os.path.expanduser(directory)))):
        for copy in [root / this] if this else _copies(root, pack):
            with _held_by_nobody_else(copy):
                # An interrupted process may have left an unfinished copy.
                for found in (copy, copy.with_name(copy.name + _UNFINISHED)):
                    removed += _size_so_far(found)
                    remove(found)
    return removed


class _InUseError(Exception):
    """Raised internally if another process holds a lock."""


def _copy_name(pack: PackFiles) -> str:
    name = PurePosixPath(pack.place.name)
    return f"{name.stem}-{pack.digest()}-{pack.identity[:12]}{name.suffix}"


def _copies(root: Path, pack: Path) -> list[Path]:
    """Return the copies in `root`, complete or not, of packs that have the same name as `pack`."""
    unfinished = _unfinished(root, pack)
    named = re.compile(_copy_names(pack))
    with writing_to(root):
        names = [name for name in os.listdir(root) if named.fullmatch(name) and name not in unfinished]
    return sorted([root / name for name in unfinished] + [root / name for name in names if _is_copy(root / name)])


def _unfinished(root: Path, pack: Path) -> set[str]:
    """Return the names of unfinished copies, including interrupted ones, for packs with the same name as `pack`."""
    name = re.compile(f"({_copy_names(pack)})(?:{re.escape(_UNFINISHED)}|{re.escape(_LOCK)})")
    with writing_to(root):
        return {match[1] for match in map(name.fullmatch, os.listdir(root)) if match}


def _copy_names(pack: Path) -> str:
    """Return a pattern for the names of copies of packs named like `pack`; names of other files may match it too."""
    return f"{re.escape(pack.stem)}-[0-9a-f]{{12}}-[0-9a-f]{{12}}{re.escape(pack.suffix)}"


def _is_copy(path: Path) -> bool:
    """Tell whether a path with a copy's name is a copy: a pack whose manifest matches the digits in the name."""
    try:
        with open_pack(path) as reader:
            return path.stem.endswith("-" + reader.manifest.identity()[:12])
    except PackerError:
        return False


@contextlib.contextmanager
def _held_by_nobody_else(copy: Path) -> Iterator[None]:
    try:
        with held(copy.with_name(copy.name + _LOCK), _refuse_to_wait):
            yield
    except _InUseError:
        raise PackLockedError(f"{printable(copy)}: another process is making this copy") from None


def _remove_abandoned(staged: Path, pack: Path) -> None:
    """Remove the unfinished copies of interrupted processes, for packs with the same name as `pack`."""
    for copy in _unfinished(staged.parent, pack) - {staged.name}:
        with contextlib.suppress(_InUseError), held(staged.with_name(copy + _LOCK), _refuse_to_wait):
            remove(staged.with_name(copy + _UNFINISHED))


def _refuse_to_wait() -> None:
    raise _InUseError


def _size_so_far(partial: Path) -> int:
    try:
        return disk_size(partial)
    except OSError:  # the copy does not exist yet, or no longer
        return 0


def _lock(mapping: mmap.mmap) -> None:
    """Lock a mapping's pages in memory; raise OSError if that is not allowed, or not possible on this system."""
    if os.name == "nt":
        raise OSError(errno.ENOSYS, "Windows does not lock files in memory")
    library = ctypes.CDLL(None, use_errno=True)
    address = np.frombuffer(mapping, np.uint8).ctypes.data
    if library.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(mapping))) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
