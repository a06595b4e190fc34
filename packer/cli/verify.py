"""`packer verify`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from packer.cli import show
from packer.cli.status import EXIT_STATUS
from packer.errors import CorruptPackError, NotAPackError, printable

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
@click.option(
    "--repair",
    "source",
    type=click.Path(path_type=Path),
    metavar="SRC",
    help="Make damaged samples again from the images in SRC, the directory that was converted.",
)
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Threads.  [default: the CPUs granted]")
@click.option("--quiet", is_flag=True, help="Print nothing; the exit status tells.")
def verify_command(
    pack: Path, *, quick: bool, with_digest: bool, source: Path | None, workers: int | None, quiet: bool
) -> int:
    """Check that everything in PACK is what was written. Exit status 4 where it is not."""
    from packer.digest import digest
    from packer.verify import verify

    if quick and (with_digest or source is not None):
        raise click.UsageError("--digest and --repair read every sample, which --quick leaves out")
    try:
        with show.ProgressDisplay(pack.name, quiet=quiet) as display:
            if source is None:
                damage = verify(pack, quick=quick or with_digest, workers=workers, progress=display.update)
            else:
                from packer.repair import repair

                repaired = repair(pack, source, workers=workers, progress=display.update)
                damage = repaired.left
    except NotAPackError as error:
        if not pack.exists():
            raise
        raise CorruptPackError(error.reason, error.path) from error  # it is there, and said to be a pack
    if source is not None and not quiet:
        made = show.counted(len(repaired.samples), "sample")
        click.echo(f"{printable(pack)}: {made} made again from {printable(source)}")
        _list(repaired.samples)
    if not damage:
        if with_digest:
            with show.ProgressDisplay(pack.name, quiet=quiet) as display:
                click.echo(f"{digest(pack, workers=workers, progress=display.update)}  {printable(pack)}")
        elif not quiet:
            click.echo(f"{printable(pack)}: intact{' (quick: the samples were not read)' if quick else ''}")
        return EXIT_STATUS["ok"]
    if not quiet:
        click.echo(f"{printable(pack)}: damaged in {show.counted(len(damage), 'place')}", err=True)
        _list(damage, err=True)
        if source is not None and any(item.index is None for item in damage):
            click.echo("Damage outside of the samples is not repaired: convert the images again.", err=True)
    return EXIT_STATUS["corrupt"]


def _list(items: Sequence[object], *, err: bool = False) -> None:
    for item in items[:_LISTED]:
        click.echo(f"  {printable(item)}", err=err)
    if len(items) > _LISTED:
        click.echo(f"  … and {show.count(len(items) - _LISTED)} more", err=err)
