"""What belongs to a sample that was stored as one value: its image, its label, and its fields.

A tuple's members have their places as keys: 0, 1, 2, ... A value that is nothing but bytes is the member 0.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer._containers.budget import Budget
from packer._containers.chosen import Chosen, field_name
from packer._containers.contract import Piece
from packer._containers.imagenames import suffix_of
from packer._containers.lmdbs.located import Array, Blob
from packer._fields import DTYPES, Field, Stored
from packer._storage.packfile import PackFile
from packer.errors import OptionError, SourceError, printable

__all__ = ["Members", "image_of", "members_of"]

_IMAGES = ("img", "image", "jpg", "jpeg", "png")
_LABELS = ("label", "target", "cls", "class", "y", "1")
_MASKS = re.compile("mask|seg", re.IGNORECASE)
_MOST_DEPTH = 50  # of what becomes JSON
_MOST_TEXT = 1 << 24  # bytes of such
_SHOWN = 100  # characters of a key, and keys, in a message


@dataclass
class Members:
    """Which members of a value are what.

    Attributes
    ----------
    image : str
    label : str or None
    fields : tuple of Field
    of_fields : dict of str to str
        The key of each field's member, by the field's name.
    label_type : {"class", "float"}
    notes : list of str
    """

    image: str
    label: str | None
    fields: tuple[Field, ...]
    of_fields: dict[str, str]
    label_type: str
    notes: list[str]
    all_taken: bool

    @classmethod
    def of(cls, found: Sequence[Mapping[str, Any]], keys: Mapping[str, str], path: Path) -> Members:
        """Choose members by what some samples have, or as a person said.

        Raises
        ------
        SourceError
            If there is no image, or a key is not there.
        OptionError
            If what a person said makes no fields.
        """
        have: dict[str, Any] = {}
        for one in found:
            for key, value in one.items():
                if have.get(key) is None:
                    have[key] = value
        chosen = Chosen.of(keys)
        if chosen.name is not None:
            raise OptionError("--key name=...: a sample in an LMDB file has the name that its key is")
        for key in chosen.all_keys():
            if key not in have:
                raise SourceError(f"{printable(path)}: its samples have no {key!r}, but {_listed(map(repr, have))}")
        images = [key for key, value in have.items() if image_of(value) is not None]
        images.sort(key=lambda key: key not in _IMAGES)
        image = chosen.image or next(iter(images), None)
        if image is None:
            raise SourceError(f"{printable(path)}: its samples have no member that is an encoded image: {_said(have)}")
        labels = [key for key in _LABELS if key != image and _is_label(have.get(key))]
        label = chosen.label if keys else next(iter(labels), None)
        rest = {key: value for key, value in have.items() if key not in (image, label)}
        try:
            fields = _given(chosen, have) if keys else _guessed(rest)
        except ValueError as error:
            raise OptionError(f"{printable(path)}: {error}") from error
        left = [key for key in rest if key not in fields.values()]
        notes = [f"left out of each sample: {_listed(map(printable, left))}"] if left else []
        is_float = label is not None and isinstance(have[label], float)
        return cls(
            image,
            label,
            tuple(fields),
            {of.name: key for of, key in fields.items()},
            "float" if is_float else "class",
            notes,
            not keys,
        )

    def image_in(self, members: Mapping[str, Any]) -> Blob | bytes:
        """Return the bytes of a sample's image; ValueError where it has none."""
        found = image_of(members.get(self.image))
        if found is None:
            raise ValueError(f"its {self.image!r} is no encoded image")
        return found

    def label_in(self, members: Mapping[str, Any], file: PackFile, budget: Budget) -> int | float | str | None:
        """Return a sample's label; ValueError where it is something else, or larger than the budget."""
        value = members.get(self.label) if self.label is not None else None
        if isinstance(value, Array):
            value = _one(value, file)
        if isinstance(value, (Blob, bytes)):
            value = _bytes(value, file, budget).decode("utf-8")
        if self.label_type == "float" and isinstance(value, int):
            return float(value)
        if value is None or isinstance(value, str) or type(value) is int:
            return value
        if isinstance(value, float) and self.label_type == "float":
            return value
        raise ValueError(f"its label is {type(value).__name__}, and no number or text")

    def values_in(
        self, members: Mapping[str, Any], unit: int, file: PackFile, budget: Budget
    ) -> dict[str, Piece | Stored]:
        """Return the values of a sample's fields; ValueError where one is none, or all are larger than the budget."""
        values: dict[str, Piece | Stored] = {}
        for field in self.fields:
            member = members.get(self.of_fields[field.name])
            if member is None:
                continue
            try:
                values[field.name] = _stored(field, member, unit, file, budget)
            except (ValueError, TypeError) as error:
                key = self.of_fields[field.name][:_SHOWN]
                raise ValueError(f"its {key!r} is no value of a field: {error}") from error
        if self.all_taken:
            known = {self.image, self.label, *self.of_fields.values()}
            if unknown := [key for key, value in members.items() if key not in known and value is not None]:
                raise ValueError(
                    f"it has {unknown[0][:_SHOWN]!r}, which other samples do not have. Name the keys with --key"
                )
        return values


def members_of(value: Any) -> dict[str, Any]:
    """Return the members of a value by their keys; of lists of one thing that thing."""
    if isinstance(value, dict):
        return {str(key): _alone(member) for key, member in value.items()}
    if isinstance(value, (tuple, list)) and not isinstance(value, (Blob, Array)):
        return {str(number): _alone(member) for number, member in enumerate(value[:1000])}
    return {"0": value}


