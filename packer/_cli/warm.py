"""`packer warm`."""

from __future__ import annotations

from pathlib import Path

import click

from packer._cli import show
from packer._cli.progress import progress_options
from packer._cli.reading import reading_options
from packer._cli.values import PackPath
from packer._storage.limits import in_units
from packer.errors import printable

__all__ = ["warm_command"]


@click.command("warm")
@click.argument("pack", type=PackPath())
@reading_options
@progress_options()
def warm_command(pack: Path, quiet: bool) -> None:
    """Read PACK once from beginning to end, so that training finds it in memory (if it fits)."""
    from packer._loading.staging import warm

    with show.ProgressDisplay(pack.name, quiet=quiet, unit="bytes") as display:
        read = warm(pack, progress=display.update)
    if not quiet:
        click.echo(f"{printable(pack)}: {in_units(read)} read")
