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
from typing import Any, NamedTuple, NoReturn

from packer._storage.limits import in_units
from packer._storage.opening import open_regular
from packer._storage.remote.stretches import NEW, SUFFIX, new_name
from packer._storage.remote.urls import parse
from packer.errors import PackerError, printable, warn

__all__ = ["TABLE", "Bound", "CacheNotice", "Home", "Kept", "clear", "default_limit", "kept", "prepare", "touch"]

TABLE = ".table"
"""How the name of a part of an object ends that is kept in one file."""

_ABOUT, _ABOUT_ALL = "about.json", "packer-cache.txt"
_TEXT = (
    "What packer fetched of objects at URLs. `packer cache info DIR` says what, `packer cache clear DIR` removes it.\n"
)
_OBJECT = re.compile(r"[0-9a-f]{32}")
_WRITTEN = rf"\d+{re.escape(SUFFIX)}|\d+-\d+|{re.escape(_ABOUT)}"
_OURS = re.compile(
    rf"\d+{re.escape(SUFFIX)}|\d+-\d+-[0-9a-f]{{8}}{re.escape(TABLE)}|\d+-\d+\.lock|{re.escape(_ABOUT)}"
    rf"|({_WRITTEN})\.[0-9a-f]{{12}}{re.escape(NEW)}"
)
"""The names of our files, all of them: another one's file is never removed."""

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
        What a note in the directory says: "url" as it is shown, "size", "etag" and "modified".
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
            _make(self.cache_dir)
        os.makedirs(self.directory, exist_ok=True)
        path = os.path.join(self.directory, _ABOUT)
        if not os.path.exists(path):
            new = new_name(path)
            with open(new, "w", encoding="utf-8") as file:
                json.dump(self.about, file)
            os.replace(new, path)


class CacheNotice(UserWarning):
    """What is said once of a cache: that nobody chose its size, or that it cannot be made."""


def prepare(cache_dir: str, limit: int | None) -> None:
    """Make the directory of a cache; say once how large it may become, to who makes it, or that no disk takes it.

    Parameters
    ----------
    cache_dir : str
    limit : int or None
        Bytes; None: `default_limit`, which nobody has chosen.
    """
    if cache_dir in _prepared:
        return
    _prepared.add(cache_dir)
    try:
        made = _make(cache_dir)
    except OSError as error:
        import multiprocessing

        if multiprocessing.parent_process() is None:  # whose workers would all say the same
            warn(
                f"nothing can be kept in {printable(cache_dir)}: {error.strerror}. Memory keeps what is fetched, as "
                "far as it has room, and as long as the process lives. cache_dir= names another directory",
                CacheNotice,
            )
        return
    if made and limit is None:
        warn(
            f"what is fetched is kept in {printable(cache_dir)}, at most half of what is free on that disk: "
            f"{in_units(default_limit(cache_dir))} now. cache_dir= and cache_size= say otherwise (--cache-dir and "
            "--cache-size), or PACKER_CACHE_DIR and PACKER_CACHE_SIZE. `packer cache info` says what is kept",
            CacheNotice,
        )


_prepared = set[str]()


def _make(cache_dir: str) -> bool:
    """Make the directory of a cache, with a note that it is one; tell whether nobody did so before."""
    os.makedirs(cache_dir, mode=0o700, exist_ok=True)  # what one person may read, another may not
    try:
        fd = os.open(os.path.join(cache_dir, _ABOUT_ALL), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    with open(fd, "w", encoding="utf-8") as file:
        file.write(_TEXT)
    return True


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
    etag : str
        What the store calls this version; empty where it says nothing.
    modified : int
        When this version was written, in nanoseconds since 1970; 0 where nothing says it.
    object_size, size : int
        Bytes of the object, and those of them that are kept, as far as the disk counts them.
    used : float
        When it was used last, in seconds since 1970.
    """

    directory: str
    url: str
    etag: str
    modified: int
    object_size: int
    size: int
    used: float

    def is_at(self, url: str) -> bool:
        """Tell whether this is the object at a URL, or one below it; signatures do not count."""
        url, own = (one.partition("?")[0].rstrip("/") for one in (parse(url).shown(), self.url))
        return own == url or own.startswith(f"{url}/")


def kept(cache_dir: str) -> list[Kept]:
    """Return what a cache keeps, the least recently used first.

    Raises
    ------
    PackerError
        If there is no such directory, or it is no cache.
    """
    found = []
    for directory in _directories(cache_dir):
        about, files = _about(directory) or {}, list(_files(directory))
        if not files:
            continue
        size, used = sum(file.size for file in files), max(file.used for file in files)
        url, etag = str(about.get("url", "")), str(about.get("etag", ""))
        found.append(Kept(directory, url, etag, _number(about, "modified"), _number(about, "size"), size, used))
    if not any(one.url for one in found) and not os.path.isfile(os.path.join(cache_dir, _ABOUT_ALL)):
        _refuse(cache_dir)
    return sorted(found, key=lambda one: one.used)


def _refuse(cache_dir: str) -> NoReturn:
    shown = printable(cache_dir)
    try:
        os.listdir(cache_dir)
    except FileNotFoundError:
        raise PackerError(f"{shown}: there is no such directory") from None
    except OSError as error:
        raise PackerError(f"{shown}: cannot be read: {error.strerror}") from error
    raise PackerError(f"{shown}: is no cache of packer's, and is left as it is. A cache has a file {_ABOUT_ALL}")


def clear(cache_dir: str, url: str | None = None) -> list[Kept]:
    """Remove what a cache keeps, and nothing else; return what that was.

    Processes may read meanwhile. What they have open stays with them, and takes its place until they close it. What
    they lack afterwards is fetched again.

    Parameters
    ----------
    cache_dir : str
    url : str, optional
        Remove the object there and those below it.

    Raises
    ------
    PackerError
        If there is no such directory, or it is no cache.
    """
    removed = [one for one in kept(cache_dir) if url is None or one.is_at(url)]
    for one in removed:
        for file in _files(one.directory):
            if not file.path.endswith(_ABOUT):
                _remove(file.path)
        _remove_directory(one.directory)
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
        if not _OBJECT.fullmatch(name) or not os.path.isdir(directory) or os.path.islink(directory):
            continue
        if _about(directory) is not None:
            yield directory


def _files(directory: str) -> Iterator[_File]:
    """Yield the files of an object, with what they take on the disk; remove those that nobody finished."""
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    for entry in entries:
        if not _OURS.fullmatch(entry.name):
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


def _about(directory: str) -> dict[str, Any] | None:
    """Return what the note in an object's directory says; None where it is a note of somebody else."""
    try:
        with open(open_regular(directory, _ABOUT), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):  # a writer was killed before it wrote one, or the disk lost it
        return {}
    return found if isinstance(found, dict) and {"url", "size", "etag"} <= found.keys() else None


def _number(about: dict[str, Any], name: str) -> int:
    found = about.get(name, 0)
    return found if isinstance(found, int) else 0


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _remove_directory(directory: str) -> None:
    """Remove a directory that only has the note of what it is."""
    _remove(os.path.join(directory, _ABOUT))
    with contextlib.suppress(OSError):
        os.rmdir(directory)
