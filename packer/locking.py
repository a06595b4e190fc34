"""Locks on files, held until the file is closed or the process that holds them dies."""

from __future__ import annotations

import errno
import os
from typing import IO, Any

from packer.errors import DestinationError, printable

__all__ = ["try_lock"]


def try_lock(file: IO[Any]) -> bool:
    """Lock an open file until it is closed or its process dies; False where another process holds it."""
    try:
        if os.name == "nt":
            import msvcrt

            file.seek(1 << 30)  # far behind the text, which others may then still read
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
