"""Shards that begin with a table of sample offsets: the shared format of MDS and LitData.

Layout: u32 n; (n + 1) x u32, the offset of each sample and the end of the last; the samples. A sample consists of a u32
size for each part of variable size, and then the parts. Both tools store an image of Pillow as u32 width, u32 height,
u32 length of the mode's name, the mode's name, and the pixels row after row. They store an array as its elements, with
or without dtype and shape in front.
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
from packer._containers.roles import FIRST_SAMPLES, ColumnContainer, ColumnType, Value, array_type, short_text
from packer._storage.safe_open import name_problem
from packer.errors import SourceError, printable

_HEAD = struct.Struct("<3I")
_LAYOUTS = {b"RGB": PixelLayout("HWC", "RGB"), b"L": PixelLayout("HWC", "L")}
_LONGEST_MODE = 16


def pil_layout(read: Callable[[int, int], bytes], piece: Piece) -> PixelLayout:
    """Return the pixel layout for the mode of a stored Pillow image; ValueError if packer does not support the mode."""
    return _LAYOUTS[_head(read, piece)[0]]


def pil_pixels(
    read: Callable[[int, int], bytes], piece: Piece, layout: PixelLayout | None
) -> tuple[Piece, tuple[int, int]]:
    """Return the location of the pixels of a stored Pillow image, and the image's height and width.

    Raises
    ------
    ValueError
        If the image's layout is not `layout`, or its number of pixels does not match its size.
    """
    mode, width, height, start = _head(read, piece)
    found = _LAYOUTS[mode]
    if found != layout:
        raise ValueError(f"its pixels have the mode {mode.decode()}, others have another mode. {_REMEDY}")
    if found.size(height, width) != piece.size - start:
        raise ValueError(f"{piece.size - start} bytes are not the size of {width} x {height} pixels")
    return Piece(piece.file, piece.offset + start, piece.size - start), (height, width)


def _head(read: Callable[[int, int], bytes], piece: Piece) -> tuple[bytes, int, int, int]:
    """Return mode, width, height and pixel offset of a stored Pillow image."""
    if piece.size < _HEAD.size:
        raise ValueError(f"{piece.size} bytes are too few for an image of Pillow")
    width, height, length = _HEAD.unpack(read(piece.offset, _HEAD.size))
    if length > _LONGEST_MODE or _HEAD.size + length > piece.size:
        raise ValueError(f"a mode with a name of {length} bytes does not exist in Pillow")
    mode = read(piece.offset + _HEAD.size, length)
    if mode not in _LAYOUTS:
        raise ValueError(f"its pixels have the mode {mode.decode('ascii', 'replace')}. {_REMEDY}")
    return mode, width, height, _HEAD.size + length


_REMEDY = (
    "packer reads them only if all are RGB, or all are L: write the images as png or jpeg with the "
    "library that wrote them"
)


SEVERAL_IMAGES = dict.fromkeys(
    ("jpegarray", "jpeg_array", "list[jpeg]", "list[png]"),
    ColumnType("bytes", why="has several images in each sample: write each image as a sample"),
)
"""The types of columns with several images in each sample, by encoding. They can be fields of bytes, not the image."""

MOST_AXES = 8
"""The maximum number of axes of an array."""


def elements_of(data: bytes, start: int, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return the array whose elements begin at byte `start` of `data`; ValueError if they do not fit the shape."""
    of_elements = np.dtype(dtype).newbyteorder("<")
    if math.prod(shape) * of_elements.itemsize != len(data) - start:
        raise ValueError(f"{len(data) - start} bytes are not the size of an array of {dtype} {shape}")
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
        The size of every value in bytes; None if sizes vary.
    """

    NUMBERS: ClassVar[Mapping[str, tuple[str, str]]]
    """For each type of number, the format of the stored number, and the dtype of its field."""

    BLOBS: ClassVar[Mapping[str, str]]
    """For each type whose values are stored unchanged, the kind of its field."""

    PICKLE: ClassVar[str]
    """The type of pickled values."""

    TYPE: ClassVar[str] = "type"
    """The library's word for a type, for messages."""

    name: str
    kind: str
    size: int | None = None

    @property
    def base(self) -> str:
        """The name of the type, without the arguments after its colon."""
        return self.kind.partition(":")[0]

    def type(self) -> ColumnType:
        """Return the column type of the part; ValueError if the part's size does not match its type."""
        if self.base in self.NUMBERS:
            return ColumnType("scalar", self.NUMBERS[self.base][1])
        if self.base == self.PICKLE:
            return ColumnType("", why="holds pickles, which can run any code")
        if self.base in SEVERAL_IMAGES:
            return SEVERAL_IMAGES[self.base]
        if self.base in self.BLOBS:
            return ColumnType(self.BLOBS[self.base])
        return ColumnType("", why=f"has the {self.TYPE} {printable(self.kind)}")

    def number(self, data: bytes) -> int | float:
        """Decode a number from the bytes of a value."""
        value: int | float = struct.unpack(self.NUMBERS[self.base][0], data)[0]
        return value

    @abc.abstractmethod
    def value(self, file: ContainerFile, piece: Piece) -> Value:
        """Decode a value that is a number or an array; for other types, return `piece`.

        Raise ValueError if the bytes are invalid.
        """


