"""Codecs for compressed ranges of files, and on-demand unpacking of such ranges.

A value in a compressed range has no offset in the file, so no index can locate the value; a conversion unpacks the
range instead. Each compressed range is numbered as if it were a file, after the last file of its container. The offset
of a value in it is an offset in the unpacked bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._containers.contract import NO_CRC, Packed, Piece
from packer._storage.files import Spool
from packer._storage.packfile import PackFile
from packer._table import Ints
from packer.errors import ImageError, MissingDependencyError, pip_install, printable

MOST_UNPACKED = 1 << 30
"""The maximum size of an unpacked range, in bytes."""

_CACHED_BYTES, _CACHED_RANGES = 1 << 28, 8  # the most recently unpacked ranges
_FED = 1 << 16  # bytes
_COLUMNS = np.dtype([(name, "<i8") for name in ("file", "offset", "size", "codec", "unpacked", "crc32")])


def unpack(codec: str, data: bytes, size: int) -> bytes:
    """Decompress bytes with a codec.

    Parameters
    ----------
    codec : str
        One of `CODECS`.
    data : bytes
    size : int
        The number of decompressed bytes.

    Raises
    ------
    ValueError
        If the data do not decompress to exactly `size` bytes.
    MissingDependencyError
        If the codec needs pyarrow, which is not installed.
    """
    if not 0 <= size <= MOST_UNPACKED:
        raise ValueError(f"{size} bytes exceed the {MOST_UNPACKED} that packer decompresses at once")
    unpacked = _DECODERS[codec](codec, data, size)
    if len(unpacked) != size:
        raise ValueError(f"its {codec} data decompress to {len(unpacked)} bytes instead of {size}")
    return unpacked


def _deflate(codec: str, data: bytes, size: int) -> bytes:
    """Inflate a frame of the codec; for gzip, one or more frames."""
    unpacked, at = bytearray(), 0
    while at < len(data) or not at:
        at += _inflate(codec, memoryview(data)[at:], size, unpacked)
        if codec != "gzip" and at < len(data):
            raise ValueError(f"its {codec} data end {len(data) - at} bytes too early")
    return bytes(unpacked)


def _inflate(codec: str, data: memoryview, size: int, unpacked: bytearray) -> int:
    """Inflate one frame into the output, up to `size` bytes in total; return the frame's compressed length.

    The input is passed to zlib in blocks, because zlib copies all input that follows the end of a frame. If the input
    were passed as a whole, zlib would copy the rest of the input once for each frame.
    """
    inflater, at = zlib.decompressobj(_FRAMES[codec]), 0
    while not inflater.eof:
        block = data[at : at + _FED]
        try:
            unpacked += inflater.decompress(block, size - len(unpacked) + 1)
        except zlib.error as error:
            raise ValueError(f"its {codec} data are damaged: {error}") from error
        at += len(block) - len(inflater.unused_data) - len(inflater.unconsumed_tail)
        if len(unpacked) > size or not (inflater.eof or block):
            raise ValueError(f"its {codec} data do not end after {size} bytes")
    return at


def pyarrow_for(why: str) -> Any:
    """Import pyarrow. If it is not installed, raise MissingDependencyError with `why`, the reason for needing it."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingDependencyError(f"{why}: {pip_install('parquet')}") from error
    return pyarrow


def _arrow(codec: str, data: bytes, size: int) -> bytes:
    pa = pyarrow_for(f"decompressing {codec} data needs pyarrow")
    try:
        if codec in ("zstd", "lz4", "brotli"):  # as a stream, which knows its end
            with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
                return bytes(stream.read(size + 1))
        if codec == "snappy":
            return bytes(pa.decompress(data, decompressed_size=_snappy_size(data, size), codec=codec, asbytes=True))
        unpacked = bytes(pa.decompress(data, decompressed_size=size, codec=codec, asbytes=True))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"its {codec} data are damaged: {error}") from error
    return unpacked if not size or _fails(pa, codec, data, size - 1) else b""


def _fails(pa: Any, codec: str, data: bytes, size: int) -> bool:
    """Tell whether a buffer of this size is too small for the unpacked data."""
    try:
        pa.decompress(data, decompressed_size=size, codec=codec)
    except (pa.ArrowException, OSError):
        return True
    return False


def _snappy_size(data: bytes, most: int) -> int:
    """Return the unpacked size, a varint at the beginning of snappy data; ValueError if the size exceeds `most`."""
    size = 0
    for index, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    if size > most:
        raise ValueError(f"they decompress to {size} bytes instead of {most}")
    return size


