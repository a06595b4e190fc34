"""What a Loader can read: a dataset, and what torch makes of datasets by taking parts and by joining."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset

from packer._images.geometry import CROP, Crops
from packer._loading.imagedataset import ImageDataset
from packer._loading.preparation import Transform
from packer._loading.selection import earlier, places_in
from packer._table import Ints, Labels

__all__ = ["Joined", "Readable", "readable"]


_FAR_APART = 0x9E3779B97F4A7C15
"""What lies between the seeds of datasets that are joined, so that no two of those that people give coincide."""


class Joined:
    """Samples of several datasets in one row, as torch's ConcatDataset shows them.

    Parameters
    ----------
    datasets : sequence of ImageDataset
    number : (N,) integer array, optional
        The number of each sample's dataset; by default all samples of one dataset after the other.
    place : (N,) integer array, optional
        Each sample's index in its dataset.

    Attributes
    ----------
    seed : None
        The datasets may have seeds of their own.

    Raises
    ------
    ValueError
        If the labels of the datasets are of different types, such as classes and numbers.
    """

    seed: None = None

    def __init__(self, datasets: Sequence[ImageDataset], number: Ints | None = None, place: Ints | None = None) -> None:
        self.datasets = list(datasets)
        types = sorted({dataset.reader.manifest.label_type for dataset in self.datasets})
        if len(types) > 1:
            raise ValueError(f"datasets that are read together have labels of one type, not {' and '.join(types)}")
        if number is None or place is None:
            number = np.repeat(np.arange(len(self.datasets)), [len(dataset) for dataset in self.datasets])
            place = np.concatenate([np.arange(len(dataset)) for dataset in self.datasets] or [np.empty(0, np.int64)])
        elif len(number):  # a sample that comes again gets other crops, as by `in_turns`
            lengths = np.array([len(dataset) for dataset in self.datasets])
            own = place % lengths[number]
            place = own + earlier(own * len(lengths) + number) * lengths[number]
        self._number, self._place = number, place

    def __len__(self) -> int:
        return len(self._place)

    def select(self, indices: Sequence[int] | Ints) -> Joined:
        """Return some of the samples, in the order of `indices`."""
        places = places_in(indices, len(self))
        return Joined(self.datasets, self._number[places], self._place[places])

    @property
    def randoms(self) -> int:
        return max((dataset.randoms for dataset in self.datasets), default=0)

    def _in_place(self, transform: Transform) -> tuple[int, int] | None:
        sizes = {dataset._in_place(transform) for dataset in self.datasets}
        return sizes.pop() if len(sizes) == 1 else None

    def _transforms_items(self, transform: Transform) -> bool:
        return any(dataset._transforms_items(transform) for dataset in self.datasets)

    def _identity(self) -> str:
        parts = [(dataset._identity(), dataset.seed) for dataset in self.datasets]
        digest = hashlib.sha256(repr(parts).encode())
        digest.update(self._number.tobytes() + self._place.tobytes())
        return digest.hexdigest()[:16]

    def _choose_crops(self, indices: Sequence[int] | Ints, epoch: int, seed: int) -> Crops:
        crops = np.zeros(len(indices), CROP)
        for number, here, places in self._shares(indices):
            crops[here] = self.datasets[number]._choose_crops(places, epoch, self._seed_of(number, seed))
        return crops

    def _targets_of(self, indices: Ints) -> Labels | list[Any]:
        shares = self._shares(indices)
        parts = [self.datasets[number]._targets_of(places) for number, _, places in shares]
        order = np.argsort(np.concatenate([here for _, here, _ in shares]))
        if all(isinstance(part, np.ndarray) for part in parts):
            joined: Labels = np.concatenate(parts)[order]
            return joined
        targets = [target for part in parts for target in (part.tolist() if isinstance(part, np.ndarray) else part)]
        return [targets[place] for place in order.tolist()]

    def _decode_into(self, indices: Ints, crops: Crops, images: torch.Tensor) -> None:
        for number, here, places in self._shares(indices):
            self.datasets[number]._decode_into(places, crops[here], [images[place] for place in here.tolist()])

    def _items(
        self, indices: Sequence[int] | Ints, epoch: int, seed: int, transform: Transform = None, seeding: bool = False
    ) -> list[tuple[Any, Any]]:
        items: dict[int, tuple[Any, Any]] = {}
        for number, here, places in self._shares(indices):
            made = self.datasets[number]._items(places, epoch, self._seed_of(number, seed), transform, seeding)
            items.update(zip(here.tolist(), made, strict=True))
        return [items[place] for place in range(len(items))]

    def _seed_of(self, number: int, seed: int) -> int:
        """Return the seed of a dataset's crops: of its own seed or `seed`, and another one than its neighbours'."""
        own = self.datasets[number].seed
        return (seed if own is None else own) + number * _FAR_APART

    def _shares(self, indices: Sequence[int] | Ints) -> list[tuple[int, Ints, Ints]]:
        """Return for each dataset that has some of the samples: its number, which they are, and their indices there."""
        turns, wanted = np.divmod(np.asarray(indices), max(len(self), 1))  # see `in_turns`
        numbers, places = self._number[wanted], self._place[wanted]
        found = [(number, np.flatnonzero(numbers == number)) for number in np.unique(numbers).tolist()]
        return [(number, here, places[here] + turns[here] * len(self.datasets[number])) for number, here in found]

    def __repr__(self) -> str:
        return f"{len(self)} samples of {self.datasets!r}"


Readable = ImageDataset | Joined


def readable(dataset: Any) -> Readable:
    """Return what a Loader reads of a dataset, of a torch Subset or ConcatDataset of such, or of these in each other.

    Raises
    ------
    TypeError
        If it is something else, or of a class with a ``__getitem__`` of its own, which a Loader would pass over.
    """
    for kind in (ImageDataset, Subset, ConcatDataset):
        own = [name for name in ("__getitem__", "__getitems__") if _differs(dataset, kind, name)]
        if own:
            raise TypeError(
                f"{type(dataset).__name__} has a {own[0]} of its own, which a Loader would not call: give it to "
                "torch's DataLoader, or what it does to the dataset as transform="
            )
    if isinstance(dataset, ImageDataset):
        return dataset
    if isinstance(dataset, Subset):
        whole = readable(dataset.dataset)
        return (whole if isinstance(whole, Joined) else Joined([whole])).select(dataset.indices)
    if isinstance(dataset, ConcatDataset):
        return _joined([readable(part) for part in dataset.datasets])
    raise TypeError(
        f"a Loader reads a dataset such as packer.open_dataset gives, or a Subset or ConcatDataset of such, not "
        f"{dataset!r}; torch's DataLoader reads any"
    )


def _differs(dataset: object, kind: type, name: str) -> bool:
    """Tell whether a dataset of a kind has another method of that name."""
    return isinstance(dataset, kind) and getattr(type(dataset), name, None) is not getattr(kind, name, None)


def _joined(parts: Sequence[Readable]) -> Joined:
    """Return several as one, where each may be of several datasets itself."""
    datasets: list[ImageDataset] = []
    numbers, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for part in parts:
        whole = part if isinstance(part, Joined) else Joined([part])
        numbers.append(whole._number + len(datasets))
        places.append(whole._place)
        datasets += whole.datasets
    return Joined(datasets, np.concatenate(numbers), np.concatenate(places))
