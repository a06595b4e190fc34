"""Numbers made of uniform random numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from packer._table import Ints

__all__ = ["Floats", "below", "between"]

Floats = npt.NDArray[np.float64]


def below(ends: Ints, random: Floats) -> Ints:
    """Return integers of 0 to before `ends`, each as likely as the others, for random numbers in [0, 1)."""
    numbers: Ints = (random * ends).astype(np.int64)
    return numbers


def between(low: float, high: float, random: Floats) -> Floats:
    return low + random * (high - low)
