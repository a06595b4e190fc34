"""`packer.profile`: measures how long a training loop waits for data, finds the cause, and suggests changes.

The interval between two batches follows from two times: the duration of a training step, and the loader's time for a
batch. Without workers, the interval is their sum; with workers, it is the longer of the two. From this, `diagnose`
finds the cause of the waiting and the speed-up from each possible change; `sentences` writes the report.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from packer._display import Block, Displayable
from packer._measuring.harness import Cost, keeping_random_states
from packer._measuring.loader_stages import (
    LoaderInfo,
    PackedCost,
    Stages,
    UnpackedError,
    fewer_workers,
    inspect_loader,
    measure_packed,
    measure_stages,
)
from packer._measuring.timing import Timings, measured_pass
from packer._storage.system import available_cpus, require_count
from packer.errors import OptionError, OptionTypeError, printable

CAUSES = {
    "step": "the training step itself takes the time",
    "reading": "reading takes the time: the disk or the network",
    "decoding": "decoding takes the time",
    "items": "what dataset[i] does takes the time",
    "transform": "the transform takes the time",
    "collation": "collation takes the time",
    "handing over": "handing batches over from the workers takes the time",
    "transfer": "the copy to the device takes the time",
    "too few workers": "too few workers make the batches",
    "too many workers": "too many workers share the processors",
    "lock": "threads wait for Python's lock",
    "unknown": "the cause is unknown",
}
"""The causes of waiting, and their descriptions in a report."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ProfileReport(Displayable):
    """A report on how long training steps wait for data, the cause, and remedies. ``print(report)`` prints sentences.

    Attributes
    ----------
    cause : str
        ``"step"``: the loader keeps up, and the training step determines the speed. Any other value is the stage that
        delays batches: ``"reading"``, ``"decoding"``, ``"items"`` (all of ``dataset[i]``, if it cannot be divided into
        stages), ``"transform"``, ``"collation"``, ``"handing over"`` (from workers to the loop), ``"transfer"``, ``"too
        few workers"``, ``"too many workers"``, ``"lock"`` (Python's) or ``"unknown"``.
    waiting : float
        The share of the pass, 0 to 1, for which the loop waits. With CUDA, the share for which the GPU is idle. The
        time before the first batch is not counted.
    uncertainty : float
        The standard error of `waiting`; 1 if it is unknown.
    gpu_idle : float or None
        The share of the time that the GPU was idle because no batch was ready; None without CUDA.
    steps : int
        Number of measured batches.
    wait, step : float
        Mean seconds that a step waits for its batch, and mean seconds that it computes.
    first : float
        Seconds until the first batch, including the start of the workers.
    stages : dict of str to float
        Seconds of processor time for one sample, by stage. Empty if the stages were not measured.
    samples : int
        Number of samples with which `stages` was measured.
    gains : dict of str to float
        The factor by which each change would speed up the loop: ``"packing"``, ``"packing with --resize 256"``, and
        numbers of workers such as ``"num_workers=2"``. Contains only changes with a measured or derived factor.
    packing_helps : bool
        Whether one of the kinds of packing in `gains` is worthwhile.
    sentences : tuple of str
        The report as text.
    """

    cause: str
    waiting: float
    uncertainty: float
    gpu_idle: float | None
    steps: int
    wait: float
    step: float
    first: float
    stages: dict[str, float] = field(default_factory=dict)
    samples: int = 0
    gains: dict[str, float] = field(default_factory=dict)
    packing_helps: bool = False
    sentences: tuple[str, ...] = ()

    def _blocks(self) -> Iterable[Block]:
        return self.sentences

    def to_json(self) -> dict[str, Any]:
        """Return the report as numbers, strings, lists and dicts."""
        return asdict(self)


_FEW_STEPS = 10
_EXPLAINED = 0.5
"""The report has a remark if the measured stages explain less than this share of the waiting."""

_NAMES = {"items": "the rest of dataset[i]", "transfer": "the copy to the device"}
_COLLATION = "The collate_fn runs for every batch: stack tensors of one size, as torch's default_collate does."
_COLLATION_BY_TORCH = (
    "A dataset in memory can be asked for a batch at once: DataLoader(dataset, batch_size=None, "
    "sampler=torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(dataset), 64, False))."
)

