"""The values of fields, a column a field: in memory, or in files that are read when they are asked for."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._containers import ForeignFiles, Ranges
from packer._fields import DTYPES, Field, Stored
from packer._table import Ints, Names, decode_name, encode_name

__all__ = ["Blobs", "Column", "Files", "InContainer", "Numbers", "joined", "npy_array", "read_range"]

Rows = slice | Ints
_NO_BYTES = -1


@dataclass(frozen=True, eq=False)
class Numbers:
    """The values of a scalar or a class.

    Attributes
    ----------
    field : Field
    values : (N,) array
        The numbers, of the field's dtype; int64 ids of a class. Zero where there is no value.
    null : (N,) bool array
        Where there is none.
    """

    field: Field
    values: npt.NDArray[Any]
    null: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.values)

    def taken(self, rows: Rows) -> Numbers:
        """Return the column of some rows."""
        return replace(self, values=self.values[rows], null=self.null[rows])

    def get(self, index: int) -> Stored:
        """Return a value as a pack holds it."""
        return None if self.null[index] else self.values[index].item()

    def content(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the values of rows `start` to `stop` - 1 as bytes, which tell any other values."""
        yield self.values[start:stop].astype(DTYPES.get(self.field.dtype, "<i8"), copy=False).tobytes()
        yield self.null[start:stop].tobytes()


@dataclass(frozen=True, eq=False)
class Blobs:
    """The values of a field whose values are bytes.

    Attributes
    ----------
    field : Field
    blob : (B,) uint8 array
    starts, sizes : (N,) int64 arrays
        Where each value lies in `blob`. The size is -1 where there is no value.
    """

    field: Field
    blob: npt.NDArray[np.uint8]
    starts: Ints
    sizes: Ints

    @classmethod
    def of(cls, field: Field, values: Iterable[bytes | None]) -> Blobs:
        """Store values as a pack holds them."""
        blob, sizes = bytearray(), []
        for value in values:
            blob += value or b""
            sizes.append(_NO_BYTES if value is None else len(value))
        return cls.packed(field, np.frombuffer(blob, np.uint8), np.array(sizes, np.int64))

    @classmethod
    def packed(cls, field: Field, blob: npt.NDArray[np.uint8], sizes: Ints) -> Blobs:
        """Return the column of values that lie one after the other."""
        ends = np.cumsum(np.maximum(sizes, 0), dtype=np.int64)
        return cls(field, blob, ends - np.maximum(sizes, 0), sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def taken(self, rows: Rows) -> Blobs:
        """Return the column of some rows."""
        return replace(self, starts=self.starts[rows], sizes=self.sizes[rows])

    def get(self, index: int) -> bytes | None:
        """Return a value as a pack holds it."""
        start, size = int(self.starts[index]), int(self.sizes[index])
        return None if size < 0 else self.blob[start : start + size].tobytes()

    def content(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the values of rows `start` to `stop` - 1 as bytes, which tell any other values."""
        yield self.sizes[start:stop].astype("<i8", copy=False).tobytes()
        yield b"".join(self.get(index) or b"" for index in range(start, stop))


@dataclass(frozen=True, eq=False)
class Files:
    """The values of a field that lie in files.

    Attributes
    ----------
    field : Field
    root : Path
        What the paths are relative to.
    paths : Blobs
        A path of each value, with forward slashes.
    """

    field: Field
    root: Path
    paths: Blobs

    @classmethod
    def of(cls, field: Field, root: Path, paths: Iterable[str | None]) -> Files:
        """Store paths relative to `root`; None where there is no file."""
        return cls(field, root, Blobs.of(field, (None if path is None else encode_name(path) for path in paths)))

    def __len__(self) -> int:
        return len(self.paths)

    def taken(self, rows: Rows) -> Files:
        """Return the column of some rows."""
        return replace(self, paths=self.paths.taken(rows))

    def get(self, index: int) -> str | None:
        """Return the path of a value, relative to the root; None where there is no value."""
        path = self.paths.get(index)
        return None if path is None else decode_name(path)

    def path(self, index: int) -> str | None:
        """Return where a value lies; None where there is no value."""
        path = self.get(index)
        return None if path is None else os.path.join(self.root, path)

    def names(self) -> Names:
        """Return all paths relative to the root; empty ones where there is no value."""
        return Names.of(self.get(index) or "" for index in range(len(self)))

    def stored(self, data: memoryview) -> Stored:
        """Return what a pack holds of a file's bytes; ValueError where they are no value of the field."""
        if self.field.kind == "array":
            array = npy_array(data)
            if array.dtype.name != self.field.dtype:
                raise ValueError(f"it is an array of {array.dtype}, and the first file's is of {self.field.dtype}")
            return self.field.encode(array)
        if self.field.kind in ("text", "json"):
            self.field.decode(data)
        return data

    def content(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the paths of rows `start` to `stop` - 1 as bytes."""
        return self.paths.content(start, stop)


@dataclass(frozen=True, eq=False)
class InContainer:
    """The values of a field that lie in files of a container.

    Attributes
    ----------
    field : Field
    files : ForeignFiles
    ranges : Ranges
    copied : (B,) uint8 array
        The values that are no range of a file.
    """

    field: Field
    files: ForeignFiles
    ranges: Ranges
    copied: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.ranges)

    def taken(self, rows: Rows) -> InContainer:
        """Return the column of some rows."""
        return replace(self, ranges=self.ranges.taken(rows))

    def get(self, index: int) -> bytes | None:
        """Return a value as a pack holds it; CorruptPackError where its file was changed, PackError where it fails."""
        return read_range(self.files, self.ranges, self.copied, index)

    def content(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield where the values of rows `start` to `stop` - 1 lie, as bytes."""
        part = self.ranges.taken(slice(start, stop))
        yield np.stack([part.file, part.offset, part.size]).astype("<i8", copy=False).tobytes()


def read_range(files: ForeignFiles, ranges: Ranges, copied: npt.NDArray[np.uint8], index: int) -> bytes | None:
    """Return the bytes of a range; None where it is none. Errors as `ForeignFiles.read`."""
    file, offset, size = int(ranges.file[index]), int(ranges.offset[index]), int(ranges.size[index])
    if size < 0:
        return None
    return copied[offset : offset + size].tobytes() if file < 0 else files.read(file, offset, size)


Column = Numbers | Blobs | Files | InContainer
"""The values of one field, a row an image."""


def joined(column: Column, rows: Ints) -> Column:
    """Return the values of some rows; none where a row is -1."""
    if not (rows < 0).any():
        return column.taken(rows)
    there = column.taken(np.maximum(rows, 0))
    if isinstance(there, Numbers):
        return replace(there, null=there.null | (rows < 0))
    if isinstance(there, InContainer):
        sizes = np.where(rows < 0, _NO_BYTES, there.ranges.size)
        return replace(there, ranges=replace(there.ranges, size=sizes))
    blobs = there.paths if isinstance(there, Files) else there
    blobs = replace(blobs, sizes=np.where(rows < 0, _NO_BYTES, blobs.sizes))
    return replace(there, paths=blobs) if isinstance(there, Files) else blobs


def npy_array(data: memoryview) -> npt.NDArray[Any]:
    """Return the array in the bytes of a ``.npy`` file; ValueError where there is none."""
    try:
        array: npt.NDArray[Any] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # NumPy parses the header as Python, and says in many ways that it is none
        raise ValueError(f"it is no .npy file of numbers: {error}") from error
    return array
