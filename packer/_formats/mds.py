"""MDS, the shard format of MosaicML Streaming (https://github.com/mosaicml/streaming).

``index.json``        the shards in their order, with the columns of each; version 2
``shard.00000.mds``   samples
``classes.txt``       the class names, one on each line, if the classes have names

A shard is a u32 n, the u32 offsets of its n samples and of the end of the last one, the columns as JSON, and the
samples. A sample has the u32 sizes of the columns without a fixed size, and then the columns, in the order of their
names: ``image``, ``label``, ``name`` and the fields.

When a sample is written, its offset is known, but the number of samples in its shard is not. So each shard begins with
space for the offsets: one offset for each 4 KiB of the shard, which limits its number of samples. Blanks after the JSON
fill the unused space; a JSON parser accepts these blanks, and streaming ignores them.

Each column has one encoding. If the pack's codec encoded all images as JPEG or PNG, the encoding of images is ``jpeg``
or ``png``, and streaming decodes the images. Otherwise the encoding is ``bytes``, because the images may be of several
types. The pixels of the codec ``raw`` are arrays. A column of numbers cannot hold a missing value, so integers and
booleans have the encoding ``json``, which has ``null``.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from packer._fields import KINDS, NO_VALUE, Field, Stored
from packer._formats.contract import IMAGE, NOTHING, Contents, Frame
from packer._formats.foreign import DEFAULT_SHARD_SIZE, ShardWriter
from packer._table import Buffer, Sample, Table, encode_name
from packer.errors import DestinationError, printable

_MOST = (1 << 32) - 1
_BYTES_A_PLACE = 1 << 12
_IMAGES = {"jpeg": "jpeg", "png": "png", "raw": "ndarray:uint8"}
_BLOBS = {"": "bytes", "text": "str", "json": "json"}  # by the syntax
_NUMBERS = {"int": struct.Struct("<q"), "float32": struct.Struct("<f"), "float64": struct.Struct("<d")}


class _Value(NamedTuple):
    """A column's value: `head`, and then `blob`, which is the image (`slot` is `IMAGE`) or a field's blob."""

    head: bytes
    blob: Buffer = b""
    slot: int | None = None


class MDSWriter(ShardWriter):
    """Writes shards that streaming reads.

    Options: ``shard_size``, the size limit of a shard without its head, at most 3 GiB.
    """

    shard_name = "shard.{:05d}.mds"
    shard_sizes = DEFAULT_SHARD_SIZE, 3 << 30  # offsets have 32 bits

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        size = options.get("shard_size", DEFAULT_SHARD_SIZE)
        encodings = {
            "image": _IMAGES.get(contents.codec, "bytes"),
            "label": "float64" if contents.label_type == "float" else "int",
            "name": "str",
            **{one.name: _encoding(one) for one in contents.fields},
        }
        self._columns = dict(sorted(encodings.items()))
        self._config = {
            "column_encodings": [*self._columns.values()],
            "column_names": [*self._columns],
            "column_sizes": [_NUMBERS[kind].size if kind in _NUMBERS else None for kind in self._columns.values()],
            "compression": None,
            "format": "mds",
            "hashes": [],
            "size_limit": size,
            "version": 2,
        }
        self.most_samples = max(1, size // _BYTES_A_PLACE)
        self.head_size = 4 * (self.most_samples + 2) + len(_as_json(self._config))
        super().__init__(path, options, written, contents)

    def frame(self, sample: Sample) -> Frame:
        values = dict(self._values(sample))
        variable = [name for name, encoding in self._columns.items() if encoding not in _NUMBERS]
        sizes = [len(values[name].head) + len(values[name].blob) for name in variable]
        if self.head_size + sum(sizes) + 8 * len(values) > _MOST:
            raise DestinationError(f"{printable(sample.name)}: {sum(sizes)} bytes are too many for a shard of MDS")
        frame, before = self.new_frame(), struct.pack(f"<{len(sizes)}I", *sizes)
        for name in self._columns:
            before += values[name].head
            if values[name].slot is not None:
                frame.add(before)
                frame.add_value(values[name].blob, values[name].slot)
                before = b""
        frame.add(before)
        return frame

    def index_line(self, frame: Frame, at: int) -> bytes:
        return struct.pack("<I", at)

    def head(self, lines: bytes, size: int) -> bytes:
        offsets = struct.pack("<I", len(lines) // 4) + lines + struct.pack("<I", size)
        return (offsets + _as_json(self._config)).ljust(self.head_size, b" ")

    def sidecar_files(self) -> Iterator[tuple[str, bytes]]:
        shards = [
            {
                **self._config,
                "raw_data": {"basename": shard.name, "bytes": shard.size, "hashes": {}},
                "samples": shard.samples,
                "zip_data": None,
            }
            for shard in self._shards
        ]
        yield "index.json", _as_json({"shards": shards, "version": 2})
        yield from super().sidecar_files()

    def _values(self, sample: Sample) -> Iterator[tuple[str, _Value]]:
        raw = self._contents.codec == "raw"
        yield "image", _Value(_axes(sample.height, sample.width, 3) if raw else b"", sample.data, IMAGE)
        yield "label", _Value(_NUMBERS[self._columns["label"]].pack(sample.label))
        name = encode_name(sample.name).decode("utf-8", "backslashreplace")  # else streaming reads no sample
        yield "name", _Value(name.encode())
        for one, stored in zip(self._contents.fields, sample.fields, strict=True):
            if stored is None:
                yield one.name, _Value(_missing(self._columns[one.name]))
            elif isinstance(stored, (int, float)):
                yield one.name, _Value(_number(one, self._columns[one.name], stored))
            else:
                yield one.name, _Value(b"", stored, self._blob_fields[one.name])


def _encoding(one: Field) -> str:
    kind = KINDS[one.kind]
    if one.is_blob:
        return _BLOBS[kind.syntax]
    return "int" if kind.has_classes else one.dtype if one.dtype in _NUMBERS else "json"


def _missing(encoding: str) -> bytes:
    """Return the bytes for a missing value."""
    if encoding in _NUMBERS:
        return _NUMBERS[encoding].pack(NO_VALUE if encoding == "int" else math.nan)
    return b"null" if encoding == "json" else b""


def _number(one: Field, encoding: str, stored: Stored) -> bytes:
    """Encode the value of a scalar or class field for its column."""
    packed = _NUMBERS.get(encoding)
    return json.dumps(one.decode(stored)).encode("ascii") if packed is None else packed.pack(stored)


def _axes(*shape: int) -> bytes:
    """Return the bytes that streaming expects before an array: number of axes, their integer type, and their sizes."""
    kind = 0 if max(shape) < 1 << 8 else 1 if max(shape) < 1 << 16 else 2
    return struct.pack(f"<B{len(shape)}{'BHI'[kind]}", len(shape) << 2 | kind, *shape)


def _as_json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode("ascii")
