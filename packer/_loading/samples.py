"""The names and labels of a pack's samples, as ImageFolder shows them."""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any, overload

from packer._table import Ints, Labels, Names

__all__ = ["NamesInARow", "Samples"]


class Samples(Sequence[tuple[str, int | float]]):
    """``(name, label)`` of every sample, as ImageFolder's `samples`, read from the pack when asked for.

    What a list answers without being changed, this answers too; sums and copies are lists.

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

    def __iter__(self) -> Iterator[tuple[str, int | float]]:
        return zip(self.names(), self.labels.tolist(), strict=True)

    def __add__(self, other: object) -> list[tuple[str, int | float]]:
        return [*self, *other] if isinstance(other, Samples | list) else NotImplemented

    def __radd__(self, other: object) -> list[tuple[str, int | float]]:
        return [*other, *self] if isinstance(other, list) else NotImplemented

    def __mul__(self, times: int) -> list[tuple[str, int | float]]:
        return list(self) * times

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Samples | list):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def copy(self) -> list[tuple[str, int | float]]:
        """Return the samples as a list."""
        return list(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    def names(self) -> Iterator[str]:
        """Return the name of every sample."""
        return iter(self._names) if self._rows is None else map(self.name, range(len(self)))

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

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(part.names() for part in self._parts)

    def __getitem__(self, index: int) -> str:
        index = range(len(self))[index]
        part = bisect.bisect_right(self._ends, index)
        return self._parts[part].name(index - self._ends[part])  # counted from the end of the part
