"""What lies around the samples in files of another tool's layout: its checksums, and the reader that compares them."""

from __future__ import annotations

from collections.abc import Iterable

import google_crc32c
import numpy as np

from packer._formats.index import IndexReader
from packer._storage.packfile import PackFile
from packer._table import Ints, Table
from packer.errors import CorruptPackError, PackError

__all__ = ["FramedReader", "framing_checksum", "lying_in", "with_beginning"]

_PIECE = 1 << 20


def framing_checksum(file: PackFile, ranges: Iterable[tuple[int, int]]) -> int:
    """Return the CRC-32C of what lies in a file outside of some ranges.

    Parameters
    ----------
    file : PackFile
    ranges : iterable of (int, int)
        Where each begins and ends, ascending.
    """
    checksum = at = 0
    for begin, end in [*ranges, (file.size, file.size)]:
        while at < min(begin, file.size):
            piece = file.read(at, min(_PIECE, begin - at, file.size - at))
            checksum = google_crc32c.extend(checksum, piece)
            at += len(piece)
        at = max(at, end)
    return checksum


def lying_in(table: Table, start: int, stop: int) -> list[tuple[int, int]]:
    """Return where the images and the blobs lie whose offsets are `start` or more and below `stop`, from `start` on."""
    columns = [(table.offset, table.size)]
    for name, offset in table.more.items():
        if name.endswith(".offset"):
            columns.append((offset, table.more[f"{name.removesuffix('.offset')}.size"]))
    begins, ends = list[Ints](), list[Ints]()
    for offset, size in columns:
        inside = (offset >= start) & (offset < stop) & (size > 0)
        begins.append(offset[inside] - start)
        ends.append(begins[-1] + size[inside])
    begin, end = np.concatenate(begins), np.concatenate(ends)
    order = np.argsort(begin, kind="stable")
    return list(zip(begin[order].tolist(), end[order].tolist(), strict=True))


def with_beginning(checksum: int, beginning: bytes, rest: int) -> int:
    """Return the CRC-32C of bytes whose first ones were zeros when `checksum` was taken of them, and are others now.

    The CRCs of three messages of one length give, added without carry, the CRC of the three so added: here those of
    zeros and the rest, of the beginning and zeros, and of zeros alone.

    Parameters
    ----------
    checksum : int
    beginning : bytes
    rest : int
        How many bytes follow.
    """
    some, none = google_crc32c.value(beginning), google_crc32c.value(bytes(len(beginning)))
    for start in range(0, rest, _PIECE):
        zeros = bytes(min(_PIECE, rest - start))
        some, none = google_crc32c.extend(some, zeros), google_crc32c.extend(none, zeros)
    return checksum ^ int(some) ^ int(none)


class FramedReader(IndexReader):
    """Reads a pack in the layout of another tool through the index in it."""

    def check_structure(self) -> Iterable[str]:
        """Compare the files with the list of them, and what lies around the samples with its checksums."""
        damaged = False
        for problem in super().check_structure():
            damaged = True
            yield problem
        framing = self.manifest.layout.get("framing")
        starts = self._data.starts.tolist()
        if not isinstance(framing, list) or len(framing) != len(starts) - 2:
            yield "the manifest does not have a checksum of each file"
        elif not damaged:
            for number, expected in enumerate(framing):
                yield from self._check_framing(number, expected, starts[number], starts[number + 1])

    def _check_framing(self, number: int, expected: object, start: int, stop: int) -> Iterable[str]:
        name = self._data.name(number)
        try:
            file, _ = self._data.open_file(number)
            with file:
                if framing_checksum(file, lying_in(self.table, start, stop)) != expected:
                    yield f"{name}: what lies around the samples does not fit its checksum, and other tools read it"
        except PackError as error:
            yield f"{name}: {error.reason if isinstance(error, CorruptPackError) else error}"
