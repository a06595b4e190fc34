"""What each member of a tar's samples is: the image, the label, or a field; by its extension, as webdataset has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from packer._containers.chosen import Chosen, ChosenField, field_name
from packer._containers.tars.membervalues import array_field
from packer._containers.tars.tarsamples import Sample
from packer._fields import MOST_FIELDS, OF_SCALARS, Field
from packer.errors import OptionError, SourceError, printable

__all__ = ["IMAGES", "Roles", "find_roles"]

IMAGES = (
    *("jpg", "jpeg", "jpe", "jfif", "webp", "png", "bmp", "tif", "tiff"),
    *("ppm", "pgm", "pbm", "pnm", "gif", "img", "image"),
)
"""The extensions of images; of several in one sample the first of these is the image."""

_LABELS = ("cls", "class")
_KIND_OF = {
    **dict.fromkeys(("txt", "text", "transcript"), "text"),
    **dict.fromkeys(("json", "jsn"), "json"),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), "int64"),
    **dict.fromkeys(IMAGES, "image"),
    "npy": "array",
}
_PICKLES = ("pyd", "pickle", "pkl", "pth", "pt")
_MASKS = re.compile("mask|(^|[^a-z])seg([^a-z]|$)|segmentation")

Peek = Callable[[str], bytes]
"""Returns the bytes of the first member that has an extension."""


@dataclass
class Roles:
    """What members are, by their extensions.

    Attributes
    ----------
    images : tuple of str
        Extensions, of which a sample has one: its image.
    label : str, optional
    fields : dict of str to Field
    others_left_out : bool
        Whether members of other extensions are left out, as somebody said what to take; else there must be none.
    notes : list of str
        What a person should know of these.
    """

    images: tuple[str, ...]
    label: str | None = None
    fields: dict[str, Field] = field(default_factory=dict)
    others_left_out: bool = False
    notes: list[str] = field(default_factory=list)


def find_roles(where: str, looked_at: Sequence[Sample], keys: Mapping[str, str], peek: Peek) -> Roles:
    """Return what the members are of samples like some that were looked at.

    Parameters
    ----------
    where : str
        What messages begin with.
    looked_at : sequence of Sample
    keys : mapping of str to str
        What somebody said; see `Container.open`. The image may have several extensions: ``jpg;png``.
    peek : callable

    Raises
    ------
    SourceError
        If there are no images, or it is not clear which ones; there are pickles; or a key is not there.
    OptionError
        If a key makes no field.
    """
    there = list(dict.fromkeys(extension for sample in looked_at for extension in sample))
    if not there:
        raise SourceError(f"{where}: no samples in it")
    chosen = Chosen.of({name: key.lower().removeprefix(".") for name, key in keys.items()})
    roles = _images(where, looked_at, there) if chosen.image is None else Roles(tuple(chosen.image.split(";")))
    if keys:
        return _as_said(where, roles, chosen, there, peek)
    rest = [extension for extension in there if extension not in roles.images]
    if pickles := [extension for extension in rest if _last(extension) in _PICKLES]:
        shown = f"has pickles, .{printable(pickles[0])}, which packer runs never"
        raise SourceError(f"{where}: {shown}. {_example(rest, roles)}")
    roles.label = next((extension for extension in _LABELS if extension in rest), None)
    if roles.label is None:
        roles.notes.append("samples have no label, as they have no .cls")
    taken: set[str] = set()
    for extension in rest:
        if extension != roles.label:
            roles.fields[extension] = _field(extension, taken, peek)
    if len(roles.fields) > MOST_FIELDS:
        raise SourceError(
            f"{where}: samples have {len(roles.fields)} kinds of members, such as .{printable(rest[0])}. "
            f"An extension begins at the first dot of a file's name. {_example(rest[:1], roles)}"
        )
    return roles


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
    if long := [extension for extension in there if _last(extension) in IMAGES]:
        if len(long) == 1:
            return Roles((long[0],))
        shown = ", ".join(f".{printable(one)}" for one in long[:5])
        raise SourceError(f"{where}: samples have several images: {shown}. Name one: --key image={printable(long[0])}")
    shown = ", ".join(f".{printable(one)}" for one in there[:10])
    raise SourceError(f"{where}: no images in it: the first samples have {shown}")


def _as_said(where: str, roles: Roles, chosen: Chosen, there: Sequence[str], peek: Peek) -> Roles:
    """Take what somebody said, and nothing else."""
    if chosen.name is not None:
        raise OptionError("--key name=...: a sample in a tar has the name of its image's file")
    for key in chosen.all_keys():
        if not any(extension in there for extension in key.split(";")):
            shown = ", ".join(f".{printable(one)}" for one in there[:10])
            raise SourceError(f"{where}: the first samples have no .{printable(key)}; they have {shown}")
    notes: list[str] = []
    roles = Roles(roles.images, chosen.label, {}, True, notes)
    if roles.label in roles.images:
        raise OptionError(f"--key label={roles.label}: .{roles.label} is taken for something else already")
    for key, one in chosen.by_key().items():
        if key in (*roles.images, roles.label):
            raise OptionError(f"{one}: .{key} is taken for something else already")
        roles.fields[key] = _said_field(one, peek)
    taken = {*roles.images, roles.label, *roles.fields}
    if left := [f".{printable(one)}" for one in there if one not in taken]:
        notes.append(f"left out, as no --key names them: {', '.join(left[:10])}{', …' * (len(left) > 10)}")
    return roles


def _said_field(chosen: ChosenField, peek: Peek) -> Field:
    key = chosen.key
    if _last(key) in _PICKLES and chosen.kind != "bytes":
        instead = f"--key {chosen.name}:bytes={key} takes it as it is"
        raise OptionError(f"{chosen}: is a pickle, which packer runs never; {instead}")
    kind = chosen.kind or _kind(key)
    if kind == "scalar" and _kind(key) in OF_SCALARS:
        kind = _kind(key)
    try:
        return array_field(chosen.name, peek(key)) if kind == "array" else chosen._replace(kind=kind).of_kind()
    except ValueError as error:
        raise OptionError(f"{chosen}: {error}") from error


def _field(extension: str, taken: set[str], peek: Peek) -> Field:
    """Return the field that an extension becomes when nobody said anything."""
    name = field_name(extension, taken)
    taken.add(name)
    kind = _kind(extension)
    if kind == "array":
        try:
            return array_field(name, peek(extension))
        except ValueError:
            kind = "bytes"  # such as complex numbers, or text
    return Field(name, "scalar", kind) if kind in OF_SCALARS else Field(name, kind)


def _kind(extension: str) -> str:
    kind = _KIND_OF.get(_last(extension), "bytes")
    return "mask" if kind == "image" and _MASKS.search(extension) else kind


def _last(extension: str) -> str:
    return extension.rpartition(".")[2]


def _example(extensions: Sequence[str], roles: Roles) -> str:
    """Return what a person may say to take some members alone."""
    image = "jpg" if roles.images == IMAGES else roles.images[0]
    keys = [f"image={image}"]
    for extension in extensions:
        if extension in _LABELS:
            keys.append(f"label={extension}")
        elif _last(extension) not in _PICKLES:
            keys.append(f"{field_name(extension, ())}={extension}")
    return f"Name what is to be taken: {' '.join(f'--key {printable(key)}' for key in keys[:5])}"
