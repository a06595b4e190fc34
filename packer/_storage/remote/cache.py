"""The cache on disk, with a size limit: blocks of objects, in one directory for each version of an object.

`Blocks` (blocks.py) requests missing blocks, and the fetching process (fetcher.py) writes them here.

Readers take no locks, and their number is not counted. A writer unlinks the least recently used files; a process that
has such a file open can still read it. The bytes in a cache are trusted, so a cache to which another user can write is
not used (`trusted_cache`).

A `Segment` is a file with at most 64 MiB of an object, in blocks of 16 KiB. The file begins with an entry for each
block: 0 if the block is missing, otherwise the block's CRC-32C and a mark. An entry is written after its block. So a
killed writer can leave missing blocks, but never wrong ones. The checksum detects damage that a power failure or the
disk caused. Two processes that write the same block write the same bytes, because a segment belongs to one version of
an object.

The mark identifies the process for which a block was fetched. That process need not check the block again, because its
own fetcher has written it; every other process compares the checksum when it first reads the block.
"""

from __future__ import annotations

import array
import contextlib
import errno
import json
import os
import re
import shutil
import stat
import struct
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import google_crc32c

from packer._storage.remote.urls import parse
from packer._storage.safe_open import NO_LINK, open_regular
from packer._storage.system import in_units
from packer.errors import PackerError, printable, warn

BLOCK = 16 << 10
"""Bytes that are fetched, checked and stored together."""

SEGMENT = 64 << 20
"""Bytes of an object in one file."""

SUFFIX, NEW = ".stretch", ".new"  # the first name, and the magic below, never change between versions of the cache
"""The suffixes of segments, and of files that are not complete yet."""

_BLOCKS = SEGMENT // BLOCK
_MAGIC = b"stretch of an object, kept by packer; 2\n"
_ENTRIES_AT = 4096
DATA_AT = _ENTRIES_AT + 8 * _BLOCKS
"""The offset of the blocks in the file of a segment."""

try:
    import fcntl

    _LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None) if struct.calcsize("P") == 8 else None
except ImportError:
    _LOCK = None

_CHECKSUM = (1 << 32) - 1  # the lower half of an entry; the mark is the upper one, and never 0


def segment_name(number: int) -> str:
    """Return the name of the file that holds a segment."""
    return f"{number:06d}{SUFFIX}"


