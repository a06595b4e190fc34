"""Files below a directory, written so that nothing is ever written outside of it."""

from __future__ import annotations

import os
from pathlib import Path

from packer.formats.files import writing_to
from packer.sample import Buffer

__all__ = ["Tree"]

_BY_DESCRIPTOR = {os.open, os.mkdir} <= os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class Tree:
    """The directory `root`, to which files and directories are added.

    Each part of a name is opened from the directory above it, and none that is a symbolic link: so a link that stands
    there, or is put there meanwhile, leads nowhere. (On Windows, which knows no such opening, the caller's finding that
    the directory is empty must do.)
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        with writing_to(root):
            self._fd = os.open(root, os.O_RDONLY) if _BY_DESCRIPTOR else -1
        self._folder: tuple[str, int] = "", -1  # the one that was opened last

    def make(self, folder: str) -> None:
        """Make a directory, and those above it, where they are missing."""
        with writing_to(self._root / folder):
            if _BY_DESCRIPTOR:
                self._open_folder(folder)
            else:
                (self._root / folder).mkdir(parents=True, exist_ok=True)

    def write(self, name: str, data: Buffer) -> None:
        """Write a new file; DestinationError where there is something of this name."""
        folder, _, last = name.rpartition("/")
        self.make(folder)
        with writing_to(self._root / name), open(self._create(folder, last), "wb") as file:
            file.write(data)

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

    def _create(self, folder: str, name: str) -> int:
        if _BY_DESCRIPTOR:
            return os.open(name, _NEW_FILE, 0o666, dir_fd=self._open_folder(folder))
        return os.open(self._root / folder / name, _NEW_FILE, 0o666)

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
