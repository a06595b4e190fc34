"""TFRecord (https://www.tensorflow.org/tutorials/load_data/tfrecord): records, each of them an Example in most files.

A record is its size, 8 bytes, little-endian; the checksum of these 8 bytes; the data; and their checksum. A checksum is
a CRC-32C, rotated by 15 bits, and a constant added. That of each size is compared. That of the data is compared by
whoever reads the image, as the structure alone is read here. Index files of other tools are not used: they tell where
records begin, which is read here anyway. `packer._containers.records.examplefields` says what becomes of an Example's
features.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c

from packer._containers.contract import Container, Entry, Named, Seal, files_in, head_of
from packer._containers.imagenames import is_image_name, suffix_of
from packer._containers.records.example import NOTHING, SeveralError, feature_lists
from packer._containers.records.examplefields import Roles, choose
from packer._containers.records.features import TYPES, Look, text_of
from packer._containers.records.message import MessageError
from packer._containers.records.window import Window
from packer._storage.opening import open_regular
from packer._storage.packfile import PackFile
from packer._storage.paths import name_problem
from packer._table import Buffer
from packer.errors import SourceError, printable

__all__ = ["TFRecord", "masked", "masked_crc32c"]

_HEADER = struct.Struct("<QI")
_FRAME = _HEADER.size + 4
_LOOKED_AT = 64  # records of a file
_HEAD = 32  # bytes by which an image is known
_NAMED = re.compile(r"\.tfrec(ord)?s?\b|-\d{5}-of-\d{5}$", re.IGNORECASE)
_OTHER = (".idx", ".index", ".tfindex", ".json", ".txt", ".csv", ".md5", ".partial")
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x78": "zlib"}
_MOST_CLASSES = 1 << 24  # bytes of a list of classes


def masked_crc32c(data: Buffer) -> int:
    """Return the checksum of bytes, as a record has it."""
    return masked(google_crc32c.value(data))


def masked(checksum: int) -> int:
    """Return a CRC-32C as a record has it."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


