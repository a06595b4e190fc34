"""A conversion in parts to object storage: each task makes a part in its scratch, and uploads it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from packer._conversion.begun import described, require_same
from packer._conversion.changes import compare_source, started_differently
from packer._conversion.convert import ConversionProgress
from packer._conversion.job import Job, Part
from packer._conversion.jobfile import part_name
from packer._conversion.jobstore import JobStore
from packer._conversion.making import Made
from packer._conversion.provenance import made_before
from packer._conversion.uploaded import make_scratch
from packer._formats.copying import PackFiles
from packer._formats.manifestfile import MANIFEST_FILE
from packer._manifest import Manifest
from packer._sources import Source, listed_source
from packer._storage.files import writing_to
from packer._storage.locks import held
from packer._storage.remote.uploadlog import UploadLog
from packer._storage.stamps import MENDABLE, same_stamp, stamp_in
from packer.errors import DestinationError, ImageError, PackError, PackLockedError, RemoteError, printable

__all__ = ["StoredList", "UploadedJob"]


@dataclass(frozen=True)
class StoredList:
    """The list of a source where every task finds it: on the store.

    Attributes
    ----------
    path : Path
        Its URL.
    """

    path: Path

    def open(self) -> Source:
        """Open the list."""
        return listed_source(self.path)


@dataclass(frozen=True)
class UploadedJob:
    """A conversion in parts, as `Job`, whose destination is a URL. Picklable.

    Attributes
    ----------
    job : Job
        What is made; its destination is the URL.
    scratch : Path, optional
        Where parts are made; by default `default_scratch` of the node that makes one.
    """

    job: Job
    scratch: Path | None = None

    @property
    def destination(self) -> Path:
        """The URL of the pack."""
        return self.job.destination

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return self.job.parts

    def rows(self, number: int, count: int) -> range:
        """Return which of `count` images belong to a part."""
        return self.job.rows(number, count)

    def is_there(self) -> bool:
        """Tell whether a pack is there already."""
        return self._store().is_complete()

    def made_before(self, source: Source) -> Manifest | None:
        """Return the manifest of the whole pack where a job like this one made it already; None where not."""
        return self.job.made_before(source)

    def missing(self) -> list[int]:
        """Return the parts that are not complete."""
        return self._store().missing(self.parts, self.job.format)

    def size(self) -> int:
        """Return how many bytes are there."""
        return self._store().parts.size()

    def finish(self) -> Manifest:
        """Make one pack of the parts; see `JobStore.finish`."""
        return self._store().finish()

    def shared_list(self) -> StoredList:
        """Return where every task finds the list of the source; DestinationError where no job is under way."""
        store = self._store()
        begun = store.begun()
        if begun is None:
            raise self._is_gone()
        return StoredList(store.listing(begun))

    def begin(
        self,
        open_source: Callable[[], Source],
        request: Mapping[str, Any],
        *,
        share: bool = True,
        compare: bool = False,
        fresh: bool = False,
    ) -> Source:
        """Begin the job, or join the one that another process began, on whichever node; return the source.

        It does what `Job.begin` does with `share`. Files that changed since the job began are found when they are read,
        whatever `compare` says: the node that begins may not be the one that reads them.
        """
        store = self._store()
        if fresh:
            store.drop()
        begun = store.begun()
        if begun is None:
            source = open_source().stamped()
            store.begin(described(self.job.settings, self.job.recipe, source, request, overwrite=False), source)
            begun, open_source = store.begun(), lambda: source
        if begun is None:
            raise self._is_gone()
        require_same(begun, self.job.settings, request, store.directory)
        listing = store.listing(begun)
        source, differences = compare_source(
            listing, begun, listed_source(listing) if begun["listed"] else open_source(), files=False
        )
        if differences:
            raise started_differently(store.directory, differences)
        return source

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
        """Make a part and upload it, unless it is there. This is `Job.convert`, but `scratch` is where parts are made.

        The same call continues what was killed, where the scratch is the same; elsewhere the part is made anew.
        """
        started, store = time.monotonic(), self._store(scratch)

        def is_missing() -> bool:
            return number in store.missing(self.parts, self.job.format)

        rows = self.rows(number, len(source))
        piece = _with_mended(self.job.piece(source, number), store.mended() - rows.start)
        made: Made | None = None
        begun = store.begun()
        with self._room(begun, number, piece, wait, scratch) as room:
            if is_missing():
                try:
                    made = self._made(room, number, piece, workers, progress)
                    self._send(store, room, number, begun)
                except ImageError as error:
                    if error.index is not None:
                        _let_mend(store, piece, error.index, rows.start)
                    raise
                except (DestinationError, RemoteError):
                    if is_missing():
                        raise  # else another process made the part, or the pack, meanwhile
            shutil.rmtree(room, ignore_errors=True)
        if made is None:
            self._require_own(number, piece)
            made = Made.before(self._place(number))
        return Part(number, len(rows), *made, time.monotonic() - started, socket.gethostname())

    def _made(
        self,
        room: Path,
        number: int,
        piece: Source,
        workers: int | None,
        progress: Callable[[ConversionProgress], None] | None,
    ) -> Made:
        """Make a part in a directory."""
        there = room / part_name(number, self.job.format)
        if os.path.exists(there):
            return Made.before(there)
        return Made.of(self.job.conversion(piece, workers, progress)(there))

    def _send(self, store: JobStore, room: Path, number: int, begun: dict[str, Any] | None) -> None:
        """Upload a part, unless the job that it was made for was dropped: it would be joined with those of another."""
        name = part_name(number, self.job.format)
        there = room / name
        files = sorted(PackFiles.of(there).sizes, key=lambda inside: inside == MANIFEST_FILE)
        with contextlib.closing(UploadLog(room / "upload.jsonl")) as log:
            for inside in files:
                if store.begun() != begun:
                    raise self._is_gone()
                store.parts.send(there / inside if inside else there, f"{name}/{inside}" if inside else name, log)

    @contextlib.contextmanager
    def _room(
        self, begun: dict[str, Any] | None, number: int, piece: Source, wait: float, scratch: Path | None
    ) -> Iterator[Path]:
        """Have a directory in which nobody else makes this part."""
        about = {name: value for name, value in (begun or {}).items() if name != "settings"}
        what = json.dumps([os.fspath(self.destination), self.job.settings, about, piece.describe()])
        name = f"{self.destination.stem}-{number:05d}-{hashlib.sha256(what.encode()).hexdigest()[:16]}"
        room = make_scratch(scratch or self.scratch) / name
        deadline = time.monotonic() + wait

        def refuse() -> None:
            if time.monotonic() >= deadline:
                raise PackLockedError(f"{printable(room)}: another process is making part {number} in it")

        with held(room.with_name(f"{name}.lock"), refuse):
            with writing_to(room):
                room.mkdir(exist_ok=True, mode=0o700)
            yield room

    def _require_own(self, number: int, piece: Source) -> None:
        """Raise DestinationError where the part that is there is none of this job."""
        if made_before(self._place(number), piece, self.job.recipe, self.job.format) is None:
            raise DestinationError(
                f"{printable(self._place(number))}: is a part of another conversion. Look at what is there and delete "
                f"it, or choose another name than {printable(self.destination)}."
            )

    def _is_gone(self) -> DestinationError:
        return DestinationError(f"{printable(self.destination)}: another process finished it, or dropped it")

    def _place(self, number: int) -> Path:
        return self.destination / part_name(number, self.job.format)

    def _store(self, scratch: Path | None = None) -> JobStore:
        return JobStore(self.destination, make_scratch(scratch or self.scratch))


def _with_mended(piece: Source, mended: np.typing.NDArray[np.int64]) -> Source:
    """Return a part of a source in which some images may be any others; those of other parts are left out."""
    own = mended[(mended >= 0) & (mended < len(piece))]
    if piece.stamps is None or not len(own):
        return piece
    stamps = piece.stamps.copy()
    stamps[own] = MENDABLE
    return replace(piece, stamps=stamps)


def _let_mend(store: JobStore, piece: Source, index: int, before: int) -> None:
    """Write down that an image which stopped a part may be another, if it is the one that was listed."""
    with contextlib.suppress(PackError, DestinationError, RemoteError):
        if piece.stamps is not None and same_stamp(stamp_in(piece.stamps, index), piece.stamp(index)):
            store.let_mend(before + index)
