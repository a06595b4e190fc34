"""Arrow files of images that Hugging Face's `datasets` writes: its cache files, and directories of ``save_to_disk``.

``state.json`` lists the files of a directory in their order. If the schema of a file has no features (descriptions of
the columns), ``dataset_info.json`` has them. Images in uncompressed buffers are read in place. pyarrow reads the other
columns.

Arrow's IPC format (``Message.fbs``, ``Schema.fbs`` and ``Columnar.rst`` of apache/arrow): a message consists of a
marker, the size of the message's metadata, the metadata as a FlatBuffer (https://flatbuffers.dev), and the body. A file
consists of a signature, a stream of messages, and a footer. A record batch has its arrays in the order of the schema, a
parent before its children. Each array has a node, which records the array's length and its number of nulls, and the
buffers of its type: a validity bitmap, offsets, and values.

A column may hold indices into a dictionary, like the categories of pandas. The dictionary is a separate message. In a
stream, a dictionary applies to the batches that follow, until another dictionary replaces it; a delta message appends
values to the current dictionary. In a file, a dictionary applies to all batches.
"""

from __future__ import annotations

import itertools
import os
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._containers.blocks import damage, damaged, errors_in, json_in
from packer._containers.compression import MOST_UNPACKED, pyarrow_for, unpack
from packer._containers.contract import IMAGE_HEAD, Packed, Piece
from packer._containers.hf_tables import (
    RowValues,
    TableColumns,
    TableImages,
    TableRow,
    begin_with_image,
    features_of,
    is_image_feature,
    names_are_plain,
    no_column,
    row_lists,
    rows_in_lists,
)
from packer._storage.packfile import PackFile
from packer._storage.safe_open import name_problem
from packer.errors import PackError, SourceError, printable

FILE = b"ARROW1\0\0"
"""The first bytes of a file; a stream begins with a message instead."""

_END = b"ARROW1"
_MARK = b"\xff\xff\xff\xff"
_MOST_METADATA = 1 << 26  # bytes of a message's metadata
_SCHEMA, _DICTIONARY, _RECORDS = 1, 2, 3
_DEEPEST = 64  # levels of fields in fields
_MALFORMED = (ValueError, struct.error)  # raised while reading a damaged FlatBuffer
_COMPRESSION = {0: "lz4", 1: "zstd"}


class FlatTable:
    """A table in a FlatBuffer, which holds numbers and nested tables in numbered slots.

    Raises
    ------
    ValueError, struct.error
        From every method, if the buffer is damaged.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._slots = at - int_at(data, "<i", at)
        self._end = int_at(data, "<H", self._slots)

    @classmethod
    def root(cls, data: bytes) -> FlatTable:
        """Return the root table of a buffer."""
        return cls(data, int_at(data, "<I", 0))

    def where(self, slot: int) -> int:
        """Return the offset of the value in a slot; 0 if the slot is empty."""
        at = 4 + 2 * slot
        inner = int_at(self._data, "<H", self._slots + at) if at < self._end else 0
        return self._at + inner if inner else 0

    def number(self, slot: int, layout: str, default: int = 0) -> int:
        """Return the number in a slot; `default` if the slot is empty."""
        at = self.where(slot)
        return int_at(self._data, layout, at) if at else default

    def find(self, slot: int) -> FlatTable | None:
        """Return the table in a slot; None if the slot is empty."""
        at = self.where(slot)
        return FlatTable(self._data, at + int_at(self._data, "<I", at)) if at else None

    def table(self, slot: int) -> FlatTable:
        """Return the table in a slot that must not be empty."""
        found = self.find(slot)
        if found is None:
            raise ValueError("a damaged FlatBuffer")
        return found

    def vector(self, slot: int, width: int) -> tuple[int, int]:
        """Return the offset of a vector's first element, and the number of elements."""
        at = self.where(slot)
        if not at:
            return 0, 0
        at += int_at(self._data, "<I", at)
        count = int_at(self._data, "<I", at)
        if at + 4 + count * width > len(self._data):
            raise ValueError("a damaged FlatBuffer")
        return at + 4, count

    def tables(self, slot: int) -> Iterator[FlatTable]:
        """Yield each table in a vector."""
        start, count = self.vector(slot, 4)
        for at in range(start, start + 4 * count, 4):
            yield FlatTable(self._data, at + int_at(self._data, "<I", at))

    def number_at(self, layout: str, at: int) -> int:
        """Return the number at an offset in the buffer."""
        return int_at(self._data, layout, at)

    def pairs(self, slot: int) -> list[tuple[int, int]]:
        """Return the pairs of int64 in a vector."""
        start, count = self.vector(slot, 16)
        numbers = struct.unpack_from(f"<{2 * count}q", self._data, start)
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    def ints(self, slot: int) -> list[int]:
        """Return the int32 numbers in a vector."""
        start, count = self.vector(slot, 4)
        return [int_at(self._data, "<i", at) for at in range(start, start + 4 * count, 4)]

    def text(self, slot: int) -> str:
        """Return the text in a slot; an empty text if the slot is empty."""
        start, count = self.vector(slot, 1)
        return self._data[start : start + count].decode("utf-8", "replace")


