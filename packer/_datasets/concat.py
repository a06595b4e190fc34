"""Several packs as one dataset with common classes, and the wrappers through which a Loader reads packer's datasets."""

from __future__ import annotations

import copy
import functools
import hashlib
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch.utils.data import ConcatDataset, Subset

from packer._datasets.description import of_several, one_line, pictures
from packer._datasets.fields import Values, require_same_parts
from packer._datasets.image_dataset import ImageDataset, items_of
from packer._datasets.pipeline import ItemDataset, ItemSettings, SettingsChange, Transform
from packer._datasets.protocol import (
    BatchOpener,
    Fetching,
    ItemsError,
    Layout,
    LoaderDataset,
    Memory,
    TorchDataset,
    Traits,
    has_own,
)
from packer._datasets.sample_view import (
    ColumnArrays,
    JoinedColumns,
    JoinedNames,
    Samples,
    Targets,
    indices_where,
    normalized_indices,
)
from packer._display import html, text
from packer._images.geometry import Crops
from packer._images.numbers import Numbers
from packer._images.operations import gathered
from packer._table import Ints, Labels
from packer.errors import OptionError, OptionTypeError, printable
from packer.samplers._random import earlier

_BETWEEN_DATASETS = 0x9E3779B97F4A7C15
"""The difference between the seeds of joined datasets: so large that no two seeds of a user differ by it."""


class Share(NamedTuple):
    """The samples of a batch that come from one of the joined datasets.

    Attributes
    ----------
    number : int
        The position of the dataset among the joined datasets.
    positions : (N,) int64 array
        The positions of these samples in the batch.
    indices : (N,) int64 array
        The samples' indices in that dataset, with turns; `SampleView` explains turns.
    """

    number: int
    positions: Ints
    indices: Ints


