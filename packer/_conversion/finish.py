"""The end of a conversion in parts: the table and the manifest of the whole, and the name of the pack."""

from __future__ import annotations

import os
from pathlib import Path

from packer._conversion.jobfile import part_name, read_job
from packer._conversion.jobstore import JobStore
from packer._conversion.uploaded import make_scratch
from packer._conversion.workspace import Workspace, WorkspacePaths
from packer._formats import check_readable, open_pack
from packer._formats.joined import join_parts
from packer._manifest import Manifest
from packer._storage.files import remove, writing_to
from packer._storage.remote.urls import is_url
from packer._storage.urlpath import user_path
from packer.errors import DestinationError, SourceError, printable

__all__ = ["finish"]


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
