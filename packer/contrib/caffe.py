"""Caffe's LMDB (tools/convert_imageset.cpp) with a Datum in each value, and the LMDB of its fork SSD, with boxes.

The values are messages of src/caffe/proto/caffe.proto. packer parses these messages without reading the images. Caffe's
message is ``Datum { 1 channels, 2 height, 3 width, 4 data, 5 label, 6 float_data, 7 encoded }``. SSD's message is
``AnnotatedDatum { 1 datum, 2 type, 3 annotation_group { 1 group_label, 2 annotation { 1 instance_id, 2 bbox } } }``,
where a bbox is ``{ 1 xmin, 2 ymin, 3 xmax, 4 ymax, 5 label, 6 difficult, 7 score, 8 size }``, with positions as
fractions of the image.

The container reads keys such as ``00000012_folder/name.jpg``. An image is an encoded file, or raw pixels: plane after
plane, blue first. If a Datum has no label, the label is 0, as in Caffe.

The format writes the same files as convert_imageset:

``data.mdb``      only the samples, because NVIDIA's DALI reads every entry as a sample
``classes.txt``   the class names, one on each line, if there are any

A key is the number of the sample in eight digits, ``_``, and its name, cut to fit LMDB's limit of 511 bytes. A Datum
has the members that ``convert_imageset --encoded`` writes: the file's bytes, the label (an int32), and the flag for
encoded data. A sample without a label is written with the label -1, because Caffe reads a missing label as 0. A Datum
has no fields, so packer's index stores the values of fields.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from packer._containers.blocks import PIECE, RangeReader
from packer._containers.contract import IMAGE_HEAD, Entry, Piece, PixelLayout, image_name, no_keys, suffix_of
from packer._containers.listing import repeat
from packer._containers.lmdb import First, LMDBContainer, LMDBValue, failing, first_of, text_of
from packer._containers.protobuf import varint
from packer._fields import Field, Stored
from packer._formats.contract import NOTHING, Contents, Placed, not_of_journal
from packer._formats.foreign import (
    COPIED_FROM,
    MAX_SHARD_SIZE,
    ForeignWriter,
    ShardEntry,
    end_of,
    framing_checksum,
    one_file,
)
from packer._formats.lmdb import TreeWriter
from packer._images import jpeg, png
from packer._storage.files import Spool
from packer._storage.lmdb_tree import MOST_KEY, LMDBTree
from packer._storage.packfile import PackFile
from packer._storage.safe_open import name_problem
from packer._table import COLUMNS, Buffer, Sample, Table, encode_name
from packer.errors import DestinationError, option, printable

__all__ = ["Caffe", "CaffeBox", "CaffeWriter", "Datum", "annotated_of", "datum_of", "is_annotated"]

_MOST_BOXES = 1 << 16
_BEGINNING = 1 << 12  # in most images, this number of bytes includes height and width
_FARTHEST = 1e6  # largest coordinate of a corner, as a multiple of the image's side
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # protobuf's wire types
_NUMBERS = {1: "channels", 2: "height", 3: "width", 5: "label", 7: "encoded"}  # fields of a Datum that are varints


class CaffeBox(NamedTuple):
    """An object in an AnnotatedDatum: its group's label, instance number, corners, and whether it is difficult."""

    label: int
    instance: int
    corners: tuple[float, float, float, float]
    difficult: bool


@dataclass(slots=True)
class Datum:
    """The contents of a Datum: an image with its label, and the boxes of an AnnotatedDatum.

    Attributes
    ----------
    channels, height, width, label : int
        Members of the message; 0 if the message lacks the member.
    offset, size : int
        The byte range of the image's data in the file.
    encoded : int or None
        The flag for encoded data in the message; None if the message has no flag.
    suffix : str
        The suffix for the type of the image; empty if the data do not begin like an encoded image.
    labeled : bool
        Whether the message has a label.
    boxes : list of CaffeBox
    """

    channels: int = 0
    height: int = 0
    width: int = 0
    label: int = 0
    offset: int = 0
    size: int = -1
    encoded: int | None = None
    suffix: str = ""
    labeled: bool = False
    boxes: list[CaffeBox] = field(default_factory=list)

    @property
    def is_encoded(self) -> bool:
        """Whether the data are an encoded image.

        If the message has no flag, Caffe assumes pixels, and NVIDIA's DALI assumes an encoded image; packer decides by
        the data.
        """
        if self.encoded is not None:
            return self.encoded != 0
        return bool(self.suffix) and self.channels * self.height * self.width != self.size

    def require_pixels(self) -> None:
        """Raise ValueError if the size of the data does not fit the height, width and channels in the message."""
        if self.channels not in (1, 3) or self.height < 1 or self.width < 1:
            raise ValueError(
                f"{self.channels} channels of {self.width} x {self.height} pixels; packer reads 1 or 3 channels"
            )
        if self.size != self.channels * self.height * self.width:
            raise ValueError(
                f"{self.size} bytes are not {self.channels} channels of {self.width} x {self.height} pixels"
            )


