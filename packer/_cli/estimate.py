"""`packer estimate`."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer._cli import show
from packer._cli.convert import convert_command
from packer._cli.progress import progress_options
from packer._cli.reading import READING
from packer._cli.source import CommandOfSource, requested
from packer._cli.values import Duration, UserPath
from packer._storage.limits import in_units
from packer.errors import printable

if TYPE_CHECKING:
    from packer._conversion.request import ConversionRequest
    from packer._measuring.estimating.estimate import Estimate
    from packer._measuring.estimating.sampling import Interval

__all__ = ["estimate_command"]

_NO_PART_OF_IT = (
    "src",
    "dst",
    "splits",
    "check",
    "part",
    "cluster",
    "jobs",
    "scratch",
    "quiet",
    "json_progress",
    *READING,
)
_REMARKABLE_LOAD = 0.1  # of the processors
_NAMED = 5  # files that cannot be converted


@click.command("estimate", cls=CommandOfSource)
@click.argument("src", type=UserPath())
@click.argument("dst", metavar="[DST]", required=False, type=UserPath())
@click.option("--split", metavar="NAME", help="Which images of --voc or --yolo.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Say too how long N machines such as this one take, each with parts of the pack.",
)
@click.option(
    "--seconds",
    type=Duration(),
    default=10.0,
    show_default=True,
    help="How long it may take, about; a long listing comes in addition.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@progress_options(quiet=None)
def estimate_command(
    src: Path, dst: Path | None, *, jobs: int | None, seconds: float, as_json: bool, **values: Any
) -> None:
    """Say how large a pack of SRC will be, how long its conversion takes, and what else it could be.

    Some images of every size are converted into a directory beside DST, which goes again: the disk of DST is the one
    that is measured. The options are those of `packer convert`; the last line is the command that makes the pack.

    \b
      packer estimate imagenet/train
      packer estimate imagenet/train /data/train.lmdb --resize 256 --jobs 8
    """
    spent, began = time.process_time(), time.perf_counter()  # of this process, to begin with
    from packer._measuring.estimating.estimate import estimate_request
    from packer._measuring.estimating.verbs import requested as conversion

    warnings.filterwarnings("ignore", module="PIL")
    options = {name: value for name, value in values.items() if value is not None}
    request = requested(conversion, src=src, dst=dst, options=options)
    with show.ProgressDisplay(src.name) as display:
        shown = ""

        def update(what: str, done: int, total: int | None) -> None:
            nonlocal shown
            if what != shown:
                display.phase(shown := what)
            if total is not None:
                display.update(done, total)

        spent += time.perf_counter() - began
        found = estimate_request(request, jobs=jobs or 1, seconds=seconds, spent=spent, progress=update)
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        click.echo("\n".join(_described(found, src, request)))


estimate_command.params += [option for option in convert_command.params if option.name not in _NO_PART_OF_IT]


def _described(found: Estimate, src: Path, request: ConversionRequest) -> Iterator[str]:
    """Yield the lines that a person reads."""
    tried = "all of them" if found.exact else show.count(found.tried)
    about = "" if found.looked_at == found.images else f"about, by {show.count(found.looked_at)} of them, "
    yield f"{printable(src)}: {show.counted(found.images, 'image')}, {about}{in_units(found.bytes_in.value)}; {tried} tried"
    yield f"  {'size':<12}{_size(found.size):<10}{_between(found.size, in_units)}".rstrip()
    threads = show.counted(found.workers, "thread")
    yield f"  {'time':<12}{show.duration(found.seconds.value):<10}{_between(found.seconds, show.duration)}, with {threads}"
    if found.jobs > 1:
        many = found.seconds_on_jobs
        yield f"  {f'on {found.jobs} jobs':<12}{show.duration(many.value):<10}{_between(many, show.duration)}, where the disk serves all"
    yield from _told(found, request.on_error)
    if found.alternatives:
        yield ""
        width = max(32, *(len(other.options) + 2 for other in found.alternatives))
        yield f"  {'with other options':<{width}}{'size':>10}   {'':<24}{'time':>10}"
        for other in found.alternatives:
            size = f"{_size(other.size):>10}   {_between(other.size, in_units):<24}"
            yield f"  {other.options:<{width}}{size}{show.duration(other.seconds.value):>10}"
    if found.not_tried:
        yield f"  not tried, for want of time or room: {', '.join(found.not_tried)}"
    yield ""
    yield f"  {found.command}"
    if found.part_command is not None:
        yield f"  {found.part_command}    # in each job, K from 0"


def _told(found: Estimate, on_error: str) -> Iterator[str]:
    """Yield what there is to say beside size and time."""
    if found.in_memory is not None:
        held = f"{found.in_memory:.0%} of the files were in memory"
        cold = "" if found.in_memory < 0.05 else ": where they are not, reading them may take longer"
        yield f"  {'disk':<12}{held}{cold}"
    if (found.others or 0) > _REMARKABLE_LOAD:
        yield f"  {'others':<12}other work took {found.others:.0%} of the processors: without it, the conversion is faster"
    lacking = found.size.high - found.room
    fits = "enough" if lacking <= 0 else f"up to {in_units(lacking)} too little"
    yield f"  {'room':<12}{in_units(found.room)} free: {fits}"
    if found.remarkable.value:
        yield f"  {'findings':<12}{_images(found.remarkable)}"
        for name, images in found.findings.items():
            yield f"    {printable(name)}: {_images(images)}"
    else:
        most = f"none, so {show.count(round(found.remarkable.high))} images at most"
        yield f"  {'findings':<12}{'none' if found.exact else most}"
    if found.left_out:
        stops = "a conversion stops at the first, unless it has --on-error skip"
        yield f"  {'unreadable':<12}{_images(found.unreadable)}; {'left out' if on_error == 'skip' else stops}"
        for entry in found.left_out[:_NAMED]:
            yield f"    {printable(entry['name'])}: {printable(entry['reason'])}"
        if len(found.left_out) > _NAMED:
            yield f"    … and {show.count(len(found.left_out) - _NAMED)} more"
    for note in found.notes:
        yield f"  {printable(note)}"


def _size(size: Interval) -> str:
    return in_units(size.value)


def _images(number: Interval) -> str:
    """Return how many images there are of a kind."""
    low, value, high = (round(one) for one in (number.low, number.value, number.high))
    return (
        show.counted(value, "image")
        if low == high
        else f"{show.counted(value, 'image')} ({show.count(low)} to {show.count(high)})"
    )


def _between(number: Interval, said: Any) -> str:
    """Return between which two a number is; that it is known where they are one."""
    return "(exactly)" if number.low == number.high else f"({said(number.low)} to {said(number.high)})"
