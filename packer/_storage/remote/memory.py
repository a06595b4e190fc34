"""Blocks of objects in the memory of this process, where no disk keeps them; the least recently used go first."""

from __future__ import annotations

import threading
from collections import OrderedDict

from packer._storage.limits import available_memory

__all__ = ["SMALL", "Memory", "default_limit"]

SMALL = 4 << 10
"""Bytes of a block where memory alone keeps it: neighbours are fetched apart there, and share what is between them."""

_SHARE, _MOST, _LEAST = 16, 4 << 30, 64 << 20


def default_limit() -> int:
    """Return how many bytes this process keeps at most: a share of the memory that it may use."""
    return max(_LEAST, min(_MOST, (available_memory() or _MOST) // _SHARE))


class Memory:
    """Blocks by object, size and number; a bounded number of them.

    Parameters
    ----------
    limit : int
        Bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._blocks: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def allow(self, limit: int) -> None:
        """Keep as many bytes as that from now on, where it was less before."""
        self._limit = max(self._limit, limit)

    def put(self, identity: str, first: int, data: memoryview, size: int) -> None:
        """Keep blocks of an object, of `size` bytes each, from the block `first` on."""
        with self._lock:
            for block, begin in enumerate(range(0, len(data), size), first):
                old = self._blocks.pop((identity, size, block), b"")
                piece = self._blocks[identity, size, block] = bytes(data[begin : begin + size])
                self._size += len(piece) - len(old)
            while self._size > self._limit:
                self._size -= len(self._blocks.popitem(last=False)[1])

    def get(self, identity: str, block: int, size: int) -> bytes | None:
        """Return a block of that size; None where it is not kept."""
        with self._lock:
            found = self._blocks.get((identity, size, block))
            if found is not None:
                self._blocks.move_to_end((identity, size, block))
            return found

    def has(self, identity: str, block: int, size: int) -> bool:
        """Tell whether a block of that size is kept."""
        return (identity, size, block) in self._blocks
