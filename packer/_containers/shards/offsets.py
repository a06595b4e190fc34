"""Shards that begin with how many samples they hold and where each begins, as those of MDS and LitData.

Layout: u32 n; (n + 1) x u32, where each sample begins and where the last ends; the samples. A sample has the sizes of
those parts that have no fixed one, u32 each, and then its parts.
"""

from __future__ import annotations

import abc
import itertools
import os
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from packer._containers.arrays.arrays import array_type
from packer._containers.contract import Container, Entry, Piece
from packer._containers.shards.pilpixels import pil_layout, pil_pixels
from packer._containers.shards.reading import Reading, reading
from packer._containers.shards.roles import LOOKED_AT, ColumnType, Roles, Value, roles_of, short_text
from packer.errors import SourceError, printable

__all__ = ["OffsetShards", "Part", "first_offset", "samples"]

_COUNT = struct.Struct("<I")
_BLOCK = 1 << 14  # samples
_SHORT = 256  # bytes of a value that may be a label


@dataclass(frozen=True)
class Part(abc.ABC):
    """What each sample has under a name.

    Attributes
    ----------
    name : str
    kind : str
        The type, as the shards' own library calls it.
    size : int or None
        The bytes of every value; None where each value has its own size.
    """

    name: str
    kind: str
    size: int | None = None

    @property
    def base(self) -> str:
        """The type without what is said of it after a colon."""
        return self.kind.partition(":")[0]

    @property
    @abc.abstractmethod
    def is_array(self) -> bool:
        """Whether values are arrays, whose dtype and axes are known from the first of them."""

    @abc.abstractmethod
    def type(self) -> ColumnType:
        """Return what values are; ValueError where the part's size is none of its type."""

    @abc.abstractmethod
    def value(self, file: Reading, piece: Piece) -> Value:
        """Return a value that is a number or an array; of any other `piece`. ValueError where the bytes are none."""


@dataclass(eq=False)
class OffsetShards(Container):
    """Shards of one list of parts; `_choose` says what these become."""

    parts: Sequence[Part] = ()
    counts: Sequence[int | None] = ()
    """How many samples each shard has, where the index says."""

    roles: Roles = field(default_factory=lambda: Roles("", None, None, {}))

    @property
    def units(self) -> int:
        return len(self.counts)

    def _stem(self, unit: int) -> str:
        """Return what names of a shard's samples begin with."""
        return os.path.splitext(self.files[unit])[0]

    def _opened(self, unit: int) -> AbstractContextManager[Reading]:
        """Open a shard."""
        return reading(self.root / self.files[unit])

    def entries(self, unit: int) -> Iterator[Entry]:
        stem, wanted = self._stem(unit), self.roles.wanted
        with self._opened(unit) as file:
            for number, values in enumerate(self._values(file, unit, wanted)):
                name = f"{stem}/{number:06d}"
                try:
                    if isinstance(values, Exception):
                        raise values
                    shape, image = None, values[self.roles.image]
                    if self.pixels is not None and isinstance(image, Piece):
                        values[self.roles.image], shape = pil_pixels(file.read, image, self.pixels)
                    entry = self.roles.entry(name, values, file.read, shape)
                except (ValueError, struct.error) as error:
                    entry = Entry(name, b"", problem=f"sample {number}: {printable(error)}")
                yield entry

    def _values(
        self, file: Reading, unit: int, wanted: Collection[str]
    ) -> Iterator[dict[str, Value] | ValueError | struct.error]:
        """Yield the values of each sample by the names of the parts that are wanted, or why there are none."""
        sizes = [part.size for part in self.parts]
        parts = [(place, part) for place, part in enumerate(self.parts) if part.name in wanted]
        for _, start, stop in samples(file, self.counts[unit]):
            try:
                places = _places(file, start, stop, sizes)
                yield {part.name: part.value(file, Piece(unit, *places[place])) for place, part in parts}
            except (ValueError, struct.error) as error:
                yield error

    def _choose(self, keys: Mapping[str, str], where: str) -> None:
        """Set what parts become: the axes of arrays and the mode of pixels are those of the first sample."""
        names = [part.name for part in self.parts]
        with self._opened(0) as file:
            try:
                types = {part.name: part.type() for part in self.parts}
                first = next(self._values(file, 0, names), {})
                if isinstance(first, Exception):
                    raise first
                arrays = {name: value for name, value in first.items() if isinstance(value, np.ndarray)}
                types |= {name: array_type(value) for name, value in arrays.items()}
            except (ValueError, struct.error) as error:
                raise _refused(file, 0, error) from error
            looked_at = self._first_values(file, types)
            self.roles = roles_of(types, keys, where, self.account, looked_at)
            pil = {part.name for part in self.parts if part.base == "pil"}
            if pil & self.roles.fields.keys():
                raise SourceError(f"{where}: only the image may be a pil: name with --key what is wanted")
            if self.roles.image in pil and isinstance(image := first.get(self.roles.image), Piece):
                try:
                    self.pixels = pil_layout(file.read, image)
                except ValueError as error:
                    raise _refused(file, 0, error) from error
        self.fields, self.label_type = tuple(self.roles.fields.values()), self.roles.label_type
        self.why_unlabeled = self.roles.why_unlabeled
        self.notes += self.roles.notes

    def _first_values(self, file: Reading, types: Mapping[str, ColumnType]) -> dict[str, list[Any]]:
        """Return the numbers and short texts of the first samples, by the names of their parts."""
        names = [name for name, type in types.items() if type.kind in ("scalar", "text", "bytes")]
        found: dict[str, list[Any]] = {}
        for values in itertools.islice(self._values(file, 0, names), LOOKED_AT):
            for name, value in {} if isinstance(values, Exception) else values.items():
                if isinstance(value, Piece):
                    value = file.read(value.offset, value.size) if value.size <= _SHORT else b""
                label = short_text(value) if isinstance(value, bytes) else value
                if label is not None:
                    found.setdefault(name, []).append(label)
        return found