_SHARED_CORE = 2.0
"""The largest factor by which work slows down when two threads share a core."""

_WORTHWHILE = 1.2
"""The smallest speed-up of the loop for which a change is recommended."""


@dataclass(kw_only=True)
class ProfileFindings:
    """The findings on a loader; `diagnose` completes them step by step.

    Attributes
    ----------
    timings : Timings
    info : LoaderInfo
    waiting, error : float
        The share of the time for which the loop (with CUDA, the GPU) waits, and the standard error of this share.
    idle : float, optional
        The share of the time for which the GPU is idle.
    cause : str
        One of `CAUSES`.
    stages : Stages
    unseen : str
        The reason why the stages were not measured; empty if they were.
    fewer : float, optional
        The speed-up of a pass if the loader had only one worker for each processor; None unless the loader has more
        workers than processors.
    packed : list of PackedCost
    unpacked : str
        The reason why packing was not measured; empty if it was.
    gains : dict of str to float
        The speed-up of the loop from each change.
    packing_helps : bool
    keeps_up : bool
        Whether the loop hardly waits after its first batch.
    """

    timings: Timings
    info: LoaderInfo
    waiting: float
    error: float
    idle: float | None = None
    cause: str = "unknown"
    stages: Stages = field(default_factory=Stages)
    unseen: str = ""
    fewer: float | None = None
    packed: list[PackedCost] = field(default_factory=list)
    unpacked: str = ""
    gains: dict[str, float] = field(default_factory=dict)
    packing_helps: bool = False
    keeps_up: bool = False

    def batch_interval(self, sample: Cost, workers: int) -> float:
        """Return the seconds that the workers together need for a batch, computed from the cost of a sample."""
        batch, count = self.info.batch_size, max(workers, 1)
        return batch * (sample.cpu / min(count, available_cpus()) + sample.blocked / count)

    def loop_interval(self, batch: float, workers: int, sample: Cost) -> float:
        """Return the seconds from one batch of the loop to the next.

        The loader and the loop share the processors, so the interval is at least the time that all processors need for
        a batch and its step.

        Parameters
        ----------
        batch : float
            The seconds in which the workers, or the loop itself, make a batch.
        workers : int
        sample : Cost
            The cost of a sample.
        """
        least = (self._step_cpu + sample.cpu * self.info.batch_size) / available_cpus()
        return max(self.step + batch if workers == 0 else max(self.step, batch), least)

    @property
    def step(self) -> float:
        """The seconds of a training step, without its wait for the batch."""
        if self.idle is None:
            return self.timings.work
        # The loop only queues work for the GPU, so the loop's own time says little about the duration of a step.
        return max(self.timings.interval * (1 - self.idle), 0.0)

    @property
    def _step_cpu(self) -> float:
        """The processor seconds of a step, without those that the loader uses in the same process."""
        if self.info.in_processes:
            return self.timings.work_cpu
        here = self.stages.total.cpu * self.info.batch_size * (_SHARED_CORE if self.info.threaded else 1)
        return max(self.timings.work_cpu - here, 0.0)


def sentences(found: ProfileFindings) -> Iterator[str]:
    """Yield the sentences of a report, the most important first."""
    packing = "; ".join(filter(None, [_cause_in_words(found), _packing_in_words(found)]))
    yield f"{_waiting(found)}{':' if packing else ''} {packing}".rstrip() + "."
    yield from _own_cure(found)
    if found.stages.samples:
        yield _stages(found.stages)
    if found.packed:
        yield _basis(found)
    yield from _notes(found)


def _waiting(found: ProfileFindings) -> str:
    timings = found.timings
    times = f"{_ms(timings.wait)} of {_ms(timings.interval)}"
    if found.idle is not None:
        return f"The GPU is idle for {found.idle:.0%} of the time because it has no batch; the loop waits for {times}"
    sure = f", ± {2 * found.error:.0%}" if 0.005 <= found.error < 1 else ""
    return f"{found.waiting:.0%} of each step waits for data ({times}{sure})"


def _cause_in_words(found: ProfileFindings) -> str:
    """Return the cause as a clause."""
    if found.cause == "step":
        return f"the loader keeps up, {CAUSES['step']}; packing will not help you"
    stages = found.stages
    if not stages.samples or found.cause == "unknown":
        return ""
    if found.cause not in stages.costs:
        return CAUSES[found.cause]
    name = _NAMES.get(found.cause, found.cause)
    return f"{name} takes {_ms(stages.costs[found.cause].total)} of a sample's {_ms(stages.total.total)}"


