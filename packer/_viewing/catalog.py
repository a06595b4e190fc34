"""The samples of one or more packs, numbered consecutively, for the viewer and the report; and a search for duplicates.

`find_duplicates` finds samples with identical image bytes. It compares checksums in the table, and reads only images
with the same checksum. A sample's checksum is the CRC-32C of its image followed by its label, height, width and name
(`packer._table`). So two copies of an image have different checksums. But the table also contains the values that
follow the image, and a CRC can be undone byte by byte from its end. The result is the CRC of the image alone.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from packer._display import legible
from packer._fields import KINDS, Condition, Field
from packer._formats import Reader
from packer._formats.reader import PackColumns
from packer._manifest import TILED
from packer._storage.place import place_of
from packer._storage.remote.urls import user_path
from packer._storage.system import in_units
from packer._table import Ints, Labels, Table
from packer.errors import OptionError, PackError

if TYPE_CHECKING:  # the module of datasets imports torch, which histograms do not need
    from packer._datasets.concat import ConcatImageDataset
    from packer._datasets.image_dataset import ImageDataset


UNLABELED = -1
"""The number of the class of samples without a label."""

NO_CLASS = ""
"""The name of the class of samples that have no value in a field."""


@dataclass(frozen=True)
class PackShare:
    """The part of the requested samples that one pack contains.

    Attributes
    ----------
    pack : int
        The pack's index.
    positions : (K,) int64 array
        The positions of these samples in the array of requested samples.
    rows : (K,) int64 array
        The rows of these samples in the pack.
    """

    pack: int
    positions: Ints
    rows: Ints


class Catalog:
    """The samples of one or more packs, which are numbered consecutively from 0.

    Parameters
    ----------
    dataset : ImageDataset or ConcatImageDataset
        One or more whole packs with the same classes.
    paths : sequence of path, optional
        The opened paths, one for each pack; by default the packs' own paths.

    Attributes
    ----------
    paths : list of str

    Raises
    ------
    CorruptPackError
        If the labels in the table of a pack are damaged. Methods that read a row or a column raise it too, if the
        file of a table has been cut short.
    """

    def __init__(
        self, dataset: ImageDataset | ConcatImageDataset, paths: Sequence[str | os.PathLike[str]] = ()
    ) -> None:
        from packer._datasets.concat import ConcatImageDataset

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
        """The last parts of the paths that the user opened, with commas between them."""
        return ", ".join(map(os.path.basename, self.paths))

    def require_tables(self) -> None:
        """Raise CorruptPackError if the file of a table has been cut short since it was opened."""
        for reader in self.readers:
            reader.require_table()

    def begin(self, pack: int) -> int:
        """Return the number of a pack's first sample."""
        return int(self._ends[pack]) - len(self.readers[pack])

    def locate(self, index: int) -> tuple[int, int]:
        """Return the number of a sample's pack, and the sample's row in it; IndexError if there is no such sample."""
        if not 0 <= index < len(self):
            raise IndexError(f"there is no sample {index}: there are {len(self)} samples, counted from 0")
        pack = int(np.searchsorted(self._ends, index, side="right"))
        self.readers[pack].require_table()
        return pack, index - self.begin(pack)

    def shares(self, indices: Ints) -> Iterator[PackShare]:
        """Group samples by their packs; yield the samples of each pack."""
        packs = np.searchsorted(self._ends, indices, side="right")
        for pack in np.unique(packs).tolist():
            positions = np.flatnonzero(packs == pack)
            yield PackShare(pack, positions, indices[positions] - self.begin(pack))

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
        """Return the seed for the crops of one pack, derived from `seed`, the seed of the Loader or the dataset."""
        from packer._datasets.concat import ConcatImageDataset, seed_of_crops

        if not isinstance(self.dataset, ConcatImageDataset):
            return seed
        return seed_of_crops([dataset.seed for dataset in self.dataset.datasets], pack, seed)

    def name(self, index: int) -> str:
        """Return a sample's name as a page shows it; empty if the table's names are damaged."""
        pack, row = self.locate(index)
        return legible(self.readers[pack].names.get(row))

    def label(self, index: int) -> str:
        """Return a sample's label for display: the class name, or the number; empty if it has no label."""
        label = self.labels[index].item()
        if self.label_type != "class":
            return f"{label:g}" if isinstance(label, float) else str(label)
        if label == UNLABELED:
            return ""
        return (
            legible(self.classes[label]) if 0 <= label < len(self.classes) else f"class {label}, which does not exist"
        )

    @functools.cached_property
    def class_counts(self) -> list[int]:
        """The number of samples of each class; empty if the packs have no classes."""
        if self.label_type != "class":
            return []
        labels = self.labels
        known = labels[(labels >= 0) & (labels < len(self.classes))].astype(np.int64, copy=False)
        return [int(count) for count in np.bincount(known, minlength=len(self.classes))]

    @functools.cached_property
    def unlabeled(self) -> int:
        """The number of samples without a label."""
        return int(np.count_nonzero(self.labels == UNLABELED)) if self.label_type == "class" else 0

    def chosen(self, condition: str) -> npt.NDArray[np.bool_]:
        """Return a mask of the samples that meet a condition of `ImageDataset.where`; OptionError if it is invalid."""
        parsed = Condition(condition)
        own, every = self.label_type == "class", self.labels
        labels = [every[self.begin(pack) : end] for pack, end in enumerate(self._ends.tolist())]
        return np.concatenate(
            [
                parsed.chosen(PackColumns(reader, None, part if own else None, self.classes))
                for reader, part in zip(self.readers, labels, strict=True)
            ]
        )

    @property
    def fields(self) -> dict[str, Field]:
        """The fields of all packs, by name.

        If several packs have a field of the same name, the first pack's field is returned.
        """
        return {name: field for reader in reversed(self.readers) for name, field in reader.fields.items()}

    @property
    def categories(self) -> dict[str, Field]:
        """The fields that divide samples into classes, as a mapping from name to field: class ids and booleans."""
        return {name: field for name, field in self.fields.items() if _is_category(field)}

    def facts(self) -> list[tuple[str, str]]:
        """Return pairs of text that describe all packs together, such as ``("samples", "1,000")``."""
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
        """Return the unusual properties of images that the conversions found, and the number of images with each."""
        total: dict[str, int] = {}
        for reader in self.readers:
            for name, count in reader.manifest.findings.items():
                if name != TILED:
                    total[name] = total.get(name, 0) + count
        return sorted(total.items(), key=lambda item: -item[1])

    def left_out(self) -> list[tuple[str, str]]:
        """Return the name of every file that the conversions left out, and the reason."""
        return [(entry["name"], entry["reason"]) for reader in self.readers for entry in reader.manifest.skipped]


