"""Locks between the processes of tests: a test that measures runs alone, and shared files are made once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where a test that measures does not run alone
    fcntl = None  # type: ignore[assignment]

# The locked files are modules of the tests: no lock file is made or left behind.
_QUEUE, _TURN = Path(__file__).with_name("conftest.py"), Path(__file__)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made if it does not exist."""
    with open(path, "ab") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def turn(alone: bool) -> Iterator[None]:
    """Wait for a turn, which is shared with tests of other processes unless it is to be `alone`."""
    if fcntl is None:
        yield
        return
    with open(_TURN, "rb") as held:
        with open(_QUEUE, "rb") as queue:  # whoever waits to be alone stays in the queue: no other turn begins
            fcntl.flock(queue, fcntl.LOCK_EX)
            fcntl.flock(held, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


class Turns:
    """The turns of this process. Consecutive turns alone are joined: each would wait for the slowest other test."""

    _LONGEST = 20  # seconds; others wait within their time limits

    def __init__(self) -> None:
        self._held, self._ends = contextlib.ExitStack(), 0.0

    @contextlib.contextmanager
    def take(self, *, alone: bool, again: bool) -> Iterator[None]:
        """Wait for a turn; `again` says that the next one is to be alone too."""
        if time.monotonic() > self._ends:
            self._held.close()
            self._held.enter_context(turn(alone))
            self._ends = time.monotonic() + self._LONGEST
        try:
            yield
        finally:
            if not (alone and again):
                self._held.close()
                self._ends = 0.0
