"""Messages of Caffe (src/caffe/proto/caffe.proto) and of its fork SSD, found in place: nothing is read of the images.

``Datum { 1 channels, 2 height, 3 width, 4 data, 5 label, 6 float_data, 7 encoded }``, and of SSD
``AnnotatedDatum { 1 datum, 2 type, 3 annotation_group { 1 group_label, 2 annotation { 1 instance_id, 2 bbox } } }``,
where a bbox is ``{ 1 xmin, 2 ymin, 3 xmax, 4 ymax, 5 label, 6 difficult, 7 score, 8 size }``, fractions of the image.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from packer._containers.imagenames import suffix_of
from packer._containers.lmdbs.rangereader import RangeReader
from packer._storage.packfile import PackFile

__all__ = ["Box", "Datum", "annotated_of", "datum_of", "is_annotated"]

_HEAD = 16
_MOST_BOXES = 1 << 16
_FARTHEST = 1e6  # of a corner, in images
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # wire types


class Box(NamedTuple):
    """An object of SSD's: the group's label, which instance of it, the corners, and whether it is difficult."""

    label: int
    instance: int
    corners: tuple[float, float, float, float]
    difficult: bool


@dataclass(slots=True)
class Datum:
    """One image of Caffe's.

    Attributes
    ----------
    channels, height, width, label : int
        0 where the message has none.
    offset, size : int
        Where in the file the data lie.
    encoded : bool or None
        What the message says; None where it says nothing.
    suffix : str
        That of the image which the data are; empty where they begin as none.
    labeled : bool
        Whether the message has a label.
    boxes : list of Box
    """

    channels: int = 0
    height: int = 0
    width: int = 0
    label: int = 0
    offset: int = 0
    size: int = -1
    encoded: bool | None = None
    suffix: str = ""
    labeled: bool = False
    boxes: list[Box] = field(default_factory=list)

    @property
    def is_encoded(self) -> bool:
        """Whether the data are an encoded image: by what the message says, else by what the data are.

        Caffe takes a message that says nothing for pixels, and NVIDIA DALI takes it for an encoded image.
        """
        if self.encoded is not None:
            return self.encoded
        return bool(self.suffix) and self.channels * self.height * self.width != self.size

    def require_pixels(self) -> None:
        """Raise ValueError where the data are not as many pixels as the message says."""
        if self.channels not in (1, 3) or self.height < 1 or self.width < 1:
            raise ValueError(
                f"{self.channels} channels of {self.width} x {self.height} pixels, where packer reads 1 or 3 channels"
            )
        if self.size != self.channels * self.height * self.width:
            raise ValueError(
                f"{self.size} bytes are not {self.channels} channels of {self.width} x {self.height} pixels"
            )


def is_annotated(first: bytes) -> bool:
    """Tell whether a message is SSD's, by its first byte: the datum comes first, and its channels in Caffe's."""
    return first[:1] == b"\x0a"


def datum_of(file: PackFile, offset: int, size: int, head: bytes = b"") -> Datum:
    """Return the Datum in a range of a file, whose first bytes may be known; ValueError where there is none."""
    datum = Datum()
    for number, wire, value, length in _fields(RangeReader(file, offset, size, head)):
        if number == 4 and wire == _BYTES:
            datum.offset, datum.size = value, length
        elif number == 6:
            raise ValueError("its pixels are floats, which packer does not read")
        elif number in (1, 2, 3, 5, 7) and wire == _VARINT:
            if number == 1:
                datum.channels = _int32(value)
            elif number == 2:
                datum.height = _int32(value)
            elif number == 3:
                datum.width = _int32(value)
            elif number == 5:
                datum.label, datum.labeled = _int32(value), True
            else:
                datum.encoded = bool(value)
        else:
            raise ValueError(f"field {number} is none of Caffe's Datum")
    if datum.size < 0:
        raise ValueError("a Datum without data")
    inner, count = datum.offset - offset, min(_HEAD, datum.size)
    known = inner + count <= len(head)
    datum.suffix = suffix_of(head[inner : inner + count] if known else file.read(datum.offset, count))
    return datum


def annotated_of(file: PackFile, offset: int, size: int, head: bytes = b"") -> Datum:
    """Return the Datum in an AnnotatedDatum, with its boxes; as `datum_of`."""
    datum, groups = None, []
    for number, wire, value, length in _fields(RangeReader(file, offset, size, head)):
        if number == 1 and wire == _BYTES:
            datum = datum_of(file, value, length)
        elif number == 3 and wire == _BYTES:
            groups.append((value, length))
        elif number != 2 or wire != _VARINT:
            raise ValueError(f"field {number} is none of SSD's AnnotatedDatum")
    if datum is None:
        raise ValueError("an AnnotatedDatum without a Datum")
    for group in groups:
        datum.boxes += _boxes(file, *group)
        if len(datum.boxes) > _MOST_BOXES:
            raise ValueError(f"more than {_MOST_BOXES} boxes")
    return datum


def _boxes(file: PackFile, offset: int, size: int) -> Iterator[Box]:
    label, annotations = 0, []
    for number, wire, value, length in _fields(RangeReader(file, offset, size)):
        if number == 1 and wire == _VARINT:
            label = _int32(value)
        elif number == 2 and wire == _BYTES:
            annotations.append((value, length))
    for annotation in annotations:
        instance, box = 0, None
        for number, wire, value, length in _fields(RangeReader(file, *annotation)):
            if number == 1 and wire == _VARINT:
                instance = _int32(value)
            elif number == 2 and wire == _BYTES:
                box = value, length
        if box is not None:
            yield _box(RangeReader(file, *box), label, instance)


def _box(window: RangeReader, label: int, instance: int) -> Box:
    corners, difficult = [0.0] * 4, False
    for number, wire, value, _ in _fields(window):
        if number in (1, 2, 3, 4) and wire == _FOUR:
            (corners[number - 1],) = struct.unpack("<f", value.to_bytes(4, "little"))
        elif number == 6 and wire == _VARINT:
            difficult = bool(value)
    if not all(abs(corner) <= _FARTHEST for corner in corners):  # NaN is not, either
        raise ValueError(f"a box with the corners {corners}, which are fractions of the image")
    return Box(label, instance, (corners[0], corners[1], corners[2], corners[3]), difficult)


def _fields(window: RangeReader) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type, value and length of each field; the value of bytes is where in the file they begin."""
    while window.left:
        tag = window.varint()
        number, wire, length = tag >> 3, tag & 7, 0
        if wire == _VARINT:
            value = window.varint()
        elif wire == _BYTES:
            length, value = window.varint(), window.tell()
            window.skip(length)
        elif wire in (_FOUR, _EIGHT):
            value = int.from_bytes(window.take(4 if wire == _FOUR else 8), "little")
        else:
            raise ValueError(f"no message of a protocol buffer: wire type {wire}")
        yield number, wire, value, length


def _int32(value: int) -> int:
    """Return the int32 of a varint: negative ones have ten bytes."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)
