"""FlatBuffers (https://flatbuffers.dev), read as far as Arrow's messages need it: tables, vectors, numbers, texts."""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["Table", "int_at"]


class Table:
    """A table of a FlatBuffer: numbers and further tables by the numbers of their slots.

    Raises
    ------
    ValueError, struct.error
        From every method, where the buffer is damaged.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._slots = at - int_at(data, "<i", at)
        self._end = int_at(data, "<H", self._slots)

    def where(self, slot: int) -> int:
        """Return where a value begins; 0 where there is none."""
        at = 4 + 2 * slot
        inner = int_at(self._data, "<H", self._slots + at) if at < self._end else 0
        return self._at + inner if inner else 0

    def number(self, slot: int, layout: str, default: int = 0) -> int:
        """Return a number; `default` where there is none."""
        at = self.where(slot)
        return int_at(self._data, layout, at) if at else default

    def table(self, slot: int) -> Table:
        """Return a table."""
        at = self.where(slot)
        if not at:
            raise ValueError("a damaged FlatBuffer")
        return Table(self._data, at + int_at(self._data, "<I", at))

    def vector(self, slot: int, width: int) -> tuple[int, int]:
        """Return where the elements of a vector begin, and how many there are."""
        at = self.where(slot)
        if not at:
            return 0, 0
        at += int_at(self._data, "<I", at)
        count = int_at(self._data, "<I", at)
        if at + 4 + count * width > len(self._data):
            raise ValueError("a damaged FlatBuffer")
        return at + 4, count

    def tables(self, slot: int) -> Iterator[Table]:
        """Yield the tables of a vector of such."""
        start, count = self.vector(slot, 4)
        for at in range(start, start + 4 * count, 4):
            yield Table(self._data, at + int_at(self._data, "<I", at))

    def number_at(self, layout: str, at: int) -> int:
        """Return a number that lies somewhere in the buffer."""
        return int_at(self._data, layout, at)

    def ints(self, slot: int) -> list[int]:
        """Return the int32 numbers of a vector."""
        start, count = self.vector(slot, 4)
        return [int_at(self._data, "<i", at) for at in range(start, start + 4 * count, 4)]

    def text(self, slot: int) -> str:
        """Return a text; an empty one where there is none."""
        start, count = self.vector(slot, 1)
        return self._data[start : start + count].decode("utf-8", "replace")


def int_at(data: bytes, layout: str, at: int) -> int:
    """Return the number at a place; ValueError or struct.error where it is outside."""
    if at < 0:
        raise ValueError("a damaged FlatBuffer")
    return int(struct.unpack_from(layout, data, at)[0])
