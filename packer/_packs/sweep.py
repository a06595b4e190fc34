"""Work on everything in a pack: on threads, in order, and in memory that does not grow with the pack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from packer._storage.ahead import in_order

__all__ = ["over_samples"]

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
    """Yield ``work(indices)`` of all samples, some dozens at a time, as `in_order` does.

    Parameters
    ----------
    work : callable
        What it returns is kept for several calls; it must not hold the samples' data.
    count : int
        How many samples there are.
    workers : int, optional
        Threads; by default what `available_cpus` counts.
    progress : callable, optional
        Called with the number of samples that are done, after what was yielded for them was used, and their total.
    before : callable, optional
        Called with the indices of each batch, some batches before there is work on it, such as `Reader.ahead_whole`.
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
