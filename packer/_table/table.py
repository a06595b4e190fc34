"""What a pack holds beside its manifest: samples, and a table with one row a sample. No I/O.

The table is kept as one array a column, so that a pack of millions of samples never becomes millions of Python
objects. The columns of an open pack are read when they are first asked for. `formats.md` specifies the columns.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from packer._fields import Field, Stored
from packer._sample import LABEL_TYPES
from packer._table.names import Names, cut_name
from packer._table.pieces import column_checksum, spans
from packer._table.vector import Vector

__all__ = [
    "COLUMNS",
    "NO_VALUE",
    "Buffer",
    "Ints",
    "Labels",
    "Row",
    "Sample",
    "Table",
    "are_pixels",
    "checksum",
    "column_checksums",
    "column_types",
    "field_columns",
    "value_checksum",
    "with_offsets",
]


Buffer = bytes | bytearray | memoryview
Ints = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int64] | npt.NDArray[np.float64]

COLUMNS: Mapping[str, str] = {
    "label": "<i8",
    "height": "<i4",
    "width": "<i4",
    "offset": "<i8",
    "size": "<i8",
    "crc32c": "<u4",
    "name_end": "<i8",
    "names": "|u1",
}
"""The table's columns and their dtypes. `names` is all names in one; `name_end[i]` is where name i ends in it.

Labels of the type ``float`` are float64, and fields have columns of their own: see `column_types`.
"""


def column_types(label_type: str, fields: Iterable[Field] = (), *, apart: bool = False) -> dict[str, str]:
    """Return the columns and their dtypes in a pack with labels of one of `LABEL_TYPES`, and such fields.

    Where blobs lie `apart` from the images, each has the column of an offset too.
    """
    types = {**COLUMNS, "label": LABEL_TYPES[label_type]}
    for one in fields:
        types |= one.columns()
        if apart and one.is_blob:
            types[f"field.{one.name}.offset"] = "<i8"
    return types


@dataclass(frozen=True, slots=True)
class Sample:
    """One image.

    Attributes
    ----------
    name : str
        Path relative to the source, with forward slashes. Bytes that are not UTF-8 are surrogates (`os.fsdecode`).
    label : int or float
        Class id, an index into the manifest's `classes`, or a number; see `packer._sample`.
    data : bytes-like
        The encoded image; with the codec ``raw``, the pixels: uint8 RGB, rows from the top, height * width * 3 bytes.
    height, width : int
        Size in pixels of what decoding gives.
    fields : tuple
        What the pack holds of each of its fields, in their order; see `packer._fields.Stored`.
    """

    name: str
    label: int | float
    data: Buffer
    height: int
    width: int
    fields: tuple[Stored, ...] = ()

    @property
    def parts(self) -> list[Buffer]:
        """What the pack holds of the sample one after the other: the image, and the blobs of its fields."""
        blobs = (stored for stored in self.fields if stored is not None and not isinstance(stored, (int, float)))
        return [self.data, *blobs]


NO_VALUE = -1
"""What stands in the column of a class, or of a blob's size, where a sample has no value."""

_LARGEST = 1 << 61

_CHECKED_FIELDS, _CHECKED_WITH_FLOAT = struct.Struct("<qii"), struct.Struct("<dii")


def checksum(data: Buffer, label: int | float, height: int, width: int, name: bytes) -> int:
    """Return the CRC-32C of a sample: of its data, then label, height, width (int32), name, little-endian.

    A label is an int64, or a float64 where it is a float.

    One number covers all that a reader hands out, so a damaged label is found as surely as a damaged byte.
    """
    if not isinstance(data, bytes):  # the extension takes bytes, or a read-only array
        view = np.frombuffer(data, np.uint8)
        view.flags.writeable = False
        crc = google_crc32c.value(view)
    else:
        crc = google_crc32c.value(data)
    fields = _CHECKED_WITH_FLOAT if isinstance(label, float) else _CHECKED_FIELDS
    return int(google_crc32c.extend(crc, fields.pack(label, height, width) + name))


def value_checksum(blob: Buffer, name: bytes) -> int:
    """Return the CRC-32C of a field's blob, and then of the sample's name, so that no other sample's blob fits."""
    return int(google_crc32c.extend(google_crc32c.value(bytes(blob)), name))


