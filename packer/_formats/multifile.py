"""Data that are spread over several files and read as if they lay in one."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import numpy as np

from packer._formats.contract import Places
from packer._formats.reader import Reader
from packer._storage.locations import NOWHERE
from packer._storage.opening import TOO_MANY_OPEN
from packer._storage.packfile import PackFile
from packer._storage.place import Place
from packer._table import Buffer, Ints
from packer.errors import CorruptPackError, PackError, printable

__all__ = ["SpreadData", "SpreadReader"]

_OPEN_FILES = 256


class SpreadData(abc.ABC):
    """The data of a pack in several files, which are opened when they are needed, a bounded number at a time.

    Beside those, the files are open that C reads a batch from.

    Parameters
    ----------
    place : Place
        The pack.
    sizes : sequence of int
        How many bytes of data each file holds.
    """

    def __init__(self, place: Place, sizes: Sequence[int]) -> None:
        self.place, self.path = place, place.path
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self._open: dict[int, tuple[PackFile, int]] = {}
        self._closed = False

    @abc.abstractmethod
    def name(self, number: int) -> str:
        """Return the place of a file in the pack, with slashes."""

    @abc.abstractmethod
    def open_file(self, number: int) -> tuple[PackFile, int]:
        """Open a file; return it, and where its data begin in it."""

    def files(self) -> list[tuple[str, int, int]]:
        """Return of each file its path in the pack, where its data begin, and their bytes."""
        sizes = np.diff(self.starts).tolist()
        return [(self.name(number), self.open_file(number)[1], size) for number, size in enumerate(sizes)]

    def require_distinct(self) -> None:
        """Raise CorruptPackError where two files are hard links of one: a small pack could become a full disk.

        Files that are missing share nothing; reading says so of each of their samples.
        """
        linked: dict[tuple[int, int], str] = {}
        for number in range(len(self.starts) - 1):
            try:
                file, _ = self.open_file(number)
            except CorruptPackError:
                continue
            if file.links > 1:
                first = linked.setdefault(file.inode, file.path)
                if first != file.path:
                    raise CorruptPackError(f"is the same file as {printable(first)}", file.path)

    def names(self) -> list[str]:
        """Return the place of each file in the pack."""
        return [self.name(number) for number in range(len(self.starts) - 1)]

    def read(self, offset: int, size: int) -> Buffer:
        """Return `size` bytes from `offset`, which counts through all files; CorruptPackError where there are none."""
        number = int(np.searchsorted(self.starts, offset, side="right")) - 1
        if not (0 <= number < len(self.starts) - 1 and 0 <= size <= self.starts[number + 1] - offset):
            raise CorruptPackError("its row points outside the data", self.path)
        file, begin = self._file(number)
        return file.read(begin + offset - int(self.starts[number]), size)

    def locate(self, offset: Ints, size: Ints) -> Places:
        """Return where in which files the bytes from `offset` on lie; NOWHERE where there are none."""
        numbers = np.searchsorted(self.starts, offset, side="right") - 1
        inside = (numbers >= 0) & (numbers < len(self.starts) - 1) & (size >= 0)
        numbers[~inside] = 0
        within = offset - self.starts[numbers]
        files, positions, held = np.full(len(offset), NOWHERE), np.zeros(len(offset), np.int64), []
        for number in np.unique(numbers[inside]).tolist():
            chosen = inside & (numbers == number) & (size <= self.starts[number + 1] - offset)
            try:
                file, begin = self._file(number)
            except PackError:  # reading says of which sample
                continue
            if not 0 <= begin <= file.size:
                continue
            files[chosen], positions[chosen], descriptor = file.locate(begin + within[chosen], size[chosen])
            held.append(descriptor)
        return Places(files, positions, held)

    def ahead(self, offset: Ints, size: Ints, *, urgent: bool = False) -> None:
        """Have bytes fetched, without waiting for them; what cannot be fetched, reading says."""
        numbers = np.searchsorted(self.starts, offset, side="right") - 1
        for number in dict.fromkeys(numbers.tolist()):
            here = (numbers == number) & (size >= 0)
            if not 0 <= number < len(self.starts) - 1:
                continue
            try:
                file, begin = self._file(number)
            except PackError:
                continue
            within = begin + offset[here] - int(self.starts[number])
            file.ahead(zip(within.tolist(), size[here].tolist(), strict=True), urgent=urgent)

    def close(self) -> None:
        """Close the files that are open."""
        self._closed = True
        for file, _ in list(self._open.values()):
            file.close()

    def _file(self, number: int) -> tuple[PackFile, int]:
        """Return a file and where its data begin.

        Without a lock, which a fork on another thread could leave locked for ever: at worst a file is opened twice.
        A file that is dropped from the dict is closed when the last read of it is done.
        """
        if self._closed:
            raise ValueError(f"{printable(self.path)}: is closed")
        found = self._open.get(number)
        if found is None:
            found = self._opened(number)
            if len(self._open) >= _OPEN_FILES:
                self._open = {}
            self._open[number] = found
        return found

    def _opened(self, number: int) -> tuple[PackFile, int]:
        """Open a file, in the place of those that are open where the process may have no more."""
        try:
            return self.open_file(number)
        except PackError as error:
            full = isinstance(error.__cause__, OSError) and error.__cause__.errno in TOO_MANY_OPEN
            if not full or not self._open:
                raise
        self._open = {}
        return self.open_file(number)


class SpreadReader(Reader):
    """A reader whose samples lie in several files, and whose table lies in one; `_open` opens both."""

    _table_file: PackFile
    _data: SpreadData

    def _fetch(self, offset: int, size: int) -> Buffer:
        return self._data.read(offset, size)

    def _locate(self, offset: Ints, size: Ints) -> Places:
        return self._data.locate(offset, size)

    def _ahead(self, offset: Ints, size: Ints, *, urgent: bool) -> None:
        self._data.ahead(offset, size, urgent=urgent)

    def data_files(self) -> list[tuple[str, int, int]]:
        return self._data.files()

    def require_distinct_files(self) -> None:
        self._data.require_distinct()

    def require_table(self) -> None:
        self._table_file.require_whole()

    def close(self) -> None:
        self._table_file.close()
        self._data.close()
