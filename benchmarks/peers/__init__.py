"""The loaders that `benchmarks/read.py` compares: a module for each, all with the same functions and constants.

``prepare(tree, directory)`` writes the loader's own pack of an ImageFolder tree, once, and returns it.
``open_loader(pack, crop, threads)`` returns an iterable; each pass over it is an epoch: batches of `BATCH` uint8 images
(N, 3, 224, 224 or N, 224, 224, 3) with their labels. `crop` is "train" or "eval".
`REQUIRES` names the modules that must be importable; `NOTE` describes the settings of the loader. Some modules also
take the name of a recipe of `peers.recipes`: then batches are float32, and with the recipe of two views each is a pair.
"""

from __future__ import annotations

import io
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def tensor_transform(crop: str) -> Any:
    """Return torchvision's transform v2 of a (3, height, width) uint8 tensor to a (3, 224, 224) one."""
    from torchvision.transforms import v2

    if crop == "train":
        return v2.Compose([v2.RandomResizedCrop(OUTPUT, antialias=True), v2.RandomHorizontalFlip()])
    return v2.Compose([v2.Resize(RESIZE, antialias=True), v2.CenterCrop(OUTPUT)])


def image_reader(crop: str, decoder: str) -> Callable[[bytes], Any]:
    """Return a function that turns the bytes of a file into a (3, 224, 224) uint8 tensor.

    By Pillow and torchvision's transforms v1 (``"pil"``), which is how most people do it, or by torchvision's own
    decoder and its transforms v2 of tensors (``"tensors"``), which takes less time.
    """
    from PIL import Image

    from peers import tensors

    if decoder == "tensors":
        decode, transformed = tensors.decoder(), tensor_transform(crop)
        return lambda data: transformed(decode(data))
    transformed = transform(crop)
    return lambda data: transformed(Image.open(io.BytesIO(data)).convert("RGB"))


def random_crop(height: int, width: int) -> tuple[int, int, int, int]:
    """Return top, left, height and width of a box that RandomResizedCrop could draw, for libraries without it."""
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        rows, columns = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < rows <= height and 0 < columns <= width:
            return random.randint(0, height - rows), random.randint(0, width - columns), rows, columns
    rows, columns = min(height, round(width * 4 / 3)), min(width, round(height * 4 / 3))
    return (height - rows) // 2, (width - columns) // 2, rows, columns


def data_loader(dataset: Any, crop: str, threads: int, collate: Any = None) -> Any:
    """Return PyTorch's DataLoader with `threads` processes, which live on from epoch to epoch."""
    import torch

    return torch.utils.data.DataLoader(
        dataset, BATCH, shuffle=crop == "train", num_workers=threads, persistent_workers=True, collate_fn=collate
    )
