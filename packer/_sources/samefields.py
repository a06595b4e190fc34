"""Whether the fields of several packs are the same, so that one pack can hold the values of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from packer._fields import Field
from packer._formats import Reader
from packer.errors import SourceError, printable

__all__ = ["same_fields"]

_SHOWN = 5


def same_fields(readers: Sequence[Reader]) -> tuple[Field, ...]:
    """Return the fields that packs have, in the order of the first pack.

    Where the values of a field came from different files, its template is left out.

    Raises
    ------
    SourceError
        If a pack lacks a field that another one has, or two differ in what a field is.
    """
    fields = list(readers[0].manifest.fields)
    for reader in readers[1:]:
        _require_same_names(readers[0], reader)
        for place, one in enumerate(fields):
            other = reader.fields[one.name]
            if one != other:
                fields[place] = replace(one, file="")
                _require_same_kind(readers[0], one, reader, other)
    return tuple(fields)


def _require_same_names(first: Reader, other: Reader) -> None:
    for has, lacks in ((first, other), (other, first)):
        missing = [name for name in has.fields if name not in lacks.fields]
        if missing:
            which = ", ".join(missing[:_SHOWN]) + (", …" if len(missing) > _SHOWN else "")
            raise SourceError(
                f"{printable(has.path)} has the fields {which}, and {printable(lacks.path)} has none of these names: "
                "one pack cannot hold both. Convert the images of the second again, with these fields."
            )


def _require_same_kind(first: Reader, one: Field, reader: Reader, other: Field) -> None:
    where = f"{printable(first.path)} and {printable(reader.path)} differ in field {one.name!r}"
    for what in ("kind", "dtype", "rank"):
        mine, theirs = getattr(one, what), getattr(other, what)
        if mine != theirs:
            raise SourceError(
                f"{where}, in its {what}: {mine or 'none'} and {theirs or 'none'}. Convert one of them again, "
                f"with the other's {what}."
            )
    if (one.classes, one.ids) != (other.classes, other.ids):
        differing = sorted({*one.classes} ^ {*other.classes})
        which = ", ".join(map(printable, differing[:_SHOWN])) or "the same names with other ids"
        raise SourceError(
            f"{where}, in its classes: {which}. The same id would mean two classes: convert both again, with one list "
            "of classes."
        )
