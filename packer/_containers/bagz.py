"""Bagz (https://github.com/google-deepmind/bagz): records one after the other, and after them where each one ends.

The file ends with the ends of all records, each 8 bytes, little-endian. The last of them, the end of the last record,
is where these begin. A sample is a record; there are no labels and no names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from packer._containers.contract import Container, Entry, Piece, no_keys
from packer._containers.files import ForeignFiles
from packer._containers.imagenames import suffix_of
from packer._storage.packfile import PackFile
from packer.errors import SourceError, printable

__all__ = ["Bagz"]

_LIMIT = struct.Struct("<Q")
_BLOCK = 1 << 16  # records
_HEAD = 32  # bytes, by which an image is known


class Bagz(Container):
    """Files ``.bag``. Those called ``.bagz`` have compressed records, and are refused."""

    kind = "bagz"
    suffixes = (".bag", ".bagz")

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return path.suffix.lower() in cls.suffixes  # there is no signature

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> Bagz:
        no_keys(cls.kind, keys)
        for path in paths:
            if path.suffix.lower() == ".bagz":
                raise SourceError(
                    f"{printable(path)}: its records are compressed. Write them to a .bag, whose records are not."
                )
        return cls.of_files(paths)

    def entries(self, unit: int) -> Iterator[Entry]:
        with ForeignFiles(self.root, self.files).opened(unit) as file:
            begin = self._limits(file)
            count = (file.size - begin) // _LIMIT.size
            start, stem = 0, self.files[unit].rpartition(".")[0]
            digits = len(str(count))
            for first in range(0, count, _BLOCK):
                part = min(_BLOCK, count - first)
                ends = np.frombuffer(file.read(begin + first * _LIMIT.size, part * _LIMIT.size), "<u8").tolist()
                for number, end in enumerate(ends, first):
                    if not start <= end <= begin:
                        raise SourceError(f"{printable(file.path)}: damaged: record {number} ends at byte {end}")
                    suffix = suffix_of(file.read(start, min(_HEAD, end - start)))
                    yield Entry(f"{stem}/{number:0{digits}d}{suffix}", Piece(unit, start, end - start))
                    start = end

    def _limits(self, file: PackFile) -> int:
        """Return where the ends of the records begin."""
        if not file.size:
            return 0
        begin = _LIMIT.unpack(file.read(file.size - 8, 8))[0] if file.size >= _LIMIT.size else file.size + 1
        if begin > file.size or (file.size - begin) % _LIMIT.size:
            raise SourceError(f"{printable(file.path)}: no Bagz file, or one that was cut short")
        return int(begin)
