"""Files of a pack that grow, and which of them are durable."""

from __future__ import annotations

from pathlib import Path

from packer._storage.files import AppendFile, sync_directory

__all__ = ["GrowingFiles"]


class GrowingFiles:
    """The files of directories, of which some grow and the others are complete.

    `sync` may run on another thread while `grow`, `finish` and `flush` go on.

    Parameters
    ----------
    *directories : Path
        Where their names are, or the names of the directories that they lie in.
    """

    def __init__(self, *directories: Path) -> None:
        self._directories = dict.fromkeys(directories)
        self._open: list[AppendFile] = []
        self._finished: list[AppendFile] = []  # complete since the last `flush`
        self._flushed: list[AppendFile] = []  # complete, for `sync` to sync and close
        self._growing: list[AppendFile] = []  # what was open at the last `flush`

    def grow(self, file: AppendFile) -> None:
        """Say that a file grows from now on."""
        self._directories[file.path.parent] = None
        self._open.append(file)

    def finish(self, file: AppendFile) -> None:
        """Say that a file is complete, whether it was one that grew or not."""
        self._directories[file.path.parent] = None
        self._finished.append(file)
        if file in self._open:
            self._open.remove(file)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        for file in [*self._finished, *self._open]:
            file.flush()
        self._flushed += self._finished
        self._finished = []
        self._growing = list(self._open)

    def sync(self) -> None:
        """Return once what was flushed is on the disk; close what is complete."""
        growing, done = self._growing, []  # `flush` may go on: what grew then may be among the complete ones below
        while self._flushed:
            done.append(self._flushed.pop(0))
            done[-1].sync()
        for file in growing:
            if file not in done:
                file.sync()
        for file in done:
            file.close()
        for directory in list(self._directories):
            sync_directory(directory)

    def close(self) -> None:
        """Close all files."""
        for file in [*self._flushed, *self._finished, *self._open]:
            file.close()