def int_at(data: bytes, layout: str, at: int) -> int:
    """Return the number at a position; ValueError or struct.error if the position is outside of the buffer."""
    if at < 0:
        raise ValueError("a damaged FlatBuffer")
    return int(struct.unpack_from(layout, data, at)[0])


class Buffered(NamedTuple):
    """The offset of a buffer in the file, and its size."""

    offset: int
    size: int


class ArrowBatch(NamedTuple):
    """A record batch: the nodes and buffers of its arrays.

    Attributes
    ----------
    rows : int
    nodes : list of (int, int)
        The length and the number of nulls of each array, a parent before its children.
    buffers : list of Buffered
    codec : str
        The compression of the buffers; empty without compression. A compressed buffer begins with its unpacked size, 8
        bytes.
    dictionaries : mapping of int to Dictionary
        The dictionaries of the columns, by id.
    """

    rows: int
    nodes: list[tuple[int, int]]
    buffers: list[Buffered]
    codec: str
    dictionaries: Mapping[int, Dictionary] = MappingProxyType({})


class Dictionary(NamedTuple):
    """The values that the indices of a column refer to.

    Attributes
    ----------
    values : ArrowBatch
        A single array.
    before : Dictionary, optional
        The dictionary whose values this one extends, if it is a delta.
    """

    values: ArrowBatch
    before: Dictionary | None


class _Message(NamedTuple):
    """A message in the file: its type, its header, and the location of its body."""

    at: int
    kind: int
    header: FlatTable | None
    body: int
    size: int


def _batch(header: FlatTable, message: _Message) -> ArrowBatch:
    body, size = message.body, message.size
    rows, compression = header.number(0, "<q"), header.find(3)
    nodes = header.pairs(1)
    buffers = [Buffered(body + offset, length) for offset, length in header.pairs(2)]
    if rows < 0 or any(length < 0 for length, _ in nodes):
        raise ValueError(f"a batch of {rows} rows has an invalid length")
    if any(buffer.offset < body or not 0 <= buffer.size <= body + size - buffer.offset for buffer in buffers):
        raise ValueError("a buffer is outside of its message")
    if header.where(4):
        raise ValueError("it contains view arrays, which packer does not read: write it with other types")
    codec = ""
    if compression is not None:
        number = compression.number(0, "<b")
        if number not in _COMPRESSION:
            raise ValueError(f"packer does not know its compression {number}")
        codec = _COMPRESSION[number]
    return ArrowBatch(rows, nodes, buffers, codec)


NOT_READ = (ArithmeticError, LookupError, MemoryError, OSError, PackError, RuntimeError, TypeError, ValueError)
"""The errors that pyarrow raises for a damaged file, and the errors of reading a file."""

