"""Measures whether `packer tune` chooses well: its choice compared with the best of the full grid, on three packs.

python benchmarks/tune.py --source IMAGEFOLDER [--json FILE]

The packs hold the photos as they are, tiled JPEGs of 256 pixels, and raw pixels of that size. The grid is all numbers
of threads, with and without processes, some numbers of batches ahead, and both orders; all of it is measured in rounds,
in turn. The best of a grid was also lucky, so the choice and the best are then measured again, in turn; the figure is
the median ratio of these rounds. Targets: 0.95 of the best, in 120 s.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from report import machine, table, write_json

import packer
from packer._loader.autotune import thread_counts
from packer._measuring.harness import ratio, rounds
from packer._measuring.tune import ORDERS, LoaderSettings, loader_with, measure
from packer._storage.system import available_cpus

PACKS: dict[str, dict[str, Any]] = {
    "photos": {},
    "256": {"resize": 256, "tiles": True},
    "raw": {"resize": 256, "codec": "raw"},
}
GOAL, MOST_SECONDS = 0.95, 120
_VERDICTS = {True: "reached", False: "MISSED"}


def main() -> None:
    options = _arguments()
    results: dict[str, Any] = {"machine": machine(), "packs": {}}
    rows = []
    with tempfile.TemporaryDirectory(prefix="packer-tune-") as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        for name in options.packs:
            pack = work / f"{name}.lmdb"
            if not pack.exists():
                packer.convert(options.source, pack, **PACKS[name])
            results["packs"][name] = result = _compare(pack, options)
            verdict = result["ratio"] >= GOAL and result["seconds"] <= MOST_SECONDS
            took = f"{result['seconds']:.0f} s"
            rows.append([name, result["chosen"], result["best"], f"{result['ratio']:.2f}", took, _VERDICTS[verdict]])
            print(table(["pack", "chosen", "best of the grid", "rate", "found in", "goal"], rows), flush=True)
    write_json(options.json, results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="ImageFolder tree of photos")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=90, help="that packer.tune may take (90)")
    parser.add_argument("--rounds", type=int, default=3, help="of the grid (3)")
    parser.add_argument("--finals", type=int, default=9, help="rounds of the choice against the best (9)")
    parser.add_argument(
        "--no-processes", action="store_true", help="leave processes out of the grid, as they start slowly"
    )
    parser.add_argument("--packs", nargs="+", choices=PACKS, default=list(PACKS))
    parser.add_argument("--work", type=Path, help="directory for the packs, kept and used again; else temporary")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured to FILE")
    return parser.parse_args()


def _compare(pack: Path, options: argparse.Namespace) -> dict[str, Any]:
    dataset = packer.open_dataset(pack, crop=packer.RandomResizedCrop(224, flip=0.5))
    begin = time.monotonic()
    found = packer.tune(dataset, options.batch, seconds=options.seconds)
    seconds = time.monotonic() - begin
    grid = _measured(dataset, options.batch, _grid(not options.no_processes), options.rounds)
    best = min(grid, key=lambda settings: statistics.median(grid[settings]))
    finals = _measured(dataset, options.batch, [found.settings, best], options.finals) if best != found.settings else {}
    others = ratio(finals[best], finals[found.settings]) if finals else 1.0  # seconds, so the other way round
    return {
        "chosen": str(found.settings),
        "best": str(best),
        "ratio": others,
        "seconds": seconds,
        "tuning": asdict(found),
        "grid": {str(settings): measured for settings, measured in grid.items()},
        "finals": {str(settings): measured for settings, measured in finals.items()},
    }


def _grid(processes: bool) -> list[LoaderSettings]:
    cpus = available_cpus()
    made = itertools.product(thread_counts(cpus), sorted({0, cpus} if processes else {0}), (1, 2, 4), ORDERS)
    return [LoaderSettings(*one) for one in made if one[0] >= one[1]]


def _measured(dataset: Any, batch: int, settings: list[LoaderSettings], most: int) -> dict[LoaderSettings, list[float]]:
    """Measure seconds a batch, in turn; processes start before a measurement and end after it."""
    costs: dict[LoaderSettings, list[float]] = {one: [] for one in settings}
    for order in rounds(len(settings), most, step=max(1, len(settings) // most)):
        for position in order:
            with loader_with(dataset, batch, settings[position]) as loader:
                costs[settings[position]].append(measure(loader))
    return costs


if __name__ == "__main__":
    main()
