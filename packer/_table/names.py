"""Names of samples, in two arrays instead of one Python string each."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from packer._table.pieces import blocks
from packer.errors import CorruptPackError

__all__ = ["LONGEST_NAME", "Names", "cut_name", "decode_name", "encode_name"]

LONGEST_NAME = 1 << 16
"""Bytes that a name may have. Ends that go back and forth could else give one long name again and again."""


class Names(Sequence[str]):
    """An immutable sequence of strings in two arrays.

    Every way to a name raises CorruptPackError, with its index, where the ends do not lie inside of the blob,
    or a name is longer than `LONGEST_NAME`.

    Parameters
    ----------
    blob : (B,) uint8 array
        All names, one after the other, as UTF-8; bytes that are not UTF-8 come back as surrogates.
    ends : (N,) int64 array
        Where each name ends in `blob`.
    path : str
        The pack that the names are those of, for messages.
    """

    __slots__ = ("blob", "ends", "path")

    def __init__(self, blob: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], path: str = "") -> None:
        self.blob = blob
        self.ends = ends
        self.path = path

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
        return len(self.ends)

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
        ends = self.ends[start:stop]
        first, last = int(self.ends[start - 1]) if start else 0, _furthest(ends, len(self.blob))
        first = first if 0 <= first <= len(self.blob) else 0
        return Names(self.blob[first : max(first, last)], ends - first, self.path)

    def encoded(self, index: int) -> bytes:
        """Return name `index` as its bytes."""
        index = range(len(self))[index]
        name = self._between_ends(index)
        if name is None:
            raise self._missing(index)
        return name

    def each_encoded(self) -> Iterator[bytes | None]:
        """Yield every name as its bytes; None where the ends do not lie inside of the blob."""
        blob, start = self.blob.data, 0
        for ends in blocks(self.ends):
            for end in ends.tolist():
                yield bytes(blob[start:end]) if 0 <= start <= end <= min(len(blob), start + LONGEST_NAME) else None
                start = end

    def _between_ends(self, index: int) -> bytes | None:
        return cut_name(self.blob, int(self.ends[index - 1]) if index else 0, int(self.ends[index]))

    def _missing(self, index: int) -> CorruptPackError:
        return CorruptPackError(f"name {index} lies outside of the names, or is too long", self.path, index)


def _furthest(ends: npt.NDArray[np.int64], size: int) -> int:
    """Return the largest of the ends that lie inside of so many bytes: the last one may be damaged."""
    return int(ends.max(initial=0, where=(ends >= 0) & (ends <= size)))


def cut_name(blob: npt.NDArray[np.uint8], start: int, end: int) -> bytes | None:
    """Return the name from `start` to `end`; None where these do not lie inside of the blob, or are no name's."""
    return blob[start:end].tobytes() if 0 <= start <= end <= min(len(blob), start + LONGEST_NAME) else None


def encode_name(name: str) -> bytes:
    """Return the bytes of a name: UTF-8, and surrogates as the bytes they stand for."""
    return name.encode("utf-8", "surrogateescape")


def decode_name(name: bytes) -> str:
    """Return the name that `encode_name` turned into bytes."""
    return name.decode("utf-8", "surrogateescape")
