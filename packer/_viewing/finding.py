"""Which samples are looked at, and in which order: by class, name, a range of sizes, or a condition."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._table import Ints, Names
from packer._viewing.catalog import Catalog
from packer.errors import OptionError

__all__ = ["MEASURES", "ORDERS", "Finder", "Found", "Query", "measure"]

MEASURES = ("width", "height", "aspect", "size", "label")
"""What ranges are of: pixels, width by height, bytes of the image, the label's number."""

ORDERS = ("", "smallest", "largest", "fewest bytes", "most bytes", "narrowest", "widest")
"""The orders: that of the packs, by the number of pixels, by bytes, by width by height."""

_MOST_NAMES = 100_000  # that a search by name finds before it stops
_BLOCK = 1 << 16  # names that are searched at a time
_KEPT = 8  # results, of 8 bytes a sample


@dataclass(frozen=True)
class Query:
    """What is looked for; by default all samples, in the order of the packs.

    Attributes
    ----------
    label : int, optional
        The class; -1 for samples without a label.
    name : str
        What stands in the name; upper and lower case of ASCII count the same.
    condition : str
        As `ImageDataset.where` takes it.
    measure : str
        One of `MEASURES`, or empty.
    low, high : float
        The range of the measure: from `low` to below `high`.
    order : str
        One of `ORDERS`.
    """

    label: int | None = None
    name: str = ""
    condition: str = ""
    measure: str = ""
    low: float = float("-inf")
    high: float = float("inf")
    order: str = ""

    def __post_init__(self) -> None:
        if self.measure not in ("", *MEASURES):
            raise OptionError(f"a range is of {', '.join(MEASURES)}, not of {self.measure!r}")
        if self.order not in ORDERS:
            raise OptionError(f"an order is one of {', '.join(ORDERS[1:])}, not {self.order!r}")


@dataclass(frozen=True)
class Found:
    """What a query finds.

    Attributes
    ----------
    count : int
    indices : (count,) int64 array, optional
        The samples' numbers; None where all are found, in their order.
    complete : bool
        False where a search by name stopped, having found enough.
    """

    count: int
    indices: Ints | None
    complete: bool = True

    def part(self, start: int, count: int) -> Ints:
        """Return the numbers of some samples, from place `start` on."""
        start = min(max(start, 0), self.count)
        stop = min(start + max(count, 0), self.count)
        return np.arange(start, stop) if self.indices is None else self.indices[start:stop]


class Finder:
    """Finds samples, and keeps the last results, so that the parts of one may be asked for one by one.

    Parameters
    ----------
    catalog : Catalog
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._kept: OrderedDict[Query, Found] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, query: Query) -> Found:
        """Return what is found; OptionError where the condition is none."""
        with self._lock:
            if query in self._kept:
                self._kept.move_to_end(query)
            else:
                self._kept[query] = _find(self._catalog, query)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return self._kept[query]


def measure(catalog: Catalog, name: str) -> npt.NDArray[Any]:
    """Return one of `MEASURES` of all samples."""
    if name == "aspect":
        height = np.maximum(catalog.column("height"), 1)
        return np.asarray(catalog.column("width") / height, np.float32)
    return catalog.labels if name == "label" else catalog.column(name)


def _find(catalog: Catalog, query: Query) -> Found:
    mask = _mask(catalog, query)
    complete = True
    if query.name:
        indices, complete = _named(catalog, query.name, mask)
    elif mask is None and not query.order:
        return Found(len(catalog), None)
    else:
        indices = np.arange(len(catalog)) if mask is None else np.flatnonzero(mask)
    if query.order:
        indices = indices[np.argsort(_keys(catalog, query.order)[indices], kind="stable")]
    return Found(len(indices), indices, complete)


def _mask(catalog: Catalog, query: Query) -> npt.NDArray[np.bool_] | None:
    """Tell which samples meet all but the name; None where nothing else is asked for."""
    masks: list[npt.NDArray[np.bool_]] = []
    if query.label is not None:
        masks.append(np.asarray(catalog.labels == query.label))
    if query.measure:
        values = measure(catalog, query.measure)
        masks.append(np.asarray((values >= query.low) & (values < query.high)))
    if query.condition.strip():
        masks.append(catalog.chosen(query.condition))
    return np.logical_and.reduce(masks) if masks else None


def _keys(catalog: Catalog, order: str) -> npt.NDArray[Any]:
    """Return what samples are sorted by, the least first."""
    if order in ("smallest", "largest"):
        keys = catalog.column("height").astype(np.int64) * catalog.column("width")
    else:
        keys = np.asarray(measure(catalog, "size" if "bytes" in order else "aspect"))
    descending: npt.NDArray[Any] = -keys
    return descending if order in ("largest", "most bytes", "widest") else keys


def _named(catalog: Catalog, text: str, mask: npt.NDArray[np.bool_] | None) -> tuple[Ints, bool]:
    """Return those of some samples that have a text in their names, and whether these are all that there are."""
    wanted = text.encode("utf-8", "surrogateescape").lower()
    found: list[Ints] = []
    count = 0
    for pack, reader in enumerate(catalog.readers):
        begin = catalog.begin(pack)
        for rows in _with(reader.names, wanted):
            indices = begin + rows
            found.append(indices if mask is None else indices[mask[indices]])
            count += len(found[-1])
            if count >= _MOST_NAMES:
                whole = np.concatenate(found)
                return whole[:_MOST_NAMES], False
    return np.concatenate(found) if found else np.empty(0, np.int64), True


def _with(names: Names, wanted: bytes) -> Iterator[Ints]:
    """Yield the rows whose names have some bytes in lower case in them, block by block of the names."""
    for start in range(0, len(names), _BLOCK):
        part = names.between(start, start + _BLOCK)
        text, ends = part.blob.tobytes().lower(), part.ends
        rows, at = [], text.find(wanted)
        while at >= 0:
            row = int(np.searchsorted(ends, at, side="right"))
            if row >= len(ends):
                break
            end = int(ends[row])
            if at + len(wanted) <= end:
                rows.append(start + row)
                at = text.find(wanted, max(end, at + 1))
            else:  # over the end of a name
                at = text.find(wanted, at + 1)
        yield np.array(rows, np.int64)
