"""RecordIO, which MXNet reads (https://mxnet.apache.org/versions/1.9.1/api/faq/recordio): ``.rec``, beside it ``.idx``.

A record is a magic number; a number whose uppermost three bits say what the record is, and whose others are its size;
the data; and zeros up to a multiple of 4 bytes. Data that have the magic number at a multiple of 4 are cut there, in
parts that are a record each, the first, middle ones and the last, and the number between two parts is left out. Such
samples are no range of the file, so they are copied.

The data are a flag, a label as float32, two numbers, and the image. A flag of k other than 0 says that k labels,
float32, stand before the image. insightface's files begin with a record that has two labels and no image; so have the
records of identities, which follow after the images.

Samples are listed in the order in which they lie, as MXNet's and DALI's iterators read them: the same with an index and
without one. An index gives each record its key, in text, a line each: key, tab, where the record begins.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from packer._containers.contract import Container, Entry, Piece
from packer._containers.imagenames import suffix_of
from packer._containers.records.recordlists import Keys, Paths, class_names, numbered_classes
from packer._containers.records.window import Window
from packer._fields import Field
from packer._sample import UNLABELED
from packer._storage.packfile import PackFile
from packer.errors import OptionError, SourceError, printable

__all__ = ["RecordIO"]

MAGIC = b"\x0a\x23\xd7\xce"

_HEADER = struct.Struct("<4sI")
_IMAGE_HEADER = struct.Struct("<If16x")
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_LARGEST = 1 << 29  # bytes of a record in parts
_LOOKED_AT = 256  # records of a file
_HEAD = 32  # bytes by which an image is known
_AHEAD = 512
_MOST_LABELS = 1 << 20
_EXACT = 1 << 24  # from here on float32 leaves out whole numbers
_ROUNDED = "labels reach 2^24, from which on float32, in which RecordIO keeps them, does not tell all ids apart"
_LABELS = Field("labels", "array", "float32", 1)
_KEYS = {"label": ("class", "float"), "labels": ("all",)}


class Record(NamedTuple):
    """A record: where it begins, and its labels and its image.

    Attributes
    ----------
    offset : int
    labels : tuple of float
    image : Piece or bytes
    head : bytes
        The first bytes of the image.
    flag : int
    """

    offset: int
    labels: tuple[float, ...]
    image: Piece | bytes
    head: bytes
    flag: int

    @property
    def is_empty(self) -> bool:
        """Whether there is no image."""
        return not self.head

    @property
    def tells_of_faces(self) -> bool:
        """Whether it is one of those that insightface puts before and after the images."""
        return not self.head and self.flag == 2


@dataclass(eq=False)
class RecordIO(Container):
    """Files ``.rec``, each perhaps with an ``.idx`` and a ``.lst``, which im2rec writes, beside it."""

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
                    f"--key {name}={key}: of RecordIO, label=class and label=float say what labels are, and labels=all "
                    "that all labels of a sample become a field"
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
            container.account.taken("label", "the first of each record; all of them are the field labels", count=1)
        if container.label_type == "class":
            container.classes = class_names(paths) or numbered_classes(paths)
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
                    self.account.not_looked_at("record", "it is insightface's, of identities, and has no image", [name])
                    continue
                try:
                    if record.is_empty:
                        raise ValueError("it has no image")
                    entry = self._entry(record, paths.of(key, record.labels[0]) if paths else name)
                except ValueError as error:
                    entry = Entry(name, b"", problem=f"the record at byte {record.offset}: {error}")
                yield entry
            if keys is not None:
                keys.end()

    def _entry(self, record: Record, name: str) -> Entry:
        label = record.labels[0]
        if self.label_type == "class":
            if not _is_class(label):
                raise ValueError(f"its label is {label}, and the first are whole: say --key label=float")
            label = UNLABELED if math.isnan(label) else int(label)
            if label >= _EXACT and _ROUNDED not in self.notes:
                self.notes.append(_ROUNDED)
        elif math.isnan(label):
            raise ValueError("its label is no number")
        if self.fields:
            count = len(record.labels)
            return Entry(name, record.image, label, {"labels": struct.pack(f"<q{count}f", count, *record.labels)})
        if len(record.labels) > 1:
            raise ValueError(f"it has {len(record.labels)} labels, and the first have one: say --key labels=all")
        return Entry(name, record.image, label)

    def _first_labels(self, unit: int) -> Iterator[tuple[float, ...]]:
        """Yield the labels of the first images of a file."""
        with self.opened(unit) as file:
            for record, _ in zip(_records(file, unit), range(_LOOKED_AT), strict=False):
                if not record.is_empty:
                    yield record.labels


def _is_class(label: float) -> bool:
    """Tell whether a label is the number of a class, or NaN, which stands for none."""
    return math.isnan(label) or label.is_integer()


def _records(file: PackFile, unit: int) -> Iterator[Record]:
    """Yield the records of a file."""
    window, offset = Window(file), 0
    while offset < file.size:
        kind, begin, size, end = _part(file, window, offset)
        window.expect(size)
        if kind == _FIRST:
            data, end = _joined(file, window, offset)
            flag, labels, start = _labels(file, offset, data, 0, len(data))
            yield Record(offset, labels, data[start:], data[start : start + _HEAD], flag)
        elif kind == _WHOLE:
            p = window.at(begin, min(size, _AHEAD))
            flag, labels, start = _labels(file, offset, window.data, p, size)
            head = window.read(begin + start, min(_HEAD, size - start))
            yield Record(offset, labels, Piece(unit, begin + start, size - start), head, flag)
        else:
            raise _damaged(file, offset, "a record does not begin with its first part")
        offset = end


def _part(file: PackFile, window: Window, offset: int) -> tuple[int, int, int, int]:
    """Return what the part of a record is that begins at `offset`, where its data begin, their size, and its end."""
    if file.size - offset < _HEADER.size:
        raise _cut_short(file, offset)
    p = window.at(offset, _HEADER.size)
    magic, number = _HEADER.unpack_from(window.data, p)
    kind, size = number >> 29, number & (1 << 29) - 1
    if magic != MAGIC or kind > _LAST:
        raise _damaged(file, offset, "no record begins here")
    begin = offset + _HEADER.size
    end = begin + size + -size % 4
    if end > file.size:
        raise _cut_short(file, offset)
    return kind, begin, size, end


def _joined(file: PackFile, window: Window, offset: int) -> tuple[bytes, int]:
    """Return the data of a record in parts, and where it ends."""
    first, data = offset, bytearray()
    while True:
        if offset == file.size:
            raise _cut_short(file, first)
        kind, begin, size, end = _part(file, window, offset)
        if (kind == _FIRST) != (offset == first) or kind == _WHOLE:
            raise _damaged(file, offset, "the parts of a record are in no order")
        if len(data) + size > _LARGEST:
            raise _damaged(file, first, f"a record has more than {_LARGEST:,} bytes")
        if kind != _FIRST:
            data += MAGIC
        data += window.read(begin, size)
        if kind == _LAST:
            return bytes(data), end
        offset = end


def _labels(file: PackFile, offset: int, data: bytes, at: int, size: int) -> tuple[int, tuple[float, ...], int]:
    """Return the flag and the labels of a record whose data are in memory from `at` on, and how long both are."""
    if size < _IMAGE_HEADER.size:
        raise _damaged(file, offset, f"a record of {size} bytes has no label")
    flag, label = _IMAGE_HEADER.unpack_from(data, at)
    if not flag:
        return 0, (label,), _IMAGE_HEADER.size
    start = _IMAGE_HEADER.size + 4 * flag
    if start > size or flag > _MOST_LABELS:
        raise _damaged(file, offset, f"a record of {size} bytes has {flag:,} labels")
    if at + start > len(data):  # of a record whose labels are more than was read ahead
        data, at = file.read(offset + _HEADER.size, start), 0
    return flag, struct.unpack_from(f"<{flag}f", data, at + _IMAGE_HEADER.size), start


def _damaged(file: PackFile, offset: int, why: str) -> SourceError:
    return SourceError(f"{printable(file.path)}: the record at byte {offset}: {why}")


def _cut_short(file: PackFile, offset: int) -> SourceError:
    return SourceError(f"{printable(file.path)}: cut short: the record at byte {offset} goes on after the file's end")
