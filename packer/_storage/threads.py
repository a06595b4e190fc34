"""A thread pool whose results come in order, with a bounded number of items in work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from packer._storage.system import available_cpus

__all__ = ["in_order"]

_T = TypeVar("_T")
_R = TypeVar("_R")


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