@dataclass(eq=False)
class OffsetShards(ColumnContainer):
    """A container of shards with the same parts in every sample; `_choose` decides the roles of the parts."""

    INDEX: ClassVar[str] = "index.json"
    """The name of the file that lists the shards of a directory."""

    index_begins: ClassVar[re.Pattern[bytes]]
    """A pattern for the beginning of `INDEX`, by which the file is recognised."""

    parts: Sequence[ShardColumn] = ()
    counts: Sequence[int | None] = ()
    """The number of samples of each shard according to the index; None if there is no index."""

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
        """Return the prefix for the names of a shard's samples."""
        return os.path.splitext(self.files[unit])[0]

    def entries(self, unit: int) -> Iterator[Entry]:
        stem, names = self._stem(unit), self.used
        with self.reading(unit) as file:
            for number, values in enumerate(self._values(file, unit, names)):
                name = f"{stem}/{number:06d}"
                try:
                    if isinstance(values, Exception):
                        raise values
                    shape, image = None, values[self.image]
                    if self.pixels is not None and isinstance(image, Piece):
                        values[self.image], shape = pil_pixels(file.read, image, self.pixels)
                    entry = self.entry(name, values, file.read, shape)
                except (ValueError, struct.error) as error:
                    entry = Entry(name, b"", problem=f"sample {number}: {printable(error)}")
                yield entry

    def _values(
        self, file: ContainerFile, unit: int, names: Collection[str]
    ) -> Iterator[dict[str, Value] | ValueError | struct.error]:
        """Yield the values of each sample, by part name; for an unusable sample, yield the reason instead."""
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
                first = next(self._first_samples(file, names), {})
                arrays = {name: value for name, value in first.items() if isinstance(value, np.ndarray)}
                types |= {name: array_type(value) for name, value in arrays.items()}
            values = self._first_values(file, types)
            self.choose_roles(types, keys, where, values)
            pil = {part.name for part in self.parts if part.base == "pil"}
            if pil & self.fields_of.keys():
                raise SourceError(f"{where}: only the image may have the type pil: select columns with --key")
            if self.image in pil:
                self.pixels = self._first_layout(file)

    def _first_samples(self, file: ContainerFile, names: Collection[str]) -> Iterator[dict[str, Value]]:
        """Yield the values of a shard's first usable samples; if no sample is usable, raise the first problem."""
        problem, usable = None, False
        for values in itertools.islice(self._values(file, 0, names), FIRST_SAMPLES):
            if isinstance(values, Exception):
                problem = problem or values
            else:
                usable = True
                yield values
        if problem is not None and not usable:
            raise problem

    def _first_layout(self, file: ContainerFile) -> PixelLayout | None:
        """Return the pixel layout of the first image whose mode packer supports; None if there are no images."""
        problem: ValueError | None = None
        for values in self._first_samples(file, [self.image]):
            if isinstance(image := values[self.image], Piece):
                try:
                    return pil_layout(file.read, image)
                except ValueError as error:
                    problem = problem or error
        with errors_in(f"{file.path}: sample 0"):
            if problem is not None:
                raise problem
        return None

    def _first_values(self, file: ContainerFile, types: Mapping[str, ColumnType]) -> dict[str, list[Any]]:
        """Return the numbers and short texts in the first samples, by part name."""
        names = [name for name, type in types.items() if type.kind in ("scalar", "text", "bytes")]
        found: dict[str, list[Any]] = {}
        for values in self._first_samples(file, names):
            for name, value in values.items():
                if isinstance(value, Piece):
                    value = file.read(value.offset, value.size) if value.size <= _SHORT else b""
                label = short_text(value) if isinstance(value, bytes) else value
                if label is not None:
                    found.setdefault(name, []).append(label)
        return found


def listed_shard(name: Any, count: Any, where: str) -> tuple[str, int]:
    """Return name and sample count of a shard from its entry in an index; SourceError if the entry is invalid."""
    if not isinstance(name, str) or type(count) is not int or count < 0:
        raise SourceError(f"{where} has no name, or no number of samples")
    if problem := name_problem(name):
        raise SourceError(f"{where}, {printable(name)}: {problem}")
    return name, count


def first_offset(file: ContainerFile) -> int:
    """Return the offset at which the table of offsets ends."""
    (count,) = _COUNT.unpack(file.read(0, 4))
    return 4 * (int(count) + 2)


def samples(file: ContainerFile, count: int | None = None) -> Iterator[tuple[int, int, int]]:
    """Yield the index of each sample, and the offsets where the sample begins and ends.

    Parameters
    ----------
    file : ContainerFile
    count : int, optional
        The number of samples according to the index file.

    Raises
    ------
    SourceError
        If the number of samples is not `count`, or a sample is not in the part of the file that follows the table.
    """
    (found,) = _COUNT.unpack(file.read(0, 4))
    if count is not None and found != count:
        raise SourceError(f"{file.path}: has {found} samples, but the index says {count}")
    least = 4 * (found + 2)
    for first in range(0, found, _BLOCK):
        block = min(_BLOCK, found - first) + 1
        offsets = np.frombuffer(file.read(4 + 4 * first, 4 * block), "<u4").tolist()
        for number, (start, stop) in enumerate(itertools.pairwise(offsets), first):
            if not least <= start <= stop <= file.size:
                raise SourceError(
                    f"{file.path}: sample {number} should be at bytes {start} to {stop} of {file.size}: it was cut "
                    "short, or is damaged"
                )
            yield number, start, stop


def _ranges(file: ContainerFile, start: int, stop: int, known: Sequence[int | None]) -> list[tuple[int, int]]:
    """Return offset and size of each part of a sample; ValueError if the parts do not fill the sample."""
    unknown = sum(size is None for size in known)
    if 4 * unknown > stop - start:
        raise ValueError("it is too short for the sizes of its parts")
    sizes = iter(struct.unpack(f"<{unknown}I", file.read(start, 4 * unknown)))
    begin, parts = start + 4 * unknown, list[tuple[int, int]]()
    for size in known:
        length = next(sizes) if size is None else size
        parts.append((begin, length))
        begin += length
    if begin != stop:
        raise ValueError(f"its parts have {begin - start} bytes together, but it has {stop - start}")
    return parts
