"""`packer convert --parts`: all of them here, one of them as a task of a job array, or all of them on a cluster."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer._cli import show
from packer._cli.options import RunOptions
from packer._cli.status import EXIT_STATUS
from packer._cli.writing import done_already, say, status_of
from packer._storage.limits import in_units
from packer._storage.remote.urls import is_url
from packer.errors import ClusterError, DestinationError, PackLockedError, printable

if TYPE_CHECKING:
    from packer._conversion.job import Job
    from packer._conversion.request import ConversionRequest
    from packer._conversion.uploadedjob import UploadedJob
    from packer._manifest import Manifest

__all__ = ["make_parts"]


def make_parts(request: ConversionRequest, how: RunOptions) -> int:
    """Make the parts that the options ask for; return the exit status."""
    from packer._conversion.in_parts import already_made, job_of

    _require_sense(request, how)
    job = _uploaded(request, how) if is_url(request.dst) else job_of(request)
    before = already_made(job, request)
    if before is not None:
        return done_already(request.dst, before, quiet=how.quiet)
    if how.part is not None:
        try:
            return _one(job, request, how.part, how)
        except DestinationError:
            before = already_made(job, request)
            if before is None:  # else other tasks finished the pack meanwhile
                raise
            return done_already(request.dst, before, quiet=how.quiet)
    if how.cluster is not None:
        return _on_cluster(job, request, how.cluster, how)
    return _all(job, request, quiet=how.quiet)


def _uploaded(request: ConversionRequest, how: RunOptions) -> UploadedJob:
    """Return the job of a pack at a URL; errors where no such pack can be made."""
    from packer._conversion.in_parts import job_of
    from packer._conversion.uploadedjob import UploadedJob
    from packer._storage.remote.uploading import require_writable

    require_writable(request.dst)
    if request.overwrite:
        raise click.UsageError(
            "--overwrite replaces no pack at a URL with --part or --cluster, whose parts would replace those that "
            "others are reading: delete that pack first, or choose another name"
        )
    return UploadedJob(job_of(request), how.scratch)


def _require_sense(request: ConversionRequest, how: RunOptions) -> None:
    """Raise UsageError where the options do not fit together."""
    from packer._conversion.objectrequest import is_table

    if not request.parts:
        raise click.UsageError("say with --parts how many parts there are")
    if how.part is not None and how.part >= request.parts:
        raise click.UsageError(f"--part counts from 0: the last of {request.parts} is {request.parts - 1}")
    if how.part is not None and request.fresh:
        place = "delete all below DST/ and DST.partial/" if is_url(request.dst) else "remove DST.partial"
        raise click.UsageError(f"--fresh would drop the parts of other tasks: {place} before the job instead")
    if how.splits:
        raise click.UsageError("--parts is for one split: convert SRC/SPLIT, with --classes-from the first one's pack")
    if how.part is not None and how.cluster is not None:
        raise click.UsageError("--part is for tasks of a job array, --cluster makes all parts: say one of them")
    if how.cluster is not None and (is_url(request.src) or is_table(request.src)):
        raise click.UsageError("--cluster is for files that all nodes see: of objects at URLs, make parts with --part")
    if how.scratch and how.part is None and how.cluster is None:
        raise click.UsageError("--scratch is for --part and --cluster: here, parts are made where they stay")
    if how.jobs and how.cluster is None:
        raise click.UsageError("--jobs is for --cluster")
    if how.cluster is not None:
        from packer._conversion.scheduler import check_address

        try:
            check_address(how.cluster)
        except ClusterError as error:
            raise click.UsageError(str(error)) from error


def _one(job: Job | UploadedJob, request: ConversionRequest, number: int, how: RunOptions) -> int:
    """Make one part, and finish the pack where it was the last."""
    from packer._conversion.finish import finish
    from packer._conversion.in_parts import begin

    with show.ProgressDisplay(f"{job.destination.name}, part {number}", quiet=how.quiet) as display:
        display.phase(f"listing {request.src.name}")
        source = begin(job, request, share=True, compare=False)  # every task would look at all files
        display.phase(None)
        part = job.convert(
            source,
            number,
            workers=request.workers,
            scratch=how.scratch,
            progress=lambda p: display.update(p.done, p.total, read=p.bytes_read, skipped=p.skipped),
        )
    rate = part.images / max(part.seconds, 1e-9)
    say(
        f"part {number}: {show.count(part.images)} images, {show.duration(part.seconds)} ({rate:,.0f} img/s)",
        quiet=how.quiet,
    )
    if part.note:
        click.echo(f"packer: {printable(part.note)}", err=True)
    if not job.missing():
        with contextlib.suppress(PackLockedError):  # another task ended at the same time, and finishes it
            with show.ProgressDisplay(job.destination.name, quiet=how.quiet) as display:
                display.phase("joining parts")
                manifest = finish(job.destination, scratch=how.scratch)
            say(_finished(job, manifest, notes=source.remarks()), quiet=how.quiet)
    return EXIT_STATUS["skipped"] if part.skipped else EXIT_STATUS["ok"]


def _all(job: Job | UploadedJob, request: ConversionRequest, *, quiet: bool) -> int:
    """Make all parts here, one after the other."""
    from packer._conversion.in_parts import make_all

    with show.ProgressDisplay(job.destination.name, quiet=quiet) as display:
        summary = make_all(
            job, request, lambda p: display.update(p.done, p.total, read=p.bytes_read, skipped=p.skipped)
        )
    notes = [*summary.notes, *_kept(summary.kept, summary.manifest)]
    say(_finished(job, summary.manifest, summary.seconds, notes), quiet=quiet)
    return status_of(summary.manifest)


def _on_cluster(job: Job | UploadedJob, request: ConversionRequest, where: str, how: RunOptions) -> int:
    """Make all parts on a Dask cluster."""
    from packer._conversion.cluster import convert_on
    from packer._conversion.finish import finish
    from packer._conversion.in_parts import begin
    from packer._conversion.job import Job
    from packer._conversion.scheduler import open_client
    from packer._conversion.shared import SharedSource
    from packer._conversion.uploadedjob import StoredList

    started = time.monotonic()
    shared: SharedSource | StoredList
    with show.ProgressDisplay(job.destination.name, quiet=how.quiet) as display:
        display.phase(f"listing {request.src.name}")
        source = begin(job, request, share=True)
    if source.origin is not None:
        src = Path(os.path.abspath(request.src))
        packs = source.identities()
        shared = SharedSource(src, request.classes(), request.limit, packs, request.sample, request.where)
    elif isinstance(job, Job):
        shared = SharedSource(job.paths.listing)
    else:
        shared = job.shared_list()
    with open_client(where, how.jobs) as client:
        if not how.quiet:
            click.echo(f"packer: dashboard at {client.dashboard_link}", err=True)
        with show.ProgressDisplay(job.destination.name, quiet=how.quiet) as display:
            parts = convert_on(
                client,
                job,
                shared,
                workers=request.workers,
                scratch=how.scratch,
                progress=lambda p: display.update(
                    p.done, p.total, read=p.bytes_read, skipped=p.skipped, notes=show.rates(p.rates, p.workers)
                ),
            )
    for note in sorted({f"{part.host}: {part.note}" for part in parts if part.note}):
        click.echo(f"packer: {printable(note)}", err=True)
    with show.ProgressDisplay(job.destination.name, quiet=how.quiet) as display:
        display.phase("joining parts")
        manifest = finish(job.destination, scratch=how.scratch)
    notes = [*source.remarks(), *_kept(sum(part.kept for part in parts), manifest)]
    say(_finished(job, manifest, time.monotonic() - started, notes), quiet=how.quiet)
    return status_of(manifest)


def _kept(number: int, manifest: Manifest) -> list[str]:
    return [show.kept(number, manifest.codec)] if number and manifest.codec != "keep" else []


def _finished(
    job: Job | UploadedJob, manifest: Manifest, seconds: float | None = None, notes: Iterable[str] = ()
) -> str:
    head = (
        f"{printable(job.destination)}: {show.counted(manifest.count, 'sample')}, "
        f"{show.labels(manifest.label_type, len(manifest.classes))}, {show.counted(job.parts, 'part')}, "
        f"{in_units(job.size())} out"
    )
    took = f", {show.duration(seconds)}" if seconds is not None else ""
    return "\n".join([head + took, *show.outcome(job.destination, manifest, notes)])
