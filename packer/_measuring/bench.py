"""How fast one can read what one has: packs and trees side by side, with threads and processes from 1 to all.

Every way of reading runs in a process of its own (`sides`), over the same number of samples, from memory. The ways take
turns (`rounds`), each with each number of threads, until the time is over.
"""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from packer._measuring.asked import RECIPES, named, ways
from packer._measuring.machine import processor, version_of
from packer._measuring.rounds import in_turn, ratio, relative_spread
from packer._measuring.sides import Side
from packer._storage.limits import available_cpus, require_count, require_seconds
from packer._storage.progress import shown_progress
from packer._storage.remote.settings import chosen
from packer._storage.remote.urls import is_url, shown
from packer.errors import SourceError

__all__ = ["LIMIT", "Benchmark", "BenchmarkProgress", "Rate", "bench"]

LIMIT = "limit"

_SHORTEST, _LONGEST = 0.3, 2.0  # seconds of a measurement
_ROUNDS = 3, 15  # that there shall be at least, and are at most
_PACKAGES = ("packer-images", "torch", "torchvision", "numpy", "pillow", "simplejpeg")

BenchmarkProgress = Callable[[float, float, str], None]
"""Called with the seconds that have passed, the seconds that there are, and what is measured."""


@dataclass(frozen=True)
class Rate:
    """How fast one way of reading is with one number of threads.

    Attributes
    ----------
    side : str
        The pack or tree, and the way of reading it.
    way : str
        "ImageFolder, DataLoader", "DataLoader", "Loader", "Loader, processes", "Loader, in place", "limit" or "recipe";
        of a recipe that has a name, "packer" or "torchvision"; of a pack at a URL also "block shuffle, first epoch" and
        "random order, first epoch".
    path : str
    threads : int
        Threads; of a DataLoader, worker processes; of "Loader, processes", as many threads and processes.
    rates : tuple of float
        Images a second, of each round.
    others : float or None
        The share of the CPUs that other programs took meanwhile, 0 to 1, median; None where the system does not say.
    """

    side: str
    way: str
    path: str
    threads: int
    rates: tuple[float, ...]
    others: float | None

    @property
    def median(self) -> float:
        """Images a second."""
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """Half of the range from the slowest to the fastest round, as a share of the median."""
        return relative_spread(self.rates)


@dataclass(frozen=True)
class Benchmark:
    """What `packer.bench` measured.

    Attributes
    ----------
    rates : tuple of Rate
        By side, and of each side by threads.
    skipped : dict of str to str
        Sides that were not measured, with the reason.
    images : dict of str to int
        How many samples of each path were read, again and again.
    mean_bytes : dict of str to float
        How many bytes a sample of each path has, the files' or the stored ones.
    batch : int
    rounds : int
    seconds : float
        How long all took.
    machine : dict of str to str
        What the figures depend on beside the data.
    """

    rates: tuple[Rate, ...]
    skipped: dict[str, str]
    images: dict[str, int]
    mean_bytes: dict[str, float]
    batch: int
    rounds: int
    seconds: float
    machine: dict[str, str]

    @property
    def sides(self) -> list[str]:
        """The names of the sides that were measured."""
        return list(dict.fromkeys(rate.side for rate in self.rates))

    @property
    def others(self) -> float | None:
        """The share of the CPUs that other programs took meanwhile, 0 to 1; None where the system does not say."""
        known = [rate.others for rate in self.rates if rate.others is not None]
        return statistics.median(known) if known else None

    def of(self, side: str) -> list[Rate]:
        """Return the rates of a side, by threads."""
        return [rate for rate in self.rates if rate.side == side]

    def fastest(self, side: str) -> Rate:
        """Return the highest rate of a side."""
        return max(self.of(side), key=lambda rate: rate.median)

    def ratio(self, side: str, other: str) -> float | None:
        """Return the highest rate of one side by that of another, the median of the rounds; None where one has none."""
        return ratio(self.fastest(side).rates, self.fastest(other).rates)


@dataclass
class _Cell:
    """A side with a number of threads, while it is measured."""

    name: str
    way: str
    path: str
    threads: int
    side: str
    step: tuple[int, ...] = ()
    rates: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)

    def done(self) -> Rate:
        others = statistics.median(self.others) if self.others else None
        return Rate(self.name, self.way, _known(self.path), self.threads, tuple(self.rates), others)


