"""A conversion in parts as it was asked for: its job, its beginning, and all parts made here, one after the other.

The end of a conversion in parts: the table and the manifest of the whole, and the name of the pack.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from packer._conversion.convert import ConversionProgress, Summary
from packer._conversion.parts import Job, part_name, read_job
from packer._conversion.request import ConversionRequest
from packer._conversion.upload import JobStore, UploadedJob, make_scratch
from packer._conversion.workspace import Workspace, WorkspacePaths
from packer._formats import check_readable, open_pack
from packer._formats.parts import join_parts
from packer._manifest import Manifest
from packer._sources import Source, refuse_derived
from packer._storage.files import disk_size, remove, writing_to
from packer._storage.remote.urls import is_url, user_path
from packer.errors import DestinationError, SourceError, printable

__all__ = ["already_made", "begin", "convert_in_parts", "finish", "job_of", "make_all"]


def finish(destination: str | os.PathLike[str], *, wait: float = 0, scratch: Path | None = None) -> Manifest:
    """Make one pack of parts that are complete, and give it its name.

    Parameters
    ----------
    destination : path or URL
    wait : float
        How many seconds to wait for another process that is finishing the pack.
    scratch : Path, optional
        Where files of a pack at a URL are written before they are uploaded; by default `default_scratch`.

    Returns
    -------
    Manifest
        The manifest of the whole pack; also where another process finished the pack meanwhile.

    Raises
    ------
    DestinationError
        If there are no parts, or some are missing.
    PackError
        If what is there cannot be read.
    PackLockedError
        If another process is finishing the pack.
    """
    if is_url(destination):
        return JobStore(user_path(destination), make_scratch(scratch)).finish()
    destination = Path(os.path.abspath(os.path.expanduser(destination)))
    if os.path.exists(WorkspacePaths(destination).job):
        with Workspace(destination, wait=wait) as workspace:
            if os.path.exists(workspace.job):
                return _finish(workspace)
    if not os.path.lexists(destination):
        raise DestinationError(
            f"{printable(destination)}: no conversion in parts was begun. Begin one with `packer convert --parts`."
        )
    with open_pack(destination) as reader:
        if not reader.manifest.parts:
            raise DestinationError(f"{printable(destination)}: a pack without parts, which is finished")
        return reader.manifest


def _finish(workspace: Workspace) -> Manifest:
    job = read_job(workspace)
    names = [part_name(number, job["settings"]["format"]) for number in range(job["settings"]["parts"])]
    missing = [number for number, name in enumerate(names) if not os.path.exists(workspace.pack / name)]
    if missing:
        shown = ", ".join(map(str, missing[:20])) + (", …" if len(missing) > 20 else "")
        raise DestinationError(
            f"{printable(workspace.destination)}: {len(missing)} of {len(names)} parts are missing: {shown}"
        )
    with writing_to(workspace.pack):
        for stale in set(os.listdir(workspace.pack)) - set(names):  # left by tasks that were lost, or came too late
            remove(workspace.pack / stale)
    manifest = join_parts(workspace.pack, names, job["made_of"])
    if not manifest.count:
        raise SourceError(f"{printable(workspace.destination)}: not one of {job['images']} images can be read")
    check_readable(workspace.pack, manifest)
    workspace.commit(overwrite=job["overwrite"])
    return manifest


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
