"""The measuring harness of `packer.bench`, `tune`, `estimate`, `profile` and `doctor`.

Other programs share the machine, so its speed changes from one second to the next, and a single figure means little.
The loaders or settings to compare (contenders) run in separate processes (`ChildProcess`) or one after the other.
`rounds` orders the contenders so that each round begins with a different one, and `ratio` compares contenders within a
round. Every measurement has a `TimeLimit`. `Load` measures the share of the CPUs that other programs used; `since`
divides a thread's time into work and waiting. Measurements leave no files behind (`scratch_directory`), and do not
change the program's random numbers (`keeping_random_states`).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from packer._storage.system import interrupts_held
from packer.errors import PackerError, message_of

BUSY = 0.1
"""A report mentions other programs if they use more than this share of the CPUs."""

_HAS_PROC = sys.platform == "linux"
_PATIENCE = 20  # seconds until a child process that does not end is killed
_DIED = "its process died"

ShowSeconds = Callable[[float, float, str], None]
"""A progress callback: takes the elapsed seconds, the time limit in seconds, and the subject of the measurement."""


class TimeLimit:
    """A time limit for a measurement, counted from the creation of this object.

    Parameters
    ----------
    seconds : float
    show : ShowSeconds, optional
        Called by the method `show`.
    """

    def __init__(self, seconds: float, show: ShowSeconds | None = None) -> None:
        self.seconds = seconds
        self._show = show
        self._begin = time.monotonic()

    @property
    def passed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begin

    @property
    def left(self) -> float:
        """Seconds until the end; negative after the end."""
        return self.seconds - self.passed

    @property
    def is_over(self) -> bool:
        return self.left < 0

    def until(self, share: float) -> TimeLimit:
        """Return a limit with the same beginning that ends after a share of the time."""
        part = TimeLimit(share * self.seconds)
        part._begin = self._begin
        return part

    def show(self, subject: str) -> None:
        """Pass the subject of the current measurement to the progress callback."""
        if self._show is not None:
            self._show(self.passed, self.seconds, subject)


def rounds(count: int, most: int, limit: TimeLimit | None = None, step: int = 1) -> Iterator[list[int]]:
    """Yield the order of each round: the positions of `count` contenders, each measured once.

    Parameters
    ----------
    count : int
        Number of contenders.
    most : int
        The maximum number of rounds. There is at least one.
    limit : TimeLimit, optional
        No round begins if a round as long as the last one would exceed this limit.
    step : int
        The number of positions by which each round's order is shifted against the previous round.
    """
    duration = 0.0
    for number in range(most):
        if number and limit is not None and duration > limit.left:
            return
        begin = time.monotonic()
        yield [(position + number * step) % count for position in range(count)]
        duration = time.monotonic() - begin


def ratio(rates: Sequence[float], others: Sequence[float]) -> float | None:
    """Divide two contenders' rates within each round; return the median of the ratios, or None if no round has both."""
    ratios = [rate / other for rate, other in zip(rates, others, strict=False) if other > 0]
    return statistics.median(ratios) if ratios else None


def relative_spread(rates: Sequence[float]) -> float:
    """Return half of the range of some rates, as a share of their median."""
    return (max(rates) - min(rates)) / 2 / statistics.median(rates)


def timed_calls(work: Callable[[], int], seconds: float, least: int = 1) -> tuple[int, float]:
    """Call `work` for at least `seconds` and `least` calls; return the sum of its results, and the elapsed seconds."""
    total, calls, begin = 0, 0, time.perf_counter()
    while calls < least or time.perf_counter() - begin < seconds:
        total += work()
        calls += 1
    return total, time.perf_counter() - begin


