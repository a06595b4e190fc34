"""Chooses the role of each column, feature, member or key in a container's samples: image, label, name, or field.

`NAMES` lists the usual keys of images, labels and names. `ColumnContainer` chooses the roles for containers in which
each column has one type for all samples. Other containers choose roles by the same keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._account import Account
from packer._containers.contract import (
    Chosen,
    ChosenField,
    Container,
    Entry,
    Piece,
    field_name,
    image_name,
    suffix_at,
    suffix_of,
)
from packer._fields import KINDS, MOST_FIELDS, OF_SCALARS, Field, Stored
from packer.errors import OptionError, SourceError, printable

LABEL_SUFFIXES = (".csv", ".tsv", ".txt", ".json", ".jsonl")
"""The suffixes of files that may have labels for images in other files."""

_LABELS = ("label", "class", "cls", "target", "category", "labels", "targets", "y")
"""The usual names of labels, in lower case; if a container has several, the first in this list is the label."""


def is_label_name(name: str) -> bool:
    """Tell whether a key, column, member or dataset is named like labels.

    Only the last part of a path is compared. Case is ignored.
    """
    return name.rpartition("/")[2].lower() in _LABELS


def has_label_name(name: str) -> bool:
    """Tell whether a name contains a word for labels: ``train_labels``, ``class_id``, ``LabelName``."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|y", name.rpartition("/")[2])
    return is_label_name(name) or any(is_label_name(word) for word in words)


@dataclass(frozen=True)
class RoleNames:
    """The usual keys of image, label and name in one kind of container, the likeliest first.

    Attributes
    ----------
    images, labels, names : tuple of str
        A key is also a key of labels if its last part, after a slash or a dot, is named like labels.
    """

    images: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def is_label(self, key: str) -> bool:
        """Tell whether a key is named like labels."""
        return key in self.labels or is_label_name(key.replace(".", "/"))

    def label_among(self, keys: Iterable[str]) -> str | None:
        """Return the key of the labels; None if no key is named like labels."""
        there = list(keys)
        if (known := next((key for key in self.labels if key in there), None)) is not None:
            return known
        return min(filter(self.is_label, there), key=_rank, default=None)

    def choose_label(
        self, what: str, able: Mapping[str, Sequence[Any]], account: Account, *, candidates: bool = True
    ) -> str | None:
        """Return the key of the labels; if there is none, record in `account` the keys that look like labels.

        Parameters
        ----------
        what : str
            The container's word for keys: ``column``, ``feature``.
        able : mapping
            The keys that may hold labels, with their values in the inspected samples.
        account : Account
        candidates : bool
            Whether to record keys that look like labels if no key is chosen.
        """
        label = self.label_among(able)
        if label is not None:
            account.taken(what, "the label", [label])
            others = [key for key in able if key != label and self.is_label(key)]
            account.taken(what, f"a field, because {printable(label)} is the label", others)
        elif candidates:
            add_candidates(account, what, able)
        return label


_ENCODED = ("image", "img", "jpg", "jpeg", "png", "webp")
_TAR_IMAGES = (
    *("jpg", "jpeg", "jpe", "jfif", "webp", "png", "bmp", "tif", "tiff"),
    *("ppm", "pgm", "pbm", "pnm", "gif", "img", "image"),
)

NAMES: Mapping[str, RoleNames] = MappingProxyType(
    {
        "columns": RoleNames((*_ENCODED, "x", "0"), ("label", "cls", "class", "class_id", "target", "y")),
        "hdf5": RoleNames(("encoded_images", "imgs", "images", "image", "data", "x", "binary_data")),
        "n5": RoleNames((), ("labels", "label", "targets", "y")),
        "pickled lmdb": RoleNames(("img", "image", "jpg", "jpeg", "png"), ("label", "target", "cls", "class", "y")),
        "tables of datasets": RoleNames(_ENCODED, ("label", "labels")),
        "tfrecord": RoleNames(
            ("image/encoded", "image", "jpg", "jpeg", "png", "webp", "image_raw"),
            ("image/class/label", "label", "cls"),
            ("image/filename", "file_name", "filename", "__key__", "key"),
        ),
        "webdataset": RoleNames(_TAR_IMAGES, ("cls", "class", "label", "lbl")),
    }
)
"""The names for each kind of container. The names of the container's own tools come first: their meaning is certain."""

