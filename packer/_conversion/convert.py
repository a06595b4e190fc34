"""The conversion of a source to a pack: images are prepared on many threads, written in order, and committed.

The pipeline prepares samples, and the writer takes them in the order of the source. At checkpoints, a separate thread
syncs the written samples and records them in the journal, from which an interrupted conversion continues.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from packer._codecs import UNLABELED
from packer._conversion.options import OutputOptions
from packer._conversion.pipeline import Batch, ConversionPipeline, threads_for
from packer._conversion.recipe import Provenance, Recipe, provenance
from packer._conversion.stream import Stream, StreamSource
from packer._conversion.words import conversion
from packer._conversion.workspace import (
    Checkpoints,
    ConversionRecord,
    Workspace,
    check_destination,
    check_inputs,
    check_outside,
    check_report,
)
from packer._display import Block, Displayable
from packer._fields import Field
from packer._formats import FORMATS, Format, Writer, check_readable, format_for
from packer._formats.contract import Contents
from packer._manifest import Manifest, schema_for
from packer._sources.base import Source, listing_digest, none_readable
from packer._sources.objects import AT_ONCE
from packer._storage.files import disk_size
from packer._storage.system import available_memory, in_units
from packer._table import column_checksums, column_types, with_offsets
from packer._version import __version__
from packer.errors import DestinationError, OptionError, ResumeError, option, printable

_SHARE = 8  # a pack is written through the cache if its images take at most 1/8 of the memory
_MUCH = 0.10  # an overhead that is noted, as a fraction of the bytes of the images
_WORTH_A_WORD = 1_000_000  # bytes that another format must save, so that the overhead is noted
BESIDE_A_SAMPLE = 60
"""The bytes that a format without gaps stores for each sample in addition to its image: a table row and a name."""


@dataclass(frozen=True)
class ConversionProgress:
    """The progress of a conversion.

    Attributes
    ----------
    done, total : int
        The number of processed images, and of all images in the source.
    skipped : int
        The number of images among `done` that were left out.
    bytes_read : int
        Bytes read in this run.
    """

    done: int
    total: int
    skipped: int
    bytes_read: int


@dataclass(frozen=True, repr=False)
class Summary(Displayable):
    """The result of a conversion.

    Attributes
    ----------
    destination : Path or str
        The path of the pack, or the URL of an uploaded pack.
    manifest : Manifest
    bytes_in, bytes_out : int
        Size in bytes of the images' files, and of the pack.
    seconds : float
        Duration of this run.
    continued : int
        The number of images that an earlier run converted.
    kept : int
        The number of samples whose files were stored unchanged.
    notes : list of str
        Remarks about the source; remarks about lost images and labels come first.
    not_looked_at : dict of str to int
        For each suffix that packer ignored, the number of files with this suffix.
    """

    destination: Path | str
    manifest: Manifest
    bytes_in: int
    bytes_out: int
    seconds: float
    continued: int
    kept: int
    notes: list[str] = field(default_factory=list)
    not_looked_at: dict[str, int] = field(default_factory=dict)

    def _blocks(self) -> Iterable[Block]:
        return conversion(self)


def summary_of_made(destination: Path, manifest: Manifest, size: int, images: int | None = None) -> Summary:
    """Return the summary of a pack that an earlier run made from `images` images (default: all in the manifest)."""
    continued = manifest.count + len(manifest.skipped) if images is None else images
    return Summary(destination, manifest, 0, size, 0.0, continued, kept=0)


def convert(
    source: Source,
    destination: str | os.PathLike[str],
    *,
    recipe: Recipe | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    on_error: str = OutputOptions.on_error,
    workers: int | None = None,
    overwrite: bool = False,
    fresh: bool = False,
    report: str | os.PathLike[str] | None = None,
    allow_empty: bool = False,
    ignore_free_space: bool = False,
    progress: Callable[[ConversionProgress], None] | None = None,
    samples: Iterable[Mapping[str, Any]] | None = None,
    checked: bool = False,
) -> Summary:
    """Convert the images of a source to a pack at `destination`.

    Parameters
    ----------
    source : Source
        The images, such as the result of `packer._sources.imagefolder.imagefolder_source`.
    destination : path
        The path of the new pack. The pack appears there when it is complete; until then the unfinished pack is in
        ``destination + ".partial"``. After an interruption, the same call continues from there.
    recipe : Recipe, optional
        The recipe for making samples from images; by default images keep their bytes.
    format : str, optional
        A key of `packer._formats.FORMATS`; by default the destination's suffix decides.
    options : mapping, optional
        The format's own settings, such as ``shard_size`` for pth.
    on_error : {"fail", "skip"}
        What happens at a file that is not a readable image or has changed since it was listed: ``"fail"`` stops,
        ``"skip"`` leaves the file out and lists it in the manifest.
    workers : int, optional
        The number of threads that prepare images; by default the result of `available_cpus`, plus one if images are
        encoded.
    overwrite : bool
        Whether to replace an existing pack at the destination. The old pack stays until the new pack is complete.
    fresh : bool
        Whether to start over instead of continuing an interrupted conversion.
    report : path, optional
        The file of the report: a JSON line for every file with a finding and every file that was left out.
    allow_empty : bool
        Whether to write an empty pack if no image can be read. By default this raises a SourceError.
    ignore_free_space : bool
        Whether to begin even if the disk has less free space than the images' files need.
    progress : callable, optional
        Called after every batch, on the thread that called `convert`.
    samples : iterable, optional
        The samples of a `StreamSource`; see `packer._conversion.stream`.
    checked : bool
        Whether the caller has already called `check_destination`. Callers do so before they list the source, because
        listing can take long.

    Returns
    -------
    Summary

    Raises
    ------
    ValueError
        If there is no such format.
    ImageError
        With ``on_error="fail"``, for the first file that is not a readable image, or changed after it was listed.
    CorruptPackError
        With ``on_error="fail"``, for the first damaged sample, if the source is a pack.
    SourceError
        If the source cannot be used, or its samples cannot be tiled.
    DestinationError, PackLockedError, ResumeError
        If the pack cannot be written.
    """
    recipe, options = recipe or Recipe(), dict(options or {})
    destination = Path(os.path.abspath(destination))
    row = format_for(destination) if format is None else require_format(format)
    if report is not None:
        check_report(report)
    if not checked:
        check_destination(destination, overwrite=overwrite)
    check_outside(destination, source.tree)
    check_inputs(destination, source.inputs())
    source.require_undamaged()
    if on_error == "fail":
        source.require_whole()
    made_of = provenance(source, recipe)
    writer_class, types = _writer_for(source, row, options)
    recipe.load()
    settings = conversion_settings(row.name, options, recipe)
    if isinstance(source, StreamSource):
        settings["samples"] = source.settings()
    with (
        Workspace(destination) as workspace,
        ConversionRecord(workspace, settings, source, fresh=fresh, reporting=report is not None, types=types) as record,
    ):
        continued = record.count
        if on_error == "fail":
            _refuse_gaps(workspace, record)
        if not ignore_free_space:
            _require_space(workspace, record, recipe)
        started = time.monotonic()
        cached = fits_cache(record.source, recipe)
        contents = Contents(source.classes, source.label_type, source.fields, made_of.codec, cached)
        with (
            _estimating_space(workspace.pack, record),
            contextlib.closing(writer_class(workspace.pack, options, record.rows.build(), contents)) as writer,
        ):
            _write(_pipeline(record, recipe, on_error, samples), writer, record, workers, progress)
            if not len(record.rows) and not allow_empty:
                raise none_readable(source.root, record.count, record.skipped)
            manifest, data = _complete(row.name, source, made_of, record, writer)
        check_readable(workspace.pack, manifest)
        if report is not None:
            record.write_report(Path(report), source.report())
        record.close()  # before removing the directory: on some network disks, an open file in it prevents that
        bytes_out = disk_size(workspace.pack)  # measured before others, who may move the pack, can see it
        workspace.commit(overwrite=overwrite)
    return Summary(
        destination=destination,
        manifest=manifest,
        bytes_in=record.bytes_in,
        bytes_out=bytes_out,
        seconds=time.monotonic() - started,
        continued=continued,
        kept=record.kept,
        notes=[*source.remarks(), *filter(None, [note_on_overhead(row.name, manifest.count, data, bytes_out)])],
        not_looked_at=dict(source.others.counts),
    )


def _writer_for(source: Source, format: Format, options: Mapping[str, Any]) -> tuple[type[Writer], Mapping[str, str]]:
    """Return the writer's class and the dtypes of the table; raise an error if the class cannot write this source."""
    writer_class = format.open_writer()
    writer_class.check_options(options)
    types = column_types(source.label_type, source.fields, apart=writer_class.apart)
    writer_class.check_table(len(source), len(source.names.blob), types)
    writer_class.check_names(source.names)
    return writer_class, types


