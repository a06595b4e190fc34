"""`packer stage`."""

from __future__ import annotations

from pathlib import Path

import click

from packer._cli import show
from packer._cli.values import UserPath
from packer.errors import printable

__all__ = ["stage_command"]


@click.command("stage")
@click.argument("pack", type=UserPath())
@click.argument("directory", type=UserPath())
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def stage_command(pack: Path, directory: Path, quiet: bool) -> None:
    """Copy PACK to DIRECTORY on this node, where stage=DIRECTORY finds it; print where the copy is.

    DIRECTORY is made where it is missing; what it lies in must be there. Where others may write into DIRECTORY, as into
    /dev/shm, the copy lies in a directory of your own in it, packer-UID.
    """
    from packer._loading.staging import stage

    with show.ProgressDisplay(pack.name, quiet=quiet, of_bytes=True) as display:
        staged = stage(pack, directory, progress=display.update)
    if not quiet:
        click.echo(printable(staged))
