"""Recipes of training that have a name, step by step, by packer and by torchvision."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Subset, default_collate

from packer import augment
from packer._loading.dataset import open_dataset
from packer._loading.loader import Loader
from packer._measuring.loaders import OUTPUT, Shuffled, read_for, spread, torchvision
from packer.crops import RandomResizedCrop

__all__ = ["SIDES", "Steps", "steps_of"]

SIDES = ("packer", "torchvision")

_NORMALIZE = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CLASSES = 1000


class _Step(NamedTuple):
    """A step of a recipe, after those before it.

    Attributes
    ----------
    name : str
    make : callable, optional
        Makes what is done to an image, of `packer.augment` or of torchvision's ``transforms.v2``, which it is given.
    """

    name: str
    make: Callable[[Any], Any] | None = None


_CROP, _NORMALISE, _MIX = _Step("crop and flip"), _Step("normalise"), _Step("MixUp or CutMix")
_RECIPES = {
    "trivial": (
        _CROP,
        _Step("TrivialAugmentWide", lambda of: of.TrivialAugmentWide()),
        _Step("RandomErasing", lambda of: of.RandomErasing(0.1)),
        _NORMALISE,
        _MIX,
    ),
    "rand": (_CROP, _Step("RandAugment", lambda of: of.RandAugment(2, 9)), _NORMALISE, _MIX),
    "three": (
        _CROP,
        _Step(
            "three-augment",
            lambda of: of.RandomChoice([of.Grayscale(3), of.RandomSolarize(128, 1), of.GaussianBlur(9)]),
        ),
        _Step("ColorJitter", lambda of: of.ColorJitter(0.3, 0.3, 0.3)),
        _NORMALISE,
        _MIX,
    ),
    "dino": (
        _CROP,
        _Step("ColorJitter", lambda of: of.RandomApply([of.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8)),
        _Step("grayscale", lambda of: of.RandomGrayscale(0.2)),
        _Step("blur", lambda of: of.RandomApply([of.GaussianBlur(23)], 0.5)),
        _Step("solarize", lambda of: of.RandomSolarize(128, 0.2)),
        _NORMALISE,
    ),
}


def steps_of(recipe: str) -> list[str]:
    """Return the names of a recipe's steps."""
    return [step.name for step in _RECIPES[recipe]]


class Steps:
    """A recipe's steps by one side, each with those before it, over some samples of one pack or tree.

    Parameters
    ----------
    side : str
        One of `SIDES`: a `Loader` with packer's augmentations, or torchvision's v2 transforms in a DataLoader over the
        same samples, of PIL images up to the crop, and of tensors after it.
    path : str
    batch : int
        Samples of a batch.
    images : int
        How many samples at most; they are spread over all.
    recipe : str
    """

    def __init__(self, side: str, path: str, batch: int, images: int, recipe: str) -> None:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")  # what is said of seeds and epochs is beside the point
        self._side, self._path, self._batch = side, path, batch
        self._steps = _RECIPES[recipe]
        self._indices = spread(len(self._dataset(0)), images)

    def describe(self) -> tuple[int, int]:
        """Read the bytes of all samples once, so that they lie in memory; return how many, and how many bytes."""
        with open_dataset(self._path) as dataset:
            return len(self._indices), sum(len(dataset.reader.read(index)) for index in self._indices.tolist())

    def read(self, threads: int, seconds: float, step: int) -> tuple[int, float]:
        """Read for about so long with so many threads or workers, down to a step; return how many, and how long."""
        dataset: Any = Subset(self._dataset(step), self._indices.tolist())
        order = Shuffled(len(self._indices))
        done = self._steps[: step + 1]
        if self._side == SIDES[0]:
            normalize = _NORMALIZE if _NORMALISE in done else None
            mix = _either(augment) if _MIX in done else None
            loader = Loader(dataset, self._batch, sampler=order, threads=threads, mix=mix, normalize=normalize)
            return read_for(loader, loader.prefetch + 1, seconds)
        collate = _Mixed() if _MIX in done else default_collate
        batches: Any = DataLoader(dataset, self._batch, sampler=order, num_workers=threads, collate_fn=collate)
        return read_for(batches, threads + 1, seconds)

    def _dataset(self, step: int) -> Any:
        done = self._steps[: step + 1]
        if self._side == SIDES[0]:
            chain = [one.make(augment) for one in done if one.make is not None]
            return open_dataset(self._path, crop=RandomResizedCrop(OUTPUT, flip=0.5), augment=chain or None)
        v2 = torchvision().transforms.v2
        chain = [v2.RandomResizedCrop(OUTPUT), v2.RandomHorizontalFlip(), v2.PILToTensor()]
        chain += [one.make(v2) for one in done if one.make is not None]
        if _NORMALISE in done:
            chain += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(*_NORMALIZE)]
        return open_dataset(self._path, v2.Compose(chain))


def _either(of: Any) -> Any:
    return of.RandomChoice([of.MixUp(num_classes=_CLASSES), of.CutMix(num_classes=_CLASSES)])


class _Mixed:
    """Collates, and mixes as torchvision's references do."""

    def __init__(self) -> None:
        self._mix = _either(torchvision().transforms.v2)

    def __call__(self, items: list[Any]) -> Any:
        return self._mix(*default_collate(items))
