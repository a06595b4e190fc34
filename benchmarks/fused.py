"""Measures the gain of two changed lines: a pack in place of ImageFolder, and packer's DataLoader.

python benchmarks/fused.py TREE PACK [--rounds 5] [--workers 2] [--batch-size 64]

The sides have the same transform, and take turns: ImageFolder, the pack, and the pack with `fuse=True`, through torch's
DataLoader; and the last one through `packer.DataLoader`. PACK is made from TREE. timm's transforms are measured if timm
is installed. The ratios are medians of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from report import table
from torch.utils.data import DataLoader

import packer
from packer import open_dataset
from packer.testing.reference import torchvision

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def pipelines() -> dict[str, Any]:
    """Return transforms as people use them, by name."""
    torchvision()
    from torchvision import transforms as v1
    from torchvision.transforms import v2

    after = [v1.ToTensor(), v1.Normalize(MEAN, STD)]
    to_float = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    found = {
        "torchvision v1, training": v1.Compose([v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(), *after]),
        "torchvision v1, evaluation": v1.Compose([v1.Resize(256), v1.CenterCrop(224), *after]),
        "torchvision v2, training": v2.Compose(
            [v2.ToImage(), v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), *to_float]
        ),
    }
    try:
        from timm.data import create_transform
    except ImportError:
        return found
    found["timm, evaluation"] = create_transform(224)
    found["timm, training"] = create_transform(224, is_training=True)
    return found


def rate(kind: type[DataLoader[Any]], dataset: Any, batch_size: int, workers: int) -> float:
    """Return the images a second of an epoch, without the start of the workers."""
    batches = iter(kind(dataset, batch_size, shuffle=True, num_workers=workers))
    next(batches)
    begin, images = time.perf_counter(), 0
    for _, labels in batches:
        images += len(labels)
    return images / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=4, help="how often an epoch has each image")
    parser.add_argument("--only", help="measure the transforms whose name has this text")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="torch's DataLoader makes these")  # a transform fuses in part
    kinds, rows = (DataLoader, DataLoader, DataLoader, packer.DataLoader), []
    chosen = {name: transform for name, transform in pipelines().items() if (options.only or "") in name}
    for name, transform in chosen.items():
        folder = torchvision().datasets.ImageFolder(str(options.tree), transform)
        sides = [folder, *(open_dataset(options.pack, transform, fuse=fuse) for fuse in (False, True, True))]
        many = [torch.utils.data.Subset(side, list(range(len(side))) * options.repeat) for side in sides]
        pairs = [*zip(kinds, many, strict=True)]
        rates = [[rate(*pair, options.batch_size, options.workers) for pair in pairs] for _ in range(options.rounds)]
        ratios = [statistics.median(of[side] / of[0] for of in rates) for side in (1, 2, 3)]
        medians = [statistics.median(column) for column in zip(*rates, strict=True)]
        rows.append([name, *(f"{value:,.0f}" for value in medians), *(f"{ratio:.2f}" for ratio in ratios)])
        print(*rows[-1], sep="  ", flush=True)
    named = ["ImageFolder", "pack", "fused", "packer.DataLoader"]
    print(table(["images a second", *named, *(f"{name} : folder" for name in named[1:])], rows))


if __name__ == "__main__":
    main()
