"""Measures `packer.profile`: its verdicts, its overhead, and its predictions for packing.

python benchmarks/waiting.py [verdicts] [overhead] [predicted PHOTOS]

``verdicts``: ten loaders, eight of which are slow for one reason each, with the cause that the profile names.
``overhead``: a DataLoader and packer's Loader with steps of 1 ms, and a list with empty steps, with and without a
profile, in turn; the median difference between neighbouring passes, with its 95 % interval. ``predicted``: an
ImageFolder of PHOTOS (a directory of classes) through a DataLoader of two workers, and the same from packs; the
predicted gain and the measured one.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset
from torchvision import transforms
from torchvision.datasets import ImageFolder

sys.path.insert(0, str(Path(__file__).parents[1]))

import packer
from tests.measuring import loaders

PAIRS = 200
STEP = 0.001


def verdicts(root: Path) -> None:
    """Print the cause that the profile names for each loader."""
    right = 0
    for name, case in loaders.LOADERS.items():
        profiled = packer.profile(case.make(root), show=False, seconds=2.0)
        for _ in profiled:
            time.sleep(case.step)
        report = profiled.report()
        right += report.cause == case.cause
        print(f"{name:>20}: {report.cause:<20} {str(report).splitlines()[0]}")
    print(f"{right} of {len(loaders.LOADERS)} are right")


def passed(loader: Iterable[Any], step: float) -> float:
    """Return the CPU time of the loop's thread for a step of a pass.

    A profile works only in this thread. Wall time, or the threads that decode, would depend far more on other work.
    """
    steps, begin = 0, time.thread_time()
    for _ in loader:
        loaders.busy(step)
        steps += 1
    return (time.thread_time() - begin) / steps


def overhead(root: Path) -> None:
    """Print the cost of a profile: the median of many pairs of short passes, with and without it, and its error."""
    pack = loaders.packed(root, "small", crop=packer.RandomResizedCrop(32), seed=0)
    for name, loader, step in (
        ("DataLoader", DataLoader(TensorDataset(torch.zeros(200, 3, 8, 8)), 4), STEP),
        ("packer's Loader", packer.Loader(pack, 1, threads=1), STEP),
        ("a list, empty steps", [None] * 5000, 0.0),
    ):
        sides = {"with": packer.profile(loader, show=False, seconds=0), "without": loader}
        passed(sides["with"], step), passed(loader, step)
        costs, bare = [], []
        for number in range(PAIRS):
            took = {side: passed(sides[side], step) for side in (sides if number % 2 else reversed(sides))}
            costs.append(took["with"] - took["without"])
            bare.append(took["without"])
        cost, of = statistics.median(costs), statistics.median(bare)
        low, high = _median_within(costs)
        share = f"{cost / of:+.2%} ({low / of:+.2%} to {high / of:+.2%}) of {1e3 * of:.2f} ms; " if step else ""
        print(f"{name:>20}: {share}{1e6 * cost:.2f} µs ({1e6 * low:.2f} to {1e6 * high:.2f}) a step", flush=True)


def _median_within(values: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median, by the ranks of a binomial distribution."""
    values, half = sorted(values), 0.98 * math.sqrt(len(values))
    return values[math.floor(len(values) / 2 - half)], values[math.ceil(len(values) / 2 + half) - 1]


def predicted(photos: Path, root: Path) -> None:
    """Print the predicted gains and the measured ones."""
    transform = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
    packs = {"packing": root / "keep.lmdb", "packing with --resize 256": root / "resized.lmdb"}
    packer.convert(photos, packs["packing"])
    packer.convert(photos, packs["packing with --resize 256"], resize=256)
    of_tree = DataLoader(ImageFolder(photos, transform), 32, shuffle=True, num_workers=2, persistent_workers=True)
    datasets = {name: packer.open_dataset(pack, transform, fuse=True) for name, pack in packs.items()}
    of_packs = {
        name: DataLoader(dataset, 32, shuffle=True, num_workers=2, persistent_workers=True)
        for name, dataset in datasets.items()
    }
    said: dict[str, list[float]] = {name: [] for name in packs}
    found: dict[str, list[float]] = {name: [] for name in packs}
    for number in range(4):
        profiled = packer.profile(of_tree, show=False)
        tree = timed(profiled)
        took = {name: timed(loader) for name, loader in of_packs.items()}
        if number:  # the first pass starts workers
            gains = profiled.report().gains
            for name in packs:
                said[name].append(gains[name])
                found[name].append(tree / took[name])
    for name in packs:
        print(
            f"{name:>28}: {statistics.median(said[name]):.2f} x predicted, {statistics.median(found[name]):.2f} x found"
        )


def timed(loader: Iterable[Any]) -> float:
    begin = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", metavar="WHAT")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        loaders.draw(root := Path(name))
        if "verdicts" in options.what:
            verdicts(root)
        if "overhead" in options.what:
            overhead(root)
        if "predicted" in options.what:
            predicted(Path(options.what[options.what.index("predicted") + 1]), root)


if __name__ == "__main__":
    main()
