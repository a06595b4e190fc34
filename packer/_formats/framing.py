"""What lies around the samples in files of another tool's layout: its checksums, and the reader that compares them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import google_crc32c
import numpy as np

from packer._fields import Field, Stored
from packer._formats.index import IndexReader
from packer._storage.packfile import PackFile
from packer._table import NO_VALUE, Ints, Table
from packer.errors import CorruptPackError

__all__ = ["FramedReader", "end_of", "framing_checksum", "joined_checksum", "lying_in", "stored_value"]

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


def joined_checksum(first: int, second: int, size: int) -> int:
    """Return the CRC-32C of bytes that have the checksum `first`, and after them `size` bytes that have `second`."""
    if not first:  # of no bytes
        return second
    zeros = 0
    for at in range(0, size, _PIECE):  # a CRC is linear: what goes before adds what it becomes over zeros
        piece = bytes(min(_PIECE, size - at))
        first, zeros = google_crc32c.extend(first, piece), google_crc32c.extend(zeros, piece)
    return first ^ zeros ^ second


def lying_in(table: Table, start: int, stop: int) -> list[tuple[int, int]]:
    """Return where the images and the blobs lie whose offsets are `start` or more and below `stop`, from `start` on."""
    begins, ends = list[Ints](), list[Ints]()
    for offset, size in _places(table):
        inside = (offset >= start) & (offset < stop) & (size > 0)
        begins.append(offset[inside] - start)
        ends.append(begins[-1] + size[inside])
    begin, end = np.concatenate(begins), np.concatenate(ends)
    order = np.argsort(begin, kind="stable")
    return list(zip(begin[order].tolist(), end[order].tolist(), strict=True))


def end_of(table: Table, rows: int, start: int) -> int:
    """Return where the images and blobs of the first rows end that lie at `start` or behind; without any `start`."""
    ends = [start]
    for offset, size in _places(table):
        inside = (offset[:rows] >= start) & (size[:rows] > 0)
        ends.append(int((offset[:rows] + size[:rows])[inside].max(initial=start)))
    return max(ends)


def _places(table: Table) -> Iterator[tuple[Ints, Ints]]:
    """Yield where the images begin and their bytes, and then those of the blobs of each field."""
    yield table.offset, table.size
    for name, offset in table.more.items():
        if name.endswith(".offset"):
            yield offset, table.more[f"{name.removesuffix('.offset')}.size"]


def stored_value(written: Table, one: Field, index: int, read: Callable[[int, int], bytes]) -> Stored:
    """Return what the pack holds of a field of a row."""
    column = f"field.{one.name}"
    if one.is_blob:
        size, offset = (int(written.more[f"{column}.{what}"][index]) for what in ("size", "offset"))
        return None if size == NO_VALUE else read(offset, size)
    value: int | float = written.more[column][index].item()
    missing = value == NO_VALUE if one.kind == "class" else written.more[f"{column}.null"][index]
    return None if missing else value


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
        except CorruptPackError as error:
            yield f"{name}: {error.reason}"
