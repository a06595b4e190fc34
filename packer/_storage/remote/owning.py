"""Whose a cache is: what is read of it is believed, so nobody else may have written it."""

from __future__ import annotations

import os
import stat

from packer.errors import printable, warn

__all__ = ["own"]

_told = set[str]()


def own(cache_dir: str | None) -> str | None:
    """Return the directory of a cache; None, and a warning once, where another user may write what is read of it.

    A directory that root owns may belong to a group, whose members trust each other then. One that is not there is
    another's affair: who makes it makes it for one user alone.
    """
    if cache_dir is None or not hasattr(os, "geteuid"):
        return cache_dir
    try:
        status = os.stat(cache_dir)
    except OSError:
        return cache_dir
    if status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH:
        return cache_dir
    if cache_dir not in _told:
        _told.add(cache_dir)
        warn(
            f"the cache directory {printable(cache_dir)} is not used: another user owns it, or all may write there. "
            "They could change the images that are read. Memory keeps what is fetched. Say one of your own, such as "
            f"cache_dir={printable(os.path.join(cache_dir, f'packer-{os.geteuid()}'))!r}"
        )
    return None
