"""`packer.bench`: measures how fast packs and image folders are read, with 1, 2, 4 or more threads or processes.

Each way of reading, such as a DataLoader, runs in a process of its own. It reads the same samples again and again, so
that local files come from memory. The ways are measured in turn, with every number of threads, until the time limit.
`plot` draws the rates against the number of threads.
"""

from __future__ import annotations

import contextlib
import glob
import io
import itertools
import os
import platform
import shlex
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from packer._containers import files_to_name
from packer._display import Block, Displayable, TextTable, count, counted
from packer._formats import open_pack
from packer._manifest import TILED
from packer._measuring.harness import (
    BUSY,
    ChildProcess,
    Measurement,
    ShowSeconds as BenchmarkProgress,
    TimeLimit,
    ratio,
    relative_spread,
    rounds,
)
from packer._measuring.machine import processor, version_of
from packer._sources.imagefolder import ImageRule, Walk, class_directories, refuse_splits
from packer._storage.files import PICTURES, require_output, write_output
from packer._storage.progress import shown_progress
from packer._storage.remote.urls import chosen, is_url, name as last_part, redacted
from packer._storage.system import available_cpus, in_units, require_count, require_seconds
from packer.errors import (
    MissingDependencyError,
    NotAPackError,
    OptionError,
    PackNotFoundError,
    SourceError,
    pip_install,
    printable,
)

LIMIT = "limit"
"""The name of the upper bound for all ways of reading: the rate at which packer decodes images that are in memory."""

RECIPES = ("trivial", "rand", "three", "dino")
"""The names of the built-in training recipes, which `packer._measuring.loaders` defines."""

_SIDES = "packer", "torchvision"  # the two implementations of a named recipe
_SHORTEST, _LONGEST = 0.3, 2.0  # seconds of a measurement
_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 15
_PACKAGES = ("packer-images", "torch", "torchvision", "numpy", "pillow", "simplejpeg")


@dataclass(frozen=True)
class Rate:
    """The rate of one way of reading with a certain number of threads.

    Attributes
    ----------
    side : str
        The displayed name: that of the pack or the directory of images, and the way of reading.
    way : str
        The way of reading: "ImageFolder, DataLoader", "DataLoader", "Loader", "Loader, processes", "Loader, in place",
        "limit" or "recipe". For a named recipe: "packer" or "torchvision". For a pack at a URL, also "block shuffle,
        first epoch" or "random order, first epoch".
    path : str
    threads : int
        The number of threads. For a DataLoader, the number of worker processes; for "Loader, processes", the number of
        threads, which equals the number of processes.
    rates : tuple of float
        Images per second in each round.
    others : float or None
        The median share of the CPUs that other programs used during the rounds, 0 to 1; None if the system does not
        report it.
    """

    side: str
    way: str
    path: str
    threads: int
    rates: tuple[float, ...]
    others: float | None

    @property
    def median(self) -> float:
        """The median of `rates`, in images per second."""
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """Half the difference between the fastest and the slowest round, as a share of the median."""
        return relative_spread(self.rates)


