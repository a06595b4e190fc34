"""Find samples by class, name, category, finding, a range of sizes, or a condition, and sort them.

A *finding* is an unusual property of an image. A manifest counts findings, but does not list the images with them. The
labels of objects are not in the table, but stored after each image. So samples are read one by one into an inverted
index. Each call reads for a limited time, so that a page shows the first results while other samples are still to be
read.
"""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._conversion.pipeline import SMALLER, audit
from packer._conversion.recipe import Recipe
from packer._fields import KINDS, Field
from packer._formats import Reader
from packer._images.probe import inspect
from packer._manifest import TILED
from packer._table import Ints, Names
from packer._viewing.catalog import MEASURES, NO_CLASS, Catalog, DamageLog, class_names, measure
from packer.errors import ImageError, OptionError, PackError

DAMAGED = "damaged"
"""The finding on samples that the viewer could not read or decode."""

ORDERS = ("", "smallest", "largest", "fewest bytes", "most bytes", "narrowest", "widest")
"""The orders of samples: as in the packs, by number of pixels, by size in bytes, or by ratio of width to height."""

_MOST_NAMES = 100_000  # results after which a search by name stops
_BLOCK = 1 << 16  # names that are searched at a time
_MOST_RESULTS = 8  # number of results of earlier queries that are kept; each takes 8 bytes per sample


@dataclass(frozen=True)
class Query:
    """A selection of samples and their order; by default all samples in the order of the packs.

    Attributes
    ----------
    label : int, optional
        The id of the class; -1 finds samples without a label.
    name : str
        A part of the sample's name; the case of ASCII letters is ignored.
    condition : str
        A condition in the language of `ImageDataset.where`.
    measure : str
        One of `MEASURES`, or empty.
    low, high : float
        The range of the measure: from `low` to below `high`.
    finding : str
        A finding on the stored image, or `DAMAGED`; empty for all images.
    categories : tuple of (str, str)
        Pairs of a field's name, from `Catalog.categories`, and the name of a class of this field.
    order : str
        One of `ORDERS`.
    """

    label: int | None = None
    name: str = ""
    condition: str = ""
    measure: str = ""
    low: float = float("-inf")
    high: float = float("inf")
    finding: str = ""
    categories: tuple[tuple[str, str], ...] = ()
    order: str = ""

    def __post_init__(self) -> None:
        if self.measure not in ("", *MEASURES):
            raise OptionError(f"a range must be of {', '.join(MEASURES)}, not of {self.measure!r}")
        if self.order not in ORDERS:
            raise OptionError(f"an order must be one of {', '.join(ORDERS[1:])}, not {self.order!r}")


@dataclass(frozen=True)
class QueryResult:
    """The samples that a query finds.

    Attributes
    ----------
    count : int
    indices : (count,) int64 array, optional
        The numbers of the samples; None means all samples in the order of the packs.
    complete : bool
        False if a search by name stopped before the end, after 100,000 results.
    unread : int
        Number of samples that are still to be read; some of these may match too.
    """

    count: int
    indices: Ints | None
    complete: bool = True
    unread: int = 0

    def part(self, start: int, count: int) -> Ints:
        """Return the numbers of at most `count` samples from position `start` on."""
        start = min(max(start, 0), self.count)
        stop = min(start + max(count, 0), self.count)
        return np.arange(start, stop) if self.indices is None else self.indices[start:stop]


@dataclass(frozen=True)
class CategoryCounts:
    """The number of samples of each class in a field.

    Attributes
    ----------
    counts : list of (str, int)
        The classes and their counts, the most frequent class first. A sample with objects of several classes counts for
        each class.
    unread : int
        Number of samples that are still to be read.
    """

    counts: list[tuple[str, int]]
    unread: int = 0


