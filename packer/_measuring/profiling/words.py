"""A profile in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from packer._measuring.profiling.clocks import Cost
from packer._measuring.profiling.packed import Packed
from packer._measuring.profiling.report import CAUSES
from packer._measuring.profiling.seen import Seen
from packer._measuring.profiling.stages import Stages
from packer._measuring.profiling.timings import Timings
from packer._storage.limits import available_cpus
from packer.errors import printable

__all__ = ["GAIN", "SHARED", "Findings", "sentences"]

_FEW = 10
_EXPLAINED = 0.5
"""The share of the waiting that the stages explain at least, where nothing else is to be said."""

_NAMES = {"items": "the rest of dataset[i]", "transfer": "the copy to the device"}
_COLLATION = "The collate_fn runs for every batch: stack tensors of one size, as torch's default_collate does."
_COLLATION_BY_TORCH = (
    "A dataset in memory can be asked for a batch at once: DataLoader(dataset, batch_size=None, "
    "sampler=torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(dataset), 64, False))."
)

SHARED = 2.0
"""How many times as long work takes at most where two threads share a core."""

GAIN = 1.2
"""How many times as fast a change makes the loop, from which on it is worth while."""


@dataclass(kw_only=True)
class Findings:
    """What was found of a loader so far.

    Attributes
    ----------
    waiting, error : float
        The share of the time that the loop, or the GPU, waits, and its standard error.
    idle : float, optional
        The GPU's idle share.
    cause : str
        One of `CAUSES`.
    stages : Stages, optional
    unseen : str
        Why there are none.
    fewer : float, optional
        How many times as fast a pass is with as many workers as processors, where there are more.
    packed : list of Packed
    unpacked : str
        Why there are none.
    gains : dict of str to float
        How many times as fast the loop would be, by what is changed.
    packing_helps : bool
    keeps_up : bool
        Whether the loop hardly waits after its first batch.
    """

    timings: Timings
    seen: Seen
    waiting: float
    error: float
    idle: float | None = None
    cause: str = "unknown"
    stages: Stages | None = None
    unseen: str = ""
    fewer: float | None = None
    packed: list[Packed] = field(default_factory=list)
    unpacked: str = ""
    gains: dict[str, float] = field(default_factory=dict)
    packing_helps: bool = False
    keeps_up: bool = False

    def made(self, sample: Cost, workers: int) -> float:
        """Return every how many seconds a batch comes of samples that cost so much, from so many workers."""
        batch, count = self.seen.batch_size, max(workers, 1)
        return batch * (sample.cpu / min(count, available_cpus()) + sample.blocked / count)

    def interval(self, made: float, workers: int, sample: Cost) -> float:
        """Return the seconds from batch to batch where one comes every `made` seconds, of samples that cost so much.

        Loader and loop share the processors: a batch and its step take no less than all processors need for both.
        """
        least = (self._step_cpu + sample.cpu * self.seen.batch_size) / available_cpus()
        return max(self.step + made if workers == 0 else max(self.step, made), least)

    @property
    def step(self) -> float:
        """The seconds that a step works on its batch."""
        if self.idle is None:
            return self.timings.work
        # The loop works while the GPU does: its own time says little of the step.
        return max(self.timings.interval * (1 - self.idle), 0.0)

    @property
    def _step_cpu(self) -> float:
        """The seconds that a step itself is on processors."""
        if self.seen.apart or self.stages is None:
            return self.timings.work_cpu
        here = self.stages.total.cpu * self.seen.batch_size * (SHARED if self.seen.threaded else 1)
        return max(self.timings.work_cpu - here, 0.0)


def sentences(found: Findings) -> Iterator[str]:
    """Yield what a person should know, the most important first."""
    packing = "; ".join(filter(None, [_cause(found), _packing(found)]))
    yield f"{_waiting(found)}{':' if packing else ''} {packing}".rstrip() + "."
    yield from _own_cure(found)
    if found.stages is not None:
        yield _stages(found.stages)
    if found.packed:
        yield _basis(found)
    yield from _notes(found)


def _waiting(found: Findings) -> str:
    timings = found.timings
    times = f"{_ms(timings.wait)} of {_ms(timings.interval)}"
    if found.idle is not None:
        return f"The GPU is idle for {found.idle:.0%} of the time for want of a batch; the loop waits for {times}"
    sure = f", give or take {2 * found.error:.0%}" if 0.005 <= found.error < 1 else ""
    return f"{found.waiting:.0%} of each step waits for data ({times}{sure})"


def _cause(found: Findings) -> str:
    """Return what takes the time."""
    if found.cause == "step":
        return f"the loader keeps up, {CAUSES['step']}; packing will not help you"
    stages = found.stages
    if stages is None or found.cause == "unknown":
        return ""
    if found.cause not in stages.costs:
        return CAUSES[found.cause]
    name = _NAMES.get(found.cause, found.cause)
    return f"{name} takes {_ms(stages.costs[found.cause].total)} of a sample's {_ms(stages.total.total)}"


def _packing(found: Findings) -> str:
    """Return what packing would give."""
    gains = {name.partition(" with ")[2]: gain for name, gain in found.gains.items() if name.startswith("packing")}
    if found.cause == "step" or found.stages is None:
        return ""
    if not gains:
        return "this is a pack already, and packing will not help you" if found.seen.of_packer else ""
    ordered = sorted(gains.items(), key=lambda item: -item[1])
    would = ", with the pack on this machine, would give about" if found.cause == "reading" else " would give about"
    said = ", ".join(
        f"packing {f'with {options}' if options else 'alone'}{would if not place else ''} {_times(gain)}"
        for place, (options, gain) in enumerate(ordered)
    )
    return said if found.packing_helps else f"packing will not help you: {said}"


def _stages(stages: Stages) -> str:
    total = stages.total.total
    ordered = sorted(stages.costs.items(), key=lambda item: -item[1].total)
    parts = [f"{_NAMES.get(name, name)} {_ms(cost.total)}" for name, cost in ordered if cost.total >= 0.01 * total]
    blocked = stages.total.blocked
    waits = f"; {_ms(blocked)} of this is waiting, not computing" if blocked > 0.1 * total else ""
    return f"A sample on one processor: {', '.join(parts)}{waits} (mean of {stages.samples}, one stage at a time)."


def _basis(found: Findings) -> str:
    """Return what the figures for packing are based on."""
    staged = ""
    if found.cause == "reading":
        staged = " A pack on the disk that is slow was not measured: `packer stage` copies one to this machine."
    options = "transform= and fuse=True" if not found.seen.of_packer else "the dataset's own settings"
    return (
        f"What packing would give is measured on {found.packed[0].samples} of the images: they were packed in memory, "
        f"and read with {options} on as many workers.{staged}"
    )


def _own_cure(found: Findings) -> Iterator[str]:
    """Yield what helps against the cause itself."""
    seen, cause = found.seen, found.cause
    numbers = ((name, gain) for name, gain in found.gains.items() if not name.startswith("packing"))
    workers = max(numbers, key=lambda number: number[1], default=None)
    if cause in ("too few workers", "too many workers") and workers is not None:
        instead = f" instead of {seen.workers}"
        yield f"Say {workers[0]}{instead}: that alone gives about {_times(workers[1])}."
    elif cause == "transform":
        yield (
            "The transform runs on every image: leave out what the training does not need, use torchvision's v2 on "
            "tensors, or do it for whole batches on the GPU."
        )
    elif cause == "collation":
        yield _COLLATION_BY_TORCH if getattr(seen.collate, "__name__", "") == "default_collate" else _COLLATION
    elif cause == "lock":
        yield (
            f"Two threads wait for each other for {found.stages.lock if found.stages else 0:.0%} of their time: "
            f"a transform in Python holds the lock. Say processes={seen.workers}, or torch's DataLoader with workers."
        )
    elif cause == "items":
        yield "Reading, decoding and what else dataset[i] does cannot be told apart from outside; cProfile can."
    elif cause == "transfer":
        yield "pin_memory=True and packer.CUDAPrefetcher copy the next batch while the GPU works."
    if found.unseen:
        yield f"What takes the time cannot be told: {printable(found.unseen)}."
    if found.unpacked and found.stages is not None:
        yield f"What packing would give was not measured: {printable(found.unpacked)}."
    if workers is not None and cause not in ("too few workers", "too many workers") and workers[1] > GAIN:
        yield f"{workers[0]} would give about {_times(workers[1])}."


def _notes(found: Findings) -> Iterator[str]:
    timings = found.timings
    if timings.steps < _FEW or not timings.tells:
        at_a_time = f", and {timings.burst} workers make as many at a time" if timings.burst > 1 else ""
        yield f"Only {timings.steps} steps were measured{at_a_time}, which is little to go by."
    if timings.of_start() > 0.2 and timings.complete:
        starts = found.seen.kind == "DataLoader" and found.seen.workers and not found.seen.loader.persistent_workers
        cure = ": persistent_workers=True starts workers once, and not for each pass" if starts else ""
        yield f"The first batch came after {timings.first:.1f} s, {timings.of_start():.0%} of the pass{cure}."
    if found.stages is not None and found.cause not in ("step", "lock", "too many workers"):
        made = found.made(found.stages.total, found.seen.workers)
        if made < _EXPLAINED * timings.wait:
            yield (
                f"By its stages a batch would take {_ms(made)}. The rest is the way from a worker to the loop, or "
                "other programs use the processors (`packer doctor` says their load)."
            )
    if found.stages is not None and found.seen.kind.endswith("DataLoader") and not found.seen.workers:
        yield "Without workers (num_workers=0) the training loop makes each batch itself, and waits for all of it."


def _times(gain: float) -> str:
    """Return how many times as fast something is."""
    return f"{gain:.2f} x" if gain < 1.2 else f"{gain:.1f} x" if gain < 10 else f"{gain:.0f} x"


def _ms(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.1f} ms" if seconds >= 1e-4 else f"{1e6 * seconds:.0f} µs"
