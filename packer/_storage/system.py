"""System resources, threads and processes: CPUs and memory that this process may use, Ctrl-C, starting Python.

A process that packer starts imports packer from the same location as this process. Passing ``sys.path`` on is not
enough. ``site`` adds the finder of an editable installation. An empty entry of ``sys.path`` stands for the current
directory, which the program may have changed. Passing the environment on is not enough either: if a program changed
``sys.path``, or was started with ``-I``, ``-E`` or ``-P``, a new process searches other directories.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import operator
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from packer.errors import OptionError, OptionTypeError

_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def available_cpus() -> int:
    """Return how many CPUs this process may use: the least of affinity, cgroup quota and SLURM allocation."""
    limits = [_affinity()]
    quota = cgroup_cpus()
    if quota is not None:
        limits.append(quota)
    slurm = os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("SLURM_CPUS_ON_NODE", "")
    if slurm.isdigit():
        limits.append(int(slurm))
    return max(1, min(limits))


def available_memory() -> int | None:
    """Return the bytes of memory that this process may use: the node's, or the limit of its cgroup if that is less.

    None if unknown.
    """
    limits = [cgroup_memory()]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min((limit for limit in limits if limit is not None), default=None)


def in_units(size: float) -> str:
    """Format a number of bytes in a suitable unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def require_count(name: str, value: object, least: int = 1, most: int | None = None) -> None:
    """Raise TypeError or ValueError if `value` is neither None nor a whole number from `least` to `most`."""
    if value is None:
        return
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise OptionTypeError(f"{name} must be a whole number, not {value!r}") from None
    if isinstance(value, bool):
        raise OptionTypeError(f"{name} must be a whole number, not {value!r}")
    if number < least or (most is not None and number > most):
        raise OptionError(f"{name} must be {least} {'or more' if most is None else f'to {most}'}, not {value}")


def require_seconds(name: str, value: float) -> None:
    """Raise ValueError if `value` is not a duration: a finite number above 0."""
    if not 0 < value < math.inf:
        raise OptionError(f"{name} must be a number above 0, not {value!r}")


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cgroup_cpus(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> int | None:
    """Return how many CPUs the cgroup and its ancestors grant, rounded up; None if there is no limit."""
    granted = [cpus for directory in _cgroups("cpu", root, membership) for cpus in _quota_of(directory)]
    return max(1, -int(-min(granted) // 1)) if granted else None


def cgroup_memory(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> int | None:
    """Return how many bytes of memory the cgroup and its ancestors grant; None if there is no limit."""
    granted = [
        int(word)
        for directory in _cgroups("memory", root, membership)
        for word in _words(directory, "memory.max", "memory.limit_in_bytes")
        if word.isdigit()
    ]
    return min(granted, default=None)


def _cgroups(controller: str, root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> Iterator[Path]:
    """Yield the directories of the cgroups (version 1 or 2) that limit this process, from the innermost outwards."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        base = root if not controllers else root / controller if controller in controllers.split(",") else None
        if base is None:
            continue
        group = base / path.lstrip("/")
        for directory in [group, *group.parents]:
            yield directory
            if directory == base:
                break


def _quota_of(directory: Path) -> list[float]:
    """Return the CPU limit in a cgroup's own files, as a list of one number; an empty list without a limit."""
    values = _words(directory, "cpu.max") or [
        *_words(directory, "cpu.cfs_quota_us"),
        *_words(directory, "cpu.cfs_period_us"),
    ]
    if len(values) == 2 and values[0] not in ("max", "-1"):
        return [int(values[0]) / int(values[1])]
    return []


def _words(directory: Path, *names: str) -> list[str]:
    """Return the words of the first of these files that can be read; empty if none can be read."""
    for name in names:
        try:
            return (directory / name).read_text().split()
        except OSError:
            continue
    return []


_T = TypeVar("_T")
_R = TypeVar("_R")


def in_order(work: Callable[[_T], _R], items: Iterable[_T], workers: int | None = None) -> Iterator[_R]:
    """Yield ``work(item)`` for every item, in order; threads run a bounded number of items ahead.

    Parameters
    ----------
    work : callable
        Called on several threads at once.
    items : iterable
        Iterated on this thread, while the work continues.
    workers : int, optional
        Number of threads; by default the number from `available_cpus`.
    """
    workers = workers or available_cpus()
    with ThreadPoolExecutor(workers, thread_name_prefix="packer") as pool:
        yield from results((pool.submit(work, item) for item in items), 2 * workers + 1)


def results(futures: Iterable[Future[_R]], ahead: int) -> Iterator[_R]:
    """Yield the results of futures, in order, with up to `ahead` in progress; on an error, cancel the others.

    Parameters
    ----------
    futures : iterable
        Iterated on this thread, one future for each consumed result.
    ahead : int
    """
    pending: deque[Future[_R]] = deque()
    try:
        for future in futures:
            pending.append(future)
            if len(pending) >= ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Defer Ctrl-C. A process started in the ``with`` block never receives it, not even while it imports its modules.

    Blocking the signal in this thread is not enough: another thread receives it, and Python still interrupts the main
    thread. That could leave a half-started process behind, so Python's handler is deferred too.
    """
    held: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and callable(handler)
    blocking = hasattr(signal, "pthread_sigmask")
    if blocking:
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # starting a process there unblocks the signal
    if ours:
        signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    try:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if blocking else None
        try:
            yield
        finally:
            if before is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:
        if ours:
            signal.signal(signal.SIGINT, handler)
        if held:
            signal.raise_signal(signal.SIGINT)


_START = """\
import sys
packages = {packages!r}
directories, sys.path[:] = dict(zip(packages, sys.argv[1:])), sys.argv[1 + len(packages):]
from importlib.machinery import PathFinder
class Finder:
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [directories[name]]) if name in directories else None
sys.meta_path.insert(0, Finder)
"""


def _directory(package: str) -> str:
    """Return the directory, or zip archive, from which this process imports a package.

    Raises
    ------
    ModuleNotFoundError
        If the process cannot import the package.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return os.path.dirname(os.path.abspath(spec.submodule_search_locations[0]))


def python_command(code: str, *packages: str) -> list[str]:
    """Return a command that runs code in a new Python process, started fast: without ``site`` and Python's variables.

    Parameters
    ----------
    code : str
        The code; it imports modules as this process does.
    *packages : str
        Packages, in addition to packer, that the new process imports from the same location as this process. All other
        packages come from the current ``sys.path``.
    """
    packages = ("packer", *packages)
    start = _START.format(packages=packages) + code
    directories = map(_directory, packages)
    return [sys.executable, "-S", "-E", "-c", start, *directories, *map(os.path.abspath, sys.path)]
