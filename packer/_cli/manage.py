"""Commands that make packs of packs, indexes or files: `merge`, `append`, `index` and `export`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from packer._cli import output
from packer._cli.convert import done_already, explaining, resumable, say, status_of
from packer._cli.options import (
    CommandOfSource,
    PackPath,
    UserPath,
    conversion_options,
    options,
    reading_options,
    requested,
)
from packer._cli.output import progress_options
from packer._conversion import words
from packer._conversion.options import OF_THE_PACK, IndexOptions, MergeOptions, SourceOptions
from packer._display import count, counted, duration, text
from packer.errors import ImageError, printable


@click.command("merge")
@click.argument("packs", nargs=-1, type=PackPath())
@click.argument("dst", type=PackPath())
@options(MergeOptions, "classes prefixes")
@click.option(
    "--finish", "finishing", is_flag=True, help="Make one pack of the complete parts of DST (`packer convert --parts`)."
)
@options(MergeOptions, "workers shard_size overwrite fresh")
@reading_options
@progress_options()
def merge_command(packs: tuple[Path, ...], dst: Path, *, finishing: bool, quiet: bool, **values: Any) -> int:
    """Join PACKS, one after the other, into the pack DST.

    The samples keep their bytes. PACKS may be of different formats; the suffix of DST decides its own.

    \b
      packer merge a.lmdb b.lmdb both.lmdb
      packer merge a.lmdb b.lmdb both.lmdb --prefix a --prefix b    where names coincide
      packer merge --finish out.lmdb
    """
    from packer._conversion.merge import merge
    from packer._conversion.partition import finish

    if finishing:
        source = click.get_current_context().get_parameter_source
        if packs or any(source(name) is ParameterSource.COMMANDLINE for name in values):
            raise click.UsageError("--finish takes DST alone: how to make it was said to `packer convert --parts`")
        with output.ProgressDisplay(dst.name, quiet=quiet) as display:
            display.phase("joining parts")
            manifest = finish(dst)
        head = f"{printable(dst)}: {count(manifest.count)} samples in {len(manifest.parts)} parts"
        say(text([head, *words.outcome(dst, manifest)]), quiet=quiet)
        return status_of(manifest)
    if not packs:
        raise click.UsageError("say which packs to join, and after them DST")
    with resumable(), output.ProgressDisplay(dst.name, quiet=quiet) as display:
        summary = merge(
            packs,
            dst,
            progress=lambda p: display.update(p.done, p.total, read=p.bytes_read),
            **values,
        )
    say(text(words.conversion(summary)), quiet=quiet)
    return status_of(summary.manifest)


@click.command("append", cls=CommandOfSource)
@click.argument("pack", type=PackPath())
@click.argument("src", type=PackPath())
@progress_options()
@conversion_options(tasks=False, without=OF_THE_PACK)
def append_command(pack: Path, src: Path, *, quiet: bool, **values: Any) -> int:
    """Convert the images below SRC to one more part of PACK, a pack with parts.

    SRC is what `packer convert` takes. Its class ids are those of PACK. Readers that have PACK open go on with what they
    opened. The same command continues an interrupted one; where PACK has that part already, it does nothing.

    \b
      packer convert imagenet/train train.lmdb --parts 4
      packer append train.lmdb more
    """
    from packer._conversion.append import append

    warnings.filterwarnings("ignore", module="PIL")
    with explaining(src), output.ProgressDisplay(pack.name, quiet=quiet) as display:
        summary = append(
            pack,
            src,
            progress=lambda p: display.update(p.done, p.total, read=p.bytes_read, skipped=p.skipped),
            **values,
        )
    manifest = summary.manifest
    if summary.notes == ["done already"]:
        return done_already(pack, manifest, quiet=quiet)
    name, appended, _ = manifest.parts[-1]
    head = (
        f"{printable(pack)}: {counted(manifest.count, 'sample')} in {counted(len(manifest.parts), 'part')}, "
        f"{count(appended)} of them in {printable(name)}, {duration(summary.seconds)}"
    )
    say(text([head, *words.outcome(pack, manifest, summary.notes)]), quiet=quiet)
    return status_of(manifest)


@click.command("index", cls=CommandOfSource)
@click.argument("src", type=UserPath())
@click.argument("dst", metavar="[OUT.index]", required=False, type=UserPath())
@options(SourceOptions, without=("split", "where"))
@options(IndexOptions, "checksums exif on_error")
@click.option("--base", type=PackPath(), metavar="DIR|URL", help="Make the index SRC look for its files below DIR.")
@options(IndexOptions, "overwrite")
@progress_options()
def index_command(src: Path, dst: Path | None, *, base: Path | None, quiet: bool, **values: Any) -> int | None:
    """List where the images of SRC lie, in OUT.index, which is read as a pack. No image is copied.

    SRC is what `packer convert` takes: a directory of images, or what another tool made, as a file, a directory or a
    pattern in quotes (docs/containers.md). What is compressed can be converted, and has no index.

    \b
      packer index imagenet/train train.index
      packer index 'shards/*.tar' train.index
      packer index train.index --base /scratch/shards      when the files were moved
    """
    from packer._conversion.index import IndexRequest, moved

    warnings.filterwarnings("ignore", module="PIL")
    if base is not None:
        if dst is not None:
            raise click.UsageError("--base moves the index SRC: leave OUT.index out")
        manifest = moved(src, base)
        say(f"{printable(src)}: {counted(manifest.count, 'sample')} below {printable(base)}", quiet=quiet)
        return None
    if dst is None:
        raise click.UsageError("say where the index will be: OUT.index")
    request = requested(IndexRequest, src=src, dst=dst, **values)
    try:
        with output.ProgressDisplay(dst.name, quiet=quiet) as display:
            summary = request.make(display.update)
    except ImageError as error:
        raise ImageError(f"{error}. Put an image in its place, or leave it out: --on-error skip") from error
    say(text(words.conversion(summary)), quiet=quiet)
    return status_of(summary.manifest)


@click.command("export")
@click.argument("pack", type=PackPath())
@click.argument("directory", type=UserPath())
@reading_options
@progress_options()
def export_command(pack: Path, directory: Path, quiet: bool) -> None:
    """Write the images of PACK as files below DIRECTORY: the tree it came from, byte for byte where bytes were kept.

    DIRECTORY is a new or an empty one. The same command continues an interrupted export.

    labels.csv has names and classes exactly as the pack has them. A spreadsheet may run those that begin with =, +, -
    or @: import the columns of a stranger's pack as text.
    """
    from packer._formats import open_pack
    from packer._manifest import TILED
    from packer._packs.export import export_and_say

    with resumable(), output.ProgressDisplay(directory.name, quiet=quiet) as display:
        written, again = export_and_say(pack, directory, progress=display.update)
    if not quiet:
        click.echo(f"{printable(directory)}: {count(written)} files")
        with open_pack(pack) as reader:
            tiled = reader.manifest.findings.get(TILED, 0)
        if tiled:
            kept = reader.manifest.codec == "keep"
            note = ", which have the originals' pixels and not their bytes" if kept else ""
            click.echo(f"  {count(tiled)} of them are tiled JPEGs{note}")
        if again is not None:
            click.echo(f"\n  to make a pack of them again:\n  {again}")
