"""The names and labels of a pack's samples, as ImageFolder shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from packer._table import Ints, Labels, Names

__all__ = ["Samples"]


class Samples(Sequence[tuple[str, int | float]]):
    """``(name, label)`` of every sample, as ImageFolder's `samples`, read from the pack when asked for.

    Parameters
    ----------
    names : Names
        The names of all samples of the pack.
    labels : (N,) array
    rows : (N,) int64 array, optional
        Which samples of the pack these are; by default all.
    """

    def __init__(self, names: Names, labels: Labels, rows: Ints | None = None) -> None:
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
        label = self.labels[index].item()
        return self._names[index if self._rows is None else int(self._rows[index])], label

    def __repr__(self) -> str:
        return f"<{len(self)} samples>"
