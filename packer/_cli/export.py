"""`packer export`."""

from __future__ import annotations

from pathlib import Path

import click

from packer._cli import show
from packer._cli.progress import progress_options
from packer._cli.reading import reading_options
from packer._cli.values import PackPath, UserPath
from packer._cli.writing import resumable
from packer.errors import printable

__all__ = ["export_command"]


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

    with resumable(), show.ProgressDisplay(directory.name, quiet=quiet) as display:
        written, again = export_and_say(pack, directory, progress=display.update)
    if not quiet:
        click.echo(f"{printable(directory)}: {show.count(written)} files")
        with open_pack(pack) as reader:
            tiled = reader.manifest.findings.get(TILED, 0)
        if tiled:
            kept = reader.manifest.codec == "keep"
            note = ", which have the originals' pixels and not their bytes" if kept else ""
            click.echo(f"  {show.count(tiled)} of them are tiled JPEGs{note}")
        if again is not None:
            click.echo(f"\n  to make a pack of them again:\n  {again}")
