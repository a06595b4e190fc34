"""Display of measurement results, in a terminal or a notebook."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from packer._display import Block, Code, TextTable, count, counted, duration
from packer._storage.remote.urls import is_url
from packer._storage.system import in_units

if TYPE_CHECKING:
    from packer._measuring.bench import Benchmark, Rate
    from packer._measuring.doctor import Diagnosis
    from packer._measuring.estimate import Estimate
    from packer._measuring.machine import Finding
    from packer._measuring.trials import Interval
    from packer._measuring.tune import Tuning

LIMIT = "limit"
"""The way that nobody trains with: packer's decoding alone, of images in memory."""

_BUSY = 0.1  # share of the CPUs taken by other programs
_SIDES = "packer", "torchvision"  # the ways of a recipe that has a name
_NAMED = 5  # files that cannot be converted


def of_benchmark(measured: Benchmark) -> Iterator[Block]:
    """Yield the rates of each side by number of threads, or by step of a recipe, and a description of the machine."""
    if any(rate.way in _SIDES for rate in measured.rates):
        yield from _steps(measured)
    else:
        yield from _rates(measured)
    yield ""
    yield from (f"not measured: {side}: {reason}" for side, reason in measured.skipped.items())
    for path, number in measured.images.items():
        where = "fetched each time, or from the cache" if is_url(path) else "from memory"
        yield f"{path}: {count(number)} samples of {in_units(measured.mean_bytes[path])}, {where}"
    rounds = (
        f"medians of {measured.rounds} rounds in turn, ± half of their range" if measured.rounds > 1 else "one round"
    )
    machine = measured.machine
    yield f"{rounds}; batches of {measured.batch}; {machine['processor']}, {machine['cpus']} CPUs"
    if measured.others is not None and measured.others > _BUSY:
        yield f"other programs took {measured.others:.0%} of the CPUs meanwhile: measure again when they rest"


def _rates(measured: Benchmark) -> Iterator[Block]:
    counts = sorted({rate.threads for rate in measured.rates})
    sides = sorted(measured.sides, key=lambda side: -measured.fastest(side).median)
    title = "images a second"
    rows = []
    for side in sides:
        rates = {rate.threads: f"{rate.median:,.0f}{_spread(rate)}" for rate in measured.of(side)}
        rows.append([side, *(rates.get(threads, "") for threads in counts)])
    columns = [f"<{max(map(len, [title, *sides]))}", *([">15"] * len(counts))]
    yield TextTable(rows, columns, [title, *(counted(threads, "thread") for threads in counts)], indent="")
    ways = [side for side in sides if measured.fastest(side).way != LIMIT]
    if len(ways) > 1 and (ratio := measured.ratio(ways[0], ways[-1])) is not None:
        yield ""
        yield f"{ways[0]} is {ratio:.1f} times as fast as {ways[-1]}"


def _steps(measured: Benchmark) -> Iterator[Block]:
    """Yield the steps of a recipe for each side: the rate with all steps up to this one, and its cost on one thread."""
    rows, before = [], dict[tuple[str, int], list[float]]()
    for rate in measured.rates:
        key = rate.side.rpartition(": ")[0], rate.threads
        costs = [1000 * rate.threads / one for one in rate.rates]
        cost = f"{statistics.median(costs):.2f}"
        if key in before:  # the costs of steps are compared within a round
            extra = statistics.median(now - then for now, then in zip(costs, before[key], strict=False))
            cost = f"{cost}  ({extra:+.2f})"
        before[key] = costs
        rows.append((rate.side, f"{rate.median:>9,.0f}{_spread(rate):6}", cost))
    columns = f"<{max(map(len, measured.sides))}", "<15", ""
    yield TextTable(rows, columns, ("", "images a second", "ms an image of a thread"), indent="")
    for path in measured.images:
        ours, theirs = (
            [rate.side for rate in measured.rates if (rate.path, rate.way) == (path, way)] for way in _SIDES
        )
        if ours and (share := measured.ratio(ours[-1], ours[0])) is not None:
            yield ""
            yield f"{path}: the whole recipe has {share:.2f} of the rate of the crop alone"
        if ours and theirs and (times := measured.ratio(ours[-1], theirs[-1])) is not None:
            yield f"{path}: packer's is {times:.1f} times as fast as torchvision's"


def _spread(rate: Rate) -> str:
    return f" ±{rate.spread:4.0%}" if len(rate.rates) > 1 else ""