def run_together(work: Callable[[int], None], threads: int) -> None:
    """Run ``work(number)`` on several numbered threads until all are done; raise the first error."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    started: list[threading.Thread] = []
    try:
        for number in range(threads):
            thread = threading.Thread(target=run, args=(number,), name="packer-measure")
            thread.start()
            started.append(thread)
    finally:  # if the system refuses a thread, those that were started end before the error is raised
        for thread in started:
            thread.join()
    if errors:
        raise errors[0]


# A thread that does not run is either blocked (by a disk, a network, a lock, or because it sleeps) or waits for a
# processor that other threads use. Linux reports the time of the second kind in this file (run time, delay and time
# slices, in nanoseconds; Documentation/scheduler/sched-stats.rst). Subtracting it keeps a busy machine from looking
# like a slow disk. Without the file, all time off the processor counts as blocked.
_SCHEDSTAT = "/proc/thread-self/schedstat"
_opened = threading.local()


@dataclass(frozen=True)
class Cost:
    """The cost of a piece of work, in seconds.

    Attributes
    ----------
    cpu : float
        Seconds on a processor, including those of threads that the work started.
    blocked : float
        Seconds in which the thread neither ran nor waited for a processor.
    """

    cpu: float = 0.0
    blocked: float = 0.0

    @property
    def total(self) -> float:
        """Seconds that the work takes on an otherwise idle machine."""
        return self.cpu + self.blocked

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.cpu + other.cpu, self.blocked + other.blocked)

    def __sub__(self, other: Cost) -> Cost:
        """Return the difference, at least 0."""
        return Cost(max(self.cpu - other.cpu, 0.0), max(self.blocked - other.blocked, 0.0))

    def __truediv__(self, count: float) -> Cost:
        return Cost(self.cpu / count, self.blocked / count)


class Moment(NamedTuple):
    """Readings of this thread's clocks at one moment, in seconds."""

    wall: float
    thread: float
    process: float
    delay: float


def moment() -> Moment:
    """Read the clocks of this thread."""
    return Moment(time.perf_counter(), time.thread_time(), time.process_time(), _delay())


def since(begin: Moment, *, alone: bool = True) -> Cost:
    """Return the cost of this thread's work since `begin`.

    Parameters
    ----------
    begin : Moment
    alone : bool
        True if the other threads of the process only help with this work; then the cost includes their time.
    """
    end = moment()
    own = end.thread - begin.thread
    helped = max(end.process - begin.process - own, 0.0) if alone else 0.0
    blocked = end.wall - begin.wall - own - (end.delay - begin.delay) - helped
    return Cost(own + helped, max(blocked, 0.0))


def best_cost(work: Callable[[], object], times: int, enough: float = float("inf")) -> Cost:
    """Call `work` up to `times` times, until a call takes more than `enough` seconds; return the lowest cost."""
    costs: list[Cost] = []
    while len(costs) < times and (not costs or costs[-1].total <= enough):
        begin = moment()
        work()
        costs.append(since(begin))
    return min(costs, key=lambda cost: cost.total)


def _delay() -> float:
    """Return the seconds for which this thread was ready but not running; 0 if the system does not count them."""
    if getattr(_opened, "process", None) != os.getpid():  # a fork has threads of its own
        _opened.process, _opened.file = os.getpid(), _open_schedstat()
    if _opened.file is None:
        return 0.0
    return int(os.pread(_opened.file.number, 80, 0).split()[1]) / 1e9


