"""One thing that was found out about a machine, and what it means."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Finding"]


@dataclass(frozen=True)
class Finding:
    """One thing about a machine.

    Attributes
    ----------
    topic : str
        What it is about: ``"processors"``, ``"memory"``, ``"/dev/shm"``, ….
    found : str
        What there is.
    means : str
        What that means for reading data; empty where it speaks for itself.
    advice : str
        What to do; empty where nothing is to be done.
    values : dict
        The numbers and names behind it: sizes in bytes, times in seconds, rates a second.
    """

    topic: str
    found: str
    means: str = ""
    advice: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def is_fine(self) -> bool:
        """Whether nothing is to be done."""
        return not self.advice
