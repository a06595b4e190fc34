"""LMDB files whose values ``pyarrow.serialize`` wrote. They are parsed here, because pyarrow has removed that function.

The first 16 bytes of a value are the number of tensors and the number of buffers that the value has at its end. Two
messages in Arrow's IPC format follow: a schema, and a batch of one row with one column. The column is a dense union of
numbers, texts, bytes, and lists of such unions. https://arrow.apache.org/docs/format/Columnar.html and its .fbs files
specify messages and unions. Before pyarrow 0.15, no 0xFFFFFFFF preceded the length of a message, and a union had a
bitmap of nulls.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from packer._containers.arrow import FlatTable
from packer._containers.lmdb import COUNTS, First, LMDBValue
from packer._containers.pickle_lmdb import PickledLMDB
from packer._containers.safe_pickle import HELD, MOST_THINGS, Array, Blob, Budget, array_of
from packer._storage.packfile import PackFile

__all__ = ["SerializedLMDB", "deserialized", "is_serialized"]

_HEADER = 16
_MOST_METADATA = 1 << 20
_MOST_TYPES = 200
_MOST_AXES = 32  # most axes of an array
_MOST_CACHED = 1 << 13  # most bytes of a schema that is cached
_V4 = 3  # a value of Arrow's enum MetadataVersion
_SCHEMA, _BATCH, _TENSOR_MESSAGE = 1, 3, 4  # values of Arrow's enum MessageHeader
_NULL, _INT, _FLOAT, _BINARY, _UTF8, _BOOL, _LIST, _STRUCT, _UNION = 1, 2, 3, 4, 5, 6, 12, 13, 14  # of its enum Type
_FIXED = {(_INT, 8): "<b", (_INT, 16): "<h", (_INT, 32): "<i", (_INT, 64): "<q", (_FLOAT, 1): "<f", (_FLOAT, 2): "<d"}
_TENSOR, _ARRAY, _BUFFER = "14", "15", "16"  # PythonType: indices into the objects after the batch
_ALIGNED = 64
_DTYPES = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)} | {"f2", "f4", "f8"}


class SerializedLMDB(PickledLMDB):
    """LMDB files whose values are pickles, or were serialized by pyarrow. Manifests use the same name for both."""

    @classmethod
    def is_of(cls, first: First) -> bool:
        return any(is_serialized(value.head()) for value in first.values if value.key not in COUNTS)

    @classmethod
    def read(cls, value: LMDBValue, most: int = MOST_THINGS) -> Any:
        if is_serialized(value.head()):
            return deserialized(value.file, value.offset, value.size, most)
        return super().read(value, most)


def is_serialized(head: bytes) -> bool:
    """Tell from the first 64 bytes of a value whether pyarrow serialized it."""
    if len(head) < 32 or any(count > 1000 for count in struct.unpack_from("<4I", head)):
        return False
    start = 20 if head[16:20] == b"\xff\xff\xff\xff" else 16
    length, root = struct.unpack_from("<II", head, start)
    return bool(16 <= length <= _MOST_METADATA and 4 <= root < length and length % 4 == 0)


def deserialized(file: PackFile, offset: int, size: int, most: int = MOST_THINGS) -> Any:
    """Return the value in a range of a file, as `packer._containers.safe_pickle.unpickled` does.

    Raises
    ------
    ValueError
        If the value is damaged, or contains anything other than numbers, texts, bytes, lists, dicts and arrays.
    """
    try:
        return _Record(file, offset, size, most).value()
    except (struct.error, IndexError, RecursionError) as error:
        raise ValueError("a damaged value of pyarrow") from error


@dataclass(frozen=True, slots=True)
class _Type:
    """The type of a column, or of its elements, in a schema.

    Attributes
    ----------
    number : int
        The index of the type in the schema.
    name : str
        The field's name; for a number in a union, it tells what the number means to pyarrow.
    kind : int
        One of Arrow's `Type`.
    width : int
        The bits of an integer, or Arrow's code for the precision of a float.
    codes : tuple of int
        For a union, the code of each child type.
    children : tuple of _Type
    """

    number: int
    name: str
    kind: int
    width: int
    codes: tuple[int, ...]
    children: tuple[_Type, ...]


class _Message(NamedTuple):
    """A message: its bytes, its end in the file, the version of the message format, and the size of its body."""

    data: bytes
    end: int
    version: int
    body: int


class _Batch(NamedTuple):
    """A batch: the version of the message format, the offset of the body in the file, and the bytes of the body."""

    version: int
    body: int
    size: int


class _Record:
    """The parser of one serialized value."""

    def __init__(self, file: PackFile, offset: int, size: int, most: int) -> None:
        self._file, self._begin, self._end = file, offset, offset + size
        self._budget = Budget(size, most)
        self._arrays: list[tuple[bytes, int, int]] = []
        self._head = file.read(offset, min(size, 4096))
        self._after = 0
        self._lengths: dict[int, int] = {}
        self._buffers: dict[int, list[tuple[int, int]]] = {}

    def value(self) -> Any:
        """Return the serialized value, without the list of one element in which `serialize` wrapped it."""
        described = self._message(self._begin + _HEADER)
        if described.body:
            raise ValueError("a damaged value of pyarrow")
        column = (_schema if len(described.data) <= _MOST_CACHED else _schema.__wrapped__)(described.data)
        data, after, version, body = self._message(described.end)
        message = FlatTable.root(data)
        if message.number(1, "<B") != _BATCH or not 0 <= body <= self._end - after:
            raise ValueError("a damaged value of pyarrow")
        batch = message.table(2)
        lengths, ranges = iter([length for length, _ in batch.pairs(1)]), iter(batch.pairs(2))
        try:
            self._locate(column, lengths, ranges, _Batch(version, after, body))
        except StopIteration as error:
            raise ValueError("a damaged value of pyarrow") from error
        self._after = after + body
        if self._lengths[column.number] != 1:
            raise ValueError(f"a value of pyarrow with {self._lengths[column.number]} rows")
        return self._element(column, 0)

    def _message(self, at: int) -> _Message:
        (length,) = struct.unpack("<I", self._bytes(at, 4))
        if length == 0xFFFF_FFFF:
            at += 4
            (length,) = struct.unpack("<I", self._bytes(at, 4))
        if length > _MOST_METADATA:
            raise ValueError("a damaged value of pyarrow")
        data, end = self._bytes(at + 4, length), at + 4 + length
        message = FlatTable.root(data)
        return _Message(data, end + -(end - self._begin) % 8, message.number(0, "<h"), message.number(3, "<q"))

    def _locate(self, of: _Type, lengths: Iterator[int], ranges: Iterator[tuple[int, int]], batch: _Batch) -> None:
        """Find the offsets, in the file, of the elements of a type and of its child types."""
        self._lengths[of.number] = next(lengths)
        buffers = self._buffers[of.number] = []
        bitmap = batch.version <= _V4
        count = {_NULL: 0, _STRUCT: 1, _LIST: 2, _BINARY: 3, _UTF8: 3, _UNION: 3 if bitmap else 2}
        for _ in range(count.get(of.kind, 2)):
            start, length = next(ranges)
            if start < 0 or length < 0 or start + length > batch.size:
                raise ValueError("a damaged value of pyarrow")
            buffers.append((batch.body + start, length))
        if of.kind == _UNION and bitmap:
            del buffers[0]
        for child in of.children:
            self._locate(child, lengths, ranges, batch)

    def _element(self, of: _Type, at: int) -> Any:
        self._budget.spend()
        if not 0 <= at < self._lengths[of.number]:
            raise ValueError("a damaged value of pyarrow")
        nested = {_UNION: self._chosen, _LIST: self._list, _BINARY: self._bytes_of, _UTF8: self._bytes_of}.get(of.kind)
        if nested is not None:
            return nested(of, at)
        if of.kind == _NULL:
            return None
        if of.kind == _BOOL:
            return bool(self._number(of, 1, "<B", at // 8) >> at % 8 & 1)
        layout = _FIXED.get((of.kind, of.width))
        if layout is None:
            raise ValueError(f"a value of pyarrow with the type {of.kind}, which packer does not read")
        return self._number(of, 1, layout, at)

    def _chosen(self, of: _Type, at: int) -> Any:
        """Return an element of a union."""
        code, index = self._number(of, 0, "<b", at), self._number(of, 1, "<i", at)
        if code not in of.codes:
            raise ValueError("a damaged value of pyarrow")
        child = of.children[of.codes.index(code)]
        if child.name in (_TENSOR, _ARRAY, _BUFFER):
            return self._array(child.name, self._element(child, index))
        return self._element(child, index)

    def _list(self, of: _Type, at: int) -> list[Any] | dict[str, Any]:
        """Return a stored list, tuple or set as a list, or a stored dict as a dict.

        A dict is stored as a list of keys and values.
        """
        first, end = self._number(of, 1, "<i", at), self._number(of, 1, "<i", at + 1)
        inner = of.children[0]
        if inner.kind != _STRUCT:
            return [self._element(inner, index) for index in range(first, end)]
        keys, values = inner.children
        pairs = ((self._element(keys, index), self._element(values, index)) for index in range(first, end))
        return {key: value for key, value in pairs if isinstance(key, str)}

    def _array(self, tag: str, number: Any) -> Array:
        """Return array `number` of the tensors or arrays after the batch: each is a message, followed by its elements.

        All tensors come before all arrays. Arrays from before pyarrow 0.15 are an error, because there was no such file
        to test with.
        """
        tensors, sparse, _, _ = struct.unpack("<4I", self._head[:_HEADER])
        if tag == _BUFFER or sparse or self._head[_HEADER : _HEADER + 4] != b"\xff\xff\xff\xff":
            raise ValueError("a value of pyarrow with arrays that packer does not read. Write it again with pickle")
        if type(number) is not int or number < 0:
            raise ValueError("a damaged value of pyarrow")
        number += tensors if tag == _ARRAY else 0
        while len(self._arrays) <= number:
            self._arrays.append(self._next_array())
        data, start, body = self._arrays[number]
        message = FlatTable.root(data)
        if message.number(1, "<B") != _TENSOR_MESSAGE:
            raise ValueError("a damaged value of pyarrow")
        return self._tensor(message.table(2), start, body)

    def _next_array(self) -> tuple[bytes, int, int]:
        """Return the message of the next array, and the offset of the array's elements."""
        _, before, size = self._arrays[-1] if self._arrays else (b"", self._after, 8)  # 8 bytes end the messages
        at = before + size
        data, start, _, body = self._message(at + -(at - self._begin) % _ALIGNED)
        if not 0 <= body <= self._end - start:
            raise ValueError("a damaged value of pyarrow")
        return data, start, body

    def _tensor(self, header: FlatTable, start: int, body: int) -> Array:
        kind, of = header.number(0, "<B"), header.table(1)
        width = of.number(0, "<i" if kind == _INT else "<h")
        dtype = f"{'i' if of.number(1, '<B') else 'u'}{width // 8}" if kind == _INT else f"f{2 << width}"
        if kind not in (_INT, _FLOAT) or dtype not in _DTYPES:
            raise ValueError("a value of pyarrow with an array of values other than numbers")
        shape = tuple(side.number(0, "<q") for side in itertools.islice(header.tables(2), _MOST_AXES))
        strides, count = header.vector(3, 8)
        item, size, where = int(dtype[1]), int(dtype[1]), header.where(4)
        for axis in range(len(shape) - 1, -1, -1):
            if shape[axis] < 0 or (count and header.number_at("<q", strides + 8 * axis) != size):
                raise ValueError("a value of pyarrow with an array whose elements are not contiguous")
            size *= shape[axis]
        offset, length = header.number_at("<q", where), header.number_at("<q", where + 8)
        if not where or offset < 0 or not item <= size <= length <= body - offset:
            raise ValueError("a damaged value of pyarrow")
        begin = start + offset
        return array_of(f"<{dtype}", shape, Blob(begin, size, self._bytes(begin, min(HELD, size))), False)

    def _bytes_of(self, of: _Type, at: int) -> Blob | str:
        first, end = self._number(of, 1, "<i", at), self._number(of, 1, "<i", at + 1)
        start, size = self._buffers[of.number][2]
        if not 0 <= first <= end <= size:
            raise ValueError("a damaged value of pyarrow")
        if of.kind == _UTF8:
            self._budget.spend(end - first, things=0)
            return self._bytes(start + first, end - first).decode("utf-8")
        head = self._bytes(start + first, min(HELD, end - first))
        return Blob(start + first, end - first, head)

    def _number(self, of: _Type, buffer: int, layout: str, at: int) -> Any:
        start, size = self._buffers[of.number][buffer]
        width = struct.calcsize(layout)
        if not 0 <= at * width <= size - width:
            raise ValueError("a damaged value of pyarrow")
        return struct.unpack(layout, self._bytes(start + at * width, width))[0]

    def _bytes(self, at: int, size: int) -> bytes:
        inner = at - self._begin
        if inner < 0 or at + size > self._end:
            raise ValueError("a damaged value of pyarrow")
        if inner + size <= len(self._head):
            return self._head[inner : inner + size]
        return self._file.read(at, size)


