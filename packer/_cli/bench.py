"""`packer bench`."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer._cli.progress import ProgressDisplay, progress_options
from packer._cli.values import Duration, PackPath, UserPath
from packer._storage.limits import in_units
from packer._storage.remote.urls import is_url
from packer.errors import printable

if TYPE_CHECKING:
    from packer._measuring.bench import Benchmark, Rate

__all__ = ["bench_command"]

_BUSY = 0.1  # of the CPUs, that others took
_SIDES = "packer", "torchvision"  # the ways of a recipe that has a name


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
        from packer._measuring.plotting import plot as draw
        from packer._measuring.plotting import require_plotting

        require_plotting(plot)
    with ProgressDisplay("bench", quiet=quiet, unit="seconds") as display:
        measured = bench(
            paths, batch=batch, images=images, seconds=seconds, threads=threads, recipe=recipe, progress=display.spend
        )
    click.echo(json.dumps(_as_json(measured), indent=2) if as_json else _table(measured))
    for file in draw(measured, plot) if plot is not None else ():
        click.echo(f"written to {printable(file)}", err=True)


def _as_json(measured: Benchmark) -> dict[str, object]:
    rates = [{**asdict(rate), "median": rate.median, "spread": rate.spread} for rate in measured.rates]
    return {**asdict(measured), "rates": rates}


def _spread(rate: Rate) -> str:
    return f" ±{rate.spread:4.0%}" if len(rate.rates) > 1 else ""


def _rounds(measured: Benchmark) -> str:
    return f"medians of {measured.rounds} rounds in turn, ± half of their range" if measured.rounds > 1 else "one round"


def _table(measured: Benchmark) -> str:
    from packer._measuring.bench import LIMIT

    counts = sorted({rate.threads for rate in measured.rates})
    if any(rate.way in _SIDES for rate in measured.rates):
        return "\n".join(map(printable, [*_steps(measured), *_below(measured)]))
    sides = sorted(measured.sides, key=lambda side: -measured.fastest(side).median)
    wide = max(len(side) for side in sides)
    threads = [f"{count} thread{'s' if count > 1 else ''}" for count in counts]
    lines = [f"{'images a second':{wide}}" + "".join(f"{name:>17}" for name in threads)]
    for side in sides:
        rates = {rate.threads: f"{rate.median:,.0f}{_spread(rate)}" for rate in measured.of(side)}
        lines.append(f"{side:{wide}}" + "".join(f"{rates.get(count, ''):>17}" for count in counts))
    ways = [side for side in sides if measured.fastest(side).way != LIMIT]  # nobody trains with the limit
    if len(ways) > 1 and (ratio := measured.ratio(ways[0], ways[-1])) is not None:
        lines += ["", f"{ways[0]} is {ratio:.1f} times as fast as {ways[-1]}"]
    return "\n".join(map(printable, [*lines, *_below(measured)]))


def _steps(measured: Benchmark) -> list[str]:
    """Return a recipe's steps by each side: the rate down to the step, and what the step costs a thread."""
    wide = max(map(len, measured.sides))
    lines = [f"{'':{wide}}  images a second   ms an image of a thread"]
    before: dict[tuple[str, int], list[float]] = {}
    for rate in measured.rates:
        key = rate.side.rpartition(": ")[0], rate.threads
        costs = [1000 * rate.threads / one for one in rate.rates]
        cost = f"{statistics.median(costs):.2f}"
        if key in before:  # what a step costs is compared within a round
            extra = statistics.median(now - then for now, then in zip(costs, before[key], strict=False))
            cost = f"{cost}  ({extra:+.2f})"
        before[key] = costs
        lines.append(f"{rate.side:{wide}}  {rate.median:>9,.0f}{_spread(rate):6}   {cost}")
    for path in measured.images:
        ours, theirs = (
            [rate.side for rate in measured.rates if (rate.path, rate.way) == (path, way)] for way in _SIDES
        )
        if ours and (share := measured.ratio(ours[-1], ours[0])) is not None:
            lines += ["", f"{path}: the whole recipe has {share:.2f} of the rate of the crop alone"]
        if ours and theirs and (times := measured.ratio(ours[-1], theirs[-1])) is not None:
            lines.append(f"{path}: packer's is {times:.1f} times as fast as torchvision's")
    return lines


def _below(measured: Benchmark) -> list[str]:
    """Return what stands below the figures: what they are of."""
    lines = ["", *(f"not measured: {side}: {reason}" for side, reason in measured.skipped.items())]
    for path, count in measured.images.items():
        where = "fetched each time, or from the cache" if is_url(path) else "from memory"
        lines.append(f"{path}: {count:,} samples of {in_units(measured.mean_bytes[path])}, {where}")
    lines.append(
        f"{_rounds(measured)}; batches of {measured.batch}; {measured.machine['processor']}, {measured.machine['cpus']} CPUs"
    )
    if measured.others is not None and measured.others > _BUSY:
        lines.append(f"other programs took {measured.others:.0%} of the CPUs meanwhile: measure again when they rest")
    return lines