def _refused(file: Reading, number: int, error: Exception) -> SourceError:
    return SourceError(f"{file.path}: sample {number}: {printable(error)}")


def first_offset(file: Reading) -> int:
    """Return where the table of offsets ends."""
    (count,) = _COUNT.unpack(file.read(0, 4))
    return 4 * (int(count) + 2)


def samples(file: Reading, count: int | None = None) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each sample, where it begins, and where it ends.

    Parameters
    ----------
    file : Reading
    count : int, optional
        How many there are as the index says.

    Raises
    ------
    SourceError
        If there are others than `count`, or one does not lie in the file after the table.
    """
    (found,) = _COUNT.unpack(file.read(0, 4))
    if count is not None and found != count:
        raise SourceError(f"{file.path}: has {found} samples, and the index says {count}")
    least = 4 * (found + 2)
    for first in range(0, found, _BLOCK):
        block = min(_BLOCK, found - first) + 1
        offsets = np.frombuffer(file.read(4 + 4 * first, 4 * block), "<u4").tolist()
        for number, (start, stop) in enumerate(itertools.pairwise(offsets), first):
            if not least <= start <= stop <= file.size:
                raise SourceError(
                    f"{file.path}: sample {number} lies at bytes {start} to {stop} of {file.size}: "
                    "it was cut short, or is damaged"
                )
            yield number, start, stop


def _places(file: Reading, start: int, stop: int, known: Sequence[int | None]) -> list[tuple[int, int]]:
    """Return where the parts of a sample begin, and their sizes; ValueError where they do not fill the sample."""
    unknown = sum(size is None for size in known)
    if 4 * unknown > stop - start:
        raise ValueError("it is too short for the sizes of its parts")
    told = iter(struct.unpack(f"<{unknown}I", file.read(start, 4 * unknown)))
    begin, parts = start + 4 * unknown, list[tuple[int, int]]()
    for size in known:
        length = next(told) if size is None else size
        parts.append((begin, length))
        begin += length
    if begin != stop:
        raise ValueError(f"its parts have {begin - start} bytes, and it has {stop - start}")
    return parts
