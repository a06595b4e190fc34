"""Who does the work of a conversion: names to `concurrent.futures.Executor`. Nothing else knows which one runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

__all__ = ["EXECUTORS", "available_cpus", "open_executor"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class SerialExecutor(Executor):
    """Runs each task at once, on the thread that submits it."""

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        future: Future[_T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


EXECUTORS: dict[str, Callable[[int], Executor]] = {
    "serial": lambda workers: SerialExecutor(),
    # Reading, decoding, resizing and encoding all release Python's lock.
    "threads": lambda workers: ThreadPoolExecutor(workers, thread_name_prefix="packer"),
}


def open_executor(name: str, workers: int) -> Executor:
    """Return a new executor of the kind `name`, a key of `EXECUTORS`, with `workers` workers."""
    return EXECUTORS[name](workers)


def available_cpus() -> int:
    """Return how many CPUs this process may really use: by affinity, by its cgroup's quota, by SLURM's allocation."""
    limits = [_affinity()]
    quota = _cgroup_quota()
    if quota is not None:
        limits.append(quota)
    slurm = os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("SLURM_CPUS_ON_NODE", "")
    if slurm.isdigit():
        limits.append(int(slurm))
    return max(1, min(limits))


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cgroup_quota(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> int | None:
    """Return the CPUs that the cgroup and those above it grant, rounded up; None where there is no limit."""
    granted: list[float] = []
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        base = root if not controllers else root / "cpu" if "cpu" in controllers.split(",") else None
        if base is None:
            continue
        group = base / path.lstrip("/")
        for directory in [group, *group.parents]:
            granted += _quota_of(directory)
            if directory == base:
                break
    return max(1, -int(-min(granted) // 1)) if granted else None


def _quota_of(directory: Path) -> list[float]:
    def read(name: str) -> list[str]:
        try:
            return (directory / name).read_text().split()
        except OSError:
            return []

    values: list[Any] = read("cpu.max") or [*read("cpu.cfs_quota_us"), *read("cpu.cfs_period_us")]
    if len(values) == 2 and values[0] not in ("max", "-1"):
        return [int(values[0]) / int(values[1])]
    return []