_REPEATING = re.compile(r"(dense_|sparse_)?union|run_end_encoded|(large_)?list_view|(string|binary)_view")
_MOST_NULLS = 1 << 28  # bytes


class _Values(NamedTuple):
    """A dictionary, its values as an array, the size of its buffers, and the memory that its nulls take, in bytes."""

    of: Dictionary
    array: Any
    taken: int
    nulls: int


class ArrowFile:
    """A reader of a stream in Arrow's IPC format, or of a file that contains such a stream.

    Parameters
    ----------
    file : PackFile
        The open file, which is file number `unit` of its container.
    unit : int
    """

    def __init__(self, file: PackFile, unit: int = 0) -> None:
        self._file, self._unit = file, unit
        self._is_stream = file.read(0, min(len(FILE), file.size)) != FILE
        self._begin = 0 if self._is_stream else len(FILE)
        self._unpacked: tuple[Piece, bytes] | None = None
        self._values: dict[int, _Values] = {}
        self._taken = 0  # bytes of all buffers that were read for columns; a buffer that is read twice counts twice
        self._nulls = 0  # bytes of memory for arrays of nulls, which take no bytes in the file

    @cached_property
    def schema(self) -> Any:
        """The pyarrow.Schema.

        Raises
        ------
        MissingDependencyError
            If pyarrow is not installed.
        SourceError
            If the file has no schema.
        """
        pa = pyarrow_for(f"{printable(self._file.path)}: reading its Arrow table needs pyarrow")
        metadata, _ = self._metadata(self._begin, self._file.size)
        kind, _, _ = self._header(self._begin, metadata)
        if kind != _SCHEMA:
            raise damaged(self._file, self._begin, "it does not begin with a schema")
        with self._checked():
            schema = pa.ipc.read_schema(pa.py_buffer(_MARK + struct.pack("<i", len(metadata)) + metadata))
            for field in schema:
                _require_text(field)
            return schema

    @cached_property
    def _dictionaries(self) -> list[int | None]:
        """The dictionary id of each array in a batch, in the order of nodes; None for an array without a dictionary."""
        metadata, _ = self._metadata(self._begin, self._file.size)
        _, _, schema = self._header(self._begin, metadata)
        with damage(self._file, self._begin, *_MALFORMED):
            return [] if schema is None else [one for field in schema.tables(1) for one in _ids(field, _DEEPEST)]

    def batches(self) -> Iterator[ArrowBatch]:
        """Yield the record batches in file order.

        Raises
        ------
        SourceError
            If the file is damaged or cut short, or has types that packer does not know.
        """
        ids = frozenset(one for one in self._dictionaries if one is not None)
        known: dict[int, Dictionary] = {}
        if ids and not self._is_stream:
            for message in self._messages():
                known = self._with_dictionary(message, known, ids)
        for message in self._messages():
            if message.kind == _RECORDS and message.header is not None:
                with damage(self._file, message.at, *_MALFORMED):
                    batch = _batch(message.header, message)
                yield batch._replace(dictionaries=known)
            elif ids and self._is_stream:
                known = self._with_dictionary(message, known, ids)

    def _messages(self) -> Iterator[_Message]:
        """Yield the messages; SourceError if a message is not a schema, a dictionary or a record batch."""
        at, end = self._begin, self._end()
        while True:
            metadata, body = self._metadata(at, end)
            if not metadata:
                return
            kind, size, header = self._header(at, metadata)
            if not 0 <= size <= end - body:
                raise damaged(self._file, at, f"a message of {size} bytes extends beyond the file: it was cut short")
            if kind not in (_SCHEMA, _DICTIONARY, _RECORDS) or (kind == _RECORDS and header is None):
                raise damaged(self._file, at, f"a message has the unexpected type {kind}")
            yield _Message(at, kind, header, body, size)
            at = body + size

    def _with_dictionary(
        self, message: _Message, known: dict[int, Dictionary], ids: frozenset[int]
    ) -> dict[int, Dictionary]:
        """Return the dictionaries that apply after a message. Dictionaries that no column uses are left out."""
        if message.kind != _DICTIONARY or message.header is None:
            return known
        with damage(self._file, message.at, *_MALFORMED):
            header = message.header
            number, delta, values = header.number(0, "<q"), header.number(2, "<B"), header.find(1)
            if number not in ids:  # only the values of another dictionary use it
                return known
            if values is None:
                raise ValueError(f"dictionary {number} has no values")
            before = known.get(number) if delta else None
            if delta and before is None:
                raise ValueError(f"values are added to dictionary {number}, which does not exist")
            if not delta and number in known and not self._is_stream:
                raise ValueError(f"dictionary {number} is replaced, which is allowed only in a stream")
            return {**known, number: Dictionary(_batch(values, message), before)}

    def _end(self) -> int:
        """Return the offset at which the stream ends; in a file, the footer follows."""
        size = self._file.size
        if self._is_stream:
            return size
        tail = self._file.read(max(0, size - 10), min(10, size))
        footer = int.from_bytes(tail[:4], "little")
        if tail[4:] != _END or footer > size - 10 - len(FILE):
            raise SourceError(f"{printable(self._file.path)}: has no footer: it was cut short")
        return size - 10 - footer

    def _metadata(self, at: int, end: int) -> tuple[bytes, int]:
        """Return a message's metadata (empty at the end of the stream) and the offset of its body."""
        if end - at < 8 or self._file.read(at, 4) != _MARK:
            raise damaged(self._file, at, "no Arrow message, not even an end marker: it was cut short")
        size = int.from_bytes(self._file.read(at + 4, 4), "little")
        if size > min(end - at - 8, _MOST_METADATA):
            raise damaged(
                self._file,
                at,
                f"a message has {size} bytes of metadata, too many: the file was cut short or is damaged",
            )
        return self._file.read(at + 8, size), at + 8 + size

    def _header(self, at: int, metadata: bytes) -> tuple[int, int, FlatTable | None]:
        """Return type, body size and header of a message."""
        with damage(self._file, at, *_MALFORMED):
            message = FlatTable.root(metadata)
            return message.number(1, "<B"), message.number(3, "<q"), message.find(2)

    def _checked(self) -> AbstractContextManager[None]:
        """Turn the errors of pyarrow about a damaged file into SourceErrors."""
        return errors_in(f"{printable(self._file.path)}: damaged", *NOT_READ)

    def images(self, batch: ArrowBatch, column: str) -> list[Piece | Packed | None]:
        """Return the location of each image of a batch; None for a missing image."""
        with self._checked():
            kind, node, buffer = self._position(column)
            there = self._valid(batch, node, buffer, batch.rows)
            if names_of(kind):
                kind, node, buffer = _position_among(members_of(kind), "bytes", node + 1, buffer + 1)
                there = there & self._valid(batch, node, buffer, batch.rows)
            offsets = self._offsets(batch, buffer + 1, "<i8" if str(kind).startswith("large") else "<i4")
            location, size = self._location(batch, buffer + 2)
            sizes = np.diff(offsets)
            if (sizes < 0).any() or offsets[0] < 0 or offsets[-1] > size:
                raise ValueError(f"the images of the column {column!r} are outside of their buffer")
            pieces: list[Piece | Packed | None] = []
            for begin, length, present in zip(offsets.tolist(), sizes.tolist(), there.tolist(), strict=False):
                if not present:
                    pieces.append(None)
                elif isinstance(location, Piece):
                    pieces.append(Piece(self._unit, location.offset + begin, length))
                else:
                    pieces.append(location._replace(offset=begin, size=length))
            return pieces

    def paths(self, batch: ArrowBatch, column: str) -> list[str | None]:
        """Return the path of each image of a batch."""
        kind = self.schema.field(column).type
        if "path" not in names_of(kind):
            return [None] * batch.rows
        with self._checked():
            _, node, buffer = self._position(column)
            of, node, buffer = _position_among(members_of(kind), "path", node + 1, buffer + 1)
            found = _texts(self._array(batch, of, node, buffer)[0])
            if len(found) != batch.rows:
                raise ValueError(f"{len(found)} paths for {batch.rows} images")
            if not all(path is None or isinstance(path, str) for path in found):
                raise ValueError(f"the paths of the column {column!r} are {of}, not texts")
            return found

    def rows(self, batch: ArrowBatch, columns: Sequence[str]) -> Iterator[RowValues]:
        """Yield the values of columns without images, row by row."""
        with self._checked():
            self._taken = sum(values.taken for values in self._values.values())
            self._nulls = sum(values.nulls for values in self._values.values())
            arrays = {column: self._array(batch, *self._position(column))[0] for column in columns}
            if any(len(array) != batch.rows for array in arrays.values()):
                raise ValueError("its columns have different lengths")
        if not arrays:
            yield from ({} for _ in range(batch.rows))
            return
        lists = row_lists(list(arrays.values()), batch.rows)
        while True:
            with self._checked():
                some = next(lists, None)
            if some is None:
                return
            yield from rows_in_lists(columns, some)

    def head(self, piece: Piece | Packed) -> bytes:
        """Return the first bytes of an image, which identify its type."""
        if isinstance(piece, Piece):
            return self._file.read(piece.offset, min(piece.size, IMAGE_HEAD))
        return self._whole(piece)[piece.offset : piece.offset + min(piece.size, IMAGE_HEAD)]

    def _whole(self, packed: Packed) -> bytes:
        if self._unpacked is None or self._unpacked[0] != packed.piece:
            with self._checked():
                data = unpack(packed.codec, self._file.read(packed.piece.offset, packed.piece.size), packed.unpacked)
            self._unpacked = packed.piece, data
        return self._unpacked[1]

    def _position(self, column: str) -> tuple[Any, int, int]:
        """Return a column's type, the index of its first node, and the index of its first buffer."""
        return _position_among(self.schema, column, 0, 0)

    def _location(self, batch: ArrowBatch, number: int) -> tuple[Piece | Packed, int]:
        """Return a buffer's location and its unpacked size."""
        offset, size = batch.buffers[number]
        if not batch.codec or not size:
            return Piece(self._unit, offset, size), size
        unpacked = int.from_bytes(self._file.read(offset, min(size, 8)), "little", signed=True)
        if size < 8 or unpacked < -1:
            raise ValueError(f"a compressed buffer has an invalid size ({unpacked} bytes)")
        inner = Piece(self._unit, offset + 8, size - 8)
        if unpacked == -1:
            return inner, size - 8
        return Packed.whole(inner, batch.codec, unpacked), unpacked

    def _bytes(self, batch: ArrowBatch, number: int) -> bytes:
        location, _ = self._location(batch, number)
        if isinstance(location, Piece):
            return self._file.read(location.offset, location.size)
        return unpack(location.codec, self._file.read(location.piece.offset, location.piece.size), location.unpacked)

    def _own(self, batch: ArrowBatch, number: int) -> bytes:
        """Return a buffer; ValueError if all buffers returned so far exceed the size limit together.

        A buffer that is returned twice counts twice.
        """
        data = self._bytes(batch, number)
        self._taken += len(data)
        if self._taken > (most := MOST_UNPACKED if batch.codec else self._file.size):
            raise ValueError(f"the buffers of its columns have more than {most:,} bytes")
        return data

    def _valid(self, batch: ArrowBatch, node: int, number: int, rows: int) -> npt.NDArray[np.bool_]:
        length, nulls = batch.nodes[node]
        if length != rows or rows > 8 * self._file.size:
            raise ValueError(f"an array has {length} values instead of {rows}")
        bits = self._bytes(batch, number) if nulls else b""
        if not nulls:
            return np.ones(rows, bool)
        if 8 * len(bits) < rows:
            raise ValueError("the bitmap of missing values is longer than its buffer")
        return np.unpackbits(np.frombuffer(bits, np.uint8), count=rows, bitorder="little").astype(bool)

    def _offsets(self, batch: ArrowBatch, number: int, dtype: str) -> npt.NDArray[np.int64]:
        data = self._bytes(batch, number)
        size = (batch.rows + 1) * np.dtype(dtype).itemsize
        if not batch.rows and not data:
            return np.zeros(1, np.int64)
        if len(data) < size:
            raise ValueError("the offsets of values are longer than their buffer")
        return np.frombuffer(data[:size], dtype).astype(np.int64)

    def _array(self, batch: ArrowBatch, kind: Any, node: int, buffer: int) -> tuple[Any, int, int]:
        """Return an array, the index of the next node, and the index of the next buffer."""
        import pyarrow as pa

        kind = getattr(kind, "storage_type", kind)
        if _REPEATING.match(str(kind)):  # a value that is stored once may be many times in the array
            where = printable(self._file.path)
            raise SourceError(f"{where}: packer does not read columns of {kind}: select other columns with --key")
        if pa.types.is_dictionary(kind):
            return self._of_dictionary(batch, kind, node, buffer)
        length, nulls = batch.nodes[node]
        count = kind.num_buffers * (not pa.types.is_null(kind))
        has_bytes = any(batch.buffers[number].size for number in range(buffer, buffer + count))
        if length > (8 if has_bytes else 1) * self._file.size:  # nulls and empty structures have no bytes
            raise ValueError(f"an array has {length:,} values, too many for a file of {self._file.size:,} bytes")
        own = [
            None if not batch.buffers[number].size else pa.py_buffer(self._own(batch, number))
            for number in range(buffer, buffer + count)
        ]
        if own and not nulls:
            own[0] = None
        for number, part in enumerate(own[1:], 1):
            own[number] = pa.py_buffer(b"") if part is None else part  # an array without values may have no buffers
        node, buffer, children = node + 1, buffer + len(own), []
        for number in range(kind.num_fields):
            child, node, buffer = self._array(batch, kind.field(number).type, node, buffer)
            children.append(child)
        own = [None] if pa.types.is_null(kind) else own
        if nulls == length and not children and not pa.types.is_null(kind):
            self._nulls += length * _width(kind)
            if self._nulls > _MOST_NULLS:
                raise ValueError(f"its missing values would take {self._nulls:,} bytes")
            return pa.nulls(length, kind), node, buffer
        array = pa.Array.from_buffers(kind, length, own, nulls, children=children)
        array.validate(full=True)
        return array, node, buffer

    def _of_dictionary(self, batch: ArrowBatch, kind: Any, node: int, buffer: int) -> tuple[Any, int, int]:
        """Do the same as `_array` for an array that has a dictionary."""
        import pyarrow as pa

        if _has_dictionary(kind.value_type):
            where = printable(self._file.path)
            raise SourceError(f"{where}: packer does not read columns of {kind}: select other columns with --key")
        numbers, next_node, next_buffer = self._array(batch, kind.index_type, node, buffer)
        number = self._dictionaries[node] if node < len(self._dictionaries) else None
        if number is not None and number in batch.dictionaries:
            values = self._values_of(number, batch.dictionaries[number], kind.value_type)
        elif numbers.null_count == len(numbers):  # its dictionary may follow, or be left out
            values = pa.array([], kind.value_type)
        else:
            raise ValueError(f"it has no dictionary {number}, which a column refers to")
        return pa.DictionaryArray.from_arrays(numbers, values, ordered=kind.ordered), next_node, next_buffer

    def _values_of(self, number: int, dictionary: Dictionary, kind: Any) -> Any:
        """Return a dictionary's values as one array; values that were read before come from a cache."""
        import pyarrow as pa

        known = self._values.get(number)
        added: list[ArrowBatch] = []
        before: Dictionary | None = dictionary
        while before is not None and (known is None or before is not known.of):
            added.append(before.values)
            before = before.before
        if known is None or before is None:
            known = _Values(dictionary, pa.array([], kind), 0, 0)
        if added:
            taken, nulls = self._taken - known.taken, self._nulls - known.nulls
            arrays = [self._array(batch, kind, 0, 0)[0] for batch in reversed(added)]
            values = (
                arrays[0] if not len(known.array) and len(arrays) == 1 else pa.concat_arrays([known.array, *arrays])
            )
            known = _Values(dictionary, values, self._taken - taken, self._nulls - nulls)
            self._values[number] = known
        return known.array


