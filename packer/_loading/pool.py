"""The threads of a dataset that a DataLoader asks for batches."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Pool"]

_of_a_pool = threading.local()  # has `mark` in the threads of a pool


class Pool:
    """Threads that make the items of a batch, started when they are first needed. They end with the pool.

    A pickled pool has no threads, and a fork starts its own.
    """

    def __init__(self) -> None:
        self._executors: dict[tuple[int, int], ThreadPoolExecutor] = {}

    def items(
        self, threads: int, make: Callable[[Any], list[Any]], indices: Sequence[int] | npt.NDArray[np.int64]
    ) -> list[Any]:
        """Return ``make(indices)``, a list of items, made of so many parts of `indices` at a time."""
        if threads == 1 or len(indices) < 2 or hasattr(_of_a_pool, "mark"):  # a thread would wait for itself
            return make(indices)
        step = -(-len(indices) // threads)
        executor = self._executor(threads)
        tasks = [executor.submit(make, indices[start : start + step]) for start in range(0, len(indices), step)]
        try:
            return [item for task in tasks for item in task.result()]
        finally:
            wait(tasks)  # after an error as well: no thread goes on reading when the caller has got the error

    def _executor(self, threads: int) -> ThreadPoolExecutor:
        key = os.getpid(), threads  # a fork has none of its parent's threads
        if key not in self._executors:
            made = ThreadPoolExecutor(threads, "packer", initializer=setattr, initargs=(_of_a_pool, "mark", True))
            return self._executors.setdefault(key, made)
        return self._executors[key]

    def close(self) -> None:
        """End the threads of this process; threads that are needed after that are started anew."""
        executors, self._executors = self._executors, {}
        for (process, _), executor in executors.items():
            if process == os.getpid():
                executor.shutdown()

    def __reduce__(self) -> tuple[type[Pool], tuple[()]]:
        return Pool, ()
