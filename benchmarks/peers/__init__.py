"""What `benchmarks/read.py` compares: one module a loader, all with the same functions and constants.

``prepare(tree, directory)`` writes the loader's own pack of an ImageFolder tree, once, and returns it.
``open_loader(pack, crop, threads)`` returns an iterable; each pass over it is an epoch: batches of `BATCH` uint8 images
(N, 3, 224, 224 or N, 224, 224, 3) with their labels. `crop` is "train" or "eval".
`REQUIRES` names what must be importable; `NOTE` says with which settings the loader runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["BATCH", "OUTPUT", "RESIZE", "data_loader", "samples", "transform"]

BATCH = 64
OUTPUT = 224
RESIZE = 256


def samples(tree: Path) -> list[tuple[Path, int]]:
    """Return the files of an ImageFolder tree with their labels, in ImageFolder's order."""
    classes = sorted(entry for entry in tree.iterdir() if entry.is_dir())
    return [(path, label) for label, folder in enumerate(classes) for path in sorted(folder.iterdir())]


def transform(crop: str) -> Any:
    """Return torchvision's transform of a PIL image to a (3, 224, 224) uint8 tensor."""
    from packer.testing.reference import torchvision

    torchvision()
    from torchvision import transforms

    if crop == "train":
        steps = [transforms.RandomResizedCrop(OUTPUT), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
    else:
        steps = [transforms.Resize(RESIZE), transforms.CenterCrop(OUTPUT), transforms.PILToTensor()]
    return transforms.Compose(steps)


def data_loader(dataset: Any, crop: str, threads: int) -> Any:
    """Return PyTorch's DataLoader with one process a thread; the processes live on from epoch to epoch."""
    import torch

    return torch.utils.data.DataLoader(
        dataset, BATCH, shuffle=crop == "train", num_workers=threads, persistent_workers=True
    )