def _ids(field: FlatTable, deepest: int) -> Iterator[int | None]:
    """Yield the dictionary ids of a field and its children.

    Fields within the values of a dictionary are skipped, because these values are in a separate message.
    """
    encoding = field.find(4)
    yield None if encoding is None else encoding.number(0, "<q")
    if encoding is None and (children := list(field.tables(5))):
        if not deepest:
            raise ValueError(f"a column is nested more than {_DEEPEST} levels deep")
        for child in children:
            yield from _ids(child, deepest - 1)


def _require_text(field: Any) -> None:
    """Raise ValueError if a column or a member of a structure has no name. pyarrow would report this too late."""
    if not isinstance(field.name, str):
        raise ValueError("a column has no name")
    for number in range(field.type.num_fields):
        _require_text(field.type.field(number))


def members_of(kind: Any) -> list[Any]:
    """Return the members of a structure type; an empty list for other types."""
    return [kind.field(number) for number in range(kind.num_fields)] if str(kind).startswith("struct") else []


def names_of(kind: Any) -> list[str]:
    """Return the member names of a structure type; an empty list for other types."""
    return [member.name for member in members_of(kind)]


def _position_among(fields: Iterable[Any], name: str, node: int, buffer: int) -> tuple[Any, int, int]:
    """Return a field's type, the index of its first node, and the index of its first buffer.

    `node` and `buffer` are the indices at which the first of the fields begins.
    """
    for field in fields:
        if field.name == name:
            return field.type, node, buffer
        nodes, buffers = _extent(field.type)
        node, buffer = node + nodes, buffer + buffers
    raise ValueError(f"it has no column {name!r}")


