"""MXNet's RecordIO: one file of records, and a list of their offsets, in the form that im2rec writes.

``data.rec``      samples
``data.idx``      a line ``KEY TAB OFFSET`` for each record; the keys are 0, 1, 2, ...
``classes.txt``   the class names, one on each line, if the classes have names

A record consists of parts, in most cases of one. A part is the magic number, a u32 with the kind of the part in the
upper three bits and its length in the others, the bytes, and zeros up to a multiple of 4. The bytes of a record are a
header, ``IfQQ``: 0, the label as float32, the key and 0; and then the image. A sample without a label has the label -1.

If the magic number occurs in the bytes of a record at a multiple of 4, the record is split into parts there, and this
magic number is left out. The image of such a sample is not a single range of the file, so packer's index has a copy of
it. The index also has the values of fields, because a record has no room for them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from packer._formats.contract import NOTHING, Contents, Frame
from packer._formats.foreign import MAX_SHARD_SIZE, ShardWriter, one_file
from packer._table import Buffer, Sample, Table
from packer.errors import DestinationError, printable

_MAGIC_NUMBER = 0xCED7230A
_MAGIC = struct.pack("<I", _MAGIC_NUMBER)
_HEADER = struct.Struct("<IfQQ")
_LONGEST = (1 << 29) - 1  # bytes of a part
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)


class RecordIOWriter(ShardWriter):
    """Writes records that MXNet reads.

    There are no options, because MXNet's tools open a single file with its list.
    """

    shard_name = "data.rec"
    index_name = "data.idx"

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        self._key = -1  # of the last frame
        super().__init__(path, {"shard_size": MAX_SHARD_SIZE}, written, contents)

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        one_file(".rec", options)

    def frame(self, sample: Sample) -> Frame:
        self._key += 1
        head = _HEADER.pack(0, self._label(sample), self._key, 0)
        frame = self.new_frame()
        size = len(head) + len(sample.data)
        if size > _LONGEST:
            raise DestinationError(f"{printable(sample.name)}: {len(sample.data)} bytes are too many for a record")
        parts = _split(head, sample.data)
        if not parts:
            frame.add(_MAGIC + _length(_WHOLE, size) + head)
            frame.add_image(sample.data)
            frame.add(bytes(-size % 4))
        else:
            for number, part in enumerate(parts):
                kind = _FIRST if not number else _LAST if number == len(parts) - 1 else _MIDDLE
                frame.add(_MAGIC + _length(kind, len(part)) + part + bytes(-len(part) % 4))
            frame.copy_image(sample.data)
        self.copy_blobs(frame, sample)
        return frame

    def index_line(self, frame: Frame, at: int) -> bytes:
        return b"%d\t%d\n" % (self._key, at)

    def _label(self, sample: Sample) -> float:
        """Return the label; DestinationError if it is a whole number that float32 cannot represent."""
        with np.errstate(over="ignore"):
            stored = float(np.float64(sample.label).astype(np.float32))
        if isinstance(sample.label, int) and stored != sample.label:
            raise DestinationError(
                f"{printable(sample.name)}: labels are float32 in a .rec, which cannot hold {sample.label}. Choose "
                "another format."
            )
        return stored


def _split(head: bytes, data: Buffer) -> list[bytes]:
    """Split a record at magic numbers at multiples of 4, and return its parts; empty if there are no such numbers."""
    found = [at for at in range(0, len(head), 4) if head[at : at + 4] == _MAGIC]
    words = np.frombuffer(data, "<u4", len(data) // 4)
    found += (len(head) + 4 * np.flatnonzero(words == _MAGIC_NUMBER)).tolist()
    if not found:
        return []
    record = head + bytes(data)
    return [record[begin:end] for begin, end in zip([0, *(at + 4 for at in found)], [*found, len(record)], strict=True)]


def _length(kind: int, size: int) -> bytes:
    return struct.pack("<I", kind << 29 | size)
