"""Where values lie in the files of a container, and what these files say of their own bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from packer._table import Buffer, Ints

__all__ = ["Ranges", "Seals"]

_CLOSE, _TOGETHER = 1 << 12, 1 << 20  # bytes between samples that are read at once, and of all that are


@dataclass(frozen=True, eq=False)
class Ranges:
    """Where values lie.

    Attributes
    ----------
    file, offset, size : (N,) int64 arrays
        The number of a file; where in it the value begins; its bytes, -1 where there is no value. Numbers after the
        last file are those of compressed ranges. A negative number ``~n`` stands for bytes that are no range of file n,
        and were copied from it: they lie in `Listing.copied`.
    """

    file: Ints
    offset: Ints
    size: Ints

    def __len__(self) -> int:
        return len(self.size)

    def taken(self, rows: slice | Ints) -> Ranges:
        """Return the ranges of some rows."""
        return Ranges(self.file[rows], self.offset[rows], self.size[rows])


@dataclass(frozen=True, eq=False)
class Seals:
    """The checksums that a container's files have of their own bytes, one a sample.

    Attributes
    ----------
    offset, size : (N,) int64 arrays
        Where in the file of a sample's image the bytes begin, the image among them, and how many they are; -1 where
        there is no checksum.
    checksum : (N,) int64 array
    of : callable
        Returns the checksum of bytes.
    """

    offset: Ints
    size: Ints
    checksum: Ints
    of: Callable[[Buffer], int]

    def taken(self, rows: slice | Ints) -> Seals:
        """Return those of some rows."""
        return Seals(self.offset[rows], self.size[rows], self.checksum[rows], self.of)

    def runs(self, files: Ints) -> Iterator[tuple[int, int, int, list[int]]]:
        """Yield file, begin and size of ranges to read at once, and which rows lie in each; `files` are those of rows.

        What lies close together is read together.
        """
        there = np.flatnonzero(self.size >= 0)
        order = there[np.lexsort((self.offset[there], files[there]))]
        columns = np.stack([order, files[order], self.offset[order], self.size[order]], 1)
        run: list[int] = []
        of = begin = end = -1
        for row, file, offset, size in columns.tolist():
            if file != of or offset - end > _CLOSE or offset + size - begin > _TOGETHER:
                if run:
                    yield of, begin, end - begin, run
                run, of, begin, end = [], file, offset, offset
            run.append(row)
            end = max(end, offset + size)
        if run:
            yield of, begin, end - begin, run
