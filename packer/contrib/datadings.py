"""datadings (https://gitlab.com/jfolz/datadings): a MessagePack map for each sample, one after the other.

``X.msgpack`` contains the maps. ``X.msgpack.offsets`` contains the offset of each map and the end of the last map, as
big-endian u64. The name of a sample is its ``key``.

MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md) is parsed without copying long values.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from packer._containers.blocks import ContainerFile, errors_in, reading
from packer._containers.contract import Entry, Piece
from packer._containers.roles import ColumnContainer, ColumnType, Value, short_text
from packer._fields import Field
from packer.errors import SourceError, printable

__all__ = ["Datadings", "Span", "read_map", "unpacked"]

_DEEPEST = 32
_MOST_NESTED = 1 << 16  # most values that one value contains
_HEAD = 16  # bytes that are read to parse a length or a number, which are shorter
_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
_NUMBERS |= {0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_LENGTHS = {0xC4: ("bin", ">B"), 0xC5: ("bin", ">H"), 0xC6: ("bin", ">I")}
_LENGTHS |= {0xD9: ("str", ">B"), 0xDA: ("str", ">H"), 0xDB: ("str", ">I")}
_LENGTHS |= {0xDC: ("array", ">H"), 0xDD: ("array", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I")}
_PLAIN = {0xC0: None, 0xC2: False, 0xC3: True}


class Span(NamedTuple):
    """The location and the size of a value.

    The size of a string or of bytes is in bytes; the size of an array or a map is the number of its values.

    Attributes
    ----------
    kind : {"str", "bin", "array", "map"}
    offset, size : int
    """

    kind: str
    offset: int
    size: int


class RepeatedKeyError(ValueError):
    """A map has the same key twice.

    Attributes
    ----------
    end : int
        The offset at which the map ends.
    """

    def __init__(self, key: str, end: int) -> None:
        super().__init__(f"the key {key!r} occurs twice")
        self.end = end


def read_map(file: ContainerFile, at: int) -> tuple[dict[str, Any], int]:
    """Read the map at offset `at`; return its values by key, and the offset at which the map ends.

    Strings and bytes are returned as Spans. Arrays and maps are also returned as Spans, of the kind ``"array"``;
    `unpacked` reads the value at the Span's offset.

    Raises
    ------
    RepeatedKeyError
        If two values have the same key.
    ValueError
        If there is no map at this offset, a key is not a text, or a value contains too many nested values.
    """
    head, at = _head(file, at)
    if not isinstance(head, Span) or head.kind != "map":
        raise ValueError("expected a map")
    values: dict[str, Any] = {}
    repeated: str | None = None
    for _ in range(_modest(head.size)):
        key, at = _text(file, at)
        repeated = key if repeated is None and key in values else repeated
        start = at
        value, at = _head(file, at)
        if isinstance(value, Span) and value.kind in ("array", "map"):
            value, at = Span("array", start, 0), _skip(file, start)
        values[key] = value
    if repeated is not None:
        raise RepeatedKeyError(repeated, at)
    return values, at


def unpacked(file: ContainerFile, at: int) -> Any:
    """Return the array or map at offset `at` with all its elements, none of which can be bytes.

    Raises the same errors as `read_map`.
    """
    return _unpacked(file, at, _DEEPEST)[0]


def _unpacked(file: ContainerFile, at: int, depth: int) -> tuple[Any, int]:
    if not depth:
        raise ValueError("it is nested too deeply")
    head, at = _head(file, at)
    if not isinstance(head, Span):
        return head, at
    if head.kind == "str":
        return file.read(head.offset, head.size).decode(), at
    if head.kind == "bin":
        raise ValueError("it contains bytes")
    if head.kind == "array":
        values = []
        for _ in range(_modest(head.size)):
            value, at = _unpacked(file, at, depth - 1)
            values.append(value)
        return values, at
    members = {}
    for _ in range(_modest(head.size)):
        key, at = _text(file, at)
        members[key], at = _unpacked(file, at, depth - 1)
    return members, at


def _skip(file: ContainerFile, at: int) -> int:
    """Return the offset at which the value at offset `at` ends."""
    left, most = 1, _MOST_NESTED
    while left:
        head, at = _head(file, at)
        left, most = left - 1, most - 1
        if isinstance(head, Span) and head.kind in ("array", "map"):
            left += head.size * (2 if head.kind == "map" else 1)
        if left > most:
            raise ValueError("one value contains too many nested values")
    return at


def _head(file: ContainerFile, at: int) -> tuple[Any, int]:
    """Return the value at offset `at`, and the offset at which the value ends.

    Strings, bytes, arrays and maps are returned as Spans. For an array or a map, the returned offset is the offset of
    the first element.
    """
    data = file.read(at, min(_HEAD, max(1, file.size - at)))
    code = data[0]
    if code < 0x80 or code >= 0xE0:
        return (code if code < 0x80 else code - 0x100), at + 1
    if code in _PLAIN:
        return _PLAIN[code], at + 1
    if code in _NUMBERS:
        return _unpack(_NUMBERS[code], data), at + 1 + struct.calcsize(_NUMBERS[code])
    if code in _LENGTHS:
        kind, stored = _LENGTHS[code]
        size, begin = _unpack(stored, data), at + 1 + struct.calcsize(stored)
    elif code < 0xC0:
        kind = "map" if code < 0x90 else "array" if code < 0xA0 else "str"
        size, begin = code & (0x1F if kind == "str" else 0x0F), at + 1
    else:
        raise ValueError(f"a value of the type {code:#x}, which packer does not read")
    span = Span(kind, begin, size)
    if kind not in ("str", "bin"):
        return span, begin
    if begin + size > file.size:
        raise ValueError(f"{size} bytes are needed at byte {begin} of {file.size}")
    return span, begin + size


def _unpack(stored: str, data: bytes) -> Any:
    if len(data) < 1 + struct.calcsize(stored):
        raise ValueError("it ends in the middle of a number")
    return struct.unpack_from(stored, data, 1)[0]


def _text(file: ContainerFile, at: int) -> tuple[str, int]:
    head, at = _head(file, at)
    if not isinstance(head, Span) or head.kind not in ("str", "bin") or head.size > _HEAD * 64:
        raise ValueError("a key is not a text")
    return file.read(head.offset, head.size).decode(), at


def _modest(count: int) -> int:
    if count > _MOST_NESTED:
        raise ValueError(f"a value contains {count} values, too many")
    return count


_FIRST_SAMPLES = 100  # number of samples, at the beginning of the first and of the last file, that tell the columns
_BLOCK = 1 << 14  # samples whose offsets are read at a time
_SHORT = 256  # most bytes of a value that may be a label
_KEY = "key"
_JSON = Field("json", "json")


@dataclass(eq=False)
class Datadings(ColumnContainer):
    """Files ``X.msgpack``, each with its ``X.msgpack.offsets`` if there is one."""

    kind = "datadings"
    suffixes = (".msgpack",)

    known: frozenset[str] = frozenset()
    """All keys that occur in the first samples."""

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        is_map = bool(head) and (0x80 <= head[0] < 0x90 or head[0] in (0xDE, 0xDF))
        return path.name.lower().endswith(cls.suffixes) and is_map

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> Datadings:
        offsets = [beside for path in paths if os.path.isfile(beside := path.with_name(path.name + ".offsets"))]
        container = cls.of_files(paths, offsets)
        found, short_values = dict[str, ColumnType | None](), dict[str, list[Any]]()
        problem: ValueError | None = None
        for unit in {0, len(paths) - 1}:
            for file, values in itertools.islice(container._maps(unit), _FIRST_SAMPLES):
                if isinstance(values, ValueError):  # `entries` reports this sample
                    problem = problem or values
                    continue
                for name, value in values.items():
                    found[name] = _joined(found.get(name), _type(file, value))
                    short_values.setdefault(name, []).extend(_short(file, value))
        types = {name: type or ColumnType("", why="has no value in the first samples") for name, type in found.items()}
        where = printable(paths[0])
        if not types:
            raise SourceError(f"{where}: contains no samples" if problem is None else f"{where}: {problem}")
        named = _KEY if types.get(_KEY, ColumnType("")).kind == "text" else None
        container.choose_roles(types, keys, where, short_values, name=named)
        container.known = frozenset(types)
        return container

    def entries(self, unit: int) -> Iterator[Entry]:
        stem, used = self.files[unit].removesuffix(".msgpack"), self.used
        for number, (file, maps) in enumerate(self._maps(unit)):
            name = f"{stem}/{number:06d}"
            try:
                if isinstance(maps, ValueError):
                    raise maps
                if not self.known >= maps.keys():
                    unknown = printable(sorted(maps.keys() - self.known)[0])
                    raise ValueError(f"{unknown} is in none of the first samples: select keys with --key")
                values = {name: _value(file, maps[name], unit, name, self.fields_of) for name in used & maps.keys()}
                entry = self.entry(name, values, file.read)
            except ValueError as error:
                entry = Entry(name, b"", problem=f"sample {number}: {printable(error)}")
            yield entry

    def _maps(self, unit: int) -> Iterator[tuple[ContainerFile, dict[str, Any] | ValueError]]:
        """Yield, for each sample, its file, and its values or the error if they cannot be used."""
        name = self.files[unit] + ".offsets"
        offsets = _offsets(self.root / name) if name in self.files[self.units :] else itertools.repeat(None)
        with self.reading(unit) as file:
            at = 0
            for number in itertools.count():
                listed = next(offsets, -1)
                if listed not in (None, at):
                    where = "no such sample" if listed == -1 else f"byte {listed}"
                    raise SourceError(f"{file.path}: sample {number} begins at byte {at}, but {name} lists {where}")
                if at == file.size:
                    break
                values: dict[str, Any] | ValueError
                with errors_in(f"{file.path}: sample {number}, at byte {at}"):
                    try:
                        values, at = read_map(file, at)
                    except RepeatedKeyError as error:
                        values, at = error, error.end
                yield file, values


def _offsets(path: os.PathLike[str]) -> Iterator[int | None]:
    with reading(path) as file:
        if file.size % 8:
            raise SourceError(f"{file.path}: {file.size} bytes are not a list of offsets: it was cut short")
        for start in range(0, file.size, 8 * _BLOCK):
            yield from np.frombuffer(file.read(start, min(8 * _BLOCK, file.size - start)), ">u8").tolist()


def _type(file: ContainerFile, value: Any) -> ColumnType | None:
    """Return the type of a value; None for null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return ColumnType("scalar", "bool")
    if isinstance(value, (int, float)):
        return ColumnType("scalar", "int64" if isinstance(value, int) else "float64")
    if value.kind != "array":
        return ColumnType("text" if value.kind == "str" else "bytes")
    try:
        unpacked(file, value.offset)
    except ValueError as error:
        return ColumnType("", why=f"contains a value that JSON cannot represent: {printable(error)}")
    return ColumnType("json")


