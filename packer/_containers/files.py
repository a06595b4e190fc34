"""The files of a container, opened when they are needed, each compared with what it was when it was listed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from packer._containers.unpacking import PackedRanges
from packer._storage.packfile import PackFile
from packer._storage.stamps import Stamps, same_stamp, stamp_in, take_stamps, what_changed
from packer._table import Names
from packer.errors import CorruptPackError

__all__ = ["ForeignFiles"]

_OPEN_FILES = 256


class ForeignFiles:
    """Files that belong to somebody else, who may change them.

    Safe in many threads at once, and after a fork.

    Parameters
    ----------
    root : path
    names : sequence of str
        Paths relative to `root`, with forward slashes; or absolute ones.
    stamps : (F, 2) int64 array, optional
        Size and time of each; by default the present ones.
    packed : PackedRanges, optional
        Compressed ranges of these files, which count as files after the last one.

    Attributes
    ----------
    root : Path
    names : sequence of str
    stamps : (F, 2) int64 array
    packed : PackedRanges
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        names: Sequence[str],
        stamps: Stamps | None = None,
        packed: PackedRanges | None = None,
    ) -> None:
        self.root = Path(root)
        self.names = names
        self.stamps = take_stamps(self.root, Names.of(names)) if stamps is None else stamps
        self.packed = PackedRanges(len(self.stamps)) if packed is None else packed
        self._open: dict[int, PackFile] = {}

    def __len__(self) -> int:
        return len(self.stamps)

    def path(self, number: int) -> str:
        """Return where a file lies."""
        return os.path.join(self.root, self.names[number])

    def open(self, number: int) -> PackFile:
        """Open a file, or return it where it is open; CorruptPackError where it is another than was listed."""
        file = self._open.get(number)
        if file is None:
            file = self._opened(number)
            if len(self._open) >= _OPEN_FILES:
                self._open = {}  # without a lock, which a fork could leave locked: at worst a file is opened twice
            self._open[number] = file
        return file

    def _opened(self, number: int) -> PackFile:
        file = PackFile(self.path(number))
        before, now = stamp_in(self.stamps, number), (file.size, file.modified)
        if not same_stamp(before, now):
            file.close()
            raise CorruptPackError(f"changed since it was listed: {what_changed(before, now)}", file.path)
        return file

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Return a range of a file, or of what a compressed range gives.

        Raises
        ------
        PackError
            As `open`, and where the range does not lie in the file.
        ImageError
            If a compressed range is damaged.
        """
        if number < self.packed.first:
            return self.open(number).read(offset, size)
        return self.packed.read(self.open(self.packed.file(number)), number, offset, size)

    def close(self) -> None:
        """Close the files that are open."""
        for file in list(self._open.values()):
            file.close()
        self._open = {}

    def __getstate__(self) -> dict[str, object]:
        return {"root": self.root, "names": self.names, "stamps": self.stamps, "packed": self.packed, "_open": {}}
