"""Writing past the system's cache of files, where Linux can do that."""

from __future__ import annotations

import errno
import os
import platform
import sys
from collections.abc import Sequence

from packer._table import Buffer

__all__ = ["write_uncached"]

_DONTCACHE = 0x80  # RWF_DONTCACHE of pwritev2(2)
_OLDEST = (6, 16)  # Linux has the flag since 6.14, and faults in it were mended until this version
_UNABLE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def _is_known() -> bool:
    """Tell whether the system may know the flag; of a file system, writing tells."""
    if sys.platform != "linux" or not hasattr(os, "pwritev"):
        return False
    numbers = platform.release().split(".")[:2]
    return all(map(str.isdecimal, numbers)) and tuple(map(int, numbers)) >= _OLDEST


_KNOWN = _is_known()


def write_uncached(fd: int, parts: Sequence[Buffer]) -> int | None:
    """Write at the file's position as `os.writev` does, but have the system drop the bytes when they are on the disk.

    The system begins at once to bring the bytes to the disk. When they are there, their memory is used again for what
    is written next. A file that was synced is as durable as any other.

    Returns
    -------
    int or None
        How many bytes were written. None where system or file system cannot do it, and nothing was written.
    """
    if not _KNOWN:
        return None
    try:
        return os.pwritev(fd, parts, -1, _DONTCACHE)
    except NotImplementedError:  # of a C library that does not pass flags on
        return None
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
        return None
