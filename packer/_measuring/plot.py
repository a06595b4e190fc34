"""The chart of a benchmark: rates over threads, with medians, the spread of the rounds, and the decode limit."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from packer._measuring.bench import LIMIT, Benchmark
from packer._storage.files import PICTURES, require_output, write_output
from packer.errors import MissingDependencyError, OptionError, pip_install, printable

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which people who see colours otherwise can tell apart; the yellow one is left out."""

_DARK = {"#E69F00": "#8F6200", "#CC79A7": "#9C4877", "#56B4E9": "#20729F", "#009E73": "#00735A", "#D55E00": "#AD4C00"}
"""The same for letters, which are thinner than lines."""

_LEADER = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3, "relpos": (0.0, 0.5)}
_APART = 0.04  # of the axis, that numbers need between each other
_MARKERS = "osD^vPX"
_TEXT, _FAINT, _LIMIT = "#222222", "#767676", "#555555"


def plot(benchmark: Benchmark, path: str | os.PathLike[str]) -> list[Path]:
    """Draw a benchmark; return the written files: one, with the suffix ``.png`` or ``.svg`` of the path, or both.

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
    """Raise the errors of `plot` that do not need a benchmark, before a minute is spent on one."""
    if path.suffix and path.suffix not in PICTURES:
        raise OptionError(f"{printable(path)}: a plot is .png or .svg; without a suffix it is both")
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
            color = _LIMIT
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
    """Let the axes begin at 0, and label every measured number of threads."""
    counts = sorted({rate.threads for rate in benchmark.rates})
    shown = [count for count in counts if count == counts[-1] or count + _APART * counts[-1] <= _next(counts, count)]
    axes.set_xticks(shown, [str(count) for count in shown])
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


def _next(counts: list[int], count: int) -> int:
    return counts[counts.index(count) + 1]


def _label(axes: Any, ends: list[tuple[float, str, str]], last: int) -> None:
    """Write each side's name next to the end of its line, apart from each other."""
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
    busy = (
        ""
        if benchmark.others is None or benchmark.others < 0.1
        else f", others took {benchmark.others:.0%} of the CPUs"
    )
    return f"{benchmark.machine['processor']}, {benchmark.machine['cpus']} CPUs{busy}; {read}; {rounds}"
