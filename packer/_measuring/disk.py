"""Speed of the local or network disk at a path, in the access patterns of training.

Nothing is written. Files are read past the page cache (O_DIRECT) if the system and the file system support it.
Otherwise the system is asked to drop the pages from the cache (``posix_fadvise``), and the figures may show the speed
of memory.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from packer._measuring.harness import TimeLimit, run_together
from packer._storage.safe_open import open_regular
from packer.errors import SourceError, printable

_ALIGNED = 4096
_PIECE = 8 << 20
_LARGE = 32 << 20
"""From which size on a file is read piece by piece."""

_SAMPLE = 112 << 10
"""Bytes of a sample in a large file: an ImageNet photo's."""

_MOST_IN_ORDER = 1 << 28
_MOST_BYTES = 1 << 30
_MOST_FILES = 5000
THREADS = 8

NETWORKS = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "glusterfs",
    "9p",
    "afs",
    "fuse",
    "orangefs",
    "virtiofs",
)
MEMORIES = ("tmpfs", "ramfs", "devtmpfs")

_CHANCE = random.Random()  # of its own: the caller's random numbers stay as they are


@dataclass(frozen=True)
class FileSystem:
    """The file system below a path.

    Attributes
    ----------
    kind : str
        Such as ``"ext4"``, ``"nfs4"``; empty if the system does not report it.
    device, mounted : str
        The device or the server, and where it is mounted.
    free : int
        Free bytes that this user may write.
    read_only : bool
    """

    kind: str
    device: str
    mounted: str
    free: int
    read_only: bool

    @property
    def is_network(self) -> bool:
        return self.kind.startswith(NETWORKS)

    @property
    def is_memory(self) -> bool:
        return self.kind in MEMORIES


@dataclass
class DiskReadings:
    """The speed of reading files below a path.

    Attributes
    ----------
    listed : int
        Number of directory entries that were listed.
    listing : float
        Seconds per entry.
    direct : bool
        Whether the page cache was bypassed.
    opening : list of float
        Seconds that opening took, for each file.
    size : int
        Bytes of a random read: the mean size of files, or of a sample in a large file.
    random, together : float
        Random reads per second, on one thread and on `THREADS` threads; 0 if there was nothing to read.
    in_order : float
        Bytes per second when a large file is read from its beginning; 0 without a large file.
    read : int
        Bytes that were read.
    unreadable : int
        Number of files that could not be read.
    """

    listed: int = 0
    listing: float = 0.0
    direct: bool = True
    opening: list[float] = field(default_factory=list)
    size: int = 0
    random: float = 0.0
    together: float = 0.0
    in_order: float = 0.0
    read: int = 0
    unreadable: int = 0


def file_system(path: Path) -> FileSystem:
    """Return the file system of a path from the system's mount table."""
    real = os.path.realpath(path)
    kind = device = mounted = ""
    with contextlib.suppress(OSError), open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            source, point, type_, *_ = line.split(" ")
            point = point.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(mounted):
                kind, device, mounted = type_, source, point
    free, read_only = 0, False
    if hasattr(os, "statvfs"):
        with contextlib.suppress(OSError):
            state = os.statvfs(real)
            free, read_only = state.f_bavail * state.f_frsize, bool(state.f_flag & os.ST_RDONLY)
    return FileSystem(kind, device, mounted, free, read_only)


def read_disk(path: Path, seconds: float = 5.0) -> DiskReadings:
    """Read files below a path, or one file, for some seconds, and return the speed.

    Raises
    ------
    SourceError
        If nothing exists at the path, or it cannot be read.
    """
    readings = DiskReadings()
    try:
        names = _listed(path, readings, 0.15 * seconds)
        files = _opened(names, readings, 0.15 * seconds)
        if files:
            _read(files, readings, seconds)
    except OSError as error:
        raise SourceError(f"{printable(path)}: {error.strerror}") from error
    return readings


def _read(files: list[tuple[str, int]], readings: DiskReadings, seconds: float) -> None:
    """Read the largest file, or all of them if even that one is small."""
    largest, size = max(files, key=lambda entry: entry[1])
    _Reader.try_direct(largest, readings)
    if size >= _LARGE:
        _read_in_order(largest, size, readings, 0.2 * seconds)
        reads = _samples_of(largest, size)
    else:
        reads = _whole(files)
    _read_at_random(reads, readings, 0.25 * seconds)


def _listed(path: Path, readings: DiskReadings, seconds: float) -> list[str]:
    """Return the files below a path, or the file itself, and time the listing."""
    if not os.path.isdir(path):
        os.close(open_regular(path))  # raises the error for an unreadable file; a FIFO would block
        return [str(path)]
    limit = TimeLimit(seconds)
    names = list(_walked(str(path), readings, limit))
    readings.listing = limit.passed / max(readings.listed, 1)
    _CHANCE.shuffle(names)
    return names


