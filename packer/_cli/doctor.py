"""`packer doctor`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from packer._cli.progress import ProgressDisplay, progress_options
from packer._cli.status import EXIT_STATUS
from packer._cli.values import Duration, UserPath
from packer.errors import OptionError, PackerError, printable

__all__ = ["doctor_command"]


@click.command("doctor")
@click.argument("path", type=UserPath(), required=False)
@click.option("--train", metavar="COMMAND", help="Run a training command for a while, and say what its steps wait for.")
@click.option("--steps", type=click.IntRange(1), help="End the command of --train after so many steps.  [default: 200]")
@click.option(
    "--seconds",
    type=Duration(),
    help="How long the disk is read (default 5), or the command of --train may run after its first batch (default 60).",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@progress_options(quiet=None)
def doctor_command(
    path: Path | None, train: str | None, steps: int | None, seconds: float | None, as_json: bool
) -> int:
    """Say what this machine has for loading data, how fast the disk below PATH is, and what to do about it; or with
    --train, whether a training waits for data, for what, and what packing would give.

    \b
      packer doctor imagenet/train
      packer doctor --train 'python train.py --batch 256'

    The command of --train runs as it is, and is ended after some steps: what it saves at its end, it saves. No file of
    it is changed; torch's DataLoader and packer's Loader are measured by a sitecustomize module that PYTHONPATH names.
    """
    if train is not None:
        if path is not None:
            raise OptionError("PATH and --train are two questions: ask one of them")
        return _train(train, steps or 200, seconds or 60.0, as_json)
    if steps is not None:
        raise OptionError("--steps is for --train")
    from packer._measuring.doctor import doctor

    with ProgressDisplay("this machine" if path is None else path.name) as display:
        display.phase("looking at it")
        diagnosis = doctor(path, seconds=seconds or 5.0)
    click.echo(json.dumps(diagnosis.to_json(), indent=2) if as_json else str(diagnosis))
    return EXIT_STATUS["ok"]


def _train(command: str, steps: int, seconds: float, as_json: bool) -> int:
    """Run a training command, print its report, and return the status: of Ctrl-C, or whether there is a report."""
    from packer._measuring.profiling.training import profile_training

    sys.stdout.flush()
    result = profile_training(command, steps=steps, seconds=seconds, to_stderr=as_json)
    if result.report is not None:
        click.echo(json.dumps(result.report.to_json(), indent=2) if as_json else f"\n{result.report}")
    if result.interrupted:
        return EXIT_STATUS["sigint"]
    if result.report is None:
        ended = f"{printable(command)}: ended with status {result.status}"
        raise PackerError(
            f"{ended} before a DataLoader or a packer.Loader gave a batch. Loaders of other kinds are not seen here, "
            "nor is a Python that is started with -E or -I; packer.profile(loader), in the code, takes any"
        )
    if result.status:
        click.echo(f"packer: the command ended by itself, with status {result.status}", err=True)
        return EXIT_STATUS["error"]
    return EXIT_STATUS["ok"]
