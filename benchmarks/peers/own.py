"""packer: through DataLoader with torchvision's transforms or with `crop=`, and through its own Loader."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers import BATCH, OUTPUT, RESIZE, data_loader, recipes, transform

REQUIRES = ("torch",)
NOTE = "LMDB pack, checksums verified unless the side says otherwise"


def prepare(tree: Path, directory: Path, options: tuple[str, ...] = ()) -> Path:
    pack = directory / "pack.lmdb"
    command = [sys.executable, "-m", "packer", "convert", *options, tree, pack]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return pack


def open_loader(pack: Path, crop: str, threads: int, by: str = "Loader", **options: Any) -> Any:
    """Return a loader; for "Loader", "recipe" and "prefetcher", `settings` has the arguments for a device."""
    from packer import open_dataset

    if by == "recipe":
        return _open_recipe(pack, threads, **options)
    if by == "pil":
        return data_loader(open_dataset(pack, transform(crop), output="pil"), crop, threads)
    from packer.crops import RandomResizedCrop, ResizeCenterCrop

    chosen = RandomResizedCrop(OUTPUT, flip=0.5) if crop == "train" else ResizeCenterCrop(OUTPUT, RESIZE)
    check = options.get("check", "always")
    dataset = open_dataset(pack, crop=chosen, check=check)
    if by == "crop":
        return _Epochs(data_loader(dataset, crop, threads), dataset)
    from packer import CUDAPrefetcher
    from packer._loader.loader import Loader

    settings = options.get("settings", {})
    of_loader = {
        "shuffle": crop == "train",
        "threads": threads,
        "processes": threads if options.get("processes") else 0,
    }
    dataset, batch = _repeated(dataset, options.get("times", 1)), options.get("batch", BATCH)
    if by == "prefetcher":
        return CUDAPrefetcher(Loader(dataset, batch, pin_memory=options.get("locked", False), **of_loader), **settings)
    return Loader(dataset, batch, **of_loader, **settings)


def _repeated(dataset: Any, times: int) -> Any:
    """Return a dataset that has each sample `times` times."""
    return dataset if times == 1 else dataset.select([*range(len(dataset))] * times)


def _open_recipe(
    pack: Path,
    threads: int,
    recipe: str,
    *,
    batch: int = BATCH,
    times: int = 1,
    settings: dict[str, Any] | None = None,
) -> Any:
    from packer import Loader, augment, open_dataset
    from packer.crops import RandomResizedCrop

    settings = {"shuffle": True, "threads": threads, "normalize": (recipes.MEAN, recipes.STD), **(settings or {})}
    if recipe == "views":
        dataset = open_dataset(pack, views=[_view(number) for number in range(2)])
    else:
        steps = [augment.TrivialAugmentWide(), augment.RandomErasing(recipes.ERASING, value=recipes.ERASED)]
        if recipe == "rand":
            steps = [augment.RandAugment(2, 9)]
            kinds = (augment.MixUp, recipes.MIXUP), (augment.CutMix, recipes.CUTMIX)
            mixings = [kind(alpha=alpha, num_classes=recipes.CLASSES) for kind, alpha in kinds]
            settings["mix"] = augment.RandomChoice(mixings)
        dataset = open_dataset(pack, crop=RandomResizedCrop(OUTPUT, flip=0.5), augment=steps)
    return Loader(_repeated(dataset, times), batch, **settings)


def _view(number: int) -> Any:
    from packer import augment
    from packer.crops import RandomResizedCrop

    blur = augment.GaussianBlur(recipes.BLUR, (0.1, 2.0))
    steps = [augment.RandomApply([augment.ColorJitter(*recipes.JITTER)], 0.8), augment.RandomGrayscale(0.2)]
    last = [blur] if number == 0 else [augment.RandomApply([blur], 0.1), augment.RandomSolarize(128, 0.2)]
    return augment.View(RandomResizedCrop(OUTPUT, recipes.SCALE, flip=0.5), [*steps, *last])


class _Epochs:
    """Tells the dataset which epoch it is, as a training loop does."""

    def __init__(self, loader: Any, dataset: Any) -> None:
        self.loader = loader
        self.set_epoch = dataset.set_epoch

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)
