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
@click.option(
    "--digest",
    "with_digest",
    is_flag=True,
    help="Print one hash over classes, names, labels and data: the same for packs that give the same samples in the same order, whatever their format.",
)
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Threads.  [default: the CPUs granted]")
@click.option("--quiet", is_flag=True, help="Print nothing; the exit status tells.")
def verify_command(pack: Path, quick: bool, with_digest: bool, workers: int | None, quiet: bool) -> int:
    """Check that everything in PACK is what was written. Exit status 4 where it is not."""
    from packer.digest import digest
    from packer.verify import verify

    if with_digest and quick:
        raise click.UsageError("--digest reads every sample, which --quick leaves out")
    with show.ProgressDisplay(pack.name, quiet=quiet) as display:
        damage = verify(pack, quick=quick or with_digest, workers=workers, progress=display.update)
    if not damage:
        if with_digest:
            with show.ProgressDisplay(pack.name, quiet=quiet) as display:
                click.echo(f"{digest(pack, workers=workers, progress=display.update)}  {printable(pack)}")
        elif not quiet:
            click.echo(f"{printable(pack)}: intact{' (quick: the samples were not read)' if quick else ''}")
        return 0
    if not quiet:
        click.echo(f"{printable(pack)}: damaged in {show.count(len(damage))} places", err=True)
        for item in damage[:_LISTED]:
            click.echo(f"  {item}", err=True)
        if len(damage) > _LISTED:
            click.echo(f"  … and {show.count(len(damage) - _LISTED)} more", err=True)
    return EXIT_STATUS["corrupt"]
