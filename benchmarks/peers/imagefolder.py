"""torchvision's ImageFolder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers import data_loader, transform

REQUIRES = ("torch", "torchvision")
NOTE = "ImageFolder, transforms v1 on PIL images, PILToTensor; DataLoader with persistent workers"


def prepare(tree: Path, directory: Path) -> Path:
    return tree


def open_loader(pack: Path, crop: str, threads: int) -> Any:
    from packer.testing.reference import torchvision

    folder = torchvision().datasets.ImageFolder(str(pack), transform(crop))
    return data_loader(folder, crop, threads)
