"""The samples of a pack that a dataset contains: their rows, names, labels, classes and columns."""

from __future__ import annotations

import bisect
import hashlib
import itertools
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from packer._fields import Column, Condition
from packer._formats import Reader
from packer._formats.reader import PackColumns
from packer._table import Ints, Labels, Names, encode_name
from packer.errors import CorruptPackError, NoSampleError, OptionError, OptionTypeError, printable
from packer.samplers._random import earlier

_SEARCHED = 1 << 20  # bytes of names that are searched at a time

_IDENTIFYING = ("crc32c", "label", "name_end", "names")
"""The columns of the table whose values do not depend on the format."""


@dataclass(frozen=True, eq=False)
class SampleView:
    """The samples of a pack that a dataset contains, with labels and classes; immutable: changes return another view.

    Some methods take indices with turns. The turn of a sample is the number of times that it has already occurred in
    the epoch. An index with a turn is ``index + turn * len(view)``.

    Parameters
    ----------
    reader : Reader
    rows : (N,) int64 array, optional
        The rows of the pack's table; None for all.
    own_labels : (N,) array, optional
        The labels of these samples, instead of the labels in the pack.
    own_classes : list of str, optional
        Class names in the order of their ids, instead of the class names in the pack.
    ids : (C + 1,) int64 array, optional
        For each class of the pack, its index in `own_classes`; a last element, -1, is for samples without a label. None
        if the pack's ids are unchanged.
    """

    reader: Reader
    rows: Ints | None = None
    own_labels: Labels | None = None
    own_classes: list[str] | None = None
    ids: Ints | None = None

    def __len__(self) -> int:
        return self.reader.manifest.count if self.rows is None else len(self.rows)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # an unpickled array is writable

    def __post_init__(self) -> None:
        if self.own_labels is not None:
            self.own_labels.flags.writeable = False

    @property
    def classes(self) -> list[str]:
        return self.reader.manifest.classes if self.own_classes is None else self.own_classes

    @cached_property
    def class_to_idx(self) -> dict[str, int]:
        return {name: label for label, name in enumerate(self.classes)}

    @property
    def class_map(self) -> Ints:
        """For each class of the pack, its class id in this view."""
        return np.arange(len(self.reader.manifest.classes)) if self.ids is None else self.ids[:-1]

    @property
    def labels(self) -> Labels:
        """The label of each sample."""
        if self.own_labels is not None:
            return self.own_labels
        return self._stored_labels if self.rows is None else self._stored_labels[self.rows]

    @property
    def samples(self) -> Samples:
        return Samples(self._stored_names, self.labels, self.rows)

    @property
    def columns(self) -> PackColumns:
        own = self.own_labels is None and self.ids is None
        return PackColumns(self.reader, self.rows, None if own else self.labels, self.classes)

    def row_of(self, index: int) -> int:
        """Return a sample's row in the pack; negative indices count from the end. Raise IndexError if out of range."""
        length = len(self)
        if not -length <= index < length:
            raise _out_of_range(index, length)
        index = index + length if index < 0 else index
        return index if self.rows is None else int(self.rows[index])

    def label_of(self, index: int, stored: int | float) -> int | float:
        """Return the label of the sample at `index` (see `row_of`); `stored` is its label in the pack's table."""
        if self.own_labels is not None:
            own: int | float = self.own_labels[index].item()
            return own
        return stored if self.ids is None else self._renumbered(np.array([stored])).item()

    def rows_of(self, indices: Sequence[int] | Ints) -> Ints:
        """Return the rows of samples in the pack; raise IndexError if an index is out of range."""
        return (
            self.reader.positions(indices) if self.rows is None else self.rows[normalized_indices(indices, len(self))]
        )

    def rows_in_turns(self, indices: Ints) -> Ints:
        """Return the samples' rows in the pack; `indices` may have turns (see `SampleView`)."""
        samples = indices % max(len(self), 1)
        return samples if self.rows is None else self.rows[samples]

    def rows_and_keys(self, indices: Sequence[int] | Ints) -> tuple[Ints, Ints]:
        """Return the samples' rows in the pack, and the keys that determine their crops.

        `indices` may have turns (see `SampleView`).
        """
        turns, samples = np.divmod(np.asarray(indices, np.int64), max(len(self), 1))
        rows = samples if self.rows is None else self.rows[samples]
        if self._earlier is not None:
            turns = turns * len(self) + self._earlier[samples]
        return rows, rows + turns * len(self.reader)

    def labels_of(self, indices: Ints) -> Labels:
        """Return the samples' labels; `indices` may have turns (see `SampleView`)."""
        if self.own_labels is not None:
            return self.own_labels[indices % max(len(self), 1)]
        self.reader.require_table()
        return self._renumbered(self.reader.table.label[self.rows_in_turns(indices)])

    def describe(self, index: int) -> str:
        """Return a description of a sample for error messages; `index` may have a turn (see `SampleView`)."""
        (row,) = self.rows_in_turns(np.array([index])).tolist()
        return self.reader.describe(row)

    def identity(self) -> str:
        """Return a digest that identifies these samples in a Loader's state, whatever the format of the pack."""
        manifest = self.reader.manifest
        digest = hashlib.sha256("\0".join(self.classes).encode("utf-8", "surrogatepass"))
        digest.update(repr([manifest.columns.get(name) for name in _IDENTIFYING]).encode())
        for chosen in (self.rows, self.own_labels):
            digest.update(b"all" if chosen is None else chosen.tobytes())
        digest.update(b"" if self.ids is None else self.ids.tobytes())
        return digest.hexdigest()[:16]

    def selected(self, indices: Sequence[int] | Ints) -> SampleView:
        """Return a view of some of these samples; raise IndexError if an index is out of range."""
        indices = normalized_indices(indices, len(self))
        labels = None if self.own_labels is None else self.own_labels[indices]
        return replace(self, rows=indices if self.rows is None else self.rows[indices], own_labels=labels)

    def with_labels(self, targets: Sequence[float] | Labels) -> SampleView:
        """Return a view of these samples with other labels; raise ValueError if the labels are invalid."""
        labels: Any = np.array(targets)
        if labels.shape != (len(self),) or labels.dtype.kind not in "iuf":
            raise OptionError(
                f"targets must be {len(self)} numbers, one label for each sample, not {labels.dtype} {labels.shape}"
            )
        return replace(self, own_labels=labels.astype(np.float64 if labels.dtype.kind == "f" else np.int64))

    def with_classes(self, classes: list[str]) -> SampleView:
        """Return a view with `classes`, which include the pack's classes; labels are indices into `classes`."""
        own = self.reader.manifest.classes
        numbers = {name: number for number, name in enumerate(classes)}
        same = own == classes[: len(own)]
        ids = None if same else np.array([*(numbers[name] for name in own), -1], np.int64)
        return replace(self, own_classes=classes, ids=ids)

    @cached_property
    def _earlier(self) -> Ints | None:
        """The number of earlier occurrences of each sample in the selection; None if no sample occurs twice."""
        counted = earlier(self.rows) if self.rows is not None else None
        return counted if counted is not None and counted.any() else None

    @cached_property
    def _stored_labels(self) -> Labels:
        self.reader.require_column("label")
        labels: Labels = self._renumbered(self.reader.table.kept("label")).view()
        labels.flags.writeable = False
        return labels

    @cached_property
    def _stored_names(self) -> Names:
        for column in ("names", "name_end"):
            self.reader.require_column(column)
        return self.reader.names

    def _renumbered(self, labels: Labels) -> Labels:
        """Convert labels of the pack to indices into `classes`; raise CorruptPackError if a label is not a class id."""
        if self.ids is None:
            return labels
        wrong = np.flatnonzero(~self.reader.manifest.fits(labels))
        if len(wrong):
            raise CorruptPackError(self.reader.manifest.misfit(int(labels[wrong[0]])), self.reader.path)
        return self.ids[labels]