def _refuse_gaps(workspace: Workspace, record: ConversionRecord) -> None:
    """Raise ResumeError if an earlier run left images out, and this run must not leave any out."""
    if record.skipped:
        raise ResumeError(
            f"{printable(workspace.directory)} contains an unfinished conversion that left out files. Pass "
            f"{option('on_error', 'skip')} as before, or {option('fresh', True)} to start over."
        )


def _require_space(workspace: Workspace, record: ConversionRecord, recipe: Recipe) -> None:
    try:
        require_space(record.source, recipe, workspace.destination, done=record.count)
    except DestinationError:
        if not record.count:
            record.close()
            workspace.drop()
        raise


def _pipeline(
    record: ConversionRecord, recipe: Recipe, on_error: str, samples: Iterable[Mapping[str, Any]] | None
) -> ConversionPipeline | Stream:
    """Return the pipeline for the remaining images."""
    if samples is None:
        return ConversionPipeline(record.source, recipe, on_error, start=record.count)
    return Stream(samples, record.source, recipe, on_error, record.entries())


def _write(
    pipeline: ConversionPipeline | Stream,
    writer: Writer,
    record: ConversionRecord,
    workers: int | None,
    progress: Callable[[ConversionProgress], None] | None,
) -> None:
    """Write the samples that the pipeline prepares, with a checkpoint from time to time."""
    total, fields = len(record.source), record.source.fields
    threads = max(threads_for(workers, pipeline.recipe), 1 if record.source.is_local else AT_ONCE)
    with (
        # Reading, decoding, resizing and encoding all release Python's lock.
        ThreadPoolExecutor(threads, thread_name_prefix="packer") as pool,
        Checkpoints(writer, record) as checkpoints,
        contextlib.closing(pipeline.run(pool, ahead=2 * threads + 2)) as batches,
    ):
        for batch in batches:
            _append(batch, writer, record, fields)
            checkpoints.add([entry for entry, _ in batch])
            if progress is not None:
                progress(ConversionProgress(record.count, total, len(record.skipped), pipeline.bytes_read))


