"""Histograms of what the table says: widths, heights, shapes, bytes, labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._table import Ints
from packer._viewing.catalog import Catalog
from packer._viewing.finding import measure

__all__ = ["Histogram", "histograms"]

_BARS = 40
_MOST_CLASSES = 120  # that have a bar of their own
_FARTHEST = 1e300  # values beyond lie in no bar
_ALIKE = 1e-12  # by the largest: values that numbers of 64 bits hardly tell apart, such as times in nanoseconds
_WIDE = 30.0  # times the smallest value: from there on the bars are as wide as the values are large

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Histogram:
    """How many samples have which value.

    Attributes
    ----------
    measure : str
        One of `packer._viewing.finding.MEASURES`.
    title, unit : str
    edges : list of float
        Where the bars begin, and the last one ends: B + 1 numbers.
    counts : list of int
        How many samples each of the B bars has.
    logarithmic : bool
        Whether the bars are equally wide in the logarithm.
    names : list of str
        What the bars are called, where each is a class; else empty.
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
    "width": ("Width", "px"),
    "height": ("Height", "px"),
    "aspect": ("Width by height", ""),
    "size": ("Bytes of the image", ""),
}


def histograms(catalog: Catalog, indices: Ints | None = None) -> list[Histogram]:
    """Return the histograms of some samples, by default of all; none of no samples."""
    if not len(catalog) or (indices is not None and not len(indices)):
        return []
    found = []
    sides = [_of(measure(catalog, name), indices) for name in _SIDES]
    for name, (title, unit) in _TITLES.items():
        values = sides[_SIDES.index(name)] if name in _SIDES else _of(measure(catalog, name), indices)
        wide = _is_wide(*sides) if name in _SIDES else _is_wide(values)  # widths and heights are compared
        edges, logarithmic = _edges(values, whole=name != "aspect", wide=wide)
        counts = np.histogram(values, edges)[0].tolist()
        found.append(Histogram(name, title, unit, edges.tolist(), counts, logarithmic))
    return [*found, _labels(catalog, _of(catalog.labels, indices))]


def _of(values: Numbers, indices: Ints | None) -> Numbers:
    return values if indices is None else values[indices]


def _labels(catalog: Catalog, labels: Numbers) -> Histogram:
    if catalog.label_type != "class":
        finite = labels[np.isfinite(labels)]
        edges, logarithmic = _edges(finite, whole=catalog.label_type == "int", wide=_is_wide(finite))
        return Histogram("label", "Labels", "", edges.tolist(), np.histogram(finite, edges)[0].tolist(), logarithmic)
    classes = max(len(catalog.classes), 1)
    step = -(-classes // _MOST_CLASSES)
    edges = np.arange(0, classes + step, step, dtype=np.float64)
    names = tuple(catalog.classes) if step == 1 else ()
    title = "Samples of each class" if step == 1 else f"Samples of the classes, {step} a bar"
    return Histogram("label", title, "", edges.tolist(), np.histogram(labels, edges)[0].tolist(), False, names)


def _is_wide(*alike: Numbers) -> bool:
    """Tell whether values differ so much that bars of one width would show the large ones alone; of some of several."""
    ranges = [(float(values.min()), float(values.max())) for values in alike if len(values)]
    return all(low > 0 for low, _ in ranges) and any(high / low > _WIDE for low, high in ranges)


def _edges(values: Numbers, *, whole: bool, wide: bool) -> tuple[npt.NDArray[np.float64], bool]:
    """Return where bars begin and end, and whether their widths grow; of whole numbers at whole numbers."""
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
    """Return the next number of the kind 1, 2, 5, 10, 20, ... that is not below `least`."""
    power = 10.0 ** np.floor(np.log10(least))
    step = next(power * number for number in (1, 2, 5, 10) if power * number >= least * (1 - 1e-9))
    return max(float(step), 1.0) if whole else float(step)
