"""A conversion in parts as it was asked for: its job, its beginning, and all parts made here, one after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from packer._conversion.convert import ConversionProgress, Summary
from packer._conversion.finish import finish
from packer._conversion.job import Job
from packer._conversion.request import ConversionRequest
from packer._conversion.uploadedjob import UploadedJob
from packer._manifest import Manifest
from packer._sources import Source, refuse_derived
from packer._storage.files import disk_size
from packer._storage.remote.urls import is_url

__all__ = ["already_made", "begin", "convert_in_parts", "job_of", "make_all"]


def convert_in_parts(
    request: ConversionRequest, progress: Callable[[ConversionProgress], None] | None = None
) -> Summary:
    """Make a pack with parts, or what is missing of the pack. Where the pack is complete, say what it is."""
    job = job_of(request)
    manifest = already_made(job, request)
    if manifest is None:
        return make_all(job, request, progress)
    images = manifest.count + len(manifest.skipped)
    return Summary(job.destination, manifest, 0, disk_size(job.destination), 0.0, continued=images, kept=0)


def job_of(request: ConversionRequest) -> Job:
    """Return the job that a request is; for a URL, that of an `UploadedJob`."""
    return Job(
        request.dst if is_url(request.dst) else Path(os.path.abspath(request.dst)),
        request.parts or 1,
        request.recipe,
        request.format_row.name,
        request.format_options,
        request.on_error,
        request.overwrite,
        request.ignore_free_space,
    )


def already_made(job: Job | UploadedJob, request: ConversionRequest) -> Manifest | None:
    """Return the manifest of the complete pack where the same request made it before; None where not."""
    if request.fresh or request.overwrite or not job.is_there():
        return None
    return job.made_before(_opening(job, request)())


def begin(job: Job | UploadedJob, request: ConversionRequest, *, share: bool, compare: bool = True) -> Source:
    """Begin the job, or join the one that another process began; see `Job.begin`."""
    return job.begin(_opening(job, request), request.described(), share=share, compare=compare, fresh=request.fresh)


def make_all(
    job: Job | UploadedJob, request: ConversionRequest, progress: Callable[[ConversionProgress], None] | None = None
) -> Summary:
    """Make the parts that are missing, one after the other, and one pack of all; see `Job.convert` and `finish`."""
    started = time.monotonic()
    source = begin(job, request, share=False)
    missing = job.missing()
    done = continued = len(source) - sum(len(job.rows(number, len(source))) for number in missing)
    read = kept = skipped = 0

    def update(part: ConversionProgress) -> None:
        assert progress is not None
        progress(ConversionProgress(done + part.done, len(source), skipped + part.skipped, read + part.bytes_read))

    for number in missing:
        part = job.convert(source, number, workers=request.workers, progress=update if progress is not None else None)
        done += part.images
        read += part.bytes_in
        kept += part.kept
        skipped += part.skipped
    manifest = job.finish() if isinstance(job, UploadedJob) else finish(job.destination)
    return Summary(
        destination=job.destination,
        manifest=manifest,
        bytes_in=read,
        bytes_out=job.size(),
        seconds=time.monotonic() - started,
        continued=continued,
        kept=kept,
        notes=source.remarks(),
        not_looked_at=dict(source.others.counts),
    )


def _opening(job: Job | UploadedJob, request: ConversionRequest) -> Callable[[], Source]:
    classes = request.classes()

    def opened() -> Source:
        source = request.open(job.destination, classes)
        refuse_derived(source)
        return source

    return opened