def is_annotated(first: bytes) -> bool:
    """Tell by its first byte whether a message is SSD's.

    SSD's messages begin with the datum, Caffe's messages with the channels.
    """
    return first[:1] == b"\x0a"


def datum_of(file: PackFile, offset: int, size: int, head: bytes = b"") -> Datum:
    """Parse the Datum in a range of a file; ValueError if the range is not a Datum."""
    datum = Datum()
    for number, wire, value, length in _fields(RangeReader(file, offset, size, head)):
        if number == 4 and wire == _BYTES:
            datum.offset, datum.size = value, length
        elif number == 6:
            raise ValueError("its pixels are floats, which packer does not read")
        elif number in _NUMBERS and wire == _VARINT:
            setattr(datum, _NUMBERS[number], _int32(value))
            datum.labeled |= _NUMBERS[number] == "label"
        else:
            raise ValueError(f"field {number} does not exist in Caffe's Datum")
    if datum.size < 0:
        raise ValueError("the Datum has no data")
    inner, count = datum.offset - offset, min(IMAGE_HEAD, datum.size)
    known = inner + count <= len(head)
    datum.suffix = suffix_of(head[inner : inner + count] if known else file.read(datum.offset, count))
    return datum


def annotated_of(file: PackFile, offset: int, size: int, head: bytes = b"") -> Datum:
    """Parse an AnnotatedDatum; return its Datum with the boxes. Raises the same errors as `datum_of`."""
    datum, groups = None, []
    for number, wire, value, length in _fields(RangeReader(file, offset, size, head)):
        if number == 1 and wire == _BYTES:
            datum = datum_of(file, value, length)
        elif number == 3 and wire == _BYTES:
            groups.append((value, length))
        elif number != 2 or wire != _VARINT:
            raise ValueError(f"field {number} does not exist in SSD's AnnotatedDatum")
    if datum is None:
        raise ValueError("the AnnotatedDatum has no Datum")
    for group in groups:
        datum.boxes += _boxes(file, *group)
        if len(datum.boxes) > _MOST_BOXES:
            raise ValueError(f"more than {_MOST_BOXES} boxes")
    return datum


def _boxes(file: PackFile, offset: int, size: int) -> Iterator[CaffeBox]:
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


def _box(window: RangeReader, label: int, instance: int) -> CaffeBox:
    corners, difficult = [0.0] * 4, False
    for number, wire, value, _ in _fields(window):
        if number in (1, 2, 3, 4) and wire == _FOUR:
            (corners[number - 1],) = struct.unpack("<f", value.to_bytes(4, "little"))
        elif number == 6 and wire == _VARINT:
            difficult = bool(value)
    if not all(abs(corner) <= _FARTHEST for corner in corners):  # False for NaN too
        raise ValueError(f"a box has the corners {corners}, which should be fractions of the image")
    return CaffeBox(label, instance, (corners[0], corners[1], corners[2], corners[3]), difficult)


def _fields(window: RangeReader) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type, value and length of each field; the value of bytes is their offset in the file."""
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
            raise ValueError(f"not a Protocol Buffers message: wire type {wire}")
        yield number, wire, value, length


def _int32(value: int) -> int:
    """Convert a varint to the int32 that it encodes; negative numbers are varints of 64 bits."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


_NUMBERED = re.compile(rb"[0-9]{8,}_(.+)", re.DOTALL)
_BOXES = Field("boxes", "boxes")
_CATEGORY = Field("category", "labels")
_INSTANCE = Field("instance", "array", "int64", 1)
_DIFFICULT = Field("difficult", "array", "uint8", 1)


