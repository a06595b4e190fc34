"""packer: through DataLoader with torchvision's transforms or with `crop=`, and through its own Loader."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers import BATCH, OUTPUT, RESIZE, data_loader, transform

REQUIRES = ("torch",)
NOTE = "LMDB pack, checksums verified"


def prepare(tree: Path, directory: Path, options: tuple[str, ...] = ()) -> Path:
    pack = directory / "pack.lmdb"
    command = [sys.executable, "-m", "packer", "convert", *options, tree, pack]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return pack


def open_loader(pack: Path, crop: str, threads: int, by: str = "Loader", **options: Any) -> Any:
    from packer import open_dataset

    if by == "pil":
        return data_loader(open_dataset(pack, transform(crop), output="pil"), crop, threads)
    from packer.crops import RandomResizedCrop, ResizeCenterCrop

    chosen = RandomResizedCrop(OUTPUT, flip=0.5) if crop == "train" else ResizeCenterCrop(OUTPUT, RESIZE)
    dataset = open_dataset(pack, crop=chosen, scaled_decode=options.get("scaled", False))
    if by == "crop":
        return _Epochs(data_loader(dataset, crop, threads), dataset)
    from packer._loading.loader import Loader

    processes = threads if options.get("processes") else 0
    return Loader(dataset, BATCH, shuffle=crop == "train", threads=threads, processes=processes)


class _Epochs:
    """Tells the dataset which epoch it is, as a training loop does."""

    def __init__(self, loader: Any, dataset: Any) -> None:
        self.loader = loader
        self.set_epoch = dataset.set_epoch

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)
