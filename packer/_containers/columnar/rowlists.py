"""The values of columns as Python's, some rows at a time: as many as fit into a modest memory.

A few bytes of a column may stand for many values: numbers of a long text in a dictionary, and a list of nulls or of
empty structures, which have no bytes at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["MOST_ROWS", "row_lists"]

MOST_ROWS = 1024
"""Rows at a time."""

_MOST = 1 << 22  # values and bytes in several rows
_MOST_ROW = 1 << 26  # in one
_TEXTS = ("string", "large_string", "binary", "large_binary")


def row_lists(columns: Sequence[Any], rows: int) -> Iterator[list[list[Any]]]:
    """Yield the values of some columns, of a few rows after the other.

    Parameters
    ----------
    columns : sequence of pyarrow.Array
    rows : int
        The length of each.

    Raises
    ------
    ValueError
        If a row has more values and bytes than any row needs.
    """
    start, count = 0, MOST_ROWS
    while start < rows:
        parts = [column.slice(start, count) for column in columns]
        held = sum(map(_held, parts))
        if held > _MOST and count > 1:
            count = max(1, min(count, len(parts[0])) // 2)
            continue
        if held > _MOST_ROW:
            raise ValueError(f"row {start} has {held:,} values and bytes, and {_MOST_ROW:,} are the most")
        yield [part.to_pylist() for part in parts]
        start += count


def _held(array: Any) -> int:
    """Return how many values and bytes an array becomes, or more."""
    array = getattr(array, "storage", array)
    kind, count = str(array.type), len(array)
    if kind.startswith("dictionary<"):
        return _held_of(array)
    if kind.startswith("struct<"):
        return count + sum(map(_held, array.flatten()))
    if array.type.num_fields:  # lists and maps
        return count + _held(array.flatten())
    return count + int(array.nbytes)


def _held_of(array: Any) -> int:
    """Return how many values and bytes an array of numbers of a dictionary becomes, or more."""
    import pyarrow.compute as pc

    count, each = len(array), 1 + int(array.dictionary.nbytes)
    if count * each > _MOST and str(array.dictionary.type) in _TEXTS:
        lengths = pc.take(pc.binary_length(array.dictionary), array.indices)
        return count + int(pc.sum(lengths).as_py() or 0)
    return count * each
