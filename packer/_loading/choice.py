"""How many threads a Loader needs, found while it is used: ``threads="auto"``.

What is measured is what a person waits for: the time from one batch to the next, whatever takes it. So a Loader that
keeps up with the training with two threads gets no more of them. No number of threads changes what is read.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from packer._loading.racing import Race, thread_counts
from packer.samplers._ranks import rank_and_world

__all__ = ["Choice", "choosing"]

_BATCHES, _SECONDS = 6, 0.25  # that a measurement has at least


class Choice:
    """Chooses a number of threads in the first pass over a whole epoch that comes to its end.

    Measurements of a few batches each are made with one number of threads after the other, in turn. The batches that
    are in work when the number changes belong to neither. Pickled, it is one that has measured nothing.

    Parameters
    ----------
    cpus : int
        How many threads there are at first, and where nothing is chosen.
    least : int
        The fewest threads that there can be.

    Attributes
    ----------
    threads : int
        How many there are to be now.
    over : bool
        Whether the number stays: the best one is known, or a whole epoch came to its end before.
    """

    def __init__(self, cpus: int, least: int = 1) -> None:
        self._given = cpus, least
        self.threads = max(cpus, least)
        self.over = False
        self._race = Race(thread_counts(cpus, least))
        self._own_step: float | None = None  # seconds a batch that the loop takes for itself
        self._running = False

    def begin(self, prefetch: int) -> bool:
        """Begin a pass; return False where another pass is being measured.

        Parameters
        ----------
        prefetch : int
            How many batches are in work beyond the one that is asked for.
        """
        if self._running:
            return False
        self._running = True
        self._alone = rank_and_world()[1] == 1  # otherwise the loop waits for other ranks, and that says nothing
        self._in_work = prefetch + 1
        self._race = Race(self._race.settings)
        self._warm = False
        self._settle()
        return True

    def handed_out(self, waited: float) -> bool:
        """Note that a batch is handed out that was waited for, in seconds; return whether `threads` is another now."""
        if self.over:
            return False
        if self._unsettled > 0:
            self._unsettled -= 1
            self._began = time.perf_counter()
            return False
        self._batches += 1
        self._waited += waited
        seconds = time.perf_counter() - self._began
        if self._batches < _BATCHES or seconds < _SECONDS:
            return False
        self._note(seconds / self._batches, self._waited / self._batches)
        before, self.threads = self.threads, self._next()
        self._settle()
        return self.threads != before

    def end(self) -> None:
        """End a pass."""
        self._running = False
        if not self._race.over:
            self.threads = max(self._given)

    def _note(self, step: float, waited: float) -> None:
        """Note the time from batch to batch; the first one is of the program's beginning, and not compared."""
        if not self._warm:
            self._warm, self._own_step = True, max(step - waited, 0.0)
        else:
            self._race.note(max(step if self._alone else (self._own_step or 0.0) + waited, 1e-9))

    def _next(self) -> int:
        if not self._race.over:
            return self._race.next
        self.over = True
        return self._race.chosen or self.threads

    def _settle(self) -> None:
        self._unsettled, self._batches, self._waited = self._in_work, 0, 0.0

    def __reduce__(self) -> Any:
        return Choice, self._given


@contextlib.contextmanager
def choosing(choice: Choice | None, prefetch: int, ended: Callable[[Choice], None]) -> Iterator[Choice | None]:
    """Give what chooses the number of threads in a pass, or None; call `ended` with it at the end."""
    if choice is None or not choice.begin(prefetch):
        yield None
        return
    try:
        yield choice
    finally:
        choice.end()
        ended(choice)
