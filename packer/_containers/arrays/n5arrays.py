"""The arrays of N5 (https://github.com/saalfeldlab/n5, specification 4.0.0): directories, with a file for each block.

``attributes.json`` in an array's directory has ``dimensions``, ``blockSize``, ``dataType`` and ``compression``. Axis 0
is the one along which elements lie next to each other: NumPy counts axes from the other end, and so does this module. A
block's file lies where the block's numbers along the axes lead, that of axis 0 first, such as ``0/0/17``:

=============  ======================================================================
u16            mode: 0, or 1 where the count of elements is said; big-endian, as all
u16            how many axes there are
u32, each      the block's extent along each axis, axis 0 first
u32            in mode 1: how many elements there are
               the elements, compressed as the attributes say
=============  ======================================================================

A block at the far end of an axis ends with the array; some tools write it in full. A block without a file is zeros.
Before N5 2.0 the attributes had ``"compressionType": "gzip"`` in place of ``"compression": {"type": "gzip"}``.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._containers.unpacking import MOST_UNPACKED, unpack
from packer._storage.packfile import PackFile
from packer._table import Ints
from packer.errors import PackError, SourceError, printable

__all__ = ["ATTRIBUTES", "Array", "Block", "BlockFiles", "read_attributes"]

ATTRIBUTES = "attributes.json"

_LONGEST_ATTRIBUTES = 64 << 20  # bytes, which the names of a million classes do not fill
_NUMBER = re.compile("0|[1-9][0-9]{0,17}")
_TYPES = {f"{sign}int{8 * size}": f">{sign[:1] or 'i'}{size}" for sign in ("", "u") for size in (1, 2, 4, 8)}
_TYPES |= {"float32": ">f4", "float64": ">f8"}
_MOST_AXES = 32
_RATIO = 1032  # deflate makes bytes smaller than that by no more
_FREE = 1 << 24  # elements that may be zeros without a file
_HEADER = struct.Struct(">HH")


def read_attributes(directory: Path) -> dict[str, Any] | None:
    """Return the attributes of a group or an array; None where the directory has none.

    Raises
    ------
    SourceError
        If the file is no JSON object, or is no regular file.
    """
    path = directory / ATTRIBUTES
    if not os.path.lexists(path):
        return None
    try:
        with PackFile(directory, ATTRIBUTES) as file:
            if file.size > _LONGEST_ATTRIBUTES:
                raise SourceError(f"{printable(path)}: {file.size:,} bytes are no attributes of N5")
            attributes = json.loads(file.read(0, file.size))
    except PackError as error:
        raise SourceError(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{printable(path)}: no JSON: {printable(error)}") from error
    if not isinstance(attributes, dict):
        raise SourceError(f"{printable(path)}: no attributes of N5, which are a JSON object")
    return attributes


@dataclass(frozen=True, eq=False)
class BlockFiles(Sequence[str]):
    """The files of an array's blocks, in their order, as paths below a container's root.

    Attributes
    ----------
    folder : str
        The array's directory below the root, with a slash behind it; or empty.
    grid : tuple of int
        How many blocks there are along each axis.
    places : (F,) int64 array
        The number of each block that has a file, in the order of an array of blocks; ascending.
    """

    folder: str
    grid: tuple[int, ...]
    places: Ints

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        return self.folder + _path(self.grid, int(self.places[number]))

    def find(self, place: int) -> int | None:
        """Return the number of a block's file; None where it has none."""
        number = int(np.searchsorted(self.places, place))
        return number if number < len(self.places) and self.places[number] == place else None


