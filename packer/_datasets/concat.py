"""Several packs as one dataset.

What a Loader asks of several datasets in a row: crops, pixels, labels and items of a batch.

The methods are those of `packer._datasets.protocol.Readable`.

What a Loader reads of what torch makes of datasets: parts, and several in one row.
"""

from __future__ import annotations

import abc
import hashlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

from packer._datasets.batch_decoder import Begun, Lookup
from packer._datasets.fields import Parts, Values, require_same_parts
from packer._datasets.image_dataset import ImageDataset
from packer._datasets.items import Replaced
from packer._datasets.memory import Layout
from packer._datasets.preparation import Transform
from packer._datasets.protocol import ItemsError, Readable, has_own
from packer._datasets.sample_view import ColumnArrays, ColumnsInARow, NamesInARow, Samples, Targets, meeting, places_in
from packer._images.geometry import Crops
from packer._images.numbers import Numbers
from packer._images.operations import gathered
from packer._table import Ints, Labels
from packer.augment import Augmentation, View
from packer.crops import Crop
from packer.samplers._random import earlier

__all__ = ["ConcatImageDataset", "InARow", "UnreadableError", "readable"]

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


class ConcatImageDataset(InARow, Dataset[tuple[Any, Any]]):
    """Samples of several datasets in one row, as torch's ConcatDataset shows them.

    ``open_dataset([a, b])`` opens packs as such a dataset. It is read as an `ImageDataset` is: by a `Loader`, by
    torch's DataLoader, by index, in slices and selections. Its settings, such as `transform` and `crop`, are those of
    its datasets, and what is assigned here is assigned to each.

    Parameters
    ----------
    datasets : iterable of ImageDataset
        One or more. They stay what they are: what is assigned to one of them counts here.

    Attributes
    ----------
    datasets : list of ImageDataset
        Each with the classes and labels that its samples have here.
    classes : list of str
    class_to_idx : dict of str to int
    class_maps : list of (C,) int64 arrays
        For each dataset: the class id here of each of the C classes of its pack.
    targets : (N,) int64 or float64 array
        The labels: class ids, -1 for an unlabeled sample; or numbers, where the packs have no classes.
    samples, imgs : sequence of (str, int)
        Name and label of every sample. Samples of two packs may have the same name.
    seed : int, optional
        The seed that all datasets have; None where they have none, or different ones. With a seed, a crop is a function
        of seed, epoch, dataset and sample.

    Raises
    ------
    TypeError
        If one is no ImageDataset, or of a class with a ``__getitem__`` of its own.
    ValueError
        If there is none, or the labels of the datasets are of different types, such as classes and numbers.
    """

    def __init__(self, datasets: Iterable[ImageDataset]) -> None:
        self.datasets = list(datasets)
        for dataset in self.datasets:
            if not isinstance(dataset, ImageDataset) or has_own(dataset, ImageDataset):
                raise TypeError(
                    f"datasets are such as packer.open_dataset gives, not {dataset!r}: use torch's ConcatDataset"
                )
        types = sorted({dataset.reader.manifest.label_type for dataset in self.datasets})
        if len(types) != 1:
            what = f"labels of one type, not {' and '.join(types)}" if types else "at least one pack"
            raise ValueError(f"datasets that are read together have {what}")
        require_same_parts([dataset._parts for dataset in self.datasets], [dataset.root for dataset in self.datasets])
        self._ends = np.cumsum([len(dataset) for dataset in self.datasets])
        self._chosen: Ints | None = None  # of all samples in the row
        self._earlier: Ints | None = None  # how often each of those chosen was chosen before
        self._whole: ConcatImageDataset | None = None  # of which this dataset is a selection

    @classmethod
    def _of(cls, parts: Sequence[ConcatImageDataset]) -> ConcatImageDataset:
        """Return several as one."""
        begins = np.cumsum([0, *(part._ends[-1] for part in parts)]).tolist()
        row = cls([dataset for part in parts for dataset in part.datasets])
        chosen = [begin + part._in_row(np.arange(len(part))) for begin, part in zip(begins, parts, strict=False)]
        return row if all(part._chosen is None for part in parts) else row._some(np.concatenate(chosen))

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._chosen is None else len(self._chosen)

    def __getitem__(self, index: int | slice) -> Any:
        """Return image and label; for a slice, a dataset of these samples; errors as of an ImageDataset."""
        if isinstance(index, slice):
            return self.select(range(*index.indices(len(self))))
        try:
            place = operator.index(index)
        except TypeError:
            raise TypeError(f"an index is an integer, not {index!r}") from None
        return self.__getitems__([place])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, Any]]:
        """Return a batch of items, in the order asked for; DataLoader calls this."""

        def items(number: int, places: Ints) -> list[tuple[Any, Any]]:
            dataset = self.datasets[number]
            seed = None if dataset.seed is None else self._seed_of(number, dataset.seed)
            return dataset._own_items(places % len(dataset), seed)

        return self._in_order(places_in(indices, len(self)), items)

    def select(self, indices: Sequence[int] | Ints) -> ConcatImageDataset:
        """Return a dataset of some of the samples, in the order of `indices`, on the same open packs.

        It has the settings of this dataset, and `targets` and `samples` of its own; its crops are those that the same
        samples have here. An epoch that is set counts for both.
        """
        alike = ConcatImageDataset([dataset._alike() for dataset in self.datasets])
        alike._chosen = self._chosen
        selection = alike._some(indices)
        selection._whole = self._whole or self
        return selection

    def where(self, condition: str | npt.ArrayLike) -> ConcatImageDataset:
        """Return a dataset of the samples that meet a condition, in their order, as `ImageDataset.where`.

        OptionError also where one of the packs has not all columns of the condition, or with values of another type.
        """
        return self.select(meeting(condition, self._columns, len(self)))

    @property
    def columns(self) -> ColumnArrays:
        """The samples' columns by name, as those of an `ImageDataset`, one pack after the other.

        Fields of classes are united by name: the first pack's keep their ids. A column that not all packs have, or with
        values of another type, is refused by an OptionError.
        """
        return ColumnArrays(self._columns)

    @property
    def _columns(self) -> ColumnsInARow:
        return ColumnsInARow([(dataset.root, dataset._columns) for dataset in self.datasets], self._chosen)

    def _some(self, indices: Sequence[int] | Ints) -> ConcatImageDataset:
        """Return some of the samples, of these very datasets."""
        selection = ConcatImageDataset(self.datasets)
        selection._chosen = self._in_row(places_in(indices, len(self)))
        counted = earlier(selection._chosen)
        selection._earlier = counted if counted.any() else None
        return selection

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the crops that a seed makes, also in DataLoader workers that run already."""
        for dataset in self.datasets:
            dataset.set_epoch(epoch)

    def close(self) -> None:
        """Close the datasets; a selection closes nothing: the dataset that it was selected from does."""
        if self._whole is None:
            for dataset in self.datasets:
                dataset.close()

    def __enter__(self) -> ConcatImageDataset:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def classes(self) -> list[str]:
        first, *others = self.datasets
        for dataset in others:
            if dataset.classes != first.classes:
                raise ValueError(
                    f"{first.root} and {dataset.root} have different classes, so one label says different things: open "
                    "them together, as open_dataset([a, b], classes='union')"
                )
        return first.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {name: label for label, name in enumerate(self.classes)}

    @property
    def class_maps(self) -> list[Ints]:
        return [dataset._class_map for dataset in self.datasets]

    @property
    def targets(self) -> Targets:
        return Targets.of(self._shown_labels)

    @targets.setter
    def targets(self, targets: Sequence[float] | Labels) -> None:
        if self._chosen is not None:
            raise ValueError("other labels are assigned to the whole dataset, before samples are selected")
        labels = np.asarray(targets)
        if labels.shape != (len(self),):
            raise ValueError(f"targets are {len(self)} numbers, a label a sample, not {labels.dtype} {labels.shape}")
        for dataset, own in zip(self.datasets, np.split(labels, self._ends[:-1]), strict=True):
            dataset.targets = own

    @property
    def samples(self) -> Samples:
        return Samples(NamesInARow([dataset.samples for dataset in self.datasets]), self._shown_labels, self._chosen)

    imgs = samples

    @property
    def _shown_labels(self) -> Labels:
        labels: Labels = np.concatenate([dataset._shown_labels for dataset in self.datasets])
        return labels if self._chosen is None else labels[self._chosen]

    @property
    def seed(self) -> int | None:
        seeds = {dataset.seed for dataset in self.datasets}
        return seeds.pop() if len(seeds) == 1 else None

    @property
    def randoms(self) -> int:
        """How many random numbers the crop of an image needs, and its augmentation."""
        return max(dataset.randoms for dataset in self.datasets)

    @property
    def output(self) -> str:
        """The form of an image."""
        return self.datasets[0].output

    @property
    def transform(self) -> Transform:
        """What is applied to each image; another transform may be set between two passes."""
        return self.datasets[0].transform

    @transform.setter
    def transform(self, transform: Transform) -> None:
        self._set("transform", transform)

    @property
    def target_transform(self) -> Transform:
        """What is applied to each label; another transform may be set between two passes."""
        return self.datasets[0].target_transform

    @target_transform.setter
    def target_transform(self, target_transform: Transform) -> None:
        self._set("target_transform", target_transform)

    @property
    def transforms(self) -> Any:
        """What is applied to image and label together."""
        return self.datasets[0].transforms

    @property
    def crop(self) -> Crop | None:
        """Which part of each image is wanted; another crop may be set between two passes."""
        return self.datasets[0].crop

    @crop.setter
    def crop(self, crop: Crop | Sequence[Crop] | None) -> None:
        self._set("crop", crop)

    @property
    def augment(self) -> Augmentation | None:
        """What is done to the pixels of each crop; another augmentation may be set between two passes."""
        return self.datasets[0].augment

    @augment.setter
    def augment(self, augment: Augmentation | Sequence[Augmentation] | None) -> None:
        self._set("augment", augment)

    @property
    def views(self) -> tuple[View, ...] | None:
        """What is made of each image, where that are several images; others may be set between two passes."""
        return self.datasets[0].views

    @views.setter
    def views(self, views: Sequence[View] | None) -> None:
        self._set("views", views)

    def _set(self, name: str, value: Any) -> None:
        for dataset in self.datasets:
            setattr(dataset, name, value)

    def read_region(self, index: int, top: int, left: int, height: int, width: int) -> Any:
        """Return a rectangle of an image, without a transform; as `ImageDataset.read_region`."""
        ((number, _, places),) = self._shares(places_in([index], len(self)))
        own = int(places[0]) % len(self.datasets[number])
        return self.datasets[number].read_region(own, top, left, height, width)

    def __repr__(self) -> str:
        return f"{len(self)} samples of {self.datasets!r}"


class UnreadableError(TypeError):
    """A dataset that is not packer's, or of which packer's threads would not make its items.

    Parameters
    ----------
    message : str
    reason : str
        The same as a clause, without what to do.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def readable(dataset: Any) -> Readable:
    """Return what a Loader reads of a dataset, of a torch Subset or ConcatDataset of such, or of these in each other.

    Raises
    ------
    UnreadableError
        If it is something else, or of a class with a ``__getitem__`` of its own, which a Loader would pass over.
    """
    if isinstance(dataset, ImageDataset):
        _require_plain(dataset)
        return dataset
    return _in_a_row(dataset)