def _is_category(field: Field) -> bool:
    return KINDS[field.kind].has_classes or (not field.is_blob and field.dtype == "bool")


def class_names(field: Field, ids: Sequence[int]) -> list[str]:
    """Return the names of the classes with these ids as a page shows them; for a class without a name, its id."""
    if field.dtype == "bool":
        return ["true" if number else "false" for number in ids]
    present = set(ids)
    known = zip(field.ids or range(len(field.classes)), field.classes, strict=True)
    names = {number: legible(name) for number, name in known if number in present}
    return [names.get(number, str(number)) for number in ids]


def open_catalog(
    paths: Sequence[str | os.PathLike[str]], progress: Callable[[int, int], None] | None = None
) -> Catalog:
    """Open packs, indexes, trees of images or containers: everything that `packer.open_dataset` opens.

    Parameters
    ----------
    paths : sequence of path
        The paths to open. The classes of several packs are united by name.
    progress : callable, optional
        Called while a source that is not a pack is indexed, with the number of images so far and the total.

    Raises
    ------
    PackerError
        For the same reasons as `packer.open_dataset`.
    OptionError
        If the labels of several packs are of different types.
    """
    from packer._datasets.open import open_dataset

    if len(paths) == 1:
        return Catalog(open_dataset(paths[0], progress=progress), paths)
    try:
        return Catalog(open_dataset(tuple(paths), classes="union", progress=progress), paths)
    except ValueError as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(str(error)) from error


