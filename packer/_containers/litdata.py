"""LitData's chunks (https://github.com/Lightning-AI/litData): samples with typed parts, in files ``chunk-*.bin``.

``index.json`` lists the chunks in their order and the type of each part, and describes how parts form a sample. A chunk
consists of a table of offsets (see `packer._containers.shards`) and the samples. A sample consists of the sizes of its
parts, u32 each, and the parts. The parts of a dict are identified by their keys, the parts of a list or a tuple by
their numbers.

If pyarrow is installed, LitData writes samples that are dicts of bytes, texts and numbers as an Arrow table. The table
of offsets then lists empty samples. After this table comes a file in Arrow's IPC format, and the chunk ends with the
size of that file, u32, and a signature. See `append_arrow_row_footer` in
https://github.com/Lightning-AI/litData/blob/main/src/litdata/streaming/item_loader.py.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from packer._containers.arrow import ArrowFile, names_of
from packer._containers.blocks import ContainerFile, errors_in, json_in
from packer._containers.contract import Packed, Piece
from packer._containers.roles import Value
from packer._containers.shards import (
    MOST_AXES,
    OffsetShards,
    ShardColumn,
    elements_of,
    listed_shard,
    samples,
)
from packer._fields import Field
from packer._fields.encoding import parsed_json
from packer.errors import SourceError, printable

if TYPE_CHECKING:
    from packer._storage.packfile import PackFile

_SIGNATURE = b"LDARW01\0"
_END = 12  # bytes of the size and the signature
_JSON = Field("json", "json")


class Section:
    """A range of a file that offers the interface of a file.

    Parameters
    ----------
    file : ContainerFile
    begin, size : int

    Attributes
    ----------
    path : str
    begin : int
        The section's offset in the file.
    size : int
    """

    def __init__(self, file: ContainerFile, begin: int, size: int) -> None:
        self.path, self.begin, self.size = file.path, begin, size
        self._file = file

    def read(self, offset: int, size: int) -> bytes:
        """Return a range of the section; SourceError if it ends beyond the file."""
        return self._file.read(self.begin + offset, size)


def arrow_section(file: ContainerFile) -> Section | None:
    """Return the Arrow table in a chunk, or None if there is none; SourceError if the table exceeds the chunk."""
    if file.size < _END or file.read(file.size - 8, 8) != _SIGNATURE:
        return None
    size = int.from_bytes(file.read(file.size - _END, 4), "little")
    if not 0 < size <= file.size - _END:
        raise SourceError(f"{file.path}: damaged: an Arrow table of {size} bytes does not fit into it")
    return Section(file, file.size - _END - size, size)


def arrow_rows(section: Section, unit: int, names: Sequence[str]) -> Iterator[dict[str, Value] | ValueError]:
    """Yield the samples of a table, each as the values of the named parts. A part's name is its keys, joined by dots.

    For an unusable sample, yield the reason instead.

    Raises
    ------
    MissingDependencyError
        If pyarrow is not installed.
    SourceError
        If the table is damaged, or a part of a sample is compressed.
    """
    reader = ArrowFile(cast("PackFile", section), unit)
    schema = reader.schema
    columns = {name: name if schema.get_field_index(name) >= 0 else name.partition(".")[0] for name in names}
    if missing := [name for name, column in columns.items() if schema.get_field_index(column) < 0]:
        raise SourceError(f"{section.path}: its Arrow table has no column {missing[0]!r}")
    binary = [name for name, column in columns.items() if _is_binary(schema.field(column).type, name, column)]
    others = [name for name in columns if name not in binary]
    read = [*dict.fromkeys(columns[name] for name in others)]
    for batch in reader.batches():
        pieces = {name: reader.images(batch, columns[name]) for name in binary}
        for at, row in enumerate(reader.rows(batch, read)):
            if isinstance(row, ValueError):
                yield row
                continue
            values = {name: _plain(row[columns[name]], name[len(columns[name]) + 1 :]) for name in others}
            yield values | {name: _moved(of[at], section) for name, of in pieces.items()}


def _is_binary(kind: Any, name: str, column: str) -> bool:
    """Tell whether `name` holds bytes: as a column, or as the member ``bytes`` of a column of structures."""
    inner = "bytes" in names_of(kind) and name == f"{column}.bytes"
    return str(kind.field("bytes").type if inner else kind) in ("binary", "large_binary")


def _moved(piece: Piece | Packed | None, section: Section) -> Value:
    if isinstance(piece, Packed):
        raise SourceError(f"{section.path}: its Arrow table is compressed. Write it without compression")
    return None if piece is None else piece._replace(offset=section.begin + piece.offset)


def _plain(value: Any, path: str) -> Value:
    """Convert a value from an Arrow table, recursively, to the form of values in chunks without such a table."""
    for key in path.split(".") if path else ():
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, str):
        return value.encode()
    if value is None or isinstance(value, (bytes, int, float)):
        return value
    return bytes(cast("bytes", _JSON.encode(value)))


_NUMBERS = {"int": ("<q", "int64"), "float": ("<d", "float64"), "bool": ("<?", "bool")}
_BLOBS = {"jpeg": "image", "image": "image", "pil": "image", "bytes": "bytes", "str": "text", "text": "text"}
_BLOBS |= {"json": "json", "file": "bytes", "tifffile": "bytes", "tiff": "bytes"}
_DEEPEST = 50


_NUMBERED = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")


def _plain_dtype(number: str) -> str:
    """Return the dtype for LitData's dtype number; ValueError if fields do not support the dtype."""
    if not (number.isascii() and number.isdecimal() and len(number) < 3 and int(number) < len(_NUMBERED)):
        raise ValueError(f"an array has the dtype {number!r}, which packer does not read")
    return _NUMBERED[int(number)]


