"""LitData's chunks (https://github.com/Lightning-AI/litData): samples whose parts have types, in ``chunk-*.bin``.

``index.json`` names the chunks in their order, the type of each part, and how parts make a sample. A chunk has a table
of offsets (see `offsets`), and the samples. A sample has the sizes of its parts, u32 each, and the parts. Or all
samples are a table of Arrow (see `litdataarrow`). Parts of a dict are known by their keys; those of a list or a tuple
by their places.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer._containers.arrays.arrays import litdata_array, plain_dtype
from packer._containers.contract import Piece, head_of
from packer._containers.shards.litdataarrow import arrow_rows, arrow_section
from packer._containers.shards.offsets import OffsetShards, Part, samples
from packer._containers.shards.reading import Reading, json_in
from packer._containers.shards.roles import ColumnType, Value
from packer._fields.values import parsed_json
from packer._storage.paths import name_problem
from packer.errors import SourceError, printable

__all__ = ["LitData"]

_INDEX = "index.json"
_IS_INDEX = re.compile(rb'\s*\{\s*"chunks"\s*:')
_NUMBERS = {"int": ("<q", "int64"), "float": ("<d", "float64"), "bool": ("<?", "bool")}
_BLOBS = {"jpeg": "image", "image": "image", "pil": "image", "bytes": "bytes", "str": "text", "text": "text"}
_BLOBS |= {"json": "json", "file": "bytes", "tifffile": "bytes", "tiff": "bytes", "jpeg_array": "bytes"}
_DEEPEST = 50


class _Leaf(Part):
    @property
    def is_array(self) -> bool:
        return self.base in ("numpy", "no_header_numpy")

    def type(self) -> ColumnType:
        if self.base in _NUMBERS:
            return ColumnType("scalar", _NUMBERS[self.base][1])
        if self.base == "pickle":
            return ColumnType("", why="holds pickles, which can run any code")
        return ColumnType(_BLOBS.get(self.base, ""), why=f"has the type {printable(self.kind)}")

    def value(self, file: Reading, piece: Piece) -> Value:
        if self.is_array:
            dtype = plain_dtype(self.kind.partition(":")[2]) if self.base == "no_header_numpy" else None
            return litdata_array(file.read(piece.offset, piece.size), dtype)
        if self.base not in _NUMBERS:
            return piece
        number: int | float = struct.unpack(_NUMBERS[self.base][0], file.read(piece.offset, piece.size))[0]
        return number


@dataclass(eq=False)
class LitData(OffsetShards):
    """A directory with ``index.json`` and ``chunk-*.bin``, or that file."""

    kind = "litdata"

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return path.name == _INDEX and _IS_INDEX.match(head) is not None

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        index = path / _INDEX
        return [index] if _INDEX in names and cls.recognise_file(index, head_of(index)) else None

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> LitData:
        path, where = paths[0], printable(paths[0])
        if len(paths) > 1:
            raise SourceError(f"{printable(paths[1])}: an index of LitData is given alone")
        index = json_in(path)
        said = index.get("config") if isinstance(index, dict) else None
        config: dict[str, Any] = said if isinstance(said, dict) else {}
        _require_plain(config, where)
        chunks = list(_chunks(index, where))
        container = cls(path.parent, [*(name for name, _ in chunks), _INDEX])
        container.counts, container.parts = [count for _, count in chunks], _parts(config, where)
        container._choose(_with_unnamed(keys, container.parts), where)
        return container

    def _values(
        self, file: Reading, unit: int, wanted: Collection[str]
    ) -> Iterator[dict[str, Value] | ValueError | struct.error]:
        section = arrow_section(file)
        if section is None or any(stop > start for _, start, stop in samples(file, self.counts[unit])):
            yield from super()._values(file, unit, wanted)
            return
        count = 0
        for values in arrow_rows(section, unit, [part.name for part in self.parts if part.name in wanted]):
            yield values
            count += 1
        if count != self.counts[unit]:
            raise SourceError(f"{file.path}: its table has {count} samples, and the index says {self.counts[unit]}")


def _with_unnamed(keys: Mapping[str, str], parts: Sequence[Part]) -> Mapping[str, str]:
    """Return keys; of a pair of an image and a number, without names, these are the image and its label."""
    types = {part.name: part.type().kind for part in parts}
    if not keys and list(types) == ["0", "1"] and types["0"] in ("image", "bytes") and types["1"] == "scalar":
        return {"image": "0", "label": "1"}
    return keys


def _require_plain(config: Mapping[str, Any], where: str) -> None:
    """Raise SourceError where chunks are compressed, encrypted, or hold no samples."""
    if (codec := config.get("compression") or config.get("ipc_compression")) is not None:
        raise SourceError(
            f"{where}: its chunks are compressed ({printable(codec)}). "
            "Write them with litdata.optimize(compression=None)"
        )
    if config.get("encryption") is not None:
        raise SourceError(f"{where}: its chunks are encrypted. Write them without encryption")
    loader = config.get("item_loader", "PyTreeLoader")
    if loader != "PyTreeLoader":
        raise SourceError(f"{where}: is for {printable(loader)}, and packer reads what PyTreeLoader reads")


def _chunks(index: Any, where: str) -> Iterator[tuple[str, int]]:
    """Yield the name of each chunk, and how many samples it has."""
    chunks = index.get("chunks") if isinstance(index, dict) else None
    if not isinstance(chunks, list) or not chunks:
        raise SourceError(f"{where}: no index of LitData, or one without chunks")
    for number, chunk in enumerate(chunks):
        name = chunk.get("filename") if isinstance(chunk, dict) else None
        count = chunk.get("chunk_size") if isinstance(chunk, dict) else None
        if not isinstance(name, str) or type(count) is not int or count < 0:
            raise SourceError(f"{where}: chunk {number} has no name, or no count of samples")
        if problem := name_problem(name):
            raise SourceError(f"{where}: chunk {number}, {printable(name)}: {problem}")
        yield name, count


def _parts(config: Mapping[str, Any], where: str) -> list[_Leaf]:
    """Return the parts of a sample."""
    kinds, spec = config.get("data_format"), config.get("data_spec")
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise SourceError(f"{where}: names no types of the parts of a sample")
    try:
        told = parsed_json(spec) if isinstance(spec, str) else None
        names = list(_leaves(told[1], "", 0)) if isinstance(told, list) and len(told) == 2 else []
    except (ValueError, TypeError, KeyError) as error:
        raise SourceError(f"{where}: does not say how parts make a sample: {printable(error)}") from error
    if len(names) != len(kinds) or len(set(names)) < len(names):
        raise SourceError(f"{where}: {len(kinds)} types of parts, and {len(set(names))} names of them")
    return [_Leaf(name, kind) for name, kind in zip(names, kinds, strict=True)]


def _leaves(spec: Any, name: str, depth: int) -> Iterator[str]:
    """Yield the names of the leaves of a tree, whose keys and places are joined by dots."""
    if not isinstance(spec, dict) or depth > _DEEPEST:
        raise ValueError("a tree of parts is expected")
    kind, children = spec.get("type"), spec.get("children_spec")
    if kind is None:
        yield name or "0"
        return
    context = spec.get("context")
    keys = parsed_json(context) if isinstance(context, str) else context
    if not isinstance(children, list):
        raise ValueError("a tree of parts is expected")
    if not isinstance(keys, list) or not str(kind).endswith("ict"):
        keys = range(len(children))
    if len(keys) != len(children):
        raise ValueError(f"{len(keys)} keys have {len(children)} parts")
    for key, child in zip(keys, children, strict=True):
        yield from _leaves(child, f"{name}.{key}" if name else str(key), depth + 1)
