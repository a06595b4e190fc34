"""Tars in the way of webdataset: a sample is the members of one key, and its members' extensions say what each is.

``0001.jpg 0001.cls 0001.json`` are a sample's image, its class id and a field. The bytes of a member are a plain range
of the file. Indexes of other tools that lie beside a tar (``.idx`` of DALI, those of Energon) are not read: whoever
trusts none must read every header anyway, and those are all that a tar's own list of members consists of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from packer._containers.contract import Container, Entry, Piece, head_of
from packer._containers.imagenames import suffix_of
from packer._containers.tars.membervalues import AS_THEY_ARE, stored_value
from packer._containers.tars.shardlists import is_shard_list, listed_shards
from packer._containers.tars.tarheaders import Member, Members, Window, begins_tar
from packer._containers.tars.tarroles import Roles, find_roles
from packer._containers.tars.tarsamples import IMAGES, Sample, SampleReader, last_part
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
_HEAD = 32  # bytes, by which an image is known
_REMEMBERED = 100_000  # samples that lack something


@dataclass(eq=False)
class Tar(Container):
    """Files ``.tar``, or a list of them that wids or timm wrote.

    Attributes
    ----------
    roles : Roles
    remarks : dict of str to (str, int)
        What there is to say of files that were listed; of each the first file, and how many files there are.
    first_dot : bool
        Whether a key ends at the first dot of a file's name in any case: somebody said an extension with dots.
    apart : bool
        Whether members of one sample lie apart.
    lacking : dict of str to dict of str to str
        The keys of samples that lack an image or a label, and the file that each is in.
    """

    kind = "webdataset"
    suffixes = (".tar", *(f".tar.{end}" for end in ("gz", "zst", "bz2", "xz", "lz4")), ".tgz", ".tzst", ".tbz2", ".txz")

    roles: Roles = field(default_factory=lambda: Roles(IMAGES))
    remarks: dict[str, tuple[str, int]] = field(default_factory=dict)
    first_dot: bool = False
    apart: bool = False
    lacking: dict[str, dict[str, str]] = field(default_factory=lambda: {"image": {}, "label": {}})

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
        container.first_dot = any("." in key.partition(":")[0].removeprefix(".") for key in keys.values())
        container.roles = roles = container._find_roles(keys)
        container.fields = tuple(roles.fields.values())
        container.directories_are_classes = roles.directories
        container.label_type = "float" if roles.label is not None and roles.label.is_float else "class"
        container.why_unlabeled = roles.why_unlabeled
        container.notes += roles.notes
        return container

    def entries(self, unit: int) -> Iterator[Entry]:
        with self.opened(unit) as file:
            window = Window(file)
            members = Members(file, window)
            reader = SampleReader(file.path, members, window, first_dot=self.first_dot)
            maker = _Entries(self, unit, window)
            for sample in reader.gathered() if self.apart else reader.following():
                entry = maker.entry(sample)
                if entry is not None:
                    yield entry
            for remark in [*members.remarks, *reader.notes]:
                self._remark(remark, unit, 1)
            if members.doubt:
                self.doubts[self.files[unit]] = members.doubt
            self.account.update(reader.account)

    def lacks(self, what: str, key: str, unit: int) -> None:
        """Note a sample without an image or a label; SourceError where what it lacks lies in another file."""
        other = "label" if what == "image" else "image"
        if key in self.lacking[other] and (there := self.lacking[other][key]) != self.files[unit]:
            raise SourceError(
                f"{printable(self.root / self.files[unit])}: the members of sample {printable(key)} lie in this file "
                f"and in {printable(there)}: have all members of a sample in one tar, one after the other"
            )
        if len(self.lacking[what]) < _REMEMBERED:
            self.lacking[what][key] = self.files[unit]

    def _remark(self, remark: str, unit: int, count: int) -> None:
        first, before = self.remarks.get(remark, (self.files[unit], 0))
        if before:
            self.notes.remove(_note(remark, first, before))
        self.remarks[remark] = (first, before + count)
        self.notes.append(_note(remark, first, before + count))

    def _find_roles(self, keys: Mapping[str, str]) -> Roles:
        """Return what the members are of the first samples in the first, the middle and the last file."""
        last = len(self.files) - 1
        units = sorted({0, last // 2, last})
        looked_at = {unit: self._first(unit) for unit in units}
        if _may_lie_apart([sample for samples in looked_at.values() for sample in samples]):
            gathered = {unit: self._gathered(unit) for unit in units}
            if any(gathered.values()):
                self.apart = True
                self.notes.append("members of one sample lie apart; they are joined by their names")
                looked_at = {unit: samples or looked_at[unit] for unit, samples in gathered.items()}
        unit_of = {id(member): unit for unit, of in looked_at.items() for sample in of for member in sample.values()}

        def peek(member: Member) -> bytes:
            with self.opened(unit_of[id(member)]) as file:
                return file.read(member.offset, member.size)

        where = self.root / self.files[0] if len(self.files) == 1 else self.root
        samples = [sample for of in looked_at.values() for sample in of]
        return find_roles(printable(where), samples, keys, peek, self.account)

    def _first(self, unit: int) -> list[Sample]:
        with self.opened(unit) as file:
            window = Window(file)
            return SampleReader(file.path, Members(file, window), window, first_dot=self.first_dot).first(_LOOKED_AT)

    def _gathered(self, unit: int) -> list[Sample]:
        """Return the first samples of a file whose members lie apart; none of any other."""
        with self.opened(unit) as file:
            window = Window(file)
            reader = SampleReader(file.path, Members(file, window), window, first_dot=self.first_dot)
            samples = reader.gathered()[:_LOOKED_AT]
            return samples if reader.apart else []


def _may_lie_apart(samples: Sequence[Sample]) -> bool:
    """Tell whether first samples are such as those of a tar whose members lie apart: no images, or images alone."""
    images = [any(last_part(extension) in IMAGES for extension in sample) for sample in samples]
    return not all(images) or all(len(sample) == 1 for sample in samples)


class _Entries:
    """Makes entries of the samples in a file."""

    def __init__(self, container: Tar, unit: int, window: Window) -> None:
        self._container = container
        self._path, self._unit, self._window = container.root / container.files[unit], unit, window
        self._roles = container.roles
        self._images = frozenset(container.roles.images)

    def entry(self, sample: Sample) -> Entry | None:
        """Return the entry of a sample; None where it has no image."""
        image = self._image(sample)
        if image is None:
            return None
        try:
            label = self._label(sample, image)
            values = self._values(sample)
        except _MemberError as error:
            return Entry(self._name(image), b"", problem=str(error))
        return Entry(self._name(image), Piece(self._unit, image.offset, image.size), label, values)

    def _image(self, sample: Sample) -> Member | None:
        images = [member for extension, member in sample.items() if extension in self._images]
        if len(images) > 1:
            self._fail(images[1], f"is another image beside {printable(images[0].name)}. {self._say()}")
        if not images:
            self._leave_out(sample)
        return images[0] if images else None

    def _leave_out(self, sample: Sample) -> None:
        member = next(iter(sample.values()))
        if any(last_part(extension) in IMAGES for extension in sample):
            images = ", .".join(map(printable, self._roles.images))
            self._fail(member, f"the sample has images, but no .{images}. {self._say()}")
        key = _key(member)
        account, label = self._container.account, self._roles.label
        if not any(one in self._roles.fields or (label and one == label.extension) for one in sample):
            account.not_looked_at("member", "they belong to no image", [one.name for one in sample.values()])
            return
        self._container.lacks("image", key, self._unit)
        account.left_out("sample", "they have no image", [key])

    def _label(self, sample: Sample, image: Member) -> int | float | str | None:
        roles = self._roles
        if roles.directories:
            return image.name.rpartition("/")[0] or None
        member = sample.get(roles.label.extension) if roles.label is not None else None
        if roles.label is None or member is None:
            if roles.label is not None:
                self._container.lacks("label", _key(image), self._unit)
            return None
        if member.size > roles.label.longest:
            raise self._error(member, f"has {member.size:,} bytes, which are no label")
        try:
            return roles.label.of(bytes(self._window.read(member.offset, member.size)))
        except ValueError as error:
            raise self._error(member, str(error)) from error

    def _values(self, sample: Sample) -> dict[str, Piece | Stored]:
        roles, values = self._roles, dict[str, Piece | Stored]()
        for extension, member in sample.items():
            if (field := roles.fields.get(extension)) is not None:
                values[field.name] = self._value(field, member)
            elif not (
                roles.others_left_out
                or extension in self._images
                or (roles.label is not None and extension == roles.label.extension)
            ):
                self._fail(member, f"the first samples have no .{printable(extension)}. {self._say()}")
        return values

    def _name(self, image: Member) -> str:
        name = image.name
        if name.lower().endswith((".img", ".image")):
            name += suffix_of(self._window.read(image.offset, min(_HEAD, image.size)))
        return name

    def _value(self, field: Field, member: Member) -> Piece | Stored:
        if field.kind in AS_THEY_ARE:
            return Piece(self._unit, member.offset, member.size)
        try:
            return stored_value(field, bytes(self._window.read(member.offset, member.size)))
        except ValueError as error:
            extension = member.name.rpartition("/")[2].partition(".")[2].lower()
            raise self._error(
                member, f"{error}. --key {field.name}:bytes={printable(extension)} takes it as it is"
            ) from error

    def _say(self) -> str:
        image = "jpg" if self._roles.images == IMAGES else self._roles.images[0]
        return f"Name with --key what is to be taken, such as --key image={image} --key label=cls"

    def _fail(self, member: Member, why: str) -> NoReturn:
        raise SourceError(f"{printable(self._path)}: {self._error(member, why)}")

    def _error(self, member: Member, why: str) -> _MemberError:
        return _MemberError(f"byte {member.header}: {printable(member.name)}: {why}")


class _MemberError(ValueError):
    """A member of a sample has no value of its kind."""


def _key(member: Member) -> str:
    name = member.name
    return name[: name.find(".", name.rfind("/") + 1)]


def _note(remark: str, first: str, count: int) -> str:
    return f"{remark}: {count}, at first in {printable(first)}"


def _require_plain(path: Path) -> None:
    """Raise SourceError where a file is compressed."""
    head = head_of(path)
    program = next((program for magic, program in _COMPRESSED.items() if head.startswith(magic)), None)
    if program is not None:
        why = "is compressed, so that no member can be read by itself"
        raise SourceError(f"{printable(path)}: {why}. Unpack it to a .tar first: {program} {printable(path.name)}")
