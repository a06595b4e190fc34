"""What a piece of work costs its thread: time on a processor, and time blocked.

A thread that does not run is either blocked (by a disk, a network, a lock, or because it sleeps) or waits for a
processor that others use. Linux counts the latter in ``/proc/thread-self/schedstat`` (run time, delay and time slices,
in nanoseconds; Documentation/scheduler/sched-stats.rst), so that neighbours on a busy machine are not taken for a slow
disk. Without that file, all time off the processor counts as blocked.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Cost", "Moment", "Timed", "Watch", "moment", "openers_watched", "since"]

_SCHEDSTAT = "/proc/thread-self/schedstat"
_opened = threading.local()


@dataclass(frozen=True)
class Cost:
    """Seconds of a piece of work.

    Attributes
    ----------
    cpu : float
        On a processor, with what other threads did for it.
    blocked : float
        Neither on a processor nor waiting for one.
    """

    cpu: float = 0.0
    blocked: float = 0.0

    @property
    def total(self) -> float:
        """What the work takes on a machine that is otherwise idle."""
        return self.cpu + self.blocked

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.cpu + other.cpu, self.blocked + other.blocked)

    def __sub__(self, other: Cost) -> Cost:
        """Return what is left beside `other`: nothing below 0."""
        return Cost(max(self.cpu - other.cpu, 0.0), max(self.blocked - other.blocked, 0.0))

    def __truediv__(self, count: float) -> Cost:
        return Cost(self.cpu / count, self.blocked / count)


class Moment(NamedTuple):
    """Clocks of this thread at one time, in seconds."""

    wall: float
    thread: float
    process: float
    delay: float


def moment() -> Moment:
    """Return the clocks of this thread now."""
    return Moment(time.perf_counter(), time.thread_time(), time.process_time(), _delay())


def since(begin: Moment, *, alone: bool = True) -> Cost:
    """Return the cost of this thread's work since `begin`.

    Without `alone`, other threads of the process do work of their own, which is not this thread's.
    """
    end = moment()
    own = end.thread - begin.thread
    helped = max(end.process - begin.process - own, 0.0) if alone else 0.0
    blocked = end.wall - begin.wall - own - (end.delay - begin.delay) - helped
    return Cost(own + helped, max(blocked, 0.0))


def _delay() -> float:
    """Return for how many seconds this thread could have run, and did not; 0 where nothing says so."""
    if getattr(_opened, "process", None) != os.getpid():  # a fork has threads of its own
        _opened.process, _opened.file = os.getpid(), _open()
    if _opened.file is None:
        return 0.0
    return int(os.pread(_opened.file.number, 80, 0).split()[1]) / 1e9


class _Descriptor:
    """A file that is closed with the thread that opened it: its number is of no use to another one."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.number)


def _open() -> _Descriptor | None:
    try:
        descriptor = _Descriptor(os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC))
        int(os.pread(descriptor.number, 80, 0).split()[1])
    except (OSError, AttributeError, IndexError, ValueError):  # another system; a kernel that does not count
        return None
    return descriptor


class Watch:
    """Adds up the costs of calls, by the stage that they are made in; a call inside of another counts for the outer.

    Attributes
    ----------
    costs : dict of str to Cost
        By stage.
    paths : list of str
        The files that were opened.
    loaded : object
        What was loaded last.
    """

    def __init__(self) -> None:
        self.costs: dict[str, Cost] = {}
        self.paths: list[str] = []
        self.loaded: Any = None
        self._inside = False

    def call(self, stage: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Call a function, and add what that costs to a stage."""
        if self._inside:
            return function(*arguments, **options)
        self._inside = True
        begin = moment()
        try:
            result = function(*arguments, **options)
            if stage == "loading":
                _decode(result)
        finally:
            self.costs[stage] = self.costs.get(stage, Cost()) + since(begin)
            self._inside = False
        if stage == "loading":
            self.loaded = result
            named = arguments[0] if arguments else None
            if not isinstance(named, str | os.PathLike):
                named = getattr(named, "name", None)  # of an open file
            if isinstance(named, str | os.PathLike) and os.path.isfile(named):
                self.paths.append(os.fspath(named))
        return result


class Timed:
    """A callable whose calls a `Watch` times; otherwise the callable itself."""

    def __init__(self, watch: Watch, stage: str, function: Any) -> None:
        self._watch, self._stage, self._function = watch, stage, function

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._watch.call(self._stage, self._function, arguments, options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __repr__(self) -> str:
        return repr(self._function)


@contextlib.contextmanager
def openers_watched(watch: Watch) -> Iterator[None]:
    """Time what opens images inside of a dataset that does not say so: ``Image.open`` of Pillow, ``cv2.imread``."""
    found = [(sys.modules.get(module), name) for module, name in (("PIL.Image", "open"), ("cv2", "imread"))]
    originals = [(module, name, getattr(module, name)) for module, name in found if hasattr(module, name)]
    try:
        for module, name, function in originals:
            setattr(module, name, Timed(watch, "loading", function))
        yield
    finally:
        for module, name, function in originals:
            setattr(module, name, function)


def _decode(image: Any) -> None:
    """Decode an image that Pillow opened and would decode later, as a part of a transform."""
    if type(image).__module__.startswith("PIL."):
        image.load()