def _walked(top: str, readings: DiskReadings, limit: TimeLimit) -> Iterator[str]:
    """Yield files; a directory below the top that cannot be listed is counted."""
    waiting = [top]
    while waiting:
        directory = waiting.pop(_CHANCE.randrange(len(waiting)))  # files from all over the tree
        try:
            entries = os.scandir(directory)
        except OSError:
            if directory == top:
                raise
            readings.unreadable += 1
            continue
        with entries:
            for entry in entries:
                readings.listed += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif os.path.isfile(entry.path):
                    yield entry.path
                if readings.listed >= _MOST_FILES or limit.is_over:
                    return


def _opened(names: list[str], readings: DiskReadings, seconds: float) -> list[tuple[str, int]]:
    """Return files with their sizes, and time the first opening of each."""
    files: list[tuple[str, int]] = []
    limit = TimeLimit(seconds)
    for name in names:
        if limit.is_over and files:
            break
        begin = time.perf_counter()
        try:
            fd = os.open(name, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError:
            readings.unreadable += 1
            continue
        readings.opening.append(time.perf_counter() - begin)
        size = os.fstat(fd).st_size
        os.close(fd)
        if size:
            files.append((name, size))
    return files


def _whole(files: list[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """Return the ranges for random reads of small files: each file as a whole."""
    return [(name, 0, size) for name, size in files if size < _LARGE]


def _samples_of(name: str, size: int) -> list[tuple[str, int, int]]:
    """Return the ranges for random reads of a large file, each as large as a sample."""
    return [(name, _CHANCE.randrange(0, size - _SAMPLE) // _ALIGNED * _ALIGNED, _SAMPLE) for _ in range(_MOST_FILES)]


def _read_in_order(name: str, size: int, readings: DiskReadings, seconds: float) -> None:
    reader, limit, offset = _Reader(readings), TimeLimit(seconds), 0
    while offset < size and not limit.is_over and offset < _MOST_IN_ORDER:
        offset += reader.read(name, offset, _PIECE)
    readings.in_order = offset / max(limit.passed, 1e-9)


def _read_at_random(reads: list[tuple[str, int, int]], readings: DiskReadings, seconds: float) -> None:
    """Read on one thread, and then on several; no range twice."""
    third = len(reads) // 3  # each of few files may be read once: most are reserved for the threads
    alone, together = (reads[-third:], reads[:-third]) if third else (reads, [])
    before = readings.read
    readings.random, count = _rate(alone, readings, seconds, 1)
    readings.size = (readings.read - before) // max(count, 1)
    if together:
        readings.together, _ = _rate(together, readings, seconds, THREADS)


def _rate(reads: list[tuple[str, int, int]], readings: DiskReadings, seconds: float, threads: int) -> tuple[float, int]:
    """Take ranges from the list and read them until the time is over; return reads per second, and their number."""
    lock, counts, limit = threading.Lock(), [0] * threads, TimeLimit(seconds)

    def work(number: int) -> None:
        reader = _Reader(readings)
        while not limit.is_over and readings.read < _MOST_BYTES:
            with lock:
                if not reads:
                    break
                name, offset, size = reads.pop()
            try:
                reader.read(name, offset, size)
            except OSError:
                readings.unreadable += 1
                continue
            counts[number] += 1

    run_together(work, threads)
    return sum(counts) / max(limit.passed, 1e-9), sum(counts)


class _Reader:
    """Reads ranges of files into memory that begins at a page, as O_DIRECT requires."""

    def __init__(self, readings: DiskReadings) -> None:
        self._readings = readings
        self._memory = mmap.mmap(-1, _PIECE)

    @staticmethod
    def try_direct(name: str, readings: DiskReadings) -> None:
        """Note whether files can be read past the page cache."""
        try:
            _Reader(readings).read(name, 0, _ALIGNED)
        except OSError:
            readings.direct = False

    def read(self, name: str, offset: int, size: int) -> int:
        """Read a range, bypassing the page cache if possible; return the number of bytes."""
        direct = getattr(os, "O_DIRECT", 0) if self._readings.direct else 0
        fd = os.open(name, os.O_RDONLY | direct | getattr(os, "O_BINARY", 0))
        try:
            if not direct:
                self._readings.direct = False
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(fd, offset, size, os.POSIX_FADV_DONTNEED)
            got = self._read(fd, offset, size)
        finally:
            os.close(fd)
        self._readings.read += got
        return got

    def _read(self, fd: int, offset: int, size: int) -> int:
        got = 0
        while got < size:
            length = min(-(-(size - got) // _ALIGNED) * _ALIGNED, _PIECE)
            if hasattr(os, "preadv"):
                count = os.preadv(fd, [memoryview(self._memory)[:length]], offset + got)
            else:
                os.lseek(fd, offset + got, os.SEEK_SET)
                count = len(os.read(fd, length))
            got += count
            if count < length:
                break
        return got
