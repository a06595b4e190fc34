"""Stamps: size and modification time of every file of a source, to detect changed files.

A change that leaves size and time the same is not detected. This happens if the file changes twice within one tick of
the file system's clock, or if a program restores the time.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt

from packer._storage.safe_open import cause_of, open_regular
from packer._storage.system import in_order
from packer._table import Names, decode_name
from packer.errors import SourceError, printable

Stamp = tuple[int, int]
"""Size in bytes and time of the last change in nanoseconds."""

Stamps = npt.NDArray[np.int64]
"""(N, 2) int64 array: one stamp for each file."""

NO_STAMP: Stamp = (-1, -1)
"""The stamp of a missing file, and of anything that is not a regular file."""

ANY_TIME = -(1 << 63)
"""A time that equals every other time: only sizes are compared if a stamp has it, because copies change times."""

MENDABLE: Stamp = (-2, -2)
"""The stamp of a file that stopped a conversion and may be replaced. It equals every later stamp."""

_BY_THE_SYSTEM = "ENOENT", "EACCES", "EPERM", "ENAMETOOLONG", "ELOOP", "ENOTDIR", "EISDIR", "ENXIO"
ABOUT_THE_FILE = frozenset([0, *(getattr(errno, name) for name in _BY_THE_SYSTEM)])
"""The error numbers that concern a file and not the disk; 0 stands for errors that packer itself raised."""

_GRANULARITIES = (100, 10**3, 10**6, 10**9)  # ns: the resolution of times in protocols, on disks and in archives
_CHUNK = 256  # files
_SLOW = 20e-6  # seconds for a file; if its status is in memory, it takes 3e-6
_THREADS = 32
_LAST = (1 << 63) - 1  # ns
_SECOND = 10**9  # ns
_EPOCH = datetime(1970, 1, 1)


def filled(path: str | os.PathLike[str]) -> int:
    """Return how many bytes of a file, which may be sparse, are allocated on disk; 0 if there is no file."""
    try:
        status = os.stat(path)
        if blocks := getattr(status, "st_blocks", 0):
            return min(status.st_size, 512 * blocks)
        if hasattr(os, "SEEK_DATA"):  # not all file systems count blocks
            with open(open_regular(path), "rb") as file:
                os.lseek(file.fileno(), 0, os.SEEK_DATA)  # ENXIO if the whole file is a hole
    except OSError as error:
        if error.errno not in ABOUT_THE_FILE:
            raise SourceError(f"{printable(path)}: reading failed: {cause_of(error)}") from error
        return 0
    return status.st_size


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp in a file's status."""
    if not stat.S_ISREG(status.st_mode):
        return NO_STAMP
    changed = status.st_mtime_ns
    return status.st_size, changed if -_LAST <= changed <= _LAST else _LAST  # times may be beyond the year 2262


def stamp_at(path: str) -> Stamp:
    """Return the current stamp of a file; SourceError if the disk fails."""
    try:
        return stamp_of(os.stat(path))
    except ValueError:  # a NUL in the name
        return NO_STAMP
    except OSError as error:
        if error.errno not in ABOUT_THE_FILE:
            raise SourceError(f"{printable(path)}: reading failed: {error.strerror}") from error
        return NO_STAMP


def take_stamps(root: Path, names: Names) -> Stamps:
    """Return the current stamps of all files, read on many threads if the disk is slow.

    Raises
    ------
    SourceError
        If the disk fails.
    """
    stamps = np.empty((len(names), 2), np.int64)
    starts = iter(range(0, len(names), _CHUNK))
    for start in starts:
        began = time.perf_counter()
        _take_chunk(root, names, start, stamps)
        if time.perf_counter() - began > _SLOW * _CHUNK:  # only then: threads would delay answers from memory
            break
    for _ in in_order(lambda start: _take_chunk(root, names, start, stamps), starts, _THREADS):
        pass
    return stamps


def _take_chunk(root: Path, names: Names, start: int, stamps: Stamps) -> None:
    chunk = names.between(start, min(start + _CHUNK, len(names)))
    stamps[start : start + len(chunk)] = [stamp_at(path) for path in _paths(root, chunk)]


def _paths(root: Path, names: Names) -> Iterator[str]:
    """Yield the paths of files, decoded without `Names`, which would take as long as the system calls."""
    prefix, blob, start = os.path.join(root, ""), names.blob.tobytes(), 0
    for end in names.ends.tolist():
        name = decode_name(blob[start:end])
        yield os.path.join(prefix, name) if os.path.isabs(name) else prefix + name  # joining all would take longer
        start = end


def stamp_in(stamps: Stamps, index: int) -> Stamp:
    """Return the stamp at an index, as Python integers."""
    return int(stamps[index, 0]), int(stamps[index, 1])


def same_stamp(before: Stamp, now: Stamp) -> bool:
    """Tell whether a file is unchanged.

    Other mounts and copies of a tree may store times with less precision. For example, if one of two times has only
    whole seconds, only the seconds are compared.
    """
    if before in (now, MENDABLE):
        return True
    one, other = before[1], now[1]
    if one == ANY_TIME:
        return before[0] == now[0]
    return before[0] == now[0] >= 0 and any(
        one // grain == other // grain and not (one % grain and other % grain) for grain in _GRANULARITIES
    )


def together(stamps: Sequence[Stamp]) -> Stamp:
    """Combine the stamps of a sample's files (first the image's) into one, which changes when any of them changes.

    The size is the total of all files. The seconds of the time are a checksum of all sizes and seconds. The fraction is
    the largest of all fractions, so that `same_stamp` also works on a mount with less precise times.
    """
    if stamps[0] in (NO_STAMP, MENDABLE) or len(stamps) == 1:
        return stamps[0]
    flat = [number for size, changed in stamps for number in (size, changed // _SECOND)]
    seconds = google_crc32c.value(struct.pack(f"<{len(flat)}q", *flat))
    rest = max(changed % _SECOND for _, changed in stamps)
    return sum(max(size, 0) for size, _ in stamps), seconds * _SECOND + rest


def what_changed(before: Stamp, now: Stamp) -> str:
    """Describe the difference between two stamps, for a message."""
    if now == NO_STAMP:
        return "it was deleted or cannot be read"
    if before == NO_STAMP:
        return "it did not exist before"
    if before[0] != now[0]:
        return f"its size was {before[0]} bytes and is now {now[0]}"
    return f"its modification time was {_utc(before[1])} and is now {_utc(now[1])} UTC"


def _utc(nanoseconds: int) -> str:
    return f"{_EPOCH + timedelta(microseconds=nanoseconds // 1000):%Y-%m-%d %H:%M:%S.%f}"
