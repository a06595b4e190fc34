"""What a Loader asks of a dataset: crops, pixels, labels and items of a batch.

The methods are those of `packer._loading.readable.Readable`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from packer._images.geometry import Crops
from packer._loading.drawing import seeder
from packer._loading.fields import Values
from packer._loading.items import item_maker
from packer._loading.memory import IMAGES
from packer._loading.pool import Pool
from packer._loading.preparation import Preparation, Transform
from packer._loading.prepared import Prepared
from packer._table import Ints, Labels
from packer.crops import Compose

__all__ = ["Batched"]


class Batched(Prepared):
    """Samples of a pack, many at a time."""

    threads: int
    _pool: Pool

    def _made(  # noqa: PLR0917
        self,
        rows: Ints,
        keys: Ints,
        labels: Labels,
        epoch: int,
        seed: int | None,
        preparation: Preparation,
        before: Callable[[int], None] | None = None,
    ) -> list[Any]:
        """Return items of places in the pack. With a seed, seed, epoch and `keys` decide on the crops."""
        crop, seeded = preparation.crop or Compose([]), seed is not None

        def choose(places: Sequence[int]) -> Crops:
            return self._decoder.choose_crops(crop, rows[places], epoch, seed, keys[places])

        make = item_maker(
            self._decoder, rows, labels.tolist(), preparation, choose, self._fields, seeded=seeded, before=before
        )
        return self._pool.items(self.threads, make, range(len(rows)))

    def _items(
        self, indices: Sequence[int] | Ints, epoch: int, seed: int, transform: Transform = None, seeding: bool = False
    ) -> list[Any]:
        """Return items, with the crops of `epoch` and `seed`; `transform` replaces the dataset's.

        With `seeding` what the transforms draw is a function of `epoch`, `seed` and the sample as well.
        """
        rows, keys = self._rows_and_keys(indices)
        labels = self._labels_of(np.asarray(indices) % len(self))
        before = seeder(seed, epoch, keys) if seeding else None
        return self._made(rows, keys, labels, epoch, seed, self._prepared_with(transform), before)

    def _transforms_items(self, transform: Transform) -> bool:
        """Tell whether something of other people's is applied to what packer made."""
        made = self._prepared_with(transform)
        return any(step is not None for step in (made.transform, made.target_transform, made.transforms))

    def _choose_crops(self, indices: Sequence[int] | Ints, epoch: int, seed: int) -> Crops:
        """Choose the crops of a batch, (N,) of CROP; as `BatchDecoder.choose_crops`, of the dataset's crop."""
        rows, keys = self._rows_and_keys(indices)
        return self._decoder.choose_crops(self._preparation.crop or Compose([]), rows, epoch, seed, keys)

    def _decode_into(
        self, indices: Ints, crops: Crops, memory: Mapping[str, torch.Tensor | list[torch.Tensor]]
    ) -> list[Values]:
        """Decode a batch into its place; as `BatchDecoder.decode_into`. Return what else belongs to dicts."""
        rows = self._rows_of(indices % len(self))
        if IMAGES in memory:
            self._decoder.decode_into(rows, crops, memory[IMAGES])
        if self._fields is None:
            return []
        named = self._parts is not None and "label" in self._parts.names
        targets = self._targets_of(indices) if named else [None] * len(rows)
        labels = targets.tolist() if isinstance(targets, np.ndarray) else targets
        return self._fields.samples(rows, labels, crops, memory)

    def _targets_of(self, indices: Ints) -> Labels | list[Any]:
        """Return the labels of a batch, after `target_transform`, which may make anything of them."""
        labels = self._labels_of(indices % len(self))
        return labels if self.target_transform is None else [self.target_transform(label) for label in labels.tolist()]
