"""Commands that join or extend packs, index images, and export files: `merge`, `append`, `index` and `export`."""

from __future__ import annotations

import os
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
    PanelCommand,
    UserPath,
    conversion_options,
    options,
    panel_option,
    reading_options,
    requested,
)
from packer._cli.output import progress_options
from packer._conversion import words
from packer._conversion.options import GROUPS, OF_THE_PACK, IndexOptions, MergeOptions, SourceOptions
from packer._display import count, counted, duration, text
from packer._storage.remote.urls import is_url
from packer.errors import ImageError, printable


@click.command("merge", cls=PanelCommand)
@click.argument("packs", nargs=-1, type=PackPath())
@click.argument("dst", type=PackPath())
@options(MergeOptions, "classes prefixes")
@panel_option(
    "--finish",
    "finishing",
    is_flag=True,
    help="Complete DST from the parts that `packer convert --parts` made. Pass no PACKS.",
)
@options(MergeOptions, "workers shard_size overwrite fresh")
@reading_options
@progress_options()
def merge_command(packs: tuple[Path, ...], dst: Path, *, finishing: bool, quiet: bool, **values: Any) -> int:
    """Join several packs into one.

    PACKS may have different formats; the suffix of DST sets the format of the new pack. The samples keep their order and
    their bytes.

    \b
      packer merge a.lmdb b.lmdb both.lmdb
      packer merge a.lmdb b.lmdb both.lmdb --prefix a --prefix b
      packer merge --finish out.lmdb
    """
    from packer._conversion.merge import merge
    from packer._conversion.partition import finish
    from packer._conversion.request import looks_like_pack

    if finishing:
        source = click.get_current_context().get_parameter_source
        if packs or any(source(name) is ParameterSource.COMMANDLINE for name in values):
            raise click.UsageError("--finish takes only DST: all other settings are those of `packer convert --parts`")
        with output.ProgressDisplay(dst.name, quiet=quiet) as display:
            display.phase("joining parts")
            manifest = finish(dst)
        head = f"{printable(dst)}: {count(manifest.count)} samples in {len(manifest.parts)} parts"
        say(text([head, *words.outcome(dst, manifest)]), quiet=quiet)
        return status_of(manifest)
    if not packs:
        raise click.UsageError("PACKS are missing: the command is packer merge PACK... DST")
    if len(packs) == 1 and looks_like_pack(dst):
        raise click.UsageError(
            f"the pack {printable(dst)} exists already, and merging {printable(packs[0])} alone would replace it with "
            f"a copy of {printable(packs[0])}: to join both, add a new DST, as in packer merge {printable(packs[0])} "
            f"{printable(dst)} DST"
        )
    with resumable(), output.ProgressDisplay(dst.name, quiet=quiet) as display:
        summary = merge(packs, dst, progress=display.show, **values)
    say(str(summary), quiet=quiet)
    return status_of(summary.manifest)


@click.command("append", cls=CommandOfSource)
@click.argument("pack", type=PackPath())
@click.argument("src", type=PackPath())
@progress_options()
@conversion_options(tasks=False, without=OF_THE_PACK)
def append_command(pack: Path, src: Path, *, quiet: bool, **values: Any) -> int:
    """Convert more images and add them to a pack as a new part.

    PACK is a pack with parts. SRC may be any source that `packer convert` takes; the classes of SRC get the ids that
    they have in PACK. Programs that already have PACK open do not see the new part. To continue after an interruption,
    run the same command again. If an earlier run has already added the part, the command does nothing.

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
            progress=display.show,
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
@panel_option(
    "--base",
    type=PackPath(),
    metavar="DIR|URL",
    panel=GROUPS["source"],
    help="If you have moved the files of an index: pass the index as SRC, and their new directory or URL here. This changes the index SRC itself; pass no OUT.index.",
)
@options(IndexOptions, "overwrite")
@progress_options()
def index_command(src: Path, dst: Path | None, *, base: Path | None, quiet: bool, **values: Any) -> int | None:
    """Index images in place, to read them like a pack.

    OUT.index records where each image is; no image is copied. SRC is an image folder or files of another tool, as for
    `packer convert` (docs/containers.md). Compressed files cannot be indexed; convert them.

    \b
      packer index imagenet/train train.index
      packer index 'shards/*.tar' train.index
      packer index train.index --base /scratch/shards    # the files were moved
    """
    from packer._conversion.index import IndexRequest
    from packer._formats.index import move_index

    warnings.filterwarnings("ignore", module="PIL")
    if base is not None:
        if dst is not None:
            raise click.UsageError("--base changes the index SRC itself: leave out OUT.index")
        manifest = move_index(Path(os.path.abspath(src)), base if is_url(base) else Path(os.path.abspath(base)))
        say(f"{printable(src)}: {counted(manifest.count, 'sample')} below {printable(base)}", quiet=quiet)
        return None
    if dst is None:
        raise click.UsageError("OUT.index is missing")
    request = requested(IndexRequest, src=src, dst=dst, **values)
    try:
        with output.ProgressDisplay(dst.name, quiet=quiet) as display:
            summary = request.make(display.update)
    except ImageError as error:
        raise ImageError(f"{error}. Replace the file with an image, or pass --on-error skip to leave it out") from error
    say(str(summary), quiet=quiet)
    return status_of(summary.manifest)


@click.command("export", cls=PanelCommand)
@click.argument("pack", type=PackPath())
@click.argument("directory", type=UserPath())
@reading_options
@progress_options()
def export_command(pack: Path, directory: Path, quiet: bool) -> None:
    """Write the images of a pack as files.

    The files have the same names as in the original image folder, and the same bytes if the pack stored the files
    unchanged. DIRECTORY must be new or empty. The same command continues an interrupted export.

    \b
      packer export train.lmdb photos

    The file labels.csv has names and classes exactly as stored. Spreadsheets may execute cells that begin with =, +, -
    or @. If the pack comes from an untrusted source, import the columns of labels.csv as text.
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
            note = ", with the pixels of the original files, but other bytes" if kept else ""
            click.echo(f"  {count(tiled)} of them are tiled JPEGs{note}")
        if again is not None:
            click.echo(f"\n  to convert them to a pack again:\n  {again}")
