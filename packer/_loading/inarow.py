"""What a Loader asks of several datasets in a row: crops, pixels, labels and items of a batch.

The methods are those of `packer._loading.readable.Readable`.
"""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from packer._images.geometry import Crops
from packer._images.numbers import Numbers
from packer._images.operations import gathered
from packer._loading.decoding import Begun
from packer._loading.fields import Values
from packer._loading.imagedataset import ImageDataset
from packer._loading.lookup import Lookup
from packer._loading.memory import Layout
from packer._loading.parts import Parts
from packer._loading.preparation import Transform
from packer._loading.readable import ItemsError
from packer._loading.replacing import Replaced
from packer._table import Ints, Labels

__all__ = ["InARow"]


_FAR_APART = 0x9E3779B97F4A7C15
"""What lies between the seeds of datasets in a row, so that no two of those that people give coincide."""


class InARow(abc.ABC):
    """Samples of several datasets, many at a time."""

    datasets: list[ImageDataset]
    _chosen: Ints | None
    _earlier: Ints | None
    _ends: Ints

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @property
    @abc.abstractmethod
    def seed(self) -> int | None:
        """The seed of the crops of all datasets; None where they have seeds of their own, or none."""

    @property
    def _parts(self) -> Parts | None:
        return self.datasets[0]._parts

    def _called(self, index: int) -> str:
        ((number, _, places),) = self._shares([index])
        return self.datasets[number]._called(int(places[0]))

    def _in_place(self, transform: Transform) -> Layout | None:
        layouts = {dataset._in_place(transform) for dataset in self.datasets}
        return layouts.pop() if len(layouts) == 1 else None

    def _in_batches(self) -> Layout:
        layouts = {dataset._in_batches() for dataset in self.datasets}
        if len(layouts) > 1:
            raise ItemsError("the datasets that are read in a row make images of different kinds")
        return layouts.pop()

    @property
    def _threads(self) -> int:
        return max(dataset._threads for dataset in self.datasets)

    @property
    def _seeded(self) -> bool:
        return any(dataset._seeded for dataset in self.datasets)

    @property
    def _crop_epoch(self) -> tuple[int, int]:
        return max(dataset._crop_epoch for dataset in self.datasets)

    @property
    def _replaced(self) -> Replaced | None:
        return self.datasets[0]._replaced if all(dataset._replaced for dataset in self.datasets) else None

    def _require_good(self, index: int, epoch: int, seed: int) -> None:
        for number, _, places in self._shares([index]):
            self.datasets[number]._require_good(int(places[0]), epoch, self._seed_of(number, seed))

    def _transforms_items(self, transform: Transform) -> bool:
        return any(dataset._transforms_items(transform) for dataset in self.datasets)

    def _identity(self) -> str:
        seeds = None if self.seed is not None else [dataset.seed for dataset in self.datasets]
        digest = hashlib.sha256(repr(([dataset._identity() for dataset in self.datasets], seeds)).encode())
        digest.update(b"all" if self._chosen is None else self._chosen.tobytes())
        return digest.hexdigest()[:16]

    @property
    def _remote(self) -> bool:
        return any(dataset._remote for dataset in self.datasets)

    def _together(self, block: int) -> tuple[int, int]:
        together, most = zip(*(dataset._together(block) for dataset in self.datasets), strict=True)
        return min(together), min(most)

    def _ahead(self, indices: Ints) -> None:
        for number, _, places in self._shares(indices):
            self.datasets[number]._ahead(places)

    def _choose_crops(self, indices: Sequence[int] | Ints, epoch: int, seed: int) -> Crops:
        parts = [
            (here, self.datasets[number]._choose_crops(places, epoch, self._seed_of(number, seed)))
            for number, here, places in self._shares(indices)
        ]
        return gathered(len(indices), parts)

    def _targets_of(self, indices: Ints) -> Labels | list[Any]:
        shares = self._shares(indices)
        parts = [self.datasets[number]._targets_of(places) for number, _, places in shares]
        order = np.argsort(np.concatenate([here for _, here, _ in shares]))
        if all(isinstance(part, np.ndarray) for part in parts):
            joined: Labels = np.concatenate(parts)[order]
            return joined
        targets = [target for part in parts for target in (part.tolist() if isinstance(part, np.ndarray) else part)]
        return [targets[place] for place in order.tolist()]

    def _begun(
        self,
        indices: Ints,
        crops: Crops,
        memory: Mapping[str, torch.Tensor],
        step: int,
        numbers: Numbers | Lookup | None = None,
    ) -> Callable[[slice], list[Values]]:
        def make(some: slice) -> list[Values]:
            found: dict[int, Values] = {}
            for number, here, places in self._shares(indices[some]):
                shares = {name: [tensor[some][place] for place in here.tolist()] for name, tensor in memory.items()}
                decode = self.datasets[number]._begun(places, crops[some][here], shares, len(here), numbers)
                own = decode(slice(len(here)))
                found.update(zip(here.tolist(), own, strict=self._parts is not None))
            return [found[place] for place in range(len(found))]

        return make

    def _begun_ahead(
        self, indices: Ints, crops: Crops, batch: int, step: int, numbers: Numbers | Lookup | None = None
    ) -> Begun | None:
        """Return what does so where there is one dataset; samples of several are left to `_begun`, batch by batch."""
        if len(self.datasets) > 1 or not len(indices):
            return None
        ((number, _, places),) = self._shares(indices)
        return self.datasets[number]._begun_ahead(places, crops, batch, step, numbers)

    def _items(
        self, indices: Sequence[int] | Ints, epoch: int, seed: int, transform: Transform = None, seeding: bool = False
    ) -> list[tuple[Any, Any]]:
        def items(number: int, places: Ints) -> list[tuple[Any, Any]]:
            return self.datasets[number]._items(places, epoch, self._seed_of(number, seed), transform, seeding)

        return self._in_order(indices, items)

    def _in_order(
        self, indices: Sequence[int] | Ints, make: Callable[[int, Ints], list[tuple[Any, Any]]]
    ) -> list[tuple[Any, Any]]:
        """Return the items that `make` makes of places in the dataset of a number, in the order of `indices`."""
        items: dict[int, tuple[Any, Any]] = {}
        for number, here, places in self._shares(indices):
            items.update(zip(here.tolist(), make(number, places), strict=True))
        return [items[place] for place in range(len(items))]

    def _seed_of(self, number: int, seed: int) -> int:
        """Return the seed of a dataset's crops: of `seed` or a seed of its own, and not that of its neighbours."""
        own = self.datasets[number].seed if self.seed is None else None
        return (seed if own is None else own) + number * _FAR_APART

    def _shares(self, indices: Sequence[int] | Ints) -> list[tuple[int, Ints, Ints]]:
        """Return for each dataset that has some of the samples: its number, which they are, and their indices there."""
        turns, wanted = np.divmod(np.asarray(indices), max(len(self), 1))
        if self._earlier is not None:
            turns = turns * len(self) + self._earlier[wanted]
        row = self._in_row(wanted)
        numbers = np.searchsorted(self._ends, row, side="right")
        shares = []
        for number in np.unique(numbers).tolist():
            here, length = np.flatnonzero(numbers == number), len(self.datasets[number])
            shares.append((number, here, row[here] - (self._ends[number] - length) + turns[here] * length))
        return shares

    def _in_row(self, places: Ints) -> Ints:
        return places if self._chosen is None else self._chosen[places]
