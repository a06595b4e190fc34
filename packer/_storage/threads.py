"""A thread pool that yields results in order, with a bounded number of items in progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from packer._storage.system import available_cpus

_T = TypeVar("_T")
_R = TypeVar("_R")


def in_order(work: Callable[[_T], _R], items: Iterable[_T], workers: int | None = None) -> Iterator[_R]:
    """Yield ``work(item)`` for every item, in order; threads run a bounded number of items ahead.

    Parameters
    ----------
    work : callable
        Called on several threads at once.
    items : iterable
        Iterated on this thread, while the work continues.
    workers : int, optional
        Threads; by default as many as `available_cpus` counts.
    """
    workers = workers or available_cpus()
    with ThreadPoolExecutor(workers, thread_name_prefix="packer") as pool:
        yield from results((pool.submit(work, item) for item in items), 2 * workers + 1)


def results(futures: Iterable[Future[_R]], ahead: int) -> Iterator[_R]:
    """Yield the results of futures, in order, with up to `ahead` in progress; on an error, cancel the others.

    Parameters
    ----------
    futures : iterable
        Iterated on this thread, one future for each consumed result.
    ahead : int
    """
    pending: deque[Future[_R]] = deque()
    try:
        for future in futures:
            pending.append(future)
            if len(pending) >= ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
