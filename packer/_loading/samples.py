"""The names and labels of a pack's samples, as ImageFolder shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from packer._table import Labels, Names

__all__ = ["Samples"]


class Samples(Sequence[tuple[str, int | float]]):
    """``(name, label)`` of every sample, as ImageFolder's `samples`, read from the pack when asked for."""

    def __init__(self, names: Names, labels: Labels) -> None:
        self._names = names
        self._labels = labels

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> tuple[str, int | float]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, int | float]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, int | float] | list[tuple[str, int | float]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._names[index], self._labels[index].item()

    def __repr__(self) -> str:
        return f"<{len(self)} samples>"