def _packing_in_words(found: ProfileFindings) -> str:
    """Return the gain of packing as a clause."""
    gains = {name.partition(" with ")[2]: gain for name, gain in found.gains.items() if name.startswith("packing")}
    if found.cause == "step" or not found.stages.samples:
        return ""
    if not gains:
        return "this is a pack already, so packing will not help you" if found.info.of_packer else ""
    ordered = sorted(gains.items(), key=lambda item: -item[1])
    would = ", with the pack on this machine, would give about" if found.cause == "reading" else " would give about"
    text = ", ".join(
        f"packing {f'with {options}' if options else 'alone'}{would if not number else ''} {_times(gain)}"
        for number, (options, gain) in enumerate(ordered)
    )
    return text if found.packing_helps else f"packing will not help you: {text}"


def _stages(stages: Stages) -> str:
    total = stages.total.total
    ordered = sorted(stages.costs.items(), key=lambda item: -item[1].total)
    parts = [f"{_NAMES.get(name, name)} {_ms(cost.total)}" for name, cost in ordered if cost.total >= 0.01 * total]
    blocked = stages.total.blocked
    waits = f"; {_ms(blocked)} of this is waiting, not computing" if blocked > 0.1 * total else ""
    return f"A sample on one processor: {', '.join(parts)}{waits} (mean of {stages.samples}, one stage at a time)."


def _basis(found: ProfileFindings) -> str:
    """Return a sentence on how the figures for packing were obtained."""
    staged = ""
    if found.cause == "reading":
        staged = " A pack on the slow disk was not measured: `packer stage` copies a pack to this machine."
    options = "transform= and fuse=True" if not found.info.of_packer else "the dataset's own settings"
    return (
        f"The gain of packing was measured with {found.packed[0].samples} of the images: they were packed in memory, "
        f"and read with {options} by the same number of workers.{staged}"
    )


def _own_cure(found: ProfileFindings) -> Iterator[str]:
    """Yield remedies for the cause, other than packing."""
    info, cause = found.info, found.cause
    numbers = ((name, gain) for name, gain in found.gains.items() if not name.startswith("packing"))
    workers = max(numbers, key=lambda number: number[1], default=None)
    if cause in ("too few workers", "too many workers") and workers is not None:
        instead = f" instead of {info.workers}"
        yield f"Pass {workers[0]}{instead}: that alone gives about {_times(workers[1])}."
    elif cause == "transform":
        yield (
            "The transform runs on every image: remove the steps that the training does not need, use torchvision's "
            "v2 on tensors, or apply it to whole batches on the GPU."
        )
    elif cause == "collation":
        yield _COLLATION_BY_TORCH if getattr(info.collate, "__name__", "") == "default_collate" else _COLLATION
    elif cause == "lock":
        yield (
            f"Two threads wait for each other for {found.stages.lock:.0%} of their time, because a transform in "
            f"Python holds Python's lock. Pass processes={info.workers}, or use torch's DataLoader with workers."
        )
    elif cause == "items":
        yield "packer cannot measure reading, decoding and the other work of dataset[i] separately; cProfile can."
    elif cause == "transfer":
        yield "pin_memory=True and packer.CUDAPrefetcher copy the next batch while the GPU works."
    if found.unseen:
        yield f"The cause is unknown: {printable(found.unseen)}."
    if found.unpacked and found.stages.samples:
        yield f"The gain of packing was not measured: {printable(found.unpacked)}."
    if workers is not None and cause not in ("too few workers", "too many workers") and workers[1] > _WORTHWHILE:
        yield f"{workers[0]} would give about {_times(workers[1])}."


