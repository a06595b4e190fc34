"""Labels that tools keep in columns of other numbers: whole numbers as floats, and one number a class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["are_one_hot", "are_whole"]

_MOST = 2**53  # up to which a float64 holds every whole number


def are_whole(blocks: Iterable[npt.NDArray[Any]]) -> tuple[bool, bool]:
    """Tell of floats whether all that are numbers are whole, and whether some are NaN: integers with gaps."""
    gaps = False
    for block in blocks:
        missing = np.isnan(block)
        gaps |= bool(missing.any())
        numbers = block[~missing]
        if not (np.isfinite(numbers) & (np.abs(numbers) < _MOST) & (numbers == np.floor(numbers))).all():
            return False, gaps
    return True, gaps


def are_one_hot(blocks: Iterable[npt.NDArray[Any]]) -> bool:
    """Tell whether every row of numbers, (N, C), has a single 1 and otherwise 0."""
    return all(((block == 0) | (block == 1)).all() and ((block == 1).sum(axis=1) == 1).all() for block in blocks)
