"""Which samples of a pack a dataset shows, with which labels: ImageFolder's attributes, without a pixel."""

from __future__ import annotations

import functools
import hashlib
import operator
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from packer._fields import Column, Condition
from packer._formats import Reader
from packer._formats.columns import PackColumns
from packer._loading.columns import ColumnArrays
from packer._loading.samples import Samples
from packer._loading.targets import Targets
from packer._sample import IMAGE_SUFFIXES
from packer._table import Ints, Labels, Names
from packer.errors import CorruptPackError, printable
from packer.samplers._permutation import earlier

if TYPE_CHECKING:
    from packer._loading.imagedataset import ImageDataset

__all__ = ["Selection", "meeting", "places_in"]

_IDENTIFYING = ("crc32c", "label", "name_end", "names")
"""The columns of the table that say the same in every format."""


class Selection(Dataset[tuple[Any, Any]]):
    """Samples of a pack, and what ImageFolder tells of them."""

    extensions = IMAGE_SUFFIXES

    reader: Reader
    _rows: Ints | None = None
    """Places in the pack; None for all samples."""
    _labels: Labels | None = None
    """A label for each of these samples; None for those of the pack."""
    _classes: list[str] | None = None
    """Class names in the order of their ids; None for those of the pack."""
    _ids: Ints | None = None
    """The place in `_classes` of each class of the pack, and -1 at the end; None where the pack's ids count."""

    def __len__(self) -> int:
        return len(self.reader) if self._rows is None else len(self._rows)

    @property
    def root(self) -> str:
        return self.reader.path

    @property
    def classes(self) -> list[str]:
        return self.reader.manifest.classes if self._classes is None else self._classes

    @functools.cached_property
    def class_to_idx(self) -> dict[str, int]:
        return {name: label for label, name in enumerate(self.classes)}

    def find_classes(self, directory: str | os.PathLike[str] | None = None) -> tuple[list[str], dict[str, int]]:
        """Return `classes` and `class_to_idx`, those of the pack whatever `directory` is."""
        return self.classes, self.class_to_idx

    @property
    def targets(self) -> Targets:
        return Targets.of(self._shown_labels)

    @targets.setter
    def targets(self, targets: Sequence[float] | Labels) -> None:
        labels: Any = np.array(targets)
        if labels.shape != (len(self),) or labels.dtype.kind not in "iuf":
            raise ValueError(f"targets are {len(self)} numbers, a label a sample, not {labels.dtype} {labels.shape}")
        labels = labels.astype(np.float64 if labels.dtype.kind == "f" else np.int64)
        labels.flags.writeable = False
        self._labels = labels

    @property
    def samples(self) -> Samples:
        return Samples(self._stored_names, self._shown_labels, self._rows)

    @samples.setter
    def samples(self, samples: object) -> None:
        raise AttributeError(
            "the samples of a pack cannot be replaced. For some of them take dataset[:10], dataset.select(indices) or "
            "a torch.utils.data.Subset; for other labels assign dataset.targets; for another order give a sampler"
        )

    imgs = samples

    @property
    def _shown_labels(self) -> Labels:
        """The label of each sample."""
        if self._labels is not None:
            return self._labels
        return self._stored_labels if self._rows is None else self._stored_labels[self._rows]

    @functools.cached_property
    def _stored_labels(self) -> Labels:
        self.reader.require_column("label")
        return self._numbered(self.reader.table.kept("label"))

    @functools.cached_property
    def _stored_names(self) -> Names:
        for column in ("names", "name_end"):
            self.reader.require_column(column)
        return self.reader.names

    @property
    def columns(self) -> ColumnArrays:
        """The samples' columns by name, as read-only arrays; masked where some samples have no value.

        They are scalars, classes and texts among the fields, and ``label``, ``name``, ``height``, ``width`` (pixels of
        the stored image) and ``size`` (bytes).
        """
        return ColumnArrays(self._columns)

    @property
    def _columns(self) -> PackColumns:
        own = self._labels is None and self._ids is None
        return PackColumns(self.reader, self._rows, None if own else self._shown_labels, self.classes)

    def select(self, indices: Sequence[int] | Ints) -> ImageDataset:
        """Return a dataset of some of the samples, in the order of `indices`, on the same open pack.

        It has the settings of this dataset, and `targets` and `samples` of its own; its crops are those that the same
        samples have here. An epoch that is set counts for both.
        """
        selection = self._alike()
        places = places_in(indices, len(self))
        selection._rows = places if self._rows is None else self._rows[places]
        selection._labels = None if self._labels is None else self._labels[places]
        return selection

    def where(self, condition: str | npt.ArrayLike) -> ImageDataset:
        """Return a dataset of the samples that meet a condition, in their order, on the same open pack, as `select`.

        Parameters
        ----------
        condition : str or (N,) bool array
            A mask, such as ``dataset.columns["age"] > 30``; nothing that is masked is chosen. Or a text such as
            ``'age > 30 and split == "train"'``, of the names in `columns`: comparisons, ``in [...]``,
            ``glob "train/*"``, ``is null``, ``and``, ``or``, ``not``. As in SQL, a value that is not there meets
            neither a comparison nor its opposite.

        Raises
        ------
        OptionError
            If the text is no condition on the dataset's columns; it says at which character.
        ValueError
            If a mask is none of N bools.
        CorruptPackError
            If a column that is read is damaged.
        """
        return self.select(meeting(condition, self._columns, len(self)))

    def _alike(self) -> ImageDataset:
        """Return a dataset of the same samples and settings, on the same open pack, whose settings may be changed."""
        raise NotImplementedError

    def _identity(self) -> str:
        """Return a name of these very samples, the same in every format: a digest, for states."""
        manifest = self.reader.manifest
        digest = hashlib.sha256("\0".join(self.classes).encode("utf-8", "surrogatepass"))
        digest.update(repr([manifest.columns.get(name) for name in _IDENTIFYING]).encode())
        for chosen in (self._rows, self._labels):
            digest.update(b"all" if chosen is None else chosen.tobytes())
        digest.update(b"" if self._ids is None else self._ids.tobytes())
        return digest.hexdigest()[:16]

    def _rows_and_keys(self, indices: Sequence[int] | Ints) -> tuple[Ints, Ints]:
        """Return places in the pack, and what decides on the crops there; of indices as `in_turns` gives them."""
        turns, places = np.divmod(np.asarray(indices, np.int64), max(len(self), 1))
        rows = places if self._rows is None else self._rows[places]
        if self._earlier is not None:
            turns = turns * len(self) + self._earlier[places]
        return rows, rows + turns * len(self.reader)

    def _rows_in_turns(self, indices: Ints) -> Ints:
        """Return places in the pack, of indices as `in_turns` gives them."""
        places = indices % max(len(self), 1)
        return places if self._rows is None else self._rows[places]

    @functools.cached_property
    def _earlier(self) -> Ints | None:
        """How often each sample was selected before; None where none comes twice."""
        counted = earlier(self._rows) if self._rows is not None else None
        return counted if counted is not None and counted.any() else None

    def _rows_of(self, indices: Sequence[int] | Ints) -> Ints:
        """Return the places of samples in the pack, counted from its beginning."""
        return self.reader.positions(indices) if self._rows is None else self._rows[places_in(indices, len(self))]

    def _called(self, index: int) -> str:
        """Return what an error calls a sample, of an index as `in_turns` gives it."""
        (row,) = self._rows_in_turns(np.array([index])).tolist()
        return f"{printable(self.root)}, sample {row} ({printable(self.reader._name_in_error(row))})"

    def _labels_of(self, indices: Ints) -> Labels:
        """Return the labels of samples, before `target_transform`, of indices as `in_turns` gives them."""
        if self._labels is not None:
            return self._labels[indices % max(len(self), 1)]
        self.reader.require_table()
        return self._numbered(self.reader.table.label[self._rows_in_turns(indices)])

    def _renumber(self, classes: list[str]) -> None:
        """Let the classes be `classes`, among which the pack's are, and the labels numbers of these."""
        own = self.reader.manifest.classes
        numbers = {name: number for number, name in enumerate(classes)}
        self._classes = classes
        self._ids = None if own == classes[: len(own)] else np.array([*(numbers[name] for name in own), -1], np.int64)
        for made in ("class_to_idx", "_stored_labels"):
            self.__dict__.pop(made, None)

    @property
    def _class_map(self) -> Ints:
        """The class id of each class of the pack."""
        return np.arange(len(self.reader.manifest.classes)) if self._ids is None else self._ids[:-1]

    def _numbered(self, labels: Labels) -> Labels:
        """Return labels of the pack as numbers of `classes`; CorruptPackError for one that is no class of the pack."""
        if self._ids is None:
            return labels
        wrong = np.flatnonzero(~self.reader.manifest.fits(labels))
        if len(wrong):
            raise CorruptPackError(self.reader.manifest.misfit(int(labels[wrong[0]])), self.reader.path)
        return self._ids[labels]


