"""MDS, the shard format of MosaicML Streaming (https://github.com/mosaicml/streaming): samples with typed columns.

``index.json`` lists the shards in their order, and the columns. A shard consists of a table of offsets (see
`packer._containers.shards`), the columns again as JSON, and the samples. A sample has a value for each column. It
begins with the sizes of all values of variable size; then come all values, in the order of the columns' names. The
values of the label column become labels unchanged.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._containers.blocks import ContainerFile, Unpacked, errors_in, json_in, reading
from packer._containers.compression import unpack
from packer._containers.contract import Entry, Packed, Piece
from packer._containers.roles import ColumnType, Value
from packer._containers.shards import (
    MOST_AXES,
    OffsetShards,
    ShardColumn,
    elements_of,
    first_offset,
    listed_shard,
    samples,
)
from packer._fields.encoding import parsed_json
from packer._storage.safe_open import name_problem
from packer.errors import SourceError, printable

_NUMBERS = {
    "int": ("<q", "int64"),
    "int8": ("<b", "int8"),
    "int16": ("<h", "int16"),
    "int32": ("<i", "int32"),
    "int64": ("<q", "int64"),
    "uint8": ("<B", "int16"),
    "uint16": ("<H", "int32"),
    "uint32": ("<I", "int64"),
    "uint64": ("<Q", "int64"),
    "float16": ("<e", "float32"),
    "float32": ("<f", "float32"),
    "float64": ("<d", "float64"),
}
"""For each encoding of numbers, the format of the stored number, and the dtype of the column's field."""

_BLOBS = {"jpeg": "image", "png": "image", "pil": "image", "bytes": "bytes", "str": "text", "json": "json"}
_BLOBS |= {"str_decimal": "text"}
_TEXTS = {"str_int": "int64", "str_float": "float64"}
_CODECS = {"zstd": "zstd", "gz": "gzip", "br": "brotli"}
_LONGEST_NUMBER = 400  # digits