@dataclass(frozen=True, repr=False)
class Benchmark(Displayable):
    """The result of `packer.bench`. A side is a path that was measured with one way of reading; see `Rate`.

    Attributes
    ----------
    rates : tuple of Rate
        The rates, grouped by side and then sorted by the number of threads.
    skipped : dict of str to str
        The reason for each side that was not measured.
    images : dict of str to int
        For each path, the number of samples that were read repeatedly.
    mean_bytes : dict of str to float
        For each path, the mean size in bytes of an image file, or of a sample as the pack stores it.
    batch : int
    rounds : int
    seconds : float
        Total duration.
    machine : dict of str to str
        Properties of the machine that affect the figures.
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
        """The share of the CPUs that other programs used, 0 to 1; None if the system does not report it."""
        known = [rate.others for rate in self.rates if rate.others is not None]
        return statistics.median(known) if known else None

    def of(self, side: str) -> list[Rate]:
        """Return the rates of a side, sorted by threads."""
        return [rate for rate in self.rates if rate.side == side]

    def fastest(self, side: str) -> Rate:
        """Return the highest rate of a side."""
        return max(self.of(side), key=lambda rate: rate.median)

    def ratio(self, side: str, other: str) -> float | None:
        """Return the rate of `side` divided by the rate of `other`, each with its fastest number of threads.

        The ratio is computed within each round, and the median over rounds is returned; None if no round has both
        rates.
        """
        return ratio(self.fastest(side).rates, self.fastest(other).rates)

    def _blocks(self) -> Iterator[Block]:
        """Yield the rates by number of threads, or by step of a recipe, and a description of the machine."""
        if any(rate.way in _SIDES for rate in self.rates):
            yield from _steps(self)
        else:
            yield from _rates(self)
        yield ""
        yield from (f"not measured: {side}: {reason}" for side, reason in self.skipped.items())
        for path, number in self.images.items():
            where = "downloaded each time or read from the cache" if is_url(path) else "from memory"
            yield f"{path}: {count(number)} samples of {in_units(self.mean_bytes[path])}, {where}"
        rounds = (
            f"medians of {self.rounds} alternating rounds, ± half of their range" if self.rounds > 1 else "one round"
        )
        machine = self.machine
        yield f"{rounds}; batches of {self.batch}; {machine['processor']}, {machine['cpus']} CPUs"
        if self.others is not None and self.others > BUSY:
            yield f"other programs used {self.others:.0%} of the CPUs meanwhile: measure again when they are done"


def _rates(measured: Benchmark) -> Iterator[Block]:
    counts = sorted({rate.threads for rate in measured.rates})
    sides = sorted(measured.sides, key=lambda side: -measured.fastest(side).median)
    title = "images a second"
    rows = []
    for side in sides:
        rates = {rate.threads: f"{rate.median:,.0f}{_spread(rate)}" for rate in measured.of(side)}
        rows.append([side, *(rates.get(threads, "") for threads in counts)])
    columns = [f"<{max(map(len, [title, *sides]))}", *([">15"] * len(counts))]
    yield TextTable(rows, columns, [title, *(counted(threads, "thread") for threads in counts)], indent="")
    ways = [side for side in sides if measured.fastest(side).way != LIMIT]
    if len(ways) > 1 and (ratio := measured.ratio(ways[0], ways[-1])) is not None:
        yield ""
        yield f"{ways[0]} is {ratio:.1f} times as fast as {ways[-1]}"


def _steps(measured: Benchmark) -> Iterator[Block]:
    """Yield a table of a recipe's steps (the rate up to each step, the time that it adds), and compare the sides."""
    rows, before = [], dict[tuple[str, int], list[float]]()
    for rate in measured.rates:
        key = rate.side.rpartition(": ")[0], rate.threads
        costs = [1000 * rate.threads / one for one in rate.rates]
        cost = f"{statistics.median(costs):.2f}"
        if key in before:  # the time that a step adds is the median of the differences within rounds
            extra = statistics.median(now - then for now, then in zip(costs, before[key], strict=False))
            cost = f"{cost}  ({extra:+.2f})"
        before[key] = costs
        rows.append((rate.side, f"{rate.median:>9,.0f}{_spread(rate):6}", cost))
    columns = f"<{max(map(len, measured.sides))}", "<15", ""
    yield TextTable(rows, columns, ("", "images a second", "ms per image and thread"), indent="")
    for path in measured.images:
        ours, theirs = (
            [rate.side for rate in measured.rates if (rate.path, rate.way) == (path, way)] for way in _SIDES
        )
        if ours and (share := measured.ratio(ours[-1], ours[0])) is not None:
            yield ""
            yield f"{path}: the whole recipe runs at {share:.2f} of the rate of the crop alone"
        if ours and theirs and (times := measured.ratio(ours[-1], theirs[-1])) is not None:
            yield f"{path}: packer is {times:.1f} times as fast as torchvision"


def _spread(rate: Rate) -> str:
    return f" ±{rate.spread:4.0%}" if len(rate.rates) > 1 else ""


