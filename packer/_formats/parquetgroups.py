"""Row groups of Parquet files, written: the pages of the columns, and what the footer says of them.

The layout is that of apache/parquet-format. Nothing is compressed, all values are PLAIN, and any of them may be
missing. The first column has a page for each value, so that where a value will lie is known when it comes. The values
of every other column are one page, which follows at the end of the group.
"""

from __future__ import annotations

import functools
import itertools
import struct as binary_struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from packer._containers.columnar.thrift import BINARY, I32, STRUCT
from packer._containers.columnar.thriftwriting import Encoded, binary, i32, i64, listed, struct
from packer._containers.records.message import varint
from packer._table import Buffer

__all__ = [
    "BOOLEAN",
    "BYTE_ARRAY",
    "DOUBLE",
    "FLOAT",
    "INT32",
    "INT64",
    "MAGIC",
    "Leaf",
    "Node",
    "RowGroup",
    "Value",
    "first_page",
    "footer",
]

MAGIC = b"PAR1"
BOOLEAN, INT32, INT64, _INT96, FLOAT, DOUBLE, BYTE_ARRAY = range(7)
_PLAIN, _RLE = 0, 3  # encodings
_OPTIONAL = 1
_NUMBERS = {INT32: "<i", INT64: "<q", FLOAT: "<f", DOUBLE: "<d"}


class Leaf(NamedTuple):
    """A column.

    Attributes
    ----------
    path : tuple of str
        Its name, after that of the structure that it is part of.
    kind : int
        Its type, such as `BYTE_ARRAY`.
    converted : int, optional
        What the values mean, as ``ConvertedType`` in ``parquet.thrift`` says.
    """

    path: tuple[str, ...]
    kind: int
    converted: int | None = None

    @property
    def element(self) -> Encoded:
        """What the schema says of it."""
        said = {1: i32(self.kind), 3: i32(_OPTIONAL), 4: binary(self.path[-1].encode("utf-8"))}
        return struct(said if self.converted is None else {**said, 6: i32(self.converted)})


Node = tuple[Leaf, ...]
"""What the file has below one name: a column, or the columns of a structure."""

Value = int | float | Buffer | None


def footer(nodes: Sequence[Node], rows: int, groups: Sequence[Encoded], metadata: dict[bytes, bytes]) -> bytes:
    """Return what ends a file."""
    elements = [struct({4: binary(b"schema"), 5: i32(len(nodes))})]
    for leaves in nodes:
        if len(leaves[0].path) > 1:
            name = leaves[0].path[0].encode("utf-8")
            elements.append(struct({3: i32(_OPTIONAL), 4: binary(name), 5: i32(len(leaves))}))
        elements += [leaf.element for leaf in leaves]
    pairs = [struct({1: binary(key), 2: binary(value)}) for key, value in metadata.items()]
    _, data = struct(
        {
            1: i32(1),
            2: listed(STRUCT, elements),
            3: i64(rows),
            4: listed(STRUCT, groups),
            5: listed(STRUCT, pairs),
            6: binary(b"packer"),
        }
    )
    return data + binary_struct.pack("<I", len(data)) + MAGIC


def first_page(size: int) -> bytes:
    """Return what stands before a value of the first column, which is of a structure and has so many bytes."""
    levels = _levels([2])
    return _page_header(1, len(levels) + 4 + size) + levels + binary_struct.pack("<I", size)


def _page_header(values: int, size: int) -> bytes:
    data = struct({1: i32(values), 2: i32(_PLAIN), 3: i32(_RLE), 4: i32(_RLE)})
    return struct({1: i32(0), 2: i32(size), 3: i32(size), 5: data})[1]


def _levels(levels: Iterable[int]) -> bytes:
    """Return how many of the structure and the column are there in each row: runs of equal numbers."""
    runs = b"".join(varint(len(list(run)) << 1) + bytes([level]) for level, run in itertools.groupby(levels))
    return binary_struct.pack("<I", len(runs)) + runs


@dataclass
class _Chunk:
    """The values of a column in a group."""

    leaf: Leaf
    levels: bytearray = field(default_factory=bytearray)
    values: bytearray = field(default_factory=bytearray)

    def add(self, value: Value, level: int) -> None:
        self.levels.append(level)
        if isinstance(value, (int, float)):
            self.values += bytes([bool(value)]) if self.leaf.kind == BOOLEAN else self._number(value)
        elif value is not None:
            self.values += binary_struct.pack("<I", len(value))
            self.values += value

    def page(self) -> bytes:
        values = bytes(self.values)
        if self.leaf.kind == BOOLEAN:
            values = np.packbits(np.frombuffer(values, np.uint8), bitorder="little").tobytes()
        levels = _levels(self.levels)
        return _page_header(len(self.levels), len(levels) + len(values)) + levels + values

    def _number(self, value: int | float) -> bytes:
        return binary_struct.pack(_NUMBERS[self.leaf.kind], value)


class RowGroup:
    """The group that grows.

    Parameters
    ----------
    nodes : sequence of Node
        The first one is a structure, and its first column has a page for each value.

    Attributes
    ----------
    rows : int
    size : int
        Bytes so far, nearly.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._first, *others = itertools.chain.from_iterable(nodes)
        self._chunks = [_Chunk(leaf) for leaf in others]
        self.rows = self.size = 0
        self._begin = self._pages = 0

    def add(self, at: int, size: int, others: Sequence[tuple[Value, int]]) -> None:
        """Add a row.

        Parameters
        ----------
        at, size : int
            Where the page of the first column lies in the file.
        others : sequence of (value, int)
            The values of the other columns, and how many of the structure and the column are there.
        """
        if not self.rows:
            self._begin = at
        self.rows += 1
        self._pages += size
        self.size += size
        for chunk, (value, level) in zip(self._chunks, others, strict=True):
            chunk.add(value, level)
            self.size += 0 if value is None or isinstance(value, (int, float)) else len(value)

    @property
    def tail(self) -> bytes:
        """The pages of the other columns."""
        return b"".join(self._other_pages)

    def said(self, at: int) -> Encoded:
        """Return what the footer says of the group, whose tail begins at byte `at`."""
        columns = [self._column(self._first, self._begin, self._pages)]
        for chunk, page in zip(self._chunks, self._other_pages, strict=True):
            columns.append(self._column(chunk.leaf, at, len(page)))
            at += len(page)
        total = self._pages + sum(map(len, self._other_pages))
        return struct({1: listed(STRUCT, columns), 2: i64(total), 3: i64(self.rows)})

    @functools.cached_property
    def _other_pages(self) -> list[bytes]:
        """Asked for when no row is added any more."""
        return [chunk.page() for chunk in self._chunks]

    def _column(self, leaf: Leaf, begin: int, size: int) -> Encoded:
        data = struct(
            {
                1: i32(leaf.kind),
                2: listed(I32, [i32(_PLAIN), i32(_RLE)]),
                3: listed(BINARY, [binary(name.encode("utf-8")) for name in leaf.path]),
                4: i32(0),  # not compressed
                5: i64(self.rows),
                6: i64(size),
                7: i64(size),
                9: i64(begin),
            }
        )
        return struct({2: i64(begin), 3: data})
