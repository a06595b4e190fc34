"""Numbers made of uniform random numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from packer._table import Ints

__all__ = ["Floats", "below", "between", "inside", "require_uniform"]

Floats = npt.NDArray[np.float64]


def below(ends: Ints, random: Floats) -> Ints:
    """Return integers of 0 to before `ends`, each as likely as the others, for random numbers in [0, 1)."""
    numbers: Ints = (random * ends).astype(np.int64)
    return numbers


def between(low: float, high: float, random: Floats) -> Floats:
    return low + random * (high - low)


def inside(limits: tuple[float, float], random: Floats) -> Floats:
    """Return numbers from the first to the second of two limits."""
    low, high = limits
    return between(low, high, random)


def require_uniform(random: Floats, shape: tuple[int, ...]) -> None:
    """Raise ValueError where random numbers that somebody gave have another shape, or are not in [0, 1)."""
    if random.shape != shape:
        raise ValueError(f"random has the shape {shape}, not {random.shape}")
    if random.size and not (random.min() >= 0 and random.max() < 1):  # C believes it: they become places in tables
        raise ValueError("random has numbers from 0 to before 1, and others were given")
