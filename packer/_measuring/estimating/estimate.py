"""What a conversion will give and take, from trials with some of its images."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from packer._conversion.overhead import BESIDE_A_SAMPLE, note_on_overhead
from packer._conversion.request import ConversionRequest
from packer._conversion.required import require_parts
from packer._conversion.workspace import check_place
from packer._images.probe import is_beyond_8_bit
from packer._measuring.estimating.alternatives import Alternative, try_alternatives
from packer._measuring.estimating.caching import share_in_memory
from packer._measuring.estimating.sampling import Interval, Population
from packer._measuring.estimating.spelling import command_of
from packer._measuring.estimating.trials import ShowTrial, Trials, run_trials
from packer._measuring.scratch import scratch_directory
from packer._sources import Source
from packer._storage.files import writing_to
from packer._table import Ints
from packer.errors import DestinationError, SourceError, printable

__all__ = ["Estimate", "estimate_request"]

_CHUNK = 4096  # files that are asked for their sizes at a time
_FOR_SIZES = 0.3  # of the time
_FOR_ITSELF = 0.65
_ASKED = 64  # files that are looked for in memory

ShowPhase = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Estimate:
    """What a conversion will give and take.

    An interval has `value`, `low` and `high`; the truth lies in it with 95 %: of a duration, where the machine and its
    disks go on as they did while some images were tried.

    Attributes
    ----------
    images : int
        How many images the source has.
    bytes_in : Interval
        Bytes of their files.
    tried : int
        How many of them were converted to learn this.
    looked_at : int
        How many of them were asked for their sizes, which are all where there was time.
    exact : bool
        Whether all images were converted, so that nothing of the size is estimated.
    size : Interval
        Bytes of the pack.
    seconds : Interval
        Duration of the conversion on this machine.
    workers, jobs : int
        With how many threads; on how many machines `seconds_on_jobs` is.
    seconds_on_jobs : Interval
        Duration where so many machines such as this one make parts, and the disk serves all of them as it served one.
    remarkable : Interval
        How many images have a finding.
    findings : dict of str to Interval
        How many images have which.
    left_out : list of dict
        Name and reason of each image among those tried that cannot be converted.
    unreadable : Interval
        How many of all images those are.
    in_memory : float or None
        Which share of the files was in memory before the trials, so that no disk was waited for; None where nothing
        tells.
    others : float or None
        Which share of the processors other work took meanwhile; None where nothing tells.
    room : int
        Bytes that are free on the disk where the pack will be.
    alternatives : list of Alternative
    not_tried : list of str
        Alternatives that there was no time or no room for.
    notes : list of str
        What a person should know about the source.
    command : str
        What makes the pack.
    part_command : str or None
        What makes part K of it, a job a part; None where one job makes all.
    """

    images: int
    bytes_in: Interval
    tried: int
    looked_at: int
    exact: bool
    size: Interval
    seconds: Interval
    workers: int
    jobs: int
    seconds_on_jobs: Interval
    remarkable: Interval
    findings: dict[str, Interval]
    left_out: list[dict[str, str]]
    unreadable: Interval
    in_memory: float | None
    others: float | None
    room: int
    alternatives: list[Alternative]
    not_tried: list[str]
    notes: list[str]
    command: str
    part_command: str | None


def estimate_request(
    request: ConversionRequest,
    *,
    jobs: int = 1,
    seconds: float = 10.0,
    seed: int = 0,
    spent: float = 0.0,
    others: bool = True,
    progress: ShowPhase | None = None,
) -> Estimate:
    """Estimate what a conversion gives and takes; see `packer.estimate`.

    Parameters
    ----------
    spent : float
        Seconds that a process of its own needs before it begins.
    others : bool
        Whether other options are tried too.
    """
    show = progress or _nothing
    if jobs > 1:
        require_parts(request.format_row)
    began = time.monotonic()
    show(f"listing {printable(request.src)}", 0, None)
    check_place(request.dst)
    source = request.open(request.dst, request.classes())
    check_place(request.dst, source.tree)
    source.require_undamaged()
    before = spent + time.monotonic() - began
    ends = time.monotonic() + max(seconds / 2, seconds - before)
    population, looking = _population(source, seconds * _FOR_SIZES, seed, show)
    before += looking
    in_memory = share_in_memory(_files(source, population.order[-_ASKED:]))
    beside = Path(os.path.abspath(request.dst)).parent
    with (
        writing_to(beside, "an estimate converts some images beside DST"),
        scratch_directory("estimate", beside) as directory,
    ):
        how: dict[str, Any] = {"directory": directory, "show": _trials_shown(show)}
        until = ends - (1 - _FOR_ITSELF) * seconds if others else ends
        trials = run_trials(request, source, population, until=until, ends=ends, what="trying", **how)
        if len(trials.left_out()) == trials.tried:
            entry = trials.left_out()[0]
            raise SourceError(
                f"{printable(source.root)}: not one of {trials.tried} images that were tried can be read, such as "
                f"{printable(entry['name'])}: {entry['reason']}"
            )
        alternatives, left = list[Alternative](), list[str]()
        if others:
            first = trials.duration().first
            to_8_bit = request.to_8_bit or ("type" if _has_excess(trials) else None)
            alternatives, left = try_alternatives(
                request, source, population, ends=ends, before=before, first=first, to_8_bit=to_8_bit, how=how
            )
    return _estimate(
        request,
        source,
        trials,
        jobs=jobs,
        before=before,
        in_memory=in_memory,
        alternatives=alternatives,
        left=left,
    )


def _estimate(
    request: ConversionRequest,
    source: Source,
    trials: Trials,
    *,
    jobs: int,
    before: float,
    in_memory: float | None,
    alternatives: list[Alternative],
    left: list[str],
) -> Estimate:
    """Put together what the trials say."""
    population, duration = trials.population, trials.duration()
    parts = replace(request, parts=request.parts or jobs) if jobs > 1 else None
    return Estimate(
        images=len(source),
        bytes_in=population.bytes,
        tried=trials.tried,
        looked_at=population.known,
        exact=trials.is_exact,
        size=trials.size(),
        seconds=duration.on(before=before),
        workers=trials.workers,
        jobs=jobs,
        seconds_on_jobs=duration.on(jobs, before),
        remarkable=trials.remarkable(),
        findings=trials.findings(),
        left_out=trials.left_out(),
        unreadable=trials.unreadable(),
        in_memory=in_memory,
        others=trials.others,
        room=shutil.disk_usage(Path(os.path.abspath(request.dst)).parent).free,
        alternatives=alternatives,
        not_tried=left,
        notes=[
            *_in_the_way(request),
            *source.unusable(skip=request.on_error == "skip"),
            *source.remarks(),
            *_refusals(trials),
            *_overhead(request, trials),
        ],
        command=command_of(request),
        part_command=None if parts is None else command_of(parts, "--part", "K"),
    )


def _overhead(request: ConversionRequest, trials: Trials) -> Iterator[str]:
    """Yield what is to say of the bytes that the format will take beside the images."""
    data, stored = sum(trial.data for trial in trials.each), sum(float(trial.stored.sum()) for trial in trials.each)
    if not data:
        return
    images, size = len(trials.population), trials.size().value
    beside = (size - images * BESIDE_A_SAMPLE) * (1 - data / stored) + images * BESIDE_A_SAMPLE
    note = note_on_overhead(request.format_row.name, images, size - beside, size)
    if note is not None:
        yield note


def _in_the_way(request: ConversionRequest) -> Iterator[str]:
    """Yield why the command would be refused as it stands, such as by what is at DST: nothing is written there now."""
    try:
        request.require_destination()
    except DestinationError as error:
        yield f"the command below needs a change: {error}"


def _has_excess(trials: Trials) -> bool:
    """Tell whether some images have more than 8-bit RGB holds."""
    return bool(_refusals(trials)) or any(is_beyond_8_bit(finding) for finding in trials.findings())


def _refusals(trials: Trials) -> list[str]:
    """Say which option is to be chosen, where the conversion refuses images that 8-bit RGB does not hold."""
    number = sum("--to-8-bit" in entry["reason"] for entry in trials.left_out())
    if not number:
        return []
    return [f"{number} of {trials.tried} images do not fit 8-bit RGB: the command needs --to-8-bit clip, type or file"]


def _population(source: Source, seconds: float, seed: int, show: ShowPhase) -> tuple[Population, float]:
    """Return the images, and how many seconds asking all of them for their sizes takes."""
    length, sizes = len(source), source.sizes()
    if sizes is not None:
        return Population(sizes, np.arange(length), length, seed), 0.0
    mixed = np.random.default_rng([seed, 2]).permutation(length)
    ends, asking, known = time.monotonic() + seconds, 0.0, list[Ints]()
    for start in range(0, length, _CHUNK):
        some = source.taken(mixed[start : start + _CHUNK])
        began = time.monotonic()
        known.append(some.present_stamps()[:, 0].clip(0))
        asking += time.monotonic() - began
        show("sizes", start + len(some), length)
        if time.monotonic() > ends:
            break
    sizes = np.concatenate(known)
    return Population(sizes, mixed[: len(sizes)], length, seed), asking * length / len(sizes)


def _files(source: Source, indices: Ints) -> Iterator[str]:
    """Yield the files of some images, where each image is a file."""
    paths = [source.path(index) for index in indices.tolist()]
    return iter(paths if len(set(paths)) == len(paths) else [])


def _trials_shown(show: ShowPhase) -> ShowTrial:
    return lambda what, progress: show(what, progress.done, progress.total) if progress else show(what, 0, None)


def _nothing(what: str, done: int, total: int | None) -> None:
    """Show nothing."""
