"""Samplers and loaders of one pack, stopped in the middle of an epoch, and the samples that follow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

import packer
from packer import samplers

BATCH, BATCHES = 2, 2  # images of a batch, and batches before the state

SAMPLERS: dict[str, Callable[[Any], Any]] = {
    "SequentialSampler": lambda dataset: samplers.SequentialSampler(len(dataset)),
    "ShuffleSampler": lambda dataset: samplers.ShuffleSampler(len(dataset), seed=3),
    "BlockShuffleSampler": lambda dataset: samplers.BlockShuffleSampler(len(dataset), 3, 2, seed=3),
    "SubsetSampler": lambda dataset: samplers.SubsetSampler([1, 4, 5, 8, 9, 10, 11], seed=3),
    "WeightedSampler": lambda dataset: samplers.WeightedSampler([*range(1, len(dataset) + 1)], seed=3),
    "WeightedSampler, each once": lambda dataset: samplers.WeightedSampler(
        [*range(1, len(dataset) + 1)], replacement=False, seed=3
    ),
    "MixSampler": lambda dataset: samplers.MixSampler({dataset: 2, packer.open_dataset(dataset.root): 1}, 12, seed=3),
    "BalancedSampler": lambda dataset: samplers.BalancedSampler(dataset.targets, seed=3),
}


def _loader(dataset: Any) -> packer.Loader:
    return packer.Loader(dataset, BATCH, sampler=samplers.ShuffleSampler(len(dataset), seed=3), threads=1)


def _data_loader(dataset: Any) -> packer.DataLoader[Any]:
    return packer.DataLoader(dataset, BATCH, sampler=samplers.ShuffleSampler(len(dataset), seed=3))


def _of_torch(dataset: Any) -> packer.DataLoader[Any]:
    return packer.DataLoader(dataset, BATCH, shuffle=True, generator=torch.Generator().manual_seed(3))


LOADERS: dict[str, Callable[[Any], Any]] = {
    "Loader": _loader,
    "DataLoader": _data_loader,
    "DataLoader, torch's order": _of_torch,
}


def dataset_at(path: Path) -> packer.ImageDataset:
    """Open the pack with a random crop that resizes nothing."""
    return packer.open_dataset(path / "pack.lmdb", crop=packer.RandomCrop(8), seed=5)


def followed(batches: Iterable[Any]) -> list[Any]:
    """Return the labels of each batch, and a digest of its pixels."""
    return [[labels.tolist(), hashlib.sha256(images.numpy().tobytes()).hexdigest()] for images, labels in batches]


def write_states(path: Path) -> None:
    """Write the states of samplers as JSON and those of loaders with torch, and the samples that follow each."""
    dataset, said = dataset_at(path), {}
    for name, make in SAMPLERS.items():
        sampler = make(dataset)
        sampler.set_epoch(1)
        said[name] = [sampler.state_dict(BATCH * BATCHES), [*map(int, sampler)][BATCH * BATCHES :]]
    for name, make in LOADERS.items():
        loader = make(dataset)
        loader.set_epoch(1) if hasattr(loader, "set_epoch") else dataset.set_epoch(1)
        batches = iter(loader)
        for _ in range(BATCHES):
            next(batches)
        state = loader.state_dict()
        torch.save(state, path / f"{name}.pt")
        said[name] = [None, followed(batches)]
    (path / "states.json").write_text(json.dumps(said, indent=1), "utf-8")
