"""Work on everything in a pack: on threads, in order, and in memory that does not grow with the pack."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from packer._storage.limits import available_cpus

__all__ = ["in_order", "over_samples"]

_T = TypeVar("_T")
_R = TypeVar("_R")

_BATCH = 64  # samples


def in_order(work: Callable[[_T], _R], items: Iterable[_T], workers: int | None = None) -> Iterator[_R]:
    """Yield ``work(item)`` of every item, in order; threads are a bounded number of items ahead.

    Parameters
    ----------
    work : callable
        Called on several threads at once.
    items : iterable
        Taken from on this thread, as the work goes on.
    workers : int, optional
        Threads; by default what `available_cpus` counts.
    """
    workers = workers or available_cpus()
    pending: deque[Future[_R]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="packer") as pool:
        try:
            for item in items:
                if len(pending) > 2 * workers:
                    yield pending.popleft().result()
                pending.append(pool.submit(work, item))
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def over_samples(
    work: Callable[[range], _R],
    count: int,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
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
    """
    batches = (range(start, min(start + _BATCH, count)) for start in range(0, count, _BATCH))
    done = 0
    for result in in_order(work, batches, workers):
        yield result
        done = min(done + _BATCH, count)
        if progress is not None:
            progress(done, count)
