"""What a pack holds beside its manifest: samples, and a table with one row a sample. No I/O.

The table is kept as one array a column, so that a pack of millions of samples is opened by mapping a few
arrays and never by building millions of Python objects. `formats.md` specifies the columns.
"""

from __future__ import annotations

import functools
import itertools
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import google_crc32c
import numpy as np
import numpy.typing as npt

from packer._sample import LABEL_TYPES
from packer.errors import CorruptPackError

__all__ = ["COLUMNS", "Buffer", "Ints", "Names", "Row", "Sample", "Table", "are_pixels", "blocks", "checksum", "spans"]


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

Labels of the type ``float`` are float64: see `column_types`.
"""


def column_types(label_type: str) -> dict[str, str]:
    """Return the columns and their dtypes in a pack with labels of one of `LABEL_TYPES`."""
    return {**COLUMNS, "label": LABEL_TYPES[label_type]}


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
    """

    name: str
    label: int | float
    data: Buffer
    height: int
    width: int


_BLOCK = 1 << 16  # elements
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


def are_pixels(size: npt.ArrayLike, height: npt.ArrayLike, width: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Tell whether so many bytes are the pixels of an image of the codec ``raw``; of one, or of each of several."""
    size, height, width = np.asarray(size, np.int64), np.asarray(height, np.int64), np.asarray(width, np.int64)
    # A third of the size, because three times the number of pixels may be more than an integer holds.
    return np.asarray((height > 0) & (width > 0) & (size % 3 == 0) & (height * width == size // 3))


LONGEST_NAME = 1 << 16
"""Bytes that a name may have. Ends that go back and forth could else give one long name again and again."""


class Names(Sequence[str]):
    """An immutable sequence of strings in two arrays.

    Every way to a name raises CorruptPackError, with its index, where the ends do not lie inside of the blob,
    or a name is longer than `LONGEST_NAME`.

    Parameters
    ----------
    blob : (B,) uint8 array
        All names, one after the other, as UTF-8; bytes that are not UTF-8 come back as surrogates.
    ends : (N,) int64 array
        Where each name ends in `blob`.
    path : str
        The pack that the names are those of, for messages.
    """

    __slots__ = ("blob", "ends", "path")

    def __init__(self, blob: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], path: str = "") -> None:
        self.blob = blob
        self.ends = ends
        self.path = path

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """Store `names`."""
        blob, ends = bytearray(), array("q")
        for name in names:
            blob += encode_name(name)
            ends.append(len(blob))
        return cls(np.frombuffer(blob, np.uint8), np.frombuffer(ends, np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Names]) -> Names:
        """Return the names of all `parts`, one part after the other; a name that a part has not is none here either."""
        blobs = [part.blob[: max(0, int(part.ends[-1]))] if len(part) else part.blob[:0] for part in parts]
        starts = np.cumsum([0, *map(len, blobs)])
        ends = [
            np.where((part.ends < 0) | (part.ends > len(blob)), -1, part.ends + start)
            for part, blob, start in zip(parts, blobs, starts[:-1], strict=True)
        ]
        return cls(np.concatenate(blobs), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return decode_name(self.encoded(index))

    def __iter__(self) -> Iterator[str]:
        for index, name in enumerate(self.each_encoded()):
            if name is None:
                raise self._missing(index)
            yield decode_name(name)

    def get(self, index: int) -> str:
        """Return name `index` for a message: empty where the ends do not lie inside of the blob."""
        return decode_name(self._between_ends(range(len(self))[index]) or b"")

    def between(self, start: int, stop: int) -> Names:
        """Return names `start` to `stop` - 1, of which none is another one than here, whatever the ends are."""
        ends = self.ends[start:stop]
        first, last = int(self.ends[start - 1]) if start else 0, int(ends[-1]) if len(ends) else 0
        first = first if 0 <= first <= len(self.blob) else 0
        return Names(self.blob[first : max(first, last)], ends - first, self.path)

    def encoded(self, index: int) -> bytes:
        """Return name `index` as its bytes."""
        index = range(len(self))[index]
        name = self._between_ends(index)
        if name is None:
            raise self._missing(index)
        return name

    def each_encoded(self) -> Iterator[bytes | None]:
        """Yield every name as its bytes; None where the ends do not lie inside of the blob."""
        blob, start = self.blob.data, 0
        for ends in blocks(self.ends):
            for end in ends.tolist():
                yield bytes(blob[start:end]) if 0 <= start <= end <= min(len(blob), start + LONGEST_NAME) else None
                start = end

    def _between_ends(self, index: int) -> bytes | None:
        return cut_name(self.blob, int(self.ends[index - 1]) if index else 0, int(self.ends[index]))

    def _missing(self, index: int) -> CorruptPackError:
        return CorruptPackError(f"name {index} lies outside of the names, or is too long", self.path, index)


def cut_name(blob: npt.NDArray[np.uint8], start: int, end: int) -> bytes | None:
    """Return the name from `start` to `end`; None where these do not lie inside of the blob, or are no name's."""
    return blob[start:end].tobytes() if 0 <= start <= end <= min(len(blob), start + LONGEST_NAME) else None


def encode_name(name: str) -> bytes:
    """Return the bytes of a name: UTF-8, and surrogates as the bytes they stand for."""
    return name.encode("utf-8", "surrogateescape")


def decode_name(name: bytes) -> str:
    """Return the name that `encode_name` turned into bytes."""
    return name.decode("utf-8", "surrogateescape")


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


@dataclass(frozen=True, eq=False)
class Table:
    """One row a sample, one array a column; the arrays may be views of a mapped file, with gaps between their elements.

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
    """

    label: Labels
    height: npt.NDArray[np.int32]
    width: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    crc32c: npt.NDArray[np.uint32]
    name_end: npt.NDArray[np.int64]
    names: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, columns: Mapping[str, npt.NDArray[Any]]) -> Table:
        """Build the table from its columns; ValueError where one is missing or they do not fit together."""
        for name, dtype in COLUMNS.items():
            if name not in columns:
                raise ValueError(f"the table has no column {name!r}")
            dtypes = set(LABEL_TYPES.values()) if name == "label" else {dtype}
            if columns[name].dtype not in map(np.dtype, dtypes) or columns[name].ndim != 1:
                raise ValueError(f"the table's column {name!r} is not a vector of {' or '.join(sorted(dtypes))}")
        if len({len(columns[name]) for name in COLUMNS if name != "names"}) != 1:
            raise ValueError("the table's columns differ in length")
        return cls(**{name: columns[name] for name in COLUMNS})

    def __len__(self) -> int:
        return len(self.label)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns by name, in the order of `COLUMNS`."""
        return {name: getattr(self, name) for name in COLUMNS}

    def sample_names(self, path: str = "") -> Names:
        """Return the names as a sequence of strings; `path` is the pack's, for messages."""
        return Names(self.names, self.name_end, path)

    def overlapping(self) -> Iterator[int]:
        """Yield the rows whose data begin before the data of an earlier row end: there are none in a proper pack.

        Where the data do not lie in the order of the rows, that takes 8 bytes a row.
        """
        order = None if _ascends(self.offset) else np.argsort(self.offset, kind="stable")
        end = np.int64(np.iinfo(np.int64).min)
        for part in spans(len(self)):
            rows = np.arange(part.start, part.stop) if order is None else order[part]
            rows = rows[self.size[rows] > 0]
            offset = self.offset[rows]
            ends = np.maximum.accumulate(np.concatenate([[end], offset + self.size[rows]]))
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
    return {name: column_checksum(column) for name, column in table.columns().items()}


def column_checksum(column: npt.NDArray[Any]) -> int:
    """Return the CRC-32C of a vector's bytes."""
    return functools.reduce(google_crc32c.extend, (block.tobytes() for block in blocks(column)), 0)


def blocks(column: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield a vector piece by piece, so that a copy of each takes no more memory for a longer one."""
    return (column[part] for part in spans(len(column)))


def _ascends(column: npt.NDArray[Any]) -> bool:
    return not any((column[part][1:] < column[part][:-1]).any() for part in spans(len(column), overlap=1))


def spans(length: int, overlap: int = 0) -> Iterator[slice]:
    """Yield slices that cover a vector piece by piece; each goes on for `overlap` elements of the next one."""
    return (slice(start, min(start + _BLOCK + overlap, length)) for start in range(0, length, _BLOCK))
