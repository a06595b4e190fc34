"""What is wrong with a pack."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from packer._formats import Reader
from packer._table import Buffer
from packer.errors import CorruptPackError, PackError, printable

__all__ = ["Damage", "blobs_or_errors"]

_HELD = 2 << 20  # bytes of blobs that are read at a time


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong with a pack.

    Attributes
    ----------
    reason : str
        What is wrong; of a field, the reason begins with the field's name.
    index : int, optional
        Which sample it is, where it is one.
    name : str
        The sample's name.
    field : str
        The field whose value is wrong; empty where it is the image, or no value at all.
    """

    reason: str
    index: int | None = None
    name: str = ""
    field: str = ""

    def __str__(self) -> str:
        name = f" ({printable(self.name)})" if self.name else ""
        return self.reason if self.index is None else f"sample {self.index}{name}: {self.reason}"


def blobs_or_errors(
    reader: Reader, indices: range, name: str
) -> Iterator[tuple[int, Buffer | CorruptPackError | None]]:
    """Yield of each sample its index, and its bytes of a field, None where it has none, or why they cannot be read.

    All are read at once where they are small and undamaged. What the machine cannot read, such as for too many open
    files, is no damage: it is raised as PackError.
    """
    positions = np.arange(indices.start, indices.stop)
    _, sizes, _ = reader.locate_blobs(positions, name)
    found: Sequence[Buffer | None] = ()
    if np.clip(sizes, 0, _HELD).sum() <= _HELD:
        with contextlib.suppress(PackError):
            found = reader.blobs(positions, name)
    if found:
        yield from zip(indices, found, strict=True)
        return
    for place, index in enumerate(indices):
        try:
            yield index, reader.blobs(positions[place : place + 1], name)[0]
        except CorruptPackError as error:
            yield index, error
