"""Histograms of widths, heights, aspect ratios, sizes in bytes and labels, drawn as SVG, or as PNG by matplotlib."""

from __future__ import annotations

import importlib.util
import io
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._display import safe
from packer._storage.files import PICTURES, require_output, write_output
from packer._table import Ints
from packer._viewing.catalog import Catalog, measure
from packer.errors import MissingDependencyError, OptionError, pip_install, printable

_BARS = 40
_MOST_CLASSES = 120  # with more classes than this, a bar counts several classes
_FARTHEST = 1e300  # no bar contains values beyond it
_ALIKE = 1e-12  # values with a smaller relative difference, such as times in nanoseconds, get a single bar
_WIDE = 30.0  # the axis is logarithmic if the ratio of the largest value to the smallest is larger

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Histogram:
    """The number of samples in each range of a measure.

    Attributes
    ----------
    measure : str
        One of `packer._viewing.catalog.MEASURES`.
    title : str
    unit : str
        The unit of the values in words; the caption of the axis.
    edges : list of float
        The value at which each bar begins, and the value at which the last one ends: B + 1 numbers.
    counts : list of int
        Number of samples in each of the B bars.
    logarithmic : bool
        Whether the bars are equally wide on a logarithmic axis.
    names : tuple of str
        The names of the bars if each is a class; otherwise empty.
    """

    measure: str
    title: str
    unit: str
    edges: list[float]
    counts: list[int]
    logarithmic: bool = False
    names: tuple[str, ...] = ()


_SIDES = ("width", "height")
_TITLES = {
    "width": ("Width", "pixels"),
    "height": ("Height", "pixels"),
    "aspect": ("Aspect ratio", "width / height"),
    "size": ("File size", "bytes"),
}


def histograms(catalog: Catalog, indices: Ints | None = None) -> list[Histogram]:
    """Return the histograms of these samples, by default of all samples; an empty list if there are no samples."""
    if not len(catalog) or (indices is not None and not len(indices)):
        return []
    chosen = slice(None) if indices is None else indices
    values = {name: measure(catalog, name)[chosen] for name in _TITLES}
    sides = np.concatenate([values[name] for name in _SIDES])
    found = [
        # Widths and heights have the same axis, so that they can be compared.
        _histogram(name, values[name], sides if name in _SIDES else values[name], whole=name != "aspect")
        for name in _TITLES
    ]
    return [*found, _histogram_of_labels(catalog, catalog.labels[chosen])]


def _histogram(name: str, values: Numbers, of_axis: Numbers, *, whole: bool) -> Histogram:
    """Return the histogram of `values`, with bars from the least to the largest value in `of_axis`.

    `whole` tells whether all values are whole numbers.
    """
    edges, logarithmic = _edges(of_axis, whole=whole, wide=_is_wide(of_axis))
    title, unit = _TITLES.get(name, ("Labels", "label"))
    return Histogram(name, title, unit, edges.tolist(), np.histogram(values, edges)[0].tolist(), logarithmic)


