"""Long vectors piece by piece, and their checksums."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import google_crc32c
import numpy.typing as npt

from packer._table.vector import Vector

__all__ = ["blocks", "column_checksum", "spans"]

_BLOCK = 1 << 16  # elements


def blocks(column: npt.NDArray[Any] | Vector) -> Iterator[npt.NDArray[Any]]:
    """Yield a vector piece by piece, so that a copy of each takes no more memory for a longer one."""
    return (column[part] for part in spans(len(column)))


def spans(length: int, overlap: int = 0) -> Iterator[slice]:
    """Yield slices that cover a vector piece by piece; each goes on for `overlap` elements of the next one."""
    return (slice(start, min(start + _BLOCK + overlap, length)) for start in range(0, length, _BLOCK))


def column_checksum(column: npt.NDArray[Any] | Vector) -> int:
    """Return the CRC-32C of a vector's bytes."""
    return functools.reduce(google_crc32c.extend, (block.tobytes() for block in blocks(column)), 0)