def bench(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    batch: int = 64,
    images: int = 1000,
    seconds: float = 60,
    threads: Sequence[int] | None = None,
    recipe: str | os.PathLike[str] | None = None,
    progress: BenchmarkProgress | bool | None = None,
) -> Benchmark:
    """Measure how fast packs and trees of images are read, in the ways in which training code does, side by side.

    A pack is read through torch's DataLoader, and through `Loader` with threads and with processes; beside them stands
    the limit, which is packer's decoding alone of images in memory. A tree is read by torchvision's ImageFolder through
    DataLoader, and by `Loader` in place. All read from memory, shuffled, and make uint8 batches of
    RandomResizedCrop(224) with mirroring.

    A pack at a URL is read as a first epoch does, which fetches every sample: shuffled in blocks, and in random order.
    Beside that stand `Loader` and the limit from the cache, as a second epoch reads.

    Parameters
    ----------
    paths : path or URL, or sequence of them
        Packs, or trees as ImageFolder takes them.
    batch : int
        Samples of a batch.
    images : int
        How many samples of each path are read again and again; they are spread over all.
    seconds : float
        How long it may take, about; starting and one round at least come to their end.
    threads : sequence of int, optional
        With which numbers of threads; by default 1, 2, 4 and so on, and all CPUs.
    recipe : {"trivial", "rand", "three", "dino"} or path, optional
        A recipe by its name: it is measured step by step, by `Loader` and by torchvision's v2 transforms in a
        DataLoader, with as many threads as there are CPUs by default. Or a Python file that defines
        ``loader(path, threads)``, a side of one's own, or ``transform``, or ``crop``.
    progress : bool or callable, optional
        True shows a bar. A callable is called with the seconds that have passed, the seconds that there are, and what
        is measured.

    Returns
    -------
    Benchmark

    Raises
    ------
    OptionError
        If no path is given, one is given twice, or the recipe cannot be used.
    PackNotFoundError
        If there is nothing at a path.
    SourceError
        If a path has no images, or nothing can be measured; the message has the reasons.
    PackError
        If a pack cannot be read.
    """
    for name, number in (("batch", batch), ("images", images), *(("threads", count) for count in threads or ())):
        require_count(name, number)
    require_seconds("seconds", seconds)
    progress = shown_progress(progress, "bench", "s")
    begin = time.monotonic()
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if recipe is not None:
        recipe = str(recipe) if str(recipe) in RECIPES else os.path.abspath(recipe)
    places = named([os.fspath(path) for path in given])
    counts = sorted(set(threads)) if threads else [available_cpus()] if recipe in RECIPES else _up_to(available_cpus())
    with contextlib.ExitStack() as stack:
        fetched = stack.enter_context(_kept(places.values()))
        sides: dict[str, Side] = {}
        cells, sizes = [], {}
        for way in ways(places, recipe):
            side = way.side or way.name
            if side not in sides:
                sides[side] = _started(way.way, way.path, batch, images, recipe, fetched)
                stack.callback(sides[side].close)
            cells += [_Cell(way.name, way.way, way.path, number, side, way.step) for number in counts]
        for cell in cells:
            if cell.path not in sizes or cell.threads == counts[0]:
                if progress is not None:
                    progress(time.monotonic() - begin, seconds, f"starting {cell.name}")
                count, size = sides[cell.side].call("describe") or (0, 0)
                if count:
                    sizes[cell.path] = count, size
        rounds = _measure(sides, cells, begin, seconds, progress)
    rates = tuple(cell.done() for cell in cells if cell.rates and sides[cell.side].reason is None)
    skipped = {name: side.reason for name, side in sides.items() if side.reason is not None}
    if not rates:
        kinds = {side.error for side in sides.values()}
        kind = kinds.pop() if len(kinds) == 1 else None
        raise (kind or SourceError)("; ".join(_reasons(skipped)))
    return Benchmark(
        rates,
        skipped,
        {_known(path): count for path, (count, _) in sizes.items()},
        {_known(path): size / count for path, (count, size) in sizes.items()},
        batch,
        rounds,
        time.monotonic() - begin,
        _machine(),
    )


def _reasons(skipped: dict[str, str]) -> Iterator[str]:
    """Yield why nothing was measured, each reason once, with the first side that has it."""
    for reason in dict.fromkeys(skipped.values()):
        yield f"{next(name for name, other in skipped.items() if other == reason)}: {reason}"


def _known(path: str) -> str:
    """Return what a person knows a path by: of a URL, without what is secret in it."""
    return shown(path) if is_url(path) else path


@contextlib.contextmanager
def _kept(paths: Iterable[str]) -> Iterator[str]:
    """Have a directory for what is fetched of URLs, on the disk on which a training would keep it."""
    base = next((chosen(path).cache_dir for path in paths if is_url(path)), None)
    if base is not None:
        os.makedirs(base, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=base, ignore_cleanup_errors=True) as directory:
        yield directory


def _started(way: str, path: str, batch: int, images: int, recipe: str | None, fetched: str) -> Side:  # noqa: PLR0917
    from packer._measuring.fetching import BLOCKS, RANDOM, Fetching
    from packer._measuring.loaders import Reading

    if recipe in RECIPES:
        from packer._measuring.recipes import Steps

        return Side(Steps, way, path, batch, images, recipe)
    if way in (BLOCKS, RANDOM):
        return Side(Fetching, way, path, batch, images, fetched)
    return Side(Reading, way, path, batch, images, recipe)


def _measure(
    sides: dict[str, Side], cells: list[_Cell], begin: float, seconds: float, progress: BenchmarkProgress | None
) -> int:
    """Measure all cells in turn until the time is over; return the number of rounds."""
    least, most = _ROUNDS
    span = min(max((begin + seconds - time.monotonic()) / (2 * least * max(len(cells), 1)), _SHORTEST), _LONGEST)
    took = 0.0
    for number in range(most):
        started = time.monotonic()
        if number and started + took > begin + seconds:
            return number
        for place in in_turn(len(cells), number * max(1, len(cells) // least)):
            cell, side = cells[place], sides[cells[place].side]
            if side.reason is not None:
                continue
            if progress is not None:
                shown = f"{cell.name}, {cell.threads} thread{'s' if cell.threads > 1 else ''}"
                progress(time.monotonic() - begin, seconds, shown)
            count, measured = side.measure("read", cell.threads, span, *cell.step)
            if count:
                cell.rates.append(measured.rate)
                cell.others += [measured.others] if measured.others is not None else []
        took = time.monotonic() - started
    return most


def _up_to(cpus: int) -> list[int]:
    """Return 1, 2, 4 and so on, and `cpus`."""
    return sorted({1 << power for power in range(cpus.bit_length()) if 1 << power <= cpus} | {cpus})


def _machine() -> dict[str, str]:
    facts = {"processor": processor(), "cpus": str(available_cpus()), "system": platform.platform()}
    facts["python"] = platform.python_version()
    versions = {package: version_of(package) for package in _PACKAGES}
    return facts | {package: version for package, version in versions.items() if version is not None}