@dataclass
class _Cell:
    """The measurements of one way of reading with one number of threads."""

    way: Way
    threads: int
    measurements: list[Measurement] = field(default_factory=list)

    def rate(self) -> Rate:
        rates = tuple(measured.rate for measured in self.measurements)
        others = [measured.others for measured in self.measurements if measured.others is not None]
        way = self.way
        share = statistics.median(others) if others else None
        return Rate(way.name, way.way, _public_path(way.path), self.threads, rates, share)


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
    """Measure how fast packs and image folders are read by the loaders that training scripts use.

    A pack is read with torch's DataLoader, with `Loader` on threads, and with `Loader` in processes. The limit, for
    comparison, is the rate at which packer decodes images that are already in memory. An image folder is read with
    torchvision's ImageFolder in a DataLoader, and with `Loader`, without a conversion. All loaders read from memory, in
    shuffled order, and make uint8 batches with RandomResizedCrop(224) and random flips.

    A pack at a URL is read as in a first epoch, which fetches every sample. This is done once in the order of
    `BlockShuffleSampler`, and once in random order. `Loader` and the limit are also measured as in a second epoch,
    which reads from the cache.

    Parameters
    ----------
    paths : path or URL, or sequence of them
        Packs, or trees in ImageFolder's layout.
    batch : int
        The number of samples in a batch.
    images : int
        The number of samples to use from each path, at equal distances. These samples are read repeatedly.
    seconds : float
        The approximate time limit. At least one round, which measures every way of reading once, is completed.
    threads : sequence of int, optional
        The numbers of threads to measure; by default 1, 2, 4 and so on, and the number of CPUs.
    recipe : {"trivial", "rand", "three", "dino"} or path, optional
        The name of a built-in series of augmentations, or the path of a Python file. A built-in series is measured step
        by step, with `Loader` and with torchvision's v2 transforms in a DataLoader; by default with one thread for each
        CPU. A Python file defines a ``transform``, a ``crop``, or a function ``loader(path, threads)`` that returns
        your own loader, for comparison.
    progress : bool or callable, optional
        True shows a progress bar. A callable is called with the elapsed seconds, the time limit in seconds, and a
        description of the current measurement.

    Returns
    -------
    Benchmark

    Raises
    ------
    OptionError
        If no path is passed, a path is passed twice, or the recipe cannot be used.
    PackNotFoundError
        If a path does not exist.
    SourceError
        If a path has no images, or if nothing can be measured; the message has the reasons.
    PackError
        If a pack cannot be read.
    """
    for name, number in (("batch", batch), ("images", images), *(("threads", number) for number in threads or ())):
        require_count(name, number)
    require_seconds("seconds", seconds)
    limit = TimeLimit(seconds, shown_progress(progress, "bench", "s"))
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if recipe is not None:
        recipe = str(recipe) if str(recipe) in RECIPES else os.path.abspath(recipe)
    by_name = named([os.fspath(path) for path in paths])
    counts = sorted(set(threads)) if threads else [available_cpus()] if recipe in RECIPES else _up_to(available_cpus())
    with contextlib.ExitStack() as stack:
        fetched = stack.enter_context(_cache_directory(by_name.values()))
        measured_ways = list(ways(by_name, recipe))
        processes: dict[str, ChildProcess] = {}
        for way in measured_ways:
            if way.process not in processes:
                processes[way.process] = _start(way, batch, images, recipe, fetched)
                stack.callback(processes[way.process].close)
        sizes: dict[str, tuple[int, int]] = {}
        for way in measured_ways:
            limit.show(f"starting {way.name}")
            count, size = processes[way.process].call("describe") or (0, 0)
            if count:
                sizes[way.path] = count, size
        cells = [_Cell(way, number) for way in measured_ways for number in counts]
        measured_rounds = _measure(processes, cells, limit)
    rates = tuple(cell.rate() for cell in cells if cell.measurements and processes[cell.way.process].reason is None)
    skipped = {name: process.reason for name, process in processes.items() if process.reason is not None}
    if not rates:
        errors = {process.error for process in processes.values()}
        error = errors.pop() if len(errors) == 1 else None
        raise (error or SourceError)("; ".join(_reasons(skipped)))
    return Benchmark(
        rates,
        skipped,
        {_public_path(path): count for path, (count, _) in sizes.items()},
        {_public_path(path): size / count for path, (count, size) in sizes.items()},
        batch,
        measured_rounds,
        limit.passed,
        _machine(),
    )


