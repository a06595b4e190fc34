"""A writer of files below one directory: it never writes outside the directory, and never overwrites a file."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packer._storage.files import sync_directory, writing_to
from packer._storage.safe_open import path_problem
from packer._table import Buffer
from packer.errors import DestinationError, printable

_BY_DESCRIPTOR = {os.open, os.mkdir} <= os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_WRITTEN_FILE = (  # for syncing; without blocking, in case a FIFO has replaced the file
    (os.O_RDWR if os.name == "nt" else os.O_RDONLY) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
)
_SYNCED_AT_ONCE = 16  # ten times faster than one by one: a file system syncs many files in the time of one
_THERE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_PROBE = re.compile("packer-(Probe|\u00e9|e\u0301)-[0-9a-f]{16}")  # the files of `folds_names`; a kill may leave one


class SafeTree:
    """A directory `root` to which files and directories are added safely.

    Each part of a name is opened relative to the directory above it, and symbolic links are refused. So no link, even
    one created meanwhile, can redirect a write. Windows cannot open names in this way; there, the caller has to make
    sure that the directory is empty. Names that lead out of the directory raise DestinationError.

    Parameters
    ----------
    root : Path
        The directory, which must exist.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._made = {""}  # directories that something was added to
        with writing_to(root):
            self._fd = os.open(root, os.O_RDONLY) if _BY_DESCRIPTOR else -1
        self._folder: tuple[str, int] = "", -1  # the most recently opened one

    def make(self, folder: str) -> None:
        """Create a directory and its parents, if they are missing."""
        self._require_inside(folder)
        with writing_to(self.root / folder):
            if _BY_DESCRIPTOR:
                self._open_folder(folder)
            else:
                (self.root / folder).mkdir(parents=True, exist_ok=True)
        while folder not in self._made:
            self._made.add(folder)
            folder = folder.rpartition("/")[0]

    def entries(self) -> Iterator[tuple[str, bool]]:
        """Yield the name of each entry in the directory, and whether it is a directory. Links are not followed."""
        with writing_to(self.root):
            for folder, folders, files in os.walk(self.root, onerror=_fail):
                above = os.path.relpath(folder, self.root).replace(os.sep, "/") + "/"
                above = above.removeprefix("./")
                for name in files:
                    if above or not self._removed_probe(name):
                        yield above + name, False
                for name in folders:
                    yield above + name, not os.path.islink(os.path.join(folder, name))

    def write(self, name: str, data: Buffer) -> None:
        """Write a file, unless it exists; see `write_blocks`."""
        self.write_blocks(name, lambda: [data])

    def write_blocks(self, name: str, blocks: Callable[[], Iterable[Buffer]]) -> None:
        """Write a file of several blocks, unless it exists.

        An existing file that contains only the beginning of the content, as an interrupted process leaves it, is
        rewritten.

        Parameters
        ----------
        name : str
        blocks : callable
            Returns the blocks, which may be generated lazily. It is called a second time if the file exists.

        Raises
        ------
        DestinationError
            If the file exists with other content, or something other than a file has this name.
        """
        self._require_inside(name)
        if folder := name.rpartition("/")[0]:
            self.make(folder)
        with writing_to(self.root / name):
            try:
                fd = self._open(name, _NEW_FILE)
            except FileExistsError:
                if self._is_there(name, blocks()):
                    return
                self._unlink(name)  # the existing file is not written to, because it may be a hard link
                fd = self._open(name, _NEW_FILE)
            with open(fd, "wb") as file:
                file.writelines(blocks())

    def _is_there(self, name: str, blocks: Iterable[Buffer]) -> bool:
        """Return True if a file contains all blocks, False if only their beginning; else DestinationError."""
        fd = self._open(name, _THERE)
        with open(fd, "rb") as file:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                for block in blocks:
                    found = file.read(len(block))
                    if found != block[: len(found)]:
                        break
                    if len(found) < len(block):
                        return False
                else:
                    if not file.read(1):
                        return True
        raise DestinationError(
            f"{printable(self.root / name)}: already exists, and is not the sample of this name. Remove the "
            "file, or export to another directory."
        )

    def sync(self, names: Iterable[str]) -> None:
        """Sync files to the disk, and the directories to which files or directories were added."""
        rest = iter(names)
        with ThreadPoolExecutor(_SYNCED_AT_ONCE, thread_name_prefix="packer-sync") as pool:
            while some := list(itertools.islice(rest, 8 * _SYNCED_AT_ONCE)):
                with writing_to(self.root), contextlib.ExitStack() as opened:
                    files = [self._open(name, _WRITTEN_FILE) for name in some]
                    for file in files:
                        opened.callback(os.close, file)
                    list(pool.map(os.fsync, files))
        for folder in self._made if _BY_DESCRIPTOR else ():
            with writing_to(self.root / folder):
                _sync_folder(self._open_folder(folder))
        sync_directory(self.root)

    def folds_names(self) -> bool:
        """Tell whether names that differ only in case or the encoding of accents are equal in this file system."""
        token = secrets.token_hex(8)
        for written, other in [("packer-Probe", "packer-probe"), ("packer-\u00e9", "packer-e\u0301")]:
            with writing_to(self.root):
                os.close(self._open(f"{written}-{token}", _NEW_FILE))
                folds = os.path.lexists(self.root / f"{other}-{token}")
                self._unlink(f"{written}-{token}")
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
            raise DestinationError(f"{printable(self.root)}: cannot write to {printable(name)}: {problem}")

    def _open(self, name: str, flags: int) -> int:
        if _BY_DESCRIPTOR:
            folder, _, last = name.rpartition("/")
            return os.open(last, flags, 0o666, dir_fd=self._open_folder(folder))
        return os.open(self.root / name, flags, 0o666)

    def _unlink(self, name: str) -> None:
        if _BY_DESCRIPTOR:
            folder, _, last = name.rpartition("/")
            os.unlink(last, dir_fd=self._open_folder(folder))
        else:
            os.unlink(self.root / name)

    def _removed_probe(self, name: str) -> bool:
        """Tell whether a file is a probe that a killed process left behind; if so, remove it."""
        if _PROBE.fullmatch(name) is None or os.lstat(self.root / name).st_size:
            return False
        self._unlink(name)
        return True

    def _open_folder(self, folder: str) -> int:
        """Return a descriptor of a directory, which stays open until the next call."""
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


def _fail(error: OSError) -> None:
    raise error


def _sync_folder(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems
            raise
