"""Loaders that are slow on purpose, each for one reason, and two fast ones; `benchmarks/waiting.py` uses them too."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Dataset, TensorDataset, default_collate
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import pil_loader

import packer
from packer.testing.photos import draw_imagefolder

WORKERS = 2


def draw(root: Path) -> None:
    """Draw the loaders' images: ordinary photos, large photos and small images, all copies of one drawing."""
    draw_imagefolder(root / "drawn", classes=1, per_class=1, size=(375, 500))
    (drawn,) = (root / "drawn").rglob("*.jpg")
    for name, count, size in (("ordinary", 48, (500, 375)), ("large", 24, (1600, 1200)), ("small", 64, (64, 48))):
        (root / name / "class").mkdir(parents=True)
        with Image.open(drawn) as image:
            image.resize(size).save(first := root / name / "class" / "0.jpg", quality=92)
        for number in range(1, count):
            shutil.copyfile(first, first.with_name(f"{number}.jpg"))


def busy(seconds: float) -> None:
    """Keep a CPU busy with Python code, which holds Python's lock."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(100))


def slow_opener(path: str) -> Any:
    """Open a file as from a cold network disk."""
    time.sleep(0.02)
    return pil_loader(path)


def slow_transform(image: Any) -> Any:
    busy(0.01)
    return transforms.functional.to_tensor(image)


def slow_collate(items: list[Any]) -> Any:
    busy(0.06)
    return default_collate(items)


def training() -> Any:
    """Return a usual transform."""
    return transforms.Compose(
        [transforms.RandomResizedCrop(96), transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.25] * 3)]
    )


@dataclass(frozen=True)
class Case:
    """A loader and the step of its loop.

    Attributes
    ----------
    cause : str
        The cause that the report must name.
    make : callable
        Takes the directory of `draw`.
    step : float
        Seconds that the loop sleeps, as it does while a GPU works.
    helps : bool, optional
        Whether the report must say that packing helps; None if both answers may be right.
    """

    cause: str
    make: Callable[[Path], Iterable[Any]]
    step: float = 0.002
    helps: bool | None = False


def folder(root: Path, name: str, **settings: Any) -> Dataset[Any]:
    return ImageFolder(root / name, **{"transform": transforms.ToTensor(), **settings})


def packed(root: Path, name: str, **settings: Any) -> packer.ImageDataset:
    if not (pack := root / f"{name}.lmdb").exists():
        packer.convert(root / name, pack)
    return packer.open_dataset(pack, **settings)


LOADERS = {
    "disk": Case(
        "reading",
        lambda root: DataLoader(folder(root, "small", loader=slow_opener), 8, num_workers=WORKERS),
        helps=None,
    ),
    "decoding": Case(
        "decoding",
        lambda root: DataLoader(folder(root, "large", transform=training()), 4, num_workers=WORKERS),
        helps=True,
    ),
    "transform": Case(
        "transform", lambda root: DataLoader(folder(root, "small", transform=slow_transform), 4, num_workers=WORKERS)
    ),
    "collation": Case(
        "collation", lambda root: DataLoader(folder(root, "small"), 8, num_workers=WORKERS, collate_fn=slow_collate)
    ),
    # An epoch is long: in a short one, starting workers takes longer than they save.
    "too few workers": Case(
        "too few workers",
        lambda root: DataLoader(ConcatDataset([folder(root, "ordinary", transform=training())] * 50), 8),
        helps=None,
    ),
    "too many workers": Case(
        "too many workers",
        lambda root: DataLoader(folder(root, "ordinary", transform=training()), 4, num_workers=16),
        helps=None,
    ),
    "lock": Case(
        "lock",
        lambda root: packer.Loader(packed(root, "small", transform=slow_transform, output="pil"), 4, threads=WORKERS),
    ),
    "model": Case("step", lambda root: DataLoader(folder(root, "small"), 8, num_workers=1), step=0.2),
    "fine": Case("step", lambda root: DataLoader(TensorDataset(torch.zeros(64, 3, 32, 32)), 4), step=0.02),
    "packer's Loader": Case(
        "step",
        lambda root: packer.Loader(packed(root, "small", crop=packer.RandomResizedCrop(32)), 4, threads=WORKERS),
        step=0.03,
    ),
}
"""By the problem of each loader."""
