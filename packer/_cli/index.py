"""`packer index`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click

from packer._cli import show
from packer._cli.progress import progress_options
from packer._cli.source import CommandOfSource, requested, source_options
from packer._cli.values import PackPath, UserPath
from packer._cli.writing import say, status_of
from packer.errors import ImageError, printable

__all__ = ["index_command"]


@click.command("index", cls=CommandOfSource)
@click.argument("src", type=UserPath())
@click.argument("dst", metavar="[OUT.index]", required=False, type=UserPath())
@source_options
@click.option(
    "--no-checksums",
    is_flag=True,
    help="Read no more than the structure of the files and the headers of the images.",
)
@click.option(
    "--exif",
    type=click.Choice(["ignore", "apply"]),
    default="ignore",
    help="Whether images are shown as their EXIF orientation says.  [default: ignore, as ImageFolder does]",
)
@click.option(
    "--on-error",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    help="What to do with a sample that cannot be used, such as an image that cannot be read or a bad annotation: stop, or leave it out and list it.  [default: fail]",
)
@click.option("--base", type=PackPath(), metavar="DIR|URL", help="Make the index SRC look for its files below DIR.")
@click.option("--overwrite", is_flag=True, help="Replace OUT.index.")
@progress_options()
def index_command(
    src: Path, dst: Path | None, *, base: Path | None, no_checksums: bool, quiet: bool, **values: Any
) -> int | None:
    """List where the images of SRC lie, in OUT.index, which is read as a pack. No image is copied.

    SRC is what `packer convert` takes: a directory of images, or what another tool made, as a file, a directory or a
    pattern in quotes (docs/containers.md). What is compressed can be converted, and has no index.

    \b
      packer index imagenet/train train.index
      packer index 'shards/*.tar' train.index
      packer index train.index --base /scratch/shards      when the files were moved
    """
    from packer._conversion.indexing import IndexRequest, moved

    warnings.filterwarnings("ignore", module="PIL")
    if base is not None:
        if dst is not None:
            raise click.UsageError("--base moves the index SRC: leave OUT.index out")
        manifest = moved(src, base)
        say(f"{printable(src)}: {show.counted(manifest.count, 'sample')} below {printable(base)}", quiet=quiet)
        return None
    if dst is None:
        raise click.UsageError("say where the index will be: OUT.index")
    request = requested(IndexRequest, src=src, dst=dst, checksums=not no_checksums, **values)
    try:
        with show.ProgressDisplay(dst.name, quiet=quiet) as display:
            summary = request.make(display.update)
    except ImageError as error:
        raise ImageError(f"{error}. Put an image in its place, or leave it out: --on-error skip") from error
    manifest = summary.manifest
    head = (
        f"{printable(dst)}: {show.counted(manifest.count, 'sample')}, {show.labels(manifest.label_type, len(manifest.classes))}, "
        f"read where they lie, {show.duration(summary.seconds)}"
    )
    say("\n".join([head, *show.outcome(dst, manifest, summary.notes)]), quiet=quiet)
    return status_of(manifest)