class Segment:
    """An open cache file with some blocks of an object.

    Parameters
    ----------
    directory : str
        The directory of the object's version.
    number : int
        The segment's number.
    object_size : int
        Bytes of the whole object.
    writing : bool
        Whether to create the file if it is missing.

    Attributes
    ----------
    fd : int
        The file descriptor, which is closed with the last reference to this object.

    Raises
    ------
    OSError
        If the file cannot be opened, or is not a segment.
    """

    def __init__(self, directory: str, number: int, object_size: int, *, writing: bool = False) -> None:
        self.path = os.path.join(directory, segment_name(number))
        self.size = min(SEGMENT, object_size - number * SEGMENT)
        if writing and not os.path.exists(self.path):
            _make_segment(self.path, self.size)
        self.fd = open_regular(self.path, flags=(os.O_RDWR if writing else os.O_RDONLY) | NO_LINK)
        weakref.finalize(self, os.close, self.fd)
        if os.pread(self.fd, len(_MAGIC), 0) != _MAGIC or os.fstat(self.fd).st_size != DATA_AT + self.size:
            raise OSError(errno.EINVAL, "is not a cache segment", self.path)

    def is_named(self) -> bool:
        """Tell whether the path of the segment still refers to this open file."""
        try:
            return os.path.samestat(os.fstat(self.fd), os.stat(self.path))
        except OSError:
            return False

    def entries(self, first: int, last: int) -> array.array[int]:
        """Return the entries of the blocks `first` to `last` - 1."""
        found = array.array("Q")
        found.frombytes(os.pread(self.fd, 8 * (last - first), _ENTRIES_AT + 8 * first))
        return found

    def lacking(self, first: int, last: int) -> list[int]:
        """Return the numbers of the missing blocks from `first` to `last` - 1."""
        return [block for block, entry in enumerate(self.entries(first, last), first) if not entry]

    def is_marked(self, first: int, last: int, mark: int) -> bool:
        """Tell whether the blocks `first` to `last` - 1 are present and all have this mark."""
        return all(entry >> 32 == mark for entry in self.entries(first, last))

    def claim(self, first: int, last: int) -> bool:
        """Claim the blocks `first` to `last` - 1 for fetching; False if another open file has claimed one of them.

        A claim prevents two processes from fetching the same blocks. It ends with `release`, or when this file is
        closed or this process ends. A claim is an advisory lock on the blocks' entries; reads and writes ignore the
        lock. If the system or the file system does not support such locks, every claim succeeds.
        """
        try:
            self._lock(first, last, "F_WRLCK")
        except OSError as error:
            return error.errno not in (errno.EAGAIN, errno.EACCES)
        return True

    def release(self, first: int, last: int) -> None:
        """End the claim on blocks."""
        with contextlib.suppress(OSError):
            self._lock(first, last, "F_UNLCK")

    def _lock(self, first: int, last: int, kind: str) -> None:
        if _LOCK is not None:
            where = _ENTRIES_AT + 8 * first, 8 * (last - first)
            fcntl.fcntl(self.fd, _LOCK, struct.pack("hhqqq", getattr(fcntl, kind), os.SEEK_SET, *where, 0))

    def write(self, first: int, data: memoryview, mark: int) -> None:
        """Write whole blocks, beginning with block `first`, and their entries.

        Only the last block of an object may be shorter than `BLOCK`. The `mark` in the entries, from 1 to 2**32 - 1,
        identifies the process for which the blocks were fetched.
        """
        found = array.array("Q", (mark << 32 | google_crc32c.value(piece.tobytes()) for piece in _blocks(data)))
        write_at(self.fd, data, DATA_AT + first * BLOCK)
        write_at(self.fd, memoryview(found).cast("B"), _ENTRIES_AT + 8 * first)

    def read(self, first: int, last: int) -> bytes | None:
        """Return the bytes of the blocks `first` to `last` - 1; None if a block is missing or fails its checksum."""
        entries = self.entries(first, last)
        if 0 in entries:
            return None
        size = min(last * BLOCK, self.size) - first * BLOCK
        data = os.pread(self.fd, size, DATA_AT + first * BLOCK)
        if len(data) < size:
            return None
        for at, entry in zip(range(0, size, BLOCK), entries, strict=True):
            if entry & _CHECKSUM != google_crc32c.value(data[at : at + BLOCK]):
                return None
        return data


def new_name(path: str) -> str:
    """Return a temporary name for a file that is renamed to `path` when it is complete."""
    return f"{path}.{os.urandom(6).hex()}{NEW}"


def _blocks(data: memoryview) -> Iterator[memoryview]:
    for begin in range(0, len(data), BLOCK):
        yield data[begin : begin + BLOCK]


def write_at(fd: int, data: memoryview, position: int) -> None:
    """Write bytes at a position of a file."""
    while data:
        written = os.pwrite(fd, data, position)
        data, position = data[written:], position + written


