"""A conversion in parts: each part is a conversion of its own, and may be done anywhere that sees the same disk.

Beside the destination ``out.lmdb`` stands the directory ``out.lmdb.partial`` with

``parts.json``      what is converted, how, and into how many parts
``source.scan``     the source as it was when the job began: its list, the size and the time of every file
``pack``            the parts, complete ones under their names, others in a ``.partial`` of their own
``lock``            held by whoever begins or finishes the job, and by nobody while parts are made

When all parts are there, `finish` writes the table and the manifest of the whole beside them and renames ``pack``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from packer.convert import Progress, Summary, conversion_settings, convert
from packer.copying import PackFiles, copy_pack
from packer.errors import (
    DestinationError,
    ImageError,
    NotAPackError,
    PackerError,
    PackLockedError,
    ResumeError,
    SourceError,
    printable,
)
from packer.formats import FORMATS, check_readable, open_pack
from packer.formats.files import sync_directory, writing_to
from packer.formats.parts import join_parts
from packer.listing import compare_source
from packer.partial import JOB_FILE, Unfinished, check_destination, setting_differences, unfinished_directory
from packer.prepare import Recipe
from packer.provenance import made_before, provenance, require_tileable
from packer.sample import Manifest
from packer.sources import ScannedSource, Source, is_scan, let_mend, pack_source, scanned_source, write_scan

__all__ = ["Job", "Part", "SharedSource", "finish"]

_SECONDS_BETWEEN_TRIES = 1.0


@dataclass(frozen=True)
class SharedSource:
    """Where every task finds the source: a scan or a pack, on the disk that all of them see.

    Attributes
    ----------
    path : Path
    classes : list of str, optional
        Of a pack: class names in the order of their ids, instead of its own.
    limit : int, optional
        How many images are taken.
    identities : list of str, optional
        Of a pack: what `Source.identities` must return.
    """

    path: Path
    classes: list[str] | None = None
    limit: int | None = None
    identities: list[str] | None = None

    def open(self) -> Source:
        """Open the source, in constant time; SourceError where it is another pack by now."""
        source = scanned_source(self.path) if is_scan(self.path) else pack_source(self.path, classes=self.classes)
        if self.identities is not None and source.identities() != self.identities:
            raise SourceError(f"{printable(self.path)}: another pack is there than when the conversion began")
        return source.limited(self.limit) if self.limit else source


@dataclass(frozen=True)
class Part:
    """What became of one part.

    Attributes
    ----------
    number : int
    images : int
        How many images of the source it is made of.
    bytes_in : int
        Size of the images' files.
    skipped : int
        How many images were left out.
    seconds : float
    host : str
        The node that made it.
    note : str
        What a person should know about it.
    """

    number: int
    images: int
    bytes_in: int
    skipped: int
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
    """

    destination: Path
    parts: int
    recipe: Recipe
    format: str
    options: dict[str, Any] = field(default_factory=dict)
    on_error: str = "fail"
    overwrite: bool = False

    @property
    def directory(self) -> Path:
        return unfinished_directory(self.destination)

    @property
    def _scan(self) -> Path:
        return self.directory / "source.scan"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Everything that decides the bytes of the parts but the source, as JSON values."""
        settings = conversion_settings(self.format, self.options, self.recipe)
        return json.loads(json.dumps({**settings, "parts": self.parts, "on_error": self.on_error}))  # type: ignore[no-any-return]

    def path(self, number: int) -> Path:
        """Return where a part lies when it is complete."""
        return self.directory / "pack" / f"part-{number:05d}{FORMATS[self.format].suffixes[0]}"

    def rows(self, number: int, count: int) -> range:
        """Return which of `count` images belong to a part."""
        return range(number * count // self.parts, (number + 1) * count // self.parts)

    def missing(self) -> list[int]:
        """Return the parts that are not complete."""
        return [number for number in range(self.parts) if not self.path(number).exists()]

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

        Its files are known by size and time from the moment at which the job began. One that is another by then is
        not read.

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
        while fresh or not (self.directory / JOB_FILE).exists():
            with Unfinished(self.destination, wait=float("inf") if share else 0) as unfinished:
                if fresh or not (self.directory / JOB_FILE).exists():
                    return self._begin(unfinished, open_source(), request, fresh=fresh)
        return self._join(open_source, request, share=share, compare=compare)

    def convert(
        self,
        source: Source,
        number: int,
        *,
        workers: int | None = None,
        scratch: Path | None = None,
        wait: float = 0,
        progress: Callable[[Progress], None] | None = None,
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
            As `packer.convert.convert`.
        """
        started = time.monotonic()
        rows = self.rows(number, len(source))
        piece = source.between(rows.start, rows.stop)
        settings: dict[str, Any] = {
            **{"recipe": self.recipe, "format": self.format, "options": self.options, "on_error": self.on_error},
            **{"workers": workers, "allow_empty": True, "progress": progress},
        }
        path, note = self.path(number), ""
        made: tuple[int, int] | None = None
        deadline = time.monotonic() + wait
        while not path.exists():
            try:
                if scratch is not None:
                    try:
                        made = self._convert_on(scratch, piece, path, settings)
                        break
                    except DestinationError as error:
                        if isinstance(error, PackLockedError) or path.exists():
                            raise
                        note = f"not made on scratch: {error}"
                made = _counts(convert(piece, path, **settings))
            except ImageError as error:
                if error.index is not None:
                    with contextlib.suppress(PackerError):  # as `Partial.let_mend`
                        let_mend(self._scan, source, rows.start + error.index)
                raise
            except PackLockedError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_SECONDS_BETWEEN_TRIES)
            except DestinationError:
                if not path.exists():  # else another process made it meanwhile
                    raise
        if made is None:
            made = _counts_of(path)
        return Part(number, len(piece), *made, time.monotonic() - started, socket.gethostname(), note)

    def _begin(self, unfinished: Unfinished, source: Source, request: Mapping[str, Any], *, fresh: bool) -> Source:
        check_destination(self.destination, overwrite=self.overwrite, source=source.root)
        require_tileable(source, self.recipe)
        if len(source) < self.parts:
            raise SourceError(f"{printable(source.root)}: {len(source)} images cannot be {self.parts} parts")
        journal = self.directory / "journal.jsonl"
        if journal.exists() and not fresh:
            raise ResumeError(
                f"{printable(self.directory)} holds an unfinished conversion without parts. "
                "Leave --parts out as before, or say --fresh to start over."
            )
        with writing_to(self.directory):
            for old in (journal, self.directory / JOB_FILE, self._scan):
                old.unlink(missing_ok=True)
            if unfinished.pack.is_dir():
                shutil.rmtree(unfinished.pack)
            unfinished.pack.unlink(missing_ok=True)
            unfinished.pack.mkdir()
        if source.origin is None:
            write_scan(source, self._scan)
        job = {
            "settings": self.settings,
            "request": dict(request),
            "source": source.describe(),
            "packs": source.identities(),
            "listed": source.origin is None and not isinstance(source, ScannedSource),
            "made_of": provenance(source, self.recipe)[2],
            "images": len(source),
            "overwrite": self.overwrite,
        }
        _write_job(self.directory, job)  # last: now others may join
        return source if source.origin is not None else scanned_source(self._scan)

    def _join(
        self, open_source: Callable[[], Source], request: Mapping[str, Any], *, share: bool, compare: bool
    ) -> Source:
        job = _read_job(self.directory)
        # Whoever stopped at a bad file may go on without it: the parts that are there have left nothing out.
        relaxed = (job["settings"]["on_error"], self.on_error) == ("fail", "skip")
        if relaxed:
            job["settings"]["on_error"] = "skip"
        differences = setting_differences(job["settings"], self.settings)
        differences += setting_differences(job["request"], request)
        if not differences:
            shared = share and job["listed"] and self._scan.exists()
            source = scanned_source(self._scan) if shared else open_source()
            source, differences = compare_source(self._scan, job, source, files=compare)
            if not differences:
                if relaxed:
                    _write_job(self.directory, job)
                return source
        raise ResumeError(
            f"{printable(self.directory)} holds an unfinished conversion that was started differently:\n  "
            + "\n  ".join(differences)
            + "\nGo back to what was, or say --fresh to start over."
        )

    def _convert_on(self, scratch: Path, piece: Source, path: Path, settings: Mapping[str, Any]) -> tuple[int, int]:
        """Make a part on another disk, and copy it to its place; return what `_counts` does."""
        what = json.dumps([os.fspath(self.destination), self.settings, piece.describe()])
        room = scratch / f"packer-{hashlib.sha256(what.encode()).hexdigest()[:16]}"
        with writing_to(room):
            room.mkdir(parents=True, exist_ok=True)
        made = room / path.name
        # A name of its own, for another node may copy this part too.
        copy = path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}")
        try:
            counts = _counts_of(made) if made.exists() else _counts(convert(piece, made, **settings))
            if not path.exists():
                copy_pack(PackFiles.of(made), copy)
                with open_pack(made) as reader:
                    check_readable(copy, reader.manifest)
                with writing_to(path):
                    os.rename(copy, path)
                sync_directory(path.parent)
        except DestinationError as error:
            if not isinstance(error, PackLockedError):
                shutil.rmtree(room, ignore_errors=True)
            if copy.exists():
                _remove(copy)
            raise
        shutil.rmtree(room, ignore_errors=True)
        return counts