def _has_dictionary(kind: Any) -> bool:
    """Tell whether a type is, or contains, a dictionary type."""
    kind = getattr(kind, "storage_type", kind)
    return str(kind).startswith("dictionary<") or any(
        _has_dictionary(kind.field(number).type) for number in range(kind.num_fields)
    )


def _texts(array: Any) -> list[Any]:
    """Return the values of an array of texts.

    Each dictionary value becomes one Python object, however many rows use it.
    """
    if not str(array.type).startswith("dictionary<"):
        return list(array.to_pylist())
    values = array.dictionary.to_pylist()
    return [None if number is None else values[number] for number in array.indices.to_pylist()]


def _width(kind: Any) -> int:
    """Estimate how many bytes of memory a missing value of a type takes."""
    import pyarrow.types

    if pyarrow.types.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    return 16  # the longest numbers; offsets of values of variable length take less


def _extent(kind: Any) -> tuple[int, int]:
    """Count the nodes and the buffers of an array of this type, its children included."""
    kind = getattr(kind, "storage_type", kind)
    nodes, buffers = 1, 0 if str(kind) == "null" else kind.num_buffers
    for number in range(kind.num_fields):
        of_child = _extent(kind.field(number).type)
        nodes, buffers = nodes + of_child[0], buffers + of_child[1]
    return nodes, buffers


