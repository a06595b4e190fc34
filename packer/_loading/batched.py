"""What a Loader asks of a dataset: crops, pixels, labels and items of a batch.

The methods are those of `packer._loading.readable.Readable`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from packer._images.geometry import Crops
from packer._images.numbers import Numbers
from packer._loading.decoding import Begun
from packer._loading.drawing import seeder
from packer._loading.epochs import Epochs
from packer._loading.fields import Values
from packer._loading.items import item_maker, slice_of
from packer._loading.lookup import Lookup
from packer._loading.memory import images_in
from packer._loading.pool import Pool
from packer._loading.preparation import Preparation, Transform, followed
from packer._loading.prepared import Prepared
from packer._loading.replacing import BAD, Replaced, good
from packer._loading.selection import places_in
from packer._table import Ints, Labels
from packer.crops import Compose

__all__ = ["Batched"]


_REQUEST = 3 << 17  # bytes that are fetched together, where neighbours are wanted soon
_AHEAD, _AHEAD_IN_MEMORY = 1 << 29, 1 << 27  # bytes that are asked for ahead: on the disk of a cache, or in memory
_LOOKED_AT = 1000  # samples whose sizes stand for all


class Batched(Prepared):
    """Samples of a pack, many at a time."""

    threads: int
    seed: int | None
    _epochs: Epochs
    _pool: Pool
    _replaced: Replaced | None

    @property
    def replaced(self) -> list[str]:
        """What is wrong with the samples that were replaced in this process, as ``on_error="replace"`` asks."""
        return [] if self._replaced is None else self._replaced.reasons

    def _own_items(self, indices: Sequence[int] | Ints, seed: int | None) -> list[Any]:
        """Return items with the crops that a seed and the dataset's epoch say, or drawn from torch's generator."""
        preparation, wanted = self._preparation, places_in(indices, len(self))
        rows = self._rows_in_turns(wanted)
        if seed is not None and preparation.randoms:
            self._epochs.read(rows)
        epoch = self._epochs.epoch
        try:
            return self._made(rows, rows, self._labels_of(wanted), epoch, seed, preparation)
        except BAD:
            if self._replaced is None:
                raise
        chosen = good(wanted, len(self), lambda index: self._require_good(index, epoch, seed), self._replaced)
        rows, keys = self._rows_and_keys(chosen)
        keys = np.where(chosen == wanted, rows, keys)
        return self._made(rows, keys, self._labels_of(chosen), epoch, seed, preparation)

    @property
    def _remote(self) -> bool:
        return self.reader.remote

    def _together(self, block: int) -> tuple[int, int]:
        sizes = self.reader.table.size[:: len(self.reader) // _LOOKED_AT + 1]
        mean = int(sizes.mean()) + 1 if len(sizes) else 1
        kept = self.reader.place.kept
        return max(1, min(_REQUEST // mean, block)) if kept else 1, (_AHEAD if kept else _AHEAD_IN_MEMORY) // mean

    def _ahead(self, indices: Ints) -> None:
        if self._remote:
            self._order(self._rows_in_turns(indices), urgent=False)

    def _order(self, rows: Ints, *, urgent: bool) -> None:
        """Have all that belongs to samples fetched together; a sample of one part is ordered when it is read."""
        names = None if self._parts is None else self._parts.names
        blobs = [name for name in names or () if name in self.reader.fields and self.reader.fields[name].is_blob]
        if len(rows) > 1 or blobs or not urgent:
            self.reader.ahead(rows, names is None or "image" in names, blobs, urgent=urgent)

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
        if self._remote:
            self._order(np.sort(rows), urgent=True)

        def choose(places: range) -> Crops:
            part = slice_of(places)
            return self._chosen(preparation, rows[part], epoch, seed, keys[part])

        seeded = seed is not None
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
        labels = self._labels_of(np.asarray(indices, np.int64))
        before = seeder(seed, epoch, keys) if seeding else None
        return self._made(rows, keys, labels, epoch, seed, self._prepared_with(transform), before)

    def _require_good(self, index: int, epoch: int, seed: int | None) -> None:
        """Make an item without its transforms; one of `BAD` is raised where the sample cannot be read."""
        rows, keys = self._rows_and_keys([index])
        plain = self._preparation._replace(lookup=None, transform=None, target_transform=None, transforms=None)
        self._made(rows, keys, self._labels_of(np.array([index])), epoch, seed, plain)

    @property
    def _threads(self) -> int:
        return self.threads

    @property
    def _seeded(self) -> bool:
        return self.seed is not None

    @property
    def _crop_epoch(self) -> tuple[int, int]:
        return self._epochs.epoch, self._epochs.moves

    def _transforms_items(self, transform: Transform) -> bool:
        """Tell whether something of other people's is applied to what packer made."""
        made = self._prepared_with(transform)
        return any(step is not None for step in (made.transform, made.target_transform, made.transforms))

    def _choose_crops(self, indices: Sequence[int] | Ints, epoch: int, seed: int) -> Crops:
        """Choose the crops of a batch, (N,) of CROP, or (N, V) of V views; as `BatchDecoder` does."""
        rows, keys = self._rows_and_keys(indices)
        return self._chosen(self._preparation, rows, epoch, seed, keys)

    def _chosen(self, preparation: Preparation, rows: Ints, epoch: int, seed: int | None, keys: Ints) -> Crops:
        if preparation.views:
            return self._decoder.choose_views(preparation.views, rows, epoch, seed, keys)
        crop = preparation.crop or Compose([])
        return self._decoder.choose_crops(crop, rows, epoch, seed, keys, preparation.augment)

    def _begun(
        self,
        indices: Ints,
        crops: Crops,
        memory: Mapping[str, torch.Tensor | list[torch.Tensor]],
        step: int,
        numbers: Numbers | Lookup | None = None,
    ) -> Callable[[slice], list[Values]]:
        """Return what decodes slices of a batch into their places; as `BatchDecoder.begun`."""
        rows, images = self._rows_in_turns(indices), images_in(memory)
        decode = None
        if images is not None:
            decode = self._decoder.begun(rows, crops, len(rows), step, numbers)(slice(None), images)

        def make(some: slice) -> list[Values]:
            if decode is not None:
                decode(some)
            if self._fields is None:
                return []
            named = self._parts is not None and "label" in self._parts.names
            targets = self._targets_of(indices[some]) if named else [None] * len(rows[some])
            labels = targets.tolist() if isinstance(targets, np.ndarray) else targets
            followers = followed(crops[some], self._preparation)
            return self._fields.samples(rows[some], labels, *followers, {k: v[some] for k, v in memory.items()})

        return make

    def _begun_ahead(
        self, indices: Ints, crops: Crops, batch: int, step: int, numbers: Numbers | Lookup | None = None
    ) -> Begun | None:
        """Return what begins with batches, and decodes slices of them, as `BatchDecoder.begun`; None with fields."""
        if self._fields is not None:
            return None
        return self._decoder.begun(self._rows_in_turns(indices), crops, batch, step, numbers)

    def _targets_of(self, indices: Ints) -> Labels | list[Any]:
        """Return the labels of a batch, after `target_transform`, which may make anything of them."""
        labels = self._labels_of(indices)
        return labels if self.target_transform is None else [self.target_transform(label) for label in labels.tolist()]