class Samples(Sequence[tuple[str, int | float]]):
    """The pairs ``(name, label)`` of all samples, like ImageFolder's `samples`; each is read from the pack when needed.

    It has all methods of a list except those that modify it; sums and copies are lists.

    Parameters
    ----------
    names : Names or JoinedNames
        The names of all samples of the pack, or of several packs.
    labels : (N,) array
    rows : (N,) int64 array, optional
        The samples' rows in the pack; by default all.
    """

    def __init__(self, names: Names | JoinedNames, labels: Labels, rows: Ints | None = None) -> None:
        self._names = names
        self.labels = labels
        self._rows = rows

    def __len__(self) -> int:
        return len(self.labels)

    @overload
    def __getitem__(self, index: int) -> tuple[str, int | float]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, int | float]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, int | float] | list[tuple[str, int | float]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.name(index), self.labels[index].item()

    def __iter__(self) -> Iterator[tuple[str, int | float]]:
        return zip(self.names(), self.labels.tolist(), strict=True)

    def __add__(self, other: object) -> list[tuple[str, int | float]]:
        return [*self, *other] if isinstance(other, Samples | list) else NotImplemented

    def __radd__(self, other: object) -> list[tuple[str, int | float]]:
        return [*other, *self] if isinstance(other, list) else NotImplemented

    def __mul__(self, times: int) -> list[tuple[str, int | float]]:
        return list(self) * times

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Samples | list):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # unhashable, like a list

    def copy(self) -> list[tuple[str, int | float]]:
        """Return the samples as a list."""
        return list(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    def names(self) -> Iterator[str]:
        """Return the name of every sample."""
        return iter(self._names) if self._rows is None else map(self.name, range(len(self)))

    def name(self, index: int) -> str:
        """Return the name of a sample; raise IndexError if there is no such sample."""
        return self._names[index if self._rows is None else int(self._rows[index])]

    def __repr__(self) -> str:
        return f"<{len(self)} samples>"


class JoinedNames:
    """The names of the samples of several packs, one pack after the other."""

    def __init__(self, parts: Sequence[Samples]) -> None:
        self._parts = parts
        self._ends = list(itertools.accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(part.names() for part in self._parts)

    def __getitem__(self, index: int) -> str:
        index = range(len(self))[index]
        part = bisect.bisect_right(self._ends, index)
        return self._parts[part].name(index - self._ends[part])  # a negative index, counted from the part's end


class ColumnArrays(Mapping[str, npt.NDArray[Any]]):
    """The columns by name; each is a read-only (N,) array, made when it is accessed.

    A column without missing values is a plain array; otherwise it is a masked array. The data under masked entries are
    NaN for floats, -1 for ids, None for texts, the smallest value of the dtype for integers, and False for bools.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._columns:
            raise KeyError(f"there is no column {name!r}. There are {', '.join(self)}")
        column = self._columns[name]
        if column.of:
            raise KeyError(f"{name!r} contains {column.of}, which cannot be read as a column")
        array = column.values.view() if column.present.all() else _masked(column)
        array.flags.writeable = False
        return array

    def __repr__(self) -> str:
        return f"<columns {', '.join(self)}>"


class JoinedColumns(Mapping[str, Column]):
    """The columns of several packs, concatenated; each column is made when it is needed.

    Parameters
    ----------
    parts : sequence of (str, mapping of str to Column)
        For each pack, the name of the pack in messages, and the pack's columns.
    chosen : (N,) int64 array, optional
        The indices of the selected samples among the samples of all packs; by default all.

    Raises
    ------
    OptionError
        If a column is accessed that some packs lack, or whose type differs between packs.
    """

    def __init__(self, parts: Sequence[tuple[str, Mapping[str, Column]]], chosen: Ints | None = None) -> None:
        self._parts = parts
        self._chosen: slice | Ints = slice(None) if chosen is None else chosen

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for _, columns in self._parts for name in columns))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return any(name in columns for _, columns in self._parts)

    def __getitem__(self, name: str) -> Column:
        if name not in self:
            raise KeyError(name)
        found = [self._columns_of(name, root, columns) for root, columns in self._parts]
        for (root, _), column in zip(self._parts, found, strict=True):
            here, there = _described(found[0]), _described(column)
            if here != there:
                first = printable(self._parts[0][0])
                raise OptionError(f"the column {name} contains {here} in {first}, but {there} in {printable(root)}")
            if name == "label" and column.ids != found[0].ids:
                raise OptionError("the packs have different classes: pass open_dataset([a, b], classes='union')")
        values = [column.values for column in found]
        ids = found[0].ids
        if ids is not None:
            ids, maps = united_ids([column.ids or {} for column in found])
            values = [_with_new_ids(column, new_ids) for column, new_ids in zip(found, maps, strict=True)]
        present = np.concatenate([column.present for column in found])
        return Column(np.concatenate(values)[self._chosen], present[self._chosen], ids, found[0].of)

    def _columns_of(self, name: str, root: str, columns: Mapping[str, Column]) -> Column:
        if name in columns:
            return columns[name]
        other = next(root for root, columns in self._parts if name in columns)
        raise OptionError(
            f"{printable(root)} has no column {name}, which {printable(other)} has: select samples in each dataset "
            "separately"
        )


def _described(column: Column) -> str:
    """Describe the type of a column's values: equal types have equal descriptions."""
    if column.kind == "numbers":
        return f"{column.values.dtype} numbers"
    return "ids without names" if column.ids is not None and not column.ids else column.kind


def united_ids(classes: Sequence[Mapping[str, int]]) -> tuple[dict[str, int], list[dict[int, int]]]:
    """Merge classes by name. Return the id of each class, and for each mapping a dict from changed ids to new ids.

    The classes of the first mapping keep their ids. An additional class keeps its id if no other class has this id;
    otherwise it gets a new id above all others.

    Parameters
    ----------
    classes : sequence of mapping of str to int
        Class ids by class name.
    """
    united: dict[str, int] = {}
    for ids in classes:
        taken = set(united.values())
        for name, number in ids.items():
            if name not in united:
                united[name] = number if number not in taken else max([*united.values(), *ids.values()]) + 1
    maps = [{own: united[name] for name, own in ids.items() if united[name] != own} for ids in classes]
    return united, maps


def _with_new_ids(column: Column, new_ids: Mapping[int, int]) -> npt.NDArray[Any]:
    """Return the class ids of a column, renumbered by a mapping of old to new ids."""
    values = column.values
    for old, new in new_ids.items():
        values = np.where(column.values == old, new, values)
    return values


def _masked(column: Column) -> npt.NDArray[Any]:
    dtype = column.values.dtype
    nothing: Any = {"f": np.nan, "O": None, "b": False}.get(dtype.kind, -1)
    if dtype.kind == "i" and column.ids is None:
        nothing = np.iinfo(dtype).min
    values = np.where(column.present, column.values, np.array(nothing, dtype))
    values.flags.writeable = False
    return np.ma.MaskedArray(values, mask=~column.present, fill_value=nothing)


class Targets(np.ndarray[Any, np.dtype[Any]]):
    """The read-only labels of N samples, an (N,) array that also behaves like ImageFolder's list.

    ``a.targets + b.targets`` concatenates. Adding a list also concatenates, and returns a list. `count`, `index` and
    the truth value behave as in a list. Scripts for ImageFolder rely on this; an ordinary array would silently add the
    numbers. All other operations, such as ``targets[mask]``, ``targets == 3``, ``targets * 2`` or ``targets.copy()``,
    return an ordinary array. An unpickled copy is a `Targets` array too.
    """

    __slots__ = ()
    _plain_attributes = frozenset(dir(np.ndarray)) - {"__class__", "flags", "setflags"}

    @classmethod
    def of(cls, labels: npt.ArrayLike) -> Targets:
        """Return labels as a `Targets` array. If `labels` is an array, both share their memory."""
        targets = np.asarray(labels).view(cls)
        targets.flags.writeable = False
        return targets

    def __getattribute__(self, name: str) -> Any:
        own = name in Targets.__dict__ or name not in Targets._plain_attributes
        return object.__getattribute__(self if own else _plain(self), name)

    def __getitem__(self, index: Any) -> Any:
        return _plain(self)[index]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*_plain(inputs), **_plain(options))

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return function(*_plain(args), **_plain(options))

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Targets):
            return Targets.of(np.concatenate([_plain(self), _plain(other)]))
        return _plain(self).tolist() + other if isinstance(other, list) else _plain(self) + other

    def __radd__(self, other: Any) -> Any:
        return other + _plain(self).tolist() if isinstance(other, list) else other + _plain(self)

    def __iadd__(self, other: Any) -> Any:  # the array is read-only, so the sum is another object
        return self + other

    def __bool__(self) -> bool:
        return len(self) > 0

    def __contains__(self, label: object) -> bool:
        return self.count(label) > 0

    def count(self, label: object) -> int:
        """Return the number of samples with this label."""
        return int(np.count_nonzero(self._are(label)))

    def index(self, label: object, start: int = 0, stop: int = sys.maxsize) -> int:
        """Return the first index, from `start` to `stop` - 1, with this label; raise ValueError if there is none."""
        first, end, _ = slice(start, stop).indices(len(self))
        found = np.flatnonzero(self._are(label)[first:end])
        if not len(found):
            raise OptionError(f"{label!r} is not among the targets")
        return first + int(found[0])

    def _are(self, label: object) -> npt.NDArray[np.bool_]:
        is_number = isinstance(label, int | float | np.integer | np.floating)
        return np.asarray(_plain(self) == label) if is_number else np.zeros(len(self), bool)

    def __repr__(self) -> str:
        return repr(_plain(self))

    def __copy__(self) -> Labels:
        copied: Labels = _plain(self).copy()
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        return Targets.of, (_plain(self),)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()