def image_of(value: Any) -> Blob | bytes | None:
    """Return the bytes of an encoded image, also of an array of bytes that is one; None of anything else."""
    if isinstance(value, Array):
        value = value.elements if value.dtype[-2:] == "u1" and len(value.shape) == 1 else None
    if isinstance(value, bytes):
        return value if suffix_of(value[:16]) else None
    return value if isinstance(value, Blob) and suffix_of(value.head) else None


def _alone(value: Any) -> Any:
    """Return what a collated list of one image holds; any other value as it is."""
    if isinstance(value, (tuple, list)) and not isinstance(value, (Blob, Array)) and len(value) == 1:
        return value[0] if image_of(value[0]) is not None else value
    return value


def _is_label(value: Any) -> bool:
    if isinstance(value, Array):
        return value.dtype[-2] in "iu" and all(side == 1 for side in value.shape)
    return isinstance(value, (int, float, str)) and not isinstance(value, bool)


def _said(have: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{printable(key[:_SHOWN])} is {type(value).__name__.lower()}" for key, value in list(have.items())[:10]
    )


def _listed(keys: Iterable[str]) -> str:
    """Return keys as a message lists them."""
    shown = [key[:_SHOWN] for key in itertools.islice(keys, _SHOWN + 1)]
    return ", ".join(shown[:_SHOWN]) + (", …" if len(shown) > _SHOWN else "")


def _given(chosen: Chosen, have: Mapping[str, Any]) -> dict[Field, str]:
    """Return the fields that a person named, and their keys."""
    fields = {}
    for one in chosen.fields:
        field = _field(one.name, have[one.key])
        if one.kind and one.kind != (field and field.kind):
            field = one.of_kind()
        if field is None:
            raise ValueError(f"of what kind {one.key!r} is cannot be told. Say it: --key {one.name}:KIND={one.key}")
        fields[field] = one.key
    return fields


def _guessed(have: Mapping[str, Any]) -> dict[Field, str]:
    fields: dict[Field, str] = {}
    for key, value in have.items():
        own = f"item{key}" if key[:1].isdigit() else key or "item"
        field = _field(field_name(own, [other.name for other in fields]), value)
        if field is not None:
            fields[field] = key
    return fields


def _field(name: str, value: Any) -> Field | None:
    """Return the field that has such values; None where no kind has."""
    if isinstance(value, Array):
        dtype = {stored[1:]: dtype for dtype, stored in DTYPES.items()}.get(value.dtype.lstrip("<>|="))
        if image_of(value) is None:
            return None if dtype is None else Field(name, "array", dtype, len(value.shape))
    if image_of(value) is not None:
        return Field(name, "mask" if _MASKS.search(name) else "image")
    scalars = {bool: "bool", int: "int64", float: "float64"}
    if type(value) in scalars:
        return Field(name, "scalar", scalars[type(value)])
    kinds = ((str, "text"), ((Blob, bytes), "bytes"), ((list, tuple, dict), "json"))
    return next((Field(name, kind) for types, kind in kinds if isinstance(value, types)), None)


def _stored(field: Field, value: Any, unit: int, file: PackFile, budget: Budget) -> Piece | Stored:
    if isinstance(value, (list, tuple, dict)) and not isinstance(value, (Array, Blob)):
        return field.encode(_json(value, file, budget))
    elements = value.elements if isinstance(value, Array) else value
    if isinstance(elements, (Blob, bytes, str)):
        budget.spend(elements.size if isinstance(elements, Blob) else len(elements))
    if field.kind in ("image", "mask", "bytes", "text") and isinstance(value, (Array, Blob)):
        return Piece(unit, elements.offset, elements.size) if isinstance(elements, Blob) else elements
    if field.kind in ("image", "mask"):
        if not isinstance(value, bytes):
            raise ValueError(f"{type(value).__name__} is no image")
        return value
    if field.kind == "array" and isinstance(value, Array):
        return field.encode(value.value(file))
    if isinstance(value, Array):
        return field.encode(_one(value, file))
    return field.encode(_json(value, file, budget) if field.kind == "json" else value)


def _json(value: Any, file: PackFile, budget: Budget, depth: int = 0) -> Any:
    """Return a value as JSON can say it; ValueError where it cannot, or becomes larger than the budget."""
    if depth > _MOST_DEPTH:
        raise ValueError(f"lists in lists, more than {_MOST_DEPTH} deep")
    if isinstance(value, Array):
        size = value.elements.size if isinstance(value.elements, Blob) else len(value.elements)
        if size > _MOST_TEXT:
            raise ValueError("a large array in a list")
        budget.spend(size)
        return value.value(file).tolist()
    if isinstance(value, (Blob, bytes)):
        return _bytes(value, file, budget).decode("utf-8")
    budget.spend(len(value) if isinstance(value, str) else 0)
    if isinstance(value, dict):
        return {_key(key, budget): _json(one, file, budget, depth + 1) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(one, file, budget, depth + 1) for one in value]
    return value


def _key(key: Any, budget: Budget) -> str:
    text = str(key)
    budget.spend(len(text), things=0)
    return text


def _bytes(value: Blob | bytes, file: PackFile, budget: Budget) -> bytes:
    size = value.size if isinstance(value, Blob) else len(value)
    if size > _MOST_TEXT:
        raise ValueError(f"a text of {size} bytes")
    budget.spend(size)
    return value.data(file) if isinstance(value, Blob) else value


def _one(value: Array, file: PackFile) -> int | float:
    """Return the one element of an array; ValueError where there are others."""
    if any(side != 1 for side in value.shape):
        raise ValueError(f"it is an array of {value.shape}, and no number")
    number: int | float = value.value(file).reshape(-1)[0].item()
    return number
