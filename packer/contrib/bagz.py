"""Bagz (https://github.com/google-deepmind/bagz): records one after the other, followed by their end offsets.

The file ends with the end offsets of all records, 8 bytes each, little-endian. The last of these offsets, the end of
the last record, is also where the table of offsets begins. Alternatively the table is in a separate file, ``limits.X``
next to ``X``. Each record is a sample; samples have no labels and no names.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from packer._containers.blocks import ContainerFile
from packer._containers.contract import Container, Entry, Piece, no_keys, suffix_at
from packer.errors import SourceError, printable

__all__ = ["Bagz"]

_LIMIT = struct.Struct("<Q")
_BLOCK = 1 << 16  # records whose end offsets are read at a time
_LIMITS = "limits."


@dataclass(eq=False)
class Bagz(Container):
    """Files ``.bag`` of records. Files ``.bagz`` have compressed records, and are refused."""

    kind = "bagz"
    suffixes = (".bag", ".bagz")

    limits: Sequence[int | None] = ()
    """For each file of records, the number in `files` of its ``limits.X``; None if the table is at the file's end."""

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        return super().recognise_directory(path, [name for name in names if not name.startswith(_LIMITS)])

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> Bagz:
        no_keys(cls.kind, keys)
        bags = [path for path in paths if not path.name.startswith(_LIMITS)] or list(paths)
        for path in bags:
            if path.suffix.lower() == ".bagz":
                raise SourceError(
                    f"{printable(path)}: its records are compressed. Write them uncompressed, to a .bag file."
                )
        sidecars = {path: limits for path in bags if os.path.isfile(limits := path.with_name(_LIMITS + path.name))}
        container = cls.of_files(bags, [*sidecars.values()])
        numbers = {path: number for number, path in enumerate(sidecars, len(bags))}
        container.limits = [numbers.get(path) for path in bags]
        return container

    def entries(self, unit: int) -> Iterator[Entry]:
        number = self.limits[unit]
        with self.reading(unit) as file:
            if number is None:
                yield from self._records(unit, file, file, _begin(file))
                return
            with self.reading(number) as limits:
                if limits.size % _LIMIT.size:
                    raise SourceError(
                        f"{limits.path}: {limits.size} bytes are not a list of record limits: it was cut short"
                    )
                yield from self._records(unit, file, limits, 0)

    def _records(self, unit: int, file: ContainerFile, limits: ContainerFile, begin: int) -> Iterator[Entry]:
        """Yield the records of a file. The file `limits` contains the records' end offsets, from byte `begin` on."""
        count, most = (limits.size - begin) // _LIMIT.size, begin if limits is file else file.size
        start, stem, digits = 0, self.files[unit].rpartition(".")[0], len(str(count))
        for first in range(0, count, _BLOCK):
            part = min(_BLOCK, count - first)
            ends = np.frombuffer(limits.read(begin + first * _LIMIT.size, part * _LIMIT.size), "<u8").tolist()
            for number, end in enumerate(ends, first):
                if not start <= end <= most:
                    raise SourceError(f"{file.path}: damaged: record {number} ends at byte {end}")
                suffix = suffix_at(file.read, start, end - start)
                yield Entry(f"{stem}/{number:0{digits}d}{suffix}", Piece(unit, start, end - start))
                start = end
        if start != most:
            raise SourceError(f"{file.path}: damaged: its last record ends at byte {start} of {most}")


def _begin(file: ContainerFile) -> int:
    """Return the offset at which the table of end offsets begins."""
    if not file.size:
        return 0
    begin = _LIMIT.unpack(file.read(file.size - 8, 8))[0] if file.size >= _LIMIT.size else file.size + 1
    if begin > file.size or (file.size - begin) % _LIMIT.size:
        raise SourceError(f"{file.path}: is not a Bagz file, or was cut short")
    return int(begin)