class Caffe(LMDBContainer):
    """Samples in the order of their keys. Names are the paths in the keys, or the whole keys if two paths are equal."""

    kind = "caffe lmdb"
    annotated = False
    unlabeled = False
    whole_keys = False

    @classmethod
    def is_of(cls, first: First) -> bool:
        return _read(first.values[0], first.values[0].head(PIECE)).size >= 0

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> Caffe:
        no_keys(cls.kind, keys)
        with failing(paths[0]), first_of(paths[0]) as first:
            head = first.values[0].head(PIECE)
            annotated, datum = is_annotated(head), _read(first.values[0], head)
        fields = (_BOXES, _CATEGORY, _INSTANCE, _DIFFICULT) if annotated else ()
        pixels = None if datum.is_encoded else PixelLayout("CHW", "BGR" if datum.channels == 3 else "L")
        container = cls.of_files(paths, fields=fields, pixels=pixels)
        container.annotated = annotated
        return container

    def ordered(self, unit: int, file: PackFile, tree: LMDBTree) -> Iterator[LMDBValue]:
        raw = self.pixels is not None  # names of raw images lose their suffixes
        paths = (_path_of(key) for key, _, _ in tree.walk())
        self.whole_keys = repeat(os.path.splitext(path)[0] if raw else path for path in paths)
        if self.whole_keys:
            self.notes.append("several keys have the same path, so names are the whole keys")
        return super().ordered(unit, file, tree)

    def entry(self, value: LMDBValue) -> Entry:
        head = value.head(PIECE)
        if is_annotated(head) != self.annotated:
            raise ValueError("the file contains both SSD's AnnotatedDatum and Caffe's Datum")
        datum = _read(value, head)
        raw, shape = self.pixels is not None, None
        if datum.is_encoded == raw:
            raise ValueError(
                "the file contains both raw pixels and encoded images, which packer does not read. Write it again "
                "with only encoded images (convert_imageset --encoded)"
            )
        if self.pixels is not None:
            datum.require_pixels()
            if datum.channels != len(self.pixels.channels):
                raise ValueError("the file contains images of 1 and of 3 channels, which packer does not read")
            shape = datum.height, datum.width
        if not datum.labeled and not self.annotated and not self.unlabeled:
            self.unlabeled = True
            self.notes.append("a Datum without a label gets the label 0, as in Caffe")
        label = None if self.annotated and not datum.labeled else datum.label
        values = _objects(value, datum) if self.annotated else {}
        return Entry(self._name(value.key, datum), Piece(value.unit, datum.offset, datum.size), label, values, shape)

    def _name(self, key: bytes, datum: Datum) -> str:
        name = text_of(key) if self.whole_keys else _path_of(key)
        if self.pixels is None:
            return image_name(name, datum.suffix)
        return (name if self.whole_keys else os.path.splitext(name)[0]) + ".png"


def _read(value: LMDBValue, head: bytes) -> Datum:
    read = annotated_of if is_annotated(head) else datum_of
    return read(value.file, value.offset, value.size, head)


def _path_of(key: bytes) -> str:
    """Return the path in a key; the whole key if the path is not a valid name, for example because it is absolute."""
    match = _NUMBERED.fullmatch(key)
    path = text_of(match[1]) if match else ""
    return text_of(key) if name_problem(path) else path


def _objects(value: LMDBValue, datum: Datum) -> dict[str, Stored]:
    """Return the values of the fields of boxes: corners in pixels, categories, instance numbers and difficulty."""
    boxes = datum.boxes
    if not boxes:
        height = width = 0
    elif datum.is_encoded:
        height, width = _size_of(value.file, datum)
    else:
        height, width = datum.height, datum.width
    corners = [[x0 * width, y0 * height, x1 * width, y1 * height] for _, _, (x0, y0, x1, y1), _ in boxes]
    return {
        "boxes": _BOXES.encode(corners),
        "category": _CATEGORY.encode([box.label for box in boxes]),
        "instance": _INSTANCE.encode(np.array([box.instance for box in boxes], np.int64)),
        "difficult": _DIFFICULT.encode(np.array([box.difficult for box in boxes], np.uint8)),
    }


def _size_of(file: PackFile, datum: Datum) -> tuple[int, int]:
    """Return the stored height and width of an encoded image; ValueError if it is neither a JPEG nor a PNG."""
    for most in (_BEGINNING, datum.size):  # a JPEG with long metadata is read completely
        data = file.read(datum.offset, min(most, datum.size))
        if (size := png.size_of(data) or jpeg.size_of(data)) is not None:
            return size
    raise ValueError("its boxes are fractions of its size, and packer knows the size only of JPEGs and PNGs")