class ConcatImageDataset(ItemDataset):
    """Several datasets, concatenated in order, as in torch's ConcatDataset.

    ``open_dataset([a, b])`` opens packs as a `ConcatImageDataset`. It works wherever an `ImageDataset` works: in a
    `Loader`, in torch's DataLoader, by index, in slices and in selections. Settings such as `transform` and `crop` are
    shared with the contained datasets: assigning a setting here assigns it to each of these datasets.

    Parameters
    ----------
    datasets : iterable of ImageDataset
        One or more datasets. The datasets are not copied: a setting that you assign to one of them also applies in the
        joined dataset.

    Attributes
    ----------
    datasets : list of ImageDataset
        The joined datasets; their classes and class ids are the same as those of this dataset.
    classes : list of str
    class_to_idx : dict of str to int
    class_maps : list of (C,) int64 arrays
        For each dataset, an array that maps the C class ids of its pack to class ids of this dataset.
    targets : (N,) int64 or float64 array
        The labels: class ids, with -1 for an unlabeled sample. If the packs have no classes, the labels are numbers.
    samples, imgs : sequence of (str, int)
        Name and label of every sample. Samples of two packs may have the same name.
    seed : int, optional
        The common seed of the datasets; None if they have no seed or different seeds. With a seed, a crop depends only
        on seed, epoch, dataset and sample.

    Raises
    ------
    TypeError
        If one of the datasets is not an ImageDataset, or its class overrides ``__getitem__``.
    ValueError
        If there are no datasets, or the datasets have labels of different types, such as classes and numbers.
    """

    def __init__(self, datasets: Iterable[ImageDataset]) -> None:
        self.datasets = list(datasets)
        for dataset in self.datasets:
            if not isinstance(dataset, ImageDataset) or has_own(dataset, ImageDataset):
                raise OptionTypeError(
                    f"datasets must come from packer.open_dataset, not {one_line(dataset)}: use torch's ConcatDataset"
                )
        types = sorted({dataset.reader.manifest.label_type for dataset in self.datasets})
        if len(types) != 1:
            rule = f"labels of the same type, not {' and '.join(types)}" if types else "one pack or more"
            raise OptionError(f"datasets that are read together must have {rule}")
        self._each = [items_of(dataset) for dataset in self.datasets]
        parts = [items.item_settings.parts for items in self._each]
        require_same_parts(parts, [dataset.root for dataset in self.datasets])
        self._ends = np.cumsum([len(dataset) for dataset in self.datasets])
        self._chosen: Ints | None = None  # indices of the selected samples among all samples of the datasets
        self._earlier: Ints | None = None  # the number of earlier occurrences of each selected sample
        self._whole: ConcatImageDataset | None = None  # the dataset from which this one was selected

    @classmethod
    def _of(cls, parts: Sequence[ConcatImageDataset]) -> ConcatImageDataset:
        """Join the datasets of all `parts` into one dataset."""
        starts = np.cumsum([0, *(part._ends[-1] for part in parts)]).tolist()
        joined = cls([dataset for part in parts for dataset in part.datasets])
        chosen = [start + part._among_all(np.arange(len(part))) for start, part in zip(starts, parts, strict=False)]
        return joined if all(part._chosen is None for part in parts) else joined._some(np.concatenate(chosen))

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._chosen is None else len(self._chosen)

    def __getitem__(self, index: int | slice) -> Any:
        """Return an item; for a slice, return a dataset of these samples. Raises the same errors as `ImageDataset`."""
        if isinstance(index, slice):
            return self.select(range(*index.indices(len(self))))
        try:
            number = operator.index(index)
        except TypeError:
            raise OptionTypeError(f"an index must be an integer, not {index!r}") from None
        (share,) = self._shares(normalized_indices([number], len(self)))
        items = self._each[share.number]
        return items.item(int(share.indices[0]) % len(items), self._own_seed(share.number))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return a batch of items, in the order of `indices`; DataLoader calls this."""

        def items_in(share: Share) -> list[Any]:
            items = self._each[share.number]
            return items.items_of_current_epoch(share.indices % len(items), self._own_seed(share.number))

        return self._in_order(normalized_indices(indices, len(self)), items_in)

    def select(self, indices: Sequence[int] | Ints) -> ConcatImageDataset:
        """Return a dataset of the samples at `indices`, in this order. It reads the same open packs.

        The new dataset has the same settings and its own `targets` and `samples`; a sample gets the same crop in both
        datasets. `set_epoch` of one dataset sets the epoch of both.
        """
        alike = ConcatImageDataset([copy.copy(dataset) for dataset in self.datasets])
        alike._chosen = self._chosen
        selection = alike._some(indices)
        selection._whole = self._whole or self
        return selection

    def where(self, condition: str | npt.ArrayLike) -> ConcatImageDataset:
        """Return a dataset of the samples that meet a condition; see `ImageDataset.where`.

        Also raises OptionError if a pack lacks a column that the condition names, or if the column's type differs
        between packs.
        """
        return self.select(indices_where(condition, self._columns, len(self)))

    @property
    def columns(self) -> ColumnArrays:
        """The samples' columns by name, as in an `ImageDataset`; each column concatenates the packs' columns.

        The classes of class fields are merged by name; the classes of the first pack keep their ids. Accessing a column
        raises OptionError if a pack lacks the column, or if the column's type differs between packs.
        """
        return ColumnArrays(self._columns)

    @property
    def _columns(self) -> JoinedColumns:
        return JoinedColumns([(items.reader.path, items.view.columns) for items in self._each], self._chosen)

    def _some(self, indices: Sequence[int] | Ints) -> ConcatImageDataset:
        """Return a selection of the samples, which shares the joined datasets."""
        selection = ConcatImageDataset(self.datasets)
        selection._chosen = self._among_all(normalized_indices(indices, len(self)))
        counted = earlier(selection._chosen)
        selection._earlier = counted if counted.any() else None
        return selection

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch on which seeded crops depend, also in DataLoader workers that are already running."""
        for dataset in self.datasets:
            dataset.set_epoch(epoch)

    def close(self) -> None:
        """Close the datasets. Closing a selection does nothing: close the dataset from which it was selected."""
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
                raise OptionError(
                    f"{first.root} and {dataset.root} have different classes, so a label would have two meanings: open "
                    "them together, as open_dataset([a, b], classes='union')"
                )
        return first.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {name: label for label, name in enumerate(self.classes)}

    @property
    def class_maps(self) -> list[Ints]:
        return [items.view.class_map for items in self._each]

    @property
    def targets(self) -> Targets:
        return Targets.of(self._shown_labels)

    @targets.setter
    def targets(self, targets: Sequence[float] | Labels) -> None:
        if self._chosen is not None:
            raise OptionError("labels can be assigned only to the whole dataset, before samples are selected")
        labels = np.asarray(targets)
        if labels.shape != (len(self),):
            raise OptionError(
                f"targets must be {len(self)} numbers, one label for each sample, not {labels.dtype} {labels.shape}"
            )
        for dataset, own in zip(self.datasets, np.split(labels, self._ends[:-1]), strict=True):
            dataset.targets = own

    @property
    def samples(self) -> Samples:
        return Samples(JoinedNames([dataset.samples for dataset in self.datasets]), self._shown_labels, self._chosen)

    imgs = samples

    @property
    def _shown_labels(self) -> Labels:
        labels: Labels = np.concatenate([items.view.labels for items in self._each])
        return labels if self._chosen is None else labels[self._chosen]

    @property
    def seed(self) -> int | None:
        seeds = {dataset.seed for dataset in self.datasets}
        return seeds.pop() if len(seeds) == 1 else None

    @property
    def randoms(self) -> int:
        """The number of random numbers that the crop and the augmentation of an image need."""
        return max(dataset.randoms for dataset in self.datasets)

    @property
    def output(self) -> str:
        """The form that images have in items; see `ImageDataset`."""
        return self.datasets[0].output

    def _item_settings(self) -> ItemSettings:
        return self._each[0].item_settings

    def _change_settings(self, change: SettingsChange) -> None:
        for items in self._each:
            items.item_settings = change(items.item_settings)

    def read_region(self, index: int, top: int, left: int, height: int, width: int) -> Any:
        """Return a rectangle of an image, without a transform; see `ImageDataset.read_region`."""
        (share,) = self._shares(normalized_indices([index], len(self)))
        dataset = self.datasets[share.number]
        return dataset.read_region(int(share.indices[0]) % len(dataset), top, left, height, width)

    def __repr__(self) -> str:
        return text(of_several(self, self._each[0].pipeline))

    def _repr_html_(self) -> str:
        shown = (block for items in self._each[:2] for block in pictures(items))
        return html([*of_several(self, self._each[0].pipeline), *shown])

    def _in_order(self, indices: Sequence[int] | Ints, make: Callable[[Share], list[Any]]) -> list[Any]:
        """Call `make` for each dataset's share, and return the items in the order of `indices`."""
        items: dict[int, Any] = {}
        for share in self._shares(indices):
            items.update(zip(share.positions.tolist(), make(share), strict=True))
        return [items[position] for position in range(len(items))]

    def _own_seed(self, number: int) -> int | None:
        """Return the seed for crops of dataset `number` outside of a Loader; None if torch's generator draws them."""
        seeds = [dataset.seed for dataset in self.datasets]
        own = seeds[number]
        return None if own is None else seed_of_crops(seeds, number, own)

    def _shares(self, indices: Sequence[int] | Ints) -> list[Share]:
        """Divide samples into shares, one for each dataset that contains some of them; `indices` may have turns."""
        turns, samples = np.divmod(np.asarray(indices), max(len(self), 1))
        if self._earlier is not None:
            turns = turns * len(self) + self._earlier[samples]
        among_all = self._among_all(samples)
        numbers = np.searchsorted(self._ends, among_all, side="right")
        shares = []
        for number in np.unique(numbers).tolist():
            positions, length = np.flatnonzero(numbers == number), len(self.datasets[number])
            own = among_all[positions] - (self._ends[number] - length)
            shares.append(Share(number, positions, own + turns[positions] * length))
        return shares

    def _among_all(self, indices: Ints) -> Ints:
        """Convert indices into this selection to indices into all samples of the datasets."""
        return indices if self._chosen is None else self._chosen[indices]