_OF_OTHERS = frozenset(
    [
        *("alpha", "age", "angle", "area", "aspect", "bands", "bits", "blur", "bytes", "camera", "caption"),
        *("captions", "channel", "channels", "colorspace", "comment", "copyright", "count", "crc", "date"),
        *("day", "depth", "description", "dimension", "dimensions", "dpi", "duration", "encoding", "exif"),
        *("extension", "file", "filename", "filepath", "folder", "format", "frame", "frames", "h", "height"),
        *("hash", "id", "idx", "image", "img", "index", "instance", "key", "lang", "language", "lat"),
        *("latitude", "length", "license", "lon", "longitude", "md5", "mime", "mode", "month", "name", "num"),
        *("number", "offset", "orientation", "page", "patient", "path", "position", "prompt", "quality"),
        *("question", "resolution", "row", "score", "seed", "seq", "sequence", "session", "sha", "sha1"),
        *("sha256", "shape", "shard", "similarity", "site", "size", "source", "split", "stamp", "status"),
        *("subject", "text", "time", "timestamp", "title", "txt", "type", "uid", "uri", "url", "user", "uuid"),
        *("value", "version", "video", "view", "w", "weight", "width", "x", "year"),
    ]
)
"""Words in the names of keys that are no labels, although their values may repeat."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_FEWEST = 4  # values that are checked for repetition
_LARGEST = 1 << 20  # largest integer that may be a class id
_LONGEST_TEXT = 64  # characters of the name of a class


def add_candidates(
    account: Account, what: str, values: Mapping[str, Sequence[Any]], option: str = "--key label={}"
) -> None:
    """Record keys that look like labels, in the account of a container without labels.

    Parameters
    ----------
    account : Account
    what : str
        The container's word for keys: ``column``, ``feature``.
    values : mapping
        The possible labels in the inspected samples, by key.
    option : str
        The option that chooses a key, with ``{}`` for the key.
    """
    for key, found in values.items():
        if found and (has_label_name(key) or _repeat(key, found)):
            account.looks_like_labels(what, key, option.format(key))


def _rank(key: str) -> int:
    return _LABELS.index(key.replace(".", "/").rpartition("/")[2].lower())


def _words(key: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORDS.findall(key))


def _repeat(key: str, values: Sequence[Any]) -> bool:
    """Tell whether values repeat like labels: a few small integers or short texts, under a key that may mean labels."""
    if len(values) < _FEWEST or _words(key) & _OF_OTHERS:
        return False
    small = all(type(value) is int and 0 <= value < _LARGEST for value in values)
    short = all(isinstance(value, str) and 0 < len(value) <= _LONGEST_TEXT for value in values)
    return (small or short) and 2 <= len(set(values)) <= len(values) // 2


_BLOBS = tuple(name for name, kind in KINDS.items() if kind.file == "content")

FIRST_SAMPLES = 64
"""How many samples are inspected to find the columns that may hold the labels."""

Value = Piece | bytes | int | float | np.ndarray[Any, Any] | None
"""A value of a column: the location of its bytes, or the bytes; a number; or an array."""


class ColumnType(NamedTuple):
    """The type of a column, in packer's terms.

    Attributes
    ----------
    kind : str
        ``"image"``, ``"bytes"``, ``"text"``, ``"json"``, ``"scalar"`` or ``"array"``; empty if packer does not
        support the column.
    dtype : str
        The dtype of the field that a scalar or an array becomes.
    rank : int
        The number of axes of an array.
    why : str
        Why packer does not support the column, or does not use it as the image.
    """

    kind: str
    dtype: str = ""
    rank: int = 0
    why: str = ""


WIDER = {"uint32": "int64", "uint64": "int64"}
"""The field dtypes for stored dtypes that fields do not support; a number that does not fit is an error."""


def array_type(array: npt.NDArray[Any]) -> ColumnType:
    """Return the type of a column that holds arrays like this one."""
    return ColumnType("array", WIDER.get(array.dtype.name, array.dtype.name), array.ndim)


@dataclass(eq=False)
class ColumnContainer(Container):
    """A container in which each column has one type for all samples.

    Attributes
    ----------
    image : str
        The column of the images.
    label, name : str, optional
        The columns of the labels and of the names.
    fields_of : dict of str to Field
        The fields, by column.
    """

    image: str = ""
    label: str | None = None
    name: str | None = None
    fields_of: Mapping[str, Field] = field(default_factory=dict)

    @property
    def used(self) -> set[str]:
        """The columns that have a role."""
        return {column for column in (self.image, self.label, self.name) if column is not None} | self.fields_of.keys()

    def choose_roles(
        self,
        columns: Mapping[str, ColumnType],
        keys: Mapping[str, str],
        where: str,
        values: Mapping[str, Sequence[Any]] = MappingProxyType({}),
        *,
        name: str | None = None,
        label: str | None = None,
        account: Account | None = None,
    ) -> None:
        """Choose the roles of columns: by `keys` if the user chose any, otherwise by names and types.

        Parameters
        ----------
        columns : mapping of str to ColumnType
        keys : mapping of str to str
            The `keys` argument of `Container.open`.
        where : str
            The file that has the columns, for messages.
        values : mapping of str to sequence
            The numbers and short texts in the first samples, by column.
        name : str, optional
            The column of names, unless a key chooses another column.
        label : str, optional
            The column of labels if `keys` is empty. By default, the columns' names decide.
        account : Account, optional
            Receives the roles of columns; by default the container's account.

        Raises
        ------
        SourceError
            If a key names a missing column, or there is no image column.
        OptionError
            If a column does not have the kind that its key asks for.
        """
        chosen, account = Chosen.of(keys), self.account if account is None else account
        for column in chosen.all_keys():
            if column not in columns:
                raise SourceError(f"{where}: no column {printable(column)!r}: there are {_listed(columns)}")
            if not columns[column].kind:
                raise SourceError(f"{where}: column {printable(column)!r} {columns[column].why}")
        self.image = image = chosen.image or _image(columns, where)
        if columns[image].kind not in ("image", "bytes"):
            raise OptionError(f"--key image={image}: the column contains {columns[image].kind}, not images")
        if columns[image].why:
            raise SourceError(f"{where}: column {printable(image)!r} {columns[image].why}")
        self.name = name = chosen.name or name
        if name is not None and columns[name].kind not in ("text", "bytes"):
            raise OptionError(f"--key name={name}: the column contains {columns[name].kind}, not names")
        others = {column: type for column, type in columns.items() if column not in (image, name)}
        self.label = label = chosen.label if keys else label or _label(others, values, account)
        if label is not None and not _is_label(columns[label], values.get(label, ())):
            raise OptionError(f"--key label={label}: the column contains {columns[label].kind}, which cannot be labels")
        if label is not None and columns[label].dtype.startswith("float"):
            self.label_type = "float"
        self.why_unlabeled = f"they have no {'column that is a label' if label is None else printable(label)}"
        left = {column: type for column, type in others.items() if column != label}
        if keys:
            self.fields_of = self._chosen_fields(chosen, left, columns, account)
        else:
            self.fields_of = self._all_fields(left, account)
        if len(self.fields_of) > MOST_FIELDS:
            raise SourceError(f"{where}: {len(self.fields_of)} columns are too many: select columns with --key")
        self.fields = tuple(self.fields_of.values())

    def _chosen_fields(
        self, chosen: Chosen, others: Iterable[str], columns: Mapping[str, ColumnType], account: Account
    ) -> dict[str, Field]:
        """Return the fields that the user chose; record all other columns in `account`."""
        fields = {column: _field(field, columns[column]) for column, field in chosen.by_key().items()}
        left = [column for column in others if column not in fields]
        account.left_out("column", "--key does not name them", left, chosen=True)
        return fields

    def _all_fields(self, others: Mapping[str, ColumnType], account: Account) -> dict[str, Field]:
        """Return a field for each column that packer supports; record all other columns in `account`."""
        fields: dict[str, Field] = {}
        for column, type in others.items():
            if not type.kind:
                account.left_out("column", f"it {type.why}", [column])
                continue
            name = field_name(column, [field.name for field in fields.values()])
            if name != column:
                self.notes.append(f"the column {printable(column)} becomes the field {name}")
            fields[column] = Field(name, type.kind, type.dtype, type.rank)
        return fields

    def entry(
        self,
        name: str,
        values: Mapping[str, Value],
        read: Callable[[int, int], bytes],
        shape: tuple[int, int] | None = None,
    ) -> Entry:
        """Return the entry of a sample, from the values of its columns.

        Parameters
        ----------
        name : str
            The sample's name without a suffix, for containers without a column of names.
        values : mapping
            The values by column, at least for all columns with a role. A column without a value is not in the mapping.
        read : callable
            Reads a range of the file with the values.
        shape : (height, width), optional
            The size of an image that is stored as pixels.

        Raises
        ------
        ValueError
            If a value does not fit its field; the message has the reason.
        """
        image, label = values.get(self.image), self._label_in(values, read)
        if not isinstance(image, (Piece, bytes)):
            raise ValueError("it has no image")
        if shape is not None:
            suffix = ".png"
        else:
            suffix = suffix_at(read, image.offset, image.size) if isinstance(image, Piece) else suffix_of(image)
        if self.name is not None:
            name = _text(values.get(self.name), read, self.name)
        stored = {field.name: _stored(field, values.get(column)) for column, field in self.fields_of.items()}
        return Entry(image_name(name, suffix), image, label, stored, shape)

    def _label_in(self, values: Mapping[str, Value], read: Callable[[int, int], bytes]) -> int | float | str | None:
        if self.label is None or (value := values.get(self.label)) is None:
            return None
        if isinstance(value, (int, float)):
            if math.isnan(value):
                raise ValueError("its label is NaN")
            return value
        return _text(value, read, self.label)


def _image(columns: Mapping[str, ColumnType], where: str) -> str:
    images = [column for column, type in columns.items() if type.kind == "image"]
    names = [name for image in NAMES["columns"].images for name in (image, f"{image}.bytes")]
    likely = [name for name in names if columns.get(name, ColumnType("")).kind in ("image", "bytes")]
    found = [column for column in likely if column in images] or images or likely
    if not found:
        able = {column: type for column, type in columns.items() if type.kind == "bytes"}
        if not able:
            raise SourceError(f"{where}: no image column: there are {_listed(columns)}")
        found = [column for column in able if able[column].why]
        if len(found) < len(able):
            raise SourceError(f"{where}: no image column found: choose one with --key image=COLUMN, of {_listed(able)}")
    return found[0]


def _label(columns: Mapping[str, ColumnType], values: Mapping[str, Sequence[Any]], account: Account) -> str | None:
    """Return the column that is named like labels; if there is none, record the columns that look like labels."""
    names = NAMES["columns"]
    able = {
        column: values.get(column, ()) for column, type in columns.items() if _is_label(type, values.get(column, ()))
    }
    several = [column for column in columns if names.is_label(column) and columns[column].kind in ("array", "json")]
    account.taken("column", "a field, because its values are not single labels", several)
    label = names.choose_label("column", able, account, candidates=not several)
    if label is None and not several:
        for column in (column for column in columns if names.is_label(column) and not columns[column].kind):
            account.looks_like_labels("column", column, "", columns[column].why)
    return label


def _is_label(type: ColumnType, values: Sequence[Any]) -> bool:
    """Tell whether a column may hold labels: it has numbers, texts, or bytes that are short texts."""
    return type.kind in ("scalar", "text") or (type.kind == "bytes" and bool(values))


def _field(chosen: ChosenField, type: ColumnType) -> Field:
    """Return the field that the user chose for a column."""
    kind, dtype = chosen.kind, type.dtype
    if kind in OF_SCALARS and type.kind == "scalar":
        kind, dtype = "scalar", kind
    kind = kind or type.kind
    able = {"scalar": ("scalar", "class"), "array": ("array",)}.get(type.kind, _BLOBS)
    if kind not in able:
        raise OptionError(f"{chosen}: the column can become {' or '.join(able)}, not {kind}")
    try:
        return Field(chosen.name, kind, "" if kind == "class" else dtype, type.rank)
    except ValueError as error:
        raise OptionError(f"{chosen}: {error}") from error


def _stored(field: Field, value: Value) -> Piece | Stored:
    if value is None or isinstance(value, (Piece, bytes)):
        return value
    if isinstance(value, float) and math.isnan(value):
        return None
    try:
        return field.encode(value)
    except ValueError as error:
        raise ValueError(f"field {field.name!r}: {error}") from error


def _text(value: Value, read: Callable[[int, int], bytes], column: str) -> str:
    if isinstance(value, Piece):
        value = read(value.offset, value.size) if value.size <= _LONGEST else None
    if not isinstance(value, bytes):
        raise ValueError(f"the value of column {column!r} is not a text, or is too long")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the text in column {column!r} is not valid UTF-8") from None


def short_text(data: bytes) -> str | None:
    """Decode bytes as a short text, such as a class name; None if the bytes are not text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if text and text.isprintable() else None


