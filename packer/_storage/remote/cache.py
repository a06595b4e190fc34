"""The directory that keeps what was fetched: one directory for each version of an object, bounded all together.

Nobody counts who uses a file, and nobody locks one to read it. Whoever writes removes the files that were used least
recently, by their names alone: whoever has one open keeps it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from packer._storage.remote.stretches import NEW, SUFFIX, new_name

__all__ = ["TABLE", "Bound", "Home", "Kept", "clear", "default_limit", "kept", "touch"]

TABLE = ".table"
"""How the name of a part of an object ends that is kept in one file."""

_ABOUT = "about.json"
_OBJECT = re.compile(r"[0-9a-f]{32}")
_OURS = (SUFFIX, TABLE, NEW, ".lock", _ABOUT)
_ABANDONED = 3600  # seconds after which a file that is not whole belongs to nobody
_TOUCHED = 60  # seconds between two marks of use
_SHARE = 2  # of what is free, one part in so many


class Home(NamedTuple):
    """Where a version of an object lies in a cache.

    Attributes
    ----------
    cache_dir : str
    identity : str
        The name of the object's directory there.
    about : dict
        What a note in the directory says: "url" as it is shown, "size" and "etag".
    """

    cache_dir: str
    identity: str
    about: dict[str, Any]

    @property
    def directory(self) -> str:
        """The directory of the object's version."""
        return os.path.join(self.cache_dir, self.identity)

    def make(self) -> None:
        """Make the directory, with the note in it; OSError where that cannot be."""
        if not os.path.isdir(self.cache_dir):
            os.makedirs(self.cache_dir, mode=0o700, exist_ok=True)  # what one person may read, another may not
        os.makedirs(self.directory, exist_ok=True)
        path = os.path.join(self.directory, _ABOUT)
        if not os.path.exists(path):
            new = new_name(path)
            with open(new, "w", encoding="utf-8") as file:
                json.dump(self.about, file)
            os.replace(new, path)


def touch(path: str) -> None:
    """Mark a file as used, where nobody did so within the last minute."""
    with contextlib.suppress(OSError):
        if time.time() - os.stat(path).st_mtime > _TOUCHED:
            os.utime(path)


@dataclass(frozen=True)
class Kept:
    """What is kept of a version of an object.

    Attributes
    ----------
    directory : str
    url : str
        As it is shown; empty where nothing says it.
    object_size, size : int
        Bytes of the object, and those of them that are kept.
    used : float
        When it was used last, in seconds since 1970.
    """

    directory: str
    url: str
    object_size: int
    size: int
    used: float


def kept(cache_dir: str) -> list[Kept]:
    """Return what a cache keeps, the least recently used first."""
    found = []
    for directory in _directories(cache_dir):
        files = list(_files(directory))
        about = _about(directory)
        size = sum(file.size for file in files)
        used = max((file.used for file in files), default=0.0)
        found.append(Kept(directory, str(about.get("url", "")), int(about.get("size", 0)), size, used))
    return sorted(found, key=lambda one: one.used)


def clear(cache_dir: str) -> int:
    """Remove what a cache keeps, and nothing else; return how many bytes that were."""
    removed = 0
    for directory in _directories(cache_dir):
        for file in _files(directory):
            removed += file.size
            _remove(file.path)
        _remove_directory(directory)
    return removed


def default_limit(cache_dir: str) -> int:
    """Return how many bytes are kept where nobody says it: a share of what would be free without them."""
    total = sum(file.size for directory in _directories(cache_dir) for file in _files(directory))
    here = cache_dir
    while not os.path.isdir(here):
        here = os.path.dirname(here)
    return (shutil.disk_usage(here).free + total) // _SHARE


class Bound:
    """Keeps a cache within its limit, as far as one process that writes can.

    Parameters
    ----------
    cache_dir : str
    limit : int or None
        Bytes; None: `default_limit`.
    """

    def __init__(self, cache_dir: str, limit: int | None) -> None:
        self._directory, self._asked = cache_dir, limit
        self._left = 0  # bytes that may be written until somebody looks again

    def wrote(self, size: int, current: str) -> None:
        """Say that `size` bytes were written to the file `current`, which stays; make room where that is due."""
        self._left -= size
        if self._left < 0:
            self.make_room(current)

    def make_room(self, current: str = "", least: int = 0) -> None:
        """Remove what was used least recently, until the cache is within its limit and `least` bytes were removed."""
        limit = default_limit(self._directory) if self._asked is None else self._asked
        step = max(1 << 20, min(limit // 16, 1 << 30))
        files = sorted(
            (file for directory in _directories(self._directory) for file in _files(directory)),
            key=lambda file: file.used,
        )
        over = max(sum(file.size for file in files) - (limit - step), least)
        for file in files:
            if over <= 0:
                break
            if file.path != current and not file.path.endswith(_ABOUT):
                _remove(file.path)
                over -= file.size
        self._left = step
        for directory in {os.path.dirname(file.path) for file in files} - {os.path.dirname(current)}:
            if all(file.path.endswith(_ABOUT) for file in _files(directory)):
                _remove_directory(directory)


class _File(NamedTuple):
    path: str
    size: int
    used: float


def _directories(cache_dir: str) -> Iterator[str]:
    try:
        names = os.listdir(cache_dir)
    except OSError:
        return
    for name in names:
        directory = os.path.join(cache_dir, name)
        if _OBJECT.fullmatch(name) and os.path.isdir(directory) and not os.path.islink(directory):
            yield directory


def _files(directory: str) -> Iterator[_File]:
    """Yield the files of an object, with what they take on the disk; remove those that nobody finished."""
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    for entry in entries:
        if not entry.name.endswith(_OURS):
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if entry.name.endswith(NEW) and time.time() - status.st_mtime > _ABANDONED:
            _remove(entry.path)
            continue
        size = getattr(status, "st_blocks", -(-status.st_size // 512)) * 512
        yield _File(entry.path, size, status.st_mtime)


def _about(directory: str) -> dict[str, Any]:
    try:
        with open(os.path.join(directory, _ABOUT), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _remove_directory(directory: str) -> None:
    """Remove a directory that only has the note of what it is."""
    _remove(os.path.join(directory, _ABOUT))
    with contextlib.suppress(OSError):
        os.rmdir(directory)