def _histogram_of_labels(catalog: Catalog, labels: Numbers) -> Histogram:
    if catalog.label_type != "class":
        finite = labels[np.isfinite(labels)]
        return _histogram("label", finite, finite, whole=catalog.label_type == "int")
    classes = max(len(catalog.classes), 1)
    step = -(-classes // _MOST_CLASSES)
    edges = np.arange(0, classes + step, step, dtype=np.float64)
    names = tuple(catalog.classes) if step == 1 else ()
    title = "Images per class" if step == 1 else f"Images per class, {step} classes per bar"
    return Histogram(
        "label",
        title,
        "" if names else "class id",
        edges.tolist(),
        np.histogram(labels, edges)[0].tolist(),
        False,
        names,
    )


def _is_wide(values: Numbers) -> bool:
    """Tell whether values differ so much that bars of equal width would show only the large ones."""
    return bool(len(values)) and float(values.min()) > 0 and float(values.max()) / float(values.min()) > _WIDE


def _edges(values: Numbers, *, whole: bool, wide: bool) -> tuple[npt.NDArray[np.float64], bool]:
    """Return the edges of the bars, and whether the axis is logarithmic. With `whole`, edges are whole numbers."""
    if not len(values):
        return np.array([0.0, 1.0]), False
    low, high = (min(max(float(one), -_FARTHEST), _FARTHEST) for one in (values.min(), values.max()))
    if high - low <= _ALIKE * max(abs(low), abs(high)):
        margin = max(0.0 if whole else 0.5, 2 * _ALIKE * max(abs(low), abs(high)))
        return np.array([low - margin, high + (margin or 1)]), wide and low > margin
    if low > 0 and wide:
        edges = np.geomspace(low, high, _BARS + 1)
        edges = np.unique(np.floor(edges)) if whole else edges
        edges[-1] = high + 1 if whole else np.nextafter(high, np.inf)
        return edges, True
    step = _round_step(high / _BARS - low / _BARS, whole)
    first = np.floor(low / step)
    return np.arange(first, np.floor(high / step) + 2) * step, False


def _round_step(least: float, whole: bool) -> float:
    """Return the smallest number of the series 1, 2, 5, 10, 20, ... that is not below `least`."""
    power = 10.0 ** np.floor(np.log10(least))
    step = next(power * number for number in (1, 2, 5, 10) if power * number >= least * (1 - 1e-9))
    return max(float(step), 1.0) if whole else float(step)


_WIDTH, _HEIGHT = 460, 244
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 18, 40, 44  # margins around the bars
_GAP = 12  # distance between two histograms in a file
_HEAD = 40  # height of the title above the histograms in a file
_WIDEST = 56  # largest width of the bar of a class
_APART = 34  # least distance between the centres of two numbers below an axis
_LETTER = 7  # approximate width of a letter

_STYLE = (
    "svg{font:12px system-ui,sans-serif;color:#1c2330;background:#fff}"
    ".bar{fill:#2f6fde}.axis{stroke:currentColor;stroke-opacity:.25}.label{fill:currentColor;fill-opacity:.65}"
    ".title{fill:currentColor;font-size:14px;font-weight:600}"
    "@media(prefers-color-scheme:dark){svg{color:#e6e9ef;background:#14171d}.bar{fill:#6ea0ff}}"
)
"""The style in an SVG file; a page has the same style in its style sheet."""


def draw(histogram: Histogram) -> str:
    """Return a histogram as an ``<svg>`` element; each bar has its range in ``data-low`` and ``data-high``."""
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{safe(histogram.title)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(_elements(histogram))}</svg>'


def require_plot(path: str | os.PathLike[str]) -> None:
    """Raise an error if `plot` cannot write to a path; call this before reading a pack.

    Raises
    ------
    OptionError
        If the name does not end in ``.svg`` or ``.png``.
    MissingDependencyError
        If matplotlib is needed but not installed.
    DestinationError
        If the directory does not exist, or a file of another kind exists there.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in PICTURES:
        raise OptionError(f"{printable(target)}: the plot must be a file such as plot.svg or plot.png")
    if suffix == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise MissingDependencyError(
            f"a plot as PNG needs matplotlib: {pip_install('plot')}. A plot as .svg needs no other package"
        )
    require_output(target, "picture", PICTURES[suffix])


def plot(path: str | os.PathLike[str], title: str, histograms: Sequence[Histogram]) -> None:
    """Write histograms to an SVG or PNG file, chosen by the suffix of `path`; PNG needs matplotlib.

    Raises
    ------
    OptionError, MissingDependencyError
        For the same reasons as `require_plot`.
    DestinationError
        If the file cannot be written.
    """
    require_plot(path)
    target = Path(path)
    drawn = _png(title, histograms) if target.suffix.lower() == ".png" else _sheet(title, histograms).encode()
    write_output(target, drawn)


def _sheet(title: str, histograms: Sequence[Histogram]) -> str:
    """Return the text of an SVG file with a title and, below it, two histograms in each row."""
    width = 2 * _WIDTH + _GAP
    height = -(-len(histograms) // 2) * (_HEIGHT + _GAP) + _HEAD
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="{_LEFT}" y="26">{safe(title)}</text>',
    ]
    for number, histogram in enumerate(histograms):
        x, y = number % 2 * (_WIDTH + _GAP), _HEAD + number // 2 * (_HEIGHT + _GAP)
        parts.append(f'<g transform="translate({x} {y})">{"".join(_elements(histogram))}</g>')
    return "\n".join([*parts, "</svg>\n"])


def _elements(histogram: Histogram) -> Iterator[str]:
    """Yield the title, the axes and the bars of a histogram."""
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    yield f'<text class="title" x="{_LEFT}" y="22">{safe(histogram.title)}</text>'
    top, step = _scale(max([*histogram.counts, 1]))
    for count in range(0, top + 1, step):
        y = bottom - (bottom - _TOP) * count / top
        yield f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="label" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(count)}</text>'
    lefts = [_LEFT + (right - _LEFT) * _share(histogram, edge) for edge in histogram.edges]
    for number, count in enumerate(histogram.counts):
        low, high = histogram.edges[number : number + 2]
        text = histogram.names[number] if histogram.names else f"{_short(low)} to {_short(high)} {histogram.unit}"
        width = max(lefts[number + 1] - lefts[number] - 1, 0.6)
        shown = min(width, _WIDEST) if histogram.names else width
        x = lefts[number] + (width - shown) / 2
        height = max((bottom - _TOP) * count / top, 1.0 if count else 0.0)
        yield (
            f'<rect class="bar" x="{x:.2f}" y="{bottom - height:.2f}" width="{shown:.2f}" height="{height:.2f}"'
            f' data-low="{low!r}" data-high="{high!r}"><title>{safe(text.strip())}: {count:,}</title></rect>'
        )
    for share, text in _ticks(histogram):
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        x = _LEFT + (right - _LEFT) * share
        yield f'<text class="label" x="{x:.1f}" y="{bottom + 17}" text-anchor="{anchor}">{safe(text)}</text>'
    caption = _caption(histogram)
    yield f'<text class="label" x="{right}" y="{bottom + 36}" text-anchor="end">{safe(caption)}</text>'


def _caption(histogram: Histogram) -> str:
    """Return the caption of the horizontal axis: the unit, and whether the axis is logarithmic."""
    return ", ".join(filter(None, [histogram.unit, "logarithmic axis" if histogram.logarithmic else ""]))


def _share(histogram: Histogram, value: float) -> float:
    """Return the position of a value on the axis: 0 at the first edge, 1 at the last one."""
    first, last = histogram.edges[0], histogram.edges[-1]
    if histogram.logarithmic:
        return (math.log(value) - math.log(first)) / (math.log(last) - math.log(first))
    return (value / 2 - first / 2) / (last / 2 - first / 2)  # halves, because the difference may exceed float64


def _ticks(histogram: Histogram) -> list[tuple[float, str]]:
    """Return positions on the horizontal axis, 0 to 1, and the texts below them, which do not overlap."""
    bars = len(histogram.counts)
    room = (_WIDTH - _RIGHT - _LEFT) / max(bars, 1)
    if histogram.names and room >= 2 * _APART:
        letters = int(room / _LETTER)
        return [((number + 0.5) / bars, _cut(name, letters)) for number, name in enumerate(histogram.names)]
    first, last = histogram.edges[0], histogram.edges[-1]
    values = _powers(first, last) if histogram.logarithmic else _multiples(first, last)
    found: list[tuple[float, str]] = []
    for value in values:
        share = _share(histogram, value)
        if not found or (share - found[-1][0]) * (_WIDTH - _RIGHT - _LEFT) >= _APART:
            found.append((share, _short(value)))
    return found


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _multiples(first: float, last: float) -> list[float]:
    """Return about five evenly spaced round numbers in a range; the range's ends if it contains none."""
    step = float(_round_step(last / 5 - first / 5, whole=False))
    values = [number * step for number in range(math.ceil(first / step), math.floor(last / step) + 1)]
    return values if len(values) > 1 else [first, last]


def _powers(first: float, last: float) -> list[float]:
    """Return a few numbers of the series 1, 2, 5, 10, 20, ... in a range; the range's ends if it contains none."""
    low, high = math.floor(math.log10(first)), math.ceil(math.log10(last))
    steps = (1, 2, 5) if high - low <= 4 else (1,)
    apart = max((high - low) // 8, 1)
    values = [step * 10.0**power for power in range(low, min(high, 307) + 1, apart) for step in steps]
    inside = [value for value in values if first <= value <= last]
    return inside if len(inside) > 1 else [first, last]


def _scale(count: int) -> tuple[int, int]:
    """Return the end of the vertical axis, at least `count`, and the step that divides the axis into 2 to 5 parts."""
    step = int(_round_step(count / 4, whole=True))
    return -(-count // step) * step, step


def _short(value: float) -> str:
    """Return a number in a few characters, such as 12.5k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            divided = value / (1e3 if letter == "k" else size)
            return f"{divided:.3g}{letter}" if divided < 1000 else f"{divided:.0f}{letter}"
    return f"{value:.4g}"


def _png(title: str, histograms: Sequence[Histogram]) -> bytes:
    from matplotlib.figure import Figure

    rows = -(-len(histograms) // 2)
    figure: Any = Figure(figsize=(9.6, 0.6 + 2.4 * rows), dpi=150, layout="constrained")
    figure.suptitle(printable(title))
    axes = figure.subplots(rows, 2, squeeze=False).ravel()
    for number, axis in enumerate(axes):
        if number >= len(histograms):
            axis.set_axis_off()
            continue
        one = histograms[number]
        if one.names:
            axis.bar(np.arange(len(one.names)) + 0.5, one.counts, width=0.5, color="#2f6fde")
            texts = [(share * len(one.names), text) for share, text in _ticks(one)]
            axis.set_xticks([position for position, _ in texts], [printable(text) for _, text in texts])
        else:
            axis.stairs(one.counts, one.edges, fill=True, color="#2f6fde")
        axis.yaxis.get_major_locator().set_params(integer=True)
        axis.set_title(printable(one.title), fontsize=10, loc="left")
        if one.logarithmic:
            axis.set_xscale("log")
        axis.set_xlabel(_caption(one), fontsize=8, loc="right")
        axis.spines[["top", "right"]].set_visible(False)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    return drawn.getvalue()
