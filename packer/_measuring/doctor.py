"""`packer.doctor`: finds what slows down data loading on this machine, and measures the disk that holds a path.

`read_disk` measures a local or network disk with the access patterns of training. Nothing is written. Reads bypass the
page cache (O_DIRECT) if the system and the file system support this. Otherwise the system is asked to drop the pages
from the cache (``posix_fadvise``); if it does not drop them, the figures show the speed of memory.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from packer._display import Block, Displayable
from packer._measuring.harness import TimeLimit, run_together
from packer._measuring.machine import Finding, available_now, describe_machine
from packer._storage.files import disk_size
from packer._storage.remote.urls import local_path
from packer._storage.safe_open import open_regular
from packer._storage.system import in_units, require_seconds
from packer.errors import SourceError, printable

_SLOW_OPENING = 2e-3  # seconds
_FEW_READS = 1000  # per second, on several threads: two threads decode about as many photos
_IN_ORDER_IS_FASTER = 3.0  # reading in order is advised if it is more than this many times as fast as random reads
_SLOW_LISTING = 1e-3  # seconds per entry
_READING_THREADS = 8


@dataclass(frozen=True, repr=False)
class Diagnosis(Displayable):
    """The findings on a machine. ``print(diagnosis)`` prints one or more lines for each finding.

    Attributes
    ----------
    path : str or None
        The path that was read, if any.
    findings : list of Finding
        Each has ``topic``, ``found``, ``means``, ``advice`` and ``values``; ``advice`` is empty if nothing needs to be
        done.
    """

    path: str | None
    findings: list[Finding]

    def to_json(self) -> dict[str, Any]:
        """Return the findings as numbers, strings, lists and dicts."""
        return asdict(self)

    def _blocks(self) -> Iterable[Block]:
        return itertools.chain.from_iterable(map(_lines, self.findings))


def _lines(finding: Finding) -> Iterator[str]:
    yield f"{finding.topic}: {finding.found}"
    if finding.means:
        yield f"    {finding.means}"
    if finding.advice:
        yield f"  > {finding.advice}"


def doctor(path: str | os.PathLike[str] | None = None, *, seconds: float = 5.0) -> Diagnosis:
    """Check processors, memory, limits and GPUs of this machine, and measure the disk that holds a path.

    Nothing is written. GPUs are detected with nvidia-smi and torch.

    Parameters
    ----------
    path : path, optional
        A pack, a file, or a directory of images on the disk that training reads. By default no disk is measured.
    seconds : float
        Time limit for measuring the disk. At most 1 GiB and 5,000 directory entries are read.

    Returns
    -------
    Diagnosis

    Raises
    ------
    SourceError
        If `path` does not exist, or cannot be read.
    ValueError
        If `seconds` is not a finite number above 0.
    """
    require_seconds("seconds", seconds)
    findings = []
    if path is not None:
        where = local_path(path)
        findings = list(_disk(where, seconds))
    return Diagnosis(None if path is None else os.fspath(path), [*describe_machine(), *findings])


def _disk(path: Path, seconds: float) -> Iterator[Finding]:
    if not os.path.lexists(path):
        raise SourceError(f"{printable(path)}: no such file or directory")
    system = file_system(path)
    readings = read_disk(path, seconds)
    yield _system(path, system)
    if os.path.isdir(path):
        yield _listing(readings)
    if not readings.read:
        yield Finding("reading", f"no file below {printable(path)} could be read", "nothing was measured")
        return
    if len(readings.opening) > 1:
        yield _opening(readings)
    yield _reading(readings, system)
    if os.path.isfile(path):
        yield _fitting(disk_size(path))


def _system(path: Path, system: FileSystem) -> Finding:
    values = asdict(system)
    if not system.kind:
        return Finding("file system", f"its type is not available on {sys.platform}", "", "", values)
    found = f"{system.kind} ({system.device}, mounted at {system.mounted}), {in_units(system.free)} free"
    means, advice = "on this machine", ""
    if system.is_memory:
        means = "in memory"
    elif system.is_network:
        means = "a network disk or a FUSE file system: each file costs a request to a server"
        advice = "Pack the images, and let `packer stage` copy the pack to this machine's own disk before training"
    if system.read_only:
        means += "; read-only, so packs cannot be written here"
    return Finding("file system", found, means, advice, values)


def _listing(readings: DiskReadings) -> Finding:
    values = {"entries": readings.listed, "seconds_an_entry": readings.listing, "unreadable": readings.unreadable}
    if not readings.listed:
        return Finding("listing", "the directory is empty", "there is nothing to read", "", values)
    found = f"{readings.listed:,} entries, {1e6 * readings.listing:.0f} µs each"
    if readings.unreadable:
        found += f"; {readings.unreadable:,} could not be read"
    million = 1e6 * readings.listing
    long = f"{million:.0f} s" if million < 60 else f"{million / 60:.0f} min"
    means = f"listing a million files takes {long}, each time training starts"
    advice = ""
    if readings.listing > _SLOW_LISTING:
        advice = "Pack the images: a pack opens in milliseconds. Or list them only once, with `packer index`"
    return Finding("listing", found, means, advice, values)


def _opening(readings: DiskReadings) -> Finding:
    median = statistics.median(readings.opening)
    slowest = sorted(readings.opening)[int(0.95 * (len(readings.opening) - 1))]
    rare = f"one in twenty takes more than {1e6 * slowest:.0f} µs"
    found = f"{1e6 * median:.0f} µs (median of {len(readings.opening):,}; {rare})"
    slow = median > _SLOW_OPENING
    means = "an image folder pays this for every image, a pack only once"
    advice = "Pack the images" if slow else ""
    return Finding("opening a file", found, means, advice, {"median": median, "slowest_twentieth": slowest})


def _reading(readings: DiskReadings, system: FileSystem) -> Finding:
    size, together = in_units(readings.size), readings.together or readings.random
    found = f"{readings.random:,.0f} reads a second of {size} at random"
    if readings.together:
        found += f", {readings.together:,.0f} with {_READING_THREADS} threads"
    if readings.in_order:
        found += f"; {in_units(readings.in_order)}/s in order"
    if not readings.direct and not system.is_memory:
        found += "; the page cache could not be bypassed, so these may be the figures of memory"
    means = f"at most {together:,.0f} images of this size a second, until they are in memory"
    in_order = readings.in_order / max(readings.size, 1)
    advice = ""
    if together < _FEW_READS and not system.is_memory:
        advice = (
            "Copy a pack to a faster disk or to /dev/shm with `packer stage`, or read it into memory with `packer warm`"
        )
        if in_order > _IN_ORDER_IS_FASTER * together:
            advice += f"; in order this disk reads {in_order:,.0f} images a second: use packer.BlockShuffleSampler"
    values = {
        "bytes": readings.size,
        "random": readings.random,
        "together": readings.together,
        "in_order": readings.in_order,
        "direct": readings.direct,
        "read": readings.read,
    }
    return Finding("reading", found, means, advice, values)


def _fitting(size: int) -> Finding:
    free = available_now()
    values = {"size": size, "available": free}
    if free is None:
        return Finding("in memory", "the amount of free memory is not available on this system", "", "", values)
    if size <= free:
        means = "from the second epoch on, data comes from memory; `packer warm` reads it before the first epoch"
        return Finding("in memory", f"{in_units(size)} fit into the {in_units(free)} available", means, "", values)
    means = "the disk is read in every epoch"
    advice = "`packer convert --resize 256` makes it smaller, if that suits the training"
    return Finding(
        "in memory", f"{in_units(size)} do not fit into the {in_units(free)} available", means, advice, values
    )


_ALIGNMENT = 4096  # bytes: O_DIRECT requires memory addresses and file offsets that are multiples of it
_PIECE = 8 << 20  # bytes: the most that one call reads
_LARGE_FILE = 32 << 20  # bytes; a smaller file is read as a whole
_SAMPLE = 112 << 10  # bytes: the mean size of an ImageNet photo
_MOST_IN_ORDER = 1 << 28  # bytes
_MOST_BYTES = 1 << 30
_MOST_FILES = 5000

_NETWORKS = (
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
_MEMORIES = ("tmpfs", "ramfs", "devtmpfs")

_random = random.Random()  # a generator of its own, so that the program's random numbers do not change


@dataclass(frozen=True)
class FileSystem:
    """The file system below a path.

    Attributes
    ----------
    kind : str
        The type of the file system, such as ``"ext4"`` or ``"nfs4"``; empty if the system does not report it.
    device, mounted : str
        The device or the server, and the directory at which it is mounted.
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
        return self.kind.startswith(_NETWORKS)

    @property
    def is_memory(self) -> bool:
        return self.kind in _MEMORIES


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
        The number of bytes in a random read: the mean size of files, or of samples in a large file.
    random, together : float
        Random reads per second, on one thread and on several threads; 0 if there was nothing to read.
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
    """Return the file system of a path, as found in the system's mount table."""
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


