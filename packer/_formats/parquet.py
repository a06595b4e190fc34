"""Parquet: a directory of files, in which Hugging Face's `datasets` finds images and classes.

``data-00000.parquet``   samples

A row is a sample. Its columns are ``image``, a structure of ``bytes`` and ``path``, the sample's name; ``label``; and
one of each field, under its name. The metadata of a file have, below ``huggingface``, the features of the columns:
which are images, and the names of the classes. A sample without a label has the label -1, as a ClassLabel says it.

Nothing is compressed, and an image is a page of its own, so it lies in one range, which is known when it comes. The
other columns follow at the end of their row group. So packer's index has a copy of the values of fields that are blobs.

There is no ``classes.txt``, because `datasets` takes a directory for one of texts that has as many of these.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packer._containers.columnar.thriftwriting import Encoded
from packer._fields import Field
from packer._formats.contract import NOTHING, Contents
from packer._formats.frame import Frame
from packer._formats.parquetgroups import (
    BOOLEAN,
    BYTE_ARRAY,
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    MAGIC,
    Leaf,
    Node,
    RowGroup,
    Value,
    first_page,
    footer,
)
from packer._formats.shards import ShardWriter
from packer._table import Sample, Table, encode_name
from packer.errors import DestinationError, printable

__all__ = ["ParquetWriter"]

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
_TEXTS = ("text", "json", "segmentation")
_PICTURES = ("image", "mask")


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
                f"{printable(sample.name)}: {size:,} bytes are too many for a row of Parquet: it has at most {_MOST:,}"
            )
        frame = Frame(len(self._blob_fields))
        frame.add(first_page(len(sample.data)))
        frame.add_image(sample.data)
        for one, stored in zip(self._contents.fields, sample.fields, strict=True):
            if stored is not None and not isinstance(stored, (int, float)):
                frame.copy_blob(self._blob_fields[one.name], stored)
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

    def beside(self) -> Iterator[tuple[str, bytes]]:
        return iter(())

    def _is_full(self) -> bool:
        return self._group.rows >= _ROWS or self._group.size >= _SIZE

    def _end_group(self, at: int) -> None:
        """Begin another group; the tail of this one lies at byte `at`."""
        self._groups.append(self._group.said(at))
        self._group = RowGroup(self._nodes)

    def _values(self, sample: Sample) -> Iterator[tuple[Value, int]]:
        """Yield the values of all columns but the first, and how many of structure and column are there."""
        yield encode_name(sample.name).decode("utf-8", "replace").encode("utf-8"), 2
        yield sample.label, 1
        if self._contents.codec == "raw":
            yield sample.height, 1
            yield sample.width, 1
        for one, stored in zip(self._contents.fields, sample.fields, strict=True):
            if one.kind in _PICTURES:
                yield stored, 0 if stored is None else 2
                yield None, 0 if stored is None else 1
            else:
                yield stored, int(stored is not None)


def _nodes(contents: Contents) -> list[Node]:
    """Return the columns of a file."""
    label = DOUBLE if contents.label_type == "float" else INT64
    nodes: list[Node] = [_picture("image"), (Leaf(("label",), label),)]
    if contents.codec == "raw":
        nodes += [(Leaf((name,), INT32),) for name in ("height", "width")]
    return nodes + [_picture(one.name) if one.kind in _PICTURES else (_leaf(one),) for one in contents.fields]


def _picture(name: str) -> Node:
    return Leaf((name, "bytes"), BYTE_ARRAY), Leaf((name, "path"), BYTE_ARRAY, _UTF8)


def _leaf(one: Field) -> Leaf:
    if one.kind == "scalar":
        return Leaf((one.name,), *_SCALARS[one.dtype])
    if one.kind == "class":
        return Leaf((one.name,), INT64)
    return Leaf((one.name,), BYTE_ARRAY, _UTF8 if one.kind in _TEXTS else None)


def _features(contents: Contents) -> dict[str, Any]:
    """Return what `datasets` has in the metadata of a file."""
    image: Any = {"_type": "Image"}
    features: dict[str, Any] = {"image": image}
    if contents.label_type == "class":
        features["label"] = _classes(contents.classes)
    else:
        features["label"] = _of_type("float64" if contents.label_type == "float" else "int64")
    if contents.codec == "raw":  # of which `datasets` decodes nothing
        features["image"] = {"bytes": _of_type("binary"), "path": _of_type("string")}
        features |= {name: _of_type("int32") for name in ("height", "width")}
    for one in contents.fields:
        if one.kind == "class":
            features[one.name] = _classes(() if one.ids else one.classes)
        else:
            kind = one.dtype if one.kind == "scalar" else "string" if one.kind in _TEXTS else "binary"
            features[one.name] = image if one.kind in _PICTURES else _of_type(kind)
    return {"info": {"features": features}}


def _classes(names: Any) -> dict[str, Any]:
    """Return a ClassLabel, or a number where a ClassLabel cannot have such names."""
    unique = list(dict.fromkeys(names))
    return {"names": unique, "_type": "ClassLabel"} if unique and unique == list(names) else _of_type("int64")


def _of_type(dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "_type": "Value"}
