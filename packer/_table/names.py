"""Names of samples, in two arrays instead of one Python string each."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from packer._table.pieces import blocks
from packer._table.vector import Vector
from packer.errors import CorruptPackError

__all__ = ["LONGEST_NAME", "Names", "cut_name", "decode_name", "encode_name"]

LONGEST_NAME = 1 << 16
"""Bytes that a name may have. Ends that go back and forth could else give one long name again and again."""

_MOST_TOGETHER = 1 << 26  # bytes


class Names(Sequence[str]):
    """An immutable sequence of strings in two arrays.

    Every way to a name raises CorruptPackError, with its index, where the ends do not lie inside of the blob,
    or a name is longer than `LONGEST_NAME`.

    Parameters
    ----------
    blob : (B,) uint8 array, or vector of such
        All names, one after the other, as UTF-8; bytes that are not UTF-8 come back as surrogates.
    ends : (N,) int64 array, or vector of such
        Where each name ends in `blob`.
    path : str
        The pack that the names are those of, for messages.
    """

    __slots__ = ("_blob", "_ends", "path")

    def __init__(
        self, blob: npt.NDArray[np.uint8] | Vector, ends: npt.NDArray[np.int64] | Vector, path: str = ""
    ) -> None:
        self._blob, self._ends = blob, ends
        self.path = path

    @property
    def blob(self) -> npt.NDArray[np.uint8]:
        """All names; of a vector that is not held in memory for this moment, see `Vector.array`."""
        return self._blob.array() if isinstance(self._blob, Vector) else self._blob

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        """Where each ends, as `blob`."""
        return self._ends.array() if isinstance(self._ends, Vector) else self._ends

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """Store `names`."""
        blob, ends = bytearray(), array("q")
        for name in names:
            blob += encode_name(name)
            ends.append(len(blob))
        return cls(np.frombuffer(blob, np.uint8), np.frombuffer(ends, np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Names]) -> Names:
        """Return the names of all `parts`, one part after the other; a name that a part has not is none here either."""
        blobs = []
        for part in parts:  # where its last name ends, the first one of the next part begins
            last = int(part.ends[-1]) if len(part) else 0
            is_end = 0 <= last <= len(part.blob)
            blobs.append(part.blob[: last if is_end else _furthest(part.ends, len(part.blob))])
        starts = np.cumsum([0, *map(len, blobs)])
        ends = [
            np.where((part.ends < 0) | (part.ends > len(blob)), -1, part.ends + start)
            for part, blob, start in zip(parts, blobs, starts[:-1], strict=True)
        ]
        return cls(np.concatenate(blobs), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return decode_name(self.encoded(index))

    def __iter__(self) -> Iterator[str]:
        for index, name in enumerate(self.each_encoded()):
            if name is None:
                raise self._missing(index)
            yield decode_name(name)

    def get(self, index: int) -> str:
        """Return name `index` for a message: empty where the ends do not lie inside of the blob."""
        return decode_name(self._between_ends(range(len(self))[index]) or b"")

    def between(self, start: int, stop: int) -> Names:
        """Return names `start` to `stop` - 1, of which none is another one than here, whatever the ends are."""
        ends = self._ends[start:stop]
        first, last = int(self._ends[start - 1]) if start else 0, _furthest(ends, len(self._blob))
        first = first if 0 <= first <= len(self._blob) else 0
        return Names(self._blob[first : max(first, last)], ends - first, self.path)

    def encoded(self, index: int) -> bytes:
        """Return name `index` as its bytes."""
        index = range(len(self))[index]
        name = self._between_ends(index)
        if name is None:
            raise self._missing(index)
        return name

    def each_encoded(self) -> Iterator[bytes | None]:
        """Yield every name as its bytes; None where the ends do not lie inside of the blob."""
        start, size = 0, len(self._blob)
        for ends in blocks(self._ends):
            begin, blob = self._around(start, ends)
            for end in ends.tolist():
                fits = 0 <= start <= end <= min(size, start + LONGEST_NAME)
                yield bytes(blob[start - begin : end - begin]) if fits else None
                start = end

    def _around(self, start: int, ends: npt.NDArray[np.int64]) -> tuple[int, memoryview]:
        """Return bytes among which are all names from `start` on that end at `ends`, and where these bytes begin."""
        if not isinstance(self._blob, Vector):
            return 0, self._blob.data
        begin, end = max(0, min(start, int(ends.min()))), min(len(self._blob), int(ends.max()))
        if end - begin > _MOST_TOGETHER:  # of ends that go back and forth
            return 0, self.blob.data
        return begin, self._blob[begin : max(begin, end)].data

    def _between_ends(self, index: int) -> bytes | None:
        return cut_name(self._blob, int(self._ends[index - 1]) if index else 0, int(self._ends[index]))

    def _missing(self, index: int) -> CorruptPackError:
        return CorruptPackError(f"name {index} lies outside of the names, or is too long", self.path, index)


def _furthest(ends: npt.NDArray[np.int64], size: int) -> int:
    """Return the largest of the ends that lie inside of so many bytes: the last one may be damaged."""
    return int(ends.max(initial=0, where=(ends >= 0) & (ends <= size)))


def cut_name(blob: npt.NDArray[np.uint8] | Vector, start: int, end: int) -> bytes | None:
    """Return the name from `start` to `end`; None where these do not lie inside of the blob, or are no name's."""
    return blob[start:end].tobytes() if 0 <= start <= end <= min(len(blob), start + LONGEST_NAME) else None


def encode_name(name: str) -> bytes:
    """Return the bytes of a name: UTF-8, and surrogates as the bytes they stand for."""
    return name.encode("utf-8", "surrogateescape")


def decode_name(name: bytes) -> str:
    """Return the name that `encode_name` turned into bytes."""
    return name.decode("utf-8", "surrogateescape")
