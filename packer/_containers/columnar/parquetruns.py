"""Parquet's lists of small numbers: runs of one number, and groups of eight in few bits each.

``Encodings.md`` of apache/parquet-format calls them RLE/bit-packing hybrid. Definition levels and the numbers of
values in a dictionary are such lists.
"""

from __future__ import annotations

import numpy as np

from packer._table import Ints

__all__ = ["numbers_in"]


def numbers_in(data: bytes, width: int, count: int) -> Ints:
    """Return numbers of so many bits: runs of one number, and groups of eight; ValueError where there are too few."""
    if width > 32:
        raise ValueError(f"numbers of {width} bits")
    found, have, at, size = [np.empty(0, np.int64)], 0, 0, (width + 7) // 8
    while have < count:
        head = shift = 0
        while True:
            if at >= len(data) or shift > 35:
                raise ValueError(f"{have} of {count} numbers are there")
            head |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 0x80:
                break
        if head & 1:
            groups = min(head >> 1, (count - have + 7) // 8)
            packed = np.frombuffer(data[at : at + groups * width], np.uint8)
            if len(packed) < groups * width:
                raise ValueError(f"{have} of {count} numbers are there")
            bits = np.unpackbits(packed, bitorder="little").reshape(-1, width) if width else np.zeros((8 * groups, 1))
            part = bits.astype(np.int64) @ (1 << np.arange(max(width, 1), dtype=np.int64))
            at += (head >> 1) * width
        else:
            part = np.full(min(head >> 1, count - have), int.from_bytes(data[at : at + size], "little"), np.int64)
            at += size
        if not len(part):
            raise ValueError("a run of no numbers")
        found.append(part[: count - have])
        have += len(found[-1])
    numbers: Ints = np.concatenate(found)
    return numbers
