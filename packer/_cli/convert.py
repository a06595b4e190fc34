"""The commands `convert`, in all its modes, and `scan`.

A conversion makes one pack, one pack for each split, a pack in parts, or a pack at a URL. A pack at a URL is made on
this machine and then uploaded. Parts are made by this process, by a cluster, or by a job array whose tasks make one
part each. `explaining` adds advice to errors, for all commands that write packs.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer._cli import output
from packer._cli.options import (
    MOST_USED,
    CommandOfSource,
    PackPath,
    UserPath,
    conversion_options,
    options,
    panel_option,
    reading_options,
    requested,
)
from packer._cli.output import EXIT_STATUS, Interrupted, Terminated, progress_options
from packer._conversion import words
from packer._conversion.options import AUDITS, RunOptions, SourceOptions
from packer._display import count, counted, duration, text
from packer._storage.remote.urls import is_url
from packer._storage.system import in_units
from packer.errors import (
    ClusterError,
    DestinationError,
    ImageChangedError,
    ImageError,
    PackLockedError,
    SourceError,
    printable,
)

if TYPE_CHECKING:
    from packer._conversion.convert import Summary
    from packer._conversion.partition import Partition
    from packer._conversion.request import ConversionRequest
    from packer._conversion.upload import UploadedConversion
    from packer._manifest import Manifest
    from packer._sources.base import Source


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """If the work is interrupted, add to the message that the same command continues it."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as error:
        kind = Terminated if isinstance(error, Terminated) else Interrupted
        raise kind("; the same command continues where this one stopped") from None


def say(lines: str, *, quiet: bool) -> None:
    """Print a line or more, unless ``--quiet`` was passed."""
    if not quiet:
        click.echo(lines)


def status_of(manifest: Manifest) -> int:
    """Return the exit status for a complete pack: it tells whether files were left out."""
    return EXIT_STATUS["skipped"] if manifest.skipped else EXIT_STATUS["ok"]


def done_already(destination: Path, manifest: Manifest, *, quiet: bool) -> int:
    """Report that the same command made this pack before; return the exit status of that run."""
    left_out = f", {len(manifest.skipped):,} x left out" if manifest.skipped else ""
    say(f"{printable(destination)}: done already{left_out}", quiet=quiet)
    return status_of(manifest)


def convert_listed(
    request: ConversionRequest, source: Source, display: output.ProgressDisplay, *, quiet: bool
) -> Summary:
    """Make one pack from a source whose files are listed, and show the progress."""
    from packer._images.decode import decoder_advice

    advice = decoder_advice() if request.recipe.codec != "keep" and not quiet else None
    if advice is not None:
        click.echo(f"packer: {advice}", err=True)
    display.phase(None)
    with explaining(request.src):
        return request.convert(source, display.show)


@contextlib.contextmanager
def explaining(src: Path) -> Iterator[None]:
    """Add advice for the user to errors that end a conversion of `src`."""
    from packer._sources.scan_list import is_listing

    try:
        with resumable():
            yield
    except ImageChangedError as error:
        again = "run `packer scan` again, and start over" if is_listing(src) else "start over"
        raise ImageError(
            f"{error}. Restore the file and run the same command to continue; or {again} with --fresh."
        ) from error
    except ImageError as error:
        if "--to-8-bit" in error.reason:
            raise ImageError(
                f"{error}. To leave out such files, run the same command with --on-error skip; it continues. With "
                "another option, start over with --fresh."
            ) from error
        of_a_field = error.reason.startswith("field ")
        mend = "Correct the file" if of_a_field else "Replace the file with an image"
        without = "If you change a table or annotations" if of_a_field else "If you remove it from the source"
        raise ImageError(
            f"{error}. {mend}, or pass --on-error skip, and run the same command to continue. {without}, start over "
            "with --fresh."
        ) from error


def make_parts(request: ConversionRequest, how: RunOptions) -> int:
    """Make the parts that the options select; return the exit status."""
    from packer._conversion.partition import Partition, already_made

    _require_sense(request, how)
    partition = Partition(request, how.scratch)
    if is_url(request.dst):
        _require_new_pack(request)
    before = already_made(partition)
    if before is not None:
        return done_already(request.dst, before, quiet=how.quiet)
    if how.part is not None:
        try:
            return _one(partition, how.part, how)
        except DestinationError:
            before = already_made(partition)
            if before is None:  # otherwise other tasks finished the pack meanwhile
                raise
            return done_already(request.dst, before, quiet=how.quiet)
    if how.cluster is not None:
        return _on_cluster(partition, how.cluster, how)
    return _all(partition, quiet=how.quiet)