_DATA = "data.mdb"
_RANGE = struct.Struct("<qq")
_MOST_SAMPLES = 10**8  # because the number of a sample has eight digits
_MOST_BYTES = 1 << 31  # the largest size of a protocol buffer
_DATA_TAG, _LABEL_TAG, _IS_ENCODED = b"\x22", b"\x28", b"\x38\x01"


class CaffeWriter(ForeignWriter):
    """Writes an LMDB file that Caffe reads.

    No options: Caffe opens one file.
    """

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        self.check_options(options)
        if contents.codec == "raw":
            raise DestinationError(
                f"Caffe stores the planes of pixels one after the other, unlike packer. Pass {option('codec', 'png')}"
            )
        if contents.label_type == "float":
            raise DestinationError("labels are int32 in Caffe, but these are floats. Choose another format.")
        super().__init__(path, MAX_SHARD_SIZE, written, contents)
        self._tree, self._count = TreeWriter(path.parent), 0
        self._images = Spool(path.parent)  # the byte range of each image
        self._complete: list[ShardEntry] | None = None
        self._resume(written)
        self._open_copies({_DATA})

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        one_file(".caffe", options)

    @classmethod
    def check_table(cls, rows: int, names: int, types: Mapping[str, str] = COLUMNS) -> None:
        if rows > _MOST_SAMPLES:
            raise DestinationError(f"{rows:,} samples are too many for Caffe, whose keys have eight digits")

    def append(self, sample: Sample) -> Placed:
        name = encode_name(sample.name)
        offset = self._put(name, sample.label, len(sample.data), sample.data)
        self._names += len(name)
        return Placed(offset, tuple(self._copy(sample)))

    def flush(self) -> None:
        super().flush()
        self._tree.flush()

    def sync(self) -> None:
        self._tree.sync()
        super().sync()

    def complete(self) -> list[ShardEntry]:
        if self._complete is None:
            size, images = self._tree.finish(), self._images.array("<i8").reshape(-1, 2)
            images = images[np.argsort(images[:, 0], kind="stable")]  # a leaf page of LMDB is filled from its end
            with PackFile(self._path, _DATA) as file:
                framing = framing_checksum(file, [(begin, end) for begin, end in images.tolist()])
            self._complete = [ShardEntry(_DATA, size, framing, self._count)]
        return self._complete

    def close(self) -> None:
        super().close()
        self._tree.close()
        self._images.close()

    def _put(self, name: bytes, label: int | float, size: int, data: Buffer | None = None) -> int:
        """Reserve space for an image, and write the image if `data` is passed; return its offset."""
        if not -(1 << 31) <= label < 1 << 31:
            raise DestinationError(
                f"{_shown(name)}: labels are int32 in Caffe, which cannot hold {label}. Choose another format."
            )
        before = _DATA_TAG + varint(size)
        after = _LABEL_TAG + varint(int(label)) + _IS_ENCODED
        whole = len(before) + size + len(after)
        if whole >= _MOST_BYTES:
            raise DestinationError(f"{_shown(name)}: {size} bytes are too many for a Datum")
        key = (b"%08d_" % self._count + name)[:MOST_KEY]
        offset = self._tree.put(key, whole, () if data is None else (before, data, after)) + len(before)
        self._images.append(_RANGE.pack(offset, offset + size))
        self._count += 1
        return offset

    def _copy(self, sample: Sample) -> list[int]:
        """Copy the blobs of a sample into packer's index; return the offset of each copy."""
        offsets = [0] * len(self._blob_fields)
        for one, stored in zip(self._contents.fields, sample.fields, strict=True):
            if stored is not None and not isinstance(stored, (int, float)):
                offsets[self._blob_fields[one.name]] = COPIED_FROM + self._copied
                self._copies.append(stored)
                self._copied += len(stored)
        return offsets

    def _resume(self, written: Table) -> None:
        """Reserve the space of an earlier run's samples at their offsets, and find the end of the copied blobs."""
        for index, name in enumerate(written.sample_names()):
            row = written.row(index)
            if self._put(encode_name(name), row.label, row.size) != row.offset:
                raise not_of_journal(self._path)
        self._copied = end_of(written, len(written), COPIED_FROM) - COPIED_FROM
        self._tree.open(self._path / _DATA, cached=self._contents.cached)


def _shown(name: bytes) -> str:
    return printable(name.decode("utf-8", "surrogateescape"))
