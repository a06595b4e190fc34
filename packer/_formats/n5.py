"""N5: a group of arrays, which z5py, TensorStore and N5's own tools read.

``attributes.json``    of the group: the version of N5, and ``classes``, the names of the classes where there are some
``data``               (uint8) the images one after the other
``offsets``, ``sizes`` (uint64) where in ``data`` each image begins, and its bytes
``labels``             (int64; float64 of labels that are floats) -1 of a sample without a label
``names``              (uint8) the names of the samples one after the other, without anything between them
``name_ends``          (uint64) where in ``names`` each name ends
``heights``, ``widths``  (int32) pixels; with the codec ``raw`` alone, whose pixels nobody understands without

All arrays have one dimension and are not compressed. A block is a file: a header of 8 bytes, and the elements,
big-endian. The blocks of ``data`` are the shards, and no image crosses them: where the next one does not fit, zeros
fill the block. The last block of an array ends with the array. See `packer._containers.arrays.n5arrays`.

The other arrays are known when all samples are, so they are written at the end. N5 has no place for fields: packer's
index has their numbers, and a copy of what else they are.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from packer._formats.contract import NOTHING, Contents, Placed
from packer._formats.frame import Frame
from packer._formats.shards import ShardWriter
from packer._storage.spool import Spool
from packer._table import Ints, Sample, Table, blocks, encode_name
from packer.errors import DestinationError, printable

__all__ = ["N5Writer"]

_HEADER = struct.Struct(">HHI")  # mode 0, one dimension, and how many elements
_LARGEST = (1 << 31) - 1  # bytes of a block
_USUAL = 64 << 20
_ELEMENTS = 1 << 20  # of a block of the other arrays
_CODES = {">u8": ">Q", ">i8": ">q", ">f8": ">d", ">i4": ">i"}
_VERSION = "2.0.0"  # the first one that writes its attributes as these are; newer tools read it too

_Offset = TypeVar("_Offset", int, Ints)


class _Column(NamedTuple):
    """An array beside ``data``, as far as it is known."""

    dtype: str
    elements: Spool

    def add(self, value: int | float) -> None:
        self.elements.append(struct.pack(_CODES[self.dtype], value))

    def extend(self, values: npt.NDArray[Any]) -> None:
        for block in blocks(values):
            self.elements.append(block.astype(self.dtype).tobytes())


class N5Writer(ShardWriter):
    """Writes a group of arrays.

    Options: ``shard_size``, the bytes of a block of ``data``; a larger image is refused.
    """

    shard_name = "data/{}"
    head_size = _HEADER.size
    shard_sizes = _USUAL, _LARGEST

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        super().__init__(path, options, written, contents)
        types = {
            "offsets": ">u8",
            "sizes": ">u8",
            "labels": ">f8" if contents.label_type == "float" else ">i8",
            "name_ends": ">u8",
            "names": "|u1",
        }
        if contents.codec == "raw":
            types |= {"heights": ">i4", "widths": ">i4"}
        self._columns = {name: _Column(dtype, Spool(path.parent)) for name, dtype in types.items()}
        self._end = 0  # of the last name
        if len(written):
            self._continue(written)

    def frame(self, sample: Sample) -> Frame:
        if len(sample.data) > self._shard_size:
            raise DestinationError(
                f"{printable(sample.name)}: {len(sample.data):,} bytes do not fit into a block of "
                f"{self._shard_size:,}. Start again with --fresh and a larger --shard-size, at most {_LARGEST}."
            )
        frame = Frame(len(self._blob_fields))
        frame.add_image(sample.data)
        for one, stored in zip(self._contents.fields, sample.fields, strict=True):
            if stored is not None and not isinstance(stored, (int, float)):
                frame.copy_blob(self._blob_fields[one.name], stored)
        return frame

    def append(self, sample: Sample) -> Placed:
        placed, name = super().append(sample), encode_name(sample.name)
        self._end += len(name)
        columns = self._columns
        columns["offsets"].add(self._in_data(placed.offset))
        columns["sizes"].add(len(sample.data))
        columns["labels"].add(sample.label)
        columns["names"].elements.append(name)
        columns["name_ends"].add(self._end)
        if "heights" in columns:
            columns["heights"].add(sample.height)
            columns["widths"].add(sample.width)
        return placed

    def trailer(self, size: int, *, last: bool) -> bytes:
        return b"" if last else bytes(_HEADER.size + self._shard_size - size)

    def head(self, lines: bytes, size: int) -> bytes:
        return _HEADER.pack(0, 1, size - _HEADER.size)

    def beside(self) -> Iterator[tuple[str, bytes]]:
        classes = {"classes": list(self._contents.classes)} if self._contents.classes else {}
        yield "attributes.json", _json({"n5": _VERSION, **classes})
        size = self._start - len(self._shards) * _HEADER.size
        yield "data/attributes.json", _attributes(size, self._shard_size, "|u1")
        for name, column in self._columns.items():
            elements = column.elements.array(column.dtype)
            yield f"{name}/attributes.json", _attributes(len(elements), _ELEMENTS, column.dtype)
            for number, start in enumerate(range(0, len(elements), _ELEMENTS)):
                block = elements[start : start + _ELEMENTS]
                yield f"{name}/{number}", _HEADER.pack(0, 1, len(block)) + block.tobytes()

    def close(self) -> None:
        super().close()
        for column in self._columns.values():
            column.elements.close()

    def _continue(self, written: Table) -> None:
        """Take up the rows that an earlier run left behind."""
        self._end = int(written.name_end[-1])
        rows = {
            "offsets": written.offset,
            "sizes": written.size,
            "labels": written.label,
            "names": written.names[: self._end],
            "name_ends": written.name_end,
            "heights": written.height,
            "widths": written.width,
        }
        for name, column in self._columns.items():
            if name != "offsets":
                column.extend(rows[name])
        for block in blocks(written.offset):
            self._columns["offsets"].extend(self._in_data(block))

    def _in_data(self, offset: _Offset) -> _Offset:
        """Return where in ``data`` lies what lies so far in the files of its blocks, each of which has a header."""
        return offset - (offset // (_HEADER.size + self._shard_size) + 1) * _HEADER.size


def _attributes(size: int, block: int, dtype: str) -> bytes:
    """Return the attributes of an array."""
    kind = np.dtype(dtype).name
    return _json({"dimensions": [size], "blockSize": [block], "dataType": kind, "compression": {"type": "raw"}})


def _json(members: Mapping[str, Any]) -> bytes:
    return json.dumps(members).encode("ascii")