def _require_new_pack(request: ConversionRequest) -> None:
    """Raise an error if no pack can be written to the URL, or if ``--overwrite`` was passed."""
    from packer._storage.remote.upload import require_writable

    require_writable(request.dst)
    if request.overwrite:
        raise click.UsageError(
            "with --parts, --overwrite cannot replace a pack at a URL, because other programs may be reading it: "
            "delete the pack first, or choose another name"
        )


def _require_sense(request: ConversionRequest, how: RunOptions) -> None:
    """Raise UsageError if the options do not fit together."""
    from packer._conversion.request import is_table

    if not request.parts:
        raise click.UsageError("--part, --cluster, --jobs and --scratch are for --parts: pass the number of parts")
    if how.part is not None and how.part >= request.parts:
        raise click.UsageError(f"--part counts from 0: the last of {request.parts} is {request.parts - 1}")
    if how.part is not None and request.fresh:
        place = "delete all below DST/ and DST.partial/" if is_url(request.dst) else "remove DST.partial"
        raise click.UsageError(f"--fresh would delete the parts of other tasks: instead, {place} before the job starts")
    if how.splits:
        raise click.UsageError(
            "--parts is for one split: convert the first, such as SRC/train, by itself, and each of the others with "
            "--classes-from the pack of the first"
        )
    if how.part is not None and how.cluster is not None:
        raise click.UsageError(
            "--part makes one part in a job array, and --cluster makes all parts: pass only one of them"
        )
    if how.cluster is not None and (is_url(request.src) or is_table(request.src)):
        raise click.UsageError(
            "--cluster requires files that all nodes can read: for images at URLs, use --part in a job array"
        )
    if how.scratch and how.part is None and how.cluster is None:
        raise click.UsageError("--scratch is for --part and --cluster: without them, parts are made in DST.partial")
    if how.jobs and how.cluster is None:
        raise click.UsageError("--jobs is for --cluster")
    if how.cluster is not None:
        from packer._conversion.dask import check_address

        try:
            check_address(how.cluster)
        except ClusterError as error:
            raise click.UsageError(str(error)) from error


def _one(partition: Partition, number: int, how: RunOptions) -> int:
    """Make one part, and finish the pack if this part was the last."""
    from packer._conversion.partition import begin

    with output.ProgressDisplay(f"{partition.destination.name}, part {number}", quiet=how.quiet) as display:
        display.phase(f"listing {partition.request.src.name}")
        source = begin(partition, share=True, compare=False)  # otherwise every task would check all files
        display.phase(None)
        part = partition.convert(
            source,
            number,
            workers=partition.request.workers,
            progress=display.show,
        )
    made = f"{duration(part.seconds)} ({part.images / max(part.seconds, 1e-9):,.0f} img/s)"
    if not part.bytes_in and part.images > part.skipped:
        made = "done already"
    say(f"part {number}: {count(part.images)} images, {made}", quiet=how.quiet)
    if part.note:
        click.echo(f"packer: {printable(part.note)}", err=True)
    if not partition.missing():
        with contextlib.suppress(PackLockedError):  # another task ended at the same time, and finishes the pack
            with output.ProgressDisplay(partition.destination.name, quiet=how.quiet) as display:
                display.phase("joining parts")
                manifest = partition.files.finish()
            say(_finished(partition, manifest, notes=source.remarks()), quiet=how.quiet)
    return EXIT_STATUS["skipped"] if part.skipped else EXIT_STATUS["ok"]


def _all(partition: Partition, *, quiet: bool) -> int:
    """Make all parts in this process, one after the other."""
    from packer._conversion.partition import make_all

    with output.ProgressDisplay(partition.destination.name, quiet=quiet) as display:
        summary = make_all(partition, display.show)
    notes = [*summary.notes, *_kept(summary.kept, summary.manifest)]
    say(_finished(partition, summary.manifest, summary.seconds, notes), quiet=quiet)
    return status_of(summary.manifest)


