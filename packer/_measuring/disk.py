"""The disk below a path, or the network disk: how fast it gives the bytes that training reads.

Nothing is written. Files are read past the page cache (O_DIRECT) where the system and the file system can do that.
Otherwise the cache is asked to forget what is read (``posix_fadvise``), and what the figures say may be the memory's.

A directory for what is made to be measured, which goes whatever becomes of this process.

The random numbers of the program that asks: measuring draws none of them.

How much is measured depends on the time that it takes. If the program's generators moved on meanwhile, no two of its
runs would be the same, whatever seeds they set.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from packer._storage.safe_open import open_regular
from packer.errors import SourceError, printable

__all__ = [
    "THREADS",
    "DiskReadings",
    "FileSystem",
    "file_system",
    "keeping_random_states",
    "read_disk",
    "scratch_directory",
]

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

_CHANCE = random.Random()  # of its own: the numbers of a program that asks stay what they are


@dataclass(frozen=True)
class FileSystem:
    """What lies below a path.

    Attributes
    ----------
    kind : str
        Such as ``"ext4"``, ``"nfs4"``; empty where the system does not say.
    device, mounted : str
        The device or the server, and where it is mounted.
    free : int
        Bytes that may be written.
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
    """How fast files below a path were read.

    Attributes
    ----------
    listed : int
        How many entries of directories were listed.
    listing : float
        Seconds an entry.
    direct : bool
        Whether the page cache was passed by.
    opening : list of float
        Seconds that opening a file took, of each file.
    size : int
        Bytes of a random read: a whole file's mean, or a sample's in a large file.
    random, together : float
        Random reads a second, on one thread and on `THREADS`; 0 where there was nothing to read.
    in_order : float
        Bytes a second of a large file from the beginning on; 0 without one.
    read : int
        Bytes that were read.
    unreadable : int
        How many files could not be read.
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
    """Return the file system below a path, as the system's table of mounts has it."""
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
    """Read files below a path for some seconds, or one file, and return how fast that was.

    Raises
    ------
    SourceError
        If there is nothing at the path, or it cannot be read.
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
    """Read the largest file, or all of them where that one is small too."""
    largest, size = max(files, key=lambda entry: entry[1])
    _Reader.try_direct(largest, readings)
    if size >= _LARGE:
        _read_in_order(largest, size, readings, 0.2 * seconds)
        reads = _samples_of(largest, size)
    else:
        reads = _whole(files)
    _read_at_random(reads, readings, 0.25 * seconds)


def _listed(path: Path, readings: DiskReadings, seconds: float) -> list[str]:
    """Return files below a path, or the one that it is, and note how long listing takes."""
    if not os.path.isdir(path):
        os.close(open_regular(path))  # says why it cannot be read; a FIFO would wait for its other end
        return [str(path)]
    begin = time.perf_counter()
    names = list(_walked(str(path), readings, begin + seconds))
    readings.listing = (time.perf_counter() - begin) / max(readings.listed, 1)
    _CHANCE.shuffle(names)
    return names


def _walked(top: str, readings: DiskReadings, end: float) -> Iterator[str]:
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
                if readings.listed >= _MOST_FILES or time.perf_counter() > end:
                    return


def _opened(names: list[str], readings: DiskReadings, seconds: float) -> list[tuple[str, int]]:
    """Return files with their sizes, and note how long opening them takes, which nobody asked of them before."""
    files: list[tuple[str, int]] = []
    end = time.perf_counter() + seconds
    for name in names:
        begin = time.perf_counter()
        if begin > end and files:
            break
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
    """Return what is read at random of small files: each, whole."""
    return [(name, 0, size) for name, size in files if size < _LARGE]


def _samples_of(name: str, size: int) -> list[tuple[str, int, int]]:
    """Return what is read at random of a large file: places of samples."""
    return [(name, _CHANCE.randrange(0, size - _SAMPLE) // _ALIGNED * _ALIGNED, _SAMPLE) for _ in range(_MOST_FILES)]


def _read_in_order(name: str, size: int, readings: DiskReadings, seconds: float) -> None:
    reader, begin, place = _Reader(readings), time.perf_counter(), 0
    while place < size and time.perf_counter() - begin < seconds and place < _MOST_IN_ORDER:
        place += reader.read(name, place, _PIECE)
    readings.in_order = place / max(time.perf_counter() - begin, 1e-9)


def _read_at_random(reads: list[tuple[str, int, int]], readings: DiskReadings, seconds: float) -> None:
    """Read on one thread, and then on several; no place twice."""
    lock, local = threading.Lock(), threading.local()

    def until(end: float) -> int:
        count = 0
        local.reader = _Reader(readings)
        while time.perf_counter() < end and readings.read < _MOST_BYTES:
            with lock:
                if not reads:
                    break
                name, place, size = reads.pop()
            try:
                local.reader.read(name, place, size)
            except OSError:
                readings.unreadable += 1
                continue
            count += 1
        return count

    third = len(reads) // 3  # of few files each may be read once: most are kept for the threads
    kept, reads[:] = reads[:-third] if third else [], reads[-third:] if third else reads
    before = readings.read
    readings.random, count = _rate(lambda: until(time.perf_counter() + seconds))
    readings.size = (readings.read - before) // max(count, 1)
    reads[:] = kept
    if reads:
        with ThreadPoolExecutor(THREADS) as pool:
            end = time.perf_counter() + seconds
            readings.together, _ = _rate(lambda: sum(pool.map(until, [end] * THREADS)))


def _rate(work: Callable[[], int]) -> tuple[float, int]:
    begin = time.perf_counter()
    count = work()
    return count / max(time.perf_counter() - begin, 1e-9), count


class _Reader:
    """Reads ranges of files into memory that O_DIRECT takes: it begins at a page."""

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

    def read(self, name: str, place: int, size: int) -> int:
        """Read a range, past the page cache where that can be; return how many bytes there were."""
        direct = getattr(os, "O_DIRECT", 0) if self._readings.direct else 0
        fd = os.open(name, os.O_RDONLY | direct | getattr(os, "O_BINARY", 0))
        try:
            if not direct:
                self._readings.direct = False
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(fd, place, size, os.POSIX_FADV_DONTNEED)
            got = self._read(fd, place, size)
        finally:
            os.close(fd)
        self._readings.read += got
        return got

    def _read(self, fd: int, place: int, size: int) -> int:
        got = 0
        while got < size:
            wanted = min(-(-(size - got) // _ALIGNED) * _ALIGNED, _PIECE)
            if hasattr(os, "preadv"):
                count = os.preadv(fd, [memoryview(self._memory)[:wanted]], place + got)
            else:
                os.lseek(fd, place + got, os.SEEK_SET)
                count = len(os.read(fd, wanted))
            got += count
            if count < wanted:
                break
        return got


_WATCH = """
import shutil, signal, sys
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    if hasattr(signal, name):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
sys.stdin.buffer.read()
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""
"""What a process of its own does: it waits until its pipe is closed, which the system does for whoever is killed."""


