"""How long each step of a pass waits for its batch, and a GPU's idle time, without waiting for the GPU.

Kernels are queued: that the loop waits for a batch does not mean that the GPU waits. So, where CUDA is in use, an event
is recorded on the current stream when the loop asks for a batch, and another when it has the batch. The GPU stamps them
when it comes to them. The time between the two is what the GPU had nothing to do for want of this batch: nothing, where
it was still at work on earlier steps.

What a piece of work costs its thread: time on a processor, and time blocked.

A thread that does not run is either blocked (by a disk, a network, a lock, or because it sleeps) or waits for a
processor that others use. Linux counts the latter in ``/proc/thread-self/schedstat`` (run time, delay and time slices,
in nanoseconds; Documentation/scheduler/sched-stats.rst), so that neighbours on a busy machine are not taken for a slow
disk. Without that file, all time off the processor counts as blocked.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Cost", "GPUIdle", "Moment", "Timed", "Timings", "Watch", "moment", "openers_watched", "since"]

_BLOCKS = 20
_FEWEST = 5
"""Blocks from which on their spread is known."""


class Timings:
    """Seconds that each step of one pass waited and worked.

    Several workers make a batch each at the same time, so that batches come in bursts. The first burst comes with the
    first batch, whoever waits longer later: its batches say nothing of the pass.

    Attributes
    ----------
    waits, works : array of float
        For each batch: how long the loop waited for it, and how long it worked until it asked for the next.
    burst : int
        How many batches are made at the same time, each by a worker of its own.
    cpu : float
        Seconds that this process was on processors, from the first batch to the end of the pass.
    complete : bool
        Whether the pass came to its end.
    """

    def __init__(self) -> None:
        self.waits, self.works = array("d"), array("d")
        self.gpu = GPUIdle()
        self.burst = 1
        self.cpu = 0.0
        self.complete = False
        self._began: float | None = None

    def waited(self, seconds: float) -> None:
        """Note how long a step waited for its batch, which is there now."""
        if self._began is None:
            self._began = time.process_time()
        self.waits.append(seconds)

    def end(self) -> None:
        """Note that the loop has worked on its last batch."""
        if self._began is not None:
            self.cpu = time.process_time() - self._began

    @property
    def steps(self) -> int:
        """How many batches there were."""
        return len(self.works)

    @property
    def first(self) -> float:
        """How long the first batch took, with the start of workers."""
        return self.waits[0] if self.waits else 0.0

    @property
    def seconds(self) -> float:
        """How long the pass took."""
        return sum(self.waits) + sum(self.works)

    @property
    def tells(self) -> bool:
        """Whether there was a whole burst after the first one."""
        return self.steps >= 2 * self.burst

    @property
    def _counted(self) -> slice:
        """The batches that count: whole bursts after the first one; where there are none, all after the first batch."""
        if not self.tells:
            return slice(1 if self.steps > 1 else 0, self.steps)
        return slice(self.burst, self.steps // self.burst * self.burst)

    @property
    def interval(self) -> float:
        """Mean seconds from batch to batch, after the first ones."""
        return self.wait + self.work

    @property
    def wait(self) -> float:
        """Mean seconds that a step waits, after the first ones where there are others."""
        waits = self.waits[self._counted] or self.waits
        return sum(waits) / max(len(waits), 1)

    @property
    def work(self) -> float:
        """Mean seconds of a step without its wait."""
        return sum(self.works) / max(self.steps, 1)

    @property
    def work_cpu(self) -> float:
        """Mean seconds of a step that this process is on processors, with what it does for the loader."""
        return self.cpu / max(self.steps, 1)

    def waiting(self) -> tuple[float, float]:
        """Return the share of the time after the first batches that the loop waits, and the share's standard error.

        The error is that of a ratio over blocks of consecutive steps, whole bursts of them; 1 where they are too few.
        """
        pairs = list(zip(self.waits, self.works, strict=False))[self._counted]
        if not pairs:
            return 0.0, 1.0
        size = max(len(pairs) // _BLOCKS // self.burst, 1) * self.burst
        blocks = [pairs[begin : begin + size] for begin in range(0, len(pairs), size)]
        waits = [sum(wait for wait, _ in block) for block in blocks]
        totals = [sum(wait + work for wait, work in block) for block in blocks]
        share = sum(waits) / max(sum(totals), 1e-12)
        if len(blocks) < (_FEWEST if self.burst > 1 else 2):
            return share, 1.0
        spread = sum((wait - share * total) ** 2 for wait, total in zip(waits, totals, strict=True))
        mean = sum(totals) / len(totals)
        return share, math.sqrt(spread / (len(blocks) - 1) / len(blocks)) / max(mean, 1e-12)

    def of_start(self) -> float:
        """Return the share of the pass that went by until the first batch, beyond an ordinary wait."""
        return max(self.first - self.wait, 0.0) / max(self.seconds, 1e-12)


class GPUIdle:
    """The time that the current CUDA stream had nothing to do while the loop waited."""

    def __init__(self) -> None:
        self._open: Any = None
        self._origin: Any = None
        self._last: Any = None
        self._pending: deque[tuple[Any, Any]] = deque()
        self._idle = 0.0
        self._steps = 0

    def asked(self) -> bool:
        """Note that the loop asks for a batch; return whether CUDA is in use."""
        self._open = self._event()
        return self._open is not None

    def given(self) -> None:
        """Note that the loop has it."""
        if self._open is None:
            return
        begin, end, self._open = self._open, self._event(), None
        self._steps += 1
        if self._steps == 1:  # the first wait is the start of the loader
            self._origin = end
            return
        self._last = end
        self._pending.append((begin, end))
        while self._pending and self._pending[0][1].query():
            self._settle()

    def share(self) -> float | None:
        """Return the idle share of the pass after its first batch; None without CUDA. Waits for the GPU, once."""
        if self._last is None:
            return None
        self._last.synchronize()
        while self._pending:
            self._settle()
        total: float = self._origin.elapsed_time(self._last)
        return min(self._idle / total, 1.0) if total > 0 else None

    def _settle(self) -> None:
        begin, end = self._pending.popleft()
        self._idle += begin.elapsed_time(end)

    @staticmethod
    def _event() -> Any:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


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