def _notes(found: ProfileFindings) -> Iterator[str]:
    timings = found.timings
    if timings.steps < _FEW_STEPS or not timings.is_representative:
        at_a_time = f", and {timings.burst} workers make {timings.burst} batches at a time" if timings.burst > 1 else ""
        yield f"Only {timings.steps} steps were measured{at_a_time}, so the figures are uncertain."
    if timings.start_share() > 0.2 and timings.complete:
        starts = found.info.kind == "DataLoader" and found.info.workers and not found.info.loader.persistent_workers
        cure = ": persistent_workers=True starts workers once, and not for each pass" if starts else ""
        yield f"The first batch came after {timings.first:.1f} s, {timings.start_share():.0%} of the pass{cure}."
    if found.stages.samples and found.cause not in ("step", "lock", "too many workers"):
        explained = found.batch_interval(found.stages.total, found.info.workers)
        if explained < _EXPLAINED * timings.wait:
            yield (
                f"The measured stages explain {_ms(explained)} per batch. The rest is the transfer from a worker to "
                "the loop, or other programs use the processors (`packer doctor` shows the load)."
            )
    if found.stages.samples and found.info.kind.endswith("DataLoader") and not found.info.workers:
        yield "Without workers (num_workers=0) the training loop makes each batch itself, and waits for all of it."


def _times(gain: float) -> str:
    """Format a speed-up."""
    return f"{gain:.2f} x" if gain < 1.2 else f"{gain:.1f} x" if gain < 10 else f"{gain:.0f} x"


