"""Iterates over the samples of a pack on threads, in order, with memory that does not grow with the pack."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from packer._formats import Reader
from packer._storage.system import in_order
from packer._table import Buffer
from packer.errors import CorruptPackError, PackError

_R = TypeVar("_R")

_BATCH = 64  # samples


def over_samples(
    work: Callable[[range], _R],
    count: int,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    before: Callable[[range], None] | None = None,
) -> Iterator[_R]:
    """Yield ``work(indices)`` for all samples in order, some dozens of samples at a time.

    Parameters
    ----------
    work : callable
        Takes a range of indices. Several results are in memory at a time, so they must not contain the samples' data.
    count : int
        Number of samples.
    workers : int, optional
        The number of threads; by default the result of `available_cpus`.
    progress : callable, optional
        Called with the number of samples whose results have been consumed, and their total.
    before : callable, optional
        Called with the indices of each batch, some batches before `work` is called for it; for example
        `Reader.ahead_whole`.
    """
    batches = _batches(count, before)
    done = 0
    for result in in_order(work, batches, workers):
        yield result
        done = min(done + _BATCH, count)
        if progress is not None:
            progress(done, count)


def _batches(count: int, before: Callable[[range], None] | None) -> Iterator[range]:
    for start in range(0, count, _BATCH):
        indices = range(start, min(start + _BATCH, count))
        if before is not None:
            before(indices)
        yield indices


_HELD = 2 << 20  # bytes of blobs that are read at a time


def blobs_of(reader: Reader, indices: range, name: str) -> Iterator[Buffer | None]:
    """Yield the bytes of a field for each sample, None if missing; PackError if they cannot be read."""
    for _, blob in blobs_or_errors(reader, indices, name):
        if isinstance(blob, PackError):
            raise blob
        yield blob


def blobs_or_errors(
    reader: Reader, indices: range, name: str
) -> Iterator[tuple[int, Buffer | CorruptPackError | None]]:
    """Yield the index and the stored value of a field for each sample: None if missing, the error if damaged.

    All values are read at once if they are small and undamaged. A PackError that does not indicate damage, such as too
    many open files, is raised.
    """
    positions = np.arange(indices.start, indices.stop)
    _, sizes, _ = reader.locate_blobs(positions, name)
    found: Sequence[Buffer | None] = ()
    if np.clip(sizes, 0, _HELD).sum() <= _HELD:
        with contextlib.suppress(PackError):
            found = reader.blobs(positions, name)
    if found:
        yield from zip(indices, found, strict=True)
        return
    for number, index in enumerate(indices):
        try:
            yield index, reader.blobs(positions[number : number + 1], name)[0]
        except CorruptPackError as error:
            yield index, error
