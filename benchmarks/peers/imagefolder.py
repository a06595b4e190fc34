"""torchvision's ImageFolder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers import data_loader, recipes, transform

REQUIRES = ("torch", "torchvision")
NOTE = "ImageFolder, transforms v1 (a recipe's: v2) on PIL images, PILToTensor; DataLoader with persistent workers"


def prepare(tree: Path, directory: Path) -> Path:
    return tree


def open_loader(pack: Path, crop: str, threads: int, recipe: str | None = None) -> Any:
    from packer.testing.reference import torchvision

    transformed = recipes.transform(recipe, "pil") if recipe else transform(crop)
    folder = torchvision().datasets.ImageFolder(str(pack), transformed)
    return data_loader(folder, crop, threads, recipes.mixed(recipe))
