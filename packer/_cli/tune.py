"""`packer tune`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer._cli.progress import ProgressDisplay, progress_options
from packer._cli.values import Duration, UserPath
from packer.errors import printable

if TYPE_CHECKING:
    from packer._measuring.tune import Tuning

__all__ = ["tune_command"]


@click.command("tune")
@click.argument("pack", type=UserPath())
@click.option("--batch", type=click.IntRange(1), default=256, show_default=True, help="Samples of a batch.")
@click.option(
    "--step-ms",
    type=Duration(),
    help="How long a step of the training takes without waiting: the fewest threads that keep up with it are found, instead of the fastest.",
)
@click.option(
    "--seconds",
    type=Duration(),
    default=90,
    show_default=True,
    help="How long it may take, about.",
)
@click.option(
    "--recipe",
    type=UserPath(),
    help="Python file that defines the training's transform, or crop; by default RandomResizedCrop(224).",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything that was measured as one JSON object.")
@progress_options("Show no progress.")
def tune_command(  # noqa: PLR0917
    pack: Path, batch: int, step_ms: float | None, seconds: float, recipe: Path | None, as_json: bool, quiet: bool
) -> None:  # fmt: skip
    """Find with how many threads, processes and batches ahead this machine reads PACK, and print the line to paste.

    \b
      packer tune train.lmdb --batch 256 --step-ms 180
    """
    from packer._measuring.tune import tune
    from packer._measuring.tuned import dataset_of

    with ProgressDisplay("tune", quiet=quiet, unit="seconds") as display:
        found = tune(dataset_of(pack, recipe), batch, step_ms=step_ms, seconds=seconds, progress=display.spend)
    click.echo(json.dumps({**asdict(found), "line": found.line}, indent=2) if as_json else _said(found))


def _said(found: Tuning) -> str:
    lines = [f"{found.rate:,.0f} images a second, ± {max(found.error, 0.01):.0%}, found in {found.seconds:.0f} s"]
    if found.step_ms is not None:
        need = f"{found.batch / found.step_ms * 1000:,.0f} images a second"
        lines.append(
            f"a step of {found.step_ms:g} ms waits {found.wait_ms:.0f} ms for its batch: nothing on this machine gives the {need} that it takes"
            if found.wait_ms
            else f"keeps up with steps of {found.step_ms:g} ms, which take {need}"
        )
    tried = sorted(found.trials, key=lambda trial: trial.median)
    lines += ["", *(f"  {found.batch / trial.median:9,.0f}  {trial.settings}" for trial in tried)]
    lines += [f"  {note}" for note in found.notes]
    return "\n".join([*map(printable, lines), "", found.line])