MEASURES = ("width", "height", "aspect", "size", "label")
"""The measures that a query can limit: width and height in pixels, their ratio, bytes of the image, and the label."""


def measure(catalog: Catalog, name: str) -> npt.NDArray[Any]:
    """Return the values of one of `MEASURES` for all samples."""
    if name == "aspect":
        height = np.maximum(catalog.column("height"), 1)
        return np.asarray(catalog.column("width") / height, np.float32)
    return catalog.labels if name == "label" else catalog.column(name)


_BLOCK = 1 << 16  # rows whose checksums are undone at a time
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, reflected
_MOST_GROUPS = 200  # most groups whose images are read and compared
_MOST_MEMBERS = 32  # most samples of a group that are read
_MOST_READ = 1 << 32  # most bytes that are read for all groups together

Checksums = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class DuplicateGroup:
    """A group of samples with byte-identical images.

    Attributes
    ----------
    indices : list of int
        The numbers of those samples whose images were read and are identical.
    count : int
        Number of all samples with the same checksum and size.
    size : int
        Size of one image in bytes.
    """

    indices: list[int]
    count: int
    size: int


@dataclass(frozen=True)
class Duplicates:
    """Images that the packs contain more than once.

    Attributes
    ----------
    groups : list of DuplicateGroup
        The groups that were read and compared byte by byte, the largest first.
    candidates : int
        Number of groups of samples with the same checksum and size; these samples nearly certainly have the same image.
    reason : str
        The reason why duplicates cannot be found; empty if they can.
    """

    groups: list[DuplicateGroup]
    candidates: int
    reason: str = ""


def find_duplicates(catalog: Catalog) -> Duplicates:
    """Find images that the packs contain more than once.

    All groups of samples with equal checksum and size are counted. The images of the largest groups are read and
    compared. Raises CorruptPackError if the file of a table has been cut short.
    """
    catalog.require_tables()
    if not all(reader.has_checksums for reader in catalog.readers):
        return Duplicates(
            [], 0, "An index without checksums cannot show duplicates; `packer index` makes an index with checksums."
        )
    checksums = np.concatenate([image_checksums(reader.table) for reader in catalog.readers])
    order = np.lexsort((checksums, catalog.column("size")))[::-1]
    sizes, checksums = catalog.column("size")[order], checksums[order]
    differs = np.concatenate(([True], (sizes[1:] != sizes[:-1]) | (checksums[1:] != checksums[:-1]), [True]))
    bounds = np.flatnonzero(differs[: len(order) + 1])
    counts = np.diff(bounds)
    several = np.flatnonzero(counts > 1)
    groups, left = [], _MOST_READ
    for number in several[:_MOST_GROUPS].tolist():
        begin, count = int(bounds[number]), int(counts[number])
        members = np.sort(order[begin : begin + count])[:_MOST_MEMBERS]
        left -= int(sizes[begin]) * len(members)
        if left < 0:
            break
        groups += [
            DuplicateGroup(same, count, int(sizes[begin])) for same in _same_bytes(catalog, members) if len(same) > 1
        ]
    return Duplicates(groups, len(several))


def image_checksums(table: Table) -> Checksums:
    """Compute the CRC-32C of each image's bytes, (N,) uint32, from the samples' checksums, which cover the row as well.

    The checksum of a row is meaningless if the row's name is outside of the table's names, as in a damaged table.
    """
    found = np.empty(len(table), np.uint32)
    for start in range(0, len(table), _BLOCK):
        found[start : start + _BLOCK] = _undo_rows(table, start, min(start + _BLOCK, len(table)))
    return found


