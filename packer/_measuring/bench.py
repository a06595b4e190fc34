"""How fast one can read what one has: packs and trees side by side, with threads and processes from 1 to all.

Every way of reading runs in a process of its own (`sides`), over the same number of samples, from memory. The ways take
turns (`rounds`), each with each number of threads, until the time is over.

What is to be measured: packs and trees by their names, and the ways of reading each.

Rounds: sides that are measured in turn, and what their figures say together.

The speed of a machine changes while one measures. So all sides are measured once a round, each round begins with
another side, and sides are compared by the median of their ratios within a round.

Sides of a measurement, each in a process of its own: none has the memory, the threads or the imports of another.

A side is an object that is made in its process and whose methods are called from here. Its processes form a group,
whose CPU time tells what it spent itself; what else kept the CPUs busy meanwhile was others'.
"""

from __future__ import annotations

import contextlib
import glob
import multiprocessing
import os
import platform
import shlex
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from packer._formats import open_pack
from packer._manifest import TILED
from packer._measuring.machine import HAS_PROC, busy_seconds, others_share, processor, version_of
from packer._sources import class_directories, imagefolder_source
from packer._sources.imagefolder import ImageRule, Walk
from packer._storage.progress import shown_progress
from packer._storage.remote.urls import chosen, is_url, name as last_part, shown
from packer._storage.system import available_cpus, interrupts_held, require_count, require_seconds
from packer.errors import NotAPackError, OptionError, PackerError, PackNotFoundError, SourceError, message_of, printable

__all__ = [
    "LIMIT",
    "RECIPES",
    "Benchmark",
    "BenchmarkProgress",
    "Measurement",
    "Rate",
    "Side",
    "Way",
    "bench",
    "in_turn",
    "named",
    "ratio",
    "relative_spread",
    "ways",
]

RECIPES = ("trivial", "rand", "three", "dino")
"""The recipes that have a name: see `packer._measuring.loaders`."""


class Way(NamedTuple):
    """A way of reading what lies at a path.

    Attributes
    ----------
    name : str
        What is shown.
    way : str
        What it is, whatever is read.
    path : str
    side : str
        Which process measures it, where it is not one of its own.
    step : tuple of int
        The last step that is done, where the way is a recipe.
    """

    name: str
    way: str
    path: str
    side: str = ""
    step: tuple[int, ...] = ()


def named(paths: list[str]) -> dict[str, str]:
    """Return the paths by names that tell them apart.

    Raises
    ------
    OptionError, PackNotFoundError
        If there are none, one is given twice, or there is nothing at one.
    """
    if not paths:
        raise OptionError("say which pack or tree is to be measured")
    for path in paths:
        if not is_url(path) and not os.path.exists(path):
            index = f". What other tools made is measured by an index: packer index {shlex.quote(path)} OUT.index"
            raise PackNotFoundError(printable(f"{path}: there is nothing{index if glob.has_magic(path) else ''}"))
    bare = [last_part(path) if is_url(path) else Path(os.path.abspath(path)).name for path in paths]
    names = bare if len(set(bare)) == len(bare) else [shown(path) if is_url(path) else path for path in paths]
    if len(set(names)) < len(names):
        raise OptionError("a pack or tree is given twice")
    return {printable(name): path for name, path in zip(names, paths, strict=True)}


def ways(places: dict[str, str], recipe: str | None) -> Iterator[Way]:
    """Yield the ways of reading what lies at some paths, which have names."""
    if recipe is not None and (url := next(filter(is_url, places.values()), None)):
        raise OptionError(f"{shown(url)}: a recipe is measured on a disk: `packer stage` brings the pack there")
    kinds = {path: _kind(path) for path in places.values()}  # what is wrong is said before torch is imported
    if recipe in RECIPES:
        yield from _by_steps(places, recipe)
        return
    from packer._measuring.loaders import BLOCKS, RANDOM, WAYS_OF_PACKS, WAYS_OF_TREES, read_recipe

    own = recipe is not None and read_recipe(recipe).loader is not None
    for name, path in places.items():
        kind = kinds[path]
        bare = f"{name}, {kind}" if kind else name
        if is_url(path):
            for way in (BLOCKS, RANDOM):
                yield Way(f"{bare}: {way}", way, path)
            for way in ("Loader", "limit"):
                yield Way(f"{bare}: {way}, from the cache", way, path)
            continue
        for way in WAYS_OF_TREES if kind is None else WAYS_OF_PACKS:
            yield Way(f"{bare}: {way}", way, path)
        if own:
            yield Way(f"{name}: {Path(str(recipe)).name}", "recipe", path)


def _by_steps(places: dict[str, str], recipe: str) -> Iterator[Way]:
    from packer._measuring.loaders import SIDES, steps_of

    for name, path in places.items():
        for side in SIDES:
            for number, step in enumerate(steps_of(recipe)):
                shown = step if number == 0 else f"+ {step}"
                yield Way(f"{name}: {side}: {shown}", side, path, f"{name}: {side}", (number,))


def _kind(path: str) -> str | None:
    """Return what kind of a pack there is, in a word or none; None where there is a directory of images.

    Raises
    ------
    SourceError
        If there are no images in it.
    """
    try:
        with contextlib.closing(open_pack(path)) as reader:
            if not len(reader):
                raise SourceError(f"{printable(path)}: no samples in it, and nothing to measure")
            return "tiled" if reader.manifest.findings.get(TILED) else ""
    except NotAPackError:
        if os.path.isdir(path):
            _require_images(Path(path))
            return None
        raise