_STATE, _INFO, _SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"


class ArrowImages(TableImages):
    """Arrow files that have a column of images."""

    kind = "arrow"
    suffixes = (".arrow",)

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return head.startswith((FILE, _MARK)) and path.suffix.lower() in (*cls.suffixes, ".feather", ".ipc")

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        """Return the files that ``state.json`` lists, or all files if there is no ``state.json``."""
        if _SPLITS in names:
            splits = _object_in(path / _SPLITS).get("splits")
            shown = ", ".join(printable(name) for name in splits) if isinstance(splits, list) else "none"
            raise SourceError(f"{printable(path)}: has several splits: {shown}. Name one of these directories.")
        if _STATE in names and any(name.endswith(cls.suffixes) for name in names):
            return _saved(path)
        return super().recognise_directory(path, names)

    @classmethod
    def columns_in(cls, file: PackFile, image: str | None) -> TableColumns:
        schema = ArrowFile(file).schema
        features = features_of(schema.metadata) or _features_beside(Path(file.path))
        images = [field.name for field in schema if _is_image(field, features, image)]
        images = images or [field.name for field in schema if _begins_with_image(file, field)]
        others = {field.name: field.type for field in schema if field.name not in images}
        return TableColumns(images, others, features)

    @classmethod
    def values_in(cls, file: PackFile, column: str) -> Iterator[Any]:
        reader = ArrowFile(file)
        for batch in reader.batches():
            yield from (row[column] for row in reader.rows(batch, [column]) if isinstance(row, dict))

    def rows_in(self, file: PackFile, unit: int) -> tuple[int, Iterator[TableRow]]:
        reader = ArrowFile(file, unit)
        for column in (self.image, *self.pictures, *self.columns_to_read()):
            if reader.schema.get_field_index(column) < 0:
                raise no_column(file, column)
        return sum(batch.rows for batch in reader.batches()), self._rows(reader)

    def _rows(self, reader: ArrowFile) -> Iterator[TableRow]:
        paths_of_batches = (reader.paths(batch, self.image) for batch in reader.batches())
        named = self.name is None and names_are_plain(itertools.chain.from_iterable(paths_of_batches))
        for batch in reader.batches():
            images = reader.images(batch, self.image)
            pictures = {of.name: reader.images(batch, column) for column, of in self.pictures.items()}
            paths = reader.paths(batch, self.image) if named else [None] * len(images)
            for at, row in enumerate(reader.rows(batch, self.columns_to_read())):
                image = images[at]
                further = {of: one for of, pieces in pictures.items() if (one := pieces[at]) is not None}
                yield TableRow(row, paths[at], image, b"" if image is None else reader.head(image), further)


