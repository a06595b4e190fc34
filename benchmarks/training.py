"""Trains ResNet-18 with packer's recipe and with torchvision's, and compares the losses: both must teach the same.

python benchmarks/training.py [--seeds 5] [--steps 300] [--size 40] [--batch 32]

The images are drawn: shapes of eight kinds on noise with a photo's spectrum. The recipe is crop, flip,
TrivialAugmentWide, normalise, RandomErasing. *torchvision* is ImageFolder, v2 and a DataLoader; *packer* is a pack and
a Loader. For each seed both sides begin with the same weights. The program prints, for each side, the mean loss of the
last quarter of the steps and the loss of held-out images, over the seeds; and by how many standard errors the sides
differ. Two runs of one side differ too: `--again` compares torchvision's with itself, with other seeds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F  # noqa: N812

from packer import CenterCrop, Loader, RandomResizedCrop, augment, convert, open_dataset
from packer.testing.photos import draw_photo
from packer.testing.reference import torchvision

torchvision()
from torchvision.datasets import ImageFolder  # noqa: E402
from torchvision.models import resnet18  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE = 64  # of an image
SHAPES: dict[str, Callable[[Any, Any], Any]] = {
    "cross": lambda x, y: (abs(x) < 0.3) | (abs(y) < 0.3),
    "disc": lambda x, y: x * x + y * y < 1,
    "diamond": lambda x, y: abs(x) + abs(y) < 1,
    "lines": lambda x, y: (np.floor(4 * y) % 2 == 0) & (abs(x) < 1),
    "ring": lambda x, y: abs(x * x + y * y - 0.7) < 0.3,
    "saw": lambda x, y: (x - np.floor(x * 2) / 2) * 2 > abs(y),
    "square": lambda x, y: np.maximum(abs(x), abs(y)) < 0.9,
    "triangle": lambda x, y: (y < 0.8) & (y > 2 * abs(x) - 0.9),
}


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        draw(root / "train", 150, seed=0)
        draw(root / "val", 25, seed=1)
        for name in ("train", "val"):
            convert(root / name, root / f"{name}.lmdb")
        sides = {"torchvision": of_torchvision, "packer": of_torchvision if options.again else of_packer}
        losses: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for seed in range(options.seeds):
            for place, (name, batches) in enumerate(sides.items()):
                loader_seed = seed + 1000 * (place if options.again else 0)
                losses[name].append(trained(batches(root, loader_seed, options), root, seed, options))
                print(
                    f"seed {seed}, {name}: {losses[name][-1][0]:.4f} in training, {losses[name][-1][1]:.4f} kept back"
                )
    report(losses, options)


def report(losses: dict[str, list[tuple[float, float]]], options: argparse.Namespace) -> None:
    print(f"ResNet-18, {options.steps} steps of {options.batch} images of {options.size} px, {options.seeds} seeds")
    for number, what in enumerate(("in training", "kept back")):
        values = {name: [both[number] for both in found] for name, found in losses.items()}
        means = {name: statistics.mean(found) for name, found in values.items()}
        errors = {name: statistics.stdev(found) / len(found) ** 0.5 for name, found in values.items()}
        ours, theirs = values.values()
        apart = [one - other for one, other in zip(ours, theirs, strict=True)]
        share = statistics.mean(apart) / (statistics.stdev(apart) / len(apart) ** 0.5)
        told = ", ".join(f"{name} {means[name]:.4f} ± {errors[name]:.4f}" for name in values)
        print(f"loss {what}: {told}; apart by {abs(share):.1f} standard errors of the difference, seed by seed")


def draw(root: Path, per_class: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    for name, shape in SHAPES.items():
        (root / name).mkdir(parents=True)
        for number in range(per_class):
            pixels, radius = draw_photo(rng, SIDE, SIDE), rng.uniform(0.2, 0.45) * SIDE
            top, left = rng.uniform(0.3, 0.7, 2) * SIDE
            within = (abs(x - left) < 1.2 * radius) & (abs(y - top) < 1.2 * radius)
            pixels[shape((x - left) / radius, (y - top) / radius) & within] = rng.integers(0, 256, 3)
            Image.fromarray(pixels).save(root / name / f"{number:04d}.jpg", quality=90)


def of_torchvision(root: Path, seed: int, options: argparse.Namespace) -> Iterable[Any]:
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(options.size, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.TrivialAugmentWide(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
            v2.RandomErasing(0.1),
        ]
    )
    folder = ImageFolder(str(root / "train"), transform)
    generator = torch.Generator().manual_seed(seed)
    return torch.utils.data.DataLoader(
        folder, options.batch, shuffle=True, drop_last=True, num_workers=2, generator=generator, persistent_workers=True
    )


def of_packer(root: Path, seed: int, options: argparse.Namespace) -> Iterable[Any]:
    """torchvision erases normalised images, with 0, which is the mean; so packer must erase with the mean's colour."""
    grey = tuple(round(255 * mean) for mean in MEAN)
    dataset = open_dataset(
        root / "train.lmdb",
        crop=RandomResizedCrop(options.size, flip=0.5),
        augment=[augment.TrivialAugmentWide(), augment.RandomErasing(0.1, value=grey)],
    )
    return Loader(
        dataset, options.batch, shuffle=True, drop_last=True, threads=2, seed=seed, normalize=(MEAN, STD)
    )  # fmt: skip


def trained(loader: Iterable[Any], root: Path, seed: int, options: argparse.Namespace) -> tuple[float, float]:
    """Train, and return the mean loss of the last quarter of the steps and that of the held-out images."""
    torch.manual_seed(seed)
    model = resnet18(num_classes=len(SHAPES))
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, options.steps)
    losses = []
    for _, (images, labels) in zip(range(options.steps), without_end(loader), strict=False):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    kept_back = open_dataset(root / "val.lmdb", crop=CenterCrop(options.size))
    model.eval()
    with torch.no_grad():
        found = [
            F.cross_entropy(model(images), labels, reduction="sum").item()
            for images, labels in Loader(kept_back, 50, normalize=(MEAN, STD))
        ]
    return statistics.mean(losses[-len(losses) // 4 :]), sum(found) / len(kept_back)


def without_end(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"seeds": 5, "steps": 300, "size": 40, "batch": 32}.items():
        parser.add_argument(f"--{name}", type=int, default=default, help="(%(default)s)")
    parser.add_argument("--again", action="store_true", help="torchvision's recipe on both sides")
    return parser.parse_args()


if __name__ == "__main__":
    main()