class Finder:
    """Finds samples, and keeps the latest results, so that a page can request them part by part.

    Parameters
    ----------
    catalog : Catalog
    damage : DamageLog, optional
        The damaged samples that were found so far.
    """

    def __init__(self, catalog: Catalog, damage: DamageLog | None = None) -> None:
        self._catalog = catalog
        self._damage = damage or DamageLog(len(catalog))
        self.findings = Postings(len(catalog), partial(findings_of, catalog))
        self._labels = {
            name: Postings(len(catalog), labels_of(catalog, name))
            for name, field in catalog.categories.items()
            if field.is_blob  # labels, of which a sample has several
        }
        self._results: OrderedDict[Query, QueryResult] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, query: Query, seconds: float = 0.0) -> QueryResult:
        """Return the samples that a query finds.

        Parameters
        ----------
        query : Query
        seconds : float
            The number of seconds for which further samples are read if the query needs findings or labels of objects.

        Raises
        ------
        OptionError
            If the condition cannot be parsed, or a field of `categories` is not in `Catalog.categories`.
        """
        indexes = self._indexes(query)
        for index in indexes:
            index.advance(seconds / len(indexes))
        unread = max((index.unread for index in indexes), default=0)
        with self._lock:
            found = self._results.get(query)
            if found is None or found.unread or query.finding == DAMAGED:  # there may be new results
                found = self._results[query] = self._find(query, unread)
            self._results.move_to_end(query)
            if len(self._results) > _MOST_RESULTS:
                self._results.popitem(last=False)
            return found

    def categories(self, name: str, seconds: float = 0.0) -> CategoryCounts:
        """Return the number of samples in each class of a field, after reading further samples for `seconds`."""
        field = self._field(name)
        if not field.is_blob:
            return CategoryCounts(_ranked(_column_counts(self._catalog, name)))
        index = self._labels[name]
        index.advance(seconds)
        return CategoryCounts(_ranked(index.counts()), index.unread)

    def _field(self, name: str) -> Field:
        known = self._catalog.categories
        if name not in known:
            raise OptionError(
                f"{name!r} is not a field with classes. Fields with classes: {', '.join(known) or 'none'}"
            )
        return known[name]

    def _indexes(self, query: Query) -> list[Postings]:
        """Return the inverted indexes that hold the findings and the object labels of a query."""
        found = [self.findings] if query.finding not in ("", DAMAGED) else []
        return found + [self._labels[name] for name, _ in query.categories if self._field(name).is_blob]

    def _find(self, query: Query, unread: int) -> QueryResult:
        mask = self._mask(query)
        complete = True
        if query.name:
            indices, complete = _named(self._catalog, query.name, mask)
        elif mask is None and not query.order:
            return QueryResult(len(self._catalog), None)
        else:
            indices = np.arange(len(self._catalog)) if mask is None else np.flatnonzero(mask)
        if query.order:
            indices = indices[np.argsort(_keys(self._catalog, query.order)[indices], kind="stable")]
        return QueryResult(len(indices), indices, complete, unread)

    def _mask(self, query: Query) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the samples that meet all criteria except the name; None if there are no other criteria."""
        catalog, masks = self._catalog, list[npt.NDArray[np.bool_]]()
        if query.label is not None:
            masks.append(np.asarray(catalog.labels == query.label))
        if query.measure:
            values = measure(catalog, query.measure)
            masks.append(np.asarray((values >= query.low) & (values < query.high)))
        if query.condition.strip():
            masks.append(catalog.chosen(query.condition))
        if query.finding:
            found = self._damage.indices() if query.finding == DAMAGED else self.findings.of(query.finding)
            masks.append(self._mask_of(found))
        for name, value in query.categories:
            if self._field(name).is_blob:
                masks.append(self._mask_of(self._labels[name].of(value)))
            else:
                masks.append(_column_equals(catalog, name, value))
        return np.logical_and.reduce(masks) if masks else None

    def _mask_of(self, indices: Ints) -> npt.NDArray[np.bool_]:
        mask = np.zeros(len(self._catalog), bool)
        mask[indices] = True
        return mask


def _ranked(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Return names and counts: the most frequent first, and the samples without a class last."""
    return sorted(counts.items(), key=lambda item: (item[0] == NO_CLASS, -item[1]))


def _columns(catalog: Catalog, name: str) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.bool_], Field | None]]:
    """Yield, for each pack, the values of a numeric field, a mask of the rows that have a value, and the field.

    If a pack lacks the field, or stores its values as blobs, no row has a value, and None takes the place of the field.
    """
    for reader in catalog.readers:
        field = reader.fields.get(name)
        if field is None or field.is_blob:
            yield np.zeros(len(reader), np.int64), np.zeros(len(reader), bool), None
        else:
            yield *reader.column(name), field