def _counts(summary: Summary) -> tuple[int, int]:
    """Return the size of the images' files, and how many images were left out."""
    return summary.bytes_in, len(summary.manifest.skipped)


def _counts_of(path: Path) -> tuple[int, int]:
    """Return what `_counts` does, of a part that was made before: nothing was read for it now."""
    try:
        with open_pack(path) as reader:
            return 0, len(reader.manifest.skipped)
    except NotAPackError:  # another process has finished the whole pack meanwhile
        return 0, 0


def finish(destination: str | os.PathLike[str], *, wait: float = 0) -> Manifest:
    """Make one pack of parts that are complete, and give it its name.

    Parameters
    ----------
    destination : path
    wait : float
        How many seconds to wait for another process that is finishing it.

    Returns
    -------
    Manifest
        That of the whole; also where another process finished it meanwhile.

    Raises
    ------
    DestinationError
        If there are no parts, or some are missing.
    PackError
        If what is there cannot be read.
    PackLockedError
        If another process is finishing it.
    """
    destination = Path(os.path.abspath(destination))
    if (unfinished_directory(destination) / JOB_FILE).exists():
        with Unfinished(destination, wait=wait) as unfinished:
            if (unfinished.directory / JOB_FILE).exists():
                return _finish(unfinished)
            shutil.rmtree(unfinished.directory, ignore_errors=True)  # another process finished it
    if not os.path.lexists(destination):
        raise DestinationError(
            f"{printable(destination)}: no conversion in parts was begun. Begin one with `packer convert --parts`."
        )
    with open_pack(destination) as reader:
        if "parts" not in reader.manifest.layout:
            raise DestinationError(f"{printable(destination)}: a pack without parts, which is finished")
        return reader.manifest