@dataclass(eq=False)
class TFRecord(Container):
    """Files of any name, whose records are Examples."""

    kind = "tfrecord"
    sealed = True

    roles: Roles | None = None

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
                    f"{printable(path)}: is compressed with {how} as a whole, so that no image lies in it as it is. "
                    f"Unpack it: {unpack} < {printable(path.name)} > FILE"
                )
        container = cls.of_files(paths)
        look = Look()
        for number in dict.fromkeys((0, len(paths) // 2, len(paths) - 1)):
            container._look(number, look)
        if not look.seen:
            container._look_on(look)
        if not look.seen:
            raise SourceError(f"{printable(paths[0])}: no record has a feature")
        try:
            roles = choose(look.seen, keys, lambda key: _class_names(paths[0].parent, key), container.account)
        except SourceError as error:
            raise SourceError(f"{printable(paths[0])}: {error}") from error
        container.roles, container.fields, container.label_type = roles, roles.fields, roles.label_type
        container.classes, container.notes = roles.classes, roles.notes
        container.why_unlabeled = roles.why_unlabeled
        return container

    def entries(self, unit: int) -> Iterator[Entry]:
        assert self.roles is not None
        with self.opened(unit) as file:
            window, stem = Window(file), re.sub(r"\.tfrec(ord)?s?$", "", self.files[unit], flags=re.IGNORECASE)
            for number, (begin, end) in enumerate(_records(file, window)):
                name = f"{stem}/{number:08d}"
                try:
                    entry = self._entry(window, self._values(window, unit, begin, end), name)
                    yield entry._replace(seal=Seal(begin, end - begin, _checksum_at(window, end)))
                except MessageError as error:
                    yield Entry(name, b"", problem=_problem(number, begin, error))

    def _values(self, window: Window, unit: int, begin: int, end: int) -> dict[str, Any]:
        """Return what a record has, by the slots of the columns."""
        roles, values = self.roles, dict[str, Any]()
        assert roles is not None
        for key, type_, start, stop in feature_lists(window, begin, end):
            columns = roles.columns.get(key)
            if columns is None and roles.strict and type_ != NOTHING:
                raise MessageError(f"feature {text_of(key, start)!r} was in none of the first records")
            for column in columns or ():
                if type_ == NOTHING:
                    values.pop(column.slot, None)
                elif column.type != type_:
                    raise MessageError(
                        f"feature {text_of(key, start)!r} has {TYPES[type_]}, and had {TYPES[column.type]} before"
                    )
                else:
                    values[column.slot] = column.read(window, unit, start, stop)
        return values

    def _entry(self, window: Window, values: dict[str, Any], number: str) -> Entry:
        assert self.roles is not None
        image = values.pop("image", None)
        if image is None:
            raise MessageError("it has no image")
        name = values.pop("name", None) or number
        if not is_image_name(name):  # else the image is not read
            name += suffix_of(window.read(image.offset, min(_HEAD, image.size)))
        if self.roles.boxes is not None:
            height, width = values.pop(" height", None), values.pop(" width", None)
            values[self.roles.boxes.field.name] = self.roles.boxes.encoded(values, height, width)
        label, class_name = values.pop("label", None), values.pop(" class", None)
        if label is not None and class_name is not None:
            label = Named(label, class_name)
        return Entry(name, image, label, values)

    def _look(self, unit: int, look: Look) -> None:
        """Look at the first records of a file."""
        with self.opened(unit) as file:
            window = Window(file)
            for number, (begin, end) in enumerate(_records(file, window)):
                if number == _LOOKED_AT:
                    break
                try:
                    look.add(window, begin, end)
                except MessageError as error:
                    raise SourceError(f"{printable(file.path)}: {_problem(number, begin, error)}") from error

    def _look_on(self, look: Look) -> None:
        """Look for the first file that has a record."""
        for unit in range(len(self.files)):
            self._look(unit, look)
            if look.seen:
                return


def _problem(number: int, begin: int, error: MessageError) -> str:
    remedy = ""
    if isinstance(error, SeveralError) or "feature" in str(error):
        remedy = ". Name the keys of what is wanted with --key NAME:KIND=KEY"
    return f"record {number}, at byte {begin - 12}: {error}{remedy}"


def _records(file: PackFile, window: Window) -> Iterator[tuple[int, int]]:
    """Yield where the data of each record begin and end."""
    offset = number = 0
    while offset < file.size:
        if file.size - offset < _FRAME:
            raise SourceError(
                f"{printable(file.path)}: cut short: it ends {file.size - offset} bytes after record {number - 1}"
            )
        p = window.at(offset, _HEADER.size)
        size, crc = _HEADER.unpack_from(window.data, p)
        if masked_crc32c(window.data[p : p + 8]) != crc:
            raise SourceError(
                f"{printable(file.path)}: damaged: the size of record {number}, at byte {offset}, does not have its "
                "checksum"
            )
        end = offset + _HEADER.size + size
        if end + 4 > file.size:
            raise SourceError(
                f"{printable(file.path)}: cut short: record {number}, at byte {offset}, would end at byte {end + 4} "
                f"of {file.size}. Fetch it anew"
            )
        window.expect(size)
        yield offset + _HEADER.size, end
        offset, number = end + 4, number + 1


def _checksum_at(window: Window, offset: int) -> int:
    place = window.at(offset, 4)
    return int.from_bytes(window.data[place : place + 4], "little")


def _is_named(name: str) -> bool:
    return _NAMED.search(name) is not None and not name.lower().endswith(_OTHER)


def _begins_record(head: bytes) -> bool:
    return len(head) >= _HEADER.size and masked_crc32c(head[:8]) == _HEADER.unpack_from(head)[1]


def _compression(head: bytes) -> str | None:
    """Return how a file of records is compressed as a whole; None where it is none."""
    for magic, how in _COMPRESSED.items():
        if head.startswith(magic):
            try:
                begin = zlib.decompressobj(47).decompress(head, _HEADER.size)  # 47: either header
            except zlib.error:
                return None
            return how if _begins_record(begin) else None
    return None


def _class_names(directory: Path, key: str) -> list[str] | None:
    """Return the classes that TensorFlow Datasets writes in a file beside the records; None where there is no file."""
    name = f"{key.replace('/', '-')}.labels.txt"
    path = directory / name
    if name_problem(name) or "\\" in name or not os.path.isfile(path):
        return None
    try:
        with open(open_regular(path), encoding="utf-8") as file:
            text = file.read(_MOST_CLASSES)
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{printable(path)}: cannot be read: {error}") from error
    return text.splitlines() or None
