"""Rounds: sides that are measured in turn, and what their figures say together.

The speed of a machine changes while one measures. So all sides are measured once a round, each round begins with
another side, and sides are compared by the median of their ratios within a round.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

__all__ = ["in_turn", "ratio", "relative_spread"]


def in_turn(count: int, number: int) -> list[int]:
    """Return the places of `count` sides, in the order of round `number`."""
    return [(place + number) % count for place in range(count)]


def ratio(rates: Sequence[float], others: Sequence[float]) -> float | None:
    """Return the median ratio of two sides' rates within a round; None where no round has both."""
    ratios = [rate / other for rate, other in zip(rates, others, strict=False) if other > 0]
    return statistics.median(ratios) if ratios else None


def relative_spread(rates: Sequence[float]) -> float:
    """Return half of the range of some rates, as a share of their median."""
    return (max(rates) - min(rates)) / 2 / statistics.median(rates)