_FRAMES = {"deflate": -15, "zlib": 15, "gzip": 31}

_DECODERS: dict[str, Callable[[str, bytes, int], bytes]] = {
    **dict.fromkeys(_FRAMES, _deflate),
    **dict.fromkeys(("snappy", "zstd", "lz4", "lz4_raw", "brotli"), _arrow),
}

CODECS = tuple(_DECODERS)
"""The names of the codecs: raw deflate, deflate in a frame of zlib or gzip, and the codecs of pyarrow."""


class PackedSpool:
    """Collects and numbers distinct compressed ranges.

    Parameters
    ----------
    first : int
        The number of the first range; equals the count of files in the container.
    """

    def __init__(self, first: int) -> None:
        self._rows, self._first, self._count = Spool(), first, 0
        self._last: tuple[Piece, str, int, int] | None = None

    def add(self, packed: Packed) -> int:
        """Add the range that holds a value, unless the last value was in the same range; return the range's number.

        The caller adds all values of one range consecutively.
        """
        whole = packed.piece, packed.codec, packed.unpacked, packed.crc32
        if not (packed.offset >= 0 and 0 <= packed.size <= packed.unpacked - packed.offset):
            raise AssertionError(f"{packed} exceeds its bounds")
        if whole != self._last:
            row = (*packed.piece, CODECS.index(packed.codec), packed.unpacked, packed.crc32)
            self._rows.append(np.array([row], _COLUMNS).tobytes())
            self._count += 1
            self._last = whole
        return self._first + self._count - 1

    def ranges(self) -> PackedRanges:
        """Return all ranges so far."""
        return PackedRanges(self._first, self._rows.array(_COLUMNS))


class PackedRanges:
    """Reads compressed ranges of files, and unpacks them.

    Can be used by many threads at once, and after a fork.

    Parameters
    ----------
    first : int
        The number of the first range; smaller numbers are files.
    rows : (P,) structured array, optional
        The ranges that a `PackedSpool` collected.
    """

    def __init__(self, first: int, rows: npt.NDArray[Any] | None = None) -> None:
        self.first = first
        self._rows = np.empty(0, _COLUMNS) if rows is None else rows
        self._cache: dict[int, bytes] = {}  # replaced and never changed, so that it needs no lock

    def origins(self, numbers: Ints) -> Ints:
        """Return the number of the file for each of `numbers`, which stand for files or compressed ranges."""
        numbers = np.maximum(numbers, ~numbers)
        packed = numbers >= self.first
        if not packed.any():
            return numbers
        return np.where(packed, self._rows["file"][np.where(packed, numbers - self.first, 0)], numbers)

    def file(self, number: int) -> int:
        """Return the number of the file that contains a compressed range."""
        return int(self._rows["file"][number - self.first])

    def read(self, file: PackFile, number: int, offset: int, size: int) -> bytes:
        """Return part of a range's unpacked bytes; `file` is the open file with the range.

        Raises
        ------
        ImageError
            If the range is damaged.
        PackError
            For the same reasons as in `PackFile.read`.
        """
        unpacked = self._cache.get(number)
        if unpacked is None:
            unpacked = self._unpacked(file, number)
            if len(unpacked) > size:  # otherwise the range has no other value
                self._keep(number, unpacked)
        return unpacked[offset : offset + size]

    def _keep(self, number: int, unpacked: bytes) -> None:
        cache = {number: unpacked}
        for earlier, data in self._cache.items():  # the most recent one first
            if len(cache) < _CACHED_RANGES and sum(map(len, cache.values())) + len(data) <= _CACHED_BYTES:
                cache[earlier] = data
        self._cache = cache

    def _unpacked(self, file: PackFile, number: int) -> bytes:
        _, begin, packed, codec, size, crc32 = self._rows[number - self.first].item()
        try:
            data = unpack(CODECS[codec], file.read(begin, packed), size)
        except ValueError as error:
            raise ImageError(f"{printable(file.path)}, byte {begin}: {error}") from error
        if crc32 not in (NO_CRC, zlib.crc32(data)):
            raise ImageError(f"{printable(file.path)}, byte {begin}: the data do not match their checksum")
        return data

    def __getstate__(self) -> dict[str, object]:
        return {"first": self.first, "_rows": self._rows, "_cache": {}}
