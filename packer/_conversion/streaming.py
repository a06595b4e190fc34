"""Samples that a program gives, one after the other, on their way into a pack: `packer.pack`.

Nobody knows how many there will be, and they come once. So a pack that was interrupted continues by count: the samples
that it has already are drawn again, compared with what was noted of them, and passed over.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from packer._conversion.given import GivenSample
from packer._conversion.journal import Entry
from packer._conversion.pipeline import Batch, sample_of
from packer._conversion.prepare import prepare
from packer._conversion.recipe import Recipe
from packer._conversion.values import prepare_values
from packer._fields import KINDS, OF_SCALARS, Field
from packer._sample import LABEL_TYPES
from packer._sources import Source
from packer._sources.classlist import class_ids
from packer._table import Names
from packer.errors import ImageError, ResumeError, SourceError, printable

__all__ = ["Stream", "StreamSource", "stream_source"]

_BATCH = 8  # samples


class StreamSource(Source):
    """The source of samples that a program gives: what is known before the first of them."""

    def describe(self) -> dict[str, str]:
        """Return the kind, and no digest: that is one of the table, when the table is complete."""
        return {"kind": self.kind, "sha256": ""}

    @property
    def is_listed(self) -> bool:
        return False

    def stamped(self) -> Source:
        """Return the source: there are no files."""
        return self

    def settings(self) -> dict[str, Any]:
        """Return what is declared of the samples, as JSON values."""
        fields = {field.name: json.dumps(field.to_json()) for field in self.fields}
        return {"fields": fields, "classes": self.classes, "label_type": self.label_type}


class Stream:
    """Prepares the samples of an iterable on an executor, and gives them back in order.

    Parameters
    ----------
    samples : iterable of mappings
        See `packer.pack`.
    source : Source
        Its fields, classes and type of labels.
    recipe : Recipe
    on_error : {"fail", "skip"}
        Whether a sample that cannot be used ends the work, or is given back with the reason.
    done : iterable of Entry
        What an earlier run did of the first samples.

    Attributes
    ----------
    bytes_read : int
        Size of the images that were given back.
    """

    def __init__(
        self, samples: Iterable[Mapping[str, Any]], source: Source, recipe: Recipe, on_error: str, done: Iterable[Entry]
    ) -> None:
        self._samples = enumerate(samples)
        self._source = source
        self._recipe = recipe
        self._on_error = on_error
        self._ids = class_ids(source.classes)
        self._names: set[int] = set()  # hashes
        self._done = done
        self.bytes_read = 0

    def run(self, executor: Executor, *, ahead: int) -> Generator[Batch, None, None]:
        """Yield batches, with `ahead` others in work."""
        self._pass_over()
        pending: deque[Future[Batch]] = deque()
        try:
            while True:
                while len(pending) < ahead and (some := self._drawn(_BATCH)):
                    pending.append(executor.submit(self._prepare, some))
                if not pending:
                    return
                batch = pending.popleft().result()
                for entry, _ in batch:
                    self._require_new(entry.name)
                    self.bytes_read += entry.stamp[0]
                yield batch
        finally:
            for future in pending:
                future.cancel()

    def _drawn(self, count: int) -> list[tuple[int, Mapping[str, Any]]]:
        return list(islice(self._samples, count))

    def _pass_over(self) -> None:
        """Draw the samples that are in the pack; ResumeError where they are others than those."""
        for entry in self._done:
            drawn = self._drawn(1)
            if not drawn:
                raise ResumeError("fewer samples come than an earlier run packed. Say --fresh to start over.")
            (index, sample), *_ = drawn
            given = GivenSample(index, sample, self._source, self._ids)
            if given.stamp() != tuple(entry.stamp):
                raise ResumeError(
                    f"sample {index} ({printable(entry.name)}) is another one than an earlier run packed. Samples must "
                    "come in the same order in each run. Say --fresh to start over."
                )
            self._require_new(entry.name)

    def _require_new(self, name: str) -> None:
        number = hash(name)
        if number in self._names:
            raise SourceError(f"{printable(name)}: two samples have this name")
        self._names.add(number)

    def _prepare(self, some: Sequence[tuple[int, Mapping[str, Any]]]) -> Batch:
        batch: Batch = []
        for index, sample in some:
            given = GivenSample(index, sample, self._source, self._ids)
            try:
                prepared = prepare(given.image, given.name(), self._recipe)
                fields = self._source.fields
                values = prepare_values(fields, given.values, prepared.change, self._recipe)
                made = sample_of(given.name(), given.label(), prepared, given.stamp(), fields, values)
            except ImageError as error:
                error.name = error.name or given.shown()
                if self._on_error == "fail":
                    raise
                batch.append((Entry(given.shown(), stamp=given.stamp(), reason=error.reason), None))
            else:
                batch.append(made)
        return batch


def _declared(fields: Mapping[str, str | Field] | None) -> Iterator[Field]:
    """Yield the fields that a program declares by name: each a Field, a kind, or the dtype of a scalar.

    ``array:float32:2`` is an array of float32 with two axes; one axis is the default.
    """
    for name, said in (fields or {}).items():
        if isinstance(said, Field):
            if said.name != name:
                raise ValueError(f"the field {said.name!r} is declared as {name!r}")
            yield said
            continue
        kind, *more = said.split(":")
        if kind == "array" and 1 <= len(more) <= 2 and more[-1].isdecimal() == (len(more) == 2):
            yield Field(name, "array", more[0], int(more[1]) if len(more) == 2 else 1)
        elif kind in OF_SCALARS and not more:
            yield Field(name, "scalar", kind)
        elif kind in KINDS and kind not in ("scalar", "array") and not more:
            yield Field(name, kind)
        else:
            known = ", ".join([*OF_SCALARS, *(one for one in KINDS if one not in ("scalar", "array"))])
            raise ValueError(
                f"field {name!r}: {said!r} is no kind: kinds are {known}, and array:DTYPE[:AXES], such as "
                "'array:float32:2'"
            )


def stream_source(
    destination: Path, fields: Mapping[str, str | Field] | None, classes: Sequence[str] | None, label_type: str
) -> StreamSource:
    """Return the source of samples that a program gives; ValueError where what is declared makes no sense."""
    if label_type not in LABEL_TYPES:
        raise ValueError(f"label_type is one of {', '.join(LABEL_TYPES)}, not {label_type!r}")
    if classes and label_type != "class":
        raise ValueError(f"label_type={label_type!r} is of labels without classes")
    labels = np.empty(0, LABEL_TYPES[label_type])
    return StreamSource(
        "samples",
        destination,
        Names.of([]),
        labels,
        list(classes or ()),
        stamps=np.empty((0, 2), np.int64),
        label_type=label_type,
        fields=tuple(_declared(fields)),
    )
