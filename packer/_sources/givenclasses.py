"""Fields of a source with the class ids of a pack's fields, so that one id means one class in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from packer._fields import Field
from packer._sources.base import Source, some
from packer._sources.fieldvalues import Blobs, Column, Numbers
from packer._table import Ints
from packer.errors import SourceError, printable

__all__ = ["with_given_classes"]

_UNKNOWN = -1


def with_given_classes(
    source: Source, fields: Sequence[Field], pack: Path, table: Path | None = None, *, remedy: str
) -> Source:
    """Return a source whose classes and labels have the ids of a pack's fields of the same name and kind.

    Parameters
    ----------
    source : Source
    fields : sequence of Field
        Those of the pack.
    pack, table : Path
        The pack, and the table whose lines `source` knows; for messages.
    remedy : str
        The end of the message on classes that the pack has not.

    Raises
    ------
    SourceError
        If a field has a class that the pack's has not, or has other classes and its ids are in a pack already.
    """
    known = {(field.name, field.kind): field for field in fields if field.kind in ("class", "labels")}
    columns = {}
    for column in source.columns:
        own = column.field
        given = known.get((own.name, own.kind))
        if given is not None and (own.classes, own.ids) != (given.classes, given.ids):
            columns[own.name] = _classed(column, given, source, pack, table, remedy)
    for own in source.fields:
        given = known.get((own.name, own.kind), own)
        if own.name not in columns and (own.classes, own.ids) != (given.classes, given.ids):
            raise SourceError(
                f"{printable(source.root)}: field {own.name!r} has other classes than {printable(pack)} gives it, and "
                f"the ids of a pack's fields stay. {remedy}"
            )
    if not columns:
        return source
    return replace(
        source,
        columns=tuple(columns.get(column.field.name, column) for column in source.columns),
        fields=tuple(columns[field.name].field if field.name in columns else field for field in source.fields),
    )


def _classed(  # noqa: PLR0917
    column: Column, given: Field, source: Source, pack: Path, table: Path | None, remedy: str
) -> Column:
    """Return a column with the ids of `given`; SourceError where it has a class that `given` has not."""
    assert isinstance(column, (Numbers, Blobs))
    ids, rows = _ids(column)
    used, places = np.unique(ids, return_inverse=True)
    own = column.field
    names = [_name(own, number) for number in used.tolist()]
    known = dict(zip(given.classes, given.ids or range(len(given.classes)), strict=False))
    if own.classes or known.keys() >= set(names):  # whole numbers are names where the pack has these names
        new = np.array([known.get(name, _UNKNOWN) for name in names], np.int64)
    else:
        new = np.where(given.knows(used), used, _UNKNOWN)
    if len(lacking := np.flatnonzero(new == _UNKNOWN)):
        first = int(np.flatnonzero(new[places] == _UNKNOWN)[0])
        row = int(rows[first])
        by_line = table is not None and source.lines is not None
        where = f"{table}, line {source.lines[row]}" if by_line else source.names[row]  # type: ignore[index]
        raise SourceError(
            f"{printable(where)}: field {own.name!r}: {printable(names[places[first]])} is no class that "
            f"{printable(pack)} knows; unknown are {some([names[place] for place in lacking.tolist()])}. {remedy}"
        )
    field = replace(given, file=own.file)
    if isinstance(column, Numbers):
        values = np.zeros(len(column), np.int64)
        values[rows] = new[places]
        return Numbers(field, values, column.null)
    blob = np.frombuffer(new[places].astype("<i8").tobytes(), np.uint8)
    return Blobs.packed(field, blob, column.sizes)


def _ids(column: Numbers | Blobs) -> tuple[Ints, Ints]:
    """Return all ids of a column, and the row of each."""
    if isinstance(column, Numbers):
        rows = np.flatnonzero(~column.null)
        return column.values[rows], rows
    values: list[npt.NDArray[np.int64]] = [
        np.frombuffer(column.get(row) or b"", "<i8").astype(np.int64) for row in range(len(column))
    ]
    return np.concatenate([np.empty(0, np.int64), *values]), np.repeat(np.arange(len(values)), list(map(len, values)))


def _name(field: Field, number: int) -> str:
    """Return the name of an id, or its digits where nobody named the classes."""
    if not field.classes:
        return str(number)
    return field.classes[field.ids.index(number) if field.ids else number]