class _Descriptor:
    """A file descriptor that is closed when the thread that owns it ends."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.number)


def _open_schedstat() -> _Descriptor | None:
    try:
        descriptor = _Descriptor(os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC))
        int(os.pread(descriptor.number, 80, 0).split()[1])
    except (OSError, AttributeError, IndexError, ValueError):  # not Linux, or a kernel without these counters
        return None
    return descriptor


def _own_seconds() -> float:
    """Return the CPU time of this process and of its finished children."""
    return sum(os.times()[:4])


class Load:
    """Measures the load of the CPUs in this process's affinity mask during a `with` block, regardless of quotas.

    Parameters
    ----------
    own_seconds : callable
        Returns the CPU seconds that the measured processes have used so far; by default those of this process and its
        finished children.

    Attributes
    ----------
    own : float
        CPU seconds of the measured processes; 0 before the end.
    others : float or None
        The share of the CPUs that other programs used, 0 to 1; None before the end, and if the system does not report
        it.
    """

    own: float = 0.0
    others: float | None = None

    def __init__(self, own_seconds: Callable[[], float] = _own_seconds) -> None:
        self._own_seconds = own_seconds

    def __enter__(self) -> Load:
        self._begin = self._clocks()
        return self

    def __exit__(self, *error: object) -> None:
        seconds, self.own, busy = (end - begin for end, begin in zip(self._clocks(), self._begin, strict=True))
        if _HAS_PROC and seconds > 0:
            self.others = min(1.0, max(0.0, busy - self.own) / seconds / len(os.sched_getaffinity(0)))

    def _clocks(self) -> tuple[float, float, float]:
        return time.perf_counter(), self._own_seconds(), _busy_seconds()


def _busy_seconds() -> float:
    """Return the busy seconds, since the machine started, of the CPUs in this process's affinity mask.

    The time for which the hypervisor took these CPUs away is included.
    """
    if not _HAS_PROC:
        return 0.0
    total = 0
    with contextlib.suppress(OSError):
        cpus = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
        for line in Path("/proc/stat").read_text().splitlines():
            name, *values = line.split()
            if name in cpus:
                user, nice, system, _, _, irq, softirq, steal, *_ = map(int, values)
                total += user + nice + system + irq + softirq + steal
    return total / os.sysconf("SC_CLK_TCK")


class Measurement(NamedTuple):
    """The figures of one timed call in a child process."""

    rate: float
    """Images per second."""
    cpu_ms: float | None
    """CPU milliseconds per image of the child's processes; None if the system does not report it."""
    others: float | None
    """Share of the CPUs that other processes took; None if the system does not report it."""


class ChildProcess:
    """An object that lives in a child process; the parent process calls its methods.

    The object shares no memory, threads or imports with the objects in other child processes. The child leads a process
    group, so that the CPU time of the processes that it starts can be attributed to it.

    Parameters
    ----------
    make : callable
        Creates the object in the child; an importable function or class. ImportError means that a dependency is not
        installed.
    *arguments
        Arguments of `make`.
    traces : bool
        Whether the child prints a traceback if a call fails.

    Attributes
    ----------
    reason : str or None
        The reason why the object cannot be created or has failed; None if it works.
    error : type of PackerError or None
        The class of the error behind `reason`, if the error is one of packer's.
    note : str
        The attribute `note` of the object; empty if it has none.
    """

    def __init__(self, make: Callable[..., Any], *arguments: Any, traces: bool = False) -> None:
        self.reason: str | None = None
        self.error: type[PackerError] | None = None
        self.note = ""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments, traces))
        self._is_ready = False
        try:
            with interrupts_held():  # Ctrl-C is for the caller: the child ends with its connection
                self._process.start()
        except BaseException:
            self._connection.close()
            raise
        finally:
            theirs.close()

    def wait(self) -> None:
        """Wait until the object is created. The method `call` waits for this too."""
        if not self._is_ready:
            self.note = self._receive() or ""
            self._is_ready = True

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the object; return the result, or None if this or an earlier call failed (see `reason`)."""
        self.wait()
        if self.reason is not None:
            return None
        try:
            self._connection.send((method, *arguments))
        except OSError:
            self.reason = _DIED
            return None
        return self._receive()

    def measure(self, method: str, *arguments: Any) -> tuple[int, Measurement]:
        """Call a method that returns a number of images and the seconds for reading them, and measure the CPUs' load.

        Returns
        -------
        images : int
            0 if the method failed.
        measurement : Measurement
        """
        self.wait()
        with Load(self._cpu_seconds) as load:
            images, seconds = self.call(method, *arguments) or (0, 1.0)
        if not images:
            return 0, Measurement(0.0, None, None)
        return images, Measurement(images / seconds, 1000 * load.own / images if _HAS_PROC else None, load.others)

    def close(self) -> None:
        """End the process; if it does not end by itself, kill it and the processes that it started."""
        self._connection.close()
        if not self._is_ready:  # importing torch takes seconds, and the object is not needed any more
            self._kill()
        self._process.join(_PATIENCE)
        if self._process.is_alive():
            self._kill()
            self._process.join()

    def _kill(self) -> None:
        pid = self._process.pid
        if hasattr(os, "killpg") and pid is not None and self._process.is_alive():  # else the pid may be reused
            with contextlib.suppress(ProcessLookupError):  # the child does not lead a group yet
                os.killpg(pid, signal.SIGKILL)
        self._process.kill()

    def _receive(self) -> Any:
        try:
            kind, value = self._connection.recv()
        except (EOFError, OSError):
            kind, value = "failed", (_DIED, None)
        if kind == "failed":
            self.reason, self.error = value
            return None
        return value

    def _cpu_seconds(self) -> float:
        """Return the CPU time of all processes of the group, including those that have ended."""
        total = 0
        for stat in Path("/proc").glob("[0-9]*/stat") if _HAS_PROC else ():
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[2]) == self._process.pid:
                    total += sum(map(int, fields[11:15]))
        return total / os.sysconf("SC_CLK_TCK") if _HAS_PROC else 0.0


def _serve(connection: Connection, make: Callable[..., Any], arguments: tuple[Any, ...], traces: bool) -> None:
    """Create the object in the child, and respond to calls until the connection is closed."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    if sys.platform == "linux":  # how DataLoader's workers start by default, until Python 3.14
        multiprocessing.set_start_method("fork", force=True)
    try:
        served = make(*arguments)
    except ImportError as error:
        connection.send(("failed", (f"not installed: {error}", None)))
        return
    except Exception as error:
        connection.send(("failed", _failure(error)))
        return
    connection.send(("done", getattr(served, "note", "")))
    with contextlib.suppress(EOFError, OSError):
        while True:
            method, *passed = connection.recv()
            try:
                answer = pickle.dumps(("done", getattr(served, method)(*passed)))
            except Exception as error:
                if traces:
                    traceback.print_exc()
                answer = pickle.dumps(("failed", _failure(error)))
            connection.send_bytes(answer)


