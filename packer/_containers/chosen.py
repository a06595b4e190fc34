"""What a person chose with ``--key NAME[:KIND]=KEY``: the keys of samples' images, labels and names, and of fields."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from packer._fields import KINDS, OF_SCALARS, RESERVED, Field
from packer.errors import OptionError

__all__ = ["Chosen", "ChosenField", "field_name", "keys_said"]

_ROLES = ("image", "label", "name")


class ChosenField(NamedTuple):
    """A field that a person wants.

    Attributes
    ----------
    name : str
    kind : str
        A kind of field, or the dtype of a scalar; empty where nobody said one.
    key : str
        The container's own.
    """

    name: str
    kind: str
    key: str

    def __str__(self) -> str:
        return f"--key {self.name}{':' * bool(self.kind)}{self.kind}={self.key}"

    def of_kind(self) -> Field:
        """Return the field by its kind alone; ValueError where that does not tell all."""
        if self.kind == "scalar":
            raise ValueError(f"say its dtype, such as --key {self.name}:int64={self.key}: {', '.join(OF_SCALARS)}")
        if self.kind == "array":
            raise ValueError("its values are no arrays")
        return Field(self.name, "scalar", self.kind) if self.kind in OF_SCALARS else Field(self.name, self.kind)


def field_name(key: str, taken: Collection[str]) -> str:
    """Return the name of the field that a container's own key becomes where nobody named it; none of those taken."""
    name = re.sub(r"\W|^(?=[0-9])", "_", key, flags=re.ASCII)[:56] or "_"
    name += "_" * (name in RESERVED)
    numbers = itertools.count(2)
    unique = name
    while unique in taken:
        unique = f"{name}_{next(numbers)}"
    return unique


def keys_said(said: Iterable[str]) -> dict[str, str]:
    """Return the keys by what they become, of texts ``NAME[:KIND]=KEY``; OptionError where one is none."""
    keys: dict[str, str] = {}
    for text in said:
        name, sign, key = text.partition("=")
        if not (name and sign and key):
            raise OptionError(f"--key {text}: say NAME=KEY or NAME:KIND=KEY, such as image=image/encoded")
        if name in keys:
            raise OptionError("--key names one thing twice")
        keys[name] = key
    return keys


@dataclass(frozen=True)
class Chosen:
    """What a person chose: nothing else is taken.

    Attributes
    ----------
    image, label, name : str, optional
        The container's keys of these.
    fields : tuple of ChosenField
        No two have the same name.
    """

    image: str | None = None
    label: str | None = None
    name: str | None = None
    fields: tuple[ChosenField, ...] = ()

    @classmethod
    def of(cls, keys: Mapping[str, str]) -> Chosen:
        """Return what keys say, which `Container.open` takes.

        Raises
        ------
        OptionError
            If there is no such kind, no field may have such a name, or two have it.
        """
        roles = {name: keys[name] for name in _ROLES if name in keys}
        fields = [ChosenField(*said.partition(":")[::2], key) for said, key in keys.items() if said not in roles]
        for number, field in enumerate(fields):
            if field.name in _ROLES:
                raise OptionError(f"{field}: a kind is for fields, and the {field.name} is none")
            if field.kind and field.kind not in (*KINDS, *OF_SCALARS):
                raise OptionError(f"{field}: a kind is one of {', '.join([*KINDS, *OF_SCALARS])}")
            if field.name in [other.name for other in fields[:number]]:
                raise OptionError(f"{field}: the field {field.name} is said twice")
            try:
                Field(field.name, "bytes")
            except ValueError as error:
                raise OptionError(f"{field}: {error}") from error
        return cls(**roles, fields=tuple(fields))

    def all_keys(self) -> list[str]:
        """Return all keys that were said."""
        roles = (key for key in (self.image, self.label, self.name) if key is not None)
        return [*roles, *(field.key for field in self.fields)]

    def by_key(self) -> dict[str, ChosenField]:
        """Return the fields by their keys; OptionError where two are of one, for containers of which a key has one."""
        found: dict[str, ChosenField] = {}
        for field in self.fields:
            if (other := found.setdefault(field.key, field)) is not field:
                raise OptionError(f"{field}: {field.key} is the field {other.name} already")
        return found