def _reasons(skipped: dict[str, str]) -> Iterator[str]:
    """Yield the reasons why nothing was measured, each reason once, with the first side to which it applies."""
    for reason in dict.fromkeys(skipped.values()):
        yield f"{next(name for name, other in skipped.items() if other == reason)}: {reason}"


def _public_path(path: str) -> str:
    """Return a path as it may be displayed: secrets are removed from a URL."""
    return redacted(path) if is_url(path) else path


@contextlib.contextmanager
def _cache_directory(paths: Iterable[str]) -> Iterator[str]:
    """Create a temporary directory for fetched samples: if a path is a URL, in the cache directory of the first URL."""
    base = next((chosen(path).cache_dir for path in paths if is_url(path)), None)
    if base is not None:
        os.makedirs(base, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=base, ignore_cleanup_errors=True) as directory:
        yield directory


def _start(way: Way, batch: int, images: int, recipe: str | None, fetched: str) -> ChildProcess:
    from packer._measuring import loaders

    if recipe in RECIPES:
        return ChildProcess(loaders.RecipeSteps, way.way, way.path, batch, images, recipe)
    if way.way in (loaders.BLOCKS, loaders.RANDOM):
        return ChildProcess(loaders.FirstEpoch, way.way, way.path, batch, images, fetched)
    return ChildProcess(loaders.RepeatedEpochs, way.way, way.path, batch, images, recipe)


