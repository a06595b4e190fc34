"""The workers of a Loader, which stay from one pass to the next as long as the settings do."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from packer._loading.planning import Batch
from packer._loading.processes import Processes
from packer._loading.threads import Threads, Workers

__all__ = ["Kept", "Settings"]


class Settings(NamedTuple):
    """What workers are made with; see `Threads` and `Processes`."""

    processes: int
    threads: int
    resizable: bool
    in_work: int
    batches: int
    pinned: bool
    locked: bool
    """Whether the batches that are handed out are held until a device has copied them."""


class Kept:
    """Keeps the workers that no pass uses. Pickled, there are none.

    Attributes
    ----------
    closed : bool
        Whether workers are ended as soon as no pass uses them.
    """

    def __init__(self) -> None:
        self.closed = False
        self._workers: tuple[Settings, Workers] | None = None

    @contextlib.contextmanager
    def in_use(self, owner: object, settings: Settings, size: int) -> Iterator[tuple[Workers, deque[Batch]]]:
        """Give workers for batches of `size` bytes, and a place for the batches that they are working at.

        Workers that are kept are used again. What is still in work at the end is ended. Processes end with `owner`.
        """
        process = os.getpid()
        workers, pending = self._take(owner, settings, size), deque[Batch]()
        try:
            yield workers, pending
        finally:
            if os.getpid() == process:  # a fork has no threads that would end the tasks
                for task in [task for batch in pending for task in batch.tasks if not task.cancel()]:
                    task.exception()  # waits: tasks write into memory that the next batches use
                pending.clear()  # the traceback of an error may be kept, and the frame of its pass with it
                workers.end()
                self._give_back(settings, workers)

    def close(self) -> None:
        """End the workers that are kept, and each that a pass uses at the end of this pass."""
        self.closed = True
        kept, self._workers = self._workers, None
        if kept is not None:
            kept[1].close()

    def _take(self, owner: object, settings: Settings, size: int) -> Workers:
        kept, self._workers = self._workers, None
        if kept is not None:
            before, workers = kept
            same = before == settings or (settings.resizable and before == settings._replace(threads=before.threads))
            if same and workers.size >= size and workers.usable:
                if settings.resizable:
                    workers.resize(settings.threads)
                return workers
            workers.close()
        processes, threads, resizable, in_work, batches, pinned, locked = settings
        if processes:
            return Processes(owner, processes, threads, in_work, size, batches, locked, resizable)
        return Threads.with_memory(threads, in_work, size, batches, pinned, resizable)

    def _give_back(self, settings: Settings, workers: Workers) -> None:
        if self._workers is None and workers.usable and not self.closed:
            self._workers = settings, workers
        else:
            workers.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"closed": self.closed, "_workers": None}
