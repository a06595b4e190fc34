"""TFRecord (https://www.tensorflow.org/tutorials/load_data/tfrecord): files of records, which usually are Examples.

A record consists of the size of its data (8 bytes, little-endian), the checksum of these 8 bytes, the data, and the
checksum of the data. A checksum is a CRC-32C, rotated by 15 bits, plus a constant. This module verifies the checksum of
each size. The checksum of the data is verified when the image is read. Index files of other tools list only the offsets
of records, which this module finds anyway, so these files are not used.

The first samples determine the types of all features. If a feature has exactly one value in each of these samples, it
becomes a single value: a scalar, a text, an image or bytes. If its lists have other lengths, or if its key is known to
describe the objects in an image, it becomes an array or a list of texts. packer knows the keys of ImageNet's TFRecords,
of TensorFlow Datasets, of TensorFlow's Object Detection API and of img2dataset.
"""

from __future__ import annotations

import math
import os
import re
import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import google_crc32c

from packer._codecs import UNLABELED
from packer._containers.blocks import BlockReader, errors_in, text_in
from packer._containers.contract import (
    Chosen,
    Container,
    Entry,
    Named,
    Piece,
    Seal,
    field_name,
    files_in,
    head_of,
    is_image_name,
    suffix_at,
)
from packer._containers.protobuf import (
    BYTES,
    FLOATS,
    INTS,
    NOTHING,
    MessageError,
    SeveralError,
    byte_strings,
    feature_lists,
    floats,
    ints,
    one_bytes,
    one_float,
    one_int,
)
from packer._containers.roles import NAMES, one_hot
from packer._fields import KINDS, MOST_FIELDS, OF_SCALARS, Field, Stored
from packer._storage.packfile import PackFile
from packer._storage.safe_open import name_problem
from packer._table import Buffer
from packer.errors import SourceError, printable

Read = Callable[[BlockReader, int, int], Any]

TYPES = {NOTHING: "nothing", BYTES: "byte strings", FLOATS: "floats", INTS: "ints"}
_OF_OBJECTS = re.compile(r"(^|/)(objects?|bbox)/")
_SHORT = 256  # bytes of a text that may be a label
_LONGEST_ONE_HOT = 1 << 16  # numbers
_TEXT = 1 << 16  # bytes of a text that are checked
_HELD = 64  # byte strings of one list that are checked
_MOST_KEYS = 1 << 12
_TEXTS = 1 << 24  # bytes of a list of texts


@dataclass
class FeatureValues:
    """The properties of one feature, found in the first samples.

    Attributes
    ----------
    type : int
    several : bool
        True if lists may have any length: the length of some list was not 1, or the key describes objects.
    text, image : bool
        Whether all byte strings were UTF-8, and whether all were images.
    ids : bool
        Whether all ints were nonnegative.
    most : int
        The largest number of values in a list.
    one_hot : bool
        Whether each list was one-hot: a single 1 and otherwise 0.
    values : list
        The first numbers and short texts, from lists with a single value.
    """

    type: int = NOTHING
    several: bool = False
    text: bool = True
    image: bool = True
    ids: bool = True
    most: int = 0
    one_hot: bool = True
    values: list[int | float | str] = field(default_factory=list)

    @property
    def is_label(self) -> bool:
        """Whether each list had a single value that may be a label, or was one-hot."""
        if self.type == BYTES:
            return self.most == 1 and self.text
        return self.type != NOTHING and (self.most == 1 or (self.most > 1 and self.one_hot))

    @property
    def are_ids(self) -> bool:
        """Whether all floats were whole numbers, as class ids are."""
        return all(
            not isinstance(value, str) and value >= UNLABELED and float(value).is_integer() for value in self.values
        )

    def add(self, window: BlockReader, type_: int, begin: int, end: int) -> None:
        """Inspect the list in a range of a file, and update this summary."""
        self.type = self.type or type_
        if type_ == NOTHING:
            return
        alone: list[int | float | str] = []
        if type_ == BYTES:
            strings = byte_strings(window, begin, end)
            count = len(strings)
            if count == 1 and strings[0][1] <= _SHORT:
                alone = [window.read(*strings[0]).decode(errors="replace")]
            for offset, size in strings[:_HELD]:
                is_image = bool(suffix_at(window.read, offset, size))
                self.image = self.image and is_image
                self.text = self.text and not is_image and _is_text(window.read(offset, min(size, _TEXT)), size)
        elif type_ == INTS:
            numbers = ints(window, begin, end)
            count, alone = len(numbers), list(numbers[:1])
            self.ids = self.ids and min(numbers, default=0) >= 0
            self.one_hot = self.one_hot and (not numbers or one_hot(numbers) is not None)
        else:
            data = floats(window, begin, end)
            count, alone = len(data) // 4, list(struct.unpack_from("<f", data)) if data else []
            parts = struct.unpack(f"<{count}f", data) if count <= _LONGEST_ONE_HOT else ()
            self.one_hot = self.one_hot and (not count or one_hot(parts) is not None)
        self.several = self.several or count != 1
        self.most = max(self.most, count)
        self.values += alone if count == 1 else []


