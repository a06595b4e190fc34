"""Some of the samples, shuffled."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from packer._table import Ints
from packer.samplers._order import OrderSampler
from packer.samplers._permutation import earlier, permute
from packer.samplers._values import digest_of

__all__ = ["SubsetSampler"]


class SubsetSampler(OrderSampler):
    """A new permutation of some samples every epoch.

    Parameters
    ----------
    indices : (N,) sequence of int
        Which samples come, of 0 or more. An index that stands there twice comes twice in an epoch.
    seed, rank, world, uneven
        As for `OrderSampler`.

    Raises
    ------
    TypeError, ValueError
        If `indices` are no integers of 0 or more.
    """

    def __init__(
        self,
        indices: Sequence[int] | Ints,
        *,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        uneven: str = "pad",
    ) -> None:
        self._indices = _indices_of(indices)
        super().__init__(len(self._indices), seed=seed, rank=rank, world=world, uneven=uneven)
        turns = earlier(self._indices)
        self._turns = turns if turns.any() else None
        self._digest = digest_of(self._indices)

    def order(self, places: Ints) -> Ints:
        return self.draws(places)[0]

    def draws(self, places: Ints) -> tuple[Ints, Ints | None]:
        chosen = permute(places, self.length, self.seed, self.epoch)
        return self._indices[chosen], None if self._turns is None else self._turns[chosen]

    def require_samples(self, count: int) -> None:
        """Raise ValueError where a dataset of `count` samples lacks one of the indices."""
        if self.length and self._indices.max() >= count:
            raise ValueError(f"the sampler gives index {self._indices.max()}, and the dataset has {count} samples")

    def fingerprint(self) -> dict[str, Any]:
        return {**super().fingerprint(), "indices": self._digest}


def _indices_of(values: Any) -> Ints:
    indices = np.asarray(values)
    if indices.ndim != 1 or indices.dtype.kind == "b":
        raise TypeError(
            f"indices are integers in a row, not {indices.dtype} of shape {indices.shape}. For a mask say "
            "np.flatnonzero(mask)"
        )
    if indices.dtype.kind not in "iu":
        try:
            indices = np.array([operator.index(index) for index in values], np.int64)
        except TypeError:
            raise TypeError(f"indices are integers, not {indices.dtype}") from None
    if len(indices) and indices.min() < 0:
        raise ValueError(f"indices are numbers of 0 or more, and one is {indices.min()}")
    return indices.astype(np.int64)