def _failure(error: Exception) -> tuple[str, type[PackerError] | None]:
    """Return the message of an error, and the error's class if it is one of packer's."""
    if isinstance(error, PackerError):
        return message_of(error), type(error)
    text = str(error)
    if "Traceback (most recent call last)" in text:  # from torch's workers: the last line has the error
        return text.rstrip().rpartition("\n")[2], None
    return f"{type(error).__name__}: {text}", None


# The program of the helper process: it waits until its pipe is closed, and then removes the directory. The system
# closes the pipe even if the process at the other end is killed.
_WATCH = """
import shutil, signal, sys
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    if hasattr(signal, name):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
sys.stdin.buffer.read()
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


@contextlib.contextmanager
def scratch_directory(purpose: str, inside: Path) -> Iterator[Path]:
    """Create a temporary directory for a `with` block; a helper process removes it if this process is killed.

    Parameters
    ----------
    purpose : str
        A word for the name of the directory.
    inside : Path
        The parent directory; if it is not writable, the system's directory for temporary files is used instead.
    """
    writable = os.path.isdir(inside) and os.access(inside, os.W_OK | os.X_OK)
    made = Path(tempfile.mkdtemp(prefix=f"packer-{purpose}-", dir=inside if writable else None))
    line = [sys.executable, "-I", "-S", "-c", _WATCH, str(made)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": os.name != "nt"}
    watcher = None
    try:
        with contextlib.suppress(OSError):  # without a helper, this process alone removes the directory
            watcher = subprocess.Popen(line, stdin=subprocess.PIPE, **quiet)  # type: ignore[call-overload]
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        if watcher is not None:
            watcher.kill()  # its pipe does not end if a fork of this process holds it open
            watcher.stdin.close()
            watcher.wait()


@contextlib.contextmanager
def keeping_random_states() -> Iterator[None]:
    """Preserve the state of the program's random number generators across this block.

    The number of measurements depends on the speed of the machine. If measuring advanced the generators, two runs with
    the same seed would draw different numbers.
    """
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    states = random.getstate(), numpy and numpy.random.get_state(), torch and torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        if numpy is not None and states[1] is not None:
            numpy.random.set_state(states[1])
        if torch is not None and states[2] is not None:
            torch.set_rng_state(states[2])