def _in_a_row(dataset: Any) -> ConcatImageDataset:
    """Return what `readable` says as datasets in a row, also where it is one."""
    _require_plain(dataset)
    if isinstance(dataset, ConcatImageDataset):
        return dataset
    if isinstance(dataset, ImageDataset):
        return ConcatImageDataset([dataset])
    if isinstance(dataset, Subset):
        return _in_a_row(dataset.dataset)._some(dataset.indices)
    if isinstance(dataset, ConcatDataset):
        return ConcatImageDataset._of([_in_a_row(part) for part in dataset.datasets])
    raise UnreadableError(
        f"a Loader reads a dataset such as packer.open_dataset gives, or a Subset or ConcatDataset of such, not "
        f"{dataset!r}; torch's DataLoader reads any",
        f"{type(dataset).__name__} is not a dataset of packer's, nor a Subset or ConcatDataset of such",
    )


def _require_plain(dataset: Any) -> None:
    """Raise TypeError for a dataset that gives other items than its kind does."""
    for kind in (ImageDataset, ConcatImageDataset, Subset, ConcatDataset):
        if isinstance(dataset, kind) and (own := has_own(dataset, kind)):
            raise UnreadableError(
                f"{type(dataset).__name__} has a {own} of its own, which a Loader would not call: give it to "
                "torch's DataLoader, or what it does to the dataset as transform=",
                f"{type(dataset).__name__} has a {own} of its own",
            )
