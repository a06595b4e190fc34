"""RecordIO, the format of MXNet (https://mxnet.apache.org/versions/1.9.1/api/faq/recordio): ``.rec`` and ``.idx``.

A record consists of a magic number, a length word, the data, and zeros up to a multiple of 4 bytes. The uppermost three
bits of the length word are the kind of the record; the other bits are the size of the data. If the magic number occurs
within data at a multiple of 4, the writer splits the data there into several records (first, middle and last part) and
leaves out the magic number between two parts. A sample in several records is not a contiguous range of the file, so
packer copies its bytes.

The data consist of a flag, a float32 label, two numbers, and the image. If the flag is not 0, it is the number of
further float32 labels before the image. Files of insightface begin with a record of two labels and no image. Similar
records, one for each identity, follow the images.

Samples are listed in file order, as the iterators of MXNet and DALI read them, with or without an index. An index is a
text file that gives each record a key; it has a line ``key TAB offset`` for each record.

A list, ``.lst``, may accompany the record file. Each line of the list has a key, one or more labels, and a path,
separated by tabs. im2rec makes the record file from the list, and numbers directories in the order of their names. A
list that does not match the records is an error: otherwise images would get the names of other images.
"""

from __future__ import annotations

import math
import os
import re
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from packer._codecs import UNLABELED
from packer._containers.blocks import BlockReader
from packer._containers.contract import IMAGE_HEAD, Container, Entry, Piece, suffix_of
from packer._fields import Field
from packer._storage.packfile import PackFile
from packer._storage.safe_open import name_problem, open_regular
from packer._table import Ints, Names
from packer.errors import OptionError, SourceError, printable

_LONGEST_LINE = 1 << 20  # bytes


class Keys:
    """Reads the keys of records from an index, in the order of the records."""

    def __init__(self, path: Path) -> None:
        self._path = path
        keys, offsets = array("q"), array("q")
        for number, line in _lines(path):
            try:
                key, offset = map(int, line.split(b"\t"))
                keys.append(key)
                offsets.append(offset)
            except (ValueError, OverflowError):
                raise SourceError(
                    f"{printable(path)}: line {number} is not a key and an offset of a record{_MOVE}"
                ) from None
        self._offsets = np.frombuffer(offsets, np.int64)
        self._order = np.argsort(self._offsets, kind="stable")
        self._keys = np.frombuffer(keys, np.int64)
        if len(np.unique(self._keys)) < len(self._keys) or min(keys, default=0) < 0:
            raise SourceError(f"{printable(path)}: two records have one key, or one has a negative key{_MOVE}")
        self._next = 0

    @classmethod
    def beside(cls, path: Path) -> Keys | None:
        """Open the index next to a record file; None if there is no index."""
        found = path.with_suffix(".idx")
        return cls(found) if os.path.isfile(found) else None

    def next(self, offset: int) -> int:
        """Return the key of the next record; SourceError if the record's offset in the index is not `offset`."""
        if self._next >= len(self._order) or self._offsets[self._order[self._next]] != offset:
            raise SourceError(
                f"{printable(self._path)}: does not match the record file: no entry for the record at byte "
                f"{offset}{_MOVE}"
            )
        key = int(self._keys[self._order[self._next]])
        self._next += 1
        return key

    def end(self) -> None:
        """Raise SourceError if the index lists more records than the file has."""
        if self._next < len(self._order):
            raise SourceError(
                f"{printable(self._path)}: does not match the record file: it lists {len(self._order)} records, but "
                f"the file has {self._next}{_MOVE}"
            )


