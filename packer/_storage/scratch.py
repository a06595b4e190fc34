"""Directories of processes for scratch files, in memory where it has room."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path
from typing import IO

from packer._storage.locks import try_lock
from packer._storage.safe_open import NO_LINK, open_regular
from packer.errors import DestinationError

SHARED_MEMORY = Path("/dev/shm")

_LOCK = "lock"
_ROOM = 1 << 30  # bytes
_made: dict[tuple[int, str, Path], Path] = {}
"""The directories that exist, by process, prefix and parent; a process that is forked makes its own."""


def process_directory(prefix: str) -> Path:
    """Return the directory of this process whose name begins with `prefix`; it is removed when the process ends.

    It has a locked file. A process that is killed leaves its directory, which the next process removes: nobody holds
    the lock any more.
    """
    parent = Path(tempfile.gettempdir())
    if os.access(SHARED_MEMORY, os.W_OK) and shutil.disk_usage(SHARED_MEMORY).free >= _ROOM:
        parent = SHARED_MEMORY
    _remove_abandoned(parent, prefix)
    key = os.getpid(), prefix, parent
    if key not in _made or not os.path.isdir(_made[key]):  # some systems empty the memory when a user logs out
        _made[key] = _make(parent, prefix)
    return _made[key]


def _make(parent: Path, prefix: str) -> Path:
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    lock = open(made / f"new-{_LOCK}", "wb")  # noqa: SIM115 - open as long as the process lives
    try_lock(lock)
    if os.name != "nt":  # where an open file cannot be renamed
        os.rename(lock.name, made / _LOCK)
    # Processes of multiprocessing end without atexit. Those that this one started are joined before.
    Finalize(None, _remove_own, (made, lock), exitpriority=-100)
    return made


def _remove_own(directory: Path, lock: IO[bytes]) -> None:
    lock.close()
    shutil.rmtree(directory, ignore_errors=True)


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove the directories of killed processes of this user."""
    for path in parent.glob(f"{prefix}*/{_LOCK}"):
        with contextlib.suppress(OSError, DestinationError), open(path, "ab", opener=_open_lock) as lock:
            owner = os.lstat(path.parent)
            if stat.S_ISDIR(owner.st_mode) and owner.st_uid == os.geteuid() and try_lock(lock):
                shutil.rmtree(path.parent)


def _open_lock(path: str, flags: int) -> int:
    return open_regular(path, flags=flags & ~os.O_CREAT | NO_LINK)
