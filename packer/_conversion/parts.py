"""A conversion in parts: each part is a conversion of its own, and may be done anywhere that sees the same disk.

The directory of the unfinished pack (`packer._conversion.workspace`) holds

``parts.json``      what is converted, how, and into how many parts
``source.list``     the source as it was when the job began: its list, the size and the time of every file
``pack``            the parts, complete ones under their names, others in a ``.partial`` of their own
``lock``            held by the process that begins or finishes the job, and by nobody while parts are made

When all parts are there, `packer._conversion.run_parts` makes one pack of them.

The making of one part of a pack: in its place, or on a node's own disk, from which it is copied.

The file that says what a conversion in parts is, for those who join it and for those who finish it.

The source of a conversion in parts, as every task finds it.

What a conversion in parts began with, and whether a process that joins the conversion asks for the same.
"""

from __future__ import annotations

import contextlib
import functools
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
from typing import Any, NamedTuple

from packer._conversion.convert import (
    ConversionProgress,
    Summary,
    conversion_settings,
    convert,
    require_format,
    require_parts,
    require_policy,
    require_room,
)
from packer._conversion.provenance import made_before, provenance
from packer._conversion.recipe import Recipe
from packer._conversion.resume import compare_source, setting_differences, started_differently
from packer._conversion.workspace import Workspace, WorkspacePaths, check_destination
from packer._formats import FORMATS, check_readable, open_pack
from packer._formats.files import PackFiles, copy_pack
from packer._manifest import Manifest
from packer._sources import ListedSource, Source, is_listing, let_mend, listed_source, pack_source, write_listing
from packer._storage.files import disk_size, remove, replacing, sync_directory, synced_directory, writing_to
from packer.errors import (
    DestinationError,
    ImageError,
    NotAPackError,
    PackerError,
    PackLockedError,
    PackNotFoundError,
    SourceError,
    printable,
)

__all__ = [
    "Job",
    "Made",
    "Making",
    "Part",
    "SharedSource",
    "described",
    "parse_job",
    "part_name",
    "read_job",
    "require_same",
    "write_job",
]


class Made(NamedTuple):
    """What became of the images of a part.

    Attributes
    ----------
    bytes_in : int
        Size in bytes of the files that were read now; 0 where the part was there already.
    skipped : int
        How many images were left out.
    kept : int
        How many samples are the very bytes of files that were read now.
    """

    bytes_in: int = 0
    skipped: int = 0
    kept: int = 0

    @classmethod
    def of(cls, summary: Summary) -> Made:
        """Return what a conversion tells."""
        return cls(summary.bytes_in, len(summary.manifest.skipped), summary.kept)

    @classmethod
    def before(cls, path: Path) -> Made:
        """Return what a part tells that was there; zeros where the whole pack was finished meanwhile."""
        try:
            with open_pack(path) as reader:
                return cls(skipped=len(reader.manifest.skipped))
        except (NotAPackError, PackNotFoundError):
            return cls()


@dataclass
class Making:
    """The making of one part.

    Attributes
    ----------
    path : Path
        Where the part will be.
    convert : callable
        Makes the part at another path.
    room : Path, optional
        A directory of the part's own on another disk, where it is made first. A part that does not fit there is made
        in its place.
    note : str
        What a person should know about the part.
    """

    path: Path
    convert: Callable[[Path], Summary]
    room: Path | None = None
    note: str = ""

    def run(self) -> Made:
        """Make the part; errors as of `packer._conversion.convert.convert`."""
        if self.room is not None:
            try:
                return self._in_room(self.room)
            except DestinationError as error:
                if isinstance(error, PackLockedError) or os.path.exists(self.path):
                    raise
                self.note = f"not made on scratch: {error}"
        return Made.of(self.convert(self.path))

    def _in_room(self, room: Path) -> Made:
        with writing_to(room):
            room.mkdir(parents=True, exist_ok=True)
        there = room / self.path.name
        try:
            made = Made.before(there) if os.path.exists(there) else Made.of(self.convert(there))
            if not os.path.exists(self.path):
                self._copy(there)
        except DestinationError as error:
            if not isinstance(error, PackLockedError):
                shutil.rmtree(room, ignore_errors=True)
            raise
        shutil.rmtree(room, ignore_errors=True)
        return made

    def _copy(self, there: Path) -> None:
        # A name of its own, for another node may copy this part too.
        copy = self.path.with_name(f"{self.path.name}.{socket.gethostname()}-{os.getpid()}")
        try:
            copy_pack(PackFiles.of(there), copy)
            with open_pack(there) as reader:
                check_readable(copy, reader.manifest)
            # The directory may be renamed, with the whole pack in it, as soon as the part has its name.
            with writing_to(self.path), synced_directory(self.path.parent):
                os.rename(copy, self.path)
        except DestinationError:
            remove(copy)
            raise


_JOB = {
    **{"settings": dict, "request": dict, "source": dict, "packs": list, "made_of": dict},
    **{"listed": bool, "images": int, "overwrite": bool},
}
_SETTINGS = {"format": str, "parts": int, "on_error": str}
"""What the file holds at least, and of which types, for this module and `packer._conversion.run_parts`."""