_LONGEST = 4096  # bytes of a name


def _listed(columns: Iterable[str]) -> str:
    names = list(map(printable, columns))
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "")


_MOST = 2**53  # up to which a float64 holds every whole number


def are_whole(blocks: Iterable[npt.NDArray[Any]]) -> tuple[bool, bool]:
    """Tell whether all floats other than NaN are whole numbers, and whether any is NaN."""
    gaps = False
    for block in blocks:
        missing = np.isnan(block)
        gaps |= bool(missing.any())
        numbers = block[~missing].astype(np.float64)  # which can hold the limit too
        if not (np.isfinite(numbers) & (np.abs(numbers) < _MOST) & (numbers == np.floor(numbers))).all():
            return False, gaps
    return True, gaps


def are_one_hot(blocks: Iterable[npt.NDArray[Any]]) -> bool:
    """Tell whether every row of an (N, C) array has a single 1 and otherwise zeros."""
    return all(((block == 0) | (block == 1)).all() and ((block == 1).sum(axis=1) == 1).all() for block in blocks)


def one_hot(values: Sequence[Any]) -> int | None:
    """Return the index of the only 1 among zeros; None for other values."""
    if len(values) < 2 or any(value not in (0, 1) for value in values):
        return None
    return list(values).index(1) if sum(values) == 1 else None


def whole(value: float) -> int | float:
    """Convert a whole number to an int; return other values unchanged."""
    return int(value) if isinstance(value, int) or float(value).is_integer() else value
