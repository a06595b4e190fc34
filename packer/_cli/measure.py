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
    Duration,
    PackPath,
    UserPath,
    conversion_options,
    options,
    requested,
)
from packer._cli.output import EXIT_STATUS, ProgressDisplay, progress_options
from packer._conversion.options import SourceOptions
from packer.errors import OptionError, PackerError, printable

if TYPE_CHECKING:
    from packer._measuring.bench import Benchmark


class Counts(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.4
    """Numbers such as 1,2,8."""

    name = "n,n"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        words = str(value).split(",")
        if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
            self.fail(f"{value!r} are not numbers such as 1,2,8", param, ctx)
        return [int(word) for word in words]


@click.command("bench")
@click.argument("paths", metavar="PACK|SRC...", nargs=-1, required=True, type=PackPath())
@click.option("--batch", type=click.IntRange(1), default=64, show_default=True, help="Samples of a batch.")
@click.option(
    "--images",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="How many samples of each are read, again and again from memory.",
)
@click.option(
    "--seconds",
    type=Duration(),
    default=60,
    show_default=True,
    help="How long it may take; starting and one round come to their end in any case.",
)
@click.option(
    "--threads", type=Counts(), help="Numbers of threads, such as 1,2,8. By default 1, 2, 4 and so on, and all CPUs."
)
@click.option(
    "--recipe",
    type=UserPath(),
    metavar="NAME|FILE.py",
    help="trivial, rand, three or dino: step by step, beside torchvision. Or a Python file that defines"
    " loader(path, threads), a side of one's own, or transform, or crop.",
)
@click.option(
    "--plot", type=UserPath(), help="Draw rate over threads to FILE.png or FILE.svg; without a suffix to both."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything that was measured as one JSON object.")
@progress_options("Show no progress.")
def bench_command(  # noqa: PLR0917
    paths: tuple[Path, ...], batch: int, images: int, seconds: float, threads: list[int] | None, recipe: Path | None, plot: Path | None, as_json: bool, quiet: bool
) -> None:  # fmt: skip
    """Measure how fast packs, and trees as ImageFolder takes them, are read, side by side.

    A pack is read through DataLoader, by packer's Loader with threads and with processes, and as fast as the decoder
    alone can (the limit). A tree is read by torchvision's ImageFolder, and by packer's Loader where it lies. A pack at a
    URL is fetched as in a first epoch, in blocks and at random, and read from the cache.

    \b
      packer bench imagenet/train train.lmdb
      packer bench train.lmdb small.lmdb --plot rates
      packer bench train.lmdb --recipe trivial     # what each step of a recipe costs
    """
    from packer._measuring.bench import bench

    if plot is not None:
        from packer._measuring.plot import plot as draw, require_plotting

        require_plotting(plot)
    with ProgressDisplay("bench", quiet=quiet, unit="seconds") as display:
        measured = bench(
            paths, batch=batch, images=images, seconds=seconds, threads=threads, recipe=recipe, progress=display.spend
        )
    click.echo(json.dumps(_as_json(measured), indent=2) if as_json else measured)
    for file in draw(measured, plot) if plot is not None else ():
        click.echo(f"written to {printable(file)}", err=True)


def _as_json(measured: Benchmark) -> dict[str, object]:
    rates = [{**asdict(rate), "median": rate.median, "spread": rate.spread} for rate in measured.rates]
    return {**asdict(measured), "rates": rates}


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
    from packer._measuring.tune import dataset_of, tune

    with ProgressDisplay("tune", quiet=quiet, unit="seconds") as display:
        found = tune(dataset_of(pack, recipe), batch, step_ms=step_ms, seconds=seconds, progress=display.spend)
    click.echo(json.dumps({**asdict(found), "line": found.line}, indent=2) if as_json else found)


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
    from packer._measuring.train_hook import profile_training

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


@click.command("estimate", cls=CommandOfSource)
@click.argument("src", type=UserPath())
@click.argument("dst", metavar="[DST]", required=False, type=UserPath())
@options(SourceOptions, "split")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Say too how long N machines such as this one take, each with parts of the pack.",
)
@click.option(
    "--seconds",
    type=Duration(),
    default=10.0,
    show_default=True,
    help="How long it may take, about; a long listing comes in addition.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@progress_options(quiet=None)
@conversion_options(tasks=False)
def estimate_command(
    src: Path, dst: Path | None, *, jobs: int | None, seconds: float, as_json: bool, **values: Any
) -> None:
    """Say how large a pack of SRC will be, how long its conversion takes, and what else it could be.

    Some images of every size are converted into a directory beside DST, which goes again: the disk of DST is the one
    that is measured. The options are those of `packer convert`; the last line is the command that makes the pack.

    \b
      packer estimate imagenet/train
      packer estimate imagenet/train /data/train.lmdb --resize 256 --jobs 8
    """
    spent, began = time.process_time(), time.perf_counter()  # of this process, to begin with
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