def _on_cluster(partition: Partition, where: str, how: RunOptions) -> int:
    """Make all parts on a Dask cluster."""
    from packer._conversion.dask import convert_on, open_client
    from packer._conversion.partition import SharedSource, begin

    started = time.monotonic()
    with output.ProgressDisplay(partition.destination.name, quiet=how.quiet) as display:
        display.phase(f"listing {partition.request.src.name}")
        source = begin(partition, share=True)
    shared = SharedSource.of(partition, source)
    with open_client(where, how.jobs) as client:
        if not how.quiet:
            click.echo(f"packer: dashboard at {client.dashboard_link}", err=True)
        with output.ProgressDisplay(partition.destination.name, quiet=how.quiet) as display:
            parts = convert_on(
                client,
                partition,
                shared,
                workers=partition.request.workers,
                progress=lambda p: display.update(
                    p.done, p.total, read=p.bytes_read, skipped=p.skipped, notes=output.rates(p.rates, p.workers)
                ),
            )
    for note in sorted({f"{part.host}: {part.note}" for part in parts if part.note}):
        click.echo(f"packer: {printable(note)}", err=True)
    with output.ProgressDisplay(partition.destination.name, quiet=how.quiet) as display:
        display.phase("joining parts")
        manifest = partition.files.finish()
    notes = [*source.remarks(), *_kept(sum(part.kept for part in parts), manifest)]
    say(_finished(partition, manifest, time.monotonic() - started, notes), quiet=how.quiet)
    return status_of(manifest)


def _kept(number: int, manifest: Manifest) -> list[str]:
    return [words.kept(number, manifest.codec)] if number and manifest.codec != "keep" else []


def _finished(partition: Partition, manifest: Manifest, seconds: float | None = None, notes: Iterable[str] = ()) -> str:
    head = (
        f"{printable(partition.destination)}: {counted(manifest.count, 'sample')}, "
        f"{words.labels(manifest.label_type, len(manifest.classes))}, {counted(partition.parts, 'part')}, "
        f"{in_units(partition.files.size())} out"
    )
    took = f", {duration(seconds)}" if seconds is not None else ""
    return text([head + took, *words.outcome(partition.destination, manifest, notes)])


def convert_to_url(request: ConversionRequest, how: RunOptions, source: Source | None = None) -> int:
    """Make a pack on this machine, upload it, and return the exit status. Pass `source` if it is already listed."""
    from packer._conversion.upload import UploadedConversion

    with resumable(), UploadedConversion(request, how.scratch) as conversion:
        if not how.quiet:
            click.echo(f"packer: building the pack in {printable(conversion.room)} before the upload", err=True)
        said = _say_new(conversion, 0)
        summary = conversion.made or _convert(request, conversion, source, quiet=how.quiet)
        with output.ProgressDisplay(request.dst.name, quiet=how.quiet) as display:
            display.phase("uploading", unit="bytes")
            summary = conversion.upload(summary, display.update)
        _say_new(conversion, said)
    say(str(summary), quiet=how.quiet)
    return status_of(summary.manifest)


def _convert(
    request: ConversionRequest, conversion: UploadedConversion, source: Source | None, *, quiet: bool
) -> Summary:
    """Make the pack on this machine."""
    from packer._conversion.partition import convert_in_parts

    own = conversion.request
    with output.ProgressDisplay(request.dst.name, quiet=quiet) as display:
        display.phase(f"listing {request.src.name}")
        if own.parts is None:
            source = own.open(request.dst, own.classes()) if source is None else source
            return convert_listed(own, source, display, quiet=quiet)
        with explaining(request.src):
            return convert_in_parts(own, display.show)


def _say_new(conversion: UploadedConversion, said: int) -> int:
    """Print the notes after the first `said` notes; return the number of all notes."""
    for note in conversion.notes[said:]:
        click.echo(f"packer: {printable(note)}", err=True)
    return len(conversion.notes)