def _column_counts(catalog: Catalog, name: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for values, present, field in _columns(catalog, name):
        ids, counts = np.unique(values[present], return_counts=True)
        names = class_names(field, ids.tolist()) if field else []
        for value, count in [*zip(names, counts.tolist(), strict=True), (NO_CLASS, int(np.count_nonzero(~present)))]:
            if count:
                total[value] = total.get(value, 0) + count
    return total


def _column_equals(catalog: Catalog, name: str, value: str) -> npt.NDArray[np.bool_]:
    """Return a mask of the samples whose class in the field `name` is `value`."""
    masks: list[npt.NDArray[np.bool_]] = []
    for values, present, field in _columns(catalog, name):
        ids = np.unique(values[present])
        names = class_names(field, ids.tolist()) if field else []
        wanted = [number for number, one in zip(ids.tolist(), names, strict=True) if one == value]
        masks.append(~present if value == NO_CLASS else np.isin(values, wanted) & present)
    return np.concatenate(masks)


def _keys(catalog: Catalog, order: str) -> npt.NDArray[Any]:
    """Return the key of each sample by which `order` sorts."""
    if order in ("smallest", "largest"):
        keys = catalog.column("height").astype(np.int64) * catalog.column("width")
    else:
        keys = np.asarray(measure(catalog, "size" if "bytes" in order else "aspect"))
    descending: npt.NDArray[Any] = -keys
    return descending if order in ("largest", "most bytes", "widest") else keys


def _named(catalog: Catalog, text: str, mask: npt.NDArray[np.bool_] | None) -> tuple[Ints, bool]:
    """Return the samples in a mask whose names contain a text, and whether the search was complete."""
    needle = text.encode("utf-8", "surrogateescape").lower()
    found: list[Ints] = []
    count = 0
    for pack, reader in enumerate(catalog.readers):
        begin = catalog.begin(pack)
        for rows in _rows_with(reader.names, needle):
            indices = begin + rows
            found.append(indices if mask is None else indices[mask[indices]])
            count += len(found[-1])
            if count >= _MOST_NAMES:
                whole = np.concatenate(found)
                return whole[:_MOST_NAMES], False
    return np.concatenate(found) if found else np.empty(0, np.int64), True


def _rows_with(names: Names, needle: bytes) -> Iterator[Ints]:
    """Yield, block by block, the rows whose names in lower case contain `needle`."""
    for start in range(0, len(names), _BLOCK):
        part = names.between(start, start + _BLOCK)
        text, ends = part.blob.tobytes().lower(), part.ends
        rows, at = [], text.find(needle)
        while at >= 0:
            row = int(np.searchsorted(ends, at, side="right"))
            if row >= len(ends):
                break
            end = int(ends[row])
            if at + len(needle) <= end:
                rows.append(start + row)
                at = text.find(needle, max(end, at + 1))
            else:  # the bytes that were found begin in one name and end in the next
                at = text.find(needle, at + 1)
        yield np.array(rows, np.int64)


class Postings:
    """An inverted index: for each term, the samples that have it. Many threads can use it at once.

    Parameters
    ----------
    samples : int
        Number of samples.
    terms_of : callable
        Takes a sample's number and returns the sample's terms; repeated terms count once.

    Attributes
    ----------
    read : int
        Number of samples read so far; they are read in order, from sample 0 on.
    """

    def __init__(self, samples: int, terms_of: Callable[[int], Iterable[str]]) -> None:
        self._samples = samples
        self._terms_of = terms_of
        self._lock = threading.Lock()
        self._lists: dict[str, array[int]] = {}
        self.read = 0

    @property
    def unread(self) -> int:
        """The number of samples that are still to be read."""
        return self._samples - self.read

    def advance(self, seconds: float) -> None:
        """Read further samples for some seconds: at least one sample, but none if `seconds` is 0."""
        until, more = time.monotonic() + seconds, seconds > 0
        with self._lock:
            while self.unread and more:
                for term in set(self._terms_of(self.read)):
                    self._lists.setdefault(term, array("q")).append(self.read)
                self.read += 1
                more = time.monotonic() < until

    def of(self, term: str) -> Ints:
        """Return the numbers of the samples that have a term, among those read so far, in ascending order."""
        with self._lock:
            return np.array(self._lists.get(term, ()), np.int64)

    def counts(self) -> dict[str, int]:
        """Return, for each term, the number of samples with this term among those read so far."""
        with self._lock:
            return {term: len(indices) for term, indices in self._lists.items()}


def findings_of(catalog: Catalog, index: int) -> tuple[str, ...]:
    """Return the findings on the stored image of a sample; no findings if the image cannot be read.

    Most findings on a file, such as an EXIF orientation, cannot be found any more if the pack has re-encoded the image.
    """
    pack, row = catalog.locate(index)
    reader = catalog.readers[pack]
    if reader.manifest.codec == "raw":
        return ()
    try:
        info = inspect(reader.read(row))
    except (PackError, ImageError):
        return ()
    if reader.manifest.codec == "keep":
        found = audit(info, os.path.splitext(reader.names.get(row))[1].lower())
    else:
        found = (*info.findings, *([SMALLER] if _is_smaller(reader, info.height, info.width) else []))
    return tuple(name for name in found if name != TILED)


def _is_smaller(reader: Reader, height: int, width: int) -> bool:
    """Tell whether an image is smaller than the size to which the conversion resized larger images."""
    try:
        resize = Recipe.of(reader.manifest.settings).resize
    except ValueError:  # another program has written the pack
        return False
    return resize is not None and not resize.upscale and resize.enlarges(height, width)


def labels_of(catalog: Catalog, name: str) -> Callable[[int], Iterable[str]]:
    """Return a function that returns the names of the classes of a sample's objects, or `NO_CLASS` if it has none."""
    fields = [reader.fields.get(name) for reader in catalog.readers]
    known: list[dict[int, str]] = [{} for _ in fields]  # for each pack, the class names of the ids met so far

    def terms(index: int) -> list[str]:
        pack, row = catalog.locate(index)
        field, names = fields[pack], known[pack]
        if field is None or not (field.is_blob and KINDS[field.kind].has_classes):
            return [NO_CLASS]
        try:
            ids = field.decode(catalog.readers[pack].value(row, name))
        except (PackError, ValueError):
            return [NO_CLASS]
        present = [] if ids is None else ids.tolist()
        if new := [number for number in set(present) if number not in names]:
            names |= zip(new, class_names(field, new), strict=True)
        return [names[number] for number in present] or [NO_CLASS]

    return terms
