"""The datasets of HDF5 that lie beside images, as columns with a value an image.

Tools keep labels in many shapes: N, N x 1, N x 1 x 1 x 1, 1 x N by MATLAB, one-hot N x C, and texts of fixed or of
variable length. Each of these is one value an image here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from packer._account import has_label_name, is_label_name
from packer._containers.arrays.hdf5places import Heaps, is_text, rows_of
from packer._containers.contract import Piece
from packer._containers.numericlabels import are_one_hot, are_whole
from packer._containers.shards.reading import Reading
from packer._containers.shards.roles import ColumnType, Value
from packer._fields import DTYPES

if TYPE_CHECKING:
    import h5py

__all__ = ["Column", "column_of", "described", "is_elsewhere", "is_from_matlab", "label_among"]

_BLOCK = 1 << 12  # rows
_MOST_OF_A_BLOCK = 1 << 26  # bytes
_LONGEST = 1 << 14  # bytes of a text
_LARGEST_CHUNK = 1 << 28  # bytes, which libhdf5 unpacks at once
_MOST_AXES = 8
_WIDER = {"uint32": "int64", "uint64": "int64"}  # a number that does not fit is an error


@dataclass(frozen=True)
class Column:
    """A dataset that has a value for each of `count` images.

    Attributes
    ----------
    type : ColumnType
        What its values are; without a kind where packer does not take it.
    axis : int
        The axis of the images.
    is_one_hot : bool
        Whether the place of the 1 in a row is the value.
    is_whole : bool
        Whether its floats are whole numbers, and NaN no value.
    """

    type: ColumnType
    axis: int = 0
    is_one_hot: bool = False
    is_whole: bool = False

    def block(self, dataset: h5py.Dataset, first: int, stop: int) -> npt.NDArray[Any]:
        """Return the values of images `first` to `stop` - 1, (rows, ...)."""
        taken = dataset[(slice(None),) * self.axis + (slice(first, stop),)]
        rows = np.moveaxis(np.asarray(taken), self.axis, 0)
        return rows if self.type.kind == "array" or self.is_one_hot else rows.reshape(len(rows), -1)[:, 0]

    def values(self, dataset: h5py.Dataset, file: Reading) -> Iterator[Value]:
        """Yield the value of each image; ValueError where one cannot be read."""
        if self.type.kind == "text" and is_text(dataset):
            yield from _texts(dataset, file)
            return
        size = _block(dataset.dtype.itemsize * math.prod(dataset.shape) // max(1, dataset.shape[self.axis]))
        for first in range(0, dataset.shape[self.axis], size):
            yield from map(self._value, self.block(dataset, first, first + size))

    def _value(self, value: Any) -> Value:
        if self.is_one_hot:
            return int(np.argmax(value))
        if self.type.kind == "array":
            return np.ascontiguousarray(value)
        if isinstance(value, bytes):
            return bytes(value)
        if self.is_whole:
            return None if np.isnan(value) else int(value)
        return value.item()  # type: ignore[no-any-return]


def _block(row: int) -> int:
    """Return how many rows of so many bytes are read at once."""
    return max(1, min(_BLOCK, _MOST_OF_A_BLOCK // max(1, row)))


def column_of(name: str, dataset: h5py.Dataset, count: int) -> Column:
    """Return what a dataset is beside `count` images; one called as labels are is looked through."""
    axis = _axis(dataset, count)
    if axis is None:
        rows = f"{dataset.shape[0]:,} rows for {count:,} images"
        return Column(ColumnType("", why=f"is {described(dataset)}, {rows}"))
    if is_elsewhere(dataset):
        return Column(ColumnType("", why="has its data in other files"))
    if dataset.dtype.itemsize * max(1, math.prod(dataset.chunks or ())) > _LARGEST_CHUNK:
        return Column(ColumnType("", why=f"has chunks of {dataset.chunks}"))
    if math.prod(dataset.shape) == count:
        return _of_labels(Column(_of_one(dataset), axis), name, dataset)
    return _of_labels(Column(_of_several(dataset), axis), name, dataset)


def label_among(columns: Mapping[str, Column]) -> str | None:
    """Return the column of labels, by what it is called: the only one that packer takes; None where nobody can tell."""
    able = [name for name, column in columns.items() if column.type.kind in ("scalar", "text")]
    for is_name in (is_label_name, has_label_name):
        if found := [name for name in able if is_name(name)]:
            return found[0] if len(found) == 1 else None
    return None


def is_elsewhere(dataset: h5py.Dataset) -> bool:
    """Tell whether reading a dataset makes libhdf5 open other files."""
    return bool(dataset.external or dataset.is_virtual)


def is_from_matlab(dataset: h5py.Dataset) -> bool:
    """Tell whether MATLAB wrote a dataset, whose axes are in the reverse order of those that MATLAB shows."""
    return "MATLAB_class" in dataset.attrs


def described(dataset: h5py.Dataset) -> str:
    """Return dtype and shape, for messages."""
    return f"{dataset.dtype} {' x '.join(map(str, dataset.shape))}"


def _axis(dataset: h5py.Dataset, count: int) -> int | None:
    """Return the axis of the images: the first, or the last by MATLAB where the others are of one element."""
    if dataset.shape[0] == count:
        return 0
    if is_from_matlab(dataset) and math.prod(dataset.shape) == count:
        return int(dataset.shape.index(count))
    return None


def _of_one(dataset: h5py.Dataset) -> ColumnType:
    """Return the type of a dataset with one value an image."""
    kind, size = dataset.dtype.kind, dataset.dtype.itemsize
    if kind in "iu" or (kind == "f" and size in (2, 4, 8)):
        return ColumnType("scalar", {"f2": "float32", "f4": "float32", "f8": "float64"}.get(f"{kind}{size}", "int64"))
    if kind == "b":
        return ColumnType("scalar", "bool")
    if is_text(dataset) or (kind == "S" and size <= _LONGEST):
        return ColumnType("text")
    return ColumnType("", why=f"is {described(dataset)}")


def _of_several(dataset: h5py.Dataset) -> ColumnType:
    """Return the type of a dataset with several numbers an image."""
    dtype = _WIDER.get(dataset.dtype.name, dataset.dtype.name)
    row = dataset.dtype.itemsize * math.prod(dataset.shape[1:])
    if dtype not in DTYPES or dataset.ndim - 1 > _MOST_AXES or row > _MOST_OF_A_BLOCK:
        return ColumnType("", why=f"is {described(dataset)}")
    return ColumnType("array", dtype, dataset.ndim - 1)


def _of_labels(column: Column, name: str, dataset: h5py.Dataset) -> Column:
    """Return a column as the labels that it may be: floats that are whole, or one-hot rows."""
    if not has_label_name(name):
        return column
    type, size = column.type, _block(dataset.dtype.itemsize * math.prod(dataset.shape[1:]))
    blocks = (column.block(dataset, first, first + size) for first in range(0, dataset.shape[column.axis], size))
    if type.kind == "scalar" and type.dtype.startswith("float"):
        whole, gaps = are_whole(blocks)
        if whole and (gaps or is_from_matlab(dataset)):  # whose numbers are doubles
            return replace(column, type=ColumnType("scalar", "int64"), is_whole=True)
    elif type.kind == "array" and type.rank == 1 and are_one_hot(blocks):
        return replace(column, type=ColumnType("scalar", "int64"), is_one_hot=True)
    return column


def _texts(dataset: h5py.Dataset, file: Reading) -> Iterator[bytes]:
    """Yield texts of variable length, each of which lies in a heap: how long it is, is known before it is read."""
    heaps = Heaps(file)
    for number, place in enumerate(rows_of(dataset, file)):
        if isinstance(place, Piece):
            text = heaps.piece(place)
            _require_modest(text.size)
            yield file.read(text.offset, text.size)
        else:
            data = bytes(dataset[(number,) + (0,) * (dataset.ndim - 1)])
            _require_modest(len(data))
            yield data


def _require_modest(size: int) -> None:
    if size > _LONGEST:
        raise ValueError(f"a text of {size:,} bytes is too long")