@dataclass(frozen=True, eq=False)
class Block:
    """A block, whose file is open and was found to have as many bytes as its header says.

    Attributes
    ----------
    number : int
        The number of its file, in `Array.files`.
    file : PackFile
    extent : tuple of int
        Elements along each axis, in NumPy's order.
    begin : int
        The byte where the elements begin.
    count : int
        How many elements there are.
    """

    number: int
    file: PackFile
    extent: tuple[int, ...]
    begin: int
    count: int

    @property
    def held(self) -> int:
        """How many bytes the elements have in the file."""
        return self.file.size - self.begin

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the elements as they lie in the file; SourceError where the disk fails."""
        try:
            return self.file.read(self.begin + offset, size)
        except PackError as error:
            raise SourceError(str(error)) from error


class Array:
    """One array.

    Parameters
    ----------
    root : Path
        The container's.
    name : str
        The array's directory below it, with slashes; empty for the root itself.
    attributes : dict
        As `read_attributes` returns them.

    Attributes
    ----------
    name : str
    path : Path
    shape, blocks, grid : tuple of int
        Elements of the array and of a block, and blocks of the array, along each axis, in NumPy's order.
    dtype : dtype
        Big-endian.
    compression : {"raw", "gzip", "zlib"}
    files : BlockFiles

    Raises
    ------
    SourceError
        If the attributes are none of an array, a compression is unknown, or far more is said to be there than there is.
    """

    def __init__(self, root: Path, name: str, attributes: dict[str, Any]) -> None:
        self.root, self.name, self.path = root, name, root / name
        self.shape, self.blocks = self._axes(attributes, "dimensions"), self._axes(attributes, "blockSize")
        kind = attributes.get("dataType")
        if not isinstance(kind, str) or kind not in _TYPES:
            raise self.error(f"its dataType is {_said(kind)}, which packer does not read")
        self.dtype = np.dtype(_TYPES[kind])
        if len(self.blocks) != len(self.shape) or min(self.blocks) < 1:
            raise self.error(f"its blockSize does not fit to {len(self.shape)} dimensions")
        self.compression = self._compression(attributes)
        self.grid = tuple(-(-size // block) for size, block in zip(self.shape, self.blocks, strict=True))
        self.files = BlockFiles(f"{name}/" if name else "", self.grid, self._places())
        self._slab: tuple[int, npt.NDArray[Any]] | None = None

    @staticmethod
    def are_of_one(attributes: dict[str, Any] | None) -> bool:
        """Tell whether attributes are an array's, and not a group's."""
        return {"dimensions", "blockSize", "dataType"} <= (attributes or {}).keys()

    def __len__(self) -> int:
        return self.shape[0]

    def error(self, what: str) -> SourceError:
        """Return the error that names the array."""
        return SourceError(f"{printable(self.path)}: {what}")

    def rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return elements `start` to `stop` along the first axis, in the machine's order of bytes.

        Raises
        ------
        SourceError
            If a block is damaged, or too much would be read at once.
        """
        step = self.blocks[0]
        parts = []
        for number in range(start // step, -(-stop // step)):
            first = number * step
            parts.append(self._read_slab(number)[max(0, start - first) : stop - first])
        return np.concatenate(parts) if parts else np.empty((0, *self.shape[1:]), self.dtype.newbyteorder("="))

    def block(self, number: int) -> Block:
        """Open the block in a file, by the file's number in `files`; SourceError where the file is damaged."""
        try:
            file = PackFile(self.root, self.files[number])
            block = self._from_header(number, file)
        except PackError as error:
            raise SourceError(str(error)) from error
        size = block.count * self.dtype.itemsize
        wrong = size != block.held if self.compression == "raw" else size > block.held * _RATIO
        if size > MOST_UNPACKED or wrong:
            what = f"damaged or cut short: {size:,} bytes of elements are not in {block.held:,}"
            raise SourceError(f"{printable(file.path)}: {what}")
        return block

    def elements(self, block: Block) -> npt.NDArray[Any]:
        """Return all elements of a block, one after the other; SourceError where they are damaged."""
        return np.frombuffer(self._expanded(block), self.dtype)

    def _read_slab(self, number: int) -> npt.NDArray[Any]:
        """Return the elements of all blocks that have the same number along the first axis."""
        if self._slab is not None and self._slab[0] == number:
            return self._slab[1]
        height = min(self.blocks[0], self.shape[0] - number * self.blocks[0])
        if (size := height * math.prod(self.shape[1:]) * self.dtype.itemsize) > MOST_UNPACKED:
            raise self.error(f"a row of its blocks has {size:,} bytes, which are too many to be read at once")
        slab = np.zeros((height, *self.shape[1:]), self.dtype.newbyteorder("="))
        each = math.prod(self.grid[1:])
        first, last = np.searchsorted(self.files.places, [number * each, (number + 1) * each]).tolist()
        for file in range(first, last):
            place = np.unravel_index(int(self.files.places[file]), self.grid)
            block = self.block(file)
            corner = [int(at) * step for at, step in zip(place, self.blocks, strict=True)]
            corner[0] = 0
            room = slab[tuple(slice(at, at + step) for at, step in zip(corner, self.blocks, strict=True))]
            room[...] = self.elements(block).reshape(block.extent)[tuple(map(slice, room.shape))]
        self._slab = number, slab
        return slab

    def _from_header(self, number: int, file: PackFile) -> Block:
        axes = len(self.shape)
        head = file.read(0, min(file.size, _HEADER.size + 4 * axes + 4))
        mode, said = _HEADER.unpack_from(head) if len(head) >= _HEADER.size else (0, 0)
        begin = _HEADER.size + 4 * axes + 4 * (mode == 1)
        if mode > 1 or said != axes or len(head) < begin:
            raise SourceError(f"{printable(file.path)}: no block of an N5 array of {axes} dimensions")
        numbers = struct.unpack_from(f">{axes + (mode == 1)}I", head, _HEADER.size)
        extent = numbers[:axes][::-1]
        where = np.unravel_index(int(self.files.places[number]), self.grid)
        for at, size, total, length in zip(where, self.blocks, self.shape, extent, strict=True):
            if not min(size, total - int(at) * size) <= length <= size:
                shown = " x ".join(map(str, extent))
                raise SourceError(f"{printable(file.path)}: damaged: its header says {shown} elements")
        count = numbers[-1] if mode == 1 else math.prod(extent)
        if count != math.prod(extent) and not self.ragged:
            raise SourceError(f"{printable(file.path)}: damaged: its header says {count} elements")
        return Block(number, file, extent, begin, count)

    @property
    def ragged(self) -> bool:
        """Whether each element of the array is a block of its own, which then may have any number of bytes."""
        return self.blocks == (1,) and self.dtype.itemsize == 1

    def _expanded(self, block: Block) -> bytes:
        data = block.read(0, block.held)
        if self.compression == "raw":
            return data
        try:
            return unpack(self.compression, data, block.count * self.dtype.itemsize)
        except ValueError as error:
            raise SourceError(f"{printable(block.file.path)}: damaged: {error}") from error

    def _axes(self, attributes: dict[str, Any], member: str) -> tuple[int, ...]:
        numbers = attributes.get(member)
        if not isinstance(numbers, list) or not 1 <= len(numbers) <= _MOST_AXES or not all(map(_is_extent, numbers)):
            raise self.error(f"its {member} are {_said(numbers)}")
        return tuple(reversed(numbers))

    def _compression(self, attributes: dict[str, Any]) -> str:
        said = attributes.get("compression", attributes.get("compressionType"))
        members = said if isinstance(said, dict) else {"type": said}
        name = members.get("type")
        if name == "gzip" and members.get("useZlib") is True:
            return "zlib"
        if name not in ("raw", "gzip"):
            raise self.error(f"its blocks are compressed by {_said(name)}. Write it with raw or gzip blocks.")
        return str(name)

    def _places(self) -> Ints:
        """Return the numbers of the blocks that have files, ascending.

        Zeros take no file, so a few bytes of attributes could promise more of them than anybody can read: there may be
        as many as there are other elements, and some more.
        """
        total = math.prod(self.shape)
        if total >= 1 << 62 or math.prod(self.grid) >= 1 << 62:
            raise self.error(f"its dimensions are {_said(list(reversed(self.shape)))}")
        found = np.array(list(self._found(self.path, ())), np.int64).reshape(-1, 2)
        places, held = np.sort(found[:, 0]), int(found[:, 1].sum())
        there = held * (1 if self.compression == "raw" else _RATIO) // self.dtype.itemsize
        if total > 2 * there + _FREE:
            raise self.error(f"blocks are missing: {len(places):,} of {math.prod(self.grid):,} are there")
        return places

    def _found(self, directory: Path, way: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        """Yield the number and the file's size of each block below a directory, which such a way leads to."""
        try:
            entries = list(os.scandir(directory))
        except OSError as error:
            raise SourceError(f"{printable(directory)}: cannot be listed: {error.strerror}") from error
        bound = self.grid[len(self.grid) - 1 - len(way)]
        for entry in entries:
            if not _NUMBER.fullmatch(entry.name) or int(entry.name) >= bound:
                continue  # attributes, or a block that lies outside of an array that became smaller
            if entry.is_symlink():
                raise SourceError(f"{printable(entry.path)}: is a symbolic link, and the files of an N5 array are none")
            here = *way, int(entry.name)
            if len(here) == len(self.grid):
                yield int(np.ravel_multi_index(here[::-1], self.grid)), entry.stat().st_size
            elif entry.is_dir():
                yield from self._found(Path(entry.path), here)


def _path(grid: tuple[int, ...], place: int) -> str:
    return "/".join(str(int(at)) for at in reversed(np.unravel_index(place, grid)))


def _is_extent(number: Any) -> bool:
    return type(number) is int and 0 <= number < 1 << 62


def _said(value: Any) -> str:
    text = printable(json.dumps(value))
    return text if len(text) <= 100 else f"{text[:97]}..."
