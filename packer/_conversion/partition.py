"""Conversions in parts: each part is a separate conversion, and the parts are joined into one pack.

A task that makes a part may run on any machine that can access the destination (`packer._conversion.destination`).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from packer._conversion.convert import (
    ConversionProgress,
    Summary,
    conversion_settings,
    convert,
    summary_of_made,
)
from packer._conversion.destination import Destination, PartCounts, PartTask, destination_of, part_name
from packer._conversion.recipe import provenance
from packer._conversion.request import REMEDY_OF_CLASSES, ConversionRequest, selected
from packer._conversion.resume import compare_source, made_before, setting_differences, started_differently
from packer._conversion.workspace import check_inputs
from packer._fields import Field
from packer._manifest import Manifest
from packer._sources.base import Source
from packer._sources.labels import with_given_classes
from packer._sources.pack import pack_source
from packer._sources.scan_list import ListedSource, listed_source
from packer._storage.remote.urls import is_url
from packer.errors import ImageError, OptionError, PackerError, SourceError, printable


@dataclass(frozen=True, kw_only=True)
class Part(PartCounts):
    """The result of making one part.

    Attributes
    ----------
    number : int
    images : int
        Number of images of the source in the part.
    seconds : float
    host : str
        The node that made the part.
    """

    number: int
    images: int
    seconds: float
    host: str


@dataclass(frozen=True)
class Partition:
    """A conversion in parts: everything that a task needs except the source. Instances can be pickled.

    Attributes
    ----------
    request : ConversionRequest
        At a URL, nothing is replaced, even with `overwrite`.
    scratch : Path, optional
        The directory, on a node's own disk, in which a task makes its part before the part is copied to the
        destination. By default parts are made at the destination; for a URL, in `default_scratch`.
    """

    request: ConversionRequest
    scratch: Path | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, which may have another working directory.

        The cached `files` are left out: their connections cannot be pickled.
        """
        scratch = self.scratch and Path(os.path.abspath(self.scratch))
        return {"request": self.request, "scratch": scratch, "destination": self.destination}

    @cached_property
    def destination(self) -> Path:
        """The path of the new pack, absolute or a URL."""
        path = self.request.dst
        return path if is_url(path) else Path(os.path.abspath(path))

    @property
    def parts(self) -> int:
        return self.request.parts or 1

    @property
    def format(self) -> str:
        return self.request.format_row.name

    @cached_property
    def files(self) -> Destination:
        """The files at the destination."""
        return destination_of(self.destination, self.scratch)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings that determine the bytes of the parts, except the source, as JSON values."""
        request = self.request
        settings = conversion_settings(self.format, request.format_options, request.recipe)
        return json.loads(json.dumps({**settings, "parts": self.parts, "on_error": request.on_error}))  # type: ignore[no-any-return]

    @property
    def names(self) -> list[str]:
        """The names of the parts in the pack."""
        return [part_name(number, self.format) for number in range(self.parts)]

    def rows(self, number: int, count: int) -> range:
        """Return the range of images that belong to a part, if the source has `count` images."""
        if not 0 <= number < self.parts:
            raise OptionError(f"parts are numbered from 0 to {self.parts - 1}; there is no part {number}")
        return range(number * count // self.parts, (number + 1) * count // self.parts)

    def missing(self) -> list[int]:
        """Return the numbers of the parts that are not complete."""
        return self.files.missing(self.names)

    def made_before(self, source: Source) -> Manifest | None:
        """Return the manifest of the whole pack if it was made from `source` with these settings, otherwise None."""
        return made_before(self.destination, source, self.request.recipe, self.format, self.parts)

    def listing(self) -> Path:
        """Return the path of the source's list, which all tasks use; raise DestinationError if no job is running."""
        return self.files.listing(self._job())

    def begin(
        self,
        open_source: Callable[[], Source],
        request: Mapping[str, Any],
        *,
        share: bool = False,
        compare: bool = True,
        fresh: bool = False,
    ) -> Source:
        """Begin the job, or join a job that another process began; return the source.

        Parameters
        ----------
        open_source : callable
            Lists the source. With `share`, only the first of all processes calls it.
        request : mapping
            The source and the selection of its images, as JSON values; tasks that join the job must have the same
            values.
        share : bool
            Whether joining tasks use the existing list, instead of listing the source again. At a URL, they always use
            the existing list.
        compare : bool
            Whether joining tasks check immediately that no file has changed. If False, a change is found only when the
            file is read. At a URL, tasks never check immediately, because another node may have begun the job.
        fresh : bool
            Whether to drop the leftovers of an earlier job.

        Raises
        ------
        ResumeError
            If the job was begun with other settings.
        DestinationError, SourceError
            If the pack cannot be written, or the source cannot be used.
        """
        files, source = self.files, None
        share, compare = share or files.always_shared, compare and not files.always_shared
        overwrite = self.request.overwrite
        files.check(overwrite=overwrite)
        open_source = functools.cache(open_source)
        if fresh or files.job() is None:
            describe = functools.partial(self._describe, request)
            wait = float("inf") if share else 0
            source = files.begin(open_source, describe, fresh=fresh, overwrite=overwrite, wait=wait)
        return self._join(open_source, request, share=share, compare=compare) if source is None else source

    def convert(
        self,
        source: Source,
        number: int,
        *,
        workers: int | None = None,
        wait: float = 0,
        progress: Callable[[ConversionProgress], None] | None = None,
    ) -> Part:
        """Make a part unless it exists. After an interruption, the same call with the same `scratch` continues.

        Parameters
        ----------
        source : Source
            The source that `begin` or `SharedSource.open` returned.
        number : int
            The number of the part, counted from 0.
        workers : int, optional
            The number of threads.
        wait : float
            Seconds to wait for another process that is making this part.
        progress : callable, optional

        Raises
        ------
        PackerError
            The same errors as from `packer._conversion.convert.convert`.
        """
        started, files = time.monotonic(), self.files
        rows = self.rows(number, len(source))
        piece = files.with_replaceable(self._piece(source, number, rows), rows.start)
        task = PartTask(
            number,
            part_name(number, self.format),
            self.settings,
            piece.describe(),
            convert=self._conversion(piece, workers, progress),
            is_at=lambda path: made_before(path, piece, self.request.recipe, self.format) is not None,
        )
        try:
            counts = files.make(task, wait=wait)
        except ImageError as error:
            if error.index is not None:
                with contextlib.suppress(PackerError):  # without the mark, a replacement is refused as a changed file
                    files.let_mend(source, rows.start + error.index)
            raise
        seconds = time.monotonic() - started
        return Part(number=number, images=len(rows), seconds=seconds, host=socket.gethostname(), **asdict(counts))

    def _piece(self, source: Source, number: int, rows: range) -> Source:
        """Return a part's images. Only the first part gets the account of losses, so that the pack has it only once."""
        piece = source.between(rows.start, rows.stop)
        return piece.without_account() if number else piece

    def _conversion(
        self, piece: Source, workers: int | None, progress: Callable[[ConversionProgress], None] | None
    ) -> Callable[[Path], Summary]:
        """Return a function that converts the images `piece` to a part; its argument is the path of the part."""
        request = self.request
        return functools.partial(
            convert,
            piece,
            recipe=request.recipe,
            format=self.format,
            options=request.format_options,
            on_error=request.on_error,
            workers=workers,
            allow_empty=True,
            ignore_free_space=request.ignore_free_space,
            progress=progress,
        )

    def _describe(self, request: Mapping[str, Any], source: Source) -> dict[str, Any]:
        """Return the job that converts a source, as a JSON object.

        Raises
        ------
        SourceError
            If the source has fewer images than there are parts.
        DestinationError
            If the pack would be inside the source, or the disk has too little free space.
        """
        recipe = self.request.recipe
        made_of = provenance(source, recipe)
        if len(source) < self.parts:
            raise SourceError(
                f"{printable(source.root)}: {len(source)} images cannot be divided into {self.parts} parts"
            )
        self.files.check_source(source, recipe, ignore_free_space=self.request.ignore_free_space)
        return {
            "settings": dict(self.settings),
            "request": dict(request),
            "source": source.describe(),
            "packs": source.identities(),
            "listed": source.origin is None and source.is_local and not isinstance(source, ListedSource),
            "made_of": dict(made_of.source),
            "images": len(source),
            "overwrite": self.request.overwrite,
        }

    def _job(self) -> dict[str, Any]:
        """Return the job that is in progress; raise DestinationError if there is none."""
        job = self.files.job()
        if job is None:
            raise self.files.gone()
        return job

    def _join(
        self, open_source: Callable[[], Source], request: Mapping[str, Any], *, share: bool, compare: bool
    ) -> Source:
        job = self._job()
        relaxed = self._require_same(job, request)
        listing = self.files.listing(job)
        listed = _opened_list(listing) if share and job["listed"] else None
        source = open_source() if listed is None else listed
        source, differences = compare_source(listing, job, source, files=compare)
        if differences:
            raise started_differently(self.files.directory, differences)
        if relaxed:
            self.files.relax(job)
        return source

    def _require_same(self, job: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
        """Raise ResumeError if a job has other settings; return whether this task is the first to skip bad files."""
        before = dict(job["settings"])
        # After a task has stopped at a bad file, the job may continue without such files: no part has left any out yet.
        relaxed = (before["on_error"], self.request.on_error) == ("fail", "skip")
        if relaxed:
            before["on_error"] = "skip"
        differences = setting_differences(before, self.settings) + setting_differences(job["request"], request)
        if differences:
            raise started_differently(self.files.directory, differences)
        return relaxed


@dataclass(frozen=True)
class SharedSource:
    """The source that all tasks share: a listing or a pack, at a path or a URL that all of them can read.

    Attributes
    ----------
    path : Path
    request : ConversionRequest, optional
        The request to convert a pack, which selects the pack's samples; None for a listing.
    classes : list of str, optional
        Class names in the order of their ids, instead of the class names of the pack.
    identities : list of str, optional
        The identities that the pack must have; see `Source.identities`.
    fields : tuple of Field
        Fields whose class ids replace those in the samples' fields of the same name. They come from the request's
        `classes_from`, a pack that tasks do not open; empty without it.
    """

    path: Path
    request: ConversionRequest | None = None
    classes: list[str] | None = None
    identities: list[str] | None = None
    fields: tuple[Field, ...] = ()

    @classmethod
    def of(cls, partition: Partition, source: Source) -> SharedSource:
        """Return the source of a conversion that `begin` has begun."""
        if source.origin is None:
            return cls(partition.listing())
        request = partition.request
        fields = source.fields if request.classes_from is not None else ()
        return cls(Path(os.path.abspath(request.src)), request, request.classes(), source.identities(), fields)

    def open(self) -> Source:
        """Open the source, in constant time; raise SourceError if the source is a pack that has been replaced."""
        if self.request is None:
            return listed_source(self.path)
        source = self._pack(self.request)
        if self.identities is not None and source.identities() != self.identities:
            raise SourceError(f"{printable(self.path)}: the pack was replaced after the conversion began")
        return selected(source, self.request.limit, self.request.sample)

    def _pack(self, request: ConversionRequest) -> Source:
        source = pack_source(self.path, classes=self.classes, bad=request.bad_samples())
        if request.where is not None:
            source = source.where(request.where)
        if request.classes_from is None:
            return source
        bad = request.bad_samples()
        return with_given_classes(source, self.fields, request.classes_from, bad, remedy=REMEDY_OF_CLASSES)


def convert_in_parts(
    request: ConversionRequest, progress: Callable[[ConversionProgress], None] | None = None
) -> Summary:
    """Convert in parts, and continue an interrupted conversion; if the pack is complete already, return its summary."""
    partition = Partition(request)
    manifest = already_made(partition)
    if manifest is None:
        return make_all(partition, progress)
    return summary_of_made(partition.destination, manifest, partition.files.size())


def already_made(partition: Partition) -> Manifest | None:
    """Return the manifest of the complete pack if an earlier run with the same request has made it, otherwise None."""
    request = partition.request
    if request.fresh or request.overwrite or not partition.files.is_present():
        return None
    return partition.made_before(_opening(partition)())


def begin(partition: Partition, *, share: bool, compare: bool = True) -> Source:
    """Begin the job, or join a job that another process began; see `Partition.begin`."""
    request = partition.request
    check_inputs(partition.destination, request.inputs())
    return partition.begin(_opening(partition), request.described(), share=share, compare=compare, fresh=request.fresh)


def make_all(partition: Partition, progress: Callable[[ConversionProgress], None] | None = None) -> Summary:
    """Make the missing parts, one after the other, and join all parts."""
    started = time.monotonic()
    source = begin(partition, share=False)
    missing = partition.missing()
    done = continued = len(source) - sum(len(partition.rows(number, len(source))) for number in missing)
    read = kept = skipped = 0

    def update(part: ConversionProgress) -> None:
        assert progress is not None
        progress(ConversionProgress(done + part.done, len(source), skipped + part.skipped, read + part.bytes_read))

    for number in missing:
        part = partition.convert(
            source, number, workers=partition.request.workers, progress=update if progress is not None else None
        )
        done += part.images
        read += part.bytes_in
        kept += part.kept
        skipped += part.skipped
    return Summary(
        destination=partition.destination,
        manifest=partition.files.finish(),
        bytes_in=read,
        bytes_out=partition.files.size(),
        seconds=time.monotonic() - started,
        continued=continued,
        kept=kept,
        notes=source.remarks(),
        not_looked_at=dict(source.others.counts),
    )


def finish(destination: str | os.PathLike[str], *, wait: float = 0, scratch: Path | None = None) -> Manifest:
    """Join complete parts into one pack at its final path; see `Destination.finish`.

    Parameters
    ----------
    destination : path or URL
    wait : float
        Seconds to wait for another process that is finishing the pack.
    scratch : Path, optional
        The directory in which files of a pack at a URL are written before they are uploaded; by default
        `default_scratch`.
    """
    return destination_of(destination, scratch).finish(wait=wait)


def _opened_list(listing: Path) -> Source | None:
    """Open the list of a source; None if it is missing or damaged, because `compare_source` reports that later."""
    try:
        return listed_source(listing)
    except SourceError:
        return None


def _opening(partition: Partition) -> Callable[[], Source]:
    request = partition.request
    classes = request.classes()

    def opened() -> Source:
        source = request.open(partition.destination, classes)
        source.require_listable()
        return source

    return opened
