"""Blocks of objects in the memory of this process, where no disk keeps them; the least recently used go first."""

from __future__ import annotations

import threading
from collections import OrderedDict

from packer._storage.limits import available_memory
from packer._storage.remote.stretches import BLOCK

__all__ = ["Memory", "default_limit"]

_SHARE, _MOST, _LEAST = 16, 4 << 30, 64 << 20


def default_limit() -> int:
    """Return how many bytes this process keeps at most: a share of the memory that it may use."""
    return max(_LEAST, min(_MOST, (available_memory() or _MOST) // _SHARE))


class Memory:
    """Blocks by object and number; a bounded number of them.

    Parameters
    ----------
    limit : int
        Bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def allow(self, limit: int) -> None:
        """Keep as many bytes as that from now on, where it was less before."""
        self._limit = max(self._limit, limit)

    def put(self, identity: str, first: int, data: memoryview) -> None:
        """Keep blocks of an object, from the block `first` on."""
        with self._lock:
            for block, begin in enumerate(range(0, len(data), BLOCK), first):
                old = self._blocks.pop((identity, block), b"")
                piece = self._blocks[identity, block] = bytes(data[begin : begin + BLOCK])
                self._size += len(piece) - len(old)
            while self._size > self._limit:
                self._size -= len(self._blocks.popitem(last=False)[1])

    def get(self, identity: str, block: int) -> bytes | None:
        """Return a block; None where it is not kept."""
        with self._lock:
            found = self._blocks.get((identity, block))
            if found is not None:
                self._blocks.move_to_end((identity, block))
            return found

    def has(self, identity: str, block: int) -> bool:
        """Tell whether a block is kept."""
        return (identity, block) in self._blocks