_DTYPES = {8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32"}
_DTYPES |= {64: "uint64", 65: "int64", 66: "float64"}


@dataclass(frozen=True)
class MDSArray:
    """The dtype and the shape in the name of an encoding ``ndarray:DTYPE:SHAPE``.

    A dtype or shape that the name lacks is stored before each array.

    Attributes
    ----------
    dtype : str
        Empty if each array stores its own dtype.
    shape : tuple of int, optional
    """

    dtype: str = ""
    shape: tuple[int, ...] | None = None

    @classmethod
    def of(cls, text: str) -> MDSArray:
        """Parse ``DTYPE:SHAPE``; ValueError if it is malformed."""
        match = re.fullmatch(r"(\w*)(?::([0-9]{1,18}(?:,[0-9]{1,18})*))?", text, re.ASCII)
        if match is None or (match[1] and match[1] not in _DTYPES.values()):
            raise ValueError(f"ndarray:{text} is not an encoding of arrays")
        return cls(match[1], tuple(map(int, match[2].split(","))) if match[2] else None)

    def decode(self, data: bytes) -> npt.NDArray[Any]:
        """Return an array; ValueError if the bytes are invalid."""
        start, dtype, shape = 0, self.dtype, self.shape
        if not dtype:
            dtype, start = _DTYPES.get(data[0] if data else 0, ""), 1
            if not dtype:
                raise ValueError("an array has no known dtype")
        if shape is None:
            if len(data) <= start or data[start] >> 2 > MOST_AXES:
                raise ValueError("an array has no shape, or too many axes")
            axes, width = data[start] >> 2, 1 << data[start] % 4
            start += 1
            lengths = data[start : start + axes * width]
            if len(lengths) < axes * width:
                raise ValueError("an array is too short for its shape")
            shape = tuple(np.frombuffer(lengths, f"<u{width}").tolist())
            start += axes * width
        return elements_of(data, start, dtype, shape)


class _Column(ShardColumn):
    NUMBERS = _NUMBERS
    BLOBS = _BLOBS
    PICKLE = "pkl"
    TYPE = "encoding"

    @cached_property
    def _array(self) -> MDSArray:
        return MDSArray.of(self.kind.partition(":")[2])

    def type(self) -> ColumnType:
        if self.base in _NUMBERS and self.size != struct.calcsize(_NUMBERS[self.base][0]):
            raise ValueError(f"{self.size} bytes are not the size of {self.base}")
        return ColumnType("scalar", _TEXTS[self.base]) if self.base in _TEXTS else super().type()

    def value(self, file: ContainerFile, piece: Piece) -> Value:
        if self.base == "ndarray":
            return self._array.decode(file.read(piece.offset, piece.size))
        if self.base not in _NUMBERS and self.base not in _TEXTS:
            return piece
        if piece.size > _LONGEST_NUMBER:
            raise ValueError(f"column {self.name!r}: {piece.size} bytes are too many for a number")
        data = file.read(piece.offset, piece.size)
        if self.base in _TEXTS:
            return int(data) if self.base == "str_int" else float(data)
        return self.number(data)


@dataclass(eq=False)
class MDS(OffsetShards):
    """MDS shards, opened by their directory, by ``index.json``, or as files ``.mds``."""

    kind = "mds"
    suffixes = (".mds",)
    index_begins = re.compile(rb'\s*\{\s*("version"\s*:\s*[0-9]+\s*,\s*)?"shards"\s*:')

    packed: Sequence[tuple[str, int] | None] = ()
    """The codec and the unpacked size of each shard; None for an uncompressed shard."""

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return super().recognise_file(path, head) or path.name.lower().endswith(".mds.zstd")

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> MDS:
        if paths[0].name == cls.INDEX:
            if len(paths) > 1:
                raise SourceError(f"{printable(paths[1])}: convert one MDS index at a time")
            shards = _shards(paths[0])
            container = cls(paths[0].parent, [*(shard.name for shard in shards), cls.INDEX], sidecars=1)
        else:
            shards = [_Shard(path.name, _columns_of_shard(path)) for path in paths]
            container = cls.of_files(paths)
        container.counts, container.packed = [shard.samples for shard in shards], [shard.packed for shard in shards]
        container.parts = shards[0].columns
        for number, shard in enumerate(shards):
            if shard.columns != container.parts:
                raise SourceError(f"{printable(paths[0])}: shard {number} has other columns than the first shard")
        container._choose(keys, printable(paths[0]))
        return container

    def _stem(self, unit: int) -> str:
        return self.files[unit].partition(".mds")[0]

    @contextlib.contextmanager
    def reading(self, unit: int) -> Iterator[ContainerFile]:
        packed = self.packed[unit]
        with super().reading(unit) as file:
            if packed is None:
                yield file
                return
            with errors_in(file.path):
                data = unpack(packed[0], file.read(0, file.size), packed[1])
        yield ContainerFile(Unpacked(self.root / self.files[unit], data))

    def entries(self, unit: int) -> Iterator[Entry]:
        packed = self.packed[unit]
        if packed is None:
            yield from super().entries(unit)
            return
        with super().reading(unit) as file:
            whole = Piece(unit, 0, file.size)

        def within(value: Any) -> Any:
            return Packed(whole, *packed, value.offset, value.size) if isinstance(value, Piece) else value

        for entry in super().entries(unit):
            values = {name: within(value) for name, value in entry.values.items()}
            yield entry._replace(image=within(entry.image), values=values)


class _Shard(NamedTuple):
    """A shard's file, columns and sample count (if known); for a compressed shard also its codec and unpacked size."""

    name: str
    columns: list[_Column]
    samples: int | None = None
    packed: tuple[str, int] | None = None


def _shards(path: Path) -> list[_Shard]:
    """Return the shards that an index lists."""
    index = json_in(path)
    shards = index.get("shards") if isinstance(index, dict) else None
    if not isinstance(shards, list) or not shards or index.get("version", 2) != 2:
        raise SourceError(f"{printable(path)}: not an index of MDS shards of version 2")
    found = []
    for number, shard in enumerate(shards):
        where = f"{printable(path)}: shard {number}"
        if not isinstance(shard, dict) or shard.get("format") != "mds":
            raise SourceError(f"{where} is not in the format mds; packer reads no other shards")
        raw, count = shard.get("raw_data"), shard.get("samples")
        name = raw.get("basename") if isinstance(raw, dict) else None
        name, count = listed_shard(name, count, where)
        name, packed = _stored(path.parent, name, shard, where)
        found.append(_Shard(name, _columns(shard, where), count, packed))
    return found


def _stored(directory: Path, name: str, shard: Mapping[str, Any], where: str) -> tuple[str, tuple[str, int] | None]:
    """Return a shard's file, and for a compressed shard its codec and unpacked size."""
    packed = shard.get("zip_data")
    if packed is None or os.path.isfile(directory / name):
        return name, None
    name = str(shard.get("compression")).partition(":")[0]
    codec, size = _CODECS.get(name), shard["raw_data"].get("bytes")
    zipped = packed.get("basename") if isinstance(packed, dict) else None
    if codec is None or type(size) is not int or not isinstance(zipped, str):
        raise SourceError(f"{where} is compressed ({printable(name)}), which packer does not read. {_REMEDY}")
    if problem := name_problem(zipped):
        raise SourceError(f"{where}, {printable(zipped)}: {problem}")
    return zipped, (codec, size)


_REMEDY = "Decompress it first, for example with `zstd -d FILE.mds.zstd`, which writes the shard next to it"


def _columns_of_shard(path: Path) -> list[_Column]:
    """Return the columns in the header of a shard, after its table of offsets."""
    if not path.name.lower().endswith(".mds"):
        raise SourceError(f"{printable(path)}: is compressed. {_REMEDY}")
    with reading(path) as file:
        begin = first_offset(file)
        end = next((start for _, start, _ in samples(file)), begin)
        with errors_in(f"{file.path}: lists no columns"):
            config = parsed_json(file.read(begin, end - begin).decode())
        return _columns(config, file.path)


def _columns(config: Any, where: str) -> list[_Column]:
    members: dict[str, Any] = config if isinstance(config, dict) else {}
    lists: list[Any] = [members.get(f"column_{what}") for what in ("names", "encodings", "sizes")]
    if not all(isinstance(one, list) for one in lists) or len(set(map(len, lists))) != 1:
        raise SourceError(f"{where}: does not list columns with their encodings and sizes")
    found = []
    for name, encoding, size in zip(*lists, strict=True):
        is_size = size is None or (type(size) is int and size >= 0)
        if not (isinstance(name, str) and isinstance(encoding, str) and is_size):
            raise SourceError(f"{where}: column {printable(name)!r} has no encoding, or no size")
        found.append(_Column(name, encoding, size))
    if len({column.name for column in found}) < len(found):
        raise SourceError(f"{where}: two columns have the same name")
    return found
