"""What each member of a tar's samples is: the image, the label, or a field; by its extension, as webdataset has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packer._account import Account
from packer._containers.chosen import Chosen, ChosenField, field_name
from packer._containers.tars.membervalues import array_field
from packer._containers.tars.tarheaders import Member
from packer._containers.tars.tarlabels import ALWAYS_LABELS, LONGEST, TarLabel, Values, find_label, said_label
from packer._containers.tars.tarsamples import IMAGES, Sample, last_part
from packer._fields import MOST_FIELDS, OF_SCALARS, Field
from packer.errors import OptionError, SourceError, printable

__all__ = ["Roles", "find_roles"]

_KIND_OF = {
    **dict.fromkeys(("txt", "text", "transcript"), "text"),
    **dict.fromkeys(("json", "jsn"), "json"),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), "int64"),
    **dict.fromkeys(IMAGES, "image"),
    "npy": "array",
}
_PICKLES = ("pyd", "pickle", "pkl", "pth", "pt")
_MASKS = re.compile("mask|(^|[^a-z])seg([^a-z]|$)|segmentation")

_DIRECTORIES = "directory"  # what --key label says where directories are the classes
_ARCHIVES = ("tar", "tgz", "tar.gz", "zip", "7z", "rar")
_SMALL = 1 << 16  # bytes of members by whose values labels are known

Peek = Callable[[Member], bytes]
"""Returns the bytes of a member of a sample that was looked at."""


@dataclass
class Roles:
    """What members are, by their extensions.

    Attributes
    ----------
    images : tuple of str
        Extensions, of which a sample has one: its image.
    label : TarLabel, optional
    directories : bool
        Whether the directories of the images are their classes.
    fields : dict of str to Field
    others_left_out : bool
        Whether members of other extensions are left out, as somebody said what to take; else there must be none.
    notes : list of str
        What a person should know of these.
    """

    images: tuple[str, ...]
    label: TarLabel | None = None
    directories: bool = False
    fields: dict[str, Field] = field(default_factory=dict)
    others_left_out: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def why_unlabeled(self) -> str:
        """Why samples without a label have none."""
        if self.directories:
            return "they lie in no directory"
        return f"they have no {self.label}" if self.label is not None else "they have no member that is a label"


def find_roles(where: str, looked_at: Sequence[Sample], keys: Mapping[str, str], peek: Peek, account: Account) -> Roles:
    """Return what the members are of samples like some that were looked at.

    Parameters
    ----------
    where : str
        What messages begin with.
    looked_at : sequence of Sample
    keys : mapping of str to str
        What somebody said; see `Container.open`. The image may have several extensions: ``jpg;png``; the label may be
        a member of JSON, ``json:category``, or ``directory``.
    peek : callable
    account : Account
        What became of the members.

    Raises
    ------
    SourceError
        If there are no images, or it is not clear which ones; there are pickles; or a key is not there.
    OptionError
        If a key makes no field, or no label.
    """
    there = list(dict.fromkeys(extension for sample in looked_at for extension in sample))
    if not there:
        raise SourceError(f"{where}: no samples in it")
    if (archive := next((one for one in there if one in _ARCHIVES), None)) and not set(there) & set(IMAGES):
        raise SourceError(
            f"{where}: has archives in it, .{archive}, and packer reads none within another. Extract it, and each of "
            "these into a directory of its own name; then convert the directory that these lie in"
        )
    chosen = Chosen.of({name: _extension_said(name, key) for name, key in keys.items()})
    roles = _images(where, looked_at, there) if chosen.image is None else Roles(tuple(chosen.image.split(";")))
    first = {extension: member for sample in reversed(looked_at) for extension, member in sample.items()}

    def peek_first(extension: str) -> bytes:
        return peek(first[extension])

    if keys:
        return _as_said(where, roles, chosen, looked_at, peek, account)
    with_image = [sample for sample in looked_at if set(roles.images) & sample.keys()]
    rest = list(dict.fromkeys(one for sample in with_image for one in sample if one not in roles.images))
    if pickles := [extension for extension in rest if last_part(extension) in _PICKLES]:
        shown = f"has pickles, .{printable(pickles[0])}, which packer runs never"
        raise SourceError(f"{where}: {shown}. {_example(rest, roles)}")
    others = [extension for extension in there if extension not in roles.images]  # of samples without an image, too
    roles.label = find_label(_values(looked_at, others, peek), account)
    if roles.label is None:
        _look_at_directories(roles, looked_at, rest, account)
    taken: set[str] = set()
    for extension in rest:
        if roles.label is None or extension != roles.label.extension:
            roles.fields[extension] = _field(extension, taken, peek_first)
    if len(roles.fields) > MOST_FIELDS:
        raise SourceError(
            f"{where}: samples have {len(roles.fields)} kinds of members, such as .{printable(rest[0])}. "
            f"An extension begins at the first dot of a file's name. {_example(rest[:1], roles)}"
        )
    return roles


def _extension_said(name: str, key: str) -> str:
    """Return a key as extensions are known; the member of JSON that is the label stays as it is."""
    extension, colon, member = key.partition(":") if name == "label" else (key, "", "")
    return extension.lower().removeprefix(".") + colon + member


def _values(looked_at: Sequence[Sample], extensions: Iterable[str], peek: Peek) -> Values:
    """Return what members hold by which labels are known."""
    return {
        extension: [peek(sample[extension]) for sample in looked_at if _is_small(sample.get(extension))]
        for extension in extensions
    }


def _is_small(member: Member | None) -> bool:
    return member is not None and member.size <= (_SMALL if _last_is_json(member.name) else LONGEST)


def _last_is_json(name: str) -> bool:
    return name.lower().endswith((".json", ".jsn"))


def _look_at_directories(roles: Roles, looked_at: Sequence[Sample], rest: Sequence[str], account: Account) -> None:
    """Take directories for classes where samples are images alone; else say that they could be."""
    names = [member.name for sample in looked_at for extension, member in sample.items() if extension in roles.images]
    directories = {name.rpartition("/")[0] for name in names if "/" in name}
    if directories and not rest:
        roles.directories = True  # once all are listed, a note says which part of the paths is the class
    elif 1 < len(directories) <= len(names) // 2 and not all(one.rpartition("/")[2].isdigit() for one in directories):
        account.looks_like_labels("directory", min(directories), f"--key label={_DIRECTORIES}")


def _images(where: str, looked_at: Sequence[Sample], there: Sequence[str]) -> Roles:
    """Find which members are the images."""
    of_each = [found for sample in looked_at if (found := [one for one in IMAGES if one in sample])]
    if any(len(found) > 1 for found in of_each):
        common = [one for one in of_each[0] if all(one in found for found in of_each)]
        others = sorted({one for found in of_each for one in found if one not in common[:1]})
        shown = ", ".join(f".{one}" for one in others)
        if not common:
            raise SourceError(f"{where}: samples have several images: {shown}. Name one: --key image={others[0]}")
        note = f".{common[0]} is the image, and {shown} is beside it; --key image={others[0]} says otherwise"
        return Roles((common[0],), notes=[note])
    if of_each:
        return Roles(IMAGES)
    if long := [extension for extension in there if last_part(extension) in IMAGES]:
        if len(long) == 1:
            return Roles((long[0],))
        shown = ", ".join(f".{printable(one)}" for one in long[:5])
        raise SourceError(f"{where}: samples have several images: {shown}. Name one: --key image={printable(long[0])}")
    shown = ", ".join(f".{printable(one)}" for one in there[:10])
    raise SourceError(f"{where}: no images in it: the first samples have {shown}")


def _as_said(  # noqa: PLR0917
    where: str, roles: Roles, chosen: Chosen, looked_at: Sequence[Sample], peek: Peek, account: Account
) -> Roles:
    """Take what somebody said, and nothing else."""
    there = list(dict.fromkeys(extension for sample in looked_at for extension in sample))
    if chosen.name is not None:
        raise OptionError("--key name=...: a sample in a tar has the name of its image's file")
    directories = chosen.label == _DIRECTORIES and _DIRECTORIES not in there
    for key in chosen.all_keys():
        extensions = [key.partition(":")[0]] if key == chosen.label else key.split(";")
        if not (directories and key == chosen.label) and not any(one in there for one in extensions):
            shown = ", ".join(f".{printable(one)}" for one in there[:10])
            raise SourceError(f"{where}: the first samples have no .{printable(key)}; they have {shown}")
    label = None
    if chosen.label is not None and not directories:
        extension = chosen.label.partition(":")[0]
        if extension in roles.images:
            raise OptionError(f"--key label={extension}: .{extension} is taken for something else already")
        label = said_label(chosen.label, _values(looked_at, [extension], peek))
    roles = Roles(roles.images, label, directories, {}, True)
    of_label = None if label is None or label.member else label.extension
    first = {extension: member for sample in reversed(looked_at) for extension, member in sample.items()}
    for key, one in chosen.by_key().items():
        if key in (*roles.images, of_label):
            raise OptionError(f"{one}: .{key} is taken for something else already")
        roles.fields[key] = _said_field(one, lambda extension: peek(first[extension]))
    taken = {*roles.images, label.extension if label else None, *roles.fields}
    left = [f".{one}" for one in there if one not in taken]
    account.left_out("member", "no --key names them", left, chosen=True)
    return roles


def _said_field(chosen: ChosenField, peek: Callable[[str], bytes]) -> Field:
    key = chosen.key
    if last_part(key) in _PICKLES and chosen.kind != "bytes":
        instead = f"--key {chosen.name}:bytes={key} takes it as it is"
        raise OptionError(f"{chosen}: is a pickle, which packer runs never; {instead}")
    kind = chosen.kind or _kind(key)
    if kind == "scalar" and _kind(key) in OF_SCALARS:
        kind = _kind(key)
    try:
        return array_field(chosen.name, peek(key)) if kind == "array" else chosen._replace(kind=kind).of_kind()
    except ValueError as error:
        raise OptionError(f"{chosen}: {error}") from error


def _field(extension: str, taken: set[str], peek: Callable[[str], bytes]) -> Field:
    """Return the field that an extension becomes when nobody said anything."""
    name = field_name(extension, taken)
    taken.add(name)
    kind = _kind(extension)
    if kind == "array":
        try:
            return array_field(name, peek(extension))
        except ValueError:
            kind = "bytes"  # such as complex numbers, or text
    if extension in ALWAYS_LABELS and not peek(extension).strip().isdigit():
        kind = "text"  # such as several numbers
    return Field(name, "scalar", kind) if kind in OF_SCALARS else Field(name, kind)


def _kind(extension: str) -> str:
    kind = _KIND_OF.get(last_part(extension), "bytes")
    return "mask" if kind == "image" and _MASKS.search(extension) else kind


def _example(extensions: Sequence[str], roles: Roles) -> str:
    """Return what a person may say to take some members alone."""
    image = "jpg" if roles.images == IMAGES else roles.images[0]
    keys = [f"image={image}"]
    for extension in extensions:
        if extension in ALWAYS_LABELS:
            keys.append(f"label={extension}")
        elif last_part(extension) not in _PICKLES:
            keys.append(f"{field_name(extension, ())}={extension}")
    return f"Name what is to be taken: {' '.join(f'--key {printable(key)}' for key in keys[:5])}"
