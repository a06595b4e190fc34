"""The names and labels of a pack's samples, as ImageFolder shows them."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import overload

from packer._table import Ints, Labels, Names

__all__ = ["NamesInARow", "Samples"]


class Samples(Sequence[tuple[str, int | float]]):
    """``(name, label)`` of every sample, as ImageFolder's `samples`, read from the pack when asked for.

    Parameters
    ----------
    names : Names or NamesInARow
        The names of all samples of the pack, or of several packs.
    labels : (N,) array
    rows : (N,) int64 array, optional
        Which samples of the pack these are; by default all.
    """

    def __init__(self, names: Names | NamesInARow, labels: Labels, rows: Ints | None = None) -> None:
        self._names = names
        self.labels = labels
        self._rows = rows

    def __len__(self) -> int:
        return len(self.labels)

    @overload
    def __getitem__(self, index: int) -> tuple[str, int | float]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, int | float]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, int | float] | list[tuple[str, int | float]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.name(index), self.labels[index].item()

    def name(self, index: int) -> str:
        """Return the name of a sample; IndexError where there is none."""
        return self._names[index if self._rows is None else int(self._rows[index])]

    def __repr__(self) -> str:
        return f"<{len(self)} samples>"


class NamesInARow:
    """The names of the samples of several packs, one pack after the other."""

    def __init__(self, parts: Sequence[Samples]) -> None:
        self._parts = parts
        self._ends = list(itertools.accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> str:
        index = range(len(self))[index]
        part = bisect.bisect_right(self._ends, index)
        return self._parts[part].name(index - self._ends[part])  # counted from the end of the part
