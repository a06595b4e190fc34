"""Checkpoints of a conversion: from time to time what was written is synced, and then recorded in the journal."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

from packer._conversion.journal import Entry
from packer._conversion.unfinished import UnfinishedPack
from packer._formats import Writer

__all__ = ["Checkpoints"]

_CHECKPOINT_SAMPLES = 1000
_CHECKPOINT_SECONDS = 10.0


class Checkpoints:
    """Makes what was written durable, and then records it, on a thread of its own while the writer goes on.

    Parameters
    ----------
    writer : Writer
    unfinished : UnfinishedPack
        The pack that `writer` writes.
    """

    def __init__(self, writer: Writer, unfinished: UnfinishedPack) -> None:
        self._writer = writer
        self._unfinished = unfinished
        self._pending: list[Entry] = []
        self._last = time.monotonic()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="packer-sync")
        self._running: Future[None] | None = None

    def add(self, entries: list[Entry]) -> None:
        """Note images that were flushed or left out, and begin a checkpoint when it is time."""
        self._pending += entries
        waited = time.monotonic() - self._last
        due = len(self._pending) >= _CHECKPOINT_SAMPLES or waited > _CHECKPOINT_SECONDS
        late = len(self._pending) >= 2 * _CHECKPOINT_SAMPLES and waited > 3 * _CHECKPOINT_SECONDS
        if due and (late or self._running is None or self._running.done()):
            self._begin()

    def _begin(self) -> None:
        if self._running is not None:
            self._running.result()
        entries, self._pending = self._pending, []
        self._last = time.monotonic()
        self._running = self._thread.submit(self._checkpoint, entries)

    def _checkpoint(self, entries: list[Entry]) -> None:
        self._writer.sync()
        self._unfinished.record(entries)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Wait for the running checkpoint. After an error, record what was written so far by a last one."""
        with self._thread:
            if kind is None:
                if self._running is not None:
                    self._running.result()
            elif self._pending and (self._running is None or self._running.exception() is None):
                self._unfinished.make_room()
                self._begin()
