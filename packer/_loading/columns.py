"""The columns of the samples of a pack, or of several, as NumPy arrays in which what is not there is masked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._fields import Column
from packer._loading.uniting import united_ids
from packer._table import Ints
from packer.errors import OptionError, printable

__all__ = ["ColumnArrays", "ColumnsInARow"]


class ColumnArrays(Mapping[str, npt.NDArray[Any]]):
    """The columns by name, each as a read-only (N,) array, made when it is asked for.

    A column of which every value is there is a plain array. Otherwise it is a
    masked array. Below the mask lies what no value is: NaN, -1 in place of an id, None in place of a text, the least of
    a dtype's integers; of bool there is no such value.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._columns:
            raise KeyError(f"there is no column {name!r}. There are {', '.join(self)}")
        column = self._columns[name]
        if column.of:
            raise KeyError(f"{name!r} holds {column.of}, which are no column")
        array = column.values.view() if column.present.all() else _masked(column)
        array.flags.writeable = False
        return array

    def __repr__(self) -> str:
        return f"<columns {', '.join(self)}>"


class ColumnsInARow(Mapping[str, Column]):
    """The columns of several packs, one after the other, made when they are asked for.

    Parameters
    ----------
    parts : sequence of (str, mapping of str to Column)
        What each pack is called in messages, and its columns.
    which : (N,) int64 array, optional
        Which samples of all in the row these are; by default all.

    Raises
    ------
    OptionError
        From asking for a column that some packs do not have, or have with values of another type.
    """

    def __init__(self, parts: Sequence[tuple[str, Mapping[str, Column]]], which: Ints | None = None) -> None:
        self._parts = parts
        self._which: slice | Ints = slice(None) if which is None else which

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for _, columns in self._parts for name in columns))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return any(name in columns for _, columns in self._parts)

    def __getitem__(self, name: str) -> Column:
        if name not in self:
            raise KeyError(name)
        found = [self._columns_of(name, root, columns) for root, columns in self._parts]
        for (root, _), column in zip(self._parts, found, strict=True):
            here, there = _described(found[0]), _described(column)
            if here != there:
                first = printable(self._parts[0][0])
                raise OptionError(f"the column {name} holds {here} in {first}, and {there} in {printable(root)}")
            if name == "label" and column.ids != found[0].ids:
                raise OptionError("the packs have different classes: say open_dataset([a, b], classes='union')")
        values = [column.values for column in found]
        ids = found[0].ids
        if ids is not None:
            ids, maps = united_ids([column.ids or {} for column in found])
            values = [_renumbered(column, renumbered) for column, renumbered in zip(found, maps, strict=True)]
        present = np.concatenate([column.present for column in found])
        return Column(np.concatenate(values)[self._which], present[self._which], ids, found[0].of)

    def _columns_of(self, name: str, root: str, columns: Mapping[str, Column]) -> Column:
        if name in columns:
            return columns[name]
        other = next(root for root, columns in self._parts if name in columns)
        raise OptionError(f"{printable(root)} has no column {name}, which {printable(other)} has: choose in each alone")


def _described(column: Column) -> str:
    """Return what the values are: those of two packs that are alike are described alike."""
    if column.kind == "numbers":
        return f"{column.values.dtype} numbers"
    return "ids without names" if column.ids is not None and not column.ids else column.kind


def _renumbered(column: Column, numbers: Mapping[int, int]) -> npt.NDArray[Any]:
    """Return ids with those that other classes have replaced."""
    values = column.values
    for own, number in numbers.items():
        values = np.where(column.values == own, number, values)
    return values


def _masked(column: Column) -> npt.NDArray[Any]:
    dtype = column.values.dtype
    nothing: Any = {"f": np.nan, "O": None, "b": False}.get(dtype.kind, -1)
    if dtype.kind == "i" and column.ids is None:
        nothing = np.iinfo(dtype).min
    values = np.where(column.present, column.values, np.array(nothing, dtype))
    values.flags.writeable = False
    return np.ma.MaskedArray(values, mask=~column.present, fill_value=nothing)
