"""The ways in which training code reads a pack or a tree: what `packer bench` measures, in processes of their own."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Subset

from packer._loading.dataset import open_dataset
from packer._loading.imagedataset import ImageDataset
from packer._loading.loader import Loader
from packer._measuring.limit import Limit
from packer._measuring.recipe import Recipe, read_recipe
from packer._table import Ints
from packer.crops import RandomResizedCrop
from packer.errors import OptionError, SourceError

__all__ = [
    "OUTPUT",
    "PROCESSES",
    "WAYS_OF_PACKS",
    "WAYS_OF_TREES",
    "Reading",
    "Shuffled",
    "endless",
    "read_for",
    "spread",
    "torchvision",
]

OUTPUT = 224
PROCESSES = "Loader, processes"
WAYS_OF_PACKS = ("DataLoader", "Loader", PROCESSES, "limit")
WAYS_OF_TREES = ("ImageFolder, DataLoader", "Loader, in place")

_AT_ONCE = 256  # samples
_LEAST = 3  # batches that a measurement has


class Reading:
    """One way of reading some samples of one pack or tree, again and again in an order that is shuffled.

    Parameters
    ----------
    way : str
        One of the ways above, or "recipe".
    path : str
    batch : int
        Samples of a batch.
    images : int
        How many samples at most; they are spread over all.
    recipe : str, optional
        The path of a recipe.
    """

    def __init__(self, way: str, path: str, batch: int, images: int, recipe: str | None) -> None:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")  # what is said of seeds and epochs is beside the point
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # what a recipe prints, each time
            self._recipe = read_recipe(recipe)
        self._way, self._path, self._batch = way, path, batch
        self._held: tuple[int, Loader] | None = None  # a Loader with processes, which take long to start
        self._limit: Limit | None = None
        self._dataset = None if way == "recipe" else _dataset(way, path, self._recipe)
        if self._dataset is not None:
            self._indices = spread(len(self._dataset), images)

    def describe(self) -> tuple[int, int]:
        """Read the bytes of all samples once, so that they lie in memory; return how many, and how many bytes."""
        if self._dataset is None:
            return 0, 0
        if isinstance(self._dataset, ImageDataset):
            reader = self._dataset.reader
            parts = np.array_split(self._indices, -(-len(self._indices) // _AT_ONCE))  # each in few requests at a URL
            return len(self._indices), sum(len(data) for part in parts for data in reader.read_many(part.tolist()))
        paths = [self._dataset.samples[index][0] for index in self._indices.tolist()]
        total = 0
        for path in paths:
            with open(path, "rb") as file:
                total += len(file.read())
        return len(paths), total

    def read(self, threads: int, seconds: float) -> tuple[int, float]:
        """Read for about so long with so many threads or workers; return how many samples, and how long it took."""
        if self._way == "limit":
            if self._limit is None:
                assert isinstance(self._dataset, ImageDataset)
                self._limit = Limit(self._dataset, self._indices)
            return self._limit.read(threads, seconds)
        loader, settle = self._loader(threads)
        return read_for(loader, settle, seconds)

    def _loader(self, threads: int) -> tuple[Iterable[Any], int]:
        """Return a loader, and how many batches it takes until it runs evenly."""
        if self._way == "recipe":
            assert self._recipe.loader is not None
            return endless(self._recipe.loader(self._path, threads)), threads + 1
        dataset, order = Subset(self._dataset, self._indices.tolist()), Shuffled(len(self._indices))  # type: ignore[arg-type]
        if "DataLoader" in self._way:
            return DataLoader(dataset, self._batch, sampler=order, num_workers=threads), threads + 1
        if self._way != PROCESSES:
            loader = Loader(dataset, self._batch, sampler=order, threads=threads)
        elif self._held is not None and self._held[0] == threads:
            loader = self._held[1]
        else:
            if self._held is not None:
                self._held[1].close()
            loader = Loader(dataset, self._batch, sampler=order, threads=threads, processes=threads)
            self._held = threads, loader
        return loader, loader.prefetch + 1


class Shuffled:
    """An order without an end: one permutation after the other."""

    def __init__(self, count: int) -> None:
        self._count, self._random = count, np.random.default_rng(0)

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from self._random.permutation(self._count).tolist()


def endless(loader: Any) -> Iterable[Any]:
    """Yield the batches of a loader, epoch after epoch."""
    for epoch in itertools.count():
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(epoch)
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise ValueError("the loader gives no batches")


def read_for(batches: Iterable[Any], settle: int, seconds: float) -> tuple[int, float]:
    """Read for so long, after the first batches; return how many samples were read, and how long that took."""
    iterator = iter(batches)
    for _ in range(settle):
        next(iterator)
    count, samples, begin = 0, 0, time.perf_counter()
    while count < _LEAST or time.perf_counter() - begin < seconds:
        samples += _length(next(iterator))
        count += 1
    elapsed = time.perf_counter() - begin
    if hasattr(iterator, "close"):
        iterator.close()
    return samples, elapsed  # workers of a DataLoader end with its iterator


def _length(batch: Any) -> int:
    """Return how many samples a batch has."""
    return len(next(iter(batch.values())) if isinstance(batch, dict) else batch[-1])


def spread(length: int, count: int) -> Ints:
    """Return `count` numbers below `length`, as many as there are, with equal gaps."""
    return np.unique(np.linspace(0, length - 1, min(length, count)).astype(np.int64))


def _dataset(way: str, path: str, recipe: Recipe) -> Any:
    if way == "ImageFolder, DataLoader":
        return _folder(path, recipe)
    crop = recipe.crop if recipe.crop is not None else RandomResizedCrop(OUTPUT, flip=0.5)
    if recipe.transform is None or (way == "limit" and recipe.crop is not None):
        dataset = open_dataset(path, crop=crop)
    elif way == "limit":
        raise OptionError("the limit is that of a crop, which the recipe does not define")
    else:
        dataset = open_dataset(path, recipe.transform, fuse=way != "DataLoader")
    if not len(dataset):
        raise SourceError("there are no samples in it")
    return dataset


def _folder(path: str, recipe: Recipe) -> Any:
    datasets, steps = torchvision().datasets, torchvision().transforms
    if recipe.transform is not None:
        return datasets.ImageFolder(path, recipe.transform)
    usual = [steps.RandomResizedCrop(OUTPUT), steps.RandomHorizontalFlip(), steps.PILToTensor()]
    return datasets.ImageFolder(path, steps.Compose(usual))


def torchvision() -> Any:
    """Import torchvision; ImportError where it is not there, or does not go with this torch."""
    try:
        import torchvision as found
        import torchvision.transforms.v2
    except RuntimeError as error:
        raise ImportError(f"torchvision does not go with this torch: {error}") from error
    return found
