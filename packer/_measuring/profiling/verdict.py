"""What the measurements say: the cause of the waiting, and how many times as fast the loop would be with which change.

The loop's time from batch to batch follows from two numbers: how long the step works, and how long the loader needs for
a batch. Without workers the two follow one another; with workers the longer one counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from packer._measuring.profiling.clocks import Cost
from packer._measuring.profiling.packed import Packed, UnpackedError, measure_packed
from packer._measuring.profiling.report import ProfileReport
from packer._measuring.profiling.seen import see
from packer._measuring.profiling.stages import measure_stages
from packer._measuring.profiling.timings import Timings
from packer._measuring.profiling.words import GAIN, Findings, sentences
from packer._measuring.profiling.workers import fewer_workers
from packer._measuring.randomness import keeping_random_states
from packer._storage.limits import available_cpus

__all__ = ["diagnose"]

WORTH_A_WORD = 0.1
"""The share of waiting from which on something is to be gained."""

_CERTAIN = 0.03  # what the share of waiting is at least, within its error, where it counts
_STARTING = 0.5  # the share of a pass from which on the start of many workers is worth a look
_LOCKED = 0.25  # of the time that two threads make items; 0.5 is what Python alone gives
_OUTWEIGHS = 1.5  # how much more a stage must have to give than the number of workers, which is changed at no cost
_DOMINANT = 4.0  # and at least so much


def diagnose(loader: Iterable[Any], timings: Timings, seconds: float) -> ProfileReport:
    """Return the report of a pass, for which some samples are made again, within some seconds."""
    share, error = timings.waiting()
    idle = timings.gpu.share()
    if idle is not None:
        share, error = idle, 1.0  # of the GPU's time, whose spread nothing tells
    found = Findings(timings=timings, seen=see(loader), waiting=share, error=error, idle=idle)
    starting = timings.of_start() > _STARTING and timings.steps > 1
    found.keeps_up = found.waiting < WORTH_A_WORD or (error < 1 and found.waiting - 2 * error < _CERTAIN)
    if found.keeps_up and not (starting and found.seen.workers > available_cpus()):
        found.cause = "step"
    elif seconds > 0:
        with keeping_random_states():
            _find(found, seconds)
    return _report(found)


def _find(found: Findings, seconds: float) -> None:
    """Find out what the batches wait for, and what would help."""
    seen = found.seen
    if seen.unseen:
        found.unseen = seen.unseen
        return
    try:
        found.stages = measure_stages(seen, 0.4 * seconds)
    except Exception as error:  # a person's dataset, which may not be asked outside of its workers
        found.unseen = f"making a sample outside of the loop failed: {type(error).__name__}: {error}"
        return
    cpus = available_cpus()
    with contextlib.suppress(Exception):  # workers that cannot be started again say nothing, and end no training
        if seen.kind == "DataLoader" and seen.workers > cpus:
            found.fewer = fewer_workers(seen, cpus, _batches(found), 0.4 * seconds)
    found.cause = _cause(found, cpus)
    try:
        found.packed = measure_packed(seen, found.stages, 0.3 * seconds)
    except UnpackedError as why:
        found.unpacked = str(why)
    except Exception as error:  # such as no room for the packs
        found.unpacked = f"{type(error).__name__}: {error}"
    _gains(found, cpus)


def _batches(found: Findings) -> int:
    """Return how many batches a pass has."""
    try:
        return len(found.seen.loader)
    except TypeError:
        return found.timings.steps


def _cause(found: Findings, cpus: int) -> str:
    stages = found.stages
    assert stages is not None
    if found.keeps_up:  # and workers take long to start
        return "too many workers" if found.fewer is not None and found.fewer > GAIN else "step"
    if stages.lock > _LOCKED:
        return "lock"
    work = stages.total
    if stages.costs.get("reading", Cost()).blocked > 0.5 * work.total:
        return "reading"
    largest = max(stages.costs, key=lambda stage: stages.costs[stage].total, default="unknown")
    without = 1 / max(1 - stages.share(largest), 1e-3)  # how many times as fast a sample is made without the stage
    if found.fewer is not None and found.fewer > GAIN and without < _DOMINANT:
        return "too many workers"
    more = _more_workers(found, cpus)
    if more > GAIN and without < max(_DOMINANT, _OUTWEIGHS * more):
        return "too few workers"
    return largest


def _more_workers(found: Findings, cpus: int) -> float:
    """Return how many times as fast the loop would be with a worker for each processor."""
    seen, stages = found.seen, found.stages
    assert stages is not None
    if seen.workers >= cpus:
        return 1.0
    work = stages.total.total * seen.batch_size
    now = found.interval(work / max(seen.workers, 1), seen.workers)
    return now / max(found.interval(work / cpus, cpus), 1e-9)


def _gains(found: Findings, cpus: int) -> None:
    """Note what each change would give, in times as fast."""
    seen, stages = found.seen, found.stages
    assert stages is not None
    name = "num_workers" if seen.kind == "DataLoader" else "threads"
    if found.fewer is not None:
        found.gains[f"{name}={cpus}"] = found.fewer
    elif seen.workers < cpus:
        found.gains[f"{name}={cpus}"] = _more_workers(found, cpus)
    for packed in found.packed:
        found.gains[" with ".join(filter(None, ["packing", packed.options]))] = _packing(found, packed)


def _packing(found: Findings, packed: Packed) -> float:
    """Return how many times as fast the loop would be with batches of a pack, on the same workers."""
    assert found.stages is not None
    batch = found.seen.batch_size
    now, then = found.stages.total.total * batch, packed.cost.total * batch
    # What a batch takes beyond its stages, such as the way from a worker to the loop, stays.
    measured = found.timings.interval if found.seen.workers else found.timings.wait
    made = now / max(found.seen.workers, 1)
    scale = max(measured / max(made, 1e-12), 1.0) if found.seen.workers else measured / max(now, 1e-12)
    before = found.interval(made * scale, found.seen.workers)
    after = found.interval(then / max(found.seen.workers, 1) * scale, found.seen.workers)
    return before / max(after, 1e-9)


def _report(found: Findings) -> ProfileReport:
    timings, stages = found.timings, found.stages
    helps = any(gain > GAIN for name, gain in found.gains.items() if name.startswith("packing"))
    found.packing_helps = helps and found.cause not in ("step", "unknown")
    return ProfileReport(
        cause=found.cause,
        waiting=found.waiting,
        uncertainty=found.error,
        gpu_idle=found.idle,
        steps=timings.steps,
        wait=timings.wait,
        step=timings.work,
        first=timings.first,
        stages={name: cost.total for name, cost in stages.costs.items()} if stages else {},
        samples=stages.samples if stages else 0,
        gains=dict(found.gains),
        packing_helps=found.packing_helps,
        sentences=tuple(sentences(found)),
    )