def _undo_rows(table: Table, start: int, stop: int) -> Checksums:
    """Return the checksums of rows `start` to `stop` - 1 without the label, height, width and name."""
    ends = np.asarray(table.name_end[start:stop])
    begins = np.concatenate((table.name_end[start - 1 : start] if start else [0], ends[:-1]))
    proper = (begins >= 0) & (begins <= ends) & (ends <= len(table.names)) & (ends - begins <= 1 << 16)
    lengths = np.where(proper, ends - begins, 0)
    if lengths.sum() > len(table.names):  # names overlap in a damaged table; to undo all of them could take hours
        lengths[:] = 0
    state = ~np.asarray(table.crc32c[start:stop], np.uint32)
    rows = np.flatnonzero(lengths)
    for back in range(int(lengths.max(initial=0))):
        rows = rows[lengths[rows] > back]
        state[rows] = _undo_byte(state[rows], table.names[ends[rows] - 1 - back])
    fields = np.empty(stop - start, np.dtype([("label", table.label.dtype), ("height", "<i4"), ("width", "<i4")]))
    for name in ("label", "height", "width"):
        fields[name] = getattr(table, name)[start:stop]
    for column in fields.view(np.uint8).reshape(stop - start, -1).T[::-1]:
        state = _undo_byte(state, column)
    return ~state


def _table_of_crc() -> Checksums:
    """Return the table of CRC-32C for updates by one byte: the CRC of each byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


_CRC_TABLE = _table_of_crc()
_INDEX_OF = np.argsort(_CRC_TABLE >> 24).astype(np.uint32)  # the index of the entry whose highest byte is given


def _undo_byte(state: Checksums, byte: npt.NDArray[np.uint8]) -> Checksums:
    """Return the states that CRCs had before they were updated with `byte`."""
    index = _INDEX_OF[state >> 24]
    before: Checksums = ((state ^ _CRC_TABLE[index]) << np.uint32(8)) | (index ^ byte)
    return before


def _same_bytes(catalog: Catalog, members: Ints) -> list[list[int]]:
    """Group samples whose image bytes are identical; samples that cannot be read are in no group."""
    groups: dict[tuple[bytes, object], list[int]] = {}
    for index in members.tolist():
        pack, row = catalog.locate(index)
        reader = catalog.readers[pack]
        raw = reader.manifest.codec == "raw"
        shape = (int(reader.table.height[row]), int(reader.table.width[row])) if raw else None
        try:
            digest = hashlib.sha256(reader.read(row)).digest()
        except PackError:
            continue
        groups.setdefault((digest, shape), []).append(index)
    return list(groups.values())


_MOST_REASONS = 1000


class DamageLog:
    """A log of the damaged samples found so far; many threads can use it at once.

    The memory does not depend on the number of damaged samples: it is one byte per sample, and a limited number of
    reasons.

    Parameters
    ----------
    samples : int
        Number of samples in the packs.
    """

    def __init__(self, samples: int) -> None:
        self._seen = bytearray(samples)
        self._reasons: dict[int, str] = {}
        self._count = 0
        self._lock = threading.Lock()

    def add(self, index: int, reason: str) -> None:
        """Add a damaged sample; later calls for the same sample change nothing."""
        with self._lock:
            self._count += not self._seen[index]
            self._seen[index] = 1
            if index in self._reasons or len(self._reasons) < _MOST_REASONS:
                self._reasons[index] = reason

    def indices(self) -> Ints:
        """Return the numbers of the damaged samples, in ascending order."""
        with self._lock:
            return np.flatnonzero(np.frombuffer(self._seen, np.uint8))

    def listed(self) -> tuple[int, list[tuple[int, str]]]:
        """Return the number of damaged samples, and the index and reason of the first ones found, sorted by index."""
        with self._lock:
            return self._count, sorted(self._reasons.items())
