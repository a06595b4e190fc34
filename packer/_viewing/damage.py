"""Which samples were seen to be damaged, and why: of all how many, of the first ones the reasons."""

from __future__ import annotations

import threading

__all__ = ["Damage"]

_MOST_REASONS = 1000


class Damage:
    """What is damaged in packs, as far as somebody looked. Safe in many threads at once.

    The memory that it takes does not grow with the damage: a byte a sample, and so many reasons.

    Parameters
    ----------
    samples : int
        How many there are.
    """

    def __init__(self, samples: int) -> None:
        self._seen = bytearray(samples)
        self._reasons: dict[int, str] = {}
        self._count = 0
        self._lock = threading.Lock()

    def add(self, index: int, reason: str) -> None:
        """Count a sample, once."""
        with self._lock:
            self._count += not self._seen[index]
            self._seen[index] = 1
            if index in self._reasons or len(self._reasons) < _MOST_REASONS:
                self._reasons[index] = reason

    def listed(self) -> tuple[int, list[tuple[int, str]]]:
        """Return how many samples are damaged; index and reason of those seen first, in the order of the indices."""
        with self._lock:
            return self._count, sorted(self._reasons.items())