def _append(batch: Batch, writer: Writer, record: ConversionRecord, fields: Sequence[Field]) -> None:
    for entry, sample in batch:
        if sample is not None:
            placed = writer.append(sample)
            entry.offset = placed.offset
            if writer.apart:
                entry.more = with_offsets(fields, entry.more, placed.blobs)
        record.add(entry)
    writer.flush()


def _complete(
    format: str, source: Source, made_of: Provenance, record: ConversionRecord, writer: Writer
) -> tuple[Manifest, int]:
    """Complete the pack with its table and manifest; return the manifest and the samples' total size."""
    table = record.rows.build()
    described, account = dict(made_of.source), made_of.account
    if described.get("sha256") == "":  # for a stream of samples
        names = table.sample_names()
        described["sha256"] = listing_digest(source.classes, names, table.label, source.label_type)
        if account is not None and source.label_type == "class":
            account.unlabeled("they have no label", count=int((table.label == UNLABELED).sum()))
    manifest = Manifest(
        format=format,
        count=len(table),
        classes=source.classes,
        label_type=source.label_type,
        fields=source.fields,
        codec=made_of.codec,
        settings=dict(made_of.settings),
        about=[dict(entry) for entry in source.about],
        source=described,
        skipped=[*map(dict, made_of.skipped), *record.skipped],
        findings=dict(sorted((record.findings + Counter(made_of.findings)).items())),
        versions=dict(made_of.versions),
        columns=column_checksums(table),
        layout=writer.layout(),
        schema=schema_for(source.label_type, table.label, source.fields),
        account=None if account is None else account.to_json(),
    )
    writer.commit(manifest, table)
    return manifest, int(table.extent().sum())