class ManyFeaturesError(MessageError):
    """Records have more different features than packer reads."""


def add_features(seen: dict[str, FeatureValues], window: BlockReader, begin: int, end: int) -> None:
    """Add the features of the Example in a range of a file to `seen`.

    Raises
    ------
    MessageError
        If the range is not an Example, or a feature has another type than before.
    ManyFeaturesError
        If this Example and those before have more than `_MOST_KEYS` different features.
    """
    features, keys = list[tuple[str, int, int, int]](), set(seen)
    for encoded, type_, start, stop in feature_lists(window, begin, end):
        key = text_of(encoded, start)
        features.append((key, type_, start, stop))
        keys.add(key)
        if len(keys) > _MOST_KEYS:  # a damaged or hostile record may have millions
            raise ManyFeaturesError(f"the first records have more than {_MOST_KEYS:,} different features")
    for key, type_, _, _ in features:
        known = seen[key].type if key in seen else NOTHING
        if NOTHING not in (type_, known) and type_ != known:
            raise MessageError(f"feature {key!r} has {TYPES[type_]} here, but {TYPES[known]} in earlier records")
    for key, type_, start, stop in features:
        feature = seen.setdefault(key, FeatureValues(several=is_of_objects(key)))
        feature.add(window, type_, start, stop)


def is_of_objects(key: str) -> bool:
    """Tell whether a key names a feature of the objects in an image."""
    return _OF_OBJECTS.search(key) is not None