@contextlib.contextmanager
def scratch_directory(what: str, inside: Path) -> Iterator[Path]:
    """Make a directory, named after what it is for, in `inside`; where nothing can be written there, in the system's.

    A process of its own removes the directory where this one is killed.
    """
    writable = os.path.isdir(inside) and os.access(inside, os.W_OK | os.X_OK)
    made = Path(tempfile.mkdtemp(prefix=f"packer-{what}-", dir=inside if writable else None))
    line = [sys.executable, "-I", "-S", "-c", _WATCH, str(made)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": os.name != "nt"}
    watcher = None
    try:
        with contextlib.suppress(OSError):  # no process is left: then this one alone removes the directory
            watcher = subprocess.Popen(line, stdin=subprocess.PIPE, **quiet)  # type: ignore[call-overload]
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        if watcher is not None:
            watcher.kill()  # a fork of this process may hold the pipe open
            watcher.stdin.close()
            watcher.wait()


@contextlib.contextmanager
def keeping_random_states() -> Iterator[None]:
    """Let the program draw the random numbers after this block that it would have drawn without the block."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    states = random.getstate(), numpy and numpy.random.get_state(), torch and torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        if numpy is not None and states[1] is not None:
            numpy.random.set_state(states[1])
        if torch is not None and states[2] is not None:
            torch.set_rng_state(states[2])
