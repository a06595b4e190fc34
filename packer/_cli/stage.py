"""`packer stage` and `packer unstage`."""

from __future__ import annotations

from pathlib import Path

import click

from packer._cli import show
from packer._cli.progress import progress_options
from packer._cli.reading import reading_options
from packer._cli.values import PackPath, UserPath
from packer._storage.limits import in_units
from packer.errors import printable

__all__ = ["stage_command", "unstage_command"]


@click.command("stage")
@click.argument("pack", type=PackPath())
@click.argument("directory", type=UserPath())
@reading_options
@progress_options()
def stage_command(pack: Path, directory: Path, quiet: bool) -> None:
    """Copy PACK to DIRECTORY on this node, where stage=DIRECTORY finds it; print where the copy is.

    DIRECTORY is made where it is missing; what it lies in must be there. Where others may write into DIRECTORY, as into
    /dev/shm, the copy lies in a directory of your own in it, packer-UID. `packer unstage` gives the space back.
    """
    from packer._loading.staging import stage

    with show.ProgressDisplay(pack.name, quiet=quiet, unit="bytes") as display:
        staged = stage(pack, directory, progress=display.update)
    if not quiet:
        click.echo(printable(staged))


@click.command("unstage")
@click.argument("pack", type=PackPath())
@click.argument("directory", type=UserPath())
@click.option(
    "--all-versions",
    is_flag=True,
    help="Remove the copies of every pack of PACK's name: of earlier versions, and of packs in other directories. PACK itself may be gone.",
)
@progress_options()
def unstage_command(pack: Path, directory: Path, *, all_versions: bool, quiet: bool) -> None:
    """Remove the copy of PACK from DIRECTORY, which `packer stage PACK DIRECTORY` or stage=DIRECTORY put there."""
    from packer._loading.staging import unstage

    with show.ProgressDisplay(pack.name, quiet=quiet) as display:
        display.phase("removing")
        removed = unstage(pack, directory, all_versions=all_versions)
    if quiet:
        return
    if removed:
        click.echo(f"{printable(directory)}: {in_units(removed)} removed")
    else:
        others = "" if all_versions else "; --all-versions looks for copies of earlier versions too"
        click.echo(f"{printable(directory)}: no copy of {printable(pack)} is there{others}")
