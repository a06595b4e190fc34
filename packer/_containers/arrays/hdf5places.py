"""Where the rows of a dataset of HDF5 lie in its file, and vectors of variable length in the file's heaps.

A vector is u32 length, u64 address of a heap, u32 number in it. A heap is ``GCOL``, u8 1, three bytes, u64 size; and
for each object u16 number, u16 references, four bytes, u64 size, and the bytes, padded to eight.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from packer._containers.contract import Packed, Piece
from packer._containers.shards.reading import Reading
from packer._containers.unpacking import MOST_UNPACKED

if TYPE_CHECKING:
    import h5py

__all__ = ["Heaps", "is_text", "rows_of"]

_DEFLATE, _SHUFFLE = 1, 2
_REMEDY = "Write it anew: h5repack -f NONE -l CONTI FILE NEW"
_VECTOR = struct.Struct("<IQI")
_HEAP = struct.Struct("<4sB3xQ")
_OBJECT = struct.Struct("<HH4xQ")
_MOST_HEAPS = 64
_RATIO = 1032  # deflate makes bytes smaller than that by no more


def rows_of(dataset: h5py.Dataset, file: Reading) -> Iterator[Piece | Packed]:
    """Yield where each row of a dataset lies in the file; of vectors and texts of variable length, where `Heaps` looks.

    Raises
    ------
    ValueError
        If rows lie in other files or in pieces, were never written, or are compressed in a way that is not known here.
    """
    if dataset.external or dataset.is_virtual:
        raise ValueError(f"its data lie in other files. {_REMEDY}")
    row = _VECTOR.size if is_text(dataset) else dataset.id.get_type().get_size()
    for length in dataset.shape[1:]:
        row *= length
    if dataset.chunks is not None:
        yield from _rows_of_chunks(dataset, file, row)
        return
    begin = dataset.id.get_offset()
    if begin is None:
        raise ValueError(f"its data have no place of their own in the file. {_REMEDY}")
    if begin + len(dataset) * row > file.size:
        raise ValueError(f"its data end at byte {begin + len(dataset) * row} of {file.size}: the file was cut short")
    for number in range(len(dataset)):
        yield Piece(0, begin + number * row, row)


def _rows_of_chunks(dataset: h5py.Dataset, file: Reading, row: int) -> Iterator[Piece | Packed]:
    per_chunk, *whole = dataset.chunks
    if tuple(whole) != dataset.shape[1:]:
        raise ValueError(f"chunks of {dataset.chunks} have parts of a sample. {_REMEDY}")
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(number)[0] for number in range(properties.get_nfilters())]
    is_deflated = [number for number, code in enumerate(filters) if code == _DEFLATE]
    known = (_DEFLATE, _SHUFFLE) if dataset.dtype.itemsize == 1 else (_DEFLATE,)  # single bytes stay in their places
    if any(code not in known for code in filters) or len(is_deflated) > 1:
        raise ValueError(f"it is compressed in a way that packer does not read. {_REMEDY}")
    for first in range(0, len(dataset), per_chunk):
        chunk = dataset.id.get_chunk_info_by_coord((first, *(0 for _ in whole)))
        if chunk.byte_offset is None:
            raise ValueError(f"it was never written. {_REMEDY}")
        if chunk.byte_offset + chunk.size > file.size:
            raise ValueError(
                f"its chunk ends at byte {chunk.byte_offset + chunk.size} of {file.size}: it was cut short"
            )
        is_packed = bool(is_deflated) and not chunk.filter_mask >> is_deflated[0] & 1
        if is_packed and per_chunk * row > min(MOST_UNPACKED, chunk.size * _RATIO):
            raise ValueError(f"{per_chunk * row} bytes are more than a chunk of {chunk.size} gives. {_REMEDY}")
        if not is_packed and chunk.size < per_chunk * row:
            raise ValueError(f"a chunk of {chunk.size} bytes, where {per_chunk * row} are expected")
        for number in range(min(per_chunk, len(dataset) - first)):
            if is_packed:
                place = Piece(0, chunk.byte_offset, chunk.size)
                yield Packed(place, "zlib", per_chunk * row, number * row, row)
            else:
                yield Piece(0, chunk.byte_offset + number * row, row)


def is_text(dataset: h5py.Dataset) -> bool:
    """Tell whether a dataset has texts of variable length, of which libhdf5 says the size of a pointer."""
    import h5py

    found = h5py.check_string_dtype(dataset.dtype)
    return found is not None and found.length is None


class Heaps:
    """The global heaps of a file, each walked once while its vectors are asked for."""

    def __init__(self, file: Reading) -> None:
        self._file = file
        self._known: dict[int, dict[int, Piece]] = {}

    def piece(self, vector: Piece | Packed) -> Piece:
        """Return where the bytes of a vector lie; ValueError where they lie nowhere, or the vector is compressed."""
        if isinstance(vector, Packed) or vector.size != _VECTOR.size:
            raise ValueError(f"its places are compressed. {_REMEDY}")
        length, address, number = _VECTOR.unpack(self._file.read(vector.offset, vector.size))
        if not length:
            return Piece(0, 0, 0)
        if address not in self._known:
            if len(self._known) >= _MOST_HEAPS:
                self._known.clear()
            self._known[address] = dict(self._objects(address))
        found = self._known[address].get(number)
        if found is None or found.size < length:
            raise ValueError(f"the heap at byte {address} has no {length} bytes of number {number}")
        return Piece(0, found.offset, length)

    def _objects(self, address: int) -> Iterator[tuple[int, Piece]]:
        signature, version, size = _HEAP.unpack(self._file.read(address, _HEAP.size))
        end = address + size
        if signature != b"GCOL" or version != 1 or end > self._file.size:
            raise ValueError(f"there is no heap at byte {address}")
        at = address + _HEAP.size
        while at + _OBJECT.size <= end:
            number, _, length = _OBJECT.unpack(self._file.read(at, _OBJECT.size))
            at += _OBJECT.size
            if not number and at - _OBJECT.size + length == end:  # the room that is free
                return
            if not number or at + length > end:  # over which libhdf5 would go round and round
                raise ValueError(f"the heap at byte {address} is damaged at byte {at - _OBJECT.size}")
            yield number, Piece(0, at, length)
            at += -(-length // 8) * 8