def field_columns(fields: Sequence[Field], values: Sequence[Stored], name: bytes) -> tuple[int | float, ...]:
    """Return a row of the fields' columns, in the order of `column_types`, for a sample with these values and name."""
    row: list[int | float] = []
    for one, stored in zip(fields, values, strict=True):
        if one.kind == "class":
            row.append(NO_VALUE if stored is None else int(stored))
        elif one.kind == "scalar":
            row += (0, 1) if stored is None else (stored, 0)  # type: ignore[arg-type]
        elif stored is None:
            row += (NO_VALUE, 0)
        else:
            assert not isinstance(stored, (int, float))
            row += (len(stored), value_checksum(stored, name))
    return tuple(row)


def with_offsets(
    fields: Sequence[Field], row: Sequence[int | float], offsets: Sequence[int]
) -> tuple[int | float, ...]:
    """Return a row of the fields' columns with where each blob lies, as `column_types` orders those that lie apart.

    Parameters
    ----------
    fields : sequence of Field
    row : sequence
        As `field_columns` gives.
    offsets : sequence of int
        One for each field that has blobs.
    """
    columns, begins, joined = iter(row), iter(offsets), list[int | float]()
    for one in fields:
        joined += itertools.islice(columns, len(one.columns()))
        if one.is_blob:
            joined.append(next(begins))
    return tuple(joined)