class Paths:
    """The image paths in a list, by key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        keys, labels = array("q"), array("f")

        def names() -> Iterator[str]:
            for key, label, name in _listed(path):
                keys.append(key)
                labels.append(label)
                yield name

        self._names = Names.of(names())
        found = np.frombuffer(keys, np.int64)
        self._order: Ints = np.argsort(found, kind="stable")
        self._keys = found[self._order]
        self._labels = np.frombuffer(labels, np.float32)

    @classmethod
    def beside(cls, path: Path) -> Paths | None:
        """Read the list next to a record file; None if there is no list."""
        found = path.with_suffix(".lst")
        return cls(found) if os.path.isfile(found) else None

    def of(self, key: int, label: float) -> str:
        """Return the path of an image; SourceError if the list has no line with the image's key and label."""
        index = int(np.searchsorted(self._keys, key))
        row = int(self._order[index]) if index < len(self._keys) and self._keys[index] == key else None
        if row is None or self._labels[row] != np.float32(label):
            what = "no line for it" if row is None else f"label {self._labels[row]:g}"
            raise SourceError(
                f"{printable(self._path)}: does not match the record file: image {key} has label {label:g}, but the "
                f"list has {what}{_MOVE}"
            )
        return self._names[row]


def class_names(paths: Sequence[Path]) -> list[str] | None:
    """Return the class names: the directories of the images according to the lists of the record files.

    The result is None if a record file has no list, or if directories and labels do not correspond one to one.
    """
    by_label: dict[float, str] = {}
    for path in paths:
        found = path.with_suffix(".lst")
        if not os.path.isfile(found):
            return None
        for _, label, name in _listed(found):
            directory = PurePosixPath(name).parent.as_posix()
            if by_label.setdefault(label, directory) != directory:
                return None
    directories = set(by_label.values())
    if len(directories) < len(by_label) or directories & {".", ""}:
        return None
    if sorted(by_label) != list(range(len(by_label))):
        return None
    return [by_label[label] for label in range(len(by_label))]


def property_classes(paths: Sequence[Path]) -> list[str] | None:
    """Return the class names 0, 1, ... if insightface's file ``property`` gives the number of classes; else None."""
    path = paths[0].with_name("property")
    line = next(_lines(path), (0, b""))[1] if os.path.isfile(path) else b""
    count = re.match(rb"([0-9]{1,8}),", line)
    return list(map(str, range(int(count[1])))) if count else None


