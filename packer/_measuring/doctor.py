"""`packer.doctor`: checks this machine, and the disk at a path, from the viewpoint of a data loader."""

from __future__ import annotations

import itertools
import os
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packer._display import Block, Displayable
from packer._measuring.disk import THREADS, DiskReadings, FileSystem, file_system, read_disk
from packer._measuring.machine import Finding, available_now, describe_machine
from packer._storage.files import disk_size
from packer._storage.remote.urls import local_path
from packer._storage.system import in_units, require_seconds
from packer.errors import SourceError, printable

_SLOW_OPENING = 2e-3
_FEW_READS = 1000  # a second, on several threads: as many photos as two threads decode
_WORTH = 3.0
_MUCH_TO_LIST = 1e-3


@dataclass(frozen=True, repr=False)
class Diagnosis(Displayable):
    """The findings on a machine. ``print(diagnosis)`` prints one or more lines for each.

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
    """Examine the resources of this machine for loading data, and measure the disk that holds a path.

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
        return Finding("file system", f"its type is not to be had on {sys.platform}", "", "", values)
    found = f"{system.kind} ({system.device}, mounted at {system.mounted}), {in_units(system.free)} free"
    means, advice = "on this machine", ""
    if system.is_memory:
        means = "in memory"
    elif system.is_network:
        means = "a network disk, or a file system in a program: each file costs a question to a server"
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
    means = f"a million files are listed in {long}, each time that training starts"
    advice = ""
    if readings.listing > _MUCH_TO_LIST:
        advice = "Pack the images: a pack opens in milliseconds. Or list them once, with `packer index`"
    return Finding("listing", found, means, advice, values)


def _opening(readings: DiskReadings) -> Finding:
    median = statistics.median(readings.opening)
    slowest = sorted(readings.opening)[int(0.95 * (len(readings.opening) - 1))]
    rare = f"one in twenty takes more than {1e6 * slowest:.0f} µs"
    found = f"{1e6 * median:.0f} µs (median of {len(readings.opening):,}; {rare})"
    slow = median > _SLOW_OPENING
    means = "a tree pays this for every image, a pack once"
    advice = "Pack the images" if slow else ""
    return Finding("opening a file", found, means, advice, {"median": median, "slowest_twentieth": slowest})


def _reading(readings: DiskReadings, system: FileSystem) -> Finding:
    size, together = in_units(readings.size), readings.together or readings.random
    found = f"{readings.random:,.0f} reads a second of {size} at random"
    if readings.together:
        found += f", {readings.together:,.0f} with {THREADS} threads"
    if readings.in_order:
        found += f"; {in_units(readings.in_order)}/s in order"
    if not readings.direct and not system.is_memory:
        found += "; the page cache could not be passed by, and these may be the memory's figures"
    means = f"at most {together:,.0f} images a second of this size, until they are in memory"
    in_order = readings.in_order / max(readings.size, 1)
    advice = ""
    if together < _FEW_READS and not system.is_memory:
        advice = "Let `packer stage` copy a pack to a faster disk or to /dev/shm, or `packer warm` read it into memory"
        if in_order > _WORTH * together:
            advice += (
                f"; in order this disk gives {in_order:,.0f} images a second, which packer.BlockShuffleSampler uses"
            )
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
        return Finding("in memory", "how much memory is free is not to be had on this system", "", "", values)
    if size <= free:
        means = "from the second epoch on the disk is hardly read; `packer warm` reads it before the first"
        return Finding("in memory", f"{in_units(size)} fit into the {in_units(free)} available", means, "", values)
    means = "the disk is read in every epoch"
    advice = "`packer convert --resize 256` makes it smaller, where that suits the training"
    return Finding(
        "in memory", f"{in_units(size)} do not fit into the {in_units(free)} available", means, advice, values
    )
