"""Names that occur twice, found without holding every name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from packer._table import spans

__all__ = ["Hashes", "Texts", "hashes_of", "repeats"]

Hashes = npt.NDArray[np.int64]


class Texts(Protocol):
    """What gives texts by their index, from 0, and all in their order, each time anew."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> str: ...
    def __iter__(self) -> Iterator[str]: ...


def repeats(texts: Texts) -> Iterator[tuple[int, int]]:
    """Yield the index of every text that an earlier one equals, and the index of the first of these.

    Hashes find what may be equal, and comparing the texts decides. That takes 8 bytes of memory a text, and 16 where
    two have one hash. The indices come in no order.

    Parameters
    ----------
    texts : Texts
        Iterated once. Where hashes meet, iterated again, and the texts concerned are asked for by index.
    """
    hashes = hashes_of(texts)
    hashes.sort()
    if not any((hashes[part][1:] == hashes[part][:-1]).any() for part in spans(len(hashes), overlap=1)):
        return
    hashes = hashes_of(texts)
    order = np.argsort(hashes, kind="stable")
    first: dict[str, int] = {}
    before = -1
    for part in spans(len(order), overlap=1):
        indices = order[part]
        ordered = hashes[indices]
        for place in np.flatnonzero(ordered[1:] == ordered[:-1]).tolist():
            earlier, index = int(indices[place]), int(indices[place + 1])
            if earlier != before:  # else it is of the same group, whose texts nearly always are all one
                first = {texts[earlier]: earlier}
            found = first.setdefault(texts[index], index)
            if found != index:
                yield index, found
            before = index


def hashes_of(texts: Texts) -> Hashes:
    """Return a hash of each text, 8 bytes; equal ones are so in this process only."""
    return np.fromiter(map(hash, texts), np.int64, len(texts))
