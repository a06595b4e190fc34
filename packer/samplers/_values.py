"""Values that a sampler is given, one a sample, checked."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["digest_of", "numbers_of"]


def numbers_of(name: str, values: Any) -> npt.NDArray[np.float64]:
    """Return weights as an (N,) float64 array.

    Raises
    ------
    TypeError
        If they are no numbers in a row.
    ValueError
        If one is below 0, infinite or no number, or the sum is 0.
    """
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} are numbers of 0 or more, not {values!r}") from None
    if numbers.ndim != 1:
        raise TypeError(f"{name} are numbers in a row, not an array of shape {numbers.shape}")
    wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if len(wrong):
        raise ValueError(f"{name} are numbers of 0 or more, and number {wrong[0]} is {numbers[wrong[0]]:g}")
    if not numbers.any() or not np.isfinite(numbers.sum()):
        raise ValueError(f"{name} have a finite sum above 0, and these have {numbers.sum():g}")
    return numbers


def digest_of(values: npt.NDArray[Any]) -> str:
    """Return a name of values, for the states of a sampler."""
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]