def _array(data: bytes, dtype: str | None) -> npt.NDArray[Any]:
    """Decode an array of LitData.

    With a `dtype`, the array has one axis; otherwise it begins with a header of u32 numbers. The header consists of the
    dtype's number, the number of axes, and the length of each axis. Invalid bytes raise ValueError.
    """
    if dtype is not None:
        return elements_of(data, 0, dtype, (len(data) // np.dtype(dtype).itemsize,))
    head = np.frombuffer(data, "<u4", min(len(data) // 4, 2 + MOST_AXES)).tolist()
    axes = head[1] if len(head) > 1 else MOST_AXES + 1
    if axes > MOST_AXES or len(head) < 2 + axes:
        raise ValueError("an array has no shape, or too many axes")
    return elements_of(data, 4 * (2 + axes), _plain_dtype(str(head[0])), tuple(head[2 : 2 + axes]))


class _Leaf(ShardColumn):
    NUMBERS = _NUMBERS
    BLOBS = _BLOBS
    PICKLE = "pickle"

    def value(self, file: ContainerFile, piece: Piece) -> Value:
        if self.base in ("numpy", "no_header_numpy"):
            dtype = _plain_dtype(self.kind.partition(":")[2]) if self.base == "no_header_numpy" else None
            return _array(file.read(piece.offset, piece.size), dtype)
        return self.number(file.read(piece.offset, piece.size)) if self.base in _NUMBERS else piece


@dataclass(eq=False)
class LitData(OffsetShards):
    """A directory with ``index.json`` and ``chunk-*.bin``, or the file ``index.json``."""

    kind = "litdata"
    index_begins = re.compile(rb'\s*\{\s*"chunks"\s*:')

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> LitData:
        path, where = paths[0], printable(paths[0])
        if len(paths) > 1:
            raise SourceError(f"{printable(paths[1])}: convert one LitData index at a time")
        index = json_in(path)
        found = index.get("config") if isinstance(index, dict) else None
        config: dict[str, Any] = found if isinstance(found, dict) else {}
        _require_plain(config, where)
        chunks = list(_chunks(index, where))
        container = cls(path.parent, [*(name for name, _ in chunks), cls.INDEX], sidecars=1)
        container.counts, container.parts = [count for _, count in chunks], _parts(config, where)
        container._choose(_with_unnamed(keys, container.parts), where)
        return container

    def _values(
        self, file: ContainerFile, unit: int, names: Collection[str]
    ) -> Iterator[dict[str, Value] | ValueError | struct.error]:
        section = arrow_section(file)
        if section is None or any(stop > start for _, start, stop in samples(file, self.counts[unit])):
            yield from super()._values(file, unit, names)
            return
        count = 0
        for values in arrow_rows(section, unit, [part.name for part in self.parts if part.name in names]):
            yield values
            count += 1
        if count != self.counts[unit]:
            raise SourceError(f"{file.path}: its table has {count} samples, but the index says {self.counts[unit]}")


def _with_unnamed(keys: Mapping[str, str], parts: Sequence[ShardColumn]) -> Mapping[str, str]:
    """Return the user's keys. Without any, return keys for image and label if samples are pairs of image and number."""
    types = {part.name: part.type().kind for part in parts}
    if not keys and list(types) == ["0", "1"] and types["0"] in ("image", "bytes") and types["1"] == "scalar":
        return {"image": "0", "label": "1"}
    return keys


def _require_plain(config: Mapping[str, Any], where: str) -> None:
    """Raise SourceError if chunks are compressed, encrypted, or hold no samples."""
    if (codec := config.get("compression") or config.get("ipc_compression")) is not None:
        raise SourceError(
            f"{where}: its chunks are compressed ({printable(codec)}). "
            "Write them with litdata.optimize(compression=None)"
        )
    if config.get("encryption") is not None:
        raise SourceError(f"{where}: its chunks are encrypted. Write them without encryption")
    loader = config.get("item_loader", "PyTreeLoader")
    if loader != "PyTreeLoader":
        raise SourceError(f"{where}: was written for {printable(loader)}; packer reads only data for PyTreeLoader")


def _chunks(index: Any, where: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the sample count of each chunk."""
    chunks = index.get("chunks") if isinstance(index, dict) else None
    if not isinstance(chunks, list) or not chunks:
        raise SourceError(f"{where}: not a LitData index, or one without chunks")
    for number, chunk in enumerate(chunks):
        name = chunk.get("filename") if isinstance(chunk, dict) else None
        count = chunk.get("chunk_size") if isinstance(chunk, dict) else None
        yield listed_shard(name, count, f"{where}: chunk {number}")


def _parts(config: Mapping[str, Any], where: str) -> list[_Leaf]:
    """Return the parts that make up a sample."""
    kinds, spec = config.get("data_format"), config.get("data_spec")
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise SourceError(f"{where}: does not list the types of a sample's parts")
    with errors_in(f"{where}: does not describe how a sample is built from its parts", ValueError, TypeError, KeyError):
        tree = parsed_json(spec) if isinstance(spec, str) else None
        names = list(_leaves(tree[1], "", 0)) if isinstance(tree, list) and len(tree) == 2 else []
    if len(names) != len(kinds) or len(set(names)) < len(names):
        raise SourceError(f"{where}: {len(kinds)} types of parts, but {len(set(names))} different names")
    return [_Leaf(name, kind) for name, kind in zip(names, kinds, strict=True)]


def _leaves(spec: Any, name: str, depth: int) -> Iterator[str]:
    """Yield the name of each leaf in a tree: the keys and indices that lead to the leaf, joined by dots."""
    if not isinstance(spec, dict) or depth > _DEEPEST:
        raise ValueError("expected a tree of parts")
    kind, children = spec.get("type"), spec.get("children_spec")
    if kind is None:
        yield name or "0"
        return
    context = spec.get("context")
    keys = parsed_json(context) if isinstance(context, str) else context
    if not isinstance(children, list):
        raise ValueError("expected a tree of parts")
    if not isinstance(keys, list) or not str(kind).endswith("ict"):
        keys = range(len(children))
    if len(keys) != len(children):
        raise ValueError(f"{len(keys)} keys for {len(children)} parts")
    for key, child in zip(keys, children, strict=True):
        yield from _leaves(child, f"{name}.{key}" if name else str(key), depth + 1)
