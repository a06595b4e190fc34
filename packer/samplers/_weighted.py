"""Samples drawn at random, each with a weight of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._table import Ints
from packer.samplers._order import OrderSampler
from packer.samplers._uniforms import uniforms
from packer.samplers._values import digest_of, numbers_of

__all__ = ["WeightedSampler"]

Floats = npt.NDArray[np.float64]


class WeightedSampler(OrderSampler):
    """Samples drawn at random by their weights, as by torch's WeightedRandomSampler.

    Parameters
    ----------
    weights : (N,) sequence of float
        How likely each sample is, relative to the others; a sample of weight 0 never comes.
    length : int, optional
        Number of samples in an epoch; by default N.
    replacement : bool
        Whether a sample may come several times in an epoch. Without replacement each draw is one among the samples that
        are left, and every epoch sorts N random numbers when it begins.
    seed, rank, world, uneven
        As for `OrderSampler`.

    Raises
    ------
    TypeError, ValueError
        If a weight is no number of 0 or more, or all are 0; or if `length` is more than there are samples with a
        weight, without replacement.

    Notes
    -----
    Where a sample comes again in an epoch, a Loader gives it another crop.
    """

    def __init__(
        self,
        weights: Sequence[float] | Floats,
        length: int | None = None,
        replacement: bool = True,
        *,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        uneven: str = "pad",
    ) -> None:
        numbers = numbers_of("weights", weights)
        super().__init__(len(numbers) if length is None else length, seed=seed, rank=rank, world=world, uneven=uneven)
        possible = int(np.count_nonzero(numbers))
        if not replacement and self.length > possible:
            raise ValueError(
                f"without replacement an epoch has at most {possible} samples, those with a weight, not {self.length}: "
                "say length="
            )
        self.replacement = replacement
        self._digest = digest_of(numbers)
        self._weights = numbers
        self._ends = np.cumsum(numbers)
        self._sorted: tuple[tuple[int, int], Ints] | None = None

    def order(self, places: Ints) -> Ints:
        return self.draws(places)[0]

    def draws(self, places: Ints) -> tuple[Ints, Ints | None]:
        if not self.replacement:
            return self._drawn_once()[places], None
        random = uniforms(self.seed, self.epoch, places, 1)[:, 0]
        drawn = np.searchsorted(self._ends, random * self._ends[-1], side="right")
        return drawn.astype(np.int64, copy=False), places  # no place comes twice, so no turn of a sample does

    def _drawn_once(self) -> Ints:
        """Return the order of the epoch without replacement.

        Each sample waits for a time of an exponential distribution whose rate is its weight (Efraimidis, Spirakis 2006,
        "Weighted random sampling with a reservoir").
        """
        settings = self.seed, self.epoch
        if self._sorted is None or self._sorted[0] != settings:
            possible = np.flatnonzero(self._weights)
            times = -np.log1p(-uniforms(self.seed, self.epoch, possible, 1)[:, 0]) / self._weights[possible]
            self._sorted = settings, possible[np.argsort(times, kind="stable")[: self.length]]
        return self._sorted[1]

    @property
    def _samples(self) -> int:
        return len(self._weights)

    def fingerprint(self) -> dict[str, Any]:
        return {**super().fingerprint(), "weights": self._digest, "replacement": self.replacement}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sorted": None}
