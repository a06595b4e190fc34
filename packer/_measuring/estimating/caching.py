"""How much of what will be read is in memory already, so that reading it is no measure of the disk."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable

from packer._storage.opening import open_regular

__all__ = ["share_in_memory"]


def share_in_memory(paths: Iterable[str]) -> float | None:
    """Return how many of some files are in memory: the share whose first page is; None where the system does not tell.

    A file is not read for that: the kernel is asked for the page, without waiting for a disk (preadv2, RWF_NOWAIT).
    """
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    found = []
    for path in paths:
        with contextlib.suppress(OSError):  # whoever reads the file says why it cannot be read
            found.append(_is_in_memory(path))
    known = [one for one in found if one is not None]
    return sum(known) / len(known) if known else None


def _is_in_memory(path: str) -> bool | None:
    fd = open_regular(path)
    try:
        return os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
            return None
        raise
    finally:
        os.close(fd)
