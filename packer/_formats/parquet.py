"""Parquet: a directory of files, in which Hugging Face's `datasets` finds images and classes.

``data-00000.parquet``   samples

A row is a sample. Its columns are ``image``, a structure of ``bytes`` and ``path`` (the sample's name); ``label``; and
one for each field, under the field's name. The metadata of a file contain, under ``huggingface``, the features of the
columns: which columns are images, and the names of the classes. A sample without a label has the label -1, as in a
ClassLabel.

Nothing is compressed, and each image is a page of its own. So an image is one range of the file, with an offset that is
known as soon as the image is written. The other columns follow at the end of their row group, with one page each. The
offsets of these values are known only then, so packer's index has a copy of the values of blob fields.
apache/parquet-format specifies the file; all values have the encoding PLAIN, and any value may be missing.

There is no ``classes.txt``, because `datasets` would mistake a directory with as many text files as Parquet files for a
text data set.
"""

from __future__ import annotations

import functools
import itertools
import json
import struct as binary_struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from packer._containers.parquet import BINARY, I32, STRUCT, Encoded, binary, i32, i64, listed, struct
from packer._containers.protobuf import varint
from packer._fields import KINDS, Field
from packer._formats.contract import NOTHING, Contents, Frame
from packer._formats.foreign import ShardWriter
from packer._table import Buffer, Sample, Table, encode_name
from packer.errors import DestinationError, printable

MAGIC = b"PAR1"
BOOLEAN, INT32, INT64, _INT96, FLOAT, DOUBLE, BYTE_ARRAY = range(7)
_PLAIN, _RLE = 0, 3  # encodings
_OPTIONAL = 1
_NUMBERS = {INT32: "<i", INT64: "<q", FLOAT: "<f", DOUBLE: "<d"}


class ParquetColumn(NamedTuple):
    """A column.

    Attributes
    ----------
    path : tuple of str
        The name of its structure, if any, and the column's name.
    kind : int
        The physical type, such as `BYTE_ARRAY`.
    converted : int, optional
        The logical meaning of the values: a ``ConvertedType`` of ``parquet.thrift``.
    """

    path: tuple[str, ...]
    kind: int
    converted: int | None = None

    @property
    def element(self) -> Encoded:
        """The column's element in the schema of a file."""
        members = {1: i32(self.kind), 3: i32(_OPTIONAL), 4: binary(self.path[-1].encode("utf-8"))}
        return struct(members if self.converted is None else {**members, 6: i32(self.converted)})


Node = tuple[ParquetColumn, ...]
"""A column, or the columns of a structure."""

Value = int | float | Buffer | None


def footer(nodes: Sequence[Node], rows: int, groups: Sequence[Encoded], metadata: dict[bytes, bytes]) -> bytes:
    """Return the footer that ends a file."""
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
    """Return the bytes before a value of `size` bytes in the first column; this column is a member of a structure."""
    levels = _levels([2])
    return _page_header(1, len(levels) + 4 + size) + levels + binary_struct.pack("<I", size)


def _page_header(values: int, size: int) -> bytes:
    data = struct({1: i32(values), 2: i32(_PLAIN), 3: i32(_RLE), 4: i32(_RLE)})
    return struct({1: i32(0), 2: i32(size), 3: i32(size), 5: data})[1]


def _levels(levels: Iterable[int]) -> bytes:
    """Return the definition levels of a column, as runs of equal numbers."""
    runs = b"".join(varint(len(list(run)) << 1) + bytes([level]) for level, run in itertools.groupby(levels))
    return binary_struct.pack("<I", len(runs)) + runs