def text_of(key: bytes, at: int) -> str:
    """Decode a key as text; MessageError if the key is not UTF-8."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise MessageError(f"the key of a feature is not valid UTF-8, at byte {at}") from None


def _is_text(head: bytes, size: int) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return size > len(head) and error.start > len(head) - 4
    return b"\0" not in head


@dataclass(frozen=True)
class FeatureColumn:
    """Describes how to read the value of one feature.

    Attributes
    ----------
    slot : str
        ``image``, ``label``, ``name``, or the name of a field.
    type : int
        The type of the feature.
    read : callable
        Takes the window and the list's range in the file. Returns the value; if the value is bytes, returns their
        offset and size instead.
    """

    slot: str
    type: int
    read: Read

    @classmethod
    def label(cls, seen: FeatureValues) -> FeatureColumn:
        """Return a column that reads labels: ints, floats, class names, or the index of the 1 in a one-hot list."""
        if seen.most > 1 and seen.type != BYTES:
            return cls("label", seen.type, _index_in_ints if seen.type == INTS else _index_in_floats)
        return cls("label", seen.type, {BYTES: _string, FLOATS: _float, INTS: one_int}[seen.type])

    @classmethod
    def field(cls, field: Field, seen: FeatureValues) -> FeatureColumn:
        """Return a column that reads the values of a field.

        Raise ValueError if the feature's values do not fit the field's kind.
        """
        readers = _READERS[seen.type] | (_OF_SEVERAL if seen.type == BYTES and seen.several else {})
        if field.kind not in readers:
            raise ValueError(f"it has {TYPES[seen.type]}, from which no {field.kind} can be made")
        return cls(field.name, seen.type, readers[field.kind])


def field_of(
    key: str, seen: FeatureValues, taken: set[str], chosen: tuple[str, str] = ("", ""), classes: Sequence[str] = ()
) -> Field:
    """Return the field that a feature becomes.

    Parameters
    ----------
    key : str
    seen : FeatureValues
    taken : set of str
        The names in use; the name of the new field is added.
    chosen : (str, str), optional
        The name and the kind that the user chose; either may be empty.
    classes : sequence of str, optional
        The class names, if the values of the feature are class ids.

    Raises
    ------
    ValueError
        If the chosen kind is invalid.
    """
    name, kind = chosen
    name = name or field_name(key, taken)
    taken.add(name)
    kind = kind or _kind_of(seen, bool(classes))
    dtype = "int64" if seen.type == INTS else "float32"
    if kind in ("array", "scalar"):
        return Field(name, kind, dtype, int(kind == "array"))
    if kind in OF_SCALARS:
        if kind != dtype:
            raise ValueError(f"it has {TYPES[seen.type]}, not {kind}")
        return Field(name, "scalar", dtype)
    return Field(name, kind, classes=tuple(classes) if KINDS[kind].has_classes else ())


def _kind_of(seen: FeatureValues, has_classes: bool) -> str:
    if seen.type == BYTES:
        if seen.text:
            return "json" if seen.several else "text"
        return "image" if seen.image and not seen.several else "bytes"
    if seen.ids and has_classes:
        return "labels" if seen.several else "class"
    return "array" if seen.several else "scalar"


def _list(window: BlockReader, begin: int, end: int) -> tuple[int, int]:
    return begin, end - begin


def _string(window: BlockReader, begin: int, end: int) -> str | None:
    found = one_bytes(window, begin, end)
    return None if found is None else _decoded(window, *found)


def _strings(window: BlockReader, begin: int, end: int) -> Stored:
    if end - begin > _TEXTS:
        raise MessageError(f"a list of texts has too many bytes ({end - begin:,}), at byte {begin}")
    return _JSON.encode([_decoded(window, *found) for found in byte_strings(window, begin, end)])


def _decoded(window: BlockReader, offset: int, size: int) -> str:
    if size > _TEXT:
        raise MessageError(f"a text has too many bytes ({size:,}), at byte {offset}")
    try:
        return window.read(offset, size).decode()
    except UnicodeDecodeError:
        raise MessageError(f"a text is not valid UTF-8, at byte {offset}") from None


def _float(window: BlockReader, begin: int, end: int) -> float | None:
    value = one_float(window, begin, end)
    return None if value is None or math.isnan(value) else value


def _whole(window: BlockReader, begin: int, end: int) -> int | None:
    value = _float(window, begin, end)
    if value is not None and not value.is_integer():
        raise MessageError(f"its label is {value}, not a class id, at byte {begin}")
    return None if value is None else int(value)


def _index_in_ints(window: BlockReader, begin: int, end: int) -> int | None:
    return _index_of_one(ints(window, begin, end), begin)


def _index_in_floats(window: BlockReader, begin: int, end: int) -> int | None:
    data = floats(window, begin, end)
    return _index_of_one(struct.unpack(f"<{len(data) // 4}f", data), begin)


def _index_of_one(values: Sequence[float], begin: int) -> int | None:
    """Return the index of the only 1 among zeros; None for an empty list."""
    index = one_hot(values)
    if values and index is None:
        raise MessageError(f"its label is not one-hot, unlike the labels before it, at byte {begin}")
    return index


def _ids(window: BlockReader, begin: int, end: int) -> bytes:
    values = ints(window, begin, end)
    if min(values, default=0) < 0:
        raise MessageError(f"{min(values)} is not a class id, at byte {begin}")
    return struct.pack(f"<{len(values)}q", *values)


def _int_array(window: BlockReader, begin: int, end: int) -> bytes:
    values = ints(window, begin, end)
    return struct.pack(f"<{len(values) + 1}q", len(values), *values)


def _float_array(window: BlockReader, begin: int, end: int) -> bytes:
    data = floats(window, begin, end)
    return struct.pack("<q", len(data) // 4) + data


_JSON = Field("texts", "json")
_READERS: Mapping[int, dict[str, Read]] = {
    NOTHING: {},
    BYTES: dict.fromkeys(("text", "json", "bytes", "image", "mask"), one_bytes),
    FLOATS: {"scalar": _float, "array": _float_array},
    INTS: {"scalar": one_int, "class": one_int, "labels": _ids, "array": _int_array},
}
_OF_SEVERAL: dict[str, Read] = {"json": _strings, "bytes": _list}


_ROLES = NAMES["tfrecord"]
_IDS = ("class", "cls", "category")  # class ids, even if they are floats
_CLASS_NAMES = ("image/class/synset", "image/class/text")  # for the label that is first in `_ROLES`
_BOXES = "image/object/bbox"
_EDGES = ("xmin", "ymin", "xmax", "ymax")
_HEIGHT, _WIDTH = "image/height", "image/width"
_SEVERAL_LABELS = ("image/object/class/label", *_ROLES.labels)


@dataclass(frozen=True)
class Boxes:
    """Makes boxes from four features, one for each edge, in fractions of height and width."""

    slots: tuple[str, str, str, str]
    field: Field

    def encoded(self, values: dict[str, Any], height: int | None, width: int | None) -> bytes:
        """Take the edges out of a sample's values, and return the boxes in pixels, in the form that a pack stores.

        Raises
        ------
        MessageError
            If the edges do not form boxes.
        """
        edges = [struct.unpack(f"<{len(data) // 4}f", data) for data in (values.pop(slot, b"") for slot in self.slots)]
        if any(len(edge) != len(edges[0]) for edge in edges):
            raise MessageError("the four edges of the boxes do not have the same number of values")
        if edges[0] and not (height and width):
            raise MessageError(f"it has boxes, but no {_HEIGHT} and {_WIDTH}")
        numbers = list[float]()
        for left, top, right, bottom in zip(*edges, strict=True):
            if not (left <= right and top <= bottom and height and width):
                raise MessageError(f"the box {left} {top} {right} {bottom} ends before it begins")
            numbers += left * width, top * height, right * width, bottom * height
        try:
            return struct.pack(f"<{len(numbers)}f", *numbers)
        except OverflowError:
            raise MessageError("a box is too large") from None


class _Chooser:
    """Chooses the roles of features, and sets them in a container.

    Parameters
    ----------
    container : TFRecord
    seen : mapping of str to FeatureValues
        The features of the first samples, by key.
    directory : Path
        The directory of the records, which may also contain files of class names.
    """

    def __init__(self, container: TFRecord, seen: Mapping[str, FeatureValues], directory: Path) -> None:
        self._container, self._seen, self._directory = container, seen, directory
        self._account = container.account
        self._taken: set[str] = set()
        self._label: str | None = None
        self._whole = False  # whether labels are class ids, though they are floats

    def choose(self, keys: Mapping[str, str]) -> None:
        """Choose the roles: by the user's keys if there are any, otherwise by name and type.

        Raises
        ------
        SourceError
            If no feature is the image; or if a key names a feature that does not exist or has the wrong kind. The
            message does not name the file.
        OptionError
            For the same reasons as in `Chosen.of`.
        """
        if keys:
            self._take_chosen(Chosen.of(keys))
        else:
            self._take_all()
        if self._container.boxes:
            for key, slot in ((_HEIGHT, " height"), (_WIDTH, " width")):
                self._put(key, FeatureColumn(slot, INTS, one_int))
        if keys:
            left = [key for key in self._seen if key.encode() not in self._container.columns]
            self._account.left_out("feature", "--key does not name them", left, chosen=True)
        if self._label is not None:
            self._describe_label(self._label)

    def _describe_label(self, label: str) -> None:
        """Set the type and the classes of the labels."""
        found, of_label = self._container, self._seen[label]
        found.why_unlabeled = f"they have no {printable(label)}"
        if of_label.type == FLOATS and of_label.most == 1 and not self._whole:
            found.label_type = "float"
        if of_label.type == INTS:
            found.classes = _class_names(self._directory, label)
            names = (key for key in _CLASS_NAMES if self._is(key, BYTES) and self._seen[key].text)
            if label == _ROLES.labels[0] and (key := next(names, None)) is not None:
                self._put(key, FeatureColumn(" class", BYTES, _string))

    def _take_all(self) -> None:
        """Turn all features other than image, label and name into fields."""
        seen = self._seen
        image = self._image()
        self._put(image, FeatureColumn("image", BYTES, one_bytes))
        name = next((key for key in _ROLES.names if key in seen and seen[key].text and not seen[key].several), None)
        if name is not None and seen[name].type == BYTES:
            self._put(name, FeatureColumn("name", BYTES, _string))
        self._take_label(
            [key for key in seen if key.encode() not in self._container.columns and not is_of_objects(key)]
        )
        if all(self._is(f"{_BOXES}/{edge}", FLOATS) for edge in _EDGES):
            if self._is(_HEIGHT, INTS) and self._is(_WIDTH, INTS):
                self._add_boxes("boxes")
            else:
                self._container.notes.append(
                    f"{_BOXES} are arrays of floats, because there are no {_HEIGHT} and {_WIDTH}"
                )
        for key, of_key in seen.items():
            if key.encode() not in self._container.columns and of_key.type:
                ids = key in _SEVERAL_LABELS and of_key.type == INTS and of_key.ids and "labels" not in self._taken
                self._add_field(key, *(("labels", "labels") if ids else ()))
        if len(self._container.fields) > MOST_FIELDS:
            raise SourceError(
                f"there are {len(seen)} features, but a pack has at most {MOST_FIELDS} fields: select features with "
                "--key NAME=KEY"
            )

    def _take_label(self, keys: Sequence[str]) -> None:
        """Choose the label by name among the features without a role.

        If no feature matches, candidates are recorded in the container's account.
        """
        seen, account = self._seen, self._account
        able = {key: seen[key].values or [0] for key in keys if seen[key].is_label}
        several = [key for key in keys if key not in able and _ROLES.is_label(key) and seen[key].most > 1]
        account.taken("feature", "a field, because samples have several values", several)
        self._label = _ROLES.choose_label("feature", able, account, candidates=not several)
        if self._label is not None:
            self._put(self._label, self._label_column(self._label))
        elif several:
            self._container.why_unlabeled = f"they have several labels each; see the field {printable(several[0])}"

    def _label_column(self, key: str) -> FeatureColumn:
        seen = self._seen[key]
        self._whole = key.rpartition("/")[2].lower() in _IDS and seen.type == FLOATS and seen.most == 1 and seen.are_ids
        return FeatureColumn("label", FLOATS, _whole) if self._whole else FeatureColumn.label(seen)

    def _take_chosen(self, chosen: Chosen) -> None:
        """Turn the features that the user chose into fields."""
        self._container.strict = False
        self._take("image", "", self._image() if chosen.image is None else chosen.image)
        for name, key in (("label", chosen.label), ("name", chosen.name)):
            if key is not None:
                self._take(name, "", key)
        for one in chosen.fields:
            self._take(*one)

    def _image(self) -> str:
        """Choose the image feature by name, and return its key."""
        seen = self._seen
        images = [key for key, of_key in seen.items() if of_key.type == BYTES and of_key.image and not of_key.several]
        chosen = next((key for key in _ROLES.images if key in images), images[0] if len(images) == 1 else None)
        if chosen is None:
            if images:
                which = printable(", ".join(images))
                raise SourceError(f"several features are images: choose one of {which} with --key image=KEY")
            raise SourceError(
                f"no feature is an encoded image, of {printable(', '.join(list(seen)[:20]))}: choose one with --key "
                "image=KEY. Features that contain pixels are not read: pass the images as arrays to packer.pack"
            )
        return chosen

    def _take(self, name: str, kind: str, key: str) -> None:
        boxes = [f"{key}/{edge}" for edge in _EDGES]
        if kind == "boxes" and all(self._is(edge, FLOATS) for edge in boxes):
            self._add_boxes(name, key)
            return
        seen = self._seen.get(key)
        if seen is None or not seen.type:
            known = ", ".join(map(printable, list(self._seen)[:20]))
            raise SourceError(f"--key {name}: no feature is called {printable(key)}. There are {known}")
        if name in ("image", "name") and seen.type != BYTES:
            raise SourceError(f"feature {printable(key)} cannot be the {name}: it does not contain bytes")
        if name == "image":
            self._put(key, FeatureColumn("image", BYTES, one_bytes))
        elif name == "name":
            self._put(key, FeatureColumn("name", BYTES, _string))
        elif name == "label":
            self._label = key
            self._put(key, self._label_column(key))
        else:
            self._add_field(key, name, kind)

    def _add_field(self, key: str, name: str = "", kind: str = "") -> None:
        seen = self._seen[key]
        with errors_in(f"feature {printable(key)}"):
            made = field_of(key, seen, self._taken, (name, kind), _class_names(self._directory, key) or ())
            self._put(key, FeatureColumn.field(made, seen))
        self._container.fields += (made,)

    def _add_boxes(self, name: str, group: str = _BOXES) -> None:
        if not (self._is(_HEIGHT, INTS) and self._is(_WIDTH, INTS)):
            raise SourceError(f"boxes need {_HEIGHT} and {_WIDTH}, which are missing: take the edges as arrays")
        slots = [f"{name} {edge}" for edge in _EDGES]
        boxes = Boxes((slots[0], slots[1], slots[2], slots[3]), Field(name, "boxes"))
        self._taken.add(name)
        self._container.boxes.append(boxes)
        self._container.fields += (boxes.field,)
        for slot, edge in zip(slots, _EDGES, strict=True):
            self._put(f"{group}/{edge}", FeatureColumn(slot, FLOATS, floats))

    def _put(self, key: str, column: FeatureColumn) -> None:
        self._container.columns.setdefault(key.encode(), []).append(column)

    def _is(self, key: str, type_: int) -> bool:
        return key in self._seen and self._seen[key].type == type_


_HEADER = struct.Struct("<QI")
_FRAME = _HEADER.size + 4
_FIRST_RECORDS = 64  # records of a file
_NAMED = re.compile(r"\.tfrec(ord)?s?\b|-\d{5}-of-\d{5}$", re.IGNORECASE)
_OTHER = (".idx", ".index", ".tfindex", ".json", ".txt", ".csv", ".md5", ".partial")
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x78": "zlib"}
_MOST_CLASSES = 1 << 24  # bytes of a list of classes


def masked_crc32c(data: Buffer) -> int:
    """Compute the checksum of bytes in the masked form that records store."""
    return masked(google_crc32c.value(data))


def masked(checksum: int) -> int:
    """Convert a CRC-32C to the masked form that records store."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


