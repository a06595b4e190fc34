"""Reading the files of a source, many into one piece of memory."""

from __future__ import annotations

import os
import stat

import numpy as np

from packer._storage.packfile import LARGEST_READ
from packer._storage.stamps import Stamp, stamp_of

__all__ = ["ReadBuffer"]

_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # a FIFO must not block


class ReadBuffer:
    """Memory that a batch of files is read into, again and again: fresh memory costs more than the reading."""

    def __init__(self, size: int = 1 << 20) -> None:
        self._memory = np.empty(size, np.uint8).data
        self._used = 0

    def reset(self) -> None:
        """Forget what was read; all that `read` returned before is overwritten from now on."""
        self._used = 0

    def read(self, path: str) -> tuple[memoryview, Stamp]:
        """Read a whole regular file; OSError where that fails. The view is read-only and valid until `reset`."""
        fd = os.open(path, _OPEN_FLAGS)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(0, "not a regular file")
            if status.st_size > LARGEST_READ:
                raise OSError(0, f"has {status.st_size} bytes, and a sample has {LARGEST_READ} at most")
            room = self._free(status.st_size + 1)  # one byte more tells whether the file grew
            count = 0
            while count < len(room):
                got = _read_some(fd, room[count:], status.st_size)
                if not got:
                    break
                count += got
            changed = os.fstat(fd).st_mtime_ns != status.st_mtime_ns
        finally:
            os.close(fd)
        if changed or count != status.st_size:
            raise OSError(0, "the file changed while it was read")
        self._used += count
        return room[:count].toreadonly(), stamp_of(status)

    def room(self, size: int) -> memoryview:
        """Return memory for so many bytes, valid until `reset`."""
        room = self._free(size)
        self._used += size
        return room

    def _free(self, size: int) -> memoryview:
        if self._used + size > len(self._memory):
            # Views of the old memory keep it alive.
            self._memory = np.empty(max(size, 2 * len(self._memory)), np.uint8).data
            self._used = 0
        return self._memory[self._used : self._used + size]


def _read_some(fd: int, room: memoryview, size: int) -> int:
    """Read what comes at once of a file of `size` bytes; OSError where that fails."""
    try:
        return _read_into(fd, room)
    except OSError as error:
        if size:
            raise
        # No disk holds any of the file, so none fails: the system makes the file up, as it does those of /proc.
        raise OSError(0, f"it has 0 bytes, and reading fails: {error.strerror}") from error


def _read_into(fd: int, room: memoryview) -> int:
    if hasattr(os, "readv"):
        return os.readv(fd, [room])
    data = os.read(fd, len(room))
    room[: len(data)] = data
    return len(data)