def _plain(value: Any) -> Any:
    """Return `value` with each `Targets` array in it replaced by an ordinary array."""
    if isinstance(value, Targets):
        return np.ndarray.view(value, np.ndarray)
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return {name: _plain(one) for name, one in value.items()} if type(value) is dict else value


def indices_where(condition: str | npt.ArrayLike, columns: Mapping[str, Column], length: int) -> Ints:
    """Return the indices of those of `length` samples that a condition or a mask selects."""
    if isinstance(condition, str):
        return np.flatnonzero(Condition(condition).chosen(columns))
    mask: Any = np.ma.filled(condition, False) if np.ma.isMaskedArray(condition) else np.asarray(condition)
    if mask.dtype != bool or mask.shape != (length,):
        raise OptionError(
            f"where= must be a condition or a mask of {length} bools, one for each sample, not {mask.dtype} of shape "
            f"{mask.shape}"
        )
    return np.flatnonzero(mask)


def normalized_indices(indices: Sequence[int] | Ints, length: int) -> Ints:
    """Return indices as an array of numbers from 0 to `length` - 1; negative `indices` count from the end.

    Raises
    ------
    TypeError
        If the indices are not integers.
    IndexError
        If an index is out of range.
    """
    found = np.asarray(indices)
    if found.dtype.kind == "b" or found.ndim != 1:
        raise OptionTypeError(
            f"indices must be a sequence of integers, not {found.dtype} of shape {found.shape}. For a mask use "
            "dataset.where(mask)"
        )
    if found.dtype.kind not in "iu":
        found = np.array([operator.index(index) for index in indices], np.int64)
    outside = (found < -length) | (found >= length)
    if outside.any():
        raise _out_of_range(found[outside][0], length)
    return np.where(found < 0, found + length, found).astype(np.int64, copy=False)