@dataclass
class _Chunk:
    """The values of one column in a row group."""

    leaf: ParquetColumn
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
    """The row group that is being written.

    Parameters
    ----------
    nodes : sequence of Node
        The columns. The first node is a structure; in its first column, each value has a page of its own.

    Attributes
    ----------
    rows : int
    size : int
        The approximate size so far, in bytes.
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
            Offset in the file, and size in bytes, of the page that holds the value of the first column.
        others : sequence of (value, int)
            The values of the other columns, and their definition levels.
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

    def metadata(self, at: int) -> Encoded:
        """Return the entry of the row group in the footer; `at` is the byte where its `tail` begins."""
        columns = [self._column(self._first, self._begin, self._pages)]
        for chunk, page in zip(self._chunks, self._other_pages, strict=True):
            columns.append(self._column(chunk.leaf, at, len(page)))
            at += len(page)
        total = self._pages + sum(map(len, self._other_pages))
        return struct({1: listed(STRUCT, columns), 2: i64(total), 3: i64(self.rows)})

    @functools.cached_property
    def _other_pages(self) -> list[bytes]:
        """The pages of the other columns; accessed only after the last row was added."""
        return [chunk.page() for chunk in self._chunks]

    def _column(self, leaf: ParquetColumn, begin: int, size: int) -> Encoded:
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


_ROWS, _SIZE = 1000, 64 << 20  # of a row group that is full
_MOST = 1 << 30  # bytes of a sample: those of a page are a number of 32 bits
_UTF8, _INT8, _INT16 = 0, 15, 16
_SCALARS: Mapping[str, tuple[int, int | None]] = {
    "bool": (BOOLEAN, None),
    "int8": (INT32, _INT8),
    "int16": (INT32, _INT16),
    "int32": (INT32, None),
    "int64": (INT64, None),
    "float32": (FLOAT, None),
    "float64": (DOUBLE, None),
}


class ParquetWriter(ShardWriter):
    """Writes files that `datasets` and pyarrow read."""

    shard_name = "data-{:05d}.parquet"
    head_size = len(MAGIC)

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        self._nodes, self._features = _nodes(contents), json.dumps(_features(contents)).encode("ascii")
        self._groups: list[Encoded] = []  # complete ones of the open shard
        self._group, self._rows = RowGroup(self._nodes), 0
        self._sample: Sample | None = None  # of the last frame
        super().__init__(path, options, written, contents)

    def frame(self, sample: Sample) -> Frame:
        size = sum(map(len, sample.parts))
        if size > _MOST:
            raise DestinationError(
                f"{printable(sample.name)}: {size:,} bytes are too many for a row of Parquet; the limit is {_MOST:,}"
            )
        frame = self.new_frame()
        frame.add(first_page(len(sample.data)))
        frame.add_image(sample.data)
        self.copy_blobs(frame, sample)
        self._sample = sample
        return frame

    def gap(self) -> bytes:
        return self._group.tail if self._is_full() else b""

    def index_line(self, frame: Frame, at: int) -> bytes:
        assert self._sample is not None
        if self._is_full():
            self._end_group(at - len(self._group.tail))
        self._group.add(at, frame.size, list(self._values(self._sample)))
        self._rows += 1
        return b""

    def trailer(self, size: int, *, last: bool) -> bytes:
        tail = b""
        if self._group.rows:
            tail = self._group.tail
            self._end_group(size)
        ending = footer(self._nodes, self._rows, self._groups, {b"huggingface": self._features})
        self._groups, self._rows = [], 0
        return tail + ending

    def head(self, lines: bytes, size: int) -> bytes:
        return MAGIC

    def sidecar_files(self) -> Iterator[tuple[str, bytes]]:
        return iter(())

    def _is_full(self) -> bool:
        return self._group.rows >= _ROWS or self._group.size >= _SIZE

    def _end_group(self, at: int) -> None:
        """End the current row group, with its tail at byte `at`, and begin another."""
        self._groups.append(self._group.metadata(at))
        self._group = RowGroup(self._nodes)

    def _values(self, sample: Sample) -> Iterator[tuple[Value, int]]:
        """Yield the values of all columns except the first, and their definition levels."""
        yield encode_name(sample.name).decode("utf-8", "replace").encode("utf-8"), 2
        yield sample.label, 1
        if self._contents.codec == "raw":
            yield sample.height, 1
            yield sample.width, 1
        for one, stored in zip(self._contents.fields, sample.fields, strict=True):
            if KINDS[one.kind].form == "pixels":
                yield stored, 0 if stored is None else 2
                yield None, 0 if stored is None else 1
            else:
                yield stored, int(stored is not None)


def _nodes(contents: Contents) -> list[Node]:
    """Return the columns of a file."""
    label = DOUBLE if contents.label_type == "float" else INT64
    nodes: list[Node] = [_picture("image"), (ParquetColumn(("label",), label),)]
    if contents.codec == "raw":
        nodes += [(ParquetColumn((name,), INT32),) for name in ("height", "width")]
    return nodes + [
        _picture(one.name) if KINDS[one.kind].form == "pixels" else (_leaf(one),) for one in contents.fields
    ]


def _picture(name: str) -> Node:
    return ParquetColumn((name, "bytes"), BYTE_ARRAY), ParquetColumn((name, "path"), BYTE_ARRAY, _UTF8)


def _leaf(one: Field) -> ParquetColumn:
    if one.is_blob:
        return ParquetColumn((one.name,), BYTE_ARRAY, _UTF8 if KINDS[one.kind].syntax else None)
    return ParquetColumn((one.name,), *_SCALARS[one.dtype or "int64"])


def _features(contents: Contents) -> dict[str, Any]:
    """Return the metadata of a file in the form that `datasets` writes."""
    image: Any = {"_type": "Image"}
    features: dict[str, Any] = {"image": image}
    if contents.label_type == "class":
        features["label"] = _classes(contents.classes)
    else:
        features["label"] = _of_type("float64" if contents.label_type == "float" else "int64")
    if contents.codec == "raw":  # not decoded by `datasets`
        features["image"] = {"bytes": _of_type("binary"), "path": _of_type("string")}
        features |= {name: _of_type("int32") for name in ("height", "width")}
    for one in contents.fields:
        kind = KINDS[one.kind]
        if kind.form == "pixels":
            features[one.name] = image
        elif one.is_blob:
            features[one.name] = _of_type("string" if kind.syntax else "binary")
        else:
            features[one.name] = _of_type(one.dtype) if one.dtype else _classes(() if one.ids else one.classes)
    return {"info": {"features": features}}


def _classes(names: Any) -> dict[str, Any]:
    """Return a ClassLabel feature, or a number's feature if a ClassLabel cannot have these names."""
    unique = list(dict.fromkeys(names))
    return {"names": unique, "_type": "ClassLabel"} if unique and unique == list(names) else _of_type("int64")


def _of_type(dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "_type": "Value"}
