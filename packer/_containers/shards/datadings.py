"""datadings (https://gitlab.com/jfolz/datadings): a map of MessagePack for each sample, one after the other.

``X.msgpack`` has the maps, and ``X.msgpack.offsets`` where each begins and the last ends, u64, big-endian. The name
of a sample is its ``key``.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from packer._containers.contract import Container, Entry, Piece
from packer._containers.shards.msgpack import Span, read_map, unpacked
from packer._containers.shards.reading import Reading, reading
from packer._containers.shards.roles import ColumnType, Roles, Value, roles_of, short_text
from packer._fields import Field
from packer.errors import SourceError, printable

__all__ = ["Datadings"]

_LOOKED_AT = 100  # samples of the first and of the last file, which say what samples have
_BLOCK = 1 << 14  # samples
_SHORT = 256  # bytes of a value that may be a label
_KEY = "key"
_JSON = Field("json", "json")


@dataclass(eq=False)
class Datadings(Container):
    """Files ``.msgpack``, with their ``.offsets`` beside them."""

    kind = "datadings"
    suffixes = (".msgpack",)

    roles: Roles = field(default_factory=lambda: Roles("", None, None, {}))
    data: int = 0
    """How many of `files` have samples; the others are their offsets."""

    known: frozenset[str] = frozenset()

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        is_map = bool(head) and (0x80 <= head[0] < 0x90 or head[0] in (0xDE, 0xDF))
        return path.name.lower().endswith(cls.suffixes) and is_map

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> Datadings:
        offsets = [beside for path in paths if os.path.isfile(beside := path.with_name(path.name + ".offsets"))]
        container = cls.of_files([*paths, *offsets])
        container.data = len(paths)
        found, looked_at = dict[str, ColumnType | None](), dict[str, list[Any]]()
        for unit in {0, len(paths) - 1}:
            for file, values in itertools.islice(container._maps(unit), _LOOKED_AT):
                for name, value in values.items():
                    found[name] = _joined(found.get(name), _type(file, value))
                    looked_at.setdefault(name, []).extend(_short(file, value))
        types = {name: type or ColumnType("", why="has no value in the first samples") for name, type in found.items()}
        where = printable(paths[0])
        if not types:
            raise SourceError(f"{where}: no samples in it")
        named = _KEY if types.get(_KEY, ColumnType("")).kind == "text" else None
        container.roles = roles_of(types, keys, where, container.account, looked_at, name=named)
        container.why_unlabeled = container.roles.why_unlabeled
        container.known = frozenset(types)
        container.fields, container.label_type = tuple(container.roles.fields.values()), container.roles.label_type
        container.notes += container.roles.notes
        return container

    @property
    def units(self) -> int:
        return self.data

    def entries(self, unit: int) -> Iterator[Entry]:
        stem, wanted = self.files[unit].removesuffix(".msgpack"), self.roles.wanted
        for number, (file, maps) in enumerate(self._maps(unit)):
            name = f"{stem}/{number:06d}"
            try:
                if not self.known >= maps.keys():
                    unknown = printable(sorted(maps.keys() - self.known)[0])
                    raise ValueError(f"{unknown} is in none of the first samples: say with --key what is wanted")
                values = {name: _value(file, maps[name], unit, name, self.roles) for name in wanted & maps.keys()}
                entry = self.roles.entry(name, values, file.read)
            except ValueError as error:
                entry = Entry(name, b"", problem=f"sample {number}: {printable(error)}")
            yield entry

    def _maps(self, unit: int) -> Iterator[tuple[Reading, dict[str, Any]]]:
        """Yield the values of each sample, with the file that they lie in; they are where the offsets say."""
        name = self.files[unit] + ".offsets"
        told = _offsets(self.root / name) if name in self.files[self.data :] else itertools.repeat(None)
        with reading(self.root / self.files[unit]) as file:
            at = 0
            for number in itertools.count():
                said = next(told, -1)
                if said not in (None, at):
                    where = "no such sample" if said == -1 else f"that it begins at byte {said}"
                    raise SourceError(f"{file.path}: sample {number} begins at byte {at}, and {name} says {where}")
                if at == file.size:
                    break
                try:
                    values, at = read_map(file, at)
                except ValueError as error:
                    raise SourceError(f"{file.path}: sample {number}, at byte {at}: {printable(error)}") from error
                yield file, values


def _offsets(path: os.PathLike[str]) -> Iterator[int | None]:
    with reading(path) as file:
        if file.size % 8:
            raise SourceError(f"{file.path}: {file.size} bytes are no offsets: it was cut short")
        for start in range(0, file.size, 8 * _BLOCK):
            yield from np.frombuffer(file.read(start, min(8 * _BLOCK, file.size - start)), ">u8").tolist()


def _type(file: Reading, value: Any) -> ColumnType | None:
    """Return what a value is; None where there is none."""
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
        return ColumnType("", why=f"holds what JSON cannot say: {printable(error)}")
    return ColumnType("json")


def _short(file: Reading, value: Any) -> list[Any]:
    """Return a value that may be a label; nothing of any other."""
    if isinstance(value, Span):
        is_short = value.kind != "array" and value.size <= _SHORT
        value = short_text(file.read(value.offset, value.size)) if is_short else None
    return [] if value is None else [value]


def _joined(first: ColumnType | None, second: ColumnType | None) -> ColumnType | None:
    """Return the type of values of which some are of one type, and some of another."""
    if first is None or second is None or first == second:
        return first or second
    if {first.dtype, second.dtype} == {"int64", "float64"}:
        return ColumnType("scalar", "float64")
    return ColumnType("", why="is of several types")


def _value(file: Reading, value: Any, unit: int, name: str, roles: Roles) -> Value:
    field = roles.fields.get(name)
    if not isinstance(value, Span):
        if value is not None and field is not None and field.kind not in ("scalar", "class"):
            raise ValueError(f"{name} is a number, and in the first samples it is {field.kind}")
        return value  # type: ignore[no-any-return]
    if field is not None and field.kind in ("scalar", "class"):
        raise ValueError(f"{name} is no number, as it is in the first samples")
    if value.kind != "array":
        return Piece(unit, value.offset, value.size)
    stored = _JSON.encode(unpacked(file, value.offset))
    assert isinstance(stored, bytes)
    return stored
