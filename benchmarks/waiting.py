"""Measures `packer.profile`: its verdicts, what it costs, and whether what it predicts for packing comes true.

python benchmarks/waiting.py [verdicts] [overhead] [predicted PHOTOS]

``verdicts``: ten loaders, eight of which are slow for one reason each, with the cause that the profile names.
``overhead``: a DataLoader and packer's Loader whose steps take 1 ms, with and without a profile, in turn; the median of
the ratios of neighbouring passes. ``predicted``: an ImageFolder of PHOTOS (a directory of classes) through a DataLoader
of two workers, and the same from packs; the gain that the profile predicted beside the gain that there is.
"""

from __future__ import annotations

import argparse
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

ROUNDS = 7
STEP = 0.001


def verdicts(root: Path) -> None:
    """Print which cause is named for each loader."""
    right = 0
    for name, case in loaders.LOADERS.items():
        profiled = packer.profile(case.make(root), show=False, seconds=2.0)
        for _ in profiled:
            time.sleep(case.step)
        report = profiled.report()
        right += report.cause == case.cause
        print(f"{name:>20}: {report.cause:<20} {str(report).splitlines()[0]}")
    print(f"{right} of {len(loaders.LOADERS)} are right")


def passed(loader: Iterable[Any]) -> float:
    """Return how much processor time of this process a pass takes: less depends on the neighbours than of a clock."""
    begin = time.process_time()
    for _ in loader:
        loaders.busy(STEP)
    return time.process_time() - begin


def overhead(root: Path) -> None:
    """Print what a profile costs."""
    pack = loaders.packed(root, "small", crop=packer.RandomResizedCrop(32), seed=0)
    for name, loader in (
        ("DataLoader", DataLoader(TensorDataset(torch.zeros(800, 3, 8, 8)), 4)),
        ("packer's Loader", packer.Loader(torch.utils.data.ConcatDataset([pack] * 3), 1, threads=1)),
    ):
        profiled = packer.profile(loader, show=False, seconds=0)
        passed(loader), passed(profiled)
        ratios = []
        for number in range(ROUNDS):
            sides = {"with": profiled, "without": loader}
            took = {side: passed(sides[side]) for side in (sides if number % 2 else reversed(sides))}
            ratios.append(took["with"] / took["without"] - 1)
        print(f"{name:>20}: {statistics.median(ratios):+.2%} ({min(ratios):+.2%} to {max(ratios):+.2%})")
    bare = statistics.median(per_step([None] * 100_000) for _ in range(5))
    measured = statistics.median(per_step(packer.profile([None] * 100_000, show=False, seconds=0)) for _ in range(5))
    print(f"{'a step':>20}: {1e6 * (measured - bare):.2f} µs")


def per_step(loader: Any) -> float:
    begin = time.process_time()
    for _ in loader:
        pass
    return (time.process_time() - begin) / len(loader)


def predicted(photos: Path, root: Path) -> None:
    """Print the gains that are predicted, and those that there are."""
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