def _ms(seconds: float) -> str:
    """Format a time in a suitable unit."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.1f} ms" if seconds >= 1e-4 else f"{1e6 * seconds:.0f} µs"


_LITTLE_WAITING = 0.1  # the share of waiting below which nothing can be gained
_SURELY_WAITING = 0.03  # the share of waiting, less two standard errors, below which the waiting is not certain
_LONG_START = 0.5  # if the first batch takes more than this share of a pass, the start of many workers may be the cause
_LOCKED = 0.25  # Python's lock is the cause if two threads wait for each other for a larger share of their time
_OUTWEIGHS = 1.5  # if more workers would help, a stage is the cause only if its removal helps this many times as much
_DOMINANT = 4.0  # if another number of workers would help, a stage is the cause only if its removal gives this speed-up
_LEAST_FREE = 0.02  # other programs are assumed to leave at least this share of the processors
_LEAST_BATCH = 0.0005  # the least seconds for taking a batch from a worker
_FORK, _SPAWN = 0.02, 2.0  # seconds to start one worker by fork, and to start all workers, in parallel, by spawn


def diagnose(loader: Iterable[Any], timings: Timings, seconds: float) -> ProfileReport:
    """Return the report on a measured pass. To find the cause, some samples are loaded again, for up to `seconds`."""
    info = inspect_loader(loader)
    timings.burst = info.burst
    share, error = timings.waiting()
    idle = timings.gpu.share()
    if idle is not None:
        share, error = idle, 1.0  # the share of the GPU's time; its standard error is unknown
    found = ProfileFindings(timings=timings, info=info, waiting=share, error=error, idle=idle)
    starting = timings.start_share() > _LONG_START and timings.steps > 1
    found.keeps_up = share < _LITTLE_WAITING or (error < 1 and share - 2 * error < _SURELY_WAITING)
    if found.keeps_up and timings.is_representative and not (starting and info.workers > available_cpus()):
        found.cause = "step"
    elif seconds > 0:
        with keeping_random_states():
            _find(found, seconds)
    return _report(found)


def _find(found: ProfileFindings, seconds: float) -> None:
    """Find the cause of the waiting, and the gain of each remedy."""
    info = found.info
    if info.unseen:
        found.unseen = info.unseen
        return
    try:
        found.stages = measure_stages(info, 0.4 * seconds)
    except Exception as error:  # a user's dataset may work only in the loader's workers
        found.unseen = f"making a sample outside of the loop failed: {type(error).__name__}: {error}"
        return
    cpus = available_cpus()
    with contextlib.suppress(Exception):  # workers that fail must not end the training
        if info.kind == "DataLoader" and info.workers > cpus:
            sample, step = found.stages.total.total, found.step
            found.fewer = fewer_workers(info, cpus, _batches(found), sample=sample, seconds=0.4 * seconds, step=step)
    found.cause = _cause(found, cpus)
    if found.cause == "step":
        return
    try:
        found.packed = measure_packed(info, found.stages, 0.3 * seconds)
    except UnpackedError as why:
        found.unpacked = str(why)
    except Exception as error:  # such as a full disk
        found.unpacked = f"{type(error).__name__}: {error}"
    _gains(found, cpus)


def _batches(found: ProfileFindings) -> int:
    """Return the number of batches in a pass."""
    try:
        return len(found.info.loader)
    except TypeError:
        return found.timings.steps


def _cause(found: ProfileFindings, cpus: int) -> str:
    fewer = found.fewer is not None and found.fewer > _WORTHWHILE
    if found.keeps_up and fewer:  # only the first batch takes long, because so many workers start
        return "too many workers"
    batch = found.batch_interval(found.stages.total, found.info.workers)
    if found.keeps_up and (found.timings.is_representative or batch <= found.timings.work):
        return "step"
    return _slowest(found, fewer, cpus)


def _slowest(found: ProfileFindings, fewer: bool, cpus: int) -> str:
    """Return the reason why a loader does not keep up; `fewer` tells whether fewer workers would be faster."""
    stages = found.stages
    if stages.lock > _LOCKED:
        return "lock"
    work = stages.total
    if stages.costs.get("reading", Cost()).blocked > 0.5 * work.total:
        return "reading"
    largest = max(stages.costs, key=lambda stage: stages.costs[stage].total, default="unknown")
    without = 1 / max(1 - stages.share(largest), 1e-3)  # how many times as fast a sample would be without the stage
    if fewer and without < _DOMINANT:
        return "too many workers"
    more = _more_workers(found, cpus)
    if more > _WORTHWHILE and without < max(_DOMINANT, _OUTWEIGHS * more):
        return "too few workers"
    return largest


def _more_workers(found: ProfileFindings, cpus: int) -> float:
    """Return the speed-up of the loop if it had a worker for each processor."""
    info, stages = found.info, found.stages
    if info.workers >= cpus:
        return 1.0
    batch = found.batch_interval(stages.total, info.workers)
    now = found.loop_interval(batch, info.workers, stages.total)
    sample = stages.total + stages.handing if not info.workers else stages.total
    batch = found.batch_interval(sample, cpus)
    if info.kind == "DataLoader":
        batch = max(batch, _LEAST_BATCH) + _start(info, cpus - info.workers) / max(_batches(found), 1)
    return now / max(found.loop_interval(batch, cpus, sample), 1e-9)


def _start(info: LoaderInfo, workers: int) -> float:
    """Return the seconds for starting some workers; forked workers start one after the other."""
    if info.loader.persistent_workers:
        return 0.0
    context, method = info.loader.multiprocessing_context, multiprocessing.get_start_method(allow_none=True)
    if context is not None:
        method = context.get_start_method()
    elif method is None:  # to read the default would set it, and the program may still choose another method
        method = multiprocessing.get_all_start_methods()[0]
    return _FORK * workers if method == "fork" else _SPAWN


def _gains(found: ProfileFindings, cpus: int) -> None:
    """Record the speed-up of each change."""
    info, stages = found.info, found.stages
    name = "threads" if info.kind == "Loader" else "num_workers"
    if found.fewer is not None:
        found.gains[f"{name}={cpus}"] = found.fewer
    elif info.workers < cpus:
        found.gains[f"{name}={cpus}"] = _more_workers(found, cpus)
    if found.cause == "handing over":
        sample = stages.total - stages.costs["handing over"]
        now = found.loop_interval(found.batch_interval(stages.total, info.workers), info.workers, stages.total)
        then = found.loop_interval(found.batch_interval(sample, 0), 0, sample)
        found.gains[f"{name}=0"] = now / max(then, 1e-9)
    for packed in found.packed:
        found.gains[" with ".join(filter(None, ["packing", packed.options]))] = _packing(found, packed)


def _packing(found: ProfileFindings, packed: PackedCost) -> float:
    """Return the speed-up of the loop if the same workers read batches from a pack."""
    workers, stages = found.info.workers, found.stages
    now, then = found.batch_interval(stages.total, workers), found.batch_interval(packed.cost, workers)
    measured = found.timings.interval if workers else found.timings.wait
    # A batch takes longer than the sum of its stages. One reason is that processors are shared, with the second thread
    # of a core or with other programs: this part of the excess shrinks when the stages get faster. The remainder, such
    # as the transfer from a worker to the loop, does not shrink.
    scale = min(measured / max(now, 1e-12), _SHARED_CORE / max(1 - stages.others, _LEAST_FREE))
    if workers:
        scale = max(scale, 1.0)
    remainder = max(measured - now * scale, 0.0)
    before = found.loop_interval(now * scale + remainder, workers, stages.total)
    after = found.loop_interval(then * scale + remainder, workers, packed.cost)
    return before / max(after, 1e-9)


def _report(found: ProfileFindings) -> ProfileReport:
    timings, stages = found.timings, found.stages
    helps = any(gain > _WORTHWHILE for name, gain in found.gains.items() if name.startswith("packing"))
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
        stages={name: cost.total for name, cost in stages.costs.items()},
        samples=stages.samples,
        gains=dict(found.gains),
        packing_helps=found.packing_helps,
        sentences=tuple(sentences(found)),
    )


def profile(loader: Iterable[Any], *, steps: int | None = None, seconds: float = 10.0, show: bool = True) -> Profile:
    """Measure how long a training loop waits for data, find the cause, and estimate the gain of packing.

    Wrap the loader where the loop iterates over it: ``for batch in packer.profile(loader):``. The batches are
    unchanged. At the end of the first pass, rank 0 prints a report to stderr.

    Parameters
    ----------
    loader : iterable
        A torch DataLoader, a `packer.Loader`, a prefetcher around one of these, or any other iterable. With any other
        iterable, only the waiting is measured.
    steps : int, optional
        End the pass after this many batches, as if the loader had no more; by default a pass reads the whole loader.
    seconds : float
        Time limit for measurements after the pass; 0 skips them. For these measurements, this process reads, decodes,
        transforms and collates some samples, one stage at a time, and packs some samples in a temporary directory.
    show : bool
        Whether to print the report. `Profile.report` returns it in any case.

    Returns
    -------
    Profile
        An iterable over the batches. It has a method ``report()``, and the loader's length and attributes.

    Raises
    ------
    TypeError, ValueError
        If `loader` cannot be iterated over, or an argument has a wrong type or value.

    Notes
    -----
    Profiling adds about a microsecond to a step. It reads no additional batches from the loader and does not change the
    random numbers of the training. Stages are measured on a copy of the dataset, which has its own generators, counters
    and lists but shares large arrays and open files. If the loop is left early, no report is printed; call
    ``report()``.

    Examples
    --------
    >>> profiled = packer.profile(loader, steps=200)
    >>> for images, labels in profiled:
    ...     train(images, labels)
    >>> print(profiled.report())  # doctest: +SKIP
    """
    return Profile(loader, steps=steps, seconds=seconds, show=show)


class Profile:
    """Iterates over the batches of a loader, and measures how long the loop waits; see `packer.profile`."""

    def __init__(
        self, loader: Iterable[Any], *, steps: int | None = None, seconds: float = 10.0, show: bool = True
    ) -> None:
        if not hasattr(loader, "__iter__"):
            raise OptionTypeError(f"loader must be an object that a training loop iterates over, not {loader!r}")
        require_count("steps", steps)
        if not seconds >= 0:
            raise OptionError(f"seconds must be 0 or more, not {seconds!r}")
        self.loader = loader
        self._steps, self._seconds = steps, seconds
        self._show = show and os.environ.get("RANK", "0") == "0"
        self._timings: Timings | None = None
        self._report: ProfileReport | None = None

    def __iter__(self) -> Iterator[Any]:
        self._timings = timings = Timings()
        self._report = None
        yield from measured_pass(self.loader, timings, self._steps)
        if self._show:
            self._show = False
            text = self.report() if timings.steps else "packer.profile: the loader returned no batch"
            sys.stderr.write(f"{text}\n")

    def report(self, seconds: float | None = None) -> ProfileReport:
        """Return the report on the last pass. Later calls without `seconds` return the same report.

        Parameters
        ----------
        seconds : float, optional
            Time limit for the measurements, instead of the one passed to `packer.profile`.

        Raises
        ------
        ValueError
            If there was no pass, or it had no batches.
        """
        if self._timings is None or not self._timings.steps:
            raise OptionError(
                "no batch was read yet: iterate over the result of packer.profile before you request a report"
            )
        if self._report is None or seconds is not None:
            self._report = diagnose(self.loader, self._timings, self._seconds if seconds is None else seconds)
        return self._report

    def __len__(self) -> int:
        length = len(self.loader)  # type: ignore[arg-type]
        return length if self._steps is None else min(length, self._steps)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not set yet while the object is unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)
