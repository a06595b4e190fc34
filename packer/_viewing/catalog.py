"""The samples of one pack, or of several in a row, as a person looks at them: by number, with columns of all."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._fields import Condition, Field
from packer._formats import Reader
from packer._formats.columns import PackColumns
from packer._loading.concat import ConcatImageDataset
from packer._loading.dataset import open_dataset
from packer._loading.imagedataset import ImageDataset
from packer._manifest import TILED
from packer._storage.limits import in_units
from packer._storage.place import place_of
from packer._storage.urlpath import user_path
from packer._table import Ints, Labels
from packer._viewing.names import legible
from packer.errors import OptionError

__all__ = ["UNLABELED", "Catalog", "Share", "open_catalog"]

UNLABELED = -1
"""The number of the class of samples without a label."""


@dataclass(frozen=True)
class Share:
    """Some samples that lie in one pack.

    Attributes
    ----------
    pack : int
        Which of the packs.
    places : (K,) int64 array
        Which of those asked for these are.
    rows : (K,) int64 array
        Where they stand in the pack.
    """

    pack: int
    places: Ints
    rows: Ints


class Catalog:
    """All samples, counted from 0 through all packs.

    Parameters
    ----------
    dataset : ImageDataset or ConcatImageDataset
        Whole packs, with the same classes.
    paths : sequence of path, optional
        What a person opened, of which each became one of the packs; by default the packs' own paths.

    Attributes
    ----------
    paths : list of str

    Raises
    ------
    CorruptPackError
        If the labels in the table of a pack are damaged; also from every way to a row or a column, where the file of a
        table was cut short.
    """

    def __init__(
        self, dataset: ImageDataset | ConcatImageDataset, paths: Sequence[str | os.PathLike[str]] = ()
    ) -> None:
        self.dataset = dataset
        self.datasets = dataset.datasets if isinstance(dataset, ConcatImageDataset) else [dataset]
        self.readers: list[Reader] = [one.reader for one in self.datasets]
        self.paths = [place_of(user_path(path)).path for path in paths] or [reader.path for reader in self.readers]
        self._ends = np.cumsum([len(reader) for reader in self.readers])
        self.classes: list[str] = self.datasets[0].classes
        self.label_type = self.readers[0].manifest.label_type
        self._labels: Labels = np.asarray(dataset.targets)
        self._columns: dict[str, npt.NDArray[Any]] = {}

    def __len__(self) -> int:
        return int(self._ends[-1])

    def close(self) -> None:
        self.dataset.close()

    @property
    def title(self) -> str:
        """What the packs are called: the names of what was opened, not of an index that was made of it meanwhile."""
        return ", ".join(map(os.path.basename, self.paths))

    def require_tables(self) -> None:
        """Raise CorruptPackError where the file of a table was cut short since it was opened."""
        for reader in self.readers:
            reader.require_table()

    def begin(self, pack: int) -> int:
        """Return the number of a pack's first sample."""
        return int(self._ends[pack]) - len(self.readers[pack])

    def place(self, index: int) -> tuple[int, int]:
        """Return in which pack a sample lies, and where in it; IndexError where there is no such sample."""
        if not 0 <= index < len(self):
            raise IndexError(f"there is no sample {index}: there are {len(self)}, counted from 0")
        pack = int(np.searchsorted(self._ends, index, side="right"))
        self.readers[pack].require_table()
        return pack, index - self.begin(pack)

    def shares(self, indices: Ints) -> Iterator[Share]:
        """Yield samples pack by pack."""
        packs = np.searchsorted(self._ends, indices, side="right")
        for pack in np.unique(packs).tolist():
            places = np.flatnonzero(packs == pack)
            yield Share(pack, places, indices[places] - self.begin(pack))

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return ``height``, ``width`` (pixels) or ``size`` (bytes of the image) of all samples, an (N,) array."""
        self.require_tables()
        if name not in self._columns:
            parts: list[npt.NDArray[Any]] = [getattr(reader.table, name) for reader in self.readers]
            self._columns[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return self._columns[name]

    @property
    def labels(self) -> Labels:
        """The label of each sample, (N,)."""
        self.require_tables()
        return self._labels

    def seed_of(self, pack: int, seed: int) -> int:
        """Return the seed of a pack's crops, where a Loader or the dataset of all packs has `seed`."""
        return self.dataset._seed_of(pack, seed) if isinstance(self.dataset, ConcatImageDataset) else seed

    def name(self, index: int) -> str:
        """Return a sample's name as a page shows it; empty where the table's names are damaged."""
        pack, row = self.place(index)
        return legible(self.readers[pack].names.get(row))

    def label(self, index: int) -> str:
        """Return a sample's label as a person reads it: its class, or the number; empty where there is none."""
        label = self.labels[index].item()
        if self.label_type != "class":
            return f"{label:g}" if isinstance(label, float) else str(label)
        if label == UNLABELED:
            return ""
        return legible(self.classes[label]) if 0 <= label < len(self.classes) else f"class {label}, which there is not"

    @functools.cached_property
    def class_counts(self) -> list[int]:
        """How many samples each class has; empty where labels are numbers without classes."""
        if self.label_type != "class":
            return []
        labels = self.labels
        known = labels[(labels >= 0) & (labels < len(self.classes))].astype(np.int64, copy=False)
        return [int(count) for count in np.bincount(known, minlength=len(self.classes))]

    @functools.cached_property
    def unlabeled(self) -> int:
        """How many samples have no label."""
        return int(np.count_nonzero(self.labels == UNLABELED)) if self.label_type == "class" else 0

    def chosen(self, condition: str) -> npt.NDArray[np.bool_]:
        """Tell which samples meet a condition, as `ImageDataset.where` takes it; OptionError where it is none."""
        wanted = Condition(condition)
        own, every = self.label_type == "class", self.labels
        labels = [every[self.begin(pack) : end] for pack, end in enumerate(self._ends.tolist())]
        return np.concatenate(
            [
                wanted.chosen(PackColumns(reader, None, part if own else None, self.classes))
                for reader, part in zip(self.readers, labels, strict=True)
            ]
        )

    @property
    def fields(self) -> dict[str, Field]:
        """The fields that a sample of any pack has, by name; of fields of one name the first pack's."""
        return {name: field for reader in reversed(self.readers) for name, field in reader.fields.items()}

    def facts(self) -> list[tuple[str, str]]:
        """Return what holds of all packs together, in words: what, and how much."""
        self.require_tables()
        size = sum(int(reader.table.size.sum()) for reader in self.readers)
        codecs = dict.fromkeys(reader.manifest.codec for reader in self.readers)
        formats = dict.fromkeys(reader.manifest.format for reader in self.readers)
        tiled = sum(reader.manifest.findings.get(TILED, 0) for reader in self.readers)
        found = [
            ("samples", f"{len(self):,}"),
            ("images", f"{in_units(size)}, {in_units(size / max(len(self), 1))} each"),
            ("codec", ", ".join(codecs)),
            ("format", ", ".join(formats)),
        ]
        if self.label_type == "class":
            found.insert(1, ("classes", f"{len(self.classes):,}"))
        if tiled:
            found.append(("tiled JPEGs", f"{tiled:,}"))
        if self.fields:
            found.append(("fields", ", ".join(f"{one.name} ({one.kind})" for one in self.fields.values())))
        return found

    def findings(self) -> list[tuple[str, int]]:
        """Return what the conversions counted that is unusual, and how often."""
        total: dict[str, int] = {}
        for reader in self.readers:
            for name, count in reader.manifest.findings.items():
                if name != TILED:
                    total[name] = total.get(name, 0) + count
        return sorted(total.items(), key=lambda item: -item[1])

    def left_out(self) -> list[tuple[str, str]]:
        """Return name and reason of every file that the conversions left out."""
        return [(entry["name"], entry["reason"]) for reader in self.readers for entry in reader.manifest.skipped]


def open_catalog(
    paths: Sequence[str | os.PathLike[str]], progress: Callable[[int, int], None] | None = None
) -> Catalog:
    """Open packs, indexes, trees of images or containers, as `packer.open_dataset` takes them.

    Parameters
    ----------
    paths : sequence of path
        Classes of several are united by name.
    progress : callable, optional
        Called with how many images were indexed, of what is no pack, and how many there are.

    Raises
    ------
    PackerError
        As `packer.open_dataset`.
    OptionError
        If the labels of several are of different types.
    """
    if len(paths) == 1:
        return Catalog(open_dataset(paths[0], progress=progress), paths)
    try:
        return Catalog(open_dataset(tuple(paths), classes="union", progress=progress), paths)
    except ValueError as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(str(error)) from error