def seed_of_crops(seeds: Sequence[int | None], number: int, seed: int) -> int:
    """Return the seed for the crops of one of several joined datasets; each dataset gets a different seed.

    Parameters
    ----------
    seeds : sequence of int or None
        The seed of each dataset.
    number : int
        The number of the dataset, counted from 0.
    seed : int
        The seed from which the result is derived if all datasets have the same seed, or if this dataset has no seed.
        Otherwise the result is derived from the dataset's own seed.
    """
    own = seeds[number] if len(set(seeds)) > 1 else None
    return (seed if own is None else own) + number * _BETWEEN_DATASETS


class ConcatBatches(TorchDataset):
    """The samples of a `ConcatImageDataset`, in the form that a Loader reads.

    Parameters
    ----------
    dataset : ConcatImageDataset
    """

    def __init__(self, dataset: ConcatImageDataset) -> None:
        self.dataset = dataset
        self._each = [items_of(one) for one in dataset.datasets]

    def __len__(self) -> int:
        return len(self.dataset)

    def __repr__(self) -> str:
        return repr(self.dataset)

    def frozen_copy(self) -> ConcatBatches:
        frozen = ConcatBatches(self.dataset)
        frozen._each = [items.frozen_copy() for items in self._each]
        return frozen

    def traits(self, transform: Transform = None) -> Traits:
        each = [items.traits(transform) for items in self._each]
        return each[0]._replace(
            seed=self.dataset.seed,
            random=any(traits.random for traits in each),
            transforms=any(traits.transforms for traits in each),
        )

    def settings(self) -> dict[str, str]:
        return self._each[0].settings()

    def identity(self) -> str:
        seeds = None if self.dataset.seed is not None else [one.seed for one in self.dataset.datasets]
        digest = hashlib.sha256(repr(([items.identity() for items in self._each], seeds)).encode())
        chosen = self.dataset._chosen
        digest.update(b"all" if chosen is None else chosen.tobytes())
        return digest.hexdigest()[:16]

    def describe(self, index: int) -> str:
        (share,) = self.dataset._shares([index])
        return self._each[share.number].describe(int(share.indices[0]))

    def layout(self, transform: Transform = None) -> Layout | None:
        layouts = {items.layout(transform) for items in self._each}
        return layouts.pop() if len(layouts) == 1 else None

    def labels(self, indices: Ints) -> Labels | list[Any]:
        shares = self.dataset._shares(indices)
        parts = [self._each[share.number].labels(share.indices) for share in shares]
        order = np.argsort(np.concatenate([share.positions for share in shares]))
        if all(isinstance(part, np.ndarray) for part in parts):
            joined: Labels = np.concatenate(parts)[order]
            return joined
        targets = [target for part in parts for target in (part.tolist() if isinstance(part, np.ndarray) else part)]
        return [targets[number] for number in order.tolist()]

    def choose(self, indices: Ints, epoch: int, seed: int) -> Crops:
        def crops_of(share: Share) -> Crops:
            return self._each[share.number].choose(share.indices, epoch, self._seed_of(share, seed))

        return gathered(len(indices), [(share.positions, crops_of(share)) for share in self.dataset._shares(indices)])

    def begin(
        self, indices: Ints, choices: Crops, batch: int, step: int, numbers: Numbers | None = None
    ) -> BatchOpener:
        if len(self._each) == 1 and len(indices):
            (share,) = self.dataset._shares(indices)
            return self._each[0].begin(share.indices, choices, batch, step, numbers)

        return lambda some, memory: functools.partial(self._decode_slice, indices[some], choices[some], memory, numbers)

    def _decode_slice(
        self, indices: Ints, choices: Crops, memory: Memory, numbers: Numbers | None, part: slice
    ) -> list[Values]:
        """Decode a slice of a batch: each dataset writes its images into `memory`.

        Return the values of the samples that are not in `memory`.
        """
        found: dict[int, Values] = {}
        crops, pixels_of = choices[part], {name: pixels[part] for name, pixels in memory.items()}
        for share in self.dataset._shares(indices[part]):
            positions, count = share.positions.tolist(), len(share.positions)
            own = {name: [pixels[position] for position in positions] for name, pixels in pixels_of.items()}
            open_batch = self._each[share.number].begin(share.indices, crops[share.positions], count, count, numbers)
            values = open_batch(slice(None), own)(slice(count)) or ()
            found.update(zip(positions, values, strict=bool(values)))
        return [found[position] for position in range(len(found))]

    def items(
        self, indices: Ints, epoch: int, seed: int, transform: Transform = None, seeding: bool = False
    ) -> list[Any]:
        def items_in(share: Share) -> list[Any]:
            own_seed = self._seed_of(share, seed)
            return self._each[share.number].items(share.indices, epoch, own_seed, transform, seeding)

        return self.dataset._in_order(indices, items_in)

    def replacements(self, indices: Ints, epoch: int, seed: int) -> Ints | None:
        replaced = [items.replaced for items in self._each]
        if replaced[0] is None or not all(replaced):
            return None
        return replaced[0].substitutes(indices, len(self), lambda index: self._require_readable(index, epoch, seed))

    def fetching(self, block: int) -> Fetching | None:
        each = [fetching for items in self._each if (fetching := items.fetching(block)) is not None]
        return Fetching(*map(min, zip(*each, strict=True))) if each else None

    def ahead(self, indices: Ints) -> None:
        for share in self.dataset._shares(indices):
            self._each[share.number].ahead(share.indices)

    def batch_layout(self) -> Layout:
        layouts = {items.batch_layout() for items in self._each}
        if len(layouts) > 1:
            raise ItemsError("the joined datasets produce images of different kinds")
        return layouts.pop()

    @property
    def threads(self) -> int:
        return max(items.threads for items in self._each)

    @property
    def seeded(self) -> bool:
        return any(items.seeded for items in self._each)

    @property
    def crop_epoch(self) -> tuple[int, int]:
        return max(items.crop_epoch for items in self._each)

    @property
    def whole(self) -> bool:
        """Whether `dataset` contains all samples of the datasets that it joins, not a selection."""
        return self.dataset._chosen is None

    def _require_readable(self, index: int, epoch: int, seed: int) -> None:
        (share,) = self.dataset._shares([index])
        self._each[share.number].require_readable(int(share.indices[0]), epoch, self._seed_of(share, seed))

    def _seed_of(self, share: Share, seed: int) -> int:
        """Return the seed for the crops of the dataset to which a share belongs."""
        return seed_of_crops([items.seed for items in self._each], share.number, seed)


