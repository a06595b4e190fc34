"""FFCV's ``.beton``, version 2 (https://github.com/libffcv/ffcv): a table of samples, followed by their data.

Layout, little-endian: a header (u16 version, u16 fields, u32 page size, u64 samples, u64 offset of the allocations);
for each field u8 type, 16 bytes name, 1024 bytes of arguments; a row for each sample, aligned as C aligns structs; the
data; the allocations (u64 sample, u64 pointer, u64 size). The length of a JPEG is stored only in the allocations. A
flag in each row tells whether the image is a JPEG or RGB pixels.
"""

from __future__ import annotations

import itertools
import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._containers.blocks import ContainerFile, reading
from packer._containers.contract import Entry, Piece, PixelLayout
from packer._containers.roles import FIRST_SAMPLES, ColumnContainer, ColumnType, Value, array_type
from packer.errors import SourceError, printable

_HEADER = struct.Struct("<HHIQQ")
_FIELD = struct.Struct("<B16s1024s")
_ALLOCATION = np.dtype([("sample", "<u8"), ("begin", "<u8"), ("size", "<u8")])
_VERSION = 2
_MOST_FIELDS = 200
_BLOCK = 1 << 14  # samples
_IMAGE = np.dtype([("mode", "u1"), ("width", "<u2"), ("height", "<u2"), ("begin", "<u8")])  # a packed struct
_SPAN = np.dtype([("begin", "<u8"), ("size", "<u8")])
_ROWS: dict[int, tuple[str, Any]] = {
    0: ("float", "<f8"),
    1: ("int", "<i8"),
    2: ("image", _IMAGE),
    3: ("bytes", _SPAN),
    4: ("array", "<u8"),
    5: ("json", _SPAN),
    6: ("tensor", "<u8"),
}
_TYPES = {"float": ColumnType("scalar", "float64"), "int": ColumnType("scalar", "int64"), "image": ColumnType("image")}
_TYPES |= {"bytes": ColumnType("bytes"), "json": ColumnType("json")}
_TYPES["tensor"] = ColumnType("", why="holds tensors")
_UNKNOWN = ("<u8", _SPAN, _IMAGE)
"""The possible layouts of a field of an unknown type; the image pointers in the rows show which one it is."""

_JPEG, _RAW = 0, 1


@dataclass(frozen=True)
class _Table:
    """The header of a file: everything before the rows."""

    count: int
    allocations: int
    begin: int
    kinds: Mapping[str, str]
    arrays: Mapping[str, tuple[str, tuple[int, ...]]]
    row: np.dtype[np.void]


@dataclass(eq=False)
class Beton(ColumnContainer):
    """FFCV's ``.beton`` files."""

    kind = "beton"
    suffixes = (".beton",)

    tables: Sequence[_Table] = ()

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> Beton:
        container = cls.of_files(paths)
        container.tables = [_table(path) for path in paths]
        first = container.tables[0]
        for path, table in zip(paths, container.tables, strict=True):
            if table.kinds != first.kinds or table.arrays != first.arrays:
                raise SourceError(f"{printable(path)}: has other fields than {printable(paths[0])}")
        types = {name: _type(kind, first.arrays.get(name)) for name, kind in first.kinds.items()}
        values = _first_values(paths[0], first)
        container.choose_roles(types, keys, printable(paths[0]), values)
        if any(first.kinds[name] == "image" for name in container.fields_of):
            raise SourceError(f"{printable(paths[0])}: has several images in each sample: select fields with --key")
        if first.kinds[container.image] == "image" and any(map(container._has_pixels, range(len(paths)))):
            container.pixels = PixelLayout("HWC", "RGB")
        return container

    def entries(self, unit: int) -> Iterator[Entry]:
        table, stem = self.tables[unit], self.files[unit].removesuffix(".beton")
        digits = len(str(table.count))
        with self.reading(unit) as file:
            stored = _Values(file, unit, table, _allocations(file, table))
            for number, row in _rows(file, table):
                name = f"{stem}/{number:0{digits}d}"
                try:
                    values = {name: stored.value(number, name, row[name]) for name in self.used}
                    shape = None
                    if table.kinds[self.image] == "image":
                        mode, width, height, _ = row[self.image]
                        shape = (height, width) if mode == _RAW else None
                    entry = self.entry(name, values, file.read, shape)
                except ValueError as error:
                    entry = Entry(name, b"", problem=f"sample {number}: {printable(error)}")
                yield entry

    def _has_pixels(self, unit: int) -> bool:
        """Tell whether any image in a file is stored as pixels."""
        table = self.tables[unit]
        with self.reading(unit) as file:
            blocks = _blocks(file, table)
            return any((block[self.image]["mode"] == _RAW).any() for _, block in blocks)


