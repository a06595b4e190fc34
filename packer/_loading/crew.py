"""Threads that do a Loader's work, a piece at a time.

Between two pieces a thread runs few lines of Python. It finds the caches full of pixels then, and each line takes
several times as long as by itself. So a batch is one job, whose pieces threads take, and nobody hears of a piece alone.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any

__all__ = ["Caller", "Crew", "Job", "Make", "Piece"]

Piece = tuple["Job", int]
"""A job, and the place of one of its slices."""

Make = Callable[[slice], Sequence[Any] | None]
"""What makes the results of a slice, if there are any."""


class Job:
    """Work at a batch that is cut into slices. It has the methods of a `concurrent.futures.Future` that a Loader needs.

    Parameters
    ----------
    put : callable
        Takes the job's pieces, in their order, and has threads call `do` and `done` for each.
    make : callable
        See `Make`.
    slices : sequence of slice
    then : (callable, sequence of slice), optional
        Another `make` and its slices, which come when all slices before are done, and whose results follow. They do not
        come where a slice failed, or the job was cancelled.
    """

    def __init__(
        self,
        put: Callable[[Sequence[Piece]], None],
        make: Make,
        slices: Sequence[slice],
        then: tuple[Make, Sequence[slice]] | None = None,
    ) -> None:
        self._put, self._then = put, then
        self._lock, self._ended = threading.Lock(), threading.Lock()
        self._cancelled, self._results, self._failed = False, list[Any](), dict[int, BaseException]()
        self._ended.acquire()  # until all is done
        self._give(make, slices)
        pieces = [(self, place) for place in range(len(slices))]
        if not pieces and (piece := self._end()) is not None:
            pieces = [piece]
        put(pieces)

    def _give(self, make: Make, slices: Sequence[slice]) -> None:
        self._make: Make | None = make
        self._slices, self._left, self._made = slices, len(slices), dict[int, Sequence[Any]]()

    def do(self, place: int) -> None:
        """Do one slice; `done` has to come after that."""
        make = self._make
        if make is None or self._cancelled:
            return
        try:
            made = make(self._slices[place])
            if made:
                self._made[place] = made
        except BaseException as error:  # for who waits, whatever it is
            self._failed[place] = error
            del self, make  # the error holds this frame, and the job the error

    def done(self) -> Piece | None:
        """Note that a slice is done; return the piece that the same thread goes on with, if there is one."""
        with self._lock:
            self._left -= 1
            if self._left:
                return None
        return self._end()

    def _end(self) -> Piece | None:
        """Go on with what follows, or let those who wait know."""
        then, self._then, self._make = self._then, None, None  # they hold the memory of a batch
        if self._made:
            self._results += [result for place in sorted(self._made) for result in self._made[place]]
        if then is not None and not self._failed and not self._cancelled:
            self._give(*then)
            if self._slices:
                self._put([(self, place) for place in range(1, len(self._slices))])
                return self, 0  # the thread has some of the batch in its caches
        self._make = None
        self._ended.release()
        return None

    def cancel(self) -> bool:
        """Leave out the slices that no thread has begun with; return False, as others may be in work."""
        self._cancelled = True
        return False

    def exception(self) -> BaseException | None:
        """Wait until no thread is at work any more; return the error of the first slice that failed, or None."""
        with self._ended:
            return self._failed[min(self._failed)] if self._failed else None

    def result(self) -> list[Any]:
        """Wait for all slices; return their results, or raise the error of the first that failed, or CancelledError."""
        with self._ended:
            if not self._failed and not self._cancelled:
                return self._results
        try:
            raise self._failed[min(self._failed)] if self._failed else CancelledError
        finally:
            del self  # or the error would hold this frame, and the frame the job


class Crew:
    """Threads that do pieces of jobs, in the order in which they come.

    Parameters
    ----------
    most : int
        How many threads there are, when there was enough to do for all.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._stopped = False
        _AT_WORK.add(self)

    def put(self, pieces: Sequence[Piece]) -> None:
        """Have pieces done. One thread at a time calls this."""
        for piece in pieces:
            if self._stopped:
                _leave_out(piece)
                continue
            self._pieces.put(piece)
            if len(self._threads) < self._most:
                self._start()

    def _start(self) -> None:
        # Daemons, as Python would wait for others before it calls `_end_all`.
        name = f"packer-loader_{len(self._threads)}"
        thread = threading.Thread(target=_work, args=(self._pieces,), name=name, daemon=True)
        self._threads.append(thread)  # first: Ctrl-C may come when the thread is at work already
        try:
            thread.start()
        except RuntimeError:  # the system gives no more of them
            self._threads.remove(thread)
            if not self._threads:
                raise
            self._most = len(self._threads)

    def end(self) -> None:
        """Let the threads end when they have done what they were given."""
        self._pieces.put(None)

    def join(self) -> None:
        """Wait until the threads have ended."""
        for thread in self._threads:
            with contextlib.suppress(RuntimeError):  # of a thread that Ctrl-C kept from beginning
                thread.join()
        _AT_WORK.discard(self)

    def stop(self) -> None:
        """Leave out what no thread has begun with, now and later, and wait until the threads have ended."""
        self._stopped = True
        with contextlib.suppress(queue.Empty):
            while True:
                piece = self._pieces.get_nowait()
                if piece is not None:
                    _leave_out(piece)
        self.end()
        self.join()


class Caller:
    """Does pieces of jobs at once, in the thread that puts them; with the methods of a `Crew`."""

    def put(self, pieces: Sequence[Piece]) -> None:
        """Do pieces, and what follows them."""
        for piece in pieces:
            _do(piece)

    def end(self) -> None:
        """Do nothing: there is no thread to end."""

    def join(self) -> None:
        """Do nothing: all that was put is done."""


def _leave_out(piece: Piece) -> None:
    """Let a job end without a piece: who waits for the job would wait for ever."""
    job, _ = piece
    job.cancel()
    job.done()


def _work(pieces: queue.SimpleQueue[Piece | None]) -> None:
    """Do pieces until there is None."""
    while (piece := pieces.get()) is not None:
        _do(piece)
        del piece  # its job holds the memory of a batch
    pieces.put(None)  # for the next thread, however many there are


def _do(piece: Piece | None) -> None:
    """Do a piece, and those that the same thread goes on with."""
    while piece is not None:
        job, place = piece
        job.do(place)
        piece = job.done()
        del job  # it holds the memory of a batch


_AT_WORK: weakref.WeakSet[Crew] = weakref.WeakSet()


def _end_all() -> None:
    """End all threads before Python does: they may be writing into memory that is freed then."""
    for crew in list(_AT_WORK):
        crew.stop()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_AT_WORK.clear)  # a fork has none of the threads
