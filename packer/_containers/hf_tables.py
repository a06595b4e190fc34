"""Tables of Hugging Face's `datasets`, with one sample in each row: roles and values of their columns.

A column of images is a structure of ``bytes`` and ``path``. In the metadata of a table's schema, the value of the key
``huggingface`` describes the columns. These descriptions ("features") tell which columns are images, and list the class
names of each ClassLabel column. The values of a ClassLabel are class ids, or -1 for no class.

To bound memory, values are read a few rows at a time, because a few bytes of a column may expand to many values.
Examples are indices that all refer to one long text in a dictionary, and a list of nulls, which takes no bytes at all.
"""

from __future__ import annotations

import abc
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._account import Account
from packer._containers.contract import Chosen, ChosenField, Container, Entry, Packed, Piece, field_name, suffix_of
from packer._containers.roles import NAMES, are_whole, has_label_name, is_label_name
from packer._fields import KINDS, OF_SCALARS, Field, Stored
from packer._fields.encoding import parsed_json
from packer._storage.packfile import PackFile
from packer.errors import OptionError, SourceError, printable

if TYPE_CHECKING:
    from typing_extensions import Self

FEATURES = b"huggingface"
"""The key in a schema's metadata under which the features are stored."""

_EXIF = "datasets rotates images by their EXIF orientation, but packer, like ImageFolder, does not: pass --exif apply"
_ROLES = NAMES["tables of datasets"]
_BLOCK = 1 << 16  # labels
_UNSIGNED = {"uint8": "int16", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
_FLOATS = {"halffloat": "float32", "float": "float32", "double": "float64"}
_ABLE = (*OF_SCALARS, *_UNSIGNED, *_FLOATS, "string", "large_string")
"""The types of columns that may be labels, by their names in pyarrow."""


def _blocks(values: Iterator[float | None]) -> Iterator[npt.NDArray[np.float64]]:
    """Yield arrays of numbers, with NaN for missing values."""
    while block := list(itertools.islice(values, _BLOCK)):
        yield np.array(block, np.float64)


def features_of(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """Return the features in a schema's metadata, by column; empty if the metadata have none."""
    try:
        document = parsed_json((metadata or {})[FEATURES].decode("utf-8"))
        features = document["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return features if isinstance(features, dict) else {}


def names_are_plain(paths: Iterable[str | None]) -> bool:
    """Tell whether the last parts of all paths are valid names that differ from each other."""
    seen = set()
    for path in paths:
        base = _base(path)
        if base in ("", ".", "..") or "\0" in base or base in seen or len(base) > 255:
            return False
        seen.add(base)
    return True


def name_of(path: str | None, row: str, head: bytes) -> str:
    """Return an image's name with a suffix: the last part of its path; without a path, the name of its row."""
    base = row if path is None else _base(path)
    return base if path is not None and "." in base[1:] else base + suffix_of(head)


def own_name(name: Any, where: str, head: bytes) -> str:
    """Return the name of an image from the name column; SourceError if the name is invalid."""
    if not isinstance(name, (str, int)) or isinstance(name, bool):
        raise SourceError(f"{where}: {printable(name)[:80]} is not a valid name")
    return str(name) if "." in str(name).rpartition("/")[2][1:] else f"{name}{suffix_of(head)}"


def _base(path: str | None) -> str:
    return re.split(r"[/\\]", path or "")[-1]


def _image(images: Sequence[str]) -> str:
    return next((name for name in _ROLES.images if name in images), images[0])


def _label(others: Mapping[str, Any], features: Mapping[str, Any]) -> str | None:
    """Return the column of the labels: the one named like labels, or the only ClassLabel; otherwise None."""
    able = [name for name, kind in others.items() if str(kind) in _ABLE]
    if known := [name for name in _ROLES.labels if name in able]:
        return known[0]
    classes = [name for name in others if _type_of(features.get(name)) == "ClassLabel"]
    found = classes or [name for name in able if is_label_name(name)]
    return found[0] if len(found) == 1 else None


def _add_candidates(account: Account, others: Mapping[str, Any], features: Mapping[str, Any]) -> None:
    """Record in `account` all columns that may hold the labels, except lists of classes, which become fields."""
    for name, kind in others.items():
        feature = features.get(name)
        if _type_of(feature) == "ClassLabel" or (
            has_label_name(name) and str(kind) != "null" and _field("x", str(kind), feature).kind != "labels"
        ):
            able = str(kind) in _ABLE
            account.looks_like_labels(
                "column", name, f"--key label={name}" if able else "", "" if able else f"has values of {kind}"
            )


def _field(name: str, kind: str, feature: Any) -> Field:
    """Return the field for a column of a pyarrow type."""
    scalar = {name: name for name in OF_SCALARS} | _UNSIGNED | _FLOATS
    if kind in scalar:
        classes = _classes(feature)
        return Field(name, "scalar", scalar[kind]) if classes is None else Field(name, "class", classes=tuple(classes))
    if kind.startswith(("string", "large_string")) or re.match(r"date|time|duration|decimal", kind):
        return Field(name, "text")
    if re.match(r"(large_|fixed_size_)?binary", kind):
        return Field(name, "bytes")
    listed = re.fullmatch(r"(?:large_)?(?:fixed_size_)?list<[^<>:]+: (\w+)(?: not null)?>(?:\[\d+\])?", kind)
    if listed and listed[1] in scalar:
        of = feature.get("feature") if isinstance(feature, dict) else None
        classes = _classes(
            of if isinstance(of, dict) else feature[0] if isinstance(feature, list) and feature else None
        )
        of_numbers = Field(name, "array", scalar[listed[1]], 1)
        return of_numbers if classes is None else Field(name, "labels", classes=tuple(classes))
    return Field(name, "json")


def _stored(of: Field, value: Any) -> Stored:
    if value is None or (of.kind == "scalar" and isinstance(value, float) and math.isnan(value)):
        return None
    if KINDS[of.kind].has_classes:
        if of.is_blob:
            return of.encode([number for number in value if number is not None])
        return None if value == -1 else of.encode(value)
    if of.kind == "text" and not isinstance(value, str):
        value = str(value)
    return of.encode(np.array(value, of.dtype) if of.kind == "array" else value)


def _classes(feature: Any) -> list[str] | None:
    """Return the class names of a ClassLabel feature; None for other features."""
    if _type_of(feature) != "ClassLabel":
        return None
    names = feature.get("names")
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _undictionaried(kind: Any) -> Any:
    """Return a column's type; for a dictionary, such as the categories of pandas, the type of the values in it."""
    return kind.value_type if str(kind).startswith("dictionary<") else kind


def _type_of(feature: Any) -> Any:
    return feature.get("_type") if isinstance(feature, dict) else None


def is_image_feature(feature: Any) -> bool:
    """Tell whether a feature is an image, stored as a structure or as plain bytes."""
    return bool(_type_of(feature) == "Image")


def begin_with_image(heads: Iterable[bytes]) -> bool:
    """Tell whether the first nonempty value of a column is an image, by its first bytes."""
    return bool(suffix_of(next(filter(None, heads), b"")))


def no_column(file: PackFile, column: str) -> SourceError:
    """Return the error for a file that lacks a column of the first file."""
    return SourceError(f"{printable(file.path)}: has no column {printable(column)}, unlike the first file")


class TableColumns(NamedTuple):
    """The columns of a file, divided into columns of images and other columns.

    Attributes
    ----------
    images : sequence of str
        The columns of images.
    others : mapping of str to pyarrow.DataType
        The other columns.
    features : mapping
        The features of the columns, as `features_of` returns them.
    """

    images: Sequence[str]
    others: Mapping[str, Any]
    features: Mapping[str, Any]


RowValues = Mapping[str, Any] | ValueError
"""The values of a row by column; or why the row cannot be used."""


class TableRow(NamedTuple):
    """One row of a file: its image, and the values of other columns.

    Attributes
    ----------
    values : mapping or ValueError
        The values of the columns that are read; or the error with the reason why the row cannot be used.
    path : str, optional
        The path of the image.
    image : Piece or Packed, optional
        The location of the image; None if it is null.
    head : bytes
        The image's first bytes.
    pictures : mapping
        The locations of further images, by field.
    """

    values: RowValues
    path: str | None
    image: Piece | Packed | None
    head: bytes
    pictures: Mapping[str, Piece | Packed]


@dataclass(eq=False)
class TableImages(Container):
    """Files of tables with a column of images.

    Attributes
    ----------
    image : str
        The column of the images.
    label, name : str, optional
        The columns of labels and of names.
    pictures : dict of str to Field
        The fields of further columns of images, by column.
    others : dict of str to Field
        The fields of other columns, by column.
    whole_labels : bool
        True if labels are class ids that are stored as floats, because some labels are missing.
    """

    image: str = ""
    label: str | None = None
    name: str | None = None
    pictures: dict[str, Field] = field(default_factory=dict)
    others: dict[str, Field] = field(default_factory=dict)
    whole_labels: bool = False

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> Self:
        container = cls.of_files(paths)
        with PackFile(paths[0]) as file:
            container._choose(cls.columns_in(file, keys.get("image")), keys, printable(file.path))
        container.fields = (*container.pictures.values(), *container.others.values())
        if container.label is not None and container.label_type == "float":
            whole, gaps = are_whole(_blocks(cls._numbers(paths, container.label)))
            if whole and gaps:
                container.label_type, container.whole_labels = "class", True
        return container

    @classmethod
    @abc.abstractmethod
    def columns_in(cls, file: PackFile, image: str | None) -> TableColumns:
        """Return the columns of a file; `image` is the image column that the user chose.

        Raises the same errors as `open`.
        """

    @classmethod
    @abc.abstractmethod
    def values_in(cls, file: PackFile, column: str) -> Iterator[Any]:
        """Yield the values of a column without images; skip rows that cannot be used."""

    @abc.abstractmethod
    def rows_in(self, file: PackFile, unit: int) -> tuple[int, Iterator[TableRow]]:
        """Return how many rows a file has, and an iterator over them. Raises the same errors as `entries`."""

    def entries(self, unit: int) -> Iterator[Entry]:
        with self.opened(unit) as file:
            count, rows = self.rows_in(file, unit)
            stem, digits = self.files[unit].rpartition(".")[0], len(str(count))
            for number, row in enumerate(rows):
                yield self._entry(row, f"{stem}/{number:0{digits}d}", f"row {number}")

    def columns_to_read(self) -> list[str]:
        """Return the names of the columns to read for fields, labels and names."""
        roles = (column for column in (self.label, self.name) if column is not None)
        return list(dict.fromkeys([*self.others, *roles]))

    def _entry(self, row: TableRow, numbered: str, where: str) -> Entry:
        """Return the sample of a row. The sample may have a `problem`.

        `numbered` is the sample's name if the row has none.
        """
        name = name_of(row.path, numbered, row.head)
        if row.image is None:
            return Entry(
                name,
                b"",
                problem=(f"{where}: the file does not contain its image: embed the image, or leave the row out"),
            )
        if isinstance(row.values, ValueError):
            return Entry(name, b"", problem=f"{where}: {row.values}")
        try:
            if self.name is not None:
                name = own_name(row.values[self.name], where, row.head)
            values = {**self._values(row.values, where), **row.pictures}
            return Entry(name, row.image, self._label_of(row.values, where), values)
        except SourceError as error:
            return Entry(name, b"", problem=str(error))

    def _values(self, row: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Return the field values of a row; SourceError if a value does not fit the kind of its field."""
        found: dict[str, Any] = {}
        for column, of in self.others.items():
            try:
                if (stored := _stored(of, row[column])) is not None:
                    found[of.name] = stored
            except (OverflowError, TypeError, ValueError) as error:
                raise SourceError(f"{where}: column {printable(column)}: {error}") from error
        return found

    def _label_of(self, row: Mapping[str, Any], where: str) -> int | float | str | None:
        """Return the label of a row; SourceError if the label is invalid."""
        label = None if self.label is None else row[self.label]
        if label is not None and not isinstance(label, (int, float, str)):
            raise SourceError(f"{where}: column {printable(self.label)}: {printable(label)[:80]} is not a label")
        if isinstance(label, float) and self.whole_labels:
            return None if math.isnan(label) else int(label)
        return None if isinstance(label, str) and not label.strip() else label

    def _choose(self, columns: TableColumns, keys: Mapping[str, str], where: str) -> None:
        """Choose the roles of columns. Raises the same errors as `open`."""
        chosen, images, features = Chosen.of(keys), columns.images, columns.features
        others = {name: _undictionaried(kind) for name, kind in columns.others.items()}
        for column in chosen.all_keys():
            if column not in others and column not in images:
                shown = ", ".join(map(printable, [*images, *others][:8]))
                raise SourceError(f"{where}: has no column {printable(column)}: it has {shown}")
        if chosen.image is None and not images:
            raise SourceError(f"{where}: has no image column: name one with --key image=COLUMN")
        self.image, self.name = chosen.image or _image(images), chosen.name
        if self.image not in images:
            raise SourceError(f"{where}: column {printable(self.image)} has no images")
        self.label = chosen.label if keys else _label(others, features)
        if self.label is not None:
            self.classes = _classes(features.get(self.label))
            self.label_type = "float" if str(others.get(self.label)) in _FLOATS else "class"
            self.account.taken("column", "the label", [self.label])
        elif not keys:
            _add_candidates(self.account, others, features)
        by_key = chosen.by_key()
        for column in [*images, *others]:
            if column not in by_key and (keys or column in (self.image, self.label)):
                if column not in (self.image, self.label, self.name):
                    self.account.left_out("column", "no --key names it", [column], chosen=True)
                continue
            of = by_key.get(column) or ChosenField(self._field_name(column), "", column)
            try:
                self._add(of, str(others[column]) if column in others else None, features.get(column))
            except ValueError as error:
                if column in by_key:
                    raise OptionError(f"{of}: {error}") from error
                raise SourceError(f"{where}: column {printable(column)}: {error}") from error
        if features:
            self.notes.append(_EXIF)

    def _field_name(self, column: str) -> str:
        """Return the field name for a column: the column's own name if it is valid."""
        name = field_name(column, [of.name for of in (*self.pictures.values(), *self.others.values())])
        if name != column:
            self.notes.append(f"the column {printable(column)} becomes the field {name}")
        return name

    def _add(self, of: ChosenField, kind: str | None, feature: Any) -> None:
        """Add a field for a column of type `kind` (None: a column of images); ValueError if no field fits."""
        if kind is None:
            self.pictures[of.key] = Field(of.name, of.kind or "image")
        elif kind == "null":
            self.notes.append(f"the column {printable(of.key)} is left out: it has no values")
        else:
            natural = _field(of.name, kind, feature)
            self.others[of.key] = natural if of.kind in ("", natural.kind) else of.of_kind()

    @classmethod
    def _numbers(cls, paths: Sequence[Path], column: str) -> Iterator[float | None]:
        for path in paths:
            with PackFile(path) as file:
                yield from cls.values_in(file, column)


MOST_ROWS = 1024
"""The maximum number of rows that are read at once."""

_MOST = 1 << 22  # values and bytes in rows that are read together
_MOST_ROW = 1 << 26  # values and bytes in a single row
_TEXTS = ("string", "large_string", "binary", "large_binary")


def row_lists(columns: Sequence[Any], rows: int) -> Iterator[list[list[Any]] | ValueError]:
    """Yield the values of columns, a few rows at a time; for a row with too many values or bytes, yield an error.

    Parameters
    ----------
    columns : sequence of pyarrow.Array
    rows : int
        The length of every column.
    """
    start, count = 0, MOST_ROWS
    while start < rows:
        parts = [column.slice(start, count) for column in columns]
        expanded = sum(map(_expanded, parts))
        if expanded > _MOST and count > 1:
            count = max(1, min(count, len(parts[0])) // 2)
            continue
        if expanded > _MOST_ROW:
            yield ValueError(f"it has {expanded:,} values and bytes; the limit is {_MOST_ROW:,}")
        else:
            yield [_values(part) for part in parts]
        start += count


def rows_in_lists(names: Sequence[str], lists: list[list[Any]] | ValueError) -> Iterator[RowValues]:
    """Yield the rows in `lists`, which `row_lists` yielded for the columns `names`."""
    if isinstance(lists, ValueError):
        yield lists
    else:
        yield from (dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True))


def _values(array: Any) -> list[Any]:
    """Return the values of an array.

    Dictionary values, and lists of these, are looked up all at once, because
    pyarrow takes 14 times as long to look them up one by one.
    """
    kind = str(array.type)
    if kind.startswith("dictionary<"):
        return list(array.dictionary_decode().to_pylist())
    if kind.startswith(("list<", "large_list<")) and "dictionary<" in kind:
        inner = iter(_values(array.flatten()))
        lengths = array.value_lengths().to_pylist()
        return [None if length is None else list(itertools.islice(inner, length)) for length in lengths]
    return list(array.to_pylist())


def _expanded(array: Any) -> int:
    """Return an upper bound for the number of values and bytes to which an array expands."""
    array = getattr(array, "storage", array)
    kind, count = str(array.type), len(array)
    if kind.startswith("dictionary<"):
        return _expanded_dictionary(array)
    if kind.startswith("struct<"):
        return count + sum(map(_expanded, array.flatten()))
    if array.type.num_fields:  # lists and maps
        return count + _expanded(array.flatten())
    return count + int(array.nbytes)


def _expanded_dictionary(array: Any) -> int:
    """Return an upper bound for the number of values and bytes to which a dictionary array expands."""
    import pyarrow.compute as pc

    count, each = len(array), 1 + int(array.dictionary.nbytes)
    if count * each > _MOST and str(array.dictionary.type) in _TEXTS:
        lengths = pc.take(pc.binary_length(array.dictionary), array.indices)
        return count + int(pc.sum(lengths).as_py() or 0)
    return count * each
