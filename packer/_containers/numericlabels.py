"""Labels that tools keep in columns of other numbers: whole numbers as floats, and one number a class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["are_one_hot", "are_whole", "one_hot", "whole"]

_MOST = 2**53  # up to which a float64 holds every whole number


def are_whole(blocks: Iterable[npt.NDArray[Any]]) -> tuple[bool, bool]:
    """Tell of floats whether all that are numbers are whole, and whether some are NaN: integers with gaps."""
    gaps = False
    for block in blocks:
        missing = np.isnan(block)
        gaps |= bool(missing.any())
        numbers = block[~missing].astype(np.float64)  # in which the limit has a place too
        if not (np.isfinite(numbers) & (np.abs(numbers) < _MOST) & (numbers == np.floor(numbers))).all():
            return False, gaps
    return True, gaps


def are_one_hot(blocks: Iterable[npt.NDArray[Any]]) -> bool:
    """Tell whether every row of numbers, (N, C), has a single 1 and otherwise 0."""
    return all(((block == 0) | (block == 1)).all() and ((block == 1).sum(axis=1) == 1).all() for block in blocks)


def one_hot(values: Sequence[Any]) -> int | None:
    """Return the place of the only 1 among zeros; None where the values are anything else."""
    if len(values) < 2 or any(value not in (0, 1) for value in values):
        return None
    return list(values).index(1) if sum(values) == 1 else None


def whole(value: float) -> int | float:
    """Return a number without a fraction as an int; any other as it is."""
    return int(value) if isinstance(value, int) or float(value).is_integer() else value