def _make_segment(path: str, size: int) -> None:
    """Create a segment without blocks, atomically. A segment that another process created meanwhile is kept."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = new_name(path)
    fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.write(fd, _MAGIC)
        os.ftruncate(fd, DATA_AT + size)
        with contextlib.suppress(FileExistsError):
            try:
                os.link(new, path)
            except PermissionError:  # a file system without links
                os.replace(new, path)
    finally:
        os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)


TABLE = ".table"
"""The suffix of the file with a table."""

_TABLE_NAME = re.compile(rf"(\d+)-(\d+)-([0-9a-f]{{8}}){re.escape(TABLE)}")
_STEP = 1 << 20  # bytes of one step of a checksum


class CachedTable(NamedTuple):
    """A file of the cache with one range of an object, such as a table, and the range's checksum.

    Attributes
    ----------
    path : str
    begin, size : int
        The range, in bytes of the object.
    checksum : int
        The CRC-32C of these bytes, from the file's name.
    """

    path: str
    begin: int
    size: int
    checksum: int


def tables_with(directory: str, begin: int, size: int) -> Iterator[CachedTable]:
    """Yield the tables in an object's directory that contain a range of the object."""
    names = list[str]()
    with contextlib.suppress(OSError):
        names = os.listdir(directory)
    for name in names:
        found = _TABLE_NAME.fullmatch(name)
        if found is None:
            continue
        table = CachedTable(os.path.join(directory, name), int(found[1]), int(found[2]), int(found[3], 16))
        if table.begin <= begin and begin + size <= table.begin + table.size:
            yield table


class TableFile:
    """A table that is being written. When it is complete, the file is renamed to a name with its checksum.

    Its methods raise OSError if the disk cannot store the table.
    """

    def __init__(self, home: Home, begin: int, size: int) -> None:
        home.make()
        self._begin, self._size, self._directory = begin, size, home.directory
        self._new = new_name(os.path.join(self._directory, f"{begin}-{size}"))
        self._fd = open_regular(self._new, flags=os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK)

    def __enter__(self) -> TableFile:
        return self

    def __exit__(self, *exc_info: object) -> None:
        fd, self._fd = self._fd, -1  # a request under way may still write to it
        os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._new)

    def write(self, position: int, data: memoryview) -> None:
        """Write bytes that begin at a position of the object."""
        write_at(self._fd, data, position - self._begin)

    def finish(self) -> str:
        """Rename the complete file to its final name, and return its path."""
        name = f"{self._begin}-{self._size}-{crc32c_of(self._fd, self._size):08x}{TABLE}"
        path = os.path.join(self._directory, name)
        os.replace(self._new, path)
        return path


def crc32c_of(fd: int, size: int) -> int:
    """Return the CRC-32C of the first `size` bytes of a file; of all bytes if the file is shorter."""
    found = 0
    for position in range(0, size, _STEP):
        found = google_crc32c.extend(found, os.pread(fd, min(_STEP, size - position), position))
    return found


_ABOUT, _ABOUT_ALL = "about.json", "packer-cache.txt"
_TEXT = (
    "packer caches data from URLs in this directory. `packer cache info DIR` lists it, `packer cache clear DIR` "
    "removes it.\n"
)
_OBJECT = re.compile(r"[0-9a-f]{32}")
_WRITTEN = rf"\d+{re.escape(SUFFIX)}|\d+-\d+|{re.escape(_ABOUT)}"
_OURS = re.compile(
    rf"\d+{re.escape(SUFFIX)}|\d+-\d+-[0-9a-f]{{8}}{re.escape(TABLE)}|\d+-\d+\.lock|{re.escape(_ABOUT)}"
    rf"|({_WRITTEN})\.[0-9a-f]{{12}}{re.escape(NEW)}"
)
"""The names of all files that packer writes into a cache; no other file is ever removed."""

_ABANDONED = 3600  # seconds after which an incomplete file is abandoned
_TOUCHED = 60  # seconds between two marks of use
_SHARE = 2  # the default limit is the space that is free or used by the cache, divided by this number


