"""`packer convert --parts`: all of them here, one of them as a task of a job array, or all of them on a cluster."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer._cli import show
from packer._cli.options import ConvertOptions, SourceOptions
from packer._cli.source import classes_of, open_source
from packer._cli.status import EXIT_STATUS
from packer._cli.writing import done_already, format_options, say, status_of
from packer.errors import ClusterError, DestinationError, PackLockedError, printable

if TYPE_CHECKING:
    from packer._conversion.job import Job
    from packer._conversion.prepare import Recipe
    from packer._manifest import Manifest
    from packer._sources import Source

__all__ = ["convert_in_parts"]


def convert_in_parts(src: Path, dst: Path, recipe: Recipe, format: str, options: ConvertOptions) -> int:
    """Make the parts that the options ask for; return the exit status."""
    from packer._conversion.job import Job

    parts = _require_sense(options)
    job = Job(
        Path(os.path.abspath(dst)),
        parts,
        recipe,
        format,
        format_options(options.shard_size),
        options.on_error,
        options.overwrite,
    )
    before = _made_before(job, src, options)
    if before is not None:
        return done_already(dst, before, quiet=options.quiet)
    if options.part is not None:
        try:
            return _one(job, src, options.part, options)
        except DestinationError:
            before = _made_before(job, src, options)
            if before is None:  # else other tasks finished the pack meanwhile
                raise
            return done_already(dst, before, quiet=options.quiet)
    if options.cluster is not None:
        return _on_cluster(job, src, options.cluster, options)
    return _all(job, src, options)


def _require_sense(options: ConvertOptions) -> int:
    """Return how many parts there are; UsageError where the options do not fit together."""
    if not options.parts:
        raise click.UsageError("say with --parts how many parts there are")
    if options.part is not None and options.part >= options.parts:
        raise click.UsageError(f"--part counts from 0: the last of {options.parts} is {options.parts - 1}")
    if options.part is not None and options.fresh:
        raise click.UsageError("--fresh would drop the parts of other tasks: remove DST.partial before the job instead")
    if options.splits:
        raise click.UsageError("--parts is for one split: convert SRC/SPLIT, with --classes-from the first one's pack")
    if options.report:
        raise click.UsageError("--report is for packs without parts; `packer info --json` lists what was left out")
    if options.part is not None and options.cluster is not None:
        raise click.UsageError("--part is for tasks of a job array, --cluster makes all parts: say one of them")
    if options.scratch and options.part is None and options.cluster is None:
        raise click.UsageError("--scratch is for --part and --cluster: here, parts are made where they stay")
    if options.jobs and options.cluster is None:
        raise click.UsageError("--jobs is for --cluster")
    if options.cluster is not None:
        from packer._conversion.scheduler import check_address

        try:
            check_address(options.cluster)
        except ClusterError as error:
            raise click.UsageError(str(error)) from error
    return options.parts


def _listing(job: Job, src: Path, options: ConvertOptions) -> Callable[[], Source]:
    return functools.partial(open_source, src, job.destination, classes_of(options.classes_from), options)


def _made_before(job: Job, src: Path, options: ConvertOptions) -> Manifest | None:
    if options.fresh or options.overwrite or not job.destination.exists():
        return None
    return job.made_before(_listing(job, src, options)())


def _begin(job: Job, src: Path, options: ConvertOptions, *, share: bool, compare: bool = True) -> Source:
    request = {
        field.name: None if value is None else str(value)
        for field in fields(SourceOptions)
        for value in [getattr(options, field.name)]
    }
    request["src"] = os.path.abspath(src)
    return job.begin(_listing(job, src, options), request, share=share, compare=compare, fresh=options.fresh)


def _one(job: Job, src: Path, number: int, options: ConvertOptions) -> int:
    """Make one part, and finish the pack where it was the last."""
    from packer._conversion.finish import finish

    source = _begin(job, src, options, share=True, compare=False)  # every task would look at all files
    with show.ProgressDisplay(f"{job.destination.name}, part {number}", quiet=options.quiet) as display:
        part = job.convert(
            source,
            number,
            workers=options.workers,
            scratch=options.scratch,
            progress=lambda p: display.update(p.done, p.total, read=p.bytes_read, skipped=p.skipped),
        )
    rate = part.images / max(part.seconds, 1e-9)
    say(
        f"part {number}: {show.count(part.images)} images, {show.duration(part.seconds)} ({rate:,.0f} img/s)",
        quiet=options.quiet,
    )
    if part.note:
        click.echo(f"packer: {printable(part.note)}", err=True)
    if not job.missing():
        with contextlib.suppress(PackLockedError):  # another task ended at the same time, and finishes it
            say(_finished(job, finish(job.destination)), quiet=options.quiet)
    return EXIT_STATUS["skipped"] if part.skipped else EXIT_STATUS["ok"]


def _all(job: Job, src: Path, options: ConvertOptions) -> int:
    """Make all parts here, one after the other."""
    from packer._conversion.convert import Progress
    from packer._conversion.finish import finish

    started = time.monotonic()
    source = _begin(job, src, options, share=False)
    with show.ProgressDisplay(job.destination.name, quiet=options.quiet) as display:
        missing, read, kept = job.missing(), 0, 0
        done = len(source) - sum(len(job.rows(number, len(source))) for number in missing)
        for number in missing:

            def update(progress: Progress, done: int = done, read: int = read) -> None:
                display.update(done + progress.done, len(source), read=read + progress.bytes_read)

            part = job.convert(source, number, workers=options.workers, progress=update)
            done += part.images
            read += part.bytes_in
            kept += part.kept
        manifest = finish(job.destination)
    notes = [*source.notes, *_kept(kept, manifest)]
    say(_finished(job, manifest, time.monotonic() - started, notes), quiet=options.quiet)
    return status_of(manifest)


def _on_cluster(job: Job, src: Path, where: str, options: ConvertOptions) -> int:
    """Make all parts on a Dask cluster."""
    from packer._conversion.cluster import convert_on
    from packer._conversion.finish import finish
    from packer._conversion.job import SharedSource
    from packer._conversion.scheduler import open_client

    started = time.monotonic()
    source = _begin(job, src, options, share=True)
    if source.origin is not None:
        classes = classes_of(options.classes_from)
        shared = SharedSource(Path(os.path.abspath(src)), classes, options.limit, source.identities())
    else:
        shared = SharedSource(job.paths.listing)
    with open_client(where, options.jobs) as client:
        if not options.quiet:
            click.echo(f"packer: dashboard at {client.dashboard_link}", err=True)
        with show.ProgressDisplay(job.destination.name, quiet=options.quiet) as display:
            parts = convert_on(
                client,
                job,
                shared,
                workers=options.workers,
                scratch=options.scratch,
                progress=lambda p: display.update(
                    p.done, p.total, read=p.bytes_read, skipped=p.skipped, notes=show.rates(p.rates, p.workers)
                ),
            )
    for note in sorted({f"{part.host}: {part.note}" for part in parts if part.note}):
        click.echo(f"packer: {printable(note)}", err=True)
    manifest = finish(job.destination)
    notes = [*source.notes, *_kept(sum(part.kept for part in parts), manifest)]
    say(_finished(job, manifest, time.monotonic() - started, notes), quiet=options.quiet)
    return status_of(manifest)


def _kept(number: int, manifest: Manifest) -> list[str]:
    return [show.kept(number, manifest.codec)] if number and manifest.codec != "keep" else []


def _finished(job: Job, manifest: Manifest, seconds: float | None = None, notes: Iterable[str] = ()) -> str:
    from packer._storage.files import disk_size

    head = (
        f"{printable(job.destination)}: {show.counted(manifest.count, 'sample')}, "
        f"{show.counted(len(manifest.classes), 'class')}, {show.counted(job.parts, 'part')}, "
        f"{show.size(disk_size(job.destination))} out"
    )
    took = f", {show.duration(seconds)}" if seconds is not None else ""
    return "\n".join([head + took, *show.outcome(job.destination, manifest, notes)])