def of_tuning(found: Tuning) -> Iterator[Block]:
    """Yield the settings that were tried, the fastest first, and the line to paste."""
    yield f"{found.rate:,.0f} images a second, ± {max(found.error, 0.01):.0%}, found in {found.seconds:.0f} s"
    if found.step_ms is not None:
        need = f"{found.batch / found.step_ms * 1000:,.0f} images a second"
        short = f"a step of {found.step_ms:g} ms waits {found.wait_ms:.0f} ms for its batch"
        yield (
            f"{short}: nothing on this machine gives the {need} that it takes"
            if found.wait_ms
            else f"keeps up with steps of {found.step_ms:g} ms, which take {need}"
        )
    yield ""
    tried = sorted(found.trials, key=lambda trial: trial.median)
    yield TextTable([(f"{found.batch / trial.median:,.0f}", str(trial.settings)) for trial in tried], (">9", ""))
    yield from (f"  {note}" for note in found.notes)
    yield ""
    yield Code([found.line])


def of_diagnosis(diagnosis: Diagnosis) -> Iterator[Block]:
    """Yield the findings on a machine, their meaning, and advice."""
    for finding in diagnosis.findings:
        yield from _finding(finding)


def _finding(finding: Finding) -> Iterator[str]:
    yield f"{finding.topic}: {finding.found}"
    if finding.means:
        yield f"    {finding.means}"
    if finding.advice:
        yield f"  > {finding.advice}"


def of_estimate(found: Estimate) -> Iterator[Block]:
    """Yield the size and the time of a conversion, remarks, and the same figures for other options."""
    words = shlex.split(found.command)  # packer convert SRC DST OPTION ...
    tried = "all of them" if found.exact else count(found.tried)
    about = "" if found.looked_at == found.images else f"about, by {count(found.looked_at)} of them, "
    yield f"{words[2]}: {counted(found.images, 'image')}, {about}{in_units(found.bytes_in.value)}; {tried} tried"
    yield _expected(found)
    yield TextTable(list(_told(found, skips="--on-error skip" in " ".join(words))), ("<10", ""))
    yield from (f"  {note}" for note in found.notes)
    if found.alternatives:
        yield ""
        width = max(30, *(len(other.options) for other in found.alternatives))
        rows = [
            (
                other.options,
                in_units(other.size.value),
                _between(other.size, in_units),
                duration(other.seconds.value),
            )
            for other in found.alternatives
        ]
        yield TextTable(rows, (f"<{width}", ">10", "<24", ">10"), ("with other options", "size", "", "time"))
    if found.not_tried:
        yield f"  not tried, for want of time or room: {', '.join(found.not_tried)}"
    yield ""
    parts = found.part_command
    yield Code([f"  {found.command}", *([] if parts is None else [f"  {parts}    # in each job, K from 0"])])


def _expected(found: Estimate) -> TextTable:
    """Return size and time."""
    seconds = found.seconds
    with_threads = f"{_between(seconds, duration)}, with {counted(found.workers, 'thread')}"
    rows = [
        ("size", in_units(found.size.value), _between(found.size, in_units)),
        ("time", duration(seconds.value), with_threads),
    ]
    if found.jobs > 1:
        many = found.seconds_on_jobs
        serving = f"{_between(many, duration)}, where the disk serves all"
        rows.append((f"on {found.jobs} jobs", duration(many.value), serving))
    return TextTable(rows, ("<10", "<8", ""))


def _told(found: Estimate, *, skips: bool) -> Iterator[tuple[str, str]]:
    """Yield remarks in addition to size and time, by topic."""
    if found.in_memory is not None:
        cold = "" if found.in_memory < 0.05 else ": where they are not, reading them may take longer"
        yield "disk", f"{found.in_memory:.0%} of the files were in memory{cold}"
    if (found.others or 0) > _BUSY:
        yield "others", f"other work took {found.others:.0%} of the processors: without it, the conversion is faster"
    lacking = found.size.high - found.room
    fits = "enough" if lacking <= 0 else f"up to {in_units(lacking)} too little"
    yield "room", f"{in_units(found.room)} free: {fits}"
    if found.remarkable.value:
        yield "findings", _images(found.remarkable)
        yield from (("", f"{name}: {_images(images)}") for name, images in found.findings.items())
    else:
        most = f"none, so {count(round(found.remarkable.high))} images at most"
        yield "findings", "none" if found.exact else most
    if found.left_out:
        stops = "left out" if skips else "a conversion stops at the first, unless it has --on-error skip"
        yield "unreadable", f"{_images(found.unreadable)}; {stops}"
        yield from (("", f"{entry['name']}: {entry['reason']}") for entry in found.left_out[:_NAMED])
        if len(found.left_out) > _NAMED:
            yield "", f"… and {count(len(found.left_out) - _NAMED)} more"


def _images(number: Interval) -> str:
    """Return a number of images with their kind, in words."""
    low, value, high = (round(one) for one in (number.low, number.value, number.high))
    between = "" if low == high else f" ({count(low)} to {count(high)})"
    return f"{counted(value, 'image')}{between}"


def _between(number: Interval, said: Callable[[float], str]) -> str:
    """Describe the bounds of a number, or that it is exact."""
    return "(exactly)" if number.low == number.high else f"({said(number.low)} to {said(number.high)})"