class UnreadableError(OptionTypeError):
    """Raised if a dataset is not one of packer's, or if packer's threads cannot reproduce its items.

    Parameters
    ----------
    message : str
    reason : str
        The message as a clause, without a remedy.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def readable(dataset: Any) -> LoaderDataset:
    """Return a LoaderDataset unchanged, or wrap one of packer's datasets so that a Loader can read it.

    The datasets may be inside torch's Subset or ConcatDataset, which may be nested.

    Raises
    ------
    UnreadableError
        If `dataset` is none of these, or if its class overrides ``__getitem__``, which a Loader would not call.
    """
    if isinstance(dataset, LoaderDataset):
        return dataset
    if isinstance(dataset, ImageDataset):
        _require_plain(dataset)
        return items_of(dataset)
    return ConcatBatches(_as_joined(dataset))


def _as_joined(dataset: Any) -> ConcatImageDataset:
    """Convert a dataset that `readable` accepts, even a single ImageDataset, to a ConcatImageDataset."""
    _require_plain(dataset)
    if isinstance(dataset, ConcatImageDataset):
        return dataset
    if isinstance(dataset, ImageDataset):
        return ConcatImageDataset([dataset])
    if isinstance(dataset, Subset):
        return _as_joined(dataset.dataset)._some(dataset.indices)
    if isinstance(dataset, ConcatDataset):
        return ConcatImageDataset._of([_as_joined(part) for part in dataset.datasets])
    if isinstance(dataset, str | os.PathLike):
        raise UnreadableError(
            f"a Loader reads a dataset, not a path: pass packer.open_dataset({os.fspath(dataset)!r})",
            f"{one_line(dataset)} is a path",
        )
    raise UnreadableError(
        "a Loader reads a dataset from packer.open_dataset, a Subset or ConcatDataset of these, or a "
        f"packer.LoaderDataset, not {one_line(dataset)}; torch's DataLoader reads any dataset",
        f"{type(dataset).__name__} is not one of packer's datasets, nor a Subset or ConcatDataset of them",
    )


def _require_plain(dataset: Any) -> None:
    """Raise TypeError if the class of a dataset overrides a method with which packer's classes make items."""
    for base in (ImageDataset, ConcatImageDataset, Subset, ConcatDataset):
        if isinstance(dataset, base) and (own := has_own(dataset, base)):
            raise UnreadableError(
                f"{type(dataset).__name__} overrides {own}, which a Loader would not call: use torch's DataLoader, or "
                "pass transform= to the dataset instead",
                f"{type(dataset).__name__} overrides {own}",
            )


