"""The conversion: prepare on many threads, write in order, commit.

What the pipeline prepares, the writer takes in the order of the source. From time to time what was written is synced,
on a thread of its own, and then recorded in the journal, from which an interrupted conversion continues.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packer import __version__
from packer.errors import DestinationError, ImageError, ResumeError, SourceError, printable
from packer.executors import available_cpus
from packer.formats import FORMATS, Writer, check_readable, format_for
from packer.formats.files import disk_size, writing_to
from packer.formats.spool import Spool, TableBuilder
from packer.journal import Entry
from packer.partial import Partial, check_destination
from packer.pipeline import Batch, Pipeline
from packer.prepare import Recipe
from packer.provenance import carried_from, provenance, require_tileable
from packer.sample import TILED, Manifest, column_checksums
from packer.sources import Source

__all__ = ["Progress", "Summary", "conversion_settings", "convert"]

_CHECKPOINT_SAMPLES = 1000
_CHECKPOINT_SECONDS = 10.0


@dataclass(frozen=True)
class Progress:
    """How far a conversion is.

    Attributes
    ----------
    done, total : int
        Images of the source.
    skipped : int
        How many of those done were left out.
    bytes_read : int
        Of this run.
    """

    done: int
    total: int
    skipped: int
    bytes_read: int


@dataclass(frozen=True)
class Summary:
    """What a conversion did.

    Attributes
    ----------
    destination : Path
    manifest : Manifest
    bytes_in, bytes_out : int
        Size of the images' files, and of the pack.
    seconds : float
        Duration of this run.
    continued : int
        How many images an earlier run had done.
    notes : list of str
        What a person should know about the source.
    """

    destination: Path
    manifest: Manifest
    bytes_in: int
    bytes_out: int
    seconds: float
    continued: int
    notes: list[str] = field(default_factory=list)


def convert(
    source: Source,
    destination: str | os.PathLike[str],
    *,
    recipe: Recipe | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    on_error: str = "fail",
    workers: int | None = None,
    overwrite: bool = False,
    fresh: bool = False,
    report: str | os.PathLike[str] | None = None,
    allow_empty: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """Write a pack.

    Parameters
    ----------
    source : Source
        What to convert: `packer.sources.imagefolder_source`, `csv_source` or `pack_source`.
    destination : path
        Where the pack will be. It appears there when it is complete; until then the work lies in
        ``destination + ".partial"``, from which the same call continues after an interruption.
    recipe : Recipe, optional
        What the images become; by default they keep their bytes.
    format : str, optional
        A key of `packer.formats.FORMATS`; by default the destination's suffix decides.
    options : mapping, optional
        The format's own settings, such as ``shard_size`` for pth.
    on_error : {"fail", "skip"}
        What to do with a file that is not a readable image, or changed after it was listed: stop, or leave it out and
        list it in the manifest.
    workers : int, optional
        By default what `available_cpus` counts.
    overwrite : bool
        Whether to replace what is at the destination; that happens at the end, when the new pack is complete.
    fresh : bool
        Whether to start over instead of continuing an interrupted conversion.
    report : path, optional
        Where to write a JSON line for every file with a finding and every file that was left out.
    allow_empty : bool
        Whether a pack without samples is written where not one image can be read; otherwise that is a SourceError.
    progress : callable, optional
        Called on this thread after every batch.

    Raises
    ------
    ImageError
        With ``on_error="fail"``, for the first file that is not a readable image, or changed after it was listed.
    CorruptPackError
        With ``on_error="fail"``, for the first sample of a pack that is damaged.
    SourceError
        If the source cannot be used, or what is in it cannot be tiled.
    DestinationError, PackLockedError, ResumeError
        If the pack cannot be written.
    """
    if on_error not in ("fail", "skip"):
        raise ValueError(f"on_error is 'fail' or 'skip', not {on_error!r}")
    recipe, options = recipe or Recipe(), dict(options or {})
    destination = Path(os.path.abspath(destination))
    check_destination(destination, overwrite=overwrite, source=source.root)
    require_tileable(source, recipe)
    if report is not None and not Path(report).absolute().parent.is_dir():
        raise DestinationError(f"{printable(report)}: its directory does not exist. Make it first.")
    row = FORMATS[format] if format else format_for(destination)
    writer_class = row.open_writer()
    writer_class.check_options(options)
    writer_class.check_table(len(source), len(source.names.blob))
    recipe.load()
    settings = conversion_settings(row.name, options, recipe)
    with (
        Partial(destination, settings, source, fresh=fresh) as partial,
        _letting_mend(partial),
        contextlib.closing(_Ledger(partial.directory, reporting=report is not None)) as ledger,
    ):
        for entry in partial.entries():
            ledger.add(entry)
        continued = ledger.count
        if on_error == "fail" and ledger.skipped:
            raise ResumeError(
                f"{printable(partial.directory)} holds an unfinished conversion that left files out. "
                "Say --on-error skip as before, or --fresh to start over."
            )
        with (
            _saying_how_much_is_needed(partial.pack, ledger, source),
            contextlib.closing(writer_class(partial.pack, options, ledger.rows.build())) as writer,
        ):
            started = time.monotonic()
            workers = workers or available_cpus()
            pipeline = Pipeline(partial.source, recipe, on_error, start=continued, ahead=2 * workers + 2)
            with (
                ThreadPoolExecutor(workers, thread_name_prefix="packer") as pool,
                _Checkpoints(writer, partial) as checkpoints,
                contextlib.closing(pipeline.run(pool)) as batches,
            ):
                for batch in batches:
                    _write(batch, writer, ledger)
                    checkpoints.add([entry for entry, _ in batch])
                    if progress is not None:
                        progress(Progress(ledger.count, len(source), len(ledger.skipped), pipeline.bytes_read))
            if not len(ledger.rows) and not allow_empty:
                raise SourceError(f"{printable(source.root)}: not one of its {len(source)} images can be read")
            manifest = _commit(source, recipe, row.name, ledger, writer)
        check_readable(partial.pack, manifest)
        if report is not None:
            ledger.write_report(Path(report))
        ledger.close()  # before the directory goes: a file that is open in it keeps it, on some network disks
        partial.commit(overwrite=overwrite)
    return Summary(
        destination=destination,
        manifest=manifest,
        bytes_in=ledger.bytes_in,
        bytes_out=disk_size(destination),
        seconds=time.monotonic() - started,
        continued=continued,
        notes=list(source.notes),
    )


def conversion_settings(format: str, options: Mapping[str, Any], recipe: Recipe) -> dict[str, Any]:
    """Return everything that decides the bytes of a pack but its source."""
    versions = {"packer": __version__, **recipe.versions()}
    return {"format": format, "options": dict(options), "recipe": recipe.settings(), "versions": versions}


@contextlib.contextmanager
def _letting_mend(partial: Partial) -> Iterator[None]:
    """Let the image that stopped the conversion be mended: any other that changes is refused when it continues."""
    try:
        yield
    except ImageError as error:
        if error.index is not None:
            partial.let_mend(error.index)
        raise


@contextlib.contextmanager
def _saying_how_much_is_needed(pack: Path, ledger: _Ledger, source: Source) -> Iterator[None]:
    """Add to the error of a full disk how much the images that are left will take, as the others did."""
    try:
        yield
    except DestinationError as error:
        if getattr(error.__cause__, "errno", None) not in (errno.ENOSPC, errno.EDQUOT) or not ledger.count:
            raise
        needed = disk_size(pack) * (len(source) - ledger.count) / ledger.count
        raise DestinationError(f"{error} About {needed / 1e6:,.1f} MB more are needed.") from error.__cause__


def _write(batch: Batch, writer: Writer, ledger: _Ledger) -> None:
    for entry, sample in batch:
        if sample is not None:
            entry.offset = writer.append(sample)
        ledger.add(entry)
    writer.flush()


def _commit(source: Source, recipe: Recipe, format: str, ledger: _Ledger, writer: Writer) -> Manifest:
    """Make a complete pack of what was written; return its manifest."""
    table = ledger.rows.build()
    codec, settings, described = provenance(source, recipe)
    carried = carried_from(source, recipe)
    if carried is not None:
        findings, versions = carried.findings, carried.versions
        if recipe.tiles:
            findings = {name: number for name, number in findings.items() if TILED not in name}
            findings = dict(sorted((ledger.findings + Counter(findings)).items()))
    else:
        findings, versions = dict(sorted(ledger.findings.items())), {"packer": __version__, **recipe.versions()}
    manifest = Manifest(
        format=format,
        count=len(table),
        classes=source.classes,
        codec=codec,
        settings=settings,
        source=described,
        skipped=[*(source.origin.skipped if source.origin is not None else ()), *ledger.skipped],
        findings=findings,
        versions=versions,
        columns=column_checksums(table),
        layout=writer.layout(),
    )
    writer.commit(manifest, table)
    return manifest


class _Checkpoints:
    """Makes what was written durable, and then records it, while the writer goes on."""

    def __init__(self, writer: Writer, partial: Partial) -> None:
        self._writer = writer
        self._partial = partial
        self._pending: list[Entry] = []
        self._last = time.monotonic()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="packer-sync")
        self._running: Future[None] | None = None

    def add(self, entries: list[Entry]) -> None:
        """Note images that were flushed or left out, and begin a checkpoint when it is time."""
        self._pending += entries
        waited = time.monotonic() - self._last
        due = len(self._pending) >= _CHECKPOINT_SAMPLES or waited > _CHECKPOINT_SECONDS
        late = len(self._pending) >= 2 * _CHECKPOINT_SAMPLES and waited > 3 * _CHECKPOINT_SECONDS
        if due and (late or self._running is None or self._running.done()):
            self._begin()

    def _begin(self) -> None:
        if self._running is not None:
            self._running.result()
        entries, self._pending = self._pending, []
        self._last = time.monotonic()
        self._running = self._thread.submit(self._checkpoint, entries)

    def _checkpoint(self, entries: list[Entry]) -> None:
        self._writer.sync()
        self._partial.record(entries)

    def __enter__(self) -> _Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """End the work; what came to nothing else keeps what it has by a last checkpoint."""
        with self._thread:
            if kind is None:
                if self._running is not None:
                    self._running.result()
            elif self._pending and (self._running is None or self._running.exception() is None):
                self._partial.make_room()
                self._begin()


class _Ledger:
    """Keeps account of what became of the images, in files where that grows with their number.

    Parameters
    ----------
    directory : Path
        Where the files lie; they have no names.
    reporting : bool
        Whether a report will be written.
    """

    def __init__(self, directory: Path, *, reporting: bool) -> None:
        self.rows = TableBuilder(directory)
        self.count = 0
        self.bytes_in = 0
        self.skipped: list[dict[str, str]] = []
        self.findings: Counter[str] = Counter()
        self._report = Spool(directory) if reporting else None

    def add(self, entry: Entry) -> None:
        """Account for the next image of the source."""
        self.count += 1
        if entry.reason:
            self.skipped.append({"name": entry.name, "reason": entry.reason})
            self._note({"name": entry.name, "skipped": entry.reason})
            return
        entry.add_to(self.rows)
        self.bytes_in += entry.stamp[0]
        if entry.findings:
            self.findings.update(entry.findings)
            noted = [finding for finding in entry.findings if finding != TILED]
            if noted:
                self._note({"name": entry.name, "findings": noted})

    def write_report(self, path: Path) -> None:
        """Write a JSON line for every image with a finding and every one that was left out."""
        assert self._report is not None
        with writing_to(path), open(path, "wb") as file:
            file.write(self._report.array("u1").data)

    def close(self) -> None:
        """Close the files."""
        self.rows.close()
        if self._report is not None:
            self._report.close()

    def _note(self, line: Mapping[str, Any]) -> None:
        if self._report is not None:
            self._report.append(json.dumps(line).encode("ascii") + b"\n")