def _short(file: ContainerFile, value: Any) -> list[Any]:
    """Return a list with the value if it may be a label; otherwise an empty list."""
    if isinstance(value, Span):
        is_short = value.kind != "array" and value.size <= _SHORT
        value = short_text(file.read(value.offset, value.size)) if is_short else None
    return [] if value is None else [value]


def _joined(first: ColumnType | None, second: ColumnType | None) -> ColumnType | None:
    """Return the type of a column with values of both types; None stands for null."""
    if first is None or second is None or first == second:
        return first or second
    if {first.dtype, second.dtype} == {"int64", "float64"}:
        return ColumnType("scalar", "float64")
    return ColumnType("", why="has values of several types")


def _value(file: ContainerFile, value: Any, unit: int, name: str, fields: Mapping[str, Field]) -> Value:
    field = fields.get(name)
    if not isinstance(value, Span):
        if value is not None and field is not None and field.is_blob:
            raise ValueError(f"{name} is a number, but {field.kind} in the first samples")
        return value  # type: ignore[no-any-return]
    if field is not None and not field.is_blob:
        raise ValueError(f"{name} is not a number, unlike in the first samples")
    if value.kind != "array":
        return Piece(unit, value.offset, value.size)
    stored = _JSON.encode(unpacked(file, value.offset))
    assert isinstance(stored, bytes)
    return stored