@dataclass(eq=False)
class TFRecord(Container):
    """TFRecord files of Examples; the files may have any name.

    Attributes
    ----------
    columns : dict of bytes to list of FeatureColumn
        The readers of features, by key.
    boxes : list of Boxes
    strict : bool
        Whether a feature without a column is an error.
    """

    kind = "tfrecord"
    sealed = True

    columns: dict[bytes, list[FeatureColumn]] = field(default_factory=dict)
    boxes: list[Boxes] = field(default_factory=list)
    strict: bool = True
    why_unlabeled: str = "they have no feature that is a label"

    @staticmethod
    def checksum(data: Buffer) -> int:
        return masked_crc32c(data)

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        if not head:  # a shard without a sample
            return _is_named(path.name)
        return _begins_record(head) or _compression(head) is not None

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        found = files_in(path, names, _is_named)
        if not found or not all(cls.recognise_file(file, head_of(file)) for file in (found[0], found[-1])):
            return None
        return found

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> TFRecord:
        for path in paths:
            head = head_of(path)
            if head and not _begins_record(head) and (how := _compression(head)):
                unpack = {"gzip": "gzip -dc", "zlib": "pigz -dc"}[how]
                raise SourceError(
                    f"{printable(path)}: is compressed with {how} as a whole, so images cannot be read from it in "
                    f"place. Decompress it: {unpack} < {printable(path.name)} > FILE"
                )
        container = cls.of_files(paths)
        seen, problems = dict[str, FeatureValues](), list[SourceError]()
        for unit in dict.fromkeys((0, len(paths) // 2, len(paths) - 1)):
            problems += container._look(unit, seen)
        for unit in range(len(paths)):
            if not seen:  # the first file that has a record
                problems += container._look(unit, seen)
        if not seen:
            raise problems[0] if problems else SourceError(f"{printable(paths[0])}: no record has a feature")
        with errors_in(printable(paths[0]), SourceError):
            _Chooser(container, seen, paths[0].parent).choose(keys)
        return container

    def entries(self, unit: int) -> Iterator[Entry]:
        with self.opened(unit) as file:
            window, stem = BlockReader(file), re.sub(r"\.tfrec(ord)?s?$", "", self.files[unit], flags=re.IGNORECASE)
            for number, (begin, end) in enumerate(_records(file, window)):
                name = f"{stem}/{number:08d}"
                try:
                    entry = self._entry(window, self._values(window, unit, begin, end), name)
                    yield entry._replace(seal=Seal(begin, end - begin, _checksum_at(window, end)))
                except MessageError as error:
                    yield Entry(name, b"", problem=_problem(number, begin, error))

    def _values(self, window: BlockReader, unit: int, begin: int, end: int) -> dict[str, Any]:
        """Read the values of a record, by slot."""
        values = dict[str, Any]()
        for key, type_, start, stop in feature_lists(window, begin, end):
            columns = self.columns.get(key)
            if columns is None and self.strict and type_ != NOTHING:
                raise MessageError(f"feature {text_of(key, start)!r} is in none of the first records")
            for column in columns or ():
                if type_ == NOTHING:
                    values.pop(column.slot, None)
                elif column.type != type_:
                    raise MessageError(
                        f"feature {text_of(key, start)!r} has {TYPES[type_]}, "
                        f"but {TYPES[column.type]} in earlier records"
                    )
                else:
                    value = column.read(window, start, stop)
                    values[column.slot] = Piece(unit, *value) if isinstance(value, tuple) else value
        return values

    def _entry(self, window: BlockReader, values: dict[str, Any], number: str) -> Entry:
        image = values.pop("image", None)
        if image is None:
            raise MessageError("it has no image")
        name = values.pop("name", None) or number
        if not is_image_name(name):  # otherwise the image is not read
            name += suffix_at(window.read, image.offset, image.size)
        if self.boxes:
            height, width = values.pop(" height", None), values.pop(" width", None)
            for boxes in self.boxes:
                values[boxes.field.name] = boxes.encoded(values, height, width)
        label, class_name = values.pop("label", None), values.pop(" class", None)
        if label is not None and class_name is not None:
            label = Named(label, class_name)
        return Entry(name, image, label, values)

    def _look(self, unit: int, seen: dict[str, FeatureValues]) -> list[SourceError]:
        """Inspect the features in a file's first records; return the errors of records that are not Examples.

        Raises
        ------
        SourceError
            If the records have too many different features.
        """
        problems = []
        with self.opened(unit) as file:
            window = BlockReader(file)
            for number, (begin, end) in enumerate(islice(_records(file, window), _FIRST_RECORDS)):
                try:
                    add_features(seen, window, begin, end)
                except MessageError as error:
                    problem = SourceError(f"{printable(file.path)}: {_problem(number, begin, error)}")
                    if isinstance(error, ManyFeaturesError):
                        raise problem from error
                    problems.append(problem)
        return problems


def _problem(number: int, begin: int, error: MessageError) -> str:
    remedy = ""
    if isinstance(error, SeveralError) or "feature" in str(error):
        remedy = ". Select features with --key NAME:KIND=KEY"
    return f"record {number}, at byte {begin - 12}: {error}{remedy}"


def _records(file: PackFile, window: BlockReader) -> Iterator[tuple[int, int]]:
    """Yield the offsets where each record's data begin and end."""
    offset = number = 0
    while offset < file.size:
        if file.size - offset < _FRAME:
            raise SourceError(
                f"{printable(file.path)}: cut short: the file ends {file.size - offset} bytes after record {number - 1}"
            )
        p = window.at(offset, _HEADER.size)
        size, crc = _HEADER.unpack_from(window.data, p)
        if masked_crc32c(window.data[p : p + 8]) != crc:
            raise SourceError(
                f"{printable(file.path)}: damaged: the size of record {number}, at byte {offset}, does not match "
                "its checksum"
            )
        end = offset + _HEADER.size + size
        if end + 4 > file.size:
            raise SourceError(
                f"{printable(file.path)}: cut short: record {number}, at byte {offset}, would end at byte {end + 4} "
                f"of {file.size}. Download the file again"
            )
        yield offset + _HEADER.size, end
        offset, number = end + 4, number + 1


def _checksum_at(window: BlockReader, offset: int) -> int:
    index = window.at(offset, 4)
    return int.from_bytes(window.data[index : index + 4], "little")


def _is_named(name: str) -> bool:
    return _NAMED.search(name) is not None and not name.lower().endswith(_OTHER)


def _begins_record(head: bytes) -> bool:
    return len(head) >= _HEADER.size and masked_crc32c(head[:8]) == _HEADER.unpack_from(head)[1]


def _compression(head: bytes) -> str | None:
    """Return how a whole record file is compressed; None if it is not compressed."""
    for magic, how in _COMPRESSED.items():
        if head.startswith(magic):
            try:
                begin = zlib.decompressobj(47).decompress(head, _HEADER.size)  # 47: either header
            except zlib.error:
                return None
            return how if _begins_record(begin) else None
    return None


def _class_names(directory: Path, key: str) -> list[str] | None:
    """Return the class names from TensorFlow Datasets' file next to the records; None without such a file."""
    name = f"{key.replace('/', '-')}.labels.txt"
    path = directory / name
    if name_problem(name) or "\\" in name or not os.path.isfile(path):
        return None
    return text_in(path, _MOST_CLASSES).splitlines() or None
