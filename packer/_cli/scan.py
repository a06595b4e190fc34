"""`packer scan`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packer._cli import show
from packer._cli.progress import progress_options
from packer._cli.source import CommandOfSource, requested, source_options
from packer._cli.values import UserPath
from packer.errors import printable

__all__ = ["scan_command"]


@click.command("scan", cls=CommandOfSource)
@click.argument("src", type=UserPath())
@click.argument("listing", metavar="FILE", type=UserPath())
@source_options
@click.option("--overwrite", is_flag=True, help="Replace FILE.")
@progress_options()
def scan_command(src: Path, listing: Path, *, overwrite: bool, quiet: bool, **values: Any) -> None:
    """List the images below SRC once, in FILE, which `packer convert` then takes in the place of SRC.

    Listing millions of files on a network disk takes minutes; the tasks of a job array need it once.

    \b
      packer scan imagenet/train train.scan
      packer convert train.scan train.lmdb --parts 64 --part $SLURM_ARRAY_TASK_ID
    """
    from packer._conversion.request import SourceRequest, is_pack
    from packer._conversion.workspace import check_destination
    from packer._sources import refuse_derived, write_listing

    request = requested(SourceRequest, src=src, **values)
    if is_pack(src):
        raise click.UsageError(f"{printable(src)} is a pack, which needs no list: convert it as it is")
    check_destination(listing, overwrite=overwrite, source=src)
    with show.ProgressDisplay(listing.name, quiet=quiet) as display:
        display.phase(f"listing {src.name}", "files")
        source = request.open(listing, request.classes())
        refuse_derived(source)
        if not source.is_local:
            raise click.UsageError(f"{printable(src)}: is or names objects at URLs, which need no list: convert them")
        display.phase(None)
        write_listing(source, listing)
    if not quiet:
        labels = show.labels(source.label_type, len(source.classes))
        click.echo(f"{printable(listing)}: {show.counted(len(source), 'image')}, {labels}")
        for line in show.fields(source.fields):
            click.echo(line)
        for note in (*source.unusable(), *source.remarks()):
            click.echo(f"  {printable(note)}")