class _Range(NamedTuple):
    """A range of bytes in a file."""

    file: str
    offset: int
    size: int


def read_disk(path: Path, seconds: float = 5.0) -> DiskReadings:
    """Read files below a path, or one file, for some seconds, and return the speed.

    Raises
    ------
    SourceError
        If nothing exists at the path, or it cannot be read.
    """
    test = _DiskTest(seconds)
    try:
        files = test.open_files(test.list_files(path))
        if files:
            test.read_files(files)
    except OSError as error:
        raise SourceError(f"{printable(path)}: {error.strerror}") from error
    return test.readings


class _DiskTest:
    """Measures a disk within a time limit. Call `list_files`, `open_files` and `read_files`, in this order.

    Attributes
    ----------
    readings : DiskReadings
        The speed, as far as it was measured.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.readings = DiskReadings()

    def list_files(self, path: Path) -> list[str]:
        """Return the files below a path, or the file itself, and time the listing."""
        if not os.path.isdir(path):
            os.close(open_regular(path))  # raises an error for an unreadable file or a FIFO, which would block reading
            return [str(path)]
        limit = TimeLimit(0.15 * self._seconds)
        names = list(self._walk(str(path), limit))
        self.readings.listing = limit.passed / max(self.readings.listed, 1)
        _random.shuffle(names)
        return names

    def _walk(self, top: str, limit: TimeLimit) -> Iterator[str]:
        """Yield files from all over a tree; count directories below the top that cannot be listed."""
        readings, directories = self.readings, [top]
        while directories:
            directory = directories.pop(_random.randrange(len(directories)))
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
                        directories.append(entry.path)
                    elif os.path.isfile(entry.path):
                        yield entry.path
                    if readings.listed >= _MOST_FILES or limit.is_over:
                        return

    def open_files(self, names: list[str]) -> list[_Range]:
        """Return the files that are not empty, and time the first opening of each."""
        files: list[_Range] = []
        limit = TimeLimit(0.15 * self._seconds)
        for name in names:
            if limit.is_over and files:
                break
            begin = time.perf_counter()
            try:
                fd = os.open(name, os.O_RDONLY | getattr(os, "O_BINARY", 0))
            except OSError:
                self.readings.unreadable += 1
                continue
            self.readings.opening.append(time.perf_counter() - begin)
            size = os.fstat(fd).st_size
            os.close(fd)
            if size:
                files.append(_Range(name, 0, size))
        return files

    def read_files(self, files: list[_Range]) -> None:
        """Read samples of the largest file, or all files as a whole if they are small."""
        largest = max(files, key=lambda file: file.size)
        self.readings.direct = _can_bypass_cache(largest.file)
        if largest.size >= _LARGE_FILE:
            self._read_in_order(largest)
            last = largest.size - _SAMPLE
            offsets = [_random.randrange(0, last) // _ALIGNMENT * _ALIGNMENT for _ in range(_MOST_FILES)]
            files = [_Range(largest.file, offset, _SAMPLE) for offset in offsets]
        self._read_at_random(files)

    def _read_in_order(self, whole: _Range) -> None:
        reader, limit, offset = _RangeReader(self.readings.direct), TimeLimit(0.2 * self._seconds), 0
        while offset < min(whole.size, _MOST_IN_ORDER) and not limit.is_over:
            offset += reader.read(_Range(whole.file, offset, _PIECE))
        self.readings.in_order = offset / max(limit.passed, 1e-9)
        self.readings.read += offset

    def _read_at_random(self, ranges: list[_Range]) -> None:
        """Read each range once, first on one thread and then on several."""
        third = len(ranges) // 3
        alone, together = (ranges[-third:], ranges[:-third]) if third else (ranges, [])
        before = self.readings.read
        self.readings.random, count = self._rate(alone, 1)
        self.readings.size = (self.readings.read - before) // max(count, 1)
        if together:
            self.readings.together, _ = self._rate(together, _READING_THREADS)

    def _rate(self, ranges: list[_Range], threads: int) -> tuple[float, int]:
        """Read ranges until time runs out; return the reads per second, and the total number of reads."""
        readings, counts = self.readings, [0] * threads
        lock, limit = threading.Lock(), TimeLimit(0.25 * self._seconds)

        def work(number: int) -> None:
            reader = _RangeReader(readings.direct)
            while not limit.is_over and readings.read < _MOST_BYTES:
                with lock:
                    if not ranges:
                        break
                    some = ranges.pop()
                try:
                    size = reader.read(some)
                except OSError:
                    readings.unreadable += 1
                    continue
                with lock:
                    readings.read += size
                counts[number] += 1

        run_together(work, threads)
        return sum(counts) / max(limit.passed, 1e-9), sum(counts)


def _can_bypass_cache(file: str) -> bool:
    """Tell whether reading a file can bypass the page cache."""
    if not hasattr(os, "O_DIRECT"):
        return False
    try:
        _RangeReader(direct=True).read(_Range(file, 0, _ALIGNMENT))
    except OSError:
        return False
    return True


class _RangeReader:
    """Reads ranges of files into page-aligned memory, as O_DIRECT requires.

    Parameters
    ----------
    direct : bool
        Whether the page cache is bypassed. Otherwise the system is asked to drop the pages from the cache.
    """

    def __init__(self, direct: bool) -> None:
        self._direct = direct
        self._flags = os.O_RDONLY | (os.O_DIRECT if direct else 0) | getattr(os, "O_BINARY", 0)
        self._memory = mmap.mmap(-1, _PIECE)

    def read(self, some: _Range) -> int:
        """Read a range; return the number of bytes."""
        fd = os.open(some.file, self._flags)
        try:
            if not self._direct and hasattr(os, "posix_fadvise"):
                os.posix_fadvise(fd, some.offset, some.size, os.POSIX_FADV_DONTNEED)
            return self._read_pieces(fd, some)
        finally:
            os.close(fd)

    def _read_pieces(self, fd: int, some: _Range) -> int:
        done = 0
        while done < some.size:
            length = min(-(-(some.size - done) // _ALIGNMENT) * _ALIGNMENT, _PIECE)
            if hasattr(os, "preadv"):
                count = os.preadv(fd, [memoryview(self._memory)[:length]], some.offset + done)
            else:
                os.lseek(fd, some.offset + done, os.SEEK_SET)
                count = len(os.read(fd, length))
            done += count
            if count < length:
                break
        return done