def _finish(unfinished: Unfinished) -> Manifest:
    job = _read_job(unfinished.directory)
    suffix = FORMATS[job["settings"]["format"]].suffixes[0]
    names = [f"part-{number:05d}{suffix}" for number in range(job["settings"]["parts"])]
    missing = [number for number, name in enumerate(names) if not (unfinished.pack / name).exists()]
    if missing:
        shown = ", ".join(map(str, missing[:20])) + (", …" if len(missing) > 20 else "")
        raise DestinationError(
            f"{printable(unfinished.destination)}: {len(missing)} of {len(names)} parts are missing: {shown}"
        )
    with writing_to(unfinished.pack):
        for stale in set(os.listdir(unfinished.pack)) - set(names):  # of tasks that were lost, or came too late
            _remove(unfinished.pack / stale)
    manifest = join_parts(unfinished.pack, names, job["made_of"])
    if not manifest.count:
        raise SourceError(f"{printable(unfinished.destination)}: not one of {job['images']} images can be read")
    check_readable(unfinished.pack, manifest)
    unfinished.commit(overwrite=job["overwrite"])
    return manifest


def _write_job(directory: Path, job: Mapping[str, Any]) -> None:
    written = directory / f"{JOB_FILE}.{socket.gethostname()}-{os.getpid()}"  # for several may join at the same time
    with writing_to(directory):
        written.write_text(json.dumps(job), encoding="ascii")
        os.replace(written, directory / JOB_FILE)


def _read_job(directory: Path) -> dict[str, Any]:
    try:
        job: dict[str, Any] = json.loads((directory / JOB_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise DestinationError(f"{printable(directory / JOB_FILE)}: cannot be read: {error}") from error
    return job


def _remove(path: Path) -> None:
    while os.path.lexists(path):
        with contextlib.suppress(FileNotFoundError):  # the task that left it may be removing it too
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
