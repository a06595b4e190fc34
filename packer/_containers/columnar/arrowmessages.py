"""Arrow's IPC format: the messages of a stream or a file, and where the buffers of each record batch lie.

The layout is that of ``Message.fbs``, ``Schema.fbs`` and ``Columnar.rst`` of apache/arrow. A message is a mark, the
size of what is said of it, that as a flatbuffer, and its body. A file is a stream between a signature and a footer.

A column may have numbers of values that messages of their own have, a dictionary. In a stream, a dictionary holds for
the batches after it, until another takes its place; a delta adds values to it. In a file it holds for all batches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from packer._storage.packfile import PackFile
from packer.errors import SourceError, printable

__all__ = ["FILE", "Batch", "Buffered", "Dictionary", "batches", "dictionary_ids", "schema_message"]

FILE = b"ARROW1\0\0"
"""How a file begins; a stream begins with a message."""

_END = b"ARROW1"
_MARK = b"\xff\xff\xff\xff"
_MOST_SAID = 1 << 26  # bytes of what is said of a message
_SCHEMA, _DICTIONARY, _RECORDS = 1, 2, 3
_DEEPEST = 64  # fields in fields
_COMPRESSION = {0: "lz4", 1: "zstd"}


class Buffered(NamedTuple):
    """Where a buffer begins in the file, and how many bytes it has."""

    offset: int
    size: int


class Batch(NamedTuple):
    """A record batch.

    Attributes
    ----------
    rows : int
    nodes : list of (int, int)
        The length and the number of nulls of each array, a parent before its children.
    buffers : list of Buffered
    codec : str
        How each buffer is compressed, after 8 bytes with its size; empty where it is not.
    dictionaries : mapping of int to Dictionary
        The dictionaries of the columns, by id.
    """

    rows: int
    nodes: list[tuple[int, int]]
    buffers: list[Buffered]
    codec: str
    dictionaries: Mapping[int, Dictionary] = MappingProxyType({})


class Dictionary(NamedTuple):
    """The values that the numbers of a column refer to.

    Attributes
    ----------
    values : Batch
        A single array.
    before : Dictionary, optional
        The values before these, where these are a delta.
    """

    values: Batch
    before: Dictionary | None


class _Message(NamedTuple):
    """A message that begins at a byte of the file: its type, its header, and where its body lies."""

    at: int
    kind: int
    header: _Table | None
    body: int
    size: int


def schema_message(file: PackFile) -> bytes:
    """Return the message at the beginning, which is the schema; SourceError where there is none."""
    begin = _begin(file)
    said, _ = _said(file, begin, file.size)
    kind, _, _ = _message(file, begin, said)
    if kind != _SCHEMA:
        raise _damaged(file, begin, "it does not begin with a schema")
    return _MARK + struct.pack("<i", len(said)) + said


def dictionary_ids(file: PackFile) -> list[int | None]:
    """Return the id of the dictionary of each array of a batch, in the order of its nodes; None of one without.

    Raises
    ------
    SourceError
        If the file does not begin with a schema.
    """
    begin = _begin(file)
    said, _ = _said(file, begin, file.size)
    _, _, schema = _message(file, begin, said)
    try:
        return [] if schema is None else [one for field in schema.tables(1) for one in _ids(field, _DEEPEST)]
    except (ValueError, struct.error) as error:
        raise _damaged(file, begin, f"its schema: {error}") from error


def _ids(field: _Table, deepest: int) -> Iterator[int | None]:
    """Yield the ids of a field and of those in it; a dictionary has its values elsewhere, with all that is in them."""
    encoding = field.table(4)
    yield None if encoding is None else encoding.number(0, "<q")
    if encoding is None and (children := field.tables(5)):
        if not deepest:
            raise ValueError(f"a column more than {_DEEPEST} deep")
        for child in children:
            yield from _ids(child, deepest - 1)


def batches(file: PackFile) -> Iterator[Batch]:
    """Yield the record batches in their order.

    Raises
    ------
    SourceError
        If the file is damaged or cut short, or has what packer does not know.
    """
    ids = frozenset(one for one in dictionary_ids(file) if one is not None)
    known: dict[int, Dictionary] = {}
    if ids and _begin(file):
        for message in _messages(file):
            known = _with_dictionary(file, message, known, ids)
    for message in _messages(file):
        if message.kind == _RECORDS and message.header is not None:
            try:
                yield _batch(message.header, message)._replace(dictionaries=known)
            except (ValueError, struct.error) as error:
                raise _damaged(file, message.at, str(error)) from error
        elif ids and not _begin(file):
            known = _with_dictionary(file, message, known, ids)


def _messages(file: PackFile) -> Iterator[_Message]:
    """Yield the messages; SourceError where one is none of a schema, of a dictionary or of records."""
    at, end = _begin(file), _stream_end(file)
    while True:
        said, body = _said(file, at, end)
        if not said:
            return
        kind, size, header = _message(file, at, said)
        if not 0 <= size <= end - body:
            raise _damaged(file, at, f"a message of {size} bytes does not lie in it: it was cut short")
        if kind not in (_SCHEMA, _DICTIONARY, _RECORDS) or (kind == _RECORDS and header is None):
            raise _damaged(file, at, f"a message of the type {kind}")
        yield _Message(at, kind, header, body, size)
        at = body + size


def _with_dictionary(
    file: PackFile, message: _Message, known: dict[int, Dictionary], ids: frozenset[int]
) -> dict[int, Dictionary]:
    """Return the dictionaries after a message, which has one or has none. Those of no column are left out."""
    if message.kind != _DICTIONARY or message.header is None:
        return known
    try:
        number, delta, values = message.header.number(0, "<q"), message.header.number(2, "<B"), message.header.table(1)
        if number not in ids:  # of values in another dictionary
            return known
        if values is None:
            raise ValueError(f"a dictionary {number} without values")
        before = known.get(number) if delta else None
        if delta and before is None:
            raise ValueError(f"more values of a dictionary {number} that it does not have")
        if not delta and number in known and _begin(file):
            raise ValueError(f"a second dictionary {number}, as only a stream may have one")
        return {**known, number: Dictionary(_batch(values, message), before)}
    except (ValueError, struct.error) as error:
        raise _damaged(file, message.at, str(error)) from error


def _begin(file: PackFile) -> int:
    return len(FILE) if file.read(0, min(len(FILE), file.size)) == FILE else 0


def _stream_end(file: PackFile) -> int:
    """Return where the stream ends: before the footer of a file."""
    if not _begin(file):
        return file.size
    tail = file.read(max(0, file.size - 10), min(10, file.size))
    size = int.from_bytes(tail[:4], "little")
    if tail[4:] != _END or size > file.size - 10 - len(FILE):
        raise SourceError(f"{printable(file.path)}: has no footer: it was cut short")
    return file.size - 10 - size


def _said(file: PackFile, at: int, end: int) -> tuple[bytes, int]:
    """Return what is said of a message, and where its body begins; nothing at the end of the stream."""
    if end - at < 8 or file.read(at, 4) != _MARK:
        raise _damaged(file, at, "no message of Arrow's, as its end is one too: it was cut short")
    size = int.from_bytes(file.read(at + 4, 4), "little")
    if size > min(end - at - 8, _MOST_SAID):
        raise _damaged(file, at, f"{size} bytes are said of a message: it was cut short")
    return file.read(at + 8, size), at + 8 + size


def _message(file: PackFile, at: int, said: bytes) -> tuple[int, int, _Table | None]:
    """Return the type of a message, the size of its body, and its header."""
    try:
        message = _Table.root(said)
        return message.number(1, "<B"), message.number(3, "<q"), message.table(2)
    except (ValueError, struct.error) as error:
        raise _damaged(file, at, f"nothing is said of a message: {error}") from error


def _batch(header: _Table, message: _Message) -> Batch:
    body, size = message.body, message.size
    rows, compression = header.number(0, "<q"), header.table(3)
    nodes = [(length, nulls) for length, nulls in header.pairs(1)]
    buffers = [Buffered(body + offset, length) for offset, length in header.pairs(2)]
    if rows < 0 or any(length < 0 for length, _ in nodes):
        raise ValueError(f"a batch of {rows} rows")
    if any(buffer.offset < body or not 0 <= buffer.size <= body + size - buffer.offset for buffer in buffers):
        raise ValueError("a buffer does not lie in its message")
    if header.has(4):
        raise ValueError("it has arrays of views, which packer does not know: write it with other types")
    codec = ""
    if compression is not None:
        number = compression.number(0, "<b")
        if number not in _COMPRESSION:
            raise ValueError(f"its compression {number} is none that packer knows")
        codec = _COMPRESSION[number]
    return Batch(rows, nodes, buffers, codec)


class _Table:
    """A table of a flatbuffer; ValueError and struct.error where something does not lie in the bytes."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._slots = at - self._unpack("<i", at)
        self._count = (self._unpack("<H", self._slots) - 4) // 2

    @classmethod
    def root(cls, data: bytes) -> _Table:
        """Return the table that a buffer is."""
        (at,) = struct.unpack_from("<I", data)
        return cls(data, at)

    def has(self, slot: int) -> bool:
        """Tell whether the table has a member."""
        return self._place(slot) is not None

    def number(self, slot: int, kind: str) -> int:
        """Return a number; 0 where it is not there."""
        place = self._place(slot)
        return 0 if place is None else self._unpack(kind, place)

    def table(self, slot: int) -> _Table | None:
        """Return a table; None where it is not there."""
        place = self._place(slot)
        return None if place is None else _Table(self._data, place + self._unpack("<I", place))

    def tables(self, slot: int) -> list[_Table]:
        """Return a list of tables; none where it is not there."""
        place = self._place(slot)
        if place is None:
            return []
        at = place + self._unpack("<I", place)
        count = self._unpack("<I", at)
        if count > (len(self._data) - at) // 4:
            raise ValueError(f"a list of {count} tables")
        return [_Table(self._data, one + self._unpack("<I", one)) for one in range(at + 4, at + 4 + 4 * count, 4)]

    def pairs(self, slot: int) -> list[tuple[int, int]]:
        """Return a list of pairs of int64."""
        place = self._place(slot)
        if place is None:
            return []
        at = place + self._unpack("<I", place)
        count = self._unpack("<I", at)
        if count > (len(self._data) - at) // 16:
            raise ValueError(f"a list of {count} pairs")
        numbers = struct.unpack_from(f"<{2 * count}q", self._data, at + 4)
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    def _place(self, slot: int) -> int | None:
        if slot >= self._count:
            return None
        offset = self._unpack("<H", self._slots + 4 + 2 * slot)
        return self._at + offset if offset else None

    def _unpack(self, kind: str, at: int) -> int:
        if at < 0:
            raise ValueError("it lies before its beginning")
        return int(struct.unpack_from(kind, self._data, at)[0])


def _damaged(file: PackFile, at: int, what: str) -> SourceError:
    return SourceError(f"{printable(file.path)}, byte {at}: damaged: {what}")
