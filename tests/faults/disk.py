"""A model of a disk after a power failure: it contains what was synced, and nothing else.

The model is the strictest that POSIX allows. A file's content survives as it was when the file was last synced. A name
in a directory survives as it was when the directory was last synced, also where the file behind it was synced later.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

Key = tuple[int, int]


class Disk:
    """Tracks the durable content of a directory tree; its `fsync` replaces `os.fsync`.

    Parameters
    ----------
    root : Path
        Its present content is durable.
    after_sync : callable
        Called after every sync.
    """

    def __init__(self, root: Path, after_sync: Callable[[], None] = lambda: None) -> None:
        self._root = root
        self._after_sync = after_sync
        self._files: dict[Key, bytes] = {}
        self._directories: dict[Key, dict[str, tuple[Key, bool]]] = {}
        for path in [root, *root.rglob("*")]:
            self._keep(path)

    def fsync(self, fd: int) -> None:
        """Make the present content of the file or directory `fd` durable."""
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path.is_relative_to(self._root):
            self._keep(path)
            self._after_sync()

    def restore(self, to: Path) -> None:
        """Write the durable content to the new directory `to`."""
        self._restore(_key(os.stat(self._root)), to)

    def _keep(self, path: Path) -> None:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            entries = {entry.name: entry for entry in os.scandir(path)}
            self._directories[_key(status)] = {
                name: (_key(entry.stat(follow_symlinks=False)), entry.is_dir()) for name, entry in entries.items()
            }
        else:
            self._files[_key(status)] = path.read_bytes()

    def _restore(self, directory: Key, to: Path) -> None:
        to.mkdir()
        for name, (key, is_directory) in self._directories.get(directory, {}).items():
            if is_directory:
                self._restore(key, to / name)
            else:
                (to / name).write_bytes(self._files.get(key, b""))


def _key(status: os.stat_result) -> Key:
    return status.st_dev, status.st_ino
