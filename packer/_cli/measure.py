"""Commands that measure: `bench`, `tune`, `doctor` and `estimate`."""

from __future__ import annotations

import json
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer._cli import output
from packer._cli.options import (
    CommandOfSource,
    Count,
    Duration,
    PackPath,
    PanelCommand,
    UserPath,
    conversion_options,
    options,
    panel_option,
    requested,
)
from packer._cli.output import EXIT_STATUS, ProgressDisplay, json_option, progress_options
from packer._conversion.options import SourceOptions
from packer.errors import OptionError, PackerError, printable

if TYPE_CHECKING:
    from packer._measuring.bench import Benchmark


class Counts(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.4
    """A list of numbers such as 1,2,8."""

    name = "n,n"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        words = str(value).split(",")
        if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
            self.fail(f"{value!r} is not a list of numbers such as 1,2,8", param, ctx)
        return [int(word) for word in words]


@click.command("bench", cls=PanelCommand)
@click.argument("paths", metavar="PACK|SRC...", nargs=-1, required=True, type=PackPath())
@panel_option("--batch", type=Count(), default=64, show_default=True, metavar="N", help="Batch size.")
@panel_option(
    "--images",
    type=Count(),
    default=1000,
    show_default=True,
    metavar="N",
    help="Number of samples to take from each path. The same samples are read repeatedly, so they come from memory.",
)
@panel_option(
    "--seconds",
    type=Duration(),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Approximate time limit. Every way of reading is measured at least once.",
)
@panel_option(
    "--threads",
    type=Counts(),
    help="Numbers of threads to compare, such as 1,2,8.  [default: 1, 2, 4 and so on up to all CPUs]",
)
@panel_option(
    "--recipe",
    type=UserPath(),
    metavar="NAME|FILE.py",
    help="trivial, rand, three or dino: compare each step of this series of augmentations with torchvision. FILE.py: a Python file."
    " Its `transform` or `crop` replaces the default crop; its function loader(path, threads) returns a loader that packer measures, too.",
)
@panel_option(
    "--plot",
    type=UserPath(),
    metavar="FILE",
    help="Plot images per second against the number of threads, and write the plot to FILE.png or FILE.svg. If FILE has no suffix, both are written.",
)
@json_option
@progress_options("Do not show progress.")
def bench_command(  # noqa: PLR0917
    paths: tuple[Path, ...], batch: int, images: int, seconds: float, threads: list[int] | None, recipe: Path | None, plot: Path | None, as_json: bool, quiet: bool
) -> None:  # fmt: skip
    """Measure how fast packs and image folders are read.

    A pack is read by torch's DataLoader, by packer's Loader with threads and with processes, and by the decoder alone
    (the upper limit). An image folder is read by torchvision's ImageFolder and by packer's Loader. A pack at a URL is
    downloaded twice, as in a first epoch: once block by block, and once in random order. Then it is read from the
    cache, as in later epochs.

    \b
      packer bench imagenet/train train.lmdb
      packer bench train.lmdb small.lmdb --plot rates
      packer bench train.lmdb --recipe trivial     # the cost of each step
    """
    from packer._measuring.bench import bench, plot as draw, require_plotting

    if plot is not None:
        require_plotting(plot)
    with ProgressDisplay("bench", quiet=quiet, unit="seconds") as display:
        measured = bench(
            paths, batch=batch, images=images, seconds=seconds, threads=threads, recipe=recipe, progress=display.spend
        )
    click.echo(json.dumps(_as_json(measured), indent=2) if as_json else measured)
    for file in draw(measured, plot) if plot is not None else ():
        click.echo(f"packer: written to {printable(file)}", err=True)


def _as_json(measured: Benchmark) -> dict[str, object]:
    rates = [{**asdict(rate), "median": rate.median, "spread": rate.spread} for rate in measured.rates]
    return {**asdict(measured), "rates": rates}


@click.command("tune", cls=PanelCommand)
@click.argument("pack", type=UserPath())
@panel_option("--batch", type=Count(), default=256, show_default=True, metavar="N", help="Batch size.")
@panel_option(
    "--step-ms",
    type=Duration(),
    metavar="MS",
    help="Duration of one training step, not counting the wait for data. With this option, packer finds the smallest number of threads that keeps up with training, instead of the fastest settings.",
)
@panel_option(
    "--seconds",
    type=Duration(),
    default=90,
    show_default=True,
    metavar="SECONDS",
    help="Approximate duration of the search.",
)
@panel_option(
    "--recipe",
    type=UserPath(),
    metavar="FILE.py",
    help="Python file that defines the transform or crop of your training.  [default: RandomResizedCrop(224)]",
)
@json_option
@progress_options("Do not show progress.")
def tune_command(  # noqa: PLR0917
    pack: Path, batch: int, step_ms: float | None, seconds: float, recipe: Path | None, as_json: bool, quiet: bool
) -> None:  # fmt: skip
    """Find the fastest Loader settings for a pack on this machine.

    Compares numbers of threads, processes and prefetched batches, and prints a line of code to paste into your program.

    \b
      packer tune train.lmdb --batch 256 --step-ms 180
    """
    from packer._measuring.loaders import errors_of_recipe
    from packer._measuring.tune import dataset_of, tune

    with ProgressDisplay("tune", quiet=quiet, unit="seconds") as display, errors_of_recipe(recipe):
        found = tune(dataset_of(pack, recipe), batch, step_ms=step_ms, seconds=seconds, progress=display.spend)
    click.echo(json.dumps({**asdict(found), "line": found.line}, indent=2) if as_json else found)


@click.command("doctor", cls=PanelCommand)
@click.argument("path", type=UserPath(), required=False)
@panel_option(
    "--train",
    metavar="COMMAND",
    help="Run a training command for a while, and report whether and why it waits for data.",
)
@panel_option("--steps", type=Count(), metavar="N", help="Stop the command of --train after N steps.  [default: 200]")
@panel_option(
    "--seconds",
    type=Duration(),
    metavar="SECONDS",
    help="How many seconds to measure the disk; with --train, how many seconds to run the command after its first batch.  [default: 5; with --train 60]",
)
@json_option
@progress_options(quiet=None)
def doctor_command(
    path: Path | None, train: str | None, steps: int | None, seconds: float | None, as_json: bool
) -> int:
    """Find out what slows down data loading on this machine.

    Reports the CPUs, the decoder and the speed of the disk that holds PATH, and suggests how to make loading faster. With
    --train, reports whether training waits for data, which step of loading takes the time, and how much a pack would help.

    \b
      packer doctor imagenet/train
      packer doctor --train 'python train.py --batch 256'

    The command of --train runs unchanged, and packer stops it after some steps. A sitecustomize module, which packer adds
    to the command's PYTHONPATH, measures torch's DataLoader and packer's Loader. If the command saves a checkpoint when
    it ends, it also saves one when packer stops it.
    """
    limits = {name: value for name, value in (("steps", steps), ("seconds", seconds)) if value is not None}
    if train is not None:
        if path is not None:
            raise OptionError("PATH and --train cannot be combined: pass only one of them")
        return _train(train, limits, as_json)
    if steps is not None:
        raise OptionError("--steps is for --train")
    from packer._measuring.doctor import doctor

    with ProgressDisplay("this machine" if path is None else path.name) as display:
        display.phase("measuring")
        diagnosis = doctor(path, **limits)
    click.echo(json.dumps(diagnosis.to_json(), indent=2) if as_json else str(diagnosis))
    return EXIT_STATUS["ok"]


def _train(command: str, limits: dict[str, Any], as_json: bool) -> int:
    """Run a training command, and print its report; return the exit status."""
    from packer._measuring.train_hook import profile_training

    sys.stdout.flush()
    with ProgressDisplay("packer doctor", unit="seconds", lines=True) as display:
        result = profile_training(command, **limits, to_stderr=as_json, progress=display.spend)
    if result.report is not None:
        click.echo(json.dumps(result.report.to_json(), indent=2) if as_json else f"\n{result.report}")
    if result.interrupted:
        return EXIT_STATUS["sigint"]
    if result.report is None:
        ended = f"{printable(command)}: ended with status {result.status}"
        raise PackerError(
            f"{ended} before a DataLoader or packer.Loader returned a batch. --train cannot measure other loaders, or "
            "a Python that was started with -E or -I; packer.profile(loader) measures any loader"
        )
    if result.status:
        click.echo(f"packer: the command ended by itself, with status {result.status}", err=True)
        return EXIT_STATUS["error"]
    return EXIT_STATUS["ok"]


@click.command("estimate", cls=CommandOfSource)
@click.argument("src", type=UserPath())
@click.argument("dst", metavar="[DST]", required=False, type=UserPath())
@options(SourceOptions, "split")
@panel_option(
    "--jobs",
    type=Count(),
    metavar="N",
    help="Also predict the time on N machines like this one, if each machine makes some parts of the pack.",
)
@panel_option(
    "--seconds",
    type=Duration(),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Approximate duration of the trial, not counting the time to list the files.",
)
@json_option
@progress_options(quiet=None)
@conversion_options(tasks=False)
def estimate_command(
    src: Path, dst: Path | None, *, jobs: int | None, seconds: float, as_json: bool, **values: Any
) -> None:
    """Predict the size of a pack and the time of its conversion.

    Converts a sample of small and large images into a temporary directory next to DST, so that the speed of DST's disk
    is measured, too. Pass the options of `packer convert` that you plan to use. For comparison, packer also tries a few
    other options. It prints the command that makes the pack.

    \b
      packer estimate imagenet/train
      packer estimate imagenet/train /data/train.lmdb --resize 256 --jobs 8
    """
    spent, began = time.process_time(), time.perf_counter()  # so far, the time went into the start of this process
    from packer._measuring.estimate import estimate_request, requested as conversion

    warnings.filterwarnings("ignore", module="PIL")
    options = {name: value for name, value in values.items() if value is not None}
    request = requested(conversion, src=src, dst=dst, options=options)
    with output.ProgressDisplay(src.name) as display:
        shown = ""

        def update(what: str, done: int, total: int | None) -> None:
            nonlocal shown
            if what != shown:
                display.phase(shown := what)
            if total is not None:
                display.update(done, total)

        spent += time.perf_counter() - began
        found = estimate_request(request, jobs=jobs or 1, seconds=seconds, spent=spent, progress=update)
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        click.echo(found)
