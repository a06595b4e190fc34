"""The values of fields in the list of a source, after the names; `packer._sources.listing` has the rest of the list.

For every field, each column beginning at a multiple of 8 bytes:

a scalar or a class     its values, in the field's dtype or int64; then a byte a value, 1 where there is none
bytes, or files         an int64 a value, where it begins; an int64, its size, -1 where there is none; then all values,
                        which are paths where the values are files

Then a uint32 for every 4096 images: the CRC-32C of their values, field by field, as `Column.content` gives these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from packer._fields import DTYPES, Field
from packer._sources.fieldvalues import Blobs, Column, Files, InContainer, Numbers
from packer._storage.packfile import PackFile

__all__ = ["block_checksum", "described_columns", "listed_columns", "padding", "stored_columns"]

_ALIGNMENT = 8


def described_columns(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Return what the JSON of a list says of the fields."""
    return [
        {"field": column.field.to_json(), "files": isinstance(column, Files), "bytes": _bytes(column)}
        for column in columns
    ]


def stored_columns(columns: Sequence[Column]) -> Iterator[npt.NDArray[Any]]:
    """Yield what is stored of the fields, but the checksums, array by array."""
    for column in columns:
        if isinstance(column, Numbers):
            yield column.values.astype(_dtype(column.field), copy=False)
            yield column.null.view(np.uint8)
        else:
            blobs = _gathered(_blobs(column))
            yield from (blobs.starts, blobs.sizes, blobs.blob)


def listed_columns(
    file: PackFile, start: int, count: int, said: Sequence[Mapping[str, Any]], root: Path
) -> tuple[tuple[Column, ...], int]:
    """Return the fields of a list whose columns begin at `start`, and where they end.

    Raises
    ------
    PackError
        If the file is too short.
    ValueError, KeyError, TypeError
        If what the list says of a field is none.
    """
    columns: list[Column] = []

    def array(length: int, dtype: str) -> npt.NDArray[Any]:
        nonlocal start
        start += padding(start)
        values = file.array(start, length, dtype)
        start += values.nbytes
        return values

    for one in said:
        field, size = Field.from_json(one["field"]), one["bytes"]
        if type(size) is not int or size < 0 or type(one["files"]) is not bool:
            raise ValueError(f"what the list says of the field {field.name!r} is of the wrong type")
        if not field.is_blob:
            columns.append(Numbers(field, array(count, _dtype(field)), array(count, "|u1") != 0))
            continue
        starts, sizes = array(count, "<i8"), array(count, "<i8")
        blobs = Blobs(field, array(size, "|u1"), starts, sizes)
        columns.append(Files(field, root, blobs) if one["files"] else blobs)
    return tuple(columns), start + padding(start)


def block_checksum(columns: Sequence[Column], start: int, stop: int) -> int:
    """Return the CRC-32C of the values of rows `start` to `stop` - 1; of any number, where the list is damaged."""
    crc = 0
    for column in columns:
        for piece in column.content(start, min(stop, len(column))):
            crc = google_crc32c.extend(crc, piece)
    return int(crc)


def padding(position: int) -> int:
    """Return how many zeros stand before a column."""
    return -position % _ALIGNMENT


def _dtype(field: Field) -> str:
    return DTYPES.get(field.dtype, "<i8")


def _bytes(column: Column) -> int:
    if isinstance(column, Numbers):
        return 0
    return int(np.maximum(_blobs(column).sizes, 0).sum())


def _blobs(column: Blobs | Files | InContainer) -> Blobs:
    """Return what is stored of a column: values, paths of files, or where values lie in files of a container."""
    if isinstance(column, InContainer):
        where = np.frombuffer(b"".join(column.content(0, len(column))), "<i8").reshape(3, -1).T
        return Blobs.packed(
            column.field, np.ascontiguousarray(where).reshape(-1).view(np.uint8), np.full(len(column), 24)
        )
    return column.paths if isinstance(column, Files) else column


def _gathered(blobs: Blobs) -> Blobs:
    """Return values one after the other, and nothing between them."""
    packed = Blobs.packed(blobs.field, blobs.blob, blobs.sizes)
    if np.array_equal(packed.starts, blobs.starts):
        return Blobs.packed(blobs.field, blobs.blob[: _bytes(blobs)], blobs.sizes)
    return Blobs.of(blobs.field, (blobs.get(index) for index in range(len(blobs))))
