"""TFRecord: files of records, each a ``tf.train.Example`` with the keys of ImageNet.

``data-00000.tfrecord``   samples
``data-00000.idx``        an index of the file, as ``tfrecord2idx`` makes it: a line ``OFFSET SIZE`` for each record
``classes.txt``           the class names, one on each line, if the classes have names

No file name ends in ``-of-00128``, because the number of files is not known before the last file is written. A complete
file is never renamed, so that a conversion can be resumed at any moment.

A record is its length as u64, the masked CRC-32C of those eight bytes, the Example, and its masked CRC-32C. The Example
has the features ``image/class/label`` (the class id, as in the pack), ``image/class/text`` (the class name),
``image/encoded``, ``image/filename`` (the sample's name), ``image/format``, ``image/height`` and ``image/width``, and
one for each field, under its name, in alphabetical order. A missing value has no feature.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import google_crc32c
import numpy as np

from packer._containers.contract import suffix_of
from packer._containers.protobuf import varint
from packer._containers.tfrecord import masked, masked_crc32c
from packer._fields import Field, Stored
from packer._formats.contract import IMAGE, Frame
from packer._formats.foreign import ShardWriter
from packer._table import Buffer, Sample, encode_name
from packer.errors import DestinationError, printable

_BYTES, _FLOATS, _INTS = b"\x0a", b"\x12", b"\x1a"  # the tags of the lists in a Feature
_FORMATS = {".jpg": b"JPEG", ".png": b"PNG", ".webp": b"WEBP", ".bmp": b"BMP", ".gif": b"GIF", ".tif": b"TIFF"}
_MOST = 1 << 31  # bytes of a protocol buffer at most

_Feature = tuple[str, bytes, Buffer, int | None]
"""The name, the tag of the list, the value's bytes, and the slot: a blob's number, `IMAGE` for the image, or None."""


class TFRecordWriter(ShardWriter):
    """Writes records that TensorFlow reads."""

    shard_name = "data-{:05d}.tfrecord"
    index_name = "data-{:05d}.idx"

    def frame(self, sample: Sample) -> Frame:
        listed = sorted(self._features(sample), key=lambda feature: feature[0])
        features = [(_around(name, tag, len(data)), data, slot) for name, tag, data, slot in listed]
        size = sum(len(head) + len(data) for head, data, _ in features)
        example = b"\x0a" + varint(size)
        if len(example) + size >= _MOST:
            raise DestinationError(f"{printable(sample.name)}: {size} bytes are too many for a tf.train.Example")
        length = struct.pack("<Q", len(example) + size)
        frame = self.new_frame()
        frame.add(length + struct.pack("<I", masked_crc32c(length)) + example)
        checksum = google_crc32c.value(example)
        for head, data, slot in features:
            frame.add(head)
            frame.add_value(data, slot)
            checksum = _extended(google_crc32c.extend(checksum, head), data)
        frame.add(struct.pack("<I", masked(checksum)))
        return frame

    def index_line(self, frame: Frame, at: int) -> bytes:
        return b"%d %d\n" % (at, frame.size)

    def _features(self, sample: Sample) -> Iterator[_Feature]:
        contents, label = self._contents, sample.label
        if isinstance(label, float):
            yield "image/class/label", _FLOATS, _float32(label), None
        elif contents.label_type == "int" or label >= 0:
            yield "image/class/label", _INTS, varint(label), None
            if contents.label_type == "class" and label < len(contents.classes):
                yield "image/class/text", _BYTES, encode_name(contents.classes[label]), None
        yield "image/encoded", _BYTES, sample.data, IMAGE
        yield "image/filename", _BYTES, encode_name(sample.name), None
        kind = b"RAW" if contents.codec == "raw" else _FORMATS.get(suffix_of(bytes(sample.data[:16])))
        if kind is not None:
            yield "image/format", _BYTES, kind, None
        yield "image/height", _INTS, varint(sample.height), None
        yield "image/width", _INTS, varint(sample.width), None
        for one, stored in zip(contents.fields, sample.fields, strict=True):
            if stored is not None:
                yield self._feature(one, stored)

    def _feature(self, one: Field, stored: Stored) -> _Feature:
        if isinstance(stored, float):
            return one.name, _FLOATS, _float32(stored), None
        if isinstance(stored, int):
            return one.name, _INTS, varint(stored), None
        assert stored is not None
        return one.name, _BYTES, stored, self._blob_fields[one.name]


def _around(name: str, tag: bytes, size: int) -> bytes:
    """Return the bytes before a value: the entry of the map, its key, the Feature, the list, and the value's length.

    Numbers are packed, so that they are one run of bytes in their list, like a text.
    """
    key = name.encode("ascii")
    value = b"\x0a" + varint(size)
    listed = tag + varint(len(value) + size) + value
    feature = b"\x12" + varint(len(listed) + size) + listed
    entry = b"\x0a" + varint(len(key)) + key + feature
    return b"\x0a" + varint(len(entry) + size) + entry


def _float32(number: float) -> bytes:
    """Return a number as a FloatList stores it; it becomes infinite if it exceeds the range of 32 bits."""
    with np.errstate(over="ignore"):
        return bytes(np.array([number]).astype("<f4"))


def _extended(checksum: int, data: Buffer) -> int:
    """Continue a CRC-32C over more bytes, and return it."""
    if isinstance(data, bytes):
        return int(google_crc32c.extend(checksum, data))
    view = np.frombuffer(data, np.uint8)  # the extension takes bytes, or a read-only array
    view.flags.writeable = False
    return int(google_crc32c.extend(checksum, view))