def _first_values(path: Path, table: _Table) -> dict[str, list[Any]]:
    """Return the numeric values of a file's first samples, by field."""
    numbers = [name for name, kind in table.kinds.items() if kind in ("int", "float")]
    with reading(path) as file:
        rows = [row for _, row in itertools.islice(_rows(file, table), FIRST_SAMPLES)]
    return {name: [row[name] for row in rows] for name in numbers}


def _table(path: Path) -> _Table:
    """Read the header of a file."""
    with reading(path) as file:
        version, fields, _, count, allocations = _HEADER.unpack(file.read(0, _HEADER.size))
        if version != _VERSION:
            raise SourceError(f"{file.path}: version {version} of .beton; packer reads version {_VERSION}")
        if not 0 < fields <= _MOST_FIELDS:
            raise SourceError(f"{file.path}: declares {fields} fields: it is not a .beton file, or is damaged")
        kinds: dict[str, str] = {}
        arrays: dict[str, tuple[str, tuple[int, ...]]] = {}
        stored: list[Any] = []
        for number in range(fields):
            type_id, raw, arguments = _FIELD.unpack(file.read(_HEADER.size + number * _FIELD.size, _FIELD.size))
            name = raw.rstrip(b"\0").decode("ascii", "backslashreplace")
            if not name or name in kinds:
                raise SourceError(
                    f"{file.path}: field {number} has no name, or that of another field: {printable(name)!r}"
                )
            kinds[name], dtype = _ROWS.get(type_id, (f"type {type_id}", None))
            stored.append(dtype)
            if kinds[name] == "array":
                arrays[name] = _array(arguments, f"{file.path}: field {printable(name)}")
        begin = _HEADER.size + fields * _FIELD.size
        if count and allocations == 0:
            raise SourceError(f"{file.path}: was not completely written")
        if (file.size - allocations) % _ALLOCATION.itemsize or not begin <= allocations <= file.size:
            raise SourceError(f"{file.path}: is not a .beton file, or was cut short")
        table = _Table(count, allocations, begin, kinds, arrays, np.dtype([("", "u1")]))
        return _with_rows(file, table, stored)


def _with_rows(file: ContainerFile, table: _Table, stored: Sequence[Any]) -> _Table:
    """Add the row layout to a table. The image pointers in the rows reveal the size of fields of unknown types."""
    names = list(table.kinds)
    images = [name for name, kind in table.kinds.items() if kind == "image"]
    is_known = None not in stored
    if not is_known and not images:
        raise SourceError(f"{file.path}: has a field of a custom type, and no images")
    for guess in (None,) if is_known else _UNKNOWN:
        dtypes = [guess if dtype is None else dtype for dtype in stored]
        row = np.dtype(list(zip(names, dtypes, strict=True)), align=True)
        found = _Table(table.count, table.allocations, table.begin, table.kinds, table.arrays, row)
        if table.begin + table.count * row.itemsize <= table.allocations and (
            is_known or _fits(file, found, images[0])
        ):
            return found
    raise SourceError(
        f"{file.path}: its rows do not have the expected layout: it is damaged, or has a field of an unknown type"
    )


def _fits(file: ContainerFile, table: _Table, image: str) -> bool:
    """Tell whether every image in a file begins at an allocation of the same sample."""
    try:
        allocations = _allocations(file, table)
        for first, block in _blocks(file, table):
            begin, sample = block[image]["begin"], np.arange(first, first + len(block))
            found = np.searchsorted(allocations["begin"], begin)
            found[found == len(allocations)] = 0
            if not (allocations["begin"][found] == begin).all() or not (allocations["sample"][found] == sample).all():
                return False
    except (SourceError, IndexError):
        return False
    return True