def part_name(number: int, format: str) -> str:
    """Return the name of a part in the pack."""
    return f"part-{number:05d}{require_format(format).suffixes[0]}"


def read_job(paths: WorkspacePaths) -> dict[str, Any]:
    """Return what was written down when a conversion in parts began; DestinationError where it cannot be read."""
    try:
        return parse_job(paths.job.read_bytes(), paths.job, paths.directory)
    except OSError as error:
        raise DestinationError(f"{printable(paths.job)}: cannot be read: {error.strerror}") from error


def parse_job(text: bytes, path: Path, directory: Path) -> dict[str, Any]:
    """Return what the bytes of such a file say; DestinationError, which names both paths, where it is damaged."""
    try:
        job = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, directory, "it is no JSON text") from error
    for where, members in ((job, _JOB), (job.get("settings") if isinstance(job, dict) else None, _SETTINGS)):
        if not isinstance(where, dict):
            raise _damaged(path, directory, "it is not the JSON object that it was")
        for name, kind in members.items():
            if type(where.get(name)) is not kind:
                raise _damaged(path, directory, f"{name!r} is missing, or not what it was")
    if job["settings"]["format"] not in FORMATS or job["settings"]["parts"] < 1:
        raise _damaged(path, directory, "its format or its number of parts is none")
    return dict(job)


def write_job(paths: WorkspacePaths, job: Mapping[str, Any]) -> None:
    """Write down what a conversion in parts is, as a JSON object; from now on others may join it.

    When the function returns, the file is on the disk, and so are the names of all that lies beside it.
    """
    with replacing(paths.job) as file:
        file.append(json.dumps(job).encode("ascii"))
    sync_directory(paths.directory.parent)  # the directory's own name


def _damaged(path: Path, directory: Path, problem: str) -> DestinationError:
    return DestinationError(
        f"{printable(path)}: damaged: {problem}. "
        f"Remove {printable(directory)}, and convert again: that makes all parts anew."
    )


def described(
    settings: Mapping[str, Any], recipe: Recipe, source: Source, request: Mapping[str, Any], *, overwrite: bool
) -> dict[str, Any]:
    """Return what a job that begins writes down, as a JSON object; see `packer._conversion.parts`.

    Parameters
    ----------
    settings : mapping
        Those of the job.
    recipe : Recipe
    source : Source
    request : mapping
        Where the source is and what of it is taken, as JSON values.
    overwrite : bool
        Whether the pack replaces another one.

    Raises
    ------
    SourceError
        If the source has fewer images than there are parts.
    """
    made_of = provenance(source, recipe)
    if len(source) < settings["parts"]:
        raise SourceError(f"{printable(source.root)}: {len(source)} images cannot be {settings['parts']} parts")
    return {
        "settings": dict(settings),
        "request": dict(request),
        "source": source.describe(),
        "packs": source.identities(),
        "listed": source.origin is None and source.is_local and not isinstance(source, ListedSource),
        "made_of": dict(made_of.source),
        "images": len(source),
        "overwrite": overwrite,
    }


def require_same(
    begun: Mapping[str, Any], settings: Mapping[str, Any], request: Mapping[str, Any], directory: Path
) -> bool:
    """Raise ResumeError where a job was begun with other settings; tell whether this one leaves out bad files first.

    Parameters
    ----------
    begun : mapping
        What was written down when the job began.
    settings, request : mapping
        Those of who joins.
    directory : Path
        Where it was written down, for the message.
    """
    before = dict(begun["settings"])
    # A task that stopped at a bad file may go on without it: the parts that are there have left nothing out.
    relaxed = (before["on_error"], settings["on_error"]) == ("fail", "skip")
    if relaxed:
        before["on_error"] = "skip"
    differences = setting_differences(before, settings) + setting_differences(begun["request"], request)
    if differences:
        raise started_differently(directory, differences)
    return relaxed


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


@dataclass(frozen=True)
class SharedSource:
    """Where every task finds the source: a listing or a pack, on the disk that all of them see.

    Attributes
    ----------
    path : Path
    classes : list of str, optional
        Class names in the order of their ids, in place of those of a pack.
    limit : int, optional
        How many images are taken.
    identities : list of str, optional
        What `Source.identities` of a pack must return.
    sample : int, optional
        How many images are taken, evenly spread.
    where : str, optional
        Which samples of a pack are taken, before the others count.
    """

    path: Path
    classes: list[str] | None = None
    limit: int | None = None
    identities: list[str] | None = None
    sample: int | None = None
    where: str | None = None

    def open(self) -> Source:
        """Open the source, in constant time; SourceError where it is another pack by now."""
        source = listed_source(self.path) if is_listing(self.path) else self._pack()
        if self.identities is not None and source.identities() != self.identities:
            raise SourceError(f"{printable(self.path)}: another pack is there than when the conversion began")
        return source.limited(self.limit) if self.limit else source.sampled(self.sample) if self.sample else source

    def _pack(self) -> Source:
        source = pack_source(self.path, classes=self.classes)
        return source if self.where is None else source.where(self.where)