@functools.lru_cache(16)
def _schema(data: bytes) -> _Type:
    """Return the type of the only column in a schema. It is cached, because the samples of a file have few schemas."""
    message = FlatTable.root(data)
    if message.number(1, "<B") != _SCHEMA:
        raise ValueError("a damaged value of pyarrow")
    columns = [_type_of(one, itertools.count()) for one in itertools.islice(message.table(2).tables(1), 2)]
    if len(columns) != 1:
        raise ValueError("a damaged value of pyarrow")
    return columns[0]


def _type_of(described: FlatTable, numbers: Iterator[int]) -> _Type:
    """Return the type that a field of a schema describes, with its child types."""
    number, kind, width, codes = next(numbers), described.number(2, "<B"), 0, []
    if number == _MOST_TYPES:
        raise ValueError("a damaged value of pyarrow")
    if kind in (_INT, _FLOAT):
        width = described.table(3).number(0, "<i" if kind == _INT else "<h")
    children = tuple(_type_of(child, numbers) for child in described.tables(5))
    if kind == _UNION:
        union = described.table(3)
        codes = union.ints(1) or list(range(len(children)))
        if union.number(0, "<h") != 1 or len(codes) != len(children):
            raise ValueError("a damaged value of pyarrow")
    if len(children) != {_LIST: 1, _STRUCT: 2}.get(kind, len(children)):
        raise ValueError("a damaged value of pyarrow")
    return _Type(number, described.text(0), kind, width, tuple(codes), children)