def _listed(path: Path) -> Iterator[tuple[int, float, str]]:
    """Yield key, first label and path from each line of a list."""
    for number, line in _lines(path):
        try:
            key, label, *_, name = line.decode().split("\t")
            found = int(key), float(label), name.replace("\\", "/").removeprefix("./")
            if not -(1 << 63) <= found[0] < 1 << 63:
                raise ValueError
        except ValueError:
            raise SourceError(f"{printable(path)}: line {number} is not a key, a label and a path{_MOVE}") from None
        if problem := name_problem(found[2]):
            raise SourceError(f"{printable(path)}: line {number}: {problem}{_MOVE}")
        yield found


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the line number and the content of each nonempty line."""
    try:
        with open(open_regular(path), "rb") as file:
            number = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                if stripped := line.strip():
                    yield number, stripped
    except OSError as error:
        raise SourceError(f"{printable(path)}: cannot be read: {error.strerror}") from error


_MOVE = ". Correct it, or move it away"


MAGIC = b"\x0a\x23\xd7\xce"

_HEADER = struct.Struct("<4sI")
_IMAGE_HEADER = struct.Struct("<If16x")
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_LARGEST = 1 << 29  # bytes of a record in parts
_FIRST_RECORDS = 256  # records of a file
_AHEAD = 512
_MOST_LABELS = 1 << 20
_EXACT = 1 << 24  # from here on float32 does not represent every whole number
_ROUNDED = "labels reach 2^24: RecordIO stores them as float32, which cannot distinguish all ids from there on"
_LABELS = Field("labels", "array", "float32", 1)
_KEYS = {"label": ("class", "float"), "labels": ("all",)}


class MXNetRecord(NamedTuple):
    """A record: its offset, labels and image.

    Attributes
    ----------
    offset : int
    labels : tuple of float
    image : Piece or bytes
    head : bytes
        The first bytes of the image.
    flag : int
    problem : str
        The reason why the record has no labels; empty otherwise.
    """

    offset: int
    labels: tuple[float, ...]
    image: Piece | bytes
    head: bytes
    flag: int
    problem: str = ""

    @property
    def is_empty(self) -> bool:
        """True if the record has no image."""
        return not self.head

    @property
    def tells_of_faces(self) -> bool:
        """True if this is one of the records without an image that insightface puts before and after the images."""
        return not self.head and self.flag == 2


@dataclass(eq=False)
class RecordIO(Container):
    """MXNet's record files ``.rec``, each optionally with an index ``.idx`` and a list ``.lst``."""

    kind = "recordio"
    suffixes = (".rec",)

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return head.startswith(MAGIC) or (not head and path.suffix.lower() in cls.suffixes)

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> RecordIO:
        for name, key in keys.items():
            if key not in _KEYS.get(name, ()):
                raise OptionError(
                    f"--key {name}={key}: for RecordIO, pass label=class or label=float for the type of labels, and "
                    "labels=all to store all labels of a sample as a field"
                )
        container = cls.of_files(paths)
        whole, several = True, "labels" in keys
        for unit in {0, len(paths) // 2, len(paths) - 1}:
            for labels in container._first_labels(unit):
                whole, several = whole and _is_class(labels[0]), several or len(labels) > 1
        if keys.get("label", "class" if whole else "float") == "float":
            container.label_type = "float"
        if several:
            container.fields = (_LABELS,)
            container.account.taken(
                "label", "the first label of each record; the field labels contains all of them", count=1
            )
        if container.label_type == "class":
            container.classes = class_names(paths) or property_classes(paths)
        return container

    def entries(self, unit: int) -> Iterator[Entry]:
        path = Path(self.root, self.files[unit])
        keys, paths = Keys.beside(path), Paths.beside(path)
        stem, of_faces = self.files[unit].rpartition(".")[0], False
        with self.opened(unit) as file:
            for number, record in enumerate(_records(file, unit)):
                key = number if keys is None else keys.next(record.offset)
                of_faces = of_faces or (number == 0 and record.tells_of_faces)
                name = f"{stem}/{key:08d}{suffix_of(record.head)}"
                if of_faces and record.tells_of_faces:
                    self.account.not_looked_at(
                        "record", "it describes identities for insightface, and has no image", [name]
                    )
                    continue
                try:
                    if record.problem or record.is_empty:
                        raise ValueError(record.problem or "it has no image")
                    entry = self._entry(record, paths.of(key, record.labels[0]) if paths else name)
                except ValueError as error:
                    entry = Entry(name, b"", problem=f"the record at byte {record.offset}: {error}")
                yield entry
            if keys is not None:
                keys.end()

    def _entry(self, record: MXNetRecord, name: str) -> Entry:
        label = record.labels[0]
        if self.label_type == "class":
            if not _is_class(label):
                raise ValueError(f"its label is {label}, but the first labels are integers: pass --key label=float")
            label = UNLABELED if math.isnan(label) else int(label)
            if label >= _EXACT and _ROUNDED not in self.notes:
                self.notes.append(_ROUNDED)
        elif math.isnan(label):
            raise ValueError("its label is not a number")
        if self.fields:
            count = len(record.labels)
            return Entry(name, record.image, label, {"labels": struct.pack(f"<q{count}f", count, *record.labels)})
        if len(record.labels) > 1:
            raise ValueError(
                f"it has {len(record.labels)} labels, but the first records have one: pass --key labels=all"
            )
        return Entry(name, record.image, label)

    def _first_labels(self, unit: int) -> Iterator[tuple[float, ...]]:
        """Yield the labels of the first images of a file."""
        with self.opened(unit) as file:
            for record, _ in zip(_records(file, unit), range(_FIRST_RECORDS), strict=False):
                if not record.is_empty:
                    yield record.labels


def _is_class(label: float) -> bool:
    """Tell whether a label is a class number, or NaN for no class."""
    return math.isnan(label) or label.is_integer()


def _records(file: PackFile, unit: int) -> Iterator[MXNetRecord]:
    """Yield the records of a file."""
    window, offset = BlockReader(file), 0
    while offset < file.size:
        kind, begin, size, end = _part(file, window, offset)
        try:
            if kind == _FIRST:
                data, end = _joined(file, window, offset)
                flag, labels, start = _labels(file, offset, data, 0, len(data))
                yield MXNetRecord(offset, labels, data[start:], data[start : start + IMAGE_HEAD], flag)
            elif kind == _WHOLE:
                p = window.at(begin, min(size, _AHEAD))
                flag, labels, start = _labels(file, offset, window.data, p, size)
                head = window.read(begin + start, min(IMAGE_HEAD, size - start))
                yield MXNetRecord(offset, labels, Piece(unit, begin + start, size - start), head, flag)
            else:
                raise _damaged(file, offset, "a record does not begin with its first part")
        except ValueError as error:
            yield MXNetRecord(offset, (), b"", b"", 0, str(error))
        offset = end


def _part(file: PackFile, window: BlockReader, offset: int) -> tuple[int, int, int, int]:
    """Read the header of the record part at `offset`: return its kind, offset and size of its data, and its end."""
    if file.size - offset < _HEADER.size:
        raise _cut_short(file, offset)
    p = window.at(offset, _HEADER.size)
    magic, number = _HEADER.unpack_from(window.data, p)
    kind, size = number >> 29, number & (1 << 29) - 1
    if magic != MAGIC or kind > _LAST:
        raise _damaged(file, offset, "it is not the beginning of a record")
    begin = offset + _HEADER.size
    end = begin + size + -size % 4
    if end > file.size:
        raise _cut_short(file, offset)
    return kind, begin, size, end


def _joined(file: PackFile, window: BlockReader, offset: int) -> tuple[bytes, int]:
    """Join the data of a record that was split into parts; return the data, and where the record ends."""
    first, data = offset, bytearray()
    while True:
        if offset == file.size:
            raise _cut_short(file, first)
        kind, begin, size, end = _part(file, window, offset)
        if (kind == _FIRST) != (offset == first) or kind == _WHOLE:
            raise _damaged(file, offset, "the parts of a record are out of order")
        if len(data) + size > _LARGEST:
            raise _damaged(file, first, f"a record has more than {_LARGEST:,} bytes")
        if kind != _FIRST:
            data += MAGIC
        data += window.read(begin, size)
        if kind == _LAST:
            return bytes(data), end
        offset = end


def _labels(file: PackFile, offset: int, data: bytes, at: int, size: int) -> tuple[int, tuple[float, ...], int]:
    """Return a record's flag and labels, and the size of both in bytes; `at` is where the record's data begin.

    Raise ValueError if the record is too short for its labels.
    """
    if size < _IMAGE_HEADER.size:
        raise ValueError(f"a record of {size} bytes is too short for a label")
    flag, label = _IMAGE_HEADER.unpack_from(data, at)
    if not flag:
        return 0, (label,), _IMAGE_HEADER.size
    start = _IMAGE_HEADER.size + 4 * flag
    if start > size or flag > _MOST_LABELS:
        raise ValueError(f"a record of {size} bytes is too short for its {flag:,} labels")
    if at + start > len(data):  # the labels are longer than the bytes that were read ahead
        data, at = file.read(offset + _HEADER.size, start), 0
    return flag, struct.unpack_from(f"<{flag}f", data, at + _IMAGE_HEADER.size), start


def _damaged(file: PackFile, offset: int, why: str) -> SourceError:
    return SourceError(f"{printable(file.path)}: the record at byte {offset}: {why}")


def _cut_short(file: PackFile, offset: int) -> SourceError:
    return SourceError(
        f"{printable(file.path)}: cut short: the record at byte {offset} extends beyond the end of the file"
    )
