"""The files of a conversion in parts, on a disk or in an object store: the parts, the job and the list of the source.

A job is a JSON object in ``parts.json`` that describes the source, the settings and the number of parts. Tasks on
several machines make the parts. When all parts exist, any process joins them into one pack.

On a disk that all tasks see, the files lie in the directory of the unfinished pack (`packer._conversion.workspace`):

``parts.json``      the job
``source.list``     the source as it was when the job began: a list of its files, with their sizes and times
``pack``            the parts: a complete one under its name, an incomplete one in its own ``.partial`` directory
``lock``            held by the process that begins or finishes the job; not held while parts are made

In a store, until the pack ``s3://bucket/train.lmdb`` is complete, there are the objects

``train.lmdb/part-00000.lmdb``, …    the complete parts
``train.lmdb.partial/parts.json``    the job
``train.lmdb.partial/HASH.list``     the list of the source; its name is the list's hash
``train.lmdb.partial/mend-7``        records that image 7 stopped the work on a part, and that its file may be replaced

No lock is needed in a store: if several processes write the same object, they write the same bytes. Joining reads only
the tables of the parts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from packer._conversion.convert import Summary, require_format, require_space
from packer._conversion.recipe import Recipe
from packer._conversion.workspace import Workspace, WorkspacePaths, check_destination, check_inputs, check_outside
from packer._formats import FORMATS, check_readable, open_pack
from packer._formats.files import PackFiles, copy_pack
from packer._formats.parts import TABLE_FILE, join_parts
from packer._formats.reader import MANIFEST_FILE
from packer._manifest import Manifest
from packer._sources.base import Source
from packer._sources.scan_list import let_mend, listed_source, write_listing
from packer._storage.files import (
    disk_size,
    held,
    remove,
    replacing,
    sync_directory,
    synced_directory,
    write_output,
    writing_to,
)
from packer._storage.place import place_of
from packer._storage.remote.s3 import UploadLog
from packer._storage.remote.upload import SharedPrefix, require_writable
from packer._storage.remote.urls import UrlPath, identity, is_url, user_path
from packer._storage.stamps import MENDABLE, same_stamp, stamp_in
from packer.errors import (
    DestinationError,
    NotAPackError,
    PackError,
    PackLockedError,
    PackNotFoundError,
    RemoteError,
    SourceError,
    option,
    printable,
)

Job = Mapping[str, Any]
OpenSource = Callable[[], Source]
DescribeJob = Callable[[Source], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class PartCounts:
    """The counts that are reported for a part: bytes, images left out, and images kept unchanged.

    Attributes
    ----------
    bytes_in : int
        Size in bytes of the files that became samples; 0 if the part was complete already.
    skipped : int
        Number of images that were left out.
    kept : int
        Number of samples with the unchanged bytes of their files; 0 if the part was complete already.
    note : str
        A remark for the user.
    """

    bytes_in: int = 0
    skipped: int = 0
    kept: int = 0
    note: str = ""

    @classmethod
    def of(cls, summary: Summary, note: str = "") -> PartCounts:
        """Return the counts of a part that was just made."""
        return cls(bytes_in=summary.bytes_in, skipped=len(summary.manifest.skipped), kept=summary.kept, note=note)

    @classmethod
    def at(cls, path: Path) -> PartCounts:
        """Return the counts of an existing part; zeros if another process has meanwhile finished the whole pack."""
        try:
            with open_pack(path) as reader:
                return cls(skipped=len(reader.manifest.skipped))
        except (NotAPackError, PackNotFoundError):
            return cls()


@dataclass(frozen=True)
class PartTask:
    """A part to be made.

    Attributes
    ----------
    number : int
    name : str
        The name of the part in the pack.
    settings : mapping
        The settings that determine the bytes of the part, except the source, as JSON values.
    source : mapping
        The description of the part's images; see `Source.describe`.
    convert : callable
        Makes the part at a path.
    is_at : callable
        Tells whether the part at a path equals the part that `convert` would make.
    """

    number: int
    name: str
    settings: Mapping[str, Any]
    source: Mapping[str, Any]
    convert: Callable[[Path], Summary]
    is_at: Callable[[Path], bool]

    def make(self, directory: Path) -> PartCounts:
        """Make the part in a directory, unless an earlier run made it there."""
        path = directory / self.name
        return PartCounts.at(path) if os.path.exists(path) else PartCounts.of(self.convert(path))


class Destination(ABC):
    """The files of a conversion in parts.

    Parameters
    ----------
    path : Path
        The path of the pack, absolute or a URL.
    directory : Path
        The directory that contains the job, and the list of the source, until the pack is complete.

    Attributes
    ----------
    path, directory : Path
    always_shared : bool
        True if every task uses the list that the first task wrote, possibly on another machine. A task then detects
        that a file has changed only when it reads the file.
    command : str
        The command that begins a conversion in parts, for messages.
    """

    always_shared: ClassVar[bool]
    command: ClassVar[str]

    def __init__(self, path: Path, directory: Path) -> None:
        self.path, self.directory = path, directory

    @abstractmethod
    def is_present(self) -> bool:
        """Tell whether anything exists at the path of the pack."""

    @abstractmethod
    def size(self) -> int:
        """Return the size of the whole pack in bytes."""

    @abstractmethod
    def check(self, *, overwrite: bool) -> None:
        """Raise DestinationError if no pack can be written, or if something exists that must not be replaced."""

    @abstractmethod
    def check_source(self, source: Source, recipe: Recipe, *, ignore_free_space: bool) -> None:
        """Raise DestinationError if the pack would be inside the source, or the disk has too little free space."""

    @abstractmethod
    def part(self, name: str) -> Path:
        """Return the path that a part has when it is complete."""

    @abstractmethod
    def missing(self, names: Sequence[str]) -> list[int]:
        """Return the numbers of the parts that are incomplete."""

    @abstractmethod
    def job(self) -> dict[str, Any] | None:
        """Return the job, or None if no job is in progress; raise DestinationError if the job cannot be read."""

    @abstractmethod
    def listing(self, job: Job) -> Path:
        """Return the path of the list of the source. If the job has no list, no file exists there."""

    @abstractmethod
    def begin(
        self, open_source: OpenSource, describe: DescribeJob, *, fresh: bool, overwrite: bool, wait: float
    ) -> Source | None:
        """Write the list of the source and the job, unless another task has written them first.

        Parameters
        ----------
        open_source : callable
            Lists the source.
        describe : callable
            Returns the job, as a JSON object, for a source whose files have stamps (size and time).
        fresh : bool
            Whether to drop the leftovers of an earlier job.
        overwrite : bool
            Whether to replace a pack that exists.
        wait : float
            Seconds to wait for another process that is beginning the job.

        Returns
        -------
        Source or None
            The source; None if another task may have begun the job. In that case the caller joins that job.

        Raises
        ------
        DestinationError
            If there is a pack that must not be replaced. Other tasks may have finished this pack since the last check.
        """

    @abstractmethod
    def relax(self, job: Job) -> None:
        """Record that bad files are skipped from now on; raise DestinationError if `job` is no longer in progress."""

    @abstractmethod
    def with_replaceable(self, source: Source, first: int) -> Source:
        """Return `source`, changed so that it accepts replaced files for the images that stopped the work on a part.

        `source` contains the images of one part; `first` is the number of its first image in the whole source.
        """

    @abstractmethod
    def let_mend(self, source: Source, index: int) -> None:
        """Record that image `index` stopped the work on a part: its file may be replaced before the job continues."""

    @abstractmethod
    def make(self, task: PartTask, *, wait: float) -> PartCounts:
        """Make a part at its final path, unless the part exists or another process makes it meanwhile.

        Raises
        ------
        DestinationError
            If there is a part of another conversion at that path.
        PackLockedError
            If another process makes the part for longer than `wait` seconds.
        PackerError
            The same errors as from `packer._conversion.convert.convert`.
        """

    @abstractmethod
    def finish(self, *, wait: float = 0) -> Manifest:
        """Join the parts into one pack, unless another process does so; return the pack's manifest.

        Parameters
        ----------
        wait : float
            Seconds to wait for another process that is finishing the pack.

        Raises
        ------
        DestinationError
            If there are no parts, or some are missing.
        SourceError
            If no image could be read.
        PackError
            If a part cannot be read.
        PackLockedError
            If another process is finishing the pack.
        """

    def gone(self) -> DestinationError:
        """Return the error for a job that is no longer in progress."""
        return DestinationError(f"{printable(self.path)}: another process finished this conversion or deleted it")

    def complete_parts(self, job: Job) -> list[str]:
        """Return the names of all parts; raise DestinationError if some are missing."""
        names = [part_name(number, job["settings"]["format"]) for number in range(job["settings"]["parts"])]
        if missing := self.missing(names):
            shown = ", ".join(map(str, missing[:20])) + (", …" if len(missing) > 20 else "")
            raise DestinationError(f"{printable(self.path)}: {len(missing)} of {len(names)} parts are missing: {shown}")
        return names

    def require_samples(self, job: Job, manifest: Manifest) -> None:
        """Raise SourceError if the joined pack has no sample."""
        if not manifest.count:
            raise SourceError(f"{printable(self.path)}: none of the {job['images']} images can be read")

    def finished(self) -> Manifest:
        """Return the manifest of a finished pack with parts; raise DestinationError if there is no such pack."""
        if not self.is_present():
            raise DestinationError(
                f"{printable(self.path)}: no conversion in parts was started here. Start one with {self.command}."
            )
        with open_pack(self.path) as reader:
            if not reader.manifest.parts:
                raise DestinationError(
                    f"{printable(self.path)}: is a complete pack without parts, so there is nothing to finish"
                )
            return reader.manifest


def destination_of(path: str | os.PathLike[str], scratch: Path | None = None) -> Destination:
    """Return the destination at a path or a URL; parts are made in `scratch`, and then copied or uploaded."""
    if is_url(path):
        return StoreDestination(user_path(path), scratch)
    return LocalDestination(Path(os.path.abspath(os.path.expanduser(path))), scratch)


_SECONDS_BETWEEN_ATTEMPTS = 1.0  # to make a part that another process is making


class LocalDestination(Destination):
    """A conversion in parts on a disk that all its tasks see.

    Parameters
    ----------
    path : Path
        The pack.
    scratch : Path, optional
        A directory on this node's own disk, where parts are made before they are copied. A part that does not fit there
        is made at the destination.
    """

    always_shared = False
    command = "`packer convert --parts`"

    def __init__(self, path: Path, scratch: Path | None = None) -> None:
        self.paths = WorkspacePaths(path)
        super().__init__(path, self.paths.directory)
        self._scratch = scratch

    def is_present(self) -> bool:
        return os.path.exists(self.path)

    def size(self) -> int:
        return disk_size(self.path)

    def check(self, *, overwrite: bool) -> None:
        check_destination(self.path, overwrite=overwrite)

    def check_source(self, source: Source, recipe: Recipe, *, ignore_free_space: bool) -> None:
        check_outside(self.path, source.tree)
        check_inputs(self.path, source.inputs())
        if not ignore_free_space:
            require_space(source, recipe, self.path)

    def part(self, name: str) -> Path:
        return self.paths.pack / name

    def missing(self, names: Sequence[str]) -> list[int]:
        return [number for number, name in enumerate(names) if not os.path.exists(self.part(name))]

    def job(self) -> dict[str, Any] | None:
        if not os.path.exists(self.paths.job):
            return None
        self.paths.require_no_links()
        try:
            text = self.paths.job.read_bytes()
        except FileNotFoundError:  # another process has just finished the pack
            return None
        except OSError as error:
            raise DestinationError(f"{printable(self.paths.job)}: cannot be read: {error.strerror}") from error
        return _parsed_job(text, self.paths.job, self.directory)

    def listing(self, job: Job) -> Path:
        return self.paths.listing

    def begin(
        self, open_source: OpenSource, describe: DescribeJob, *, fresh: bool, overwrite: bool, wait: float
    ) -> Source | None:
        with Workspace(self.path, wait=wait) as workspace:
            if not fresh and os.path.exists(workspace.job):  # another process began the job while this one waited
                return None
            self.check(overwrite=overwrite)
            if not fresh:
                workspace.require_kind(in_parts=True)
            source = open_source().stamped()
            job = describe(source)
            for old in (workspace.journal, workspace.job, workspace.listing, workspace.pack):
                remove(old)
            with writing_to(workspace.pack):
                workspace.pack.mkdir()
            if source.origin is None:
                write_listing(source, workspace.listing)
            self._write_job(job)  # last, because other tasks join as soon as there is a job
            return listed_source(workspace.listing) if source.origin is None and source.is_local else source

    def relax(self, job: Job) -> None:
        relaxed = {**job, "settings": {**job["settings"], "on_error": "skip"}}
        with Workspace(self.path, wait=float("inf")):  # otherwise another task may finish or replace the job meanwhile
            now = self.job()
            if now == relaxed:  # another task has relaxed the job already
                return
            if now != job:
                raise self.gone()
            self._write_job(relaxed)

    def with_replaceable(self, source: Source, first: int) -> Source:
        return source  # on a disk, the list of the source itself records which files may be replaced

    def let_mend(self, source: Source, index: int) -> None:
        let_mend(self.paths.listing, source, index)

    def make(self, task: PartTask, *, wait: float) -> PartCounts:
        path, deadline = self.part(task.name), time.monotonic() + wait
        while not os.path.exists(path):
            try:
                return self._make(task, path)
            except PackLockedError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
            except (DestinationError, PackError):  # PackError: a check did not find the files that were just written
                if os.path.exists(path) or not os.path.exists(self.paths.job):
                    break  # another process made the part meanwhile, or finished the pack and removed these files
                raise
        return PartCounts.at(path)

    def finish(self, *, wait: float = 0) -> Manifest:
        if os.path.exists(self.paths.job):
            with Workspace(self.path, wait=wait) as workspace:
                job = self.job()
                if job is not None:
                    return self._join(workspace, job)
        return self.finished()

    def _join(self, workspace: Workspace, job: Job) -> Manifest:
        names = self.complete_parts(job)
        with writing_to(workspace.pack):
            for stale in set(os.listdir(workspace.pack)) - set(names):  # left by tasks that died or were too late
                remove(workspace.pack / stale)
        manifest = join_parts(workspace.pack, names, job["made_of"])
        self.require_samples(job, manifest)
        check_readable(workspace.pack, manifest)
        workspace.commit(overwrite=job["overwrite"])
        return manifest

    def _make(self, task: PartTask, path: Path) -> PartCounts:
        if self._scratch is None:
            return PartCounts.of(task.convert(path))
        room = self._scratch / f"packer-{_hash(self.path, task.settings, task.source)}"
        try:
            return self._make_on_scratch(task, path, room)
        except DestinationError as error:
            if isinstance(error, PackLockedError) or os.path.exists(path):
                raise
            return PartCounts.of(task.convert(path), f"made at the destination, not in the scratch directory: {error}")

    def _make_on_scratch(self, task: PartTask, path: Path, room: Path) -> PartCounts:
        with writing_to(room):
            room.mkdir(parents=True, exist_ok=True)
        before = self._purpose()
        try:
            counts = task.make(room)
            if self._purpose() != before:  # another process began the job anew, with parts of its own
                raise self.gone()
            if not os.path.exists(path):
                _copy(room / task.name, path)
        except DestinationError as error:
            if not isinstance(error, PackLockedError):
                shutil.rmtree(room, ignore_errors=True)
            raise
        shutil.rmtree(room, ignore_errors=True)
        return counts

    def _purpose(self) -> Job | None:
        """Return the job without the setting that `relax` changes while parts are made."""
        job = self.job()
        return None if job is None else {**job, "settings": {**job["settings"], "on_error": None}}

    def _write_job(self, job: Job) -> None:
        """Write the job; on return, the job and all names in its directory are on the disk."""
        with replacing(self.paths.job) as file:
            file.append(json.dumps(job).encode("ascii"))
        sync_directory(self.directory.parent)  # the name of the directory itself


_JOB_FILE = "parts.json"
_MEND = "mend-"
_OF_PARTS = re.compile(rf"part-[0-9]{{5,}}\.[a-z0-9]+(/.*)?|{re.escape(TABLE_FILE)}")


class StoreDestination(Destination):
    """A conversion in parts whose files are objects of a store; parts are made in a scratch directory and uploaded.

    Parameters
    ----------
    path : Path
        The URL of the pack.
    scratch : Path, optional
        The directory in which parts and other files are made before they are uploaded; by default `default_scratch`.

    Raises
    ------
    DestinationError
        If no pack can be written to that URL, or to `scratch`.
    RemoteError
        If the store cannot be reached or refuses a request; all methods may raise this.
    """

    always_shared = True
    command = "`packer convert --parts N --part K`, or with --cluster"

    def __init__(self, path: Path, scratch: Path | None = None) -> None:
        require_writable(path)
        directory: Path = UrlPath(f"{path.__fspath__().rstrip('/')}.partial")  # type: ignore[assignment]
        super().__init__(path, directory)
        self._pack = SharedPrefix(path.__fspath__())
        self._unfinished = SharedPrefix(directory.__fspath__())
        self._own_scratch = scratch

    @cached_property
    def _scratch(self) -> Path:
        return make_scratch(self._own_scratch)

    def is_present(self) -> bool:
        return MANIFEST_FILE in self._pack.names() or self._pack.is_object()

    def size(self) -> int:
        return self._pack.size()

    def check(self, *, overwrite: bool) -> None:
        """Do nothing, because `begin` looks for existing objects and replaces none."""

    def check_source(self, source: Source, recipe: Recipe, *, ignore_free_space: bool) -> None:
        """Do nothing: a pack in a store cannot be inside a directory on a disk, and a store does not get full."""

    def part(self, name: str) -> Path:
        return self.path / name

    def missing(self, names: Sequence[str]) -> list[int]:
        # The manifest is the last file of a part with several files.
        there = {name.removesuffix(f"/{MANIFEST_FILE}") for name in self._pack.names()}
        return [number for number, name in enumerate(names) if name not in there]

    def job(self) -> dict[str, Any] | None:
        text = self._unfinished.read(_JOB_FILE)
        return None if text is None else _parsed_job(text, self.directory / _JOB_FILE, self.directory)

    def listing(self, job: Job) -> Path:
        return self.directory / str(job.get("list", "none.list"))

    def begin(
        self, open_source: OpenSource, describe: DescribeJob, *, fresh: bool, overwrite: bool, wait: float
    ) -> Source | None:
        if fresh:
            self._drop()
        self._require_absent()
        source = open_source().stamped()
        job = describe(source)
        self._require_absent()  # listing takes long, and other tasks may have finished the pack meanwhile
        if self._pack.names():
            if self.job() is not None:
                return None
            raise DestinationError(
                f"{printable(self.path)}/: contains objects that are neither a pack nor a conversion in parts. Check "
                "them and delete them, or choose another name."
            )
        with self._upload_directory() as (directory, log):
            if source.origin is None:
                write_listing(source, directory / "source.list")
                job["list"] = f"{_file_hash(directory / 'source.list')}.list"
                self._unfinished.send(directory / "source.list", job["list"], log)
            write_output(directory / _JOB_FILE, json.dumps(job).encode("ascii"))
            try:
                self._unfinished.send(directory / _JOB_FILE, _JOB_FILE, log)
            except DestinationError:
                if self.job() is None:  # otherwise another task was first
                    raise
        return None

    def relax(self, job: Job) -> None:
        """Do nothing, because a job in a store is never replaced. Each task reports the files that it skips."""

    def with_replaceable(self, source: Source, first: int) -> Source:
        names = [name.removeprefix(_MEND) for name in self._unfinished.names() if name.startswith(_MEND)]
        marked = np.array(sorted(int(name) for name in names if name.isdecimal()), np.int64) - first
        own = marked[(marked >= 0) & (marked < len(source))]
        if source.stamps is None or not len(own):
            return source
        stamps = source.stamps.copy()
        stamps[own] = MENDABLE
        return replace(source, stamps=stamps)

    def let_mend(self, source: Source, index: int) -> None:
        if source.stamps is None or not same_stamp(stamp_in(source.stamps, index), source.stamp(index)):
            return  # the file has changed since the listing, and therefore remains an error
        with self._upload_directory() as (directory, log):
            write_output(directory / "mend", b"")
            self._unfinished.send(directory / "mend", f"{_MEND}{index}", log)

    def make(self, task: PartTask, *, wait: float) -> PartCounts:
        job = self.job()
        counts = None
        with self._room(task, job, wait) as room:
            if self.missing([task.name]):
                try:
                    if job is None:
                        raise self.gone()
                    made = task.make(room)
                    self._send(task, room, job)
                    counts = made
                except (DestinationError, RemoteError):
                    if self.missing([task.name]):
                        raise  # otherwise another process has made the part or the pack meanwhile
            shutil.rmtree(room, ignore_errors=True)
        return self._counts_of_own(task) if counts is None else counts

    def finish(self, *, wait: float = 0) -> Manifest:
        job = self.job()
        if job is None:
            return self.finished()
        names = self.complete_parts(job)
        with self._upload_directory() as (directory, log):
            manifest = join_parts(directory, names, job["made_of"], place_of(self.path))
            self.require_samples(job, manifest)
            for name in (TABLE_FILE, MANIFEST_FILE):
                self._pack.send(directory / name, name, log)
        self._abort_unfinished()
        objects = self._unfinished.names()
        # The job goes last, so that the parts are joined again if this process is killed.
        self._unfinished.delete(sorted(objects, key=lambda name: name == _JOB_FILE))
        return manifest

    def _counts_of_own(self, task: PartTask) -> PartCounts:
        """Return the counts of the existing part; raise DestinationError for a part of another conversion."""
        path = self.part(task.name)
        if not task.is_at(path):
            raise DestinationError(
                f"{printable(path)}: is a part of another conversion. Check what it is and delete it, or choose "
                f"another name than {printable(self.path)}."
            )
        return PartCounts.at(path)

    def _send(self, task: PartTask, room: Path, job: Job) -> None:
        """Upload a part, unless its job was dropped: a later job would join the part with its own parts."""
        made = room / task.name
        files = sorted(PackFiles.of(made).sizes, key=lambda inside: inside == MANIFEST_FILE)
        with contextlib.closing(UploadLog(room / "upload.jsonl")) as log:
            for inside in files:
                if self.job() != job:
                    raise self.gone()
                name = f"{task.name}/{inside}" if inside else task.name
                self._pack.send(made / inside if inside else made, name, log)

    @contextlib.contextmanager
    def _room(self, task: PartTask, job: Job | None, wait: float) -> Iterator[Path]:
        """Lock the directory, below the scratch directory, in which this part is made."""
        about = {name: value for name, value in (job or {}).items() if name != "settings"}
        name = f"{self.path.stem}-{task.number:05d}-{_hash(self.path, task.settings, about, task.source)}"
        room, deadline = self._scratch / name, time.monotonic() + wait

        def refuse() -> None:
            if time.monotonic() >= deadline:
                raise PackLockedError(
                    f"{printable(room)}: another process is making part {task.number} in this directory"
                )

        with held(room.with_name(f"{name}.lock"), refuse):
            with writing_to(room):
                room.mkdir(exist_ok=True, mode=0o700)
            yield room

    @contextlib.contextmanager
    def _upload_directory(self) -> Iterator[tuple[Path, UploadLog]]:
        """Lock a directory for files that are uploaded immediately, and remove leftovers of a killed process."""
        directory = self._scratch / f"{self.path.stem}-{identity(self.path)[:16]}-job"
        with held(directory.with_name(f"{directory.name}.lock"), lambda: None):
            remove(directory)
            with writing_to(directory):
                directory.mkdir(mode=0o700)
            try:
                with contextlib.closing(UploadLog(directory / "upload.jsonl")) as log:
                    yield directory, log
            finally:
                remove(directory)

    def _drop(self) -> None:
        """Delete the objects of an unfinished job; raise DestinationError if there is a pack."""
        names = self._pack.names()
        if MANIFEST_FILE in names:
            raise self._exists_already()
        self._unfinished.delete([_JOB_FILE])  # first, so that no task joins it any more
        self._abort_unfinished()
        self._pack.delete(name for name in names if _OF_PARTS.fullmatch(name))
        self._unfinished.delete(self._unfinished.names())

    def _abort_unfinished(self) -> None:
        """Abort all unfinished uploads to this URL. Their processes were killed, or must no longer finish them."""
        with self._upload_directory() as (_, log):  # the log is empty, so all uploads count as those of others
            self._pack.abort_unfinished(log)
            self._unfinished.abort_unfinished(log)

    def _require_absent(self) -> None:
        if self.is_present():
            raise self._exists_already()

    def _exists_already(self) -> DestinationError:
        return DestinationError(
            f"{printable(self.path)}: exists already. Choose another name, or delete it first: otherwise parts of the "
            "new pack would replace parts of the old one while programs read it."
        )


def part_name(number: int, format: str) -> str:
    """Return the name of a part in the pack."""
    return f"part-{number:05d}{require_format(format).suffixes[0]}"


_MEMBERS = {
    **{"settings": dict, "request": dict, "source": dict, "packs": list, "made_of": dict},
    **{"listed": bool, "images": int, "overwrite": bool},
}
_SETTINGS = {"format": str, "parts": int, "on_error": str}
"""The keys that every job and its settings must have, and the types of their values."""


def _parsed_job(text: bytes, path: Path, directory: Path) -> dict[str, Any]:
    """Parse a job; DestinationError, with the path and the directory, if the job is damaged."""
    try:
        job = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, directory, "it is not JSON") from error
    for where, members in ((job, _MEMBERS), (job.get("settings") if isinstance(job, dict) else None, _SETTINGS)):
        if not isinstance(where, dict):
            raise _damaged(path, directory, "it is not the expected JSON object")
        for name, kind in members.items():
            if type(where.get(name)) is not kind:
                raise _damaged(path, directory, f"{name!r} is missing or has the wrong type")
    if job["settings"]["format"] not in FORMATS or job["settings"]["parts"] < 1:
        raise _damaged(path, directory, "its format or its number of parts is invalid")
    return dict(job)


def _damaged(path: Path, directory: Path, problem: str) -> DestinationError:
    return DestinationError(
        f"{printable(path)}: damaged: {problem}. Remove {printable(directory)}, and convert again, which makes all "
        "parts again."
    )


def _copy(made: Path, path: Path) -> None:
    """Copy a part to its final path."""
    # A unique name, because another node may copy this part too.
    copy = path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}")
    try:
        copy_pack(PackFiles.of(made), copy)
        with open_pack(made) as reader:
            check_readable(copy, reader.manifest)
        # As soon as the part has its name, another process may finish the pack and rename the part's directory.
        with writing_to(path), synced_directory(path.parent):
            os.rename(copy, path)
    except DestinationError:
        remove(copy)
        raise


def _hash(path: Path, *described: Mapping[str, Any]) -> str:
    """Return the hash of a part's description, for the name of its directory below the scratch directory."""
    return hashlib.sha256(json.dumps([os.fspath(path), *described]).encode()).hexdigest()[:16]


def _file_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()[:32]


def default_scratch() -> Path:
    """Return the default directory in which packs are made before they are uploaded."""
    return Path(tempfile.gettempdir()) / (f"packer-{os.geteuid()}" if hasattr(os, "geteuid") else "packer")


def make_scratch(scratch: Path | None) -> Path:
    """Return the directory `scratch`, or `default_scratch` if `scratch` is None; create a missing directory.

    Raises
    ------
    DestinationError
        If the directory cannot be created, or if the default directory belongs to another user.
    """
    directory = default_scratch() if scratch is None else Path(os.path.abspath(scratch))
    if directory == default_scratch():
        make_own_directory(directory)
    else:
        with writing_to(directory):
            directory.mkdir(parents=True, exist_ok=True)
    return directory


def make_own_directory(directory: Path) -> None:
    """Make a directory unless it exists; raise DestinationError if another user owns it or can write to it."""
    with writing_to(directory):
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        status = os.lstat(directory)
    own = not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & stat.S_IWOTH)
    if not own or not stat.S_ISDIR(status.st_mode):
        raise DestinationError(
            f"{printable(directory)}: must be a directory that belongs to you and that nobody else may write to. "
            f"Remove it, or pass another {option('scratch')}."
        )