def conversion_settings(format: str, options: Mapping[str, Any], recipe: Recipe) -> dict[str, Any]:
    """Return all settings, except the source, that determine the bytes of a pack."""
    versions = {"packer": __version__, **recipe.versions()}
    return {"format": format, "options": dict(options), "recipe": recipe.settings(), "versions": versions}


def require_format(name: str) -> Format:
    """Return the format with this name, or with this suffix (without the dot); raise ValueError if there is none."""
    for row in FORMATS.values():
        if name == row.name or f".{name}" in row.suffixes:
            return row
    raise OptionError(f"format must be one of {', '.join(FORMATS)}, not {name!r}")


def require_parts(format: Format) -> None:
    """Raise OptionError if packs of a format cannot be parts."""
    if not format.parts:
        raise OptionError(
            f"{option('parts')} makes a directory of packs, which other tools cannot read as {format.suffixes[0]}. "
            f"Leave out {option('parts')}."
        )


def require_space(source: Source, recipe: Recipe, destination: Path, done: int = 0) -> None:
    """Raise DestinationError if the disk has too little space for the images that keep their bytes.

    The sizes of listed files are known. The sizes of encoded images and of a pack's samples are not estimated, and
    quotas are not considered.

    Parameters
    ----------
    source : Source
    recipe : Recipe
    destination : Path
        The path of the new pack.
    done : int
        The number of images of the source that are already written.

    Raises
    ------
    DestinationError
        If the disk has less free space than the images need.
    """
    if recipe.codec != "keep" or source.stamps is None:
        return
    needed = int(np.maximum(source.stamps[done:, 0], 0).sum())
    free = _free(destination.parent)
    if free is not None and needed > free:
        raise DestinationError(
            f"{printable(destination)}: the images need {needed / 1e6:,.1f} MB, but the disk has only "
            f"{free / 1e6:,.1f} MB left. Free some space, choose another disk, or make the images smaller with "
            f"{option('resize')}. If the disk compresses files or reports too little free space, pass "
            f"{option('ignore_free_space', True)}."
        )


@contextlib.contextmanager
def _estimating_space(pack: Path, record: ConversionRecord) -> Iterator[None]:
    """If the disk is full, add to the error an estimate of the space that the remaining images need."""
    try:
        yield
    except DestinationError as error:
        full = getattr(error.__cause__, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        if not full or not 0 < record.count < len(record.source):
            raise
        needed = disk_size(pack) * (len(record.source) - record.count) / record.count
        raise DestinationError(f"{error} About {needed / 1e6:,.1f} MB more are needed.") from error.__cause__


def _free(directory: Path) -> int | None:
    """Return the free bytes on a disk, including those reserved for root; None if unknown."""
    try:
        if hasattr(os, "statvfs"):
            disk = os.statvfs(directory)
            return disk.f_bfree * disk.f_frsize if disk.f_blocks else None
        return shutil.disk_usage(directory).free
    except OSError:
        return None


def fits_cache(source: Source, recipe: Recipe) -> bool:
    """Tell whether a pack should be written through the system's cache.

    A pack of images that keep their bytes may be too large for the cache. Allocating the cache page by page would take
    most of the time of such a conversion, and would evict the data of other programs. If images are encoded, the time
    for writing is negligible.
    """
    sizes, memory = source.sizes() if recipe.codec == "keep" else None, available_memory()
    return sizes is None or memory is None or int(sizes.sum()) <= memory // _SHARE


def note_on_overhead(format: str, count: int, data: float, taken: float) -> str | None:
    """Return a note if a pack is much larger than its images, otherwise None.

    An LMDB value of more than 2 kB occupies whole pages of 4 KiB; smaller values share a page. In a format that stores
    samples without gaps, a sample takes only its bytes and a row of the table.

    Parameters
    ----------
    format : str
        A key of `FORMATS`.
    count : int
        Number of samples.
    data : float
        Bytes of the images and of the values of their fields.
    taken : float
        Bytes of the pack.
    """
    overhead, least = taken - data, count * BESIDE_A_SAMPLE
    if format != "lmdb" or data <= 0 or overhead < _MUCH * data or overhead - least < _WORTH_A_WORD:
        return None
    return (
        f"small images: .lmdb adds {in_units(overhead)} ({overhead / data:.0%}) to their size, .h5 would add "
        f"{in_units(least)} ({least / data:.0%})"
    )
