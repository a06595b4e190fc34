"""What the measurements say: the cause of the waiting, and how many times as fast the loop would be with which change.

The loop's time from batch to batch follows from two numbers: how long the step works, and how long the loader needs for
a batch. Without workers the two follow one another; with workers the longer one counts.
"""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterable
from typing import Any

from packer._measuring.profiling.clocks import Cost
from packer._measuring.profiling.packed import Packed, UnpackedError, measure_packed
from packer._measuring.profiling.report import ProfileReport
from packer._measuring.profiling.seen import Seen, see
from packer._measuring.profiling.stages import measure_stages
from packer._measuring.profiling.timings import Timings
from packer._measuring.profiling.words import GAIN, SHARED, Findings, sentences
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
_BUSIEST = 0.02  # of the processors, that are taken to be left beside other programs
_A_BATCH = 0.0005  # seconds that the loop needs at least to take a batch from a worker
_FORKED, _SPAWNED = 0.02, 2.0  # seconds that the start of a worker takes


def diagnose(loader: Iterable[Any], timings: Timings, seconds: float) -> ProfileReport:
    """Return the report of a pass, for which some samples are made again, within some seconds."""
    seen = see(loader)
    timings.burst = seen.burst
    share, error = timings.waiting()
    idle = timings.gpu.share()
    if idle is not None:
        share, error = idle, 1.0  # of the GPU's time, whose spread nothing tells
    found = Findings(timings=timings, seen=seen, waiting=share, error=error, idle=idle)
    starting = timings.of_start() > _STARTING and timings.steps > 1
    found.keeps_up = found.waiting < WORTH_A_WORD or (error < 1 and found.waiting - 2 * error < _CERTAIN)
    if found.keeps_up and timings.tells and not (starting and seen.workers > available_cpus()):
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
            sample, step = found.stages.total.total, found.step
            found.fewer = fewer_workers(seen, cpus, _batches(found), sample=sample, seconds=0.4 * seconds, step=step)
    found.cause = _cause(found, cpus)
    if found.cause == "step":
        return
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
    fewer = found.fewer is not None and found.fewer > GAIN
    if found.keeps_up and fewer:  # after its first batch, for which it waits long
        return "too many workers"
    made = found.made(stages.total, found.seen.workers)
    if found.keeps_up and (found.timings.tells or made <= found.timings.work):
        return "step"
    return _slowest(found, fewer, cpus)


def _slowest(found: Findings, fewer: bool, cpus: int) -> str:
    """Return what a loader that does not keep up is slow for; `fewer` workers may be faster."""
    stages = found.stages
    assert stages is not None
    if stages.lock > _LOCKED:
        return "lock"
    work = stages.total
    if stages.costs.get("reading", Cost()).blocked > 0.5 * work.total:
        return "reading"
    largest = max(stages.costs, key=lambda stage: stages.costs[stage].total, default="unknown")
    without = 1 / max(1 - stages.share(largest), 1e-3)  # how many times as fast a sample is made without the stage
    if fewer and without < _DOMINANT:
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
    now = found.interval(found.made(stages.total, seen.workers), seen.workers, stages.total)
    more = stages.total + stages.handing if not seen.workers else stages.total
    made = found.made(more, cpus)
    if seen.kind == "DataLoader":
        made = max(made, _A_BATCH) + _start(seen, cpus - seen.workers) / max(_batches(found), 1)
    return now / max(found.interval(made, cpus, more), 1e-9)


def _start(seen: Seen, workers: int) -> float:
    """Return how long the start of some workers takes, which come one after the other where they are forks."""
    if seen.loader.persistent_workers:
        return 0.0
    context, method = seen.loader.multiprocessing_context, multiprocessing.get_start_method(allow_none=True)
    if context is not None:
        method = context.get_start_method()
    elif method is None:  # nobody has decided yet, nor does this: a program may do so later
        method = multiprocessing.get_all_start_methods()[0]
    return _FORKED * workers if method == "fork" else _SPAWNED


def _gains(found: Findings, cpus: int) -> None:
    """Note what each change would give, in times as fast."""
    seen, stages = found.seen, found.stages
    assert stages is not None
    name = "threads" if seen.kind == "Loader" else "num_workers"
    if found.fewer is not None:
        found.gains[f"{name}={cpus}"] = found.fewer
    elif seen.workers < cpus:
        found.gains[f"{name}={cpus}"] = _more_workers(found, cpus)
    if found.cause == "handing over":
        here = stages.total - stages.costs["handing over"]
        now = found.interval(found.made(stages.total, seen.workers), seen.workers, stages.total)
        found.gains[f"{name}=0"] = now / max(found.interval(found.made(here, 0), 0, here), 1e-9)
    for packed in found.packed:
        found.gains[" with ".join(filter(None, ["packing", packed.options]))] = _packing(found, packed)


def _packing(found: Findings, packed: Packed) -> float:
    """Return how many times as fast the loop would be with batches of a pack, on the same workers."""
    assert found.stages is not None
    workers, stages = found.seen.workers, found.stages
    now, then = found.made(stages.total, workers), found.made(packed.cost, workers)
    measured = found.timings.interval if workers else found.timings.wait
    # What a batch takes beyond its stages grows with them where processors are shared, with the other thread of a core
    # or with other programs. What is still beyond, such as the way from a worker to the loop, stays.
    scale = min(measured / max(now, 1e-12), SHARED / max(1 - stages.others, _BUSIEST))
    if workers:
        scale = max(scale, 1.0)
    stays = max(measured - now * scale, 0.0)
    before = found.interval(now * scale + stays, workers, stages.total)
    after = found.interval(then * scale + stays, workers, packed.cost)
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
