"""A conversion whose pack goes to object storage: made on this machine, in a room of its scratch, and then uploaded.

The room of ``s3://bucket/train.lmdb`` is a directory of the scratch that nobody else writes into, with

``train.lmdb``      the pack when it is complete; beside it, until then, ``train.lmdb.partial``
``request.json``    what the pack is of, and what it becomes: another conversion does not go on with it
``upload.jsonl``    what was uploaded; see `packer._storage.remote.s3`

It goes when the objects that were uploaded have been compared with the pack. The same call continues what was killed.

A conversion in parts to object storage: each task makes a part in its scratch, and uploads it.

What a store of objects holds of a conversion in parts, which tasks without a common disk make together.

Until the pack ``s3://bucket/train.lmdb`` is complete, there are

``train.lmdb/part-00000.lmdb``, …    the parts that are complete
``train.lmdb.partial/parts.json``    what is converted, how, and into how many parts
``train.lmdb.partial/HASH.list``     the source as it was when the job began; its name says which bytes the list has
``train.lmdb.partial/mend-7``        image 7 has stopped a part, and may be another one by now

Each object is written once, by who comes first; whoever comes later finds it, or makes the same bytes. So nobody locks
anything. When all parts are there, anybody makes one pack of them: that takes the parts' tables alone.
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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from packer._conversion.convert import ConversionProgress, Summary, conversion_settings
from packer._conversion.parts import Job, Made, Part, described, parse_job, part_name, require_same
from packer._conversion.provenance import made_before
from packer._conversion.request import ConversionRequest
from packer._conversion.resume import compare_source, setting_differences, started_differently
from packer._formats import open_pack
from packer._formats.files import PackFiles
from packer._formats.parts import TABLE_FILE, join_parts
from packer._formats.reader import MANIFEST_FILE
from packer._manifest import Manifest
from packer._sources import Source, listed_source, write_listing
from packer._storage.files import remove, write_output, writing_to
from packer._storage.locks import held
from packer._storage.place import place_of
from packer._storage.remote.s3 import UploadLog
from packer._storage.remote.upload import SharedPrefix, Upload, require_writable
from packer._storage.remote.urls import UrlPath, identity, parse
from packer._storage.stamps import MENDABLE, same_stamp, stamp_in
from packer._table import Ints
from packer.errors import (
    DestinationError,
    ImageError,
    PackError,
    PackLockedError,
    RemoteError,
    SourceError,
    option,
    printable,
)

__all__ = ["JobStore", "StoredList", "UploadedConversion", "UploadedJob", "default_scratch", "make_scratch"]


def default_scratch() -> Path:
    """Return the directory in which packs are made before they are uploaded, where nobody says another one."""
    return Path(tempfile.gettempdir()) / (f"packer-{os.geteuid()}" if hasattr(os, "geteuid") else "packer")


def make_scratch(scratch: Path | None) -> Path:
    """Return the directory, which is made if it is missing; None stands for `default_scratch`.

    Raises
    ------
    DestinationError
        If it cannot be made, or is the default one and somebody else's.
    """
    directory = default_scratch() if scratch is None else Path(os.path.abspath(scratch))
    if directory == default_scratch():
        _make_own(directory)
    else:
        with writing_to(directory):
            directory.mkdir(parents=True, exist_ok=True)
    return directory


class UploadedConversion:
    """A conversion to a URL. It is a context: within, the conversion's room is this process's alone.

    Parameters
    ----------
    request : ConversionRequest
        Its `dst` is the URL.
    scratch : Path, optional
        Where the room is; by default `default_scratch`.

    Attributes
    ----------
    request : ConversionRequest
        What is to be converted here, to a pack in the room.
    room : Path
    notes : list of str
        What a person should know of what earlier runs left.
    made : Summary or None
        What an earlier run made, where its pack is complete.

    Raises
    ------
    DestinationError
        If no pack can be written to that URL, or to the scratch.
    RemoteError
        If the store cannot be reached or refuses.
    PackLockedError
        If another process does the same, here or elsewhere.
    ResumeError
        If the room has another conversion to the same URL.
    """

    def __init__(self, request: ConversionRequest, scratch: Path | None = None) -> None:
        require_writable(request.dst)
        url = parse(request.dst)
        self._url, self._overwrite, self._fresh = str(url), request.overwrite, request.fresh
        self._scratch = default_scratch() if scratch is None else Path(os.path.abspath(scratch))
        # The name alone would not do: packs of several buckets may have the same.
        self.room = self._scratch / f"{request.dst.stem}-{identity(self._url)[:16]}"
        self._done = self.room.with_name(f"{self.room.name}.done")
        self.request = replace(request, dst=self.room / request.dst.name, overwrite=False)
        self.notes: list[str] = []
        self.made: Summary | None = None
        self._held = contextlib.ExitStack()

    def __enter__(self) -> UploadedConversion:
        with contextlib.ExitStack() as held_by_now:
            make_scratch(self._scratch)
            held_by_now.enter_context(held(self.room.with_name(f"{self.room.name}.lock"), self._refuse_to_wait))
            remove(self._done)
            if self._fresh:
                self._start_over()
            _make_own(self.room)
            held_by_now.callback(self._tidy)
            self._require_same()
            self._log = UploadLog(self.room / "upload.jsonl")
            held_by_now.callback(self._log.close)
            self._upload = Upload(self._url, self._log, overwrite=self._overwrite)
            self.notes += self._upload.require_free(fresh=self._fresh)
            self.made = self._made_before()
            if self.made is None:
                self.request.require_destination()
            self._held = held_by_now.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._held.close()

    def upload(self, summary: Summary, progress: Callable[[int, int], None] | None = None) -> Summary:
        """Upload the pack that was made, and remove the room; return the summary of both.

        Parameters
        ----------
        summary : Summary
            `made`, or what the conversion of `request` returned.
        progress : callable, optional
            Called, on any thread, with the number of bytes that were uploaded, and their total.

        Raises
        ------
        DestinationError, RemoteError
            If the pack cannot be uploaded; the same call goes on.
        """
        started = time.monotonic()
        files = PackFiles.of(self.request.dst)
        places = [(name, self.request.dst / name if name else self.request.dst) for name in files.sizes]
        self.notes += self._upload.run(places, progress)
        self._log.close()
        with writing_to(self.room):
            os.rename(self.room, self._done)  # in one step: what is left of a room is none to go on with
        shutil.rmtree(self._done, ignore_errors=True)
        seconds = summary.seconds + time.monotonic() - started
        return replace(summary, destination=self._url, seconds=seconds)

    def _refuse_to_wait(self) -> None:
        raise PackLockedError(f"{parse(self._url).shown()}: another process is making it in {printable(self.room)}")

    def _start_over(self) -> None:
        """Drop what an earlier run left."""
        if os.path.exists(self.room / "upload.jsonl"):
            with contextlib.closing(UploadLog(self.room / "upload.jsonl")) as log:
                Upload(self._url, log, overwrite=self._overwrite).give_up()
        remove(self.room)

    def _tidy(self) -> None:
        """Remove the room where nothing was done in it."""
        if not self._holds_work:
            shutil.rmtree(self.room, ignore_errors=True)

    @property
    def _holds_work(self) -> bool:
        """Whether a conversion was begun in the room."""
        return os.path.exists(self.request.dst) or os.path.exists(f"{self.request.dst}.partial")

    def _require_same(self) -> None:
        """Refuse a room of another conversion; write down what this one is where none was begun."""
        path, format = self.room / "request.json", self.request.format_row.name
        said = {
            **conversion_settings(format, self.request.format_options, self.request.recipe),
            **self.request.described(),
            "parts": self.request.parts,
        }
        del said["versions"]  # an unfinished conversion compares them; they do not matter to a complete pack
        if not self._holds_work:
            write_output(path, json.dumps(said).encode("ascii"))
            return
        try:
            before = json.loads(path.read_text("ascii"))
        except (OSError, ValueError) as error:
            raise DestinationError(
                f"{printable(path)}: cannot be read. Start over with {option('fresh', True)}."
            ) from error
        if differences := setting_differences(before, said):
            raise started_differently(self.room, differences)

    def _made_before(self) -> Summary | None:
        """Return the summary of the pack in the room, where it is complete; None where not."""
        if not os.path.exists(self.request.dst):
            return None
        files = PackFiles.of(self.request.dst)
        with open_pack(self.request.dst) as reader:
            manifest = reader.manifest
        when = datetime.fromtimestamp(max(files.modified.values()) / 1e9, timezone.utc)
        self.notes.append(
            f"the pack is complete since {when:%Y-%m-%d %H:%M:%S} UTC, and its upload goes on; --fresh converts anew"
        )
        count = manifest.count + len(manifest.skipped)
        return Summary(self.request.dst, manifest, 0, files.size, 0.0, continued=count, kept=0)


def _make_own(directory: Path) -> None:
    """Make a directory; DestinationError where others may write into the one that is there."""
    with writing_to(directory):
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        status = os.lstat(directory)
    own = not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & stat.S_IWOTH)
    if not own or not stat.S_ISDIR(status.st_mode):
        raise DestinationError(
            f"{printable(directory)}: is no directory that is yours alone. Remove it, or say another "
            f"{option('scratch')}."
        )


_JOB = "parts.json"
_MEND = "mend-"
_OF_PARTS = re.compile(rf"part-[0-9]{{5,}}\.[a-z0-9]+(/.*)?|{re.escape(TABLE_FILE)}")


class JobStore:
    """A conversion in parts on a store.

    Parameters
    ----------
    destination : Path
        The URL of the pack.
    scratch : Path
        A directory for files that are written before they are uploaded.

    Attributes
    ----------
    destination, directory : UrlPath
        The pack, and what lies beside it until it is complete.
    parts : SharedPrefix
        The objects of the pack.

    Raises
    ------
    DestinationError
        If no pack can be written to that URL.
    RemoteError
        If the store cannot be reached or refuses; so all methods raise it.
    """

    def __init__(self, destination: Path, scratch: Path) -> None:
        require_writable(destination)
        self.destination = destination
        self.directory: Path = UrlPath(f"{destination.__fspath__().rstrip('/')}.partial")  # type: ignore[assignment]
        self.parts = SharedPrefix(destination.__fspath__())
        self._beside = SharedPrefix(self.directory.__fspath__())
        self._scratch = scratch

    def is_complete(self) -> bool:
        """Tell whether there is a pack under the name, or anything else."""
        return MANIFEST_FILE in self.parts.names() or self.parts.is_object()

    def begun(self) -> dict[str, Any] | None:
        """Return what was written down when the job began; None where none is under way."""
        text = self._beside.read(_JOB)
        return None if text is None else parse_job(text, self.directory / _JOB, self.directory)

    def listing(self, begun: dict[str, Any]) -> Path:
        """Return where the list of the source lies, if there is one."""
        return self.directory / str(begun.get("list", "none.list"))

    def begin(self, job: dict[str, Any], source: Source) -> None:
        """Write down what the job is, unless another task was first.

        Raises
        ------
        DestinationError
            If something is there already.
        """
        if self.is_complete():
            raise self._exists_already()
        if self.parts.names():
            if self.begun() is not None:
                return
            raise DestinationError(
                f"{printable(self.destination)}/: holds objects, and neither a pack nor a conversion in parts. Look at "
                "them and delete them, or choose another name."
            )
        with self._desk() as (desk, log):
            if source.origin is None:
                write_listing(source, desk / "source.list")
                job["list"] = f"{_digest(desk / 'source.list')}.list"
                self._beside.send(desk / "source.list", job["list"], log)
            write_output(desk / _JOB, json.dumps(job).encode("ascii"))
            try:
                self._beside.send(desk / _JOB, _JOB, log)
            except DestinationError:
                if self.begun() is None:  # else another task was first
                    raise

    def missing(self, parts: int, format: str) -> list[int]:
        """Return which parts are not complete. The manifest is the last file of a part that is several."""
        there = {name.removesuffix(f"/{MANIFEST_FILE}") for name in self.parts.names()}
        return [number for number in range(parts) if part_name(number, format) not in there]

    def mended(self) -> Ints:
        """Return the images that have stopped a part, and may be others now."""
        names = [name.removeprefix(_MEND) for name in self._beside.names() if name.startswith(_MEND)]
        return np.array(sorted(int(name) for name in names if name.isdecimal()), np.int64)

    def let_mend(self, index: int) -> None:
        """Write down that an image may become another."""
        with self._desk() as (desk, log):
            write_output(desk / "mend", b"")
            self._beside.send(desk / "mend", f"{_MEND}{index}", log)

    def drop(self) -> None:
        """Delete what an unfinished job left: its parts, and what lies beside them; DestinationError of a pack."""
        names = self.parts.names()
        if MANIFEST_FILE in names:
            raise self._exists_already()
        self._beside.delete([_JOB])  # first: from now on nobody joins it
        self._abort_unfinished()
        self.parts.delete(name for name in names if _OF_PARTS.fullmatch(name))
        self._beside.delete(self._beside.names())

    def finish(self) -> Manifest:
        """Make one pack of the parts; return its manifest, also where another process made it.

        Raises
        ------
        DestinationError
            If there is no such job, or parts are missing.
        SourceError
            If no image could be read.
        PackError
            If a part cannot be read.
        """
        job = self.begun()
        if job is None:
            return self._finished()
        format, count = job["settings"]["format"], job["settings"]["parts"]
        if missing := self.missing(count, format):
            shown = ", ".join(map(str, missing[:20])) + (", …" if len(missing) > 20 else "")
            raise DestinationError(
                f"{printable(self.destination)}: {len(missing)} of {count} parts are missing: {shown}"
            )
        names = [part_name(number, format) for number in range(count)]
        with self._desk() as (desk, log):
            manifest = join_parts(desk, names, job["made_of"], place_of(self.destination))
            if not manifest.count:
                raise SourceError(f"{printable(self.destination)}: not one of {job['images']} images can be read")
            for name in (TABLE_FILE, MANIFEST_FILE):
                self.parts.send(desk / name, name, log)
        self._abort_unfinished()
        names = self._beside.names()
        self._beside.delete(sorted(names, key=lambda name: name == _JOB))  # last: a killed finish is done again
        return manifest

    def _finished(self) -> Manifest:
        if not self.is_complete():
            raise DestinationError(
                f"{printable(self.destination)}: no conversion in parts was begun. Begin one with "
                "`packer convert --parts N --part K`, or with --cluster."
            )
        with open_pack(self.destination) as reader:
            if not reader.manifest.parts:
                raise DestinationError(f"{printable(self.destination)}: a pack without parts, which is finished")
            return reader.manifest

    def _exists_already(self) -> DestinationError:
        return DestinationError(
            f"{printable(self.destination)}: exists already. Choose another name, or delete it first: parts of a new "
            "pack would replace those of the old one under its readers."
        )

    def _abort_unfinished(self) -> None:
        """Abort uploads of processes that were killed; who is alive finds the object that is there."""
        with self._desk() as (_, log):  # a new log knows of no upload: all are others'
            self.parts.abort_unfinished(log)
            self._beside.abort_unfinished(log)

    @contextlib.contextmanager
    def _desk(self) -> Iterator[tuple[Path, UploadLog]]:
        """Have a directory for files that are written and uploaded at once; what a killed process left there goes."""
        desk = self._scratch / f"{self.destination.stem}-{identity(self.destination)[:16]}-job"
        with held(desk.with_name(f"{desk.name}.lock"), lambda: None):
            remove(desk)
            with writing_to(desk):
                desk.mkdir(mode=0o700)
            try:
                with contextlib.closing(UploadLog(desk / "upload.jsonl")) as log:
                    yield desk, log
            finally:
                remove(desk)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()[:32]


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
