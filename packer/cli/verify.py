"""`packer verify`."""

from __future__ import annotations

from pathlib import Path

import click

from packer.cli import show
from packer.cli.status import EXIT_STATUS
from packer.errors import printable

__all__ = ["verify_command"]

_LISTED = 20


@click.command("verify")
@click.argument("pack", type=click.Path(path_type=Path))
@click.option("--quick", is_flag=True, help="Check structure and table only; do not read the samples.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Threads.  [default: the CPUs granted]")
@click.option("--quiet", is_flag=True, help="Print nothing; the exit status tells.")
def verify_command(pack: Path, quick: bool, workers: int | None, quiet: bool) -> int:
    """Check that everything in PACK is what was written. Exit status 4 where it is not."""
    from packer.verify import verify

    with show.ProgressDisplay(pack.name, quiet=quiet) as display:
        damage = verify(pack, quick=quick, workers=workers, progress=display.update)
    if not damage:
        if not quiet:
            click.echo(f"{printable(pack)}: intact{' (quick: the samples were not read)' if quick else ''}")
        return 0
    if not quiet:
        click.echo(f"{printable(pack)}: damaged in {show.count(len(damage))} places", err=True)
        for item in damage[:_LISTED]:
            click.echo(f"  {item}", err=True)
        if len(damage) > _LISTED:
            click.echo(f"  … and {show.count(len(damage) - _LISTED)} more", err=True)
    return EXIT_STATUS["corrupt"]
