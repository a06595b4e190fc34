"""What one value of a stranger's file may become, where it refers to other things.

A reference takes a few bytes of a file, and stands for all that it refers to. Where lists of references refer to lists
of references, a value doubles with every level, and a short file would fill memory and disk.
"""

from __future__ import annotations

__all__ = ["MOST_THINGS", "Budget"]

MOST_THINGS = 100_000
"""Numbers, texts, lists and so on in one value."""

_SHARED = 1 << 22  # bytes of a value beyond those that it has in its file


class Budget:
    """The things and the bytes that one value may still become; each is counted as often as it is referred to.

    Parameters
    ----------
    size : int
        Bytes of the value in its file. It may become so many, and 4 MiB more.
    things : int
        How many things it may have.
    """

    __slots__ = ("_bytes", "_most_bytes", "_most_things", "_size", "_things")

    def __init__(self, size: int, things: int = MOST_THINGS) -> None:
        self._size = size
        self._bytes = self._most_bytes = size + _SHARED
        self._things = self._most_things = things

    def spend(self, size: int = 0, things: int = 1) -> None:
        """Count so many more bytes, and things.

        Raises
        ------
        ValueError
            If there are too many things, or too many bytes.
        """
        self._things -= things
        self._bytes -= size
        if self._things < 0:
            raise ValueError(f"its references make more than {self._most_things:,} things of {self._size:,} bytes")
        if self._bytes < 0:
            raise ValueError(f"its references make more than {self._most_bytes:,} bytes of {self._size:,}")
