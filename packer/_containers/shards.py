"""Shards that begin with a table of sample offsets, as in MDS and LitData.

Layout: u32 n; (n + 1) x u32, the offset of each sample and the end of the last; the samples. A sample consists of the
sizes of its parts of variable size, u32 each, and then the parts. Both tools store an image of Pillow as u32 width, u32
height, u32 bytes of the mode, the mode, and the pixels row after row; and arrays with or without their dtype and shape
before the elements.
"""

from __future__ import annotations

import abc
import itertools
import math
import os
import re
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from packer._containers.blocks import ContainerFile, errors_in
from packer._containers.contract import Entry, Piece, PixelLayout, head_of
from packer._containers.roles import LOOKED_AT, ColumnContainer, ColumnType, Value, roles_of, short_text
from packer._storage.safe_open import name_problem
from packer.errors import SourceError, printable

_HEAD = struct.Struct("<3I")
_LAYOUTS = {b"RGB": PixelLayout("HWC", "RGB"), b"L": PixelLayout("HWC", "L")}
_LONGEST_MODE = 16


def pil_layout(read: Callable[[int, int], bytes], piece: Piece) -> PixelLayout:
    """Return the pixel layout of an image; ValueError if packer does not support its mode."""
    return _LAYOUTS[_head(read, piece)[0]]


def pil_pixels(
    read: Callable[[int, int], bytes], piece: Piece, layout: PixelLayout | None
) -> tuple[Piece, tuple[int, int]]:
    """Return the location of the pixels of an image, and their height and width.

    Raises
    ------
    ValueError
        If their layout is not `layout`, or their number does not match the size.
    """
    mode, width, height, start = _head(read, piece)
    found = _LAYOUTS[mode]
    if found != layout:
        raise ValueError(f"its pixels are of mode {mode.decode()}, and others are of another. {_REMEDY}")
    if found.size(height, width) != piece.size - start:
        raise ValueError(f"{piece.size - start} bytes are no pixels of {width} x {height}")
    return Piece(piece.file, piece.offset + start, piece.size - start), (height, width)


def _head(read: Callable[[int, int], bytes], piece: Piece) -> tuple[bytes, int, int, int]:
    """Return mode, width, height and the offset of the pixels."""
    if piece.size < _HEAD.size:
        raise ValueError(f"{piece.size} bytes are no image of Pillow's")
    width, height, length = _HEAD.unpack(read(piece.offset, _HEAD.size))
    if length > _LONGEST_MODE or _HEAD.size + length > piece.size:
        raise ValueError(f"a mode of {length} bytes is none of Pillow's")
    mode = read(piece.offset + _HEAD.size, length)
    if mode not in _LAYOUTS:
        raise ValueError(f"its pixels are of mode {mode.decode('ascii', 'replace')}. {_REMEDY}")
    return mode, width, height, _HEAD.size + length


_REMEDY = "packer reads them where all are RGB, or all L: write the images as png or jpeg with the library itself"


SEVERAL_IMAGES = dict.fromkeys(
    ("jpegarray", "jpeg_array", "list[jpeg]", "list[png]"),
    ColumnType("bytes", why="has several images in each sample: write each of them as a sample"),
)
"""The types of columns of several images, by their encoding: they may be a field of bytes, and no image."""