def _out_of_range(index: int, length: int) -> IndexError:
    return NoSampleError(f"index {index} is out of range: the dataset has {length} samples")


def require_known_loader(loader: Callable[[str], Any] | None) -> None:
    """Raise TypeError for a loader other than torchvision's, because a pack has no files that a loader could open."""
    folder = sys.modules.get("torchvision.datasets.folder")
    known = [getattr(folder, name, None) for name in ("default_loader", "pil_loader")]
    if loader is not None and loader not in known:
        raise OptionTypeError(
            f"loader={loader!r} opens files, but the images of a pack are not files: pass output='bytes', so that "
            "transform= gets the bytes of each file"
        )


def valid_rows(
    samples: Samples, classes: Sequence[str], is_valid_file: Callable[[str], bool], allow_empty: bool
) -> Ints:
    """Return the rows of samples whose names `is_valid_file` accepts.

    Raises
    ------
    FileNotFoundError
        If a class loses all of its samples, unless `allow_empty` is true. ImageFolder raises the same error.
    """
    valid = np.array([number for number, (name, _) in enumerate(samples) if is_valid_file(name)], np.int64)
    labels = samples.labels
    lost = np.setdiff1d(labels, labels[valid]).tolist()
    if lost and not allow_empty:
        names = ", ".join(classes[label] if 0 <= label < len(classes) else str(label) for label in lost)
        raise FileNotFoundError(
            f"is_valid_file rejects all samples of the classes {names}; allow_empty=True allows this"
        )
    return valid


def row_of(names: Names, name: str) -> int:
    """Return the row of the sample named `name`, searching block by block; FileNotFoundError if there is none."""
    encoded = encode_name(name)
    for start in range(0, len(names.blob), _SEARCHED):
        part = names.blob[start : start + _SEARCHED + len(encoded)].tobytes()
        at = part.find(encoded)
        while at >= 0:
            row = int(np.searchsorted(names.ends, start + at + len(encoded)))
            if row < len(names) and names[row] == name:
                return row
            at = part.find(encoded, at + 1)
    raise FileNotFoundError(f"{printable(names.path)}: no sample has the name {printable(name)}")