@click.command("convert", cls=CommandOfSource)
@click.argument("src", type=PackPath())
@click.argument("dst", type=PackPath())
@conversion_options()
@panel_option("--check", type=click.Choice(AUDITS), hidden=True)  # the earlier name of --audit
@reading_options
@progress_options()
def convert_command(src: Path, dst: Path, **values: Any) -> int:
    """Convert images to a pack.

    SRC is an image folder (a directory per class, as for torchvision), a pack, or files of another tool: WebDataset,
    TFRecord, Parquet, LMDB, zip and others (docs/containers.md). The suffix of DST sets the format: .lmdb, .h5, .pth
    or, for other tools, .wds, .tfrecord, .rec, .mds, .caffe, .n5, .parquet. SRC and DST may be URLs. To resume after an
    interruption, run the same command again.

    \b
      packer convert photos train.lmdb
      packer convert photos train.lmdb --resize 256
      packer convert imagenet imagenet.lmdb --split all
      packer convert photos/val val.lmdb --classes-from train.lmdb
      packer convert 'shards/*.tar' train.lmdb
    """
    from packer._conversion.request import ConversionRequest

    how = RunOptions(**{field.name: values.pop(field.name) for field in fields(RunOptions)})
    values["audit"] = values.pop("check") or values["audit"]
    if how.splits and (values["voc"] or values["yolo"]):
        values["split"], how = _one_split(how)
    # Pillow's warnings about files lack the files' names; the summary and the report have the names and the findings.
    warnings.filterwarnings("ignore", module="PIL")
    request = requested(ConversionRequest, src=src, dst=dst, **values)
    if how.splits and is_url(src):
        raise click.UsageError(
            "--split is for a directory: convert SRC/SPLIT, and the other splits with --classes-from"
        )
    if (request.labels is not None or request.coco) and how.splits:
        option = "--coco" if request.coco else "--labels"
        raise click.UsageError(f"{option} is for one split: convert SRC/SPLIT with it")
    if how.splits and is_url(dst) and request.parts is None:
        return _convert_splits(request, how)
    if is_url(dst) and not how.splits and how.part is None and how.cluster is None and how.jobs is None:
        return convert_to_url(request, how)
    if any(option is not None for option in (request.parts, how.part, how.cluster, how.jobs, how.scratch)):
        with explaining(src):
            return make_parts(request, how)
    if how.splits:
        return _convert_splits(request, how)
    request.require_destination()
    with output.ProgressDisplay(dst.name, quiet=how.quiet) as display:
        display.phase(f"listing {src.name}")
        summary = convert_listed(request, request.open(dst, request.classes()), display, quiet=how.quiet)
    say(str(summary), quiet=how.quiet)
    return status_of(summary.manifest)


def _one_split(how: RunOptions) -> tuple[str, RunOptions]:
    """Return the split of ``--voc`` or ``--yolo``, and the options without it; UsageError for several splits."""
    if len(how.splits) > 1 or how.splits == ("all",):
        raise click.UsageError("--voc and --yolo convert one split at a time: run the command once for each split")
    return how.splits[0], replace(how, splits=())


def _convert_splits(request: ConversionRequest, how: RunOptions) -> int:
    """Convert each split to its own pack, all with the same class ids; return the exit status."""
    from packer._conversion.resume import made_before

    requests = [
        replace(request, src=root, dst=destination, report=_report(request.report, root))
        for root, destination in _targets(request.src, request.dst, how.splits)
    ]
    for split in requests:
        if not is_url(split.dst) and not os.path.exists(split.dst):
            split.require_destination()
    statuses = set()
    classes = request.classes()
    if classes is None:
        _require_one_class_map([split.src for split in requests])
    for split in requests:
        with output.ProgressDisplay(split.dst.name, quiet=how.quiet) as display:
            display.phase(f"listing {split.src.name}")
            source = split.open(split.dst, classes, is_split=True)
            classes = source.classes  # all splits have the ids of the first
            before = None if split.overwrite else made_before(split.dst, source, split.recipe, split.format_row.name)
            here = before is None and not is_url(split.dst)
            if here:
                split.require_destination()
            summary = convert_listed(split, source, display, quiet=how.quiet) if here else None
        if before is None and is_url(split.dst):
            statuses.add(convert_to_url(split, how, source))
        elif summary is None:
            assert before is not None
            statuses.add(done_already(split.dst, before, quiet=how.quiet))
        else:
            say(str(summary), quiet=how.quiet)
            statuses.add(status_of(summary.manifest))
    return max(statuses)


