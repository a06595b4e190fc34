"""Measures common advice about data loading, as far as that is possible without a GPU.

python benchmarks/advice.py TREE [--rounds 5] [--ram /dev/shm] [--json FILE]

TREE is an ImageFolder of photos. The sides take turns, round by round; the figures are medians. The RAM disk is
compared by CPU time, which a busy machine changes little. Prefetchers are compared with a source and a step that both
sleep, as they would wait for a disk and a GPU. If prefetch_generator is installed, its BackgroundGenerator is measured
too.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from torch.utils.data import DataLoader

import packer
from packer import BackgroundPrefetcher, Loader, RandomResizedCrop, open_dataset
from packer.testing.reference import torchvision

BATCH = 32
WAIT = 0.01  # seconds that the source and the step wait


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory(dir=options.ram) as ram:
        for folder in (work, ram):
            packer.convert(options.tree, Path(folder) / "photos.lmdb")
        results = {
            "CPU milliseconds an image, by place": in_turn(
                options.rounds, places(Path(work) / "photos.lmdb", Path(ram) / "photos.lmdb")
            ),
            "milliseconds a step": in_turn(options.rounds, ahead()),
            "what cProfile says of a loop with two workers": profiled(options.tree),
        }
    for title, row in results.items():
        print(title)
        for name, value in row.items():
            print(f"  {name:40} {value:8.3f}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def in_turn(rounds: int, sides: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Return the median of each side, measured in turn after a round that does not count."""
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            figure = side()
            if number:
                figures[name].append(figure)
    return {name: statistics.median(row) for name, row in figures.items()}


def places(disk: Path, ram: Path) -> dict[str, Callable[[], float]]:
    """Return the Loader over a pack that was read before: on the disk, locked in memory, and on a RAM disk."""
    crop = RandomResizedCrop(224, flip=0.5)
    datasets = {
        "the disk, read before": open_dataset(disk, crop=crop),
        'the disk, cache="ram"': open_dataset(disk, crop=crop, cache="ram"),
        "the RAM disk": open_dataset(ram, crop=crop),
    }

    def cost(dataset: packer.ImageDataset) -> float:
        begin = time.process_time()
        images = sum(len(labels) for _, labels in Loader(dataset, BATCH, shuffle=True))
        return (time.process_time() - begin) * 1000 / images

    return {name: lambda dataset=dataset: cost(dataset) for name, dataset in datasets.items()}


def ahead() -> dict[str, Callable[[], float]]:
    """Return loops over a source: source and step one after the other, and with a thread that reads ahead."""
    sides: dict[str, Callable[[], Iterable[int]]] = {
        "one after the other": source,
        "BackgroundPrefetcher": lambda: BackgroundPrefetcher(source()),
    }
    try:
        from prefetch_generator import BackgroundGenerator
    except ImportError:
        print("prefetch_generator is not installed: BackgroundGenerator is not measured")
    else:
        sides["BackgroundGenerator"] = lambda: BackgroundGenerator(source(), 2)

    def step_time(items: Iterable[int]) -> float:
        begin, steps = time.perf_counter(), 0
        for _ in items:
            time.sleep(WAIT)
            steps += 1
        return (time.perf_counter() - begin) * 1000 / steps

    return {name: lambda make=make: step_time(make()) for name, make in sides.items()}


def source() -> Iterator[int]:
    for number in range(100):
        time.sleep(WAIT)
        yield number


def profiled(tree: Path) -> dict[str, float]:
    """Return the calls that cProfile finds to take the most time of a loop over ImageFolder, with their shares."""
    vision = torchvision()
    transform = vision.transforms.Compose([vision.transforms.RandomResizedCrop(224), vision.transforms.ToTensor()])
    profile = cProfile.Profile()
    profile.enable()
    for _ in DataLoader(vision.datasets.ImageFolder(str(tree), transform), BATCH, num_workers=2):
        pass
    profile.disable()
    stats = pstats.Stats(profile)
    own = sorted(((row[2], name) for name, row in stats.stats.items()), reverse=True)[:3]
    return {name[2]: seconds / stats.total_tt for seconds, name in own}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ram", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
