"""Timing of a pass over a loader: each step's wait for its batch, and the idle time of a GPU.

Kernels are queued: the GPU may be busy while the loop waits for a batch. So, if CUDA is in use, two events are recorded
on the current stream: one when the loop requests a batch, and one when the loop receives it. When the GPU reaches an
event in its queue, it records the time in the event. The time between the two events is the time for which the GPU was
idle because it lacked this batch. If the GPU was still busy with earlier steps, this time is 0. The measurement never
waits for the GPU.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

_BLOCKS = 20
_FEWEST_BLOCKS = 5  # with fewer blocks of bursts, the standard error is unknown


class Timings:
    """The seconds for which each step of one pass waited and worked.

    `begin` starts the pass. After it, each batch is recorded with `receive` and `finish`. All workers make their
    batches at the same time, so batches come in bursts. The first burst arrives with the first batch, so its batches do
    not represent the rest of the pass.

    Attributes
    ----------
    waits, works : array of float
        For each batch, the seconds for which the loop waited for it, and the seconds for which the loop then worked
        before requesting the next batch.
    burst : int
        Number of batches that are made at the same time, each by its own worker.
    cpu : float
        Processor seconds of this process from the first batch to the end of the pass.
    complete : bool
        Whether the pass was completed.
    """

    def __init__(self) -> None:
        self.waits, self.works = array("d"), array("d")
        self.gpu = GPUIdle()
        self.burst = 1
        self.cpu = 0.0
        self.complete = False
        self._requested = self._received = 0.0
        self._cpu_of_start = 0.0

    def begin(self) -> None:
        """Record that the loop requests its first batch, before workers start."""
        self._requested = time.perf_counter()
        self.gpu.requested()

    def receive(self) -> None:
        """Record that the loop has received a batch."""
        self._received = time.perf_counter()
        self.gpu.received()
        if not self.waits:
            self._cpu_of_start = time.process_time()
        self.waits.append(self._received - self._requested)

    def finish(self) -> None:
        """Record that the loop has finished its batch, and requests the next one."""
        self._requested = time.perf_counter()
        self.works.append(self._requested - self._received)

    def end(self) -> None:
        """Record the end of the pass."""
        if self.waits:
            self.cpu = time.process_time() - self._cpu_of_start

    @property
    def is_working(self) -> bool:
        """Whether the loop has a batch that it has not finished."""
        return len(self.waits) > len(self.works)

    @property
    def steps(self) -> int:
        """The number of batches."""
        return len(self.works)

    @property
    def first(self) -> float:
        """Seconds until the first batch, including the start of workers."""
        return self.waits[0] if self.waits else 0.0

    @property
    def seconds(self) -> float:
        """Seconds of the pass."""
        return sum(self.waits) + sum(self.works)

    @property
    def is_representative(self) -> bool:
        """Whether the pass had a whole burst after the first one."""
        return self.steps >= 2 * self.burst

    @property
    def _counted(self) -> slice:
        """The batches to evaluate: whole bursts after the first burst or, if there are none, all later batches."""
        if not self.is_representative:
            return slice(1 if self.steps > 1 else 0, self.steps)
        return slice(self.burst, self.steps // self.burst * self.burst)

    @property
    def interval(self) -> float:
        """Mean seconds from batch to batch, without the first batches."""
        return self.wait + self.work

    @property
    def wait(self) -> float:
        """Mean seconds for which a step waits. The first steps are left out, unless there are no others."""
        waits = self.waits[self._counted] or self.waits
        return sum(waits) / max(len(waits), 1)

    @property
    def work(self) -> float:
        """Mean seconds of a step without its wait."""
        return sum(self.works) / max(self.steps, 1)

    @property
    def work_cpu(self) -> float:
        """Mean processor seconds of this process per step, including its work for the loader."""
        return self.cpu / max(self.steps, 1)

    def waiting(self) -> tuple[float, float]:
        """Return the share of the time for which the loop waits, without the first batches, and its standard error.

        The standard error is computed for a ratio estimate, from blocks of consecutive steps. A block consists of whole
        bursts. The error is 1 if there are too few blocks.
        """
        pairs = list(zip(self.waits, self.works, strict=False))[self._counted]
        if not pairs:
            return 0.0, 1.0
        size = max(len(pairs) // _BLOCKS // self.burst, 1) * self.burst
        blocks = [pairs[begin : begin + size] for begin in range(0, len(pairs), size)]
        waits = [sum(wait for wait, _ in block) for block in blocks]
        totals = [sum(wait + work for wait, work in block) for block in blocks]
        share = sum(waits) / max(sum(totals), 1e-12)
        if len(blocks) < (_FEWEST_BLOCKS if self.burst > 1 else 2):
            return share, 1.0
        spread = sum((wait - share * total) ** 2 for wait, total in zip(waits, totals, strict=True))
        mean = sum(totals) / len(totals)
        return share, math.sqrt(spread / (len(blocks) - 1) / len(blocks)) / max(mean, 1e-12)

    def start_share(self) -> float:
        """Return the share of the pass that its start takes: the wait for the first batch, less an ordinary wait."""
        return max(self.first - self.wait, 0.0) / max(self.seconds, 1e-12)


class GPUIdle:
    """The time for which the current CUDA stream was idle while the loop waited."""

    def __init__(self) -> None:
        self._open: Any = None
        self._origin: Any = None
        self._last: Any = None
        self._pending: deque[tuple[Any, Any]] = deque()
        self._idle = 0.0
        self._steps = 0

    def requested(self) -> None:
        """Record that the loop requests a batch."""
        self._open = self._event()

    def received(self) -> None:
        """Record that the loop has received the batch."""
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
        """Return the share of the pass, after its first batch, in which the GPU was idle; None without CUDA.

        Waits once for the GPU.
        """
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


def measured_pass(loader: Iterable[Any], timings: Timings, steps: int | None = None) -> Iterator[Any]:
    """Yield the batches of a pass, or the first `steps` of them, and record their times."""
    timings.begin()
    batches = iter(loader)
    try:
        for batch in itertools.islice(batches, steps):
            timings.receive()
            try:
                yield batch
            finally:
                del batch  # only the loop decides how long a batch lives
                timings.finish()
            timings.gpu.requested()
        timings.complete = True
    finally:
        timings.end()