def _targets(src: Path, dst: Path, splits: tuple[str, ...]) -> list[tuple[Path, Path]]:
    """Return the directories to convert, each with the path of its pack."""
    from packer._containers import files_to_name, named_paths
    from packer._sources.imagefolder import class_directories, split_directories

    if not splits:
        return [(src, dst)]
    if not os.path.isdir(src) and named_paths(src):
        raise click.UsageError(
            f"--split requires a directory of splits, but {printable(src)} names files: convert the files of each "
            "split to a pack of its own, all but the first with --classes-from FIRST_PACK"
        )
    found = split_directories(src)
    flat = sorted(set(class_directories(src)) - set(found))
    if found and flat and "all" in splits:
        shown = ", ".join(map(printable, flat[:5])) + (f", … ({len(flat)})" if len(flat) > 5 else "")
        click.echo(f"packer: left out, because they have no class directories: {shown}", err=True)
    wanted = found if "all" in splits else list(dict.fromkeys(splits))
    present = class_directories(src)
    missing = [name for name in splits if name != "all" and not (name in present and class_directories(src / name))]
    if missing or not wanted:
        what = (
            f"split {printable(', '.join(missing))} with class directories"
            if missing
            else "splits such as train and val with class directories"
        )
        raise click.UsageError(f"{printable(src)} has no {what}{files_to_name(src)}")
    return [(src / name, dst.with_name(f"{dst.stem}-{name}{dst.suffix}")) for name in wanted]


def _require_one_class_map(splits: list[Path]) -> None:
    """Raise SourceError if a split has a class that the first split lacks: all splits use the first split's ids."""
    from packer._sources.base import some
    from packer._sources.imagefolder import class_directories

    first, known = splits[0], set(class_directories(splits[0]))
    for split in splits[1:]:
        if unknown := sorted(set(class_directories(split)) - known):
            one = len(unknown) == 1
            raise SourceError(
                f"{printable(split)} has {len(unknown)} class{'' if one else 'es'} that {printable(first)} lacks: "
                f"{some(unknown)}. All splits use the class ids of {printable(first)}. Move {'it' if one else 'them'} "
                f"away; or make {'a directory' if one else 'directories'} with "
                f"{'this name' if one else 'these names'} in {printable(first)} and pass --allow-empty; or convert "
                "each split alone, with its own ids."
            )


def _report(report: Path | None, root: Path) -> Path | None:
    """Return the path of a split's report. This path, like that of the split's pack, contains the split's name."""
    return None if report is None else report.with_name(f"{report.stem}-{root.name}{report.suffix}")


@click.command("scan", cls=CommandOfSource)
@click.argument("src", type=UserPath())
@click.argument("listing", metavar="FILE", type=UserPath())
@options(SourceOptions, without=("split", "where"))
@panel_option("--overwrite", is_flag=True, panel=MOST_USED, help="Replace FILE.")
@progress_options()
def scan_command(src: Path, listing: Path, *, overwrite: bool, quiet: bool, **values: Any) -> None:
    """List the images of a directory once, for many conversions.

    Pass FILE to `packer convert` in place of SRC. Listing millions of files on a network disk takes minutes; with FILE,
    all tasks of a job array share one listing.

    \b
      packer scan imagenet/train train.scan
      packer convert train.scan train.lmdb --parts 64 --part $SLURM_ARRAY_TASK_ID
    """
    from packer._conversion.request import SourceRequest, looks_like_pack
    from packer._conversion.workspace import check_free, check_inputs, check_outside
    from packer._sources.scan_list import KIND, write_listing
    from packer._storage.files import require_output

    request = requested(SourceRequest, src=src, **values)
    if looks_like_pack(src):
        raise click.UsageError(f"{printable(src)} is a pack, which needs no list: convert it directly")
    check_inputs(listing, request.inputs())
    check_free(listing, overwrite=overwrite)
    require_output(listing, "list", (KIND.lower(),))
    check_outside(listing, src)
    with output.ProgressDisplay(listing.name, quiet=quiet) as display:
        display.phase(f"listing {src.name}", "files")
        source = request.open(None, request.classes())
        source.require_listable()
        if not source.is_local:
            raise click.UsageError(f"{printable(src)}: images at URLs need no list: convert them directly")
        display.phase(None)
        write_listing(source, listing)
    if not quiet:
        labels = words.labels(source.label_type, len(source.classes))
        click.echo(f"{printable(listing)}: {counted(len(source), 'image')}, {labels}")
        for line in words.fields(source.fields):
            click.echo(line)
        for note in (*source.unusable(), *source.remarks()):
            click.echo(f"  {printable(note)}")