def are_pixels(size: npt.ArrayLike, height: npt.ArrayLike, width: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Tell whether so many bytes are the pixels of an image of the codec ``raw``; of one, or of each of several."""
    size, height, width = np.asarray(size, np.int64), np.asarray(height, np.int64), np.asarray(width, np.int64)
    # A third of the size, because three times the number of pixels may be more than an integer holds.
    return np.asarray((height > 0) & (width > 0) & (size % 3 == 0) & (height * width == size // 3))


class Row(NamedTuple):
    """What the table says of one sample, as plain numbers: its index, `number`, and the columns; see `Table`.

    `name` is its bytes; None where the table's ends do not lie inside of its names.
    """

    number: int
    label: int | float
    height: int
    width: int
    offset: int
    size: int
    crc32c: int
    name: bytes | None

    def matches(self, data: Buffer) -> bool:
        """Tell whether the row and `data` are what the row's checksum was taken of."""
        return self.name is not None and checksum(data, self.label, self.height, self.width, self.name) == self.crc32c


class _ReadLater(Mapping[str, npt.NDArray[Any]]):
    """Columns by name, which are read from a file when they are asked for.

    Attributes
    ----------
    stored : dict of str to array or Vector
        Those that were not read so far, and those that are not held in memory, as vectors.
    """

    def __init__(self, columns: Mapping[str, npt.NDArray[Any] | Vector]) -> None:
        self.stored = dict(columns)

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def __contains__(self, name: object) -> bool:
        return name in self.stored

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        column = self.stored[name]
        if not isinstance(column, Vector):
            return column
        found = column.array()
        if column.held:
            self.stored[name] = found
        return found


@dataclass(frozen=True, eq=False)
class Table:
    """One row a sample, one array a column; the arrays may have gaps between their elements.

    Attributes
    ----------
    label : (N,) int64 or float64
        Class id, or number; see `packer._sample`.
    offset, size : (N,) int64
        Where the data lie (each format says from where it counts); the number of bytes.
    height, width : (N,) int32
        Pixels.
    crc32c : (N,) uint32
        `checksum` of the sample.
    name_end : (N,) int64
    names : (B,) uint8
        See `Names`.
    more : mapping
        The columns of the fields, by name; see `packer._fields.Field.columns`.

    Raises
    ------
    PackError
        From any column that `Table.of` was given as a `Vector`, where the file that it is read from was cut short.
    """

    label: Labels
    height: npt.NDArray[np.int32]
    width: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    crc32c: npt.NDArray[np.uint32]
    name_end: npt.NDArray[np.int64]
    names: npt.NDArray[np.uint8]
    more: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Mapping[str, npt.NDArray[Any] | Vector], types: Mapping[str, str] = COLUMNS) -> Table:
        """Build the table from columns of such `types`; ValueError where one is missing or they do not fit together."""
        for name, dtype in types.items():
            if name not in columns:
                raise ValueError(f"the table has no column {name!r}")
            column = columns[name]
            if column.dtype != np.dtype(dtype) or (isinstance(column, np.ndarray) and column.ndim != 1):
                raise ValueError(f"the table's column {name!r} is not a vector of {dtype}")
        if len({len(columns[name]) for name in types if name != "names"}) != 1:
            raise ValueError("the table's columns differ in length")
        table = object.__new__(cls)
        table.__dict__.update(
            more=_ReadLater({name: columns[name] for name in types if name not in COLUMNS}),
            _own=_ReadLater({name: columns[name] for name in COLUMNS}),
            _count=len(columns["label"]),
        )
        return table

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> npt.NDArray[Any]:
            """Read a column that was not asked for before, or is not held in memory."""
            own = self.__dict__.get("_own")
            if own is None or name not in own:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            column = own[name]
            if own.stored[name] is column:
                self.__dict__[name] = column
            return column

    def __len__(self) -> int:
        count: int | None = self.__dict__.get("_count")
        return len(self.label) if count is None else count

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a column by its name, for this moment; KeyError where there is none. See `Vector.array`."""
        found: npt.NDArray[Any] = getattr(self, name) if name in COLUMNS else self.more[name]
        return found

    def stored(self, name: str) -> npt.NDArray[Any] | Vector:
        """Return a column by its name, or what it is read from where it is not held in memory."""
        columns = self.__dict__.get("_own") if name in COLUMNS else self.more
        found = columns.stored[name] if isinstance(columns, _ReadLater) else self.column(name)
        return self.column(name) if isinstance(found, Vector) and found.held else found

    def kept(self, name: str) -> npt.NDArray[Any]:
        """Return a column by its name, as memory that nothing can take away."""
        found = self.stored(name)
        return found.copy() if isinstance(found, Vector) else found

    def checksum(self, name: str) -> int:
        """Return the CRC-32C of a column."""
        return column_checksum(self.stored(name))

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns by name, in the order of `COLUMNS`, and then those of the fields."""
        return {name: self.column(name) for name in self.column_names()}

    def column_names(self) -> list[str]:
        """Return the names of the columns, in the order of `columns`, which reads them all."""
        return [*COLUMNS, *self.more]

    def extent(self, rows: slice | Ints = slice(None)) -> Ints:
        """Return how many bytes some samples have from `offset` on: those of the image, and of the fields' blobs.

        Blobs that lie apart from the image do not count.

        Sizes that no disk holds count as `_LARGEST`, so that their sum is a number too.
        """
        total = self.size[rows]
        for name in self.more:
            if name.endswith(".size") and f"{name.removesuffix('.size')}.offset" not in self.more:
                total = np.minimum(total, _LARGEST) + np.clip(self.more[name][rows], 0, _LARGEST)
        return total

    def sample_names(self, path: str = "") -> Names:
        """Return the names as a sequence of strings; `path` is the pack's, for messages."""
        return Names(self.stored("names"), self.stored("name_end"), path)

    def overlapping(self) -> Iterator[int]:
        """Yield the rows whose data begin before the data of an earlier row end: there are none in a proper pack.

        Where the data do not lie in the order of the rows, that takes 8 bytes a row.
        """
        order = None if _ascends(self.offset) else np.argsort(self.offset, kind="stable")
        end = np.int64(np.iinfo(np.int64).min)
        for part in spans(len(self)):
            rows = np.arange(part.start, part.stop) if order is None else order[part]
            extent = self.extent(rows)
            rows, extent = rows[extent > 0], extent[extent > 0]
            offset = self.offset[rows]
            ends = np.maximum.accumulate(np.concatenate([[end], offset + extent]))
            yield from rows[offset < ends[:-1]].tolist()
            end = ends[-1]

    def row(self, index: int) -> Row:
        """Return row `index`, counted from the beginning."""
        start = int(self.name_end[index - 1]) if index else 0
        return Row(
            index,
            self.label[index].item(),
            int(self.height[index]),
            int(self.width[index]),
            int(self.offset[index]),
            int(self.size[index]),
            int(self.crc32c[index]),
            cut_name(self.names, start, int(self.name_end[index])),
        )

    def rows(self, indices: npt.NDArray[np.int64]) -> list[Row]:
        """Return some rows; the indices count from the beginning."""
        if not len(indices):
            return []
        starts = np.where(indices > 0, self.name_end[indices - 1], 0).tolist()
        names = map(cut_name, itertools.repeat(self.names), starts, self.name_end[indices].tolist())
        numbers = self.label, self.height, self.width, self.offset, self.size, self.crc32c
        return list(map(Row, indices.tolist(), *(column[indices].tolist() for column in numbers), names))


def column_checksums(table: Table) -> dict[str, int]:
    """Return the CRC-32C of every column of a table."""
    return {name: table.checksum(name) for name in table.column_names()}


def _ascends(column: npt.NDArray[Any]) -> bool:
    return not any((column[part][1:] < column[part][:-1]).any() for part in spans(len(column), overlap=1))