def unite_classes(datasets: Sequence[ImageDataset], classes: str) -> None:
    """Give several datasets the same classes.

    Parameters
    ----------
    datasets : sequence of ImageDataset
    classes : {"same", "union"}
        ``same``: the datasets must already have the same classes. ``union``: the first dataset's classes keep their
        ids, additional classes of the other datasets follow, and the labels are renumbered.

    Raises
    ------
    ValueError
        If ``classes="same"`` and the classes differ; the message names the differing classes.
    """
    if classes == "same":
        for dataset in datasets[1:]:
            _require_same_classes(datasets[0], dataset)
        return
    united = list(dict.fromkeys(name for dataset in datasets for name in dataset.classes))
    for dataset in datasets:
        items = items_of(dataset)
        items.view = items.view.with_classes(united)


def _require_same_classes(one: ImageDataset, other: ImageDataset) -> None:
    if one.classes == other.classes:
        return
    differences = []
    for here, there in ((one, other), (other, one)):
        known = set(there.classes)
        only = [name for name in here.classes if name not in known]
        if only:
            more = f" and {len(only) - 5} more" if len(only) > 5 else ""
            differences.append(f"only {printable(here.root)} has {', '.join(map(printable, only[:5]))}{more}")
    if not differences:
        pairs = zip(one.classes, other.classes, strict=True)
        number, names = next((number, names) for number, names in enumerate(pairs) if names[0] != names[1])
        differences = [f"class {number} is {' here and '.join(map(printable, names))} there"]
    raise OptionError(
        f"{printable(one.root)} and {printable(other.root)} differ in their classes: {'; '.join(differences)}. Pass "
        "classes='union' to unite them"
    )
