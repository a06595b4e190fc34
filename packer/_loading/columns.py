"""The columns of a dataset's samples as NumPy arrays, in which what is not there is masked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._fields import Column

__all__ = ["ColumnArrays"]


class ColumnArrays(Mapping[str, npt.NDArray[Any]]):
    """The columns by name, each as a read-only (N,) array, made when it is asked for.

    A column of which every value is there is a plain array, of a whole pack a view of its file. Otherwise it is a
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


def _masked(column: Column) -> npt.NDArray[Any]:
    dtype = column.values.dtype
    nothing: Any = {"f": np.nan, "O": None, "b": False}.get(dtype.kind, -1)
    if dtype.kind == "i" and column.ids is None:
        nothing = np.iinfo(dtype).min
    values = np.where(column.present, column.values, np.array(nothing, dtype))
    values.flags.writeable = False
    return np.ma.MaskedArray(values, mask=~column.present, fill_value=nothing)
