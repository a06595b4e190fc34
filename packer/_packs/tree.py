"""Files below a directory, written so that nothing is ever written outside of it."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packer._storage.files import sync_directory, writing_to
from packer._storage.paths import path_problem
from packer._table import Buffer
from packer.errors import DestinationError, printable

__all__ = ["Tree", "exporting_to"]

exporting_to = functools.partial(writing_to, then="remove what was written, and export again")
"""`writing_to` for files and directories of an export."""

_BY_DESCRIPTOR = {os.open, os.mkdir} <= os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_WRITTEN_FILE = (  # as syncing needs it; what stands there by now must not block
    (os.O_RDWR if os.name == "nt" else os.O_RDONLY) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
)
_SYNCED_AT_ONCE = 16  # one after the other takes ten times as long: file systems sync many files at the price of one
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class Tree:
    """The directory `root`, to which files and directories are added.

    Each part of a name is opened from the directory above it, and none that is a symbolic link: so a link that stands
    there, or is put there meanwhile, leads nowhere. (On Windows, which knows no such opening, the caller's finding that
    the directory is empty must do.) Names that lead elsewhere are DestinationErrors.

    Parameters
    ----------
    root : Path
        Must exist.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made = {""}  # directories that something was added to
        with exporting_to(root):
            self._fd = os.open(root, os.O_RDONLY) if _BY_DESCRIPTOR else -1
        self._folder: tuple[str, int] = "", -1  # the one that was opened last

    def make(self, folder: str) -> None:
        """Make a directory, and those above it, where they are missing."""
        self._require_inside(folder)
        with exporting_to(self._root / folder):
            if _BY_DESCRIPTOR:
                self._open_folder(folder)
            else:
                (self._root / folder).mkdir(parents=True, exist_ok=True)
        while folder not in self._made:
            self._made.add(folder)
            folder = folder.rpartition("/")[0]

    def write(self, name: str, data: Buffer) -> None:
        """Write a new file; DestinationError where there is something of this name."""
        self.write_blocks(name, [data])

    def write_blocks(self, name: str, blocks: Iterable[Buffer]) -> None:
        """Write a new file of several blocks, which are made meanwhile."""
        self._require_inside(name)
        if folder := name.rpartition("/")[0]:
            self.make(folder)
        with exporting_to(self._root / name), open(self._open(name, _NEW_FILE), "wb") as file:
            file.writelines(blocks)

    def sync(self, names: Iterable[str]) -> None:
        """Return once these files, and the directories that something was added to, are on the disk."""
        rest = iter(names)
        with ThreadPoolExecutor(_SYNCED_AT_ONCE, thread_name_prefix="packer-sync") as pool:
            while some := list(itertools.islice(rest, 8 * _SYNCED_AT_ONCE)):
                with exporting_to(self._root), contextlib.ExitStack() as opened:
                    files = [self._open(name, _WRITTEN_FILE) for name in some]
                    for file in files:
                        opened.callback(os.close, file)
                    list(pool.map(os.fsync, files))
        for folder in self._made if _BY_DESCRIPTOR else ():
            with exporting_to(self._root / folder):
                _sync_folder(self._open_folder(folder))
        sync_directory(self._root)

    def folds_names(self) -> bool:
        """Tell whether to the file system some names are one that differ in case, or in how accents are encoded."""
        for written, other in [("packer-Probe", "packer-probe"), ("packer-\u00e9", "packer-e\u0301")]:
            self.write(written, b"")
            folds = os.path.lexists(self._root / other)
            os.unlink(self._root / written)
            if folds:
                return True
        return False

    def close(self) -> None:
        """Close the directories that are open."""
        for fd in (self._folder[1], self._fd):
            if fd >= 0:
                os.close(fd)
        self._folder, self._fd = ("", -1), -1

    def _require_inside(self, name: str) -> None:
        problem = path_problem(name)
        if problem is not None:
            raise DestinationError(f"{printable(self._root)}: nothing is written to {printable(name)}: {problem}")

    def _open(self, name: str, flags: int) -> int:
        if _BY_DESCRIPTOR:
            folder, _, last = name.rpartition("/")
            return os.open(last, flags, 0o666, dir_fd=self._open_folder(folder))
        return os.open(self._root / name, flags, 0o666)

    def _open_folder(self, folder: str) -> int:
        """Return a descriptor of a directory, which stays open until another one is asked for."""
        if not folder:
            return self._fd
        if self._folder[0] != folder:
            self._close_folder()
            here = os.dup(self._fd)
            try:
                for part in folder.split("/"):
                    below = _open_part(part, here)
                    os.close(here)
                    here = below
            except OSError:
                os.close(here)
                raise
            self._folder = folder, here
        return self._folder[1]

    def _close_folder(self) -> None:
        if self._folder[1] >= 0:
            os.close(self._folder[1])
        self._folder = "", -1


def _open_part(name: str, above: int) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        os.mkdir(name, dir_fd=above)
        return os.open(name, _FOLDER, dir_fd=above)


def _sync_folder(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems
            raise