_DTYPES = {8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32"}
_DTYPES |= {64: "uint64", 65: "int64", 66: "float64"}
_NUMBERED = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
_WIDER = {"uint32": "int64", "uint64": "int64"}
"""The dtypes of fields for encodings without a dtype of their own; a number that does not fit is an error."""

_MOST_AXES = 8


def array_type(array: npt.NDArray[Any]) -> ColumnType:
    """Return the type of a column of these arrays."""
    return ColumnType("array", _WIDER.get(array.dtype.name, array.dtype.name), array.ndim)


@dataclass(frozen=True)
class MDSArray:
    """The dtype and the shape in the name of an encoding ``ndarray:DTYPE:SHAPE``, instead of before each array.

    Attributes
    ----------
    dtype : str
        Empty if each array has its own.
    shape : tuple of int, optional
    """

    dtype: str = ""
    shape: tuple[int, ...] | None = None

    @classmethod
    def of(cls, text: str) -> MDSArray:
        """Parse ``DTYPE:SHAPE``; ValueError if it is malformed."""
        match = re.fullmatch(r"(\w*)(?::([0-9]{1,18}(?:,[0-9]{1,18})*))?", text, re.ASCII)
        if match is None or (match[1] and match[1] not in _DTYPES.values()):
            raise ValueError(f"ndarray:{text} is no encoding of arrays")
        return cls(match[1], tuple(map(int, match[2].split(","))) if match[2] else None)

    def decode(self, data: bytes) -> npt.NDArray[Any]:
        """Return an array; ValueError if the bytes are invalid."""
        start, dtype, shape = 0, self.dtype, self.shape
        if not dtype:
            dtype, start = _DTYPES.get(data[0] if data else 0, ""), 1
            if not dtype:
                raise ValueError("an array has no known dtype")
        if shape is None:
            if len(data) <= start or data[start] >> 2 > _MOST_AXES:
                raise ValueError("an array has no shape, or too many axes")
            axes, width = data[start] >> 2, 1 << data[start] % 4
            start += 1
            told = data[start : start + axes * width]
            if len(told) < axes * width:
                raise ValueError("an array is too short for its shape")
            shape = tuple(np.frombuffer(told, f"<u{width}").tolist())
            start += axes * width
        return _elements(data, start, dtype, shape)


def plain_dtype(number: str) -> str:
    """Return the dtype for LitData's number; ValueError if fields do not support it."""
    if not (number.isascii() and number.isdecimal() and len(number) < 3 and int(number) < len(_NUMBERED)):
        raise ValueError(f"an array has the dtype {number!r}, which packer does not read")
    return _NUMBERED[int(number)]


def litdata_array(data: bytes, dtype: str | None) -> npt.NDArray[Any]:
    """Decode an array of LitData: of one axis, or with a header of u32 if `dtype` is None.

    The header is the dtype's number, the number of axes, and the length of each. ValueError if the bytes are invalid.
    """
    if dtype is not None:
        return _elements(data, 0, dtype, (len(data) // np.dtype(dtype).itemsize,))
    head = np.frombuffer(data, "<u4", min(len(data) // 4, 2 + _MOST_AXES)).tolist()
    axes = head[1] if len(head) > 1 else _MOST_AXES + 1
    if axes > _MOST_AXES or len(head) < 2 + axes:
        raise ValueError("an array has no shape, or too many axes")
    return _elements(data, 4 * (2 + axes), plain_dtype(str(head[0])), tuple(head[2 : 2 + axes]))


def _elements(data: bytes, start: int, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    of_elements = np.dtype(dtype).newbyteorder("<")
    if math.prod(shape) * of_elements.itemsize != len(data) - start:
        raise ValueError(f"{len(data) - start} bytes are no array of {dtype} {shape}")
    return np.frombuffer(data, of_elements, offset=start).reshape(shape)


_COUNT = struct.Struct("<I")
_BLOCK = 1 << 14  # samples
_SHORT = 256  # bytes of a value that may be a label


@dataclass(frozen=True)
class ShardColumn(abc.ABC):
    """A named part of each sample.

    Attributes
    ----------
    name : str
    kind : str
        The name of the type in the shards' library.
    size : int or None
        The bytes of every value; None if each value has its own size.
    """

    name: str
    kind: str
    size: int | None = None

    @property
    def base(self) -> str:
        """The type without its arguments after a colon."""
        return self.kind.partition(":")[0]

    @abc.abstractmethod
    def type(self) -> ColumnType:
        """Return the type of values; ValueError if the part's size does not match its type."""

    @abc.abstractmethod
    def value(self, file: ContainerFile, piece: Piece) -> Value:
        """Decode a number or an array; return `piece` for other types. ValueError if the bytes are invalid."""


@dataclass(eq=False)
class OffsetShards(ColumnContainer):
    """Shards with one list of parts; `_choose` decides their roles."""

    INDEX: ClassVar[str] = "index.json"
    """The file of a directory that lists its shards."""

    index_begins: ClassVar[re.Pattern[bytes]]
    """How this file of the tool begins."""

    parts: Sequence[ShardColumn] = ()
    counts: Sequence[int | None] = ()
    """How many samples each shard has, where the index says."""

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        if path.name == cls.INDEX:
            return cls.index_begins.match(head) is not None
        return super().recognise_file(path, head)

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        if cls.INDEX not in names:
            return super().recognise_directory(path, names)
        index = path / cls.INDEX
        return [index] if cls.recognise_file(index, head_of(index)) else None

    def _stem(self, unit: int) -> str:
        """Return the beginning of the names of a shard's samples."""
        return os.path.splitext(self.files[unit])[0]

    def entries(self, unit: int) -> Iterator[Entry]:
        stem, names = self._stem(unit), self.roles.used
        with self.reading(unit) as file:
            for number, values in enumerate(self._values(file, unit, names)):
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
        self, file: ContainerFile, unit: int, names: Collection[str]
    ) -> Iterator[dict[str, Value] | ValueError | struct.error]:
        """Yield the values of each sample by part name, or the reason why they are unusable."""
        sizes = [part.size for part in self.parts]
        parts = [(index, part) for index, part in enumerate(self.parts) if part.name in names]
        for _, start, stop in samples(file, self.counts[unit]):
            try:
                pieces = _ranges(file, start, stop, sizes)
                yield {part.name: part.value(file, Piece(unit, *pieces[index])) for index, part in parts}
            except (ValueError, struct.error) as error:
                yield error

    def _choose(self, keys: Mapping[str, str], where: str) -> None:
        """Choose the roles of parts; the first sample determines the axes of arrays and the mode of pixels."""
        names = [part.name for part in self.parts]
        with self.reading(0) as file:
            with errors_in(f"{file.path}: sample 0", ValueError, struct.error):
                types = {part.name: part.type() for part in self.parts}
                first = next(self._values(file, 0, names), {})
                if isinstance(first, Exception):
                    raise first
                arrays = {name: value for name, value in first.items() if isinstance(value, np.ndarray)}
                types |= {name: array_type(value) for name, value in arrays.items()}
            looked_at = self._first_values(file, types)
            self.take_roles(roles_of(types, keys, where, self.account, looked_at))
            pil = {part.name for part in self.parts if part.base == "pil"}
            if pil & self.roles.fields.keys():
                raise SourceError(f"{where}: only the image may be a pil: name with --key what is wanted")
            if self.roles.image in pil and isinstance(image := first.get(self.roles.image), Piece):
                with errors_in(f"{file.path}: sample 0"):
                    self.pixels = pil_layout(file.read, image)

    def _first_values(self, file: ContainerFile, types: Mapping[str, ColumnType]) -> dict[str, list[Any]]:
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


def listed_shard(name: Any, count: Any, where: str) -> tuple[str, int]:
    """Return the name of a shard and its number of samples in an index; SourceError if they are invalid."""
    if not isinstance(name, str) or type(count) is not int or count < 0:
        raise SourceError(f"{where} has no name, or no count of samples")
    if problem := name_problem(name):
        raise SourceError(f"{where}, {printable(name)}: {problem}")
    return name, count


def first_offset(file: ContainerFile) -> int:
    """Return where the table of offsets ends."""
    (count,) = _COUNT.unpack(file.read(0, 4))
    return 4 * (int(count) + 2)


def samples(file: ContainerFile, count: int | None = None) -> Iterator[tuple[int, int, int]]:
    """Yield the number, begin and end of each sample.

    Parameters
    ----------
    file : ContainerFile
    count : int, optional
        Number of samples according to the index.

    Raises
    ------
    SourceError
        If the number differs from `count`, or a sample is not in the file after the table.
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


def _ranges(file: ContainerFile, start: int, stop: int, known: Sequence[int | None]) -> list[tuple[int, int]]:
    """Return the offsets and sizes of the parts of a sample; ValueError if they do not fill the sample."""
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
