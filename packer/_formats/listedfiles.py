"""The files that an index lists: each is compared with its size and its time in the list before it is read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np

from packer._formats.contract import Places
from packer._formats.multifile import SpreadData
from packer._storage.locations import BY_PATH, by_path
from packer._storage.packfile import Descriptor, PackFile
from packer._storage.paths import name_problem
from packer._storage.place import Place
from packer._storage.stamps import ANY_TIME, Stamps, same_stamp, stamp_in, what_changed
from packer._table import Ints, Names
from packer.errors import CorruptPackError, printable

__all__ = ["DATA_FILE", "ListedFiles"]

DATA_FILE = "data.bin"
"""What an index has of its own: bytes that are no range of a file."""

_CHANGED = "Index it again, or put back the file that it was"
_MOVED = "If it was moved, say where it is: `packer index INDEX --base DIR`"
_BY_DESCRIPTOR = os.open in os.supports_dir_fd


class ListedFiles(SpreadData):
    """The files that an index lists, and its own data after them.

    Parameters
    ----------
    place : Place
        The directory of the index.
    base : Place
        The directory of the files.
    names : Names
    stamps : (F, 2) int64 array
    data : int
        How many bytes of data the index has of its own.
    data_at : int, optional
        Where these begin; by default after the files.
    own : bool
        Whether the files are the pack's, and so no links: those of others may be, as a tree's are.
    """

    def __init__(  # noqa: PLR0917
        self,
        place: Place,
        base: Place,
        names: Names,
        stamps: Stamps,
        data: int,
        data_at: int | None = None,
        *,
        own: bool = False,
    ) -> None:
        super().__init__(place, [])
        self._base, self._names, self._own = base, names, own
        self._stamps = stamps
        if base.remote:  # where the time is that of the upload
            self._stamps = np.stack([stamps[:, 0], np.full(len(stamps), ANY_TIME)], 1)
        self._directory: Descriptor | None = None
        sizes = np.maximum(stamps[:, 0], 0)
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64), [0]])
        if data_at is not None:  # no file is as long as that, and what is read of the gap is none of its bytes
            self.starts[-2] = max(data_at, self.starts[-2])
        self.starts[-1] = self.starts[-2] + data

    def name(self, number: int) -> str:
        return DATA_FILE if number == len(self._names) else self._names[number]

    def open_file(self, number: int) -> tuple[PackFile, int]:
        if number == len(self._names):
            return self.place.open(DATA_FILE), 0
        self._require_name(number)
        base, name = self._base, self._names[number]
        where = base.path_of(name)
        if not base.holds(name):
            if not base.is_directory():
                raise CorruptPackError(f"the directory of its files is gone, or cannot be reached. {_MOVED}", base.path)
            raise CorruptPackError(f"is gone, or cannot be reached. {_CHANGED}", where)
        file = base.open(name) if self._own else base.join(name).open()
        before, now = stamp_in(self._stamps, number), (file.size, file.modified)
        if not same_stamp(before, now):
            file.close()
            if before[1] == ANY_TIME:
                when = "written" if self._own else "indexed"
                raise CorruptPackError(f"it has {now[0]} bytes, and had {before[0]} when it was {when}", where)
            raise CorruptPackError(f"changed since it was indexed: {what_changed(before, now)}. {_CHANGED}", where)
        return file, 0

    def _file(self, number: int) -> tuple[PackFile, int]:
        """Open a file, or return it where it is open and nobody wrote into it meanwhile."""
        found = super()._file(number)
        if not found[0].changed():
            return found
        self._open.pop(number, None)
        return super()._file(number)  # which says how it changed

    def locate(self, offset: Ints, size: Ints) -> Places:
        """Return where bytes lie; a sample that is a whole file is opened by whoever reads it."""
        numbers = np.clip(np.searchsorted(self.starts, offset, side="right") - 1, 0, len(self.starts) - 2)
        whole = (offset == self.starts[numbers]) & (size == self.starts[numbers + 1] - offset) & (size > 0)
        whole &= numbers < len(self._names)
        by_path_of = _BY_DESCRIPTOR and not self._own and not self._base.remote  # else C would follow links
        if not by_path_of or not whole.any():
            return super().locate(offset, size)
        rest = super().locate(np.where(whole, -1, offset), size)
        try:
            directory, paths = self._open_base(), [self._path(number) for number in numbers[whole].tolist()]
        except OSError:  # reading says of which sample
            return rest
        position, held = by_path(directory.number, paths, self._stamps[numbers[whole]])
        rest.file[whole], rest.position[whole] = BY_PATH, position
        return Places(rest.file, rest.position, (rest.held, held, directory))

    def close(self) -> None:
        super().close()
        self._directory = None

    def require_names(self) -> Sequence[str]:
        """Return the names of the files that are listed; CorruptPackError where one leads out of the base."""
        for number in range(len(self._names)):
            self._require_name(number)
        return self._names

    def files_below(self) -> Sequence[str]:
        """Return the names of the files that are listed."""
        return self._names

    def wrong_names(self) -> Iterator[str]:
        """Yield which names lead elsewhere, or are there twice."""
        seen = set()
        for name in self._names:
            if problem := name_problem(name):
                yield f"the list of files names {printable(name)}: {problem}"
            elif name in seen:
                yield f"the list of files names {printable(name)} twice"
            seen.add(name)

    def changed(self) -> Iterator[str]:
        """Yield which files are gone, or changed."""
        for number, name in enumerate(self._names):
            if name_problem(name):
                continue
            before, now = stamp_in(self._stamps, number), self._base.stamp(name)
            if not same_stamp(before, now):
                self._base.holds(name)  # which raises where nothing can be said of the file
                where = self._base.path_of(name)
                yield f"{printable(where)}: changed since it was indexed: {what_changed(before, now)}"

    def _require_name(self, number: int) -> None:
        name = self._names[number]
        if problem := name_problem(name):
            raise CorruptPackError(f"the list of files names {printable(name)}: {problem}", self.path)

    def _open_base(self) -> Descriptor:
        """Return the base, open; without a lock, as `SpreadData._file`."""
        if self._closed:
            raise ValueError(f"{printable(self.path)}: is closed")
        found = self._directory
        if found is None:
            found = self._directory = Descriptor(os.open(self._base.path, os.O_RDONLY))
        return found

    def _path(self, number: int) -> bytes:
        """Return the path of a file; one that no file has where the list does not say it."""
        try:
            return self._names.encoded(number)
        except CorruptPackError:
            return b""