def meeting(condition: str | npt.ArrayLike, columns: Mapping[str, Column], length: int) -> Ints:
    """Return the indices of those of `length` samples that a condition or a mask chooses."""
    if isinstance(condition, str):
        return np.flatnonzero(Condition(condition).chosen(columns))
    mask: Any = np.ma.filled(condition, False) if np.ma.isMaskedArray(condition) else np.asarray(condition)
    if mask.dtype != bool or mask.shape != (length,):
        raise ValueError(
            f"where= is a condition or a mask of {length} bools, one a sample, not {mask.dtype} of shape {mask.shape}"
        )
    return np.flatnonzero(mask)


def places_in(indices: Sequence[int] | Ints, length: int) -> Ints:
    """Return the places of a selection of `length` that indices mean; IndexError out of range."""
    places = np.asarray(indices)
    if places.dtype.kind == "b" or places.ndim != 1:
        raise TypeError(
            f"indices are a sequence of integers, not {places.dtype} of shape {places.shape}. For a mask say "
            "dataset.where(mask)"
        )
    if places.dtype.kind not in "iu":
        places = np.array([operator.index(index) for index in indices], np.int64)
    outside = (places < -length) | (places >= length)
    if outside.any():
        raise IndexError(f"index {places[outside][0]} is out of range: the dataset has {length} samples")
    return np.where(places < 0, places + length, places).astype(np.int64, copy=False)
