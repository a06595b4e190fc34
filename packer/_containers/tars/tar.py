"""Tars in the way of webdataset: a sample is the members of one key, and its members' extensions say what each is.

``0001.jpg 0001.cls 0001.json`` are a sample's image, its class id and a field. The bytes of a member are a plain range
of the file. Indexes of other tools that lie beside a tar (``.idx`` of DALI, those of Energon) are not read: whoever
trusts none must read every header anyway, and those are all that a tar's own list of members consists of.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from packer._containers.contract import Container, Entry, Piece, head_of
from packer._containers.imagenames import suffix_of
from packer._containers.tars.membervalues import AS_THEY_ARE, class_of, stored_value
from packer._containers.tars.shardlists import is_shard_list, listed_shards
from packer._containers.tars.tarheaders import Member, Members, Window, begins_tar
from packer._containers.tars.tarroles import IMAGES, Roles, find_roles
from packer._containers.tars.tarsamples import Sample, shown_name, tar_samples
from packer._fields import Field, Stored
from packer.errors import SourceError, printable

__all__ = ["Tar"]

_COMPRESSED = {
    b"\x1f\x8b": "gunzip",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"BZh": "bunzip2",
    b"\xfd7zXZ\0": "unxz",
    b"\x04\x22\x4d\x18": "unlz4",
}
"""What compressed files begin with, and the programs that unpack them."""

_LOOKED_AT = 32  # samples of a file, by which it is known what samples have
_LONGEST_NUMBER = 4096  # bytes of a label
_HEAD = 32  # bytes, by which an image is known


@dataclass(eq=False)
class Tar(Container):
    """Files ``.tar``, or a list of them that wids or timm wrote.

    Attributes
    ----------
    roles : Roles
    remarks : dict of str to (str, int)
        What there is to say of files that were listed; of each the first file, and how many files or samples there are.
    """

    kind = "webdataset"
    suffixes = (".tar", *(f".tar.{end}" for end in ("gz", "zst", "bz2", "xz", "lz4")), ".tgz", ".tzst", ".tbz2", ".txz")

    roles: Roles = field(default_factory=lambda: Roles(IMAGES))
    remarks: dict[str, tuple[str, int]] = field(default_factory=dict)

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return begins_tar(head) or path.name.lower().endswith(cls.suffixes) or is_shard_list(path, head)

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> Tar:
        if len(paths) == 1 and is_shard_list(paths[0], head_of(paths[0])):
            paths = listed_shards(paths[0])
        for path in paths:
            _require_plain(path)
        container = cls.of_files(paths)
        container.roles = container._find_roles(keys)
        container.fields = tuple(container.roles.fields.values())
        container.notes += container.roles.notes
        return container

    def entries(self, unit: int) -> Iterator[Entry]:
        with self.opened(unit) as file:
            window = Window(file)
            members = Members(file, window)
            maker = _Entries(self, unit, window)
            for sample in tar_samples(file.path, members):
                entry = maker.entry(sample)
                if entry is not None:
                    yield entry
            for remark in members.remarks:
                self._remark(remark, unit, 1)
            if members.doubt:
                self.doubts[self.files[unit]] = members.doubt
            if maker.without_image:
                self._remark("samples without an image are left out", unit, maker.without_image)

    def _remark(self, remark: str, unit: int, count: int) -> None:
        first, before = self.remarks.get(remark, (self.files[unit], 0))
        if before:
            self.notes.remove(_note(remark, first, before))
        self.remarks[remark] = (first, before + count)
        self.notes.append(_note(remark, first, before + count))

    def _find_roles(self, keys: Mapping[str, str]) -> Roles:
        """Return what the members are of the first samples in the first, the middle and the last file."""
        looked_at: list[Sample] = []
        first: dict[str, tuple[int, Member]] = {}
        last = len(self.files) - 1
        for unit in sorted({0, last // 2, last}):
            with self.opened(unit) as file:
                for sample in itertools.islice(tar_samples(file.path, Members(file, Window(file))), _LOOKED_AT):
                    looked_at.append(sample)
                    for extension, member in sample.items():
                        first.setdefault(extension, (unit, member))

        def peek(extension: str) -> bytes:
            unit, member = first[extension]
            with self.opened(unit) as file:
                return file.read(member.offset, member.size)

        where = self.root / self.files[0] if len(self.files) == 1 else self.root
        return find_roles(printable(where), looked_at, keys, peek)


class _Entries:
    """Makes entries of the samples in a file."""

    def __init__(self, container: Tar, unit: int, window: Window) -> None:
        self._path, self._unit, self._window = container.root / container.files[unit], unit, window
        self._roles = container.roles
        self._images = frozenset(container.roles.images)
        self.without_image = 0  # samples

    def entry(self, sample: Sample) -> Entry | None:
        """Return the entry of a sample; None where it has no image."""
        roles, unit = self._roles, self._unit
        image: Member | None = None
        label: int | str | None = None
        values: dict[str, Piece | Stored] = {}
        for extension, member in sample.items():
            if extension in self._images:
                if image is not None:
                    self._fail(member, f"is another image beside {printable(image.name)}. {self._say()}")
                image = member
            elif extension == roles.label:
                label = self._label(member)
            elif (field := roles.fields.get(extension)) is not None:
                values[field.name] = self._value(field, member)
            elif not roles.others_left_out:
                self._fail(member, f"the first samples have no .{printable(extension)}. {self._say()}")
        if image is None:
            self._leave_out(sample)
            return None
        return Entry(self._name(image), Piece(unit, image.offset, image.size), label, values)

    def _leave_out(self, sample: Sample) -> None:
        member = next(iter(sample.values()))
        if any(extension.rpartition(".")[2] in IMAGES for extension in sample):
            images = ", .".join(map(printable, self._roles.images))
            self._fail(member, f"the sample has images, but no .{images}. {self._say()}")
        self.without_image += 1

    def _name(self, image: Member) -> str:
        name = shown_name(image)
        if name.lower().endswith((".img", ".image")):
            name += suffix_of(self._window.read(image.offset, min(_HEAD, image.size)))
        return name

    def _label(self, member: Member) -> int | str:
        if member.size > _LONGEST_NUMBER:
            self._fail(member, f"has {member.size:,} bytes, which are no label. {self._say()}")
        try:
            return class_of(bytes(self._window.read(member.offset, member.size)))
        except ValueError as error:
            self._fail(member, f"{error}. {self._say()}")

    def _value(self, field: Field, member: Member) -> Piece | Stored:
        if field.kind in AS_THEY_ARE:
            return Piece(self._unit, member.offset, member.size)
        try:
            return stored_value(field, bytes(self._window.read(member.offset, member.size)))
        except ValueError as error:
            extension = member.name.rpartition("/")[2].partition(".")[2].lower()
            self._fail(member, f"{error}. --key {field.name}:bytes={printable(extension)} takes it as it is")

    def _say(self) -> str:
        image = "jpg" if self._roles.images == IMAGES else self._roles.images[0]
        return f"Name with --key what is to be taken, such as --key image={image} --key label=cls"

    def _fail(self, member: Member, why: str) -> NoReturn:
        raise SourceError(f"{printable(self._path)}: byte {member.header}: {printable(member.name)}: {why}")


def _note(remark: str, first: str, count: int) -> str:
    return f"{remark}: {count}, at first in {printable(first)}"


def _require_plain(path: Path) -> None:
    """Raise SourceError where a file is compressed."""
    head = head_of(path)
    program = next((program for magic, program in _COMPRESSED.items() if head.startswith(magic)), None)
    if program is not None:
        why = "is compressed, so that no member can be read by itself"
        raise SourceError(f"{printable(path)}: {why}. Unpack it to a .tar first: {program} {printable(path.name)}")
