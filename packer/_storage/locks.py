"""File locks, held until the file is closed or the holding process dies."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from packer._storage.files import writing_to
from packer._storage.safe_open import NO_LINK, open_regular
from packer.errors import DestinationError, printable

SECONDS_BETWEEN_TRIES = 0.2


@contextlib.contextmanager
def held(path: Path, wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock on the file `path`, which exists only while a process holds the lock or waits for it.

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
                with contextlib.suppress(OSError):
                    os.unlink(path)
            return


def _open_lock(path: str, flags: int) -> int:
    return open_regular(path, flags=flags | NO_LINK, mode=0o600)


def is_at(file: IO[Any], path: Path) -> bool:
    """Tell whether an open file is the one that `path` names now."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def try_lock(file: IO[Any]) -> bool:
    """Lock an open file until it is closed or its process dies; False if another process holds it."""
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
            f"{printable(file.name)}: cannot be locked: {error.strerror}. This file system has no locks "
            "(Lustre: mount it with -o flock); write to another disk, and copy what is complete."
        ) from error
    return True
