"""A conversion in parts: each part is a conversion of its own, and may be done anywhere that sees the same disk.

The directory of the unfinished pack (`packer._conversion.workspace`) holds

``parts.json``      what is converted, how, and into how many parts
``source.list``     the source as it was when the job began: its list, the size and the time of every file
``pack``            the parts, complete ones under their names, others in a ``.partial`` of their own
``lock``            held by the process that begins or finishes the job, and by nobody while parts are made

When all parts are there, `packer._conversion.finish` makes one pack of them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from packer._conversion.begun import described, require_same
from packer._conversion.changes import compare_source, started_differently
from packer._conversion.convert import ConversionProgress, Summary, convert
from packer._conversion.jobfile import part_name, read_job, write_job
from packer._conversion.making import Made, Making
from packer._conversion.provenance import made_before
from packer._conversion.recipe import Recipe
from packer._conversion.required import conversion_settings, require_format, require_parts, require_policy
from packer._conversion.room import require_room
from packer._conversion.workspace import Workspace, WorkspacePaths, check_destination
from packer._manifest import Manifest
from packer._sources import Source, let_mend, listed_source, write_listing
from packer._storage.files import disk_size, remove, writing_to
from packer.errors import DestinationError, ImageError, PackerError, PackLockedError

__all__ = ["Job", "Part"]

_SECONDS_BETWEEN_ATTEMPTS = 1.0  # to make a part that another process makes


@dataclass(frozen=True)
class Part:
    """What became of one part.

    Attributes
    ----------
    number : int
    images : int
        How many images of the source the part is made of.
    bytes_in : int
        Size in bytes of the images' files that were read now; 0 where the part was there already.
    skipped : int
        How many images were left out.
    kept : int
        How many samples are the very bytes of files that were read now.
    seconds : float
    host : str
        The node that made the part.
    note : str
        What a person should know about the part.
    """

    number: int
    images: int
    bytes_in: int
    skipped: int
    kept: int
    seconds: float
    host: str
    note: str = ""


@dataclass(frozen=True)
class Job:
    """A conversion in parts: everything that a task must know but the source. Picklable.

    Attributes
    ----------
    destination : Path
        Where the pack will be, absolute.
    parts : int
    recipe : Recipe
    format : str
    options : dict
        The format's.
    on_error : {"fail", "skip"}
    overwrite : bool
        Whether to replace what is at the destination, when all parts are complete.
    ignore_free_space : bool
        Whether to begin on a disk that has less room than the images' files take.

    Raises
    ------
    ValueError
        If `parts`, `format` or `on_error` is none of those.
    """

    destination: Path
    parts: int
    recipe: Recipe
    format: str
    options: dict[str, Any] = field(default_factory=dict)
    on_error: str = "fail"
    overwrite: bool = False
    ignore_free_space: bool = False

    def __post_init__(self) -> None:
        require_parts(require_format(self.format))
        require_policy(self.on_error)
        if self.parts < 1:
            raise ValueError(f"parts are 1 or more, not {self.parts}")

    @cached_property
    def paths(self) -> WorkspacePaths:
        """Where the files of the unfinished pack lie."""
        return WorkspacePaths(self.destination)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Everything that decides the bytes of the parts but the source, as JSON values."""
        settings = conversion_settings(self.format, self.options, self.recipe)
        return json.loads(json.dumps({**settings, "parts": self.parts, "on_error": self.on_error}))  # type: ignore[no-any-return]

    def path(self, number: int) -> Path:
        """Return where a part lies when it is complete."""
        return self.paths.pack / part_name(number, self.format)

    def piece(self, source: Source, number: int) -> Source:
        """Return the images of a part. The first part has the account of all, so that the whole has it once."""
        rows = self.rows(number, len(source))
        piece = source.between(rows.start, rows.stop)
        return piece.without_account() if number else piece

    def rows(self, number: int, count: int) -> range:
        """Return which of `count` images belong to a part."""
        if not 0 <= number < self.parts:
            raise ValueError(f"parts are counted from 0 to {self.parts - 1}; there is none of number {number}")
        return range(number * count // self.parts, (number + 1) * count // self.parts)

    def missing(self) -> list[int]:
        """Return the parts that are not complete."""
        return [number for number in range(self.parts) if not os.path.exists(self.path(number))]

    def is_there(self) -> bool:
        """Tell whether something is at the destination."""
        return os.path.exists(self.destination)

    def size(self) -> int:
        """Return how many bytes the whole pack takes."""
        return disk_size(self.destination)

    def made_before(self, source: Source) -> Manifest | None:
        """Return the manifest of the whole pack where a job like this one made it already; None where not."""
        return made_before(self.destination, source, self.recipe, self.format, self.parts)

    def begin(
        self,
        open_source: Callable[[], Source],
        request: Mapping[str, Any],
        *,
        share: bool = False,
        compare: bool = True,
        fresh: bool = False,
    ) -> Source:
        """Begin the job, or join the one that another process began; return the source.

        The source's files are known by size and time from the moment at which the job began. A file that changed since
        then is not read.

        Parameters
        ----------
        open_source : callable
            Lists the source. With `share`, only the first of all processes calls it.
        request : mapping
            Where the source is and what of it is taken, as JSON values: those who join must ask for the same.
        share : bool
            Whether those who join take the list that was written then, instead of listing the source again.
        compare : bool
            Whether those who join look at once whether any file changed; else that is found when it is read.
        fresh : bool
            Whether to drop what an earlier job left behind.

        Raises
        ------
        ResumeError
            If the job was begun in another way.
        DestinationError, SourceError
            If the pack cannot be written, or the source cannot be used.
        """
        check_destination(self.destination, overwrite=self.overwrite)
        while fresh or not os.path.exists(self.paths.job):
            with Workspace(self.destination, wait=float("inf") if share else 0) as workspace:
                if fresh or not os.path.exists(workspace.job):
                    return self._begin(workspace, open_source(), request, fresh=fresh)
        return self._join(open_source, request, share=share, compare=compare)

    def convert(
        self,
        source: Source,
        number: int,
        *,
        workers: int | None = None,
        scratch: Path | None = None,
        wait: float = 0,
        progress: Callable[[ConversionProgress], None] | None = None,
    ) -> Part:
        """Make a part, unless it is there.

        Parameters
        ----------
        source : Source
            What `begin` returned, or `SharedSource.open`.
        number : int
            Which part, from 0.
        workers : int, optional
            Threads.
        scratch : Path, optional
            A directory on this node's own disk, where the part is made before it is copied. A part that does not fit
            there is made in its place.
        wait : float
            How many seconds to wait for another process that makes this part.
        progress : callable, optional

        Raises
        ------
        PackerError
            As `packer._conversion.convert.convert`.
        """
        started = time.monotonic()
        rows = self.rows(number, len(source))
        making = self._making(self.piece(source, number), number, workers, scratch, progress)
        made: Made | None = None
        while made is None and not os.path.exists(making.path):
            try:
                made = making.run()
            except ImageError as error:
                if error.index is not None:
                    with contextlib.suppress(PackerError):  # as `UnfinishedPack.let_mend`
                        let_mend(self.paths.listing, source, rows.start + error.index)
                raise
            except PackLockedError:
                if time.monotonic() - started >= wait:
                    raise
                time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
            except DestinationError:
                if os.path.exists(making.path) or not os.path.exists(self.paths.job):
                    break  # another process made the part meanwhile, or all parts, and finished the pack
                raise
        made = made or Made.before(making.path)
        return Part(number, len(rows), *made, time.monotonic() - started, socket.gethostname(), making.note)

    def conversion(
        self, piece: Source, workers: int | None, progress: Callable[[ConversionProgress], None] | None
    ) -> Callable[[Path], Summary]:
        """Return what makes a part of the images `piece` at a path."""
        return functools.partial(
            convert,
            piece,
            recipe=self.recipe,
            format=self.format,
            options=self.options,
            on_error=self.on_error,
            workers=workers,
            allow_empty=True,
            ignore_free_space=self.ignore_free_space,
            progress=progress,
        )

    def _making(
        self,
        piece: Source,
        number: int,
        workers: int | None,
        scratch: Path | None,
        progress: Callable[[ConversionProgress], None] | None,
    ) -> Making:
        conversion = self.conversion(piece, workers, progress)
        if scratch is None:
            return Making(self.path(number), conversion)
        what = json.dumps([os.fspath(self.destination), self.settings, piece.describe()])
        room = scratch / f"packer-{hashlib.sha256(what.encode()).hexdigest()[:16]}"
        return Making(self.path(number), conversion, room)

    def _begin(self, workspace: Workspace, source: Source, request: Mapping[str, Any], *, fresh: bool) -> Source:
        check_destination(self.destination, overwrite=self.overwrite, source=source.tree)
        job = described(self.settings, self.recipe, source, request, overwrite=self.overwrite)
        workspace.require_kind(in_parts=True, fresh=fresh)
        for old in (workspace.job, workspace.listing, workspace.pack):
            remove(old)
        source = source.stamped()
        if not self.ignore_free_space:
            require_room(source, self.recipe, self.destination)
        with writing_to(workspace.pack):
            workspace.pack.mkdir()
        if source.origin is None:
            write_listing(source, workspace.listing)
        write_job(workspace, job)  # last: now others may join
        return listed_source(workspace.listing) if source.origin is None and source.is_local else source

    def _join(
        self, open_source: Callable[[], Source], request: Mapping[str, Any], *, share: bool, compare: bool
    ) -> Source:
        self.paths.require_no_links()
        job = read_job(self.paths)
        relaxed = require_same(job, self.settings, request, self.paths.directory)
        shared = share and job["listed"] and os.path.exists(self.paths.listing)
        source = listed_source(self.paths.listing) if shared else open_source()
        source, differences = compare_source(self.paths.listing, job, source, files=compare)
        if differences:
            raise started_differently(self.paths.directory, differences)
        if relaxed:
            write_job(self.paths, {**job, "settings": {**job["settings"], "on_error": "skip"}})
        return source