def _require_images(tree: Path) -> None:
    """Raise SourceError where a tree has no images; of a large one no more is listed than the first class with some."""
    walk = Walk(tree, ImageRule())
    if not any(walk.images_below(folder) for folder in class_directories(tree)):
        imagefolder_source(tree)  # its error says what there is instead


def in_turn(count: int, number: int) -> list[int]:
    """Return the places of `count` sides, in the order of round `number`."""
    return [(place + number) % count for place in range(count)]


def ratio(rates: Sequence[float], others: Sequence[float]) -> float | None:
    """Return the median ratio of two sides' rates within a round; None where no round has both."""
    ratios = [rate / other for rate, other in zip(rates, others, strict=False) if other > 0]
    return statistics.median(ratios) if ratios else None


def relative_spread(rates: Sequence[float]) -> float:
    """Return half of the range of some rates, as a share of their median."""
    return (max(rates) - min(rates)) / 2 / statistics.median(rates)


_PATIENCE = 20  # seconds that a side gets to end
_DIED = "its process died"


class Measurement(NamedTuple):
    """What was measured once."""

    rate: float
    """Images a second."""
    cpu_ms: float | None
    """CPU time of the side's processes in the call, by the images that it counted; None where the system has none."""
    others: float | None
    """Share of the CPUs that other processes took; None where the system does not say."""


class Side:
    """An object in a process and process group of its own.

    Parameters
    ----------
    make : callable
        Makes the object there; a function or class of a module that can be imported. ImportError means that something
        is not installed.
    *arguments
        What `make` is given.
    traces : bool
        Whether a traceback is printed where a call fails.

    Attributes
    ----------
    reason : str or None
        Why the side cannot be measured, or None.
    error : type of PackerError or None
        What kind of error that is, where it is one of packer's.
    note : str
        The object's own `note`.
    """

    def __init__(self, make: Callable[..., Any], *arguments: Any, traces: bool = False) -> None:
        self.reason: str | None = None
        self.error: type[PackerError] | None = None
        self.note = ""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments, traces))
        with interrupts_held():  # Ctrl-C is for who asks: a side ends with its connection
            self._process.start()
        theirs.close()
        self._ready = self._made = False

    def wait(self) -> None:
        """Wait until the object is made, which goes on meanwhile; every call waits for that."""
        if not self._ready:
            self._ready = True
            self.note = self._receive() or ""
            self._made = True

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method there; None where it fails, or has failed before: `reason` says why."""
        self.wait()
        if self.reason is not None:
            return None
        try:
            self._connection.send((method, *arguments))
        except OSError:
            self.reason = _DIED
            return None
        return self._receive()

    def measure(self, method: str, *arguments: Any) -> tuple[int, Measurement]:
        """Call a method that reads, and returns images and seconds; return the number of images, 0 where it failed."""
        self.wait()
        begin, before, busy = time.perf_counter(), self._cpu_seconds(), busy_seconds()
        images, seconds = self.call(method, *arguments) or (0, 1.0)
        own, all_busy = self._cpu_seconds() - before, busy_seconds() - busy
        whole = time.perf_counter() - begin
        if not images:
            return 0, Measurement(0.0, None, None)
        cost = 1000 * own / images if HAS_PROC else None
        return images, Measurement(images / seconds, cost, others_share(all_busy - own, whole))

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        if not self._made:  # importing torch takes seconds, and nobody waits for it any more
            self._process.kill()
        self._process.join(_PATIENCE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _receive(self) -> Any:
        try:
            kind, value = self._connection.recv()
        except (EOFError, OSError):
            kind, value = "failed", (_DIED, None)
        if kind == "failed":
            self.reason, self.error = value
            return None
        return value

    def _cpu_seconds(self) -> float:
        """Return the CPU time of all processes of the group, and of those of them that ended."""
        total = 0
        for stat in Path("/proc").glob("[0-9]*/stat") if HAS_PROC else ():
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[2]) == self._process.pid:
                    total += sum(map(int, fields[11:15]))
        return total / os.sysconf("SC_CLK_TCK") if HAS_PROC else 0.0


def _serve(connection: Connection, make: Callable[..., Any], arguments: tuple[Any, ...], traces: bool) -> None:
    """Make the object, in the side's process, and answer calls until the connection is closed."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    if sys.platform == "linux":  # how DataLoader's workers start by default, until Python 3.14
        multiprocessing.set_start_method("fork", force=True)
    try:
        side = make(*arguments)
    except ImportError as error:
        connection.send(("failed", (f"not installed: {error}", None)))
        return
    except Exception as error:
        connection.send(("failed", _failure(error)))
        return
    connection.send(("done", getattr(side, "note", "")))
    with contextlib.suppress(EOFError, OSError):
        while True:
            method, *given = connection.recv()
            try:
                answer = "done", getattr(side, method)(*given)
            except Exception as error:
                if traces:
                    traceback.print_exc()
                answer = "failed", _failure(error)
            connection.send(answer)


def _failure(error: Exception) -> tuple[str, type[PackerError] | None]:
    """Return an error in words, and its class where it is one of packer's."""
    return (
        (message_of(error), type(error))
        if isinstance(error, PackerError)
        else (f"{type(error).__name__}: {error}", None)
    )


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
    from packer._measuring.loaders import BLOCKS, RANDOM, Fetching, Reading

    if recipe in RECIPES:
        from packer._measuring.loaders import Steps

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
