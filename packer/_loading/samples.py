"""The names and labels of a pack's samples, as ImageFolder shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from packer._table import Names

__all__ = ["Samples"]


class Samples(Sequence[tuple[str, int]]):
    """``(name, label)`` of every sample, as ImageFolder's `samples`, read from the pack when asked for."""

    def __init__(self, names: Names, labels: npt.NDArray[np.int64]) -> None:
        self._names = names
        self._labels = labels

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> tuple[str, int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, int]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, int] | list[tuple[str, int]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._names[index], int(self._labels[index])

    def __repr__(self) -> str:
        return f"<{len(self)} samples>"
