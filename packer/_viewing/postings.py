"""An inverted index from findings and object classes to samples, built by reading the samples.

A manifest counts findings but does not name the images that have them, and the labels of objects are stored after each
image. So samples are read one by one, for a limited time in each call, and a page shows the first results while the
rest is read.
"""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections.abc import Callable, Iterable

import numpy as np

from packer._conversion.pipeline import SMALLER, audit
from packer._conversion.recipe import Recipe
from packer._fields import KINDS
from packer._formats import Reader
from packer._images.probe import inspect
from packer._manifest import TILED
from packer._table import Ints
from packer._viewing.catalog import NO_CLASS, Catalog, class_names
from packer.errors import ImageError, PackError


class Postings:
    """The samples that have each term. Safe in many threads at once.

    Parameters
    ----------
    samples : int
        Number of samples.
    terms_of : callable
        Returns the terms of the sample with a number. Each term counts once.

    Attributes
    ----------
    read : int
        Number of samples read so far, beginning with the first one.
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
        """Read further samples for some seconds, at least one; none if `seconds` is 0."""
        until, more = time.monotonic() + seconds, seconds > 0
        with self._lock:
            while self.unread and more:
                for term in set(self._terms_of(self.read)):
                    self._lists.setdefault(term, array("q")).append(self.read)
                self.read += 1
                more = time.monotonic() < until

    def of(self, term: str) -> Ints:
        """Return the numbers of the samples read so far that have a term, in ascending order."""
        with self._lock:
            return np.array(self._lists.get(term, ()), np.int64)

    def counts(self) -> dict[str, int]:
        """Return, for each term, the number of samples read so far that have it."""
        with self._lock:
            return {term: len(indices) for term, indices in self._lists.items()}


def findings_of(catalog: Catalog, index: int) -> tuple[str, ...]:
    """Return the findings on the stored image of a sample; none if the image cannot be read.

    An image that was re-encoded no longer shows most findings of its file, such as an EXIF orientation.
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
    """Tell whether an image is smaller than the target size of a conversion that did not enlarge images."""
    try:
        resize = Recipe.of(reader.manifest.settings).resize
    except ValueError:  # of a pack that another program wrote
        return False
    return resize is not None and not resize.upscale and resize.enlarges(height, width)


def labels_of(catalog: Catalog, name: str) -> Callable[[int], Iterable[str]]:
    """Return a function that gives the names of the classes of a sample's objects, `NO_CLASS` if it has none."""
    fields = [reader.fields.get(name) for reader in catalog.readers]
    known: list[dict[int, str]] = [{} for _ in fields]  # names by id, of the classes of each pack that were seen

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