def _allocations(file: ContainerFile, table: _Table) -> npt.NDArray[Any]:
    """Return the nonempty allocations, sorted by offset; SourceError if two have the same offset."""
    found = np.frombuffer(file.read(table.allocations, file.size - table.allocations), _ALLOCATION)
    found = found[found["size"] > 0]
    found = found[np.argsort(found["begin"], kind="stable")]
    if (found["begin"][1:] == found["begin"][:-1]).any():
        raise SourceError(f"{file.path}: damaged: two values begin at the same byte")
    return found


def _blocks(file: ContainerFile, table: _Table) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield blocks of rows, each with the index of its first row."""
    for first in range(0, table.count, _BLOCK):
        part = min(_BLOCK, table.count - first)
        data = file.read(table.begin + first * table.row.itemsize, part * table.row.itemsize)
        yield first, np.frombuffer(data, table.row)


def _rows(file: ContainerFile, table: _Table) -> Iterator[tuple[int, dict[str, Any]]]:
    names = list(table.kinds)
    for first, block in _blocks(file, table):
        for number, row in enumerate(block.tolist(), first):
            yield number, dict(zip(names, row, strict=True))


@dataclass(frozen=True)
class _Values:
    """Reads the values of samples from an open file."""

    file: ContainerFile
    unit: int
    table: _Table
    allocations: npt.NDArray[Any]

    def value(self, number: int, name: str, stored: Any) -> Value:
        """Return the value of a sample's field; ValueError if the value does not match the allocations."""
        kind = self.table.kinds[name]
        if kind in ("int", "float"):
            return stored  # type: ignore[no-any-return]
        begin = stored[-1] if kind == "image" else stored if kind == "array" else stored[0]
        size = self._size(number, begin) if kind in ("image", "array") or stored[1] else 0
        if begin + size > self.file.size:
            raise ValueError(f"{name} ends at byte {begin + size} of {self.file.size}: the file was cut short")
        if kind == "array":
            return self._array(name, begin, size)
        if kind == "image":
            mode, width, height, _ = stored
            if mode not in (_JPEG, _RAW) or (mode == _RAW and not 0 < 3 * width * height == size):
                raise ValueError(f"{size} bytes are not an image of {width} x {height} pixels in mode {mode}")
        elif stored[1] != size:
            raise ValueError(f"{name} has {size} bytes, but its row says {stored[1]}")
        if kind == "json":
            end = self.file.read(begin, size).find(b"\0")
            size = end if end >= 0 else size
        return Piece(self.unit, begin, size)

    def _size(self, number: int, begin: int) -> int:
        """Return the size of a sample's value at an offset; ValueError if the sample has no bytes there."""
        index = int(np.searchsorted(self.allocations["begin"], np.uint64(begin)))
        sample, found, size = self.allocations[index].item() if index < len(self.allocations) else (-1, -1, 0)
        if found != begin or sample != number:
            raise ValueError(f"it points to byte {begin}, where none of its data are stored")
        return int(size)

    def _array(self, name: str, begin: int, size: int) -> npt.NDArray[Any]:
        dtype, shape = self.table.arrays[name]
        if math.prod(shape) * np.dtype(dtype).itemsize != size:
            raise ValueError(f"{size} bytes are not the size of an array of {dtype} {shape}")
        return np.frombuffer(self.file.read(begin, size), dtype).reshape(shape)


def _array(arguments: bytes, where: str) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and the shape of the arrays in a field."""
    lengths = np.frombuffer(arguments, "<u8", 33).tolist()
    shape = tuple(itertools.takewhile(bool, lengths[:32]))
    try:
        ((_, dtype),) = json.loads(arguments[264 : 264 + lengths[32]] if lengths[32] < len(arguments) else b"")
        found = np.dtype(dtype) if isinstance(dtype, str) and len(dtype) < 5 else None
    except (ValueError, TypeError, RecursionError) as error:
        raise SourceError(f"{where}: its arrays have no known type") from error
    if found is None or found.kind not in "biuf" or math.prod(shape) >= 1 << 40:
        raise SourceError(f"{where}: its arrays have no known type")
    return found.str, shape


def _type(kind: str, array: tuple[str, tuple[int, ...]] | None) -> ColumnType:
    if array is not None:
        return array_type(np.empty((0,) * len(array[1]), array[0]))
    return _TYPES.get(kind, ColumnType("", why=f"is of a {kind} that packer does not know"))
