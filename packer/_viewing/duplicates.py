"""Samples whose images are the same bytes, found by the checksums in the table: only candidates are read.

A sample's checksum is the CRC-32C of its image, and then of its label, height, width and name (`packer._table`). The
name differs where the same image lies in a pack twice. What follows the image is known from the table, and a CRC can be
undone byte by byte from its end, so the CRC of the image alone is had without reading the image.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packer._table import Ints, Table
from packer._viewing.catalog import Catalog
from packer.errors import PackError

__all__ = ["Duplicates", "Group", "find_duplicates", "image_checksums"]

_POLYNOMIAL = 0x82F63B78  # of CRC-32C, reflected
_BLOCK = 1 << 16  # rows
_MOST_GROUPS = 200  # that are read and compared
_MOST_MEMBERS = 32  # of a group
_MOST_READ = 1 << 32  # bytes, of all groups

Checksums = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Group:
    """Samples whose images are the same bytes.

    Attributes
    ----------
    indices : list of int
        The first of them.
    count : int
        How many samples have this checksum and size.
    size : int
        Bytes of one image.
    """

    indices: list[int]
    count: int
    size: int


@dataclass(frozen=True)
class Duplicates:
    """What is there more than once.

    Attributes
    ----------
    groups : list of Group
        Those that were read and compared byte by byte, the largest first.
    candidates : int
        How many groups of samples have the same checksum and size, which is nearly certainly the same image.
    reason : str
        Why nothing can be said; empty where it can.
    """

    groups: list[Group]
    candidates: int
    reason: str = ""


def find_duplicates(catalog: Catalog) -> Duplicates:
    """Find images that lie in the packs more than once.

    All groups of one checksum and one size are counted. The images of the first groups are read and compared.
    CorruptPackError where the file of a table was cut short.
    """
    catalog.require_tables()
    if not all(reader.has_checksums for reader in catalog.readers):
        return Duplicates([], 0, "An index without checksums does not tell; `packer index` makes one that has them.")
    checksums = np.concatenate([image_checksums(reader.table) for reader in catalog.readers])
    order = np.lexsort((checksums, catalog.column("size")))[::-1]
    sizes, checksums = catalog.column("size")[order], checksums[order]
    differs = np.concatenate(([True], (sizes[1:] != sizes[:-1]) | (checksums[1:] != checksums[:-1]), [True]))
    bounds = np.flatnonzero(differs[: len(order) + 1])
    counts = np.diff(bounds)
    several = np.flatnonzero(counts > 1)
    groups, left = [], _MOST_READ
    for number in several[:_MOST_GROUPS].tolist():
        begin, count = int(bounds[number]), int(counts[number])
        members = np.sort(order[begin : begin + count])[:_MOST_MEMBERS]
        left -= int(sizes[begin]) * len(members)
        if left < 0:
            break
        groups += [Group(same, count, int(sizes[begin])) for same in _same_bytes(catalog, members) if len(same) > 1]
    return Duplicates(groups, len(several))


def image_checksums(table: Table) -> Checksums:
    """Return the CRC-32C of each image's bytes alone, (N,) uint32, from the checksums of the samples.

    What is returned for a row whose name does not lie inside of the names means nothing.
    """
    found = np.empty(len(table), np.uint32)
    for start in range(0, len(table), _BLOCK):
        found[start : start + _BLOCK] = _without_row(table, start, min(start + _BLOCK, len(table)))
    return found


def _without_row(table: Table, start: int, stop: int) -> Checksums:
    ends = np.asarray(table.name_end[start:stop])
    begins = np.concatenate((table.name_end[start - 1 : start] if start else [0], ends[:-1]))
    proper = (begins >= 0) & (begins <= ends) & (ends <= len(table.names)) & (ends - begins <= 1 << 16)
    lengths = np.where(proper, ends - begins, 0)
    if lengths.sum() > len(table.names):  # ends that go back and forth; undoing long names takes hours
        lengths[:] = 0
    state = ~np.asarray(table.crc32c[start:stop], np.uint32)
    rows = np.flatnonzero(lengths)
    for back in range(int(lengths.max(initial=0))):
        rows = rows[lengths[rows] > back]
        state[rows] = _undone(state[rows], table.names[ends[rows] - 1 - back])
    fields = np.empty(stop - start, np.dtype([("label", table.label.dtype), ("height", "<i4"), ("width", "<i4")]))
    for name in ("label", "height", "width"):
        fields[name] = getattr(table, name)[start:stop]
    for column in fields.view(np.uint8).reshape(stop - start, -1).T[::-1]:
        state = _undone(state, column)
    return ~state


def _table_of_crc() -> Checksums:
    """Return what each byte does to a CRC."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


_DOES = _table_of_crc()
_DONE_BY = np.argsort(_DOES >> 24).astype(np.uint32)  # the byte, by the highest byte of what it does


def _undone(state: Checksums, byte: npt.NDArray[np.uint8]) -> Checksums:
    """Return the states before a byte was taken in."""
    by = _DONE_BY[state >> 24]
    before: Checksums = ((state ^ _DOES[by]) << np.uint32(8)) | (by ^ byte)
    return before


def _same_bytes(catalog: Catalog, members: Ints) -> list[list[int]]:
    """Return samples in groups whose images are the same bytes; without those that cannot be read."""
    groups: dict[tuple[bytes, object], list[int]] = {}
    for index in members.tolist():
        pack, row = catalog.place(index)
        reader = catalog.readers[pack]
        raw = reader.manifest.codec == "raw"
        shape = (int(reader.table.height[row]), int(reader.table.width[row])) if raw else None
        try:
            digest = hashlib.sha256(reader.read(row)).digest()
        except PackError:
            continue
        groups.setdefault((digest, shape), []).append(index)
    return list(groups.values())