def _measure(processes: dict[str, ChildProcess], cells: list[_Cell], limit: TimeLimit) -> int:
    """Measure all cells in turn until time runs out; return the number of rounds."""
    span = min(max(limit.left / (2 * _FEWEST_ROUNDS * max(len(cells), 1)), _SHORTEST), _LONGEST)
    done = 0
    for order in rounds(len(cells), _MOST_ROUNDS, limit, max(1, len(cells) // _FEWEST_ROUNDS)):
        for cell in (cells[position] for position in order):
            process = processes[cell.way.process]
            if process.reason is not None:
                continue
            limit.show(f"{cell.way.name}, {counted(cell.threads, 'thread')}")
            count, measured = process.measure("read", cell.threads, span, *cell.way.step)
            if count:
                cell.measurements.append(measured)
        done += 1
    return done


def _up_to(cpus: int) -> list[int]:
    """Return 1, 2, 4 and so on up to `cpus`, and `cpus` itself."""
    return sorted({1 << power for power in range(cpus.bit_length()) if 1 << power <= cpus} | {cpus})


def _machine() -> dict[str, str]:
    facts = {"processor": processor(), "cpus": str(available_cpus()), "system": platform.platform()}
    facts["python"] = platform.python_version()
    versions = {package: version_of(package) for package in _PACKAGES}
    return facts | {package: version for package, version in versions.items() if version is not None}


class Way(NamedTuple):
    """A way of reading the pack or tree at a path.

    Attributes
    ----------
    name : str
        The name that is shown.
    way : str
        The name of the way of reading, such as "Loader"; it does not contain the path.
    path : str
    process : str
        The name of the child process that measures this way.
    step : tuple of int
        The number of the last applied step, if the way belongs to a named recipe; otherwise empty.
    """

    name: str
    way: str
    path: str
    process: str
    step: tuple[int, ...] = ()


def named(paths: list[str]) -> dict[str, str]:
    """Map distinct short names to the paths.

    Raises
    ------
    OptionError, PackNotFoundError
        If there are no paths, a path is passed twice, or a path does not exist.
    """
    if not paths:
        raise OptionError("pass the packs or directories to measure")
    for path in paths:
        if not is_url(path) and not os.path.exists(path):
            index = (
                f". To measure files of other tools, make an index of them: packer index {shlex.quote(path)} OUT.index"
            )
            advice = index if glob.has_magic(path) else ""
            raise PackNotFoundError(printable(f"{path}: no such file or directory{advice}"))
    bare = [last_part(path) if is_url(path) else Path(os.path.abspath(path)).name for path in paths]
    names = bare if len(set(bare)) == len(bare) else [redacted(path) if is_url(path) else path for path in paths]
    if len(set(names)) < len(names):
        raise OptionError("the same pack or directory is passed twice")
    return {printable(name): path for name, path in zip(names, paths, strict=True)}


def ways(by_name: dict[str, str], recipe: str | None) -> Iterator[Way]:
    """Yield the ways of reading the packs and trees in `by_name`."""
    if recipe is not None and (url := next(filter(is_url, by_name.values()), None)):
        raise OptionError(
            f"{redacted(url)}: a recipe can be measured only for a pack on a disk; copy the pack to this machine with "
            "`packer stage`"
        )
    kinds = {path: _kind(path) for path in by_name.values()}  # raises errors before torch is imported
    if recipe in RECIPES:
        yield from _by_steps(by_name, recipe)
        return
    from packer._measuring.loaders import BLOCKS, RANDOM, WAYS_OF_PACKS, WAYS_OF_TREES, read_recipe

    own = recipe is not None and read_recipe(recipe).loader is not None
    for name, path in by_name.items():
        kind = kinds[path]
        bare = f"{name}, {kind}" if kind else name
        if is_url(path):
            for way in (BLOCKS, RANDOM):
                yield _own_process(f"{bare}: {way}", way, path)
            for way in ("Loader", LIMIT):
                yield _own_process(f"{bare}: {way}, from the cache", way, path)
            continue
        for way in WAYS_OF_TREES if kind is None else WAYS_OF_PACKS:
            yield _own_process(f"{bare}: {way}", way, path)
        if own:
            yield _own_process(f"{name}: {Path(str(recipe)).name}", "recipe", path)


def _own_process(name: str, way: str, path: str) -> Way:
    return Way(name, way, path, name)


def _by_steps(by_name: dict[str, str], recipe: str) -> Iterator[Way]:
    from packer._measuring.loaders import SIDES, steps_of

    for name, path in by_name.items():
        for side in SIDES:
            for number, step in enumerate(steps_of(recipe)):
                label = step if number == 0 else f"+ {step}"
                yield Way(f"{name}: {side}: {label}", side, path, f"{name}: {side}", (number,))


def _kind(path: str) -> str | None:
    """Return "tiled" for a pack with tiled JPEGs, an empty text for any other pack, and None for an image folder.

    Raises
    ------
    SourceError
        If there are no images in the directory.
    """
    try:
        with contextlib.closing(open_pack(path)) as reader:
            if not len(reader):
                raise SourceError(f"{printable(path)}: no samples to measure")
            return "tiled" if reader.manifest.findings.get(TILED) else ""
    except NotAPackError:
        if os.path.isdir(path):
            _require_images(Path(path))
            return None
        raise


def _require_images(tree: Path) -> None:
    """Raise SourceError if a tree has no class with images; a large tree is listed only up to the first such class."""
    refuse_splits(tree)
    walk, root = Walk(tree, ImageRule()), printable(tree)
    if not any(walk.images_below(folder) for folder in class_directories(tree)):
        raise SourceError(
            f"{root}: no images in class directories, {root}/CLASS/IMAGE, which bench measures. Convert other images "
            f"to a pack and measure the pack: `packer convert {shlex.quote(root)} OUT.lmdb`{files_to_name(tree)}"
        )


_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The colours of Okabe and Ito, except yellow. Colour-blind people can tell them apart."""

_DARK = {"#E69F00": "#8F6200", "#CC79A7": "#9C4877", "#56B4E9": "#20729F", "#009E73": "#00735A", "#D55E00": "#AD4C00"}
"""Darker shades of these colours for text, whose strokes are thinner than the lines of the plot."""

_MARKERS = "osD^vPX"
_LEADER = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3, "relpos": (0.0, 0.5)}
_SPACING = 0.04  # the least distance between two tick labels, as a share of the axis
_TEXT, _FAINT, _GRAY = "#222222", "#767676", "#555555"


def plot(benchmark: Benchmark, path: str | os.PathLike[str]) -> list[Path]:
    """Draw a benchmark to a ``.png`` or ``.svg`` file, or to both if the path has no suffix; return the written files.

    Raises
    ------
    MissingDependencyError
        If matplotlib is not installed.
    OptionError
        If the path has another suffix.
    DestinationError
        If a file cannot be written.
    """
    path = Path(path)
    require_plotting(path)
    figure = _drawn(benchmark)
    files = _files(path)
    for file in files:
        buffer = io.BytesIO()
        figure.savefig(buffer, format=file.suffix[1:], dpi=160)
        write_output(file, buffer.getvalue())
    return files


def require_plotting(path: Path) -> None:
    """Raise the errors of `plot` that can be found in advance, so that they do not come after a minute of measuring."""
    if path.suffix and path.suffix not in PICTURES:
        raise OptionError(f"{printable(path)}: a plot must be .png or .svg; without a suffix packer writes both")
    for file in _files(path):
        require_output(file, "picture", PICTURES[file.suffix])
    _figure()


def _files(path: Path) -> list[Path]:
    return [path] if path.suffix else [path.with_name(path.name + kind) for kind in PICTURES]


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(f"a plot needs matplotlib: {pip_install('plot')} ({error})") from error
    return Figure(figsize=(9, 5.2), facecolor="white", layout="constrained")


def _drawn(benchmark: Benchmark) -> Any:
    figure = _figure()
    axes = figure.subplots()
    ends, number = [], 0
    for side in benchmark.sides:
        rates = benchmark.of(side)
        threads, medians = [rate.threads for rate in rates], [rate.median for rate in rates]
        if rates[0].way == LIMIT:
            color = _GRAY
            axes.plot(threads, medians, color=color, linewidth=1, linestyle=(0, (6, 3)), zorder=1)
        else:
            color, marker = _COLORS[number % len(_COLORS)], _MARKERS[number % len(_MARKERS)]
            number += 1
            axes.plot(
                threads, medians, color=color, linewidth=2, marker=marker, markersize=5.5, zorder=3, clip_on=False
            )
            low, high = [min(rate.rates) for rate in rates], [max(rate.rates) for rate in rates]
            axes.fill_between(threads, low, high, color=color, alpha=0.15, linewidth=0, zorder=2)
        ends.append((medians[-1], side, color))
    _scale(axes, benchmark)
    _label(axes, ends, max(rate.threads for rate in benchmark.rates))
    figure.supxlabel(_caption(benchmark), fontsize=8, color=_FAINT, x=0.01, ha="left")
    return figure


def _scale(axes: Any, benchmark: Benchmark) -> None:
    """Let the axes begin at 0, and label each measured number of threads whose label does not touch the next one."""
    counts = sorted({rate.threads for rate in benchmark.rates})
    apart = _SPACING * counts[-1]
    shown = [number for number, following in itertools.pairwise(counts) if number + apart <= following] + counts[-1:]
    axes.set_xticks(shown, [str(number) for number in shown])
    axes.set_xlim(0, counts[-1])
    axes.set_ylim(0, 1.06 * max(max(rate.rates) for rate in benchmark.rates))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("threads, or worker processes of a DataLoader", color=_TEXT)
    axes.set_ylabel("images a second", color=_TEXT)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_TEXT, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#bbbbbb")


def _label(axes: Any, ends: list[tuple[float, str, str]], last: int) -> None:
    """Write each side's name next to the end of its line, so that the names do not overlap."""
    top = axes.get_ylim()[1]
    gap, below = top * 0.05, -top
    for height, side, color in sorted(ends):
        lifted = max(height, below + gap)
        below = lifted
        text = f"{side}  {height:,.0f}"
        axes.annotate(
            text,
            (last, height),
            xytext=(14, (lifted - height) / top * _height(axes)),
            textcoords="offset points",
            color=_DARK.get(color, color),
            fontsize=9.5,
            va="center",
            annotation_clip=False,
            arrowprops=_LEADER | {"color": color} if lifted > height else None,
        )


def _height(axes: Any) -> float:
    """Return the approximate height of the axes in points."""
    return float(axes.figure.get_size_inches()[1]) * 72 * 0.84


def _caption(benchmark: Benchmark) -> str:
    several = f"medians of {benchmark.rounds} rounds, bands from the slowest to the fastest"
    rounds = several if benchmark.rounds > 1 else "one round"
    read = f"{max(benchmark.images.values(), default=0):,} images from memory, batches of {benchmark.batch}"
    is_busy = benchmark.others is not None and benchmark.others >= BUSY
    busy = f", others used {benchmark.others:.0%} of the CPUs" if is_busy else ""
    return f"{benchmark.machine['processor']}, {benchmark.machine['cpus']} CPUs{busy}; {read}; {rounds}"