class Home(NamedTuple):
    """The cache directory that holds the files of one version of a remote object.

    Attributes
    ----------
    cache_dir : str
        The directory of the whole cache.
    identity : str
        The name of this version's directory in `cache_dir`.
    about : dict
        The content of the note in the directory, with the keys "url" (the URL without secrets), "size", "etag" and
        "modified".
    """

    cache_dir: str
    identity: str
    about: dict[str, Any]

    @property
    def directory(self) -> str:
        """The path of the version's directory."""
        return os.path.join(self.cache_dir, self.identity)

    def make(self) -> None:
        """Create the directory and the note in it; OSError if that fails."""
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
    """The warning that a cache has the default size limit, or cannot be created."""


def prepare(cache_dir: str, limit: int | None) -> None:
    """Create the directory of a cache.

    Warn once: about the cache's size limit, or that the directory cannot be created.

    Parameters
    ----------
    cache_dir : str
    limit : int or None
        The size limit in bytes; None stands for `default_limit`.
    """
    if cache_dir in _prepared:
        return
    _prepared.add(cache_dir)
    try:
        made = _make(cache_dir)
    except OSError as error:
        import multiprocessing

        if multiprocessing.parent_process() is None:  # all of its workers would repeat the warning
            warn(
                f"cannot write to the cache directory {printable(cache_dir)}: {error.strerror}. Downloads are cached "
                "in memory, as far as it has space, until the process ends. cache_dir= sets another directory",
                CacheNotice,
            )
        return
    if made and limit is None:
        warn(
            f"downloads are cached in {printable(cache_dir)}, which may use half of the free space on that disk: "
            f"{in_units(default_limit(cache_dir))} now. To change this, use cache_dir= and cache_size= (--cache-dir "
            "and --cache-size), or PACKER_CACHE_DIR and PACKER_CACHE_SIZE. `packer cache info` shows the content",
            CacheNotice,
        )


_prepared = set[str]()


