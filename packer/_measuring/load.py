"""What other processes do with the processors meanwhile."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

__all__ = ["HAS_PROC", "Load", "busy_seconds", "others_share"]

HAS_PROC = sys.platform == "linux"


class Load:
    """Measures, from `with` to its end, which share of the processors was busy for others than this process.

    Attributes
    ----------
    others : float or None
        That share; None before the end, and where the system does not say.
    """

    others: float | None = None

    def __enter__(self) -> Load:
        self._began = time.perf_counter(), busy_seconds(), _own_seconds()
        return self

    def __exit__(self, *error: object) -> None:
        seconds, busy, own = (
            after - before
            for after, before in zip((time.perf_counter(), busy_seconds(), _own_seconds()), self._began, strict=True)
        )
        self.others = others_share(busy - own, seconds)


def others_share(busy: float, seconds: float) -> float | None:
    """Return the share, 0 to 1, of this process's CPUs that were `busy` for others in these seconds, in CPU seconds.

    It is a share of the CPUs of the affinity, which `busy_seconds` counts, whatever a quota leaves of them.
    """
    if not HAS_PROC or seconds <= 0:
        return None
    return min(1.0, max(0.0, busy) / seconds / len(os.sched_getaffinity(0)))


def busy_seconds() -> float:
    """Return how long the CPUs of this process were busy, or taken by the hypervisor, since the machine started."""
    if not HAS_PROC:
        return 0.0
    total = 0
    with contextlib.suppress(OSError):
        wanted = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
        for line in Path("/proc/stat").read_text().splitlines():
            name, *values = line.split()
            if name in wanted:
                user, nice, system, _, _, irq, softirq, steal, *_ = map(int, values)
                total += user + nice + system + irq + softirq + steal
    return total / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Return the CPU time of this process, and of its children that ended."""
    return sum(os.times()[:4])