def _is_image(field: Any, features: Mapping[str, Any], chosen: str | None) -> bool:
    """Tell whether a column holds images.

    True if the values are structures of bytes and a path. Also true if the values are bytes, and either the features
    or the user (`chosen`) declare the column as images.
    """
    called = is_image_feature(features.get(field.name)) or field.name == chosen
    kind = getattr(field.type, "storage_type", field.type)
    return sorted(names_of(kind)) == ["bytes", "path"] or (called and str(kind) in ("binary", "large_binary"))


def _begins_with_image(file: PackFile, field: Any) -> bool:
    """Tell whether the first value of a column of bytes is an image."""
    if str(field.type) not in ("binary", "large_binary"):
        return False
    reader = ArrowFile(file)
    pieces = (piece for batch in reader.batches() for piece in reader.images(batch, field.name))
    return begin_with_image(reader.head(piece) for piece in pieces if piece is not None)


def _saved(directory: Path) -> list[Path]:
    """Return the files that ``state.json`` lists."""
    state = _object_in(directory / _STATE)
    if state.get("_indices_data_files"):
        raise SourceError(
            f"{printable(directory)}: stores its order in index files: call flatten_indices(), and save it again"
        )
    listed = state.get("_data_files")
    try:
        names = [one["filename"] for one in listed] if isinstance(listed, list) else []
        if not names or not all(isinstance(name, str) and name_problem(name) is None for name in names):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise SourceError(f"{printable(directory / _STATE)}: does not list the data files") from None
    return [directory / name for name in names]


def _features_beside(path: Path) -> dict[str, Any]:
    beside = path.with_name(_INFO)
    features = _object_in(beside).get("features") if os.path.isfile(beside) else None
    return features if isinstance(features, dict) else {}


def _object_in(path: Path) -> dict[str, Any]:
    content = json_in(path)
    if not isinstance(content, dict):
        raise SourceError(f"{printable(path)}: is not a JSON object")
    return content