def _make(cache_dir: str) -> bool:
    """Create the directory of a cache, with a note that marks it as a cache; return whether the directory is new."""
    os.makedirs(cache_dir, mode=0o700, exist_ok=True)  # files that one user may read, another may not
    try:
        fd = os.open(os.path.join(cache_dir, _ABOUT_ALL), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    with open(fd, "w", encoding="utf-8") as file:
        file.write(_TEXT)
    return True


def touch(path: str) -> None:
    """Mark a file as used, unless it was marked within the last minute."""
    with contextlib.suppress(OSError):
        if time.time() - os.stat(path).st_mtime > _TOUCHED:
            os.utime(path)


@dataclass(frozen=True)
class CachedObject:
    """A version of an object in the cache, and the size of its cached part.

    Attributes
    ----------
    directory : str
    url : str
        The URL without secrets; empty if it is unknown.
    etag : str
        The store's name for this version; empty if it has none.
    modified : int
        The time at which this version was written, in nanoseconds since 1970; 0 if unknown.
    object_size, size : int
        The size of the object, and the disk space that its cached blocks take up, in bytes.
    used : float
        The time of the last use, in seconds since 1970.
    """

    directory: str
    url: str
    etag: str
    modified: int
    object_size: int
    size: int
    used: float

    def is_at(self, url: str) -> bool:
        """Tell whether this object is at a URL or below it; signatures in URLs are ignored."""
        url, own = (one.partition("?")[0].rstrip("/") for one in (parse(url).redacted(), self.url))
        return own == url or own.startswith(f"{url}/")


def cached_objects(cache_dir: str) -> list[CachedObject]:
    """List the objects of a cache, the least recently used first.

    Raises
    ------
    PackerError
        If the directory does not exist, or is not a cache.
    """
    found = []
    for directory in _directories(cache_dir):
        about, files = _about(directory) or {}, list(_files(directory))
        if not files:
            continue
        size, used = sum(file.size for file in files), max(file.used for file in files)
        url, etag = str(about.get("url", "")), str(about.get("etag", ""))
        found.append(CachedObject(directory, url, etag, _number(about, "modified"), _number(about, "size"), size, used))
    if not any(one.url for one in found) and not os.path.isfile(os.path.join(cache_dir, _ABOUT_ALL)):
        _refuse(cache_dir)
    return sorted(found, key=lambda one: one.used)


def _refuse(cache_dir: str) -> NoReturn:
    shown = printable(cache_dir)
    try:
        os.listdir(cache_dir)
    except FileNotFoundError:
        raise PackerError(f"{shown}: no such directory") from None
    except OSError as error:
        raise PackerError(f"{shown}: cannot be read: {error.strerror}") from error
    raise PackerError(
        f"{shown}: is not a cache of packer, so packer does not change it. A cache contains a file {_ABOUT_ALL}"
    )


def clear(cache_dir: str, url: str | None = None) -> list[CachedObject]:
    """Remove the objects of a cache, and nothing else; return the removed objects.

    Other processes may read from the cache at the same time. Files that they have open stay readable, and take up space
    until they are closed. Blocks that they need afterwards are fetched again.

    Parameters
    ----------
    cache_dir : str
    url : str, optional
        Remove only the object at this URL and the objects below it.

    Raises
    ------
    PackerError
        If the directory does not exist, or is not a cache.
    """
    removed = [one for one in cached_objects(cache_dir) if url is None or one.is_at(url)]
    for one in removed:
        for file in _files(one.directory):
            if not file.path.endswith(_ABOUT):
                _remove(file.path)
        _remove_directory(one.directory)
    return removed


def default_limit(cache_dir: str) -> int:
    """Return the default limit of a cache in bytes: a share of the bytes that would be free without the cache."""
    total = sum(file.size for directory in _directories(cache_dir) for file in _files(directory))
    here = cache_dir
    while not os.path.isdir(here):
        here = os.path.dirname(here)
    return (shutil.disk_usage(here).free + total) // _SHARE


class Bound:
    """Keeps a cache within its size limit. If several processes write, the cache may exceed the limit for a while.

    Parameters
    ----------
    cache_dir : str
    limit : int or None
        The size limit in bytes; None stands for `default_limit`.
    """

    def __init__(self, cache_dir: str, limit: int | None) -> None:
        self._directory, self._limit = cache_dir, limit
        self._left = 0  # bytes that may be written until the next check

    def wrote(self, size: int, current: str) -> None:
        """Record that `size` bytes were written to the file `current`.

        Make room if necessary, without removing that file.
        """
        self._left -= size
        if self._left < 0:
            self.make_room(current)

    def make_room(self, current: str = "", least: int = 0) -> None:
        """Remove the least recently used files, until the cache is within its limit and `least` bytes were removed."""
        limit = default_limit(self._directory) if self._limit is None else self._limit
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
    """Yield the files of an object, with their sizes on the disk; remove unfinished files that are an hour old."""
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
    """Return the note in an object's directory: empty if it is missing or damaged, None if packer did not write it."""
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
    """Remove a directory that contains only its note."""
    _remove(os.path.join(directory, _ABOUT))
    with contextlib.suppress(OSError):
        os.rmdir(directory)


_warned = set[str]()


def trusted_cache(cache_dir: str | None) -> str | None:
    """Return the directory of a cache; None, with one warning, if another user can write to it.

    Write access of the directory's group is accepted if root or this user owns the directory, because the members of a
    group trust each other. A missing directory is accepted, because it is created for this user alone.
    """
    if cache_dir is None or not hasattr(os, "geteuid"):
        return cache_dir
    try:
        status = os.stat(cache_dir)
    except OSError:
        return cache_dir
    if status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH:
        return cache_dir
    if cache_dir not in _warned:
        _warned.add(cache_dir)
        warn(
            f"the cache directory {printable(cache_dir)} is not used: it belongs to another user, or everybody may "
            "write to it, so others could change the images. Downloads are cached in memory. Pass a directory of "
            f"your own, such as cache_dir={printable(os.path.join(cache_dir, f'packer-{os.geteuid()}'))!r}"
        )
    return None
