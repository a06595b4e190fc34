"""N5 (https://github.com/saalfeldlab/n5, specification 4.0.0), directories of arrays, as a container and as a format.

``attributes.json`` in an array's directory has ``dimensions``, ``blockSize``, ``dataType`` and ``compression``.
In N5, elements that are neighbours along axis 0 are adjacent in memory. NumPy and this module count the axes from the
other end. A block is a file. Its path consists of the block's numbers along the axes, beginning with axis 0, such as
``0/0/17``. The file contains:

=============  ======================================================================
u16            the mode, 0 or 1; all numbers are big-endian
u16            the number of axes
u32, each      the block's number of elements along each axis, axis 0 first
u32            only in mode 1: the total number of elements
               the elements, compressed as the attributes tell
=============  ======================================================================

A block at the end of an axis is cut off at the end of the array, but some tools write the full block. A block without a
file is all zeros. Before N5 2.0, the attributes had ``"compressionType": "gzip"`` instead of ``"compression": {"type":
"gzip"}``.

A group is a directory of arrays. Rows with the same index in these arrays form a sample. The container recognises
images in four forms:

==================  ===========================================================================================
``data`` (uint8)    encoded images one after the other, with ``offsets`` (N integers): where each image begins.
                    With ``sizes`` (N integers) there can be gaps between images; packer leaves the end of a
                    block empty if the next image does not fit there. Without ``sizes`` there are N + 1
                    offsets. Names can be in ``names`` (uint8, UTF-8) and ``name_ends`` (N integers).
N blocks of 1       (uint8) each block contains the bytes of an encoded image, in mode 1
N x H x W x 3       (uint8) pixels; also N x 3 x H x W
N x H x W           (uint8) grey pixels
==================  ===========================================================================================

The array ``labels``, or ``label``, ``targets``, ``y``, has the labels. Every other array of N rows becomes a field. The
attribute ``classes`` of the group or of the labels can list the class names. If blocks are not compressed, and one
block contains a whole image, the image is a byte range of the block's file.

The format is a group, which z5py, TensorStore and N5's own tools read:

``attributes.json``    the attributes of the group: the version of N5, and ``classes`` if there are class names
``data``               (uint8) the images one after the other
``offsets``, ``sizes`` (uint64) where in ``data`` each image begins, and its number of bytes
``labels``             (int64; float64 if labels are floats) -1 for a sample without a label
``names``              (uint8) the names of the samples, one after the other without separators
``name_ends``          (uint64) where in ``names`` each name ends
``heights``, ``widths``  (int32) sizes in pixels; only with the codec ``raw``, because raw pixels have no header

All arrays have one dimension and are not compressed. The blocks of ``data`` are the shards of the pack. No image
crosses the boundary of a block: if the next image does not fit, zeros fill the rest of the block. The last block of an
array ends with the array. The other arrays are written at the end, when all samples are known. N5 has no fields, so
packer's index stores fields that are numbers, and copies of fields that are bytes.
"""

from __future__ import annotations

import abc
import itertools
import json
import math
import os
import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from packer._account import Account
from packer._codecs import UNLABELED
from packer._containers.blocks import content_error, errors_in, source_errors
from packer._containers.compression import MOST_UNPACKED, unpack
from packer._containers.contract import Chosen, ChosenField, Container, Entry, Packed, Piece, PixelLayout, suffix_of
from packer._containers.roles import NAMES, are_whole, has_label_name, is_label_name
from packer._fields import Field, Stored
from packer._formats.contract import NOTHING, Contents, Frame, Placed
from packer._formats.foreign import ShardWriter
from packer._storage.files import Spool
from packer._storage.packfile import PackFile
from packer._storage.safe_open import name_problem
from packer._table import LONGEST_NAME, Ints, Sample, Table, blocks, encode_name
from packer.errors import DestinationError, OptionError, SourceError, option, printable

__all__ = [
    "ATTRIBUTES",
    "N5",
    "Block",
    "BlockFiles",
    "N5Array",
    "N5Group",
    "N5Images",
    "N5Writer",
    "images_of",
    "read_attributes",
]

ATTRIBUTES = "attributes.json"

_LONGEST_ATTRIBUTES = 64 << 20  # most bytes of an attributes.json; enough for the names of a million classes
_NUMBER = re.compile("0|[1-9][0-9]{0,17}")
_TYPES = {f"{sign}int{8 * size}": f">{sign[:1] or 'i'}{size}" for sign in ("", "u") for size in (1, 2, 4, 8)}
_TYPES |= {"float32": ">f4", "float64": ">f8"}
_MOST_AXES = 32
_RATIO = 1032  # the largest ratio by which deflate can compress bytes
_FREE = 1 << 24  # number of elements that are allowed in any case to be zeros without a file
_HEADER = struct.Struct(">HH")


def read_attributes(directory: Path) -> dict[str, Any] | None:
    """Return the attributes of a group or an array; None if the directory has none.

    Raises
    ------
    SourceError
        If the file is no JSON object, or is not a regular file.
    """
    path = directory / ATTRIBUTES
    if not os.path.lexists(path):
        return None
    with source_errors(), PackFile(directory, ATTRIBUTES) as file:
        if file.size > _LONGEST_ATTRIBUTES:
            raise SourceError(f"{printable(path)}: {file.size:,} bytes are too many for the attributes of N5")
        with errors_in(f"{printable(path)}: is not JSON", ValueError, RecursionError):
            attributes = json.loads(file.read(0, file.size))
    if not isinstance(attributes, dict):
        raise SourceError(f"{printable(path)}: the attributes of N5 must be a JSON object")
    return attributes


@dataclass(frozen=True, eq=False)
class BlockFiles(Sequence[str]):
    """The block files of an array, in block order, as paths below a container's root.

    Attributes
    ----------
    folder : str
        The array's directory below the root, with a slash at its end; empty for the root itself.
    grid : tuple of int
        Number of blocks along each axis.
    indices : (F,) int64 array
        The number of each block that has a file, in ascending order. Blocks are numbered like elements in NumPy.
    """

    folder: str
    grid: tuple[int, ...]
    indices: Ints

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        return self.folder + _path(self.grid, int(self.indices[number]))

    def find(self, index: int) -> int | None:
        """Return the number of the file that contains a block; None if the block has no file."""
        number = int(np.searchsorted(self.indices, index))
        return number if number < len(self.indices) and self.indices[number] == index else None


@dataclass(frozen=True, eq=False)
class Block:
    """An open block file, with the size that its header declares.

    Attributes
    ----------
    number : int
        The index of the block's file in `N5Array.files`.
    file : PackFile
    extent : tuple of int
        Number of elements along each axis, in NumPy's order.
    begin : int
        The offset in the file at which the elements begin.
    count : int
        Number of elements.
    """

    number: int
    file: PackFile
    extent: tuple[int, ...]
    begin: int
    count: int

    @property
    def stored_size(self) -> int:
        """The size of the elements in the file, in bytes."""
        return self.file.size - self.begin

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the stored elements, which may be compressed; SourceError if the disk fails."""
        with source_errors():
            return self.file.read(self.begin + offset, size)


class N5Array:
    """An array of N5, for reading.

    Parameters
    ----------
    root : Path
        The root directory of the container.
    name : str
        The array's directory below `root`, with slashes; empty for the root itself.
    attributes : dict
        The attributes that `read_attributes` returned for that directory.

    Attributes
    ----------
    name : str
    path : Path
    shape, blocks, grid : tuple of int
        Along each axis, in NumPy's order: the number of the array's elements, of a block's elements, and of the array's
        blocks.
    dtype : dtype
        The big-endian dtype of the stored elements.
    compression : {"raw", "gzip", "zlib"}
    files : BlockFiles

    Raises
    ------
    SourceError
        If the attributes do not describe an array, if the compression is not supported, or if the array is far larger
        than its files.
    """

    def __init__(self, root: Path, name: str, attributes: dict[str, Any]) -> None:
        self.root, self.name, self.path = root, name, root / name
        self.shape, self.blocks = self._axes(attributes, "dimensions"), self._axes(attributes, "blockSize")
        kind = attributes.get("dataType")
        if not isinstance(kind, str) or kind not in _TYPES:
            raise self.error(f"its dataType is {_shown(kind)}, which packer does not read")
        self.dtype = np.dtype(_TYPES[kind])
        if len(self.blocks) != len(self.shape) or min(self.blocks) < 1:
            raise self.error(f"its blockSize does not match its {len(self.shape)} dimensions")
        self.compression = self._compression(attributes)
        self.grid = tuple(-(-size // block) for size, block in zip(self.shape, self.blocks, strict=True))
        self.files = BlockFiles(f"{name}/" if name else "", self.grid, self._block_indices())
        self._slab: tuple[int, npt.NDArray[Any] | SourceError] | None = None

    @staticmethod
    def are_of_one(attributes: dict[str, Any] | None) -> bool:
        """Tell whether attributes describe an array, and not a group."""
        return {"dimensions", "blockSize", "dataType"} <= (attributes or {}).keys()

    def __len__(self) -> int:
        return self.shape[0]

    def error(self, what: str) -> SourceError:
        """Return an error with this message, which names the array."""
        return SourceError(f"{printable(self.path)}: {what}")

    def rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return rows `start` to `stop` - 1, along the first axis, in native byte order.

        Raises
        ------
        SourceError
            If a block is damaged, or if too many bytes would have to be read at once.
        """
        step = self.blocks[0]
        parts = []
        for number in range(start // step, -(-stop // step)):
            first = number * step
            parts.append(self._read_slab(number)[max(0, start - first) : stop - first])
        return np.concatenate(parts) if parts else np.empty((0, *self.shape[1:]), self.dtype.newbyteorder("="))

    def each(self, start: int, stop: int) -> Iterator[Any]:
        """Yield rows `start` to `stop` - 1; for each row in a damaged block, the error instead."""
        step = self.blocks[0]
        for first in range(start // step * step, stop, step):
            rows = range(max(start, first), min(stop, first + step))
            try:
                found = self.rows(rows.start, rows.stop)
            except SourceError as error:
                yield from [error] * len(rows)
            else:
                yield from found if found.ndim > 1 else found.tolist()

    def block(self, number: int) -> Block:
        """Open the block whose file has this index in `files`; SourceError if the file is damaged."""
        with source_errors():
            file = PackFile(self.root, self.files[number])
            block = self._from_header(number, file)
        size = block.count * self.dtype.itemsize
        wrong = size != block.stored_size if self.compression == "raw" else size > block.stored_size * _RATIO
        if size > MOST_UNPACKED or wrong:
            what = (
                f"damaged or cut short: its {block.stored_size:,} bytes do not contain the {size:,} bytes of its "
                "elements"
            )
            raise SourceError(f"{printable(file.path)}: {what}")
        return block

    def elements(self, block: Block) -> npt.NDArray[Any]:
        """Return all elements of a block, one after the other; SourceError if they are damaged."""
        return np.frombuffer(self._expanded(block), self.dtype)

    def _read_slab(self, number: int) -> npt.NDArray[Any]:
        """Return the elements of all blocks whose number along the first axis is `number`; the last ones are kept."""
        if self._slab is None or self._slab[0] != number:
            try:
                self._slab = number, self._slab_of(number)
            except SourceError as error:
                self._slab = number, error
        if isinstance(self._slab[1], SourceError):
            raise SourceError(str(self._slab[1]))
        return self._slab[1]

    def _slab_of(self, number: int) -> npt.NDArray[Any]:
        height = min(self.blocks[0], self.shape[0] - number * self.blocks[0])
        if (size := height * math.prod(self.shape[1:]) * self.dtype.itemsize) > MOST_UNPACKED:
            raise self.error(f"a row of its blocks has {size:,} bytes, too many to read at once")
        slab = np.zeros((height, *self.shape[1:]), self.dtype.newbyteorder("="))
        each = math.prod(self.grid[1:])
        first, last = np.searchsorted(self.files.indices, [number * each, (number + 1) * each]).tolist()
        for file in range(first, last):
            index = np.unravel_index(int(self.files.indices[file]), self.grid)
            block = self.block(file)
            corner = [int(at) * step for at, step in zip(index, self.blocks, strict=True)]
            corner[0] = 0
            room = slab[tuple(slice(at, at + step) for at, step in zip(corner, self.blocks, strict=True))]
            room[...] = self.elements(block).reshape(block.extent)[tuple(map(slice, room.shape))]
        return slab

    def _from_header(self, number: int, file: PackFile) -> Block:
        axes = len(self.shape)
        head = file.read(0, min(file.size, _HEADER.size + 4 * axes + 4))
        mode, dimensions = _HEADER.unpack_from(head) if len(head) >= _HEADER.size else (0, 0)
        begin = _HEADER.size + 4 * axes + 4 * (mode == 1)
        if mode > 1 or dimensions != axes or len(head) < begin:
            raise SourceError(f"{printable(file.path)}: is not a block of an N5 array of {axes} dimensions")
        numbers = struct.unpack_from(f">{axes + (mode == 1)}I", head, _HEADER.size)
        extent = numbers[:axes][::-1]
        where = np.unravel_index(int(self.files.indices[number]), self.grid)
        for at, size, total, length in zip(where, self.blocks, self.shape, extent, strict=True):
            if not min(size, total - int(at) * size) <= length <= size:
                shown = " x ".join(map(str, extent))
                raise SourceError(f"{printable(file.path)}: damaged: its header declares {shown} elements")
        count = numbers[-1] if mode == 1 else math.prod(extent)
        if count != math.prod(extent) and not self.ragged:
            raise SourceError(f"{printable(file.path)}: damaged: its header declares {count} elements")
        return Block(number, file, extent, begin, count)

    @property
    def ragged(self) -> bool:
        """Whether blocks have one element of one byte, according to the attributes.

        In mode 1, such blocks can have any number of bytes instead.
        """
        return self.blocks == (1,) and self.dtype.itemsize == 1

    def _expanded(self, block: Block) -> bytes:
        data = block.read(0, block.stored_size)
        if self.compression == "raw":
            return data
        with errors_in(f"{printable(block.file.path)}: damaged"):
            return unpack(self.compression, data, block.count * self.dtype.itemsize)

    def _axes(self, attributes: dict[str, Any], member: str) -> tuple[int, ...]:
        numbers = attributes.get(member)
        if not isinstance(numbers, list) or not 1 <= len(numbers) <= _MOST_AXES or not all(map(_is_extent, numbers)):
            raise self.error(f"its {member} are {_shown(numbers)}")
        return tuple(reversed(numbers))

    def _compression(self, attributes: dict[str, Any]) -> str:
        compression = attributes.get("compression", attributes.get("compressionType"))
        members = compression if isinstance(compression, dict) else {"type": compression}
        name = members.get("type")
        if name == "gzip" and members.get("useZlib") is True:
            return "zlib"
        if name not in ("raw", "gzip"):
            raise self.error(f"its blocks are compressed by {_shown(name)}. Write it with raw or gzip blocks.")
        return str(name)

    def _block_indices(self) -> Ints:
        """Return the numbers of the blocks that have files, in ascending order.

        Blocks of zeros have no file, so a few bytes of attributes could declare more zeros than memory can hold. The
        number of elements without a file is therefore limited to the number of other elements plus a constant.
        """
        total = math.prod(self.shape)
        if total >= 1 << 62 or math.prod(self.grid) >= 1 << 62:
            raise self.error(f"its dimensions are too large: {_shown(list(reversed(self.shape)))}")
        found = np.array(list(self._found(self.path, ())), np.int64).reshape(-1, 2)
        indices, size = np.sort(found[:, 0]), int(found[:, 1].sum())
        there = size * (1 if self.compression == "raw" else _RATIO) // self.dtype.itemsize
        if total > 2 * there + _FREE:
            raise self.error(f"blocks are missing: only {len(indices):,} of {math.prod(self.grid):,} are there")
        return indices

    def _found(self, directory: Path, way: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        """Yield, for each block file below a directory, the block's number and the file's size in bytes."""
        try:
            entries = list(os.scandir(directory))
        except OSError as error:
            raise SourceError(f"{printable(directory)}: cannot be listed: {error.strerror}") from error
        bound = self.grid[len(self.grid) - 1 - len(way)]
        for entry in entries:
            if not _NUMBER.fullmatch(entry.name) or int(entry.name) >= bound:
                continue  # attributes.json, or a block that is outside of the array, which has become smaller
            if entry.is_symlink():
                raise SourceError(
                    f"{printable(entry.path)}: is a symbolic link, which packer does not follow in an N5 array"
                )
            here = *way, int(entry.name)
            if len(here) == len(self.grid):
                yield int(np.ravel_multi_index(here[::-1], self.grid)), entry.stat().st_size
            elif entry.is_dir():
                yield from self._found(Path(entry.path), here)


def _path(grid: tuple[int, ...], index: int) -> str:
    return "/".join(str(int(at)) for at in reversed(np.unravel_index(index, grid)))


def _is_extent(number: Any) -> bool:
    return type(number) is int and 0 <= number < 1 << 62


def _shown(value: Any) -> str:
    text = printable(json.dumps(value))
    return text if len(text) <= 100 else f"{text[:97]}..."


Image = Piece | Packed | bytes
_Value = TypeVar("_Value")

_HEAD = 32  # bytes by which the type of an image is recognised
_LISTED = 1024  # samples that are listed at a time
_CHANNELS = {3: "RGB", 1: "L"}


class N5Images(abc.ABC):
    """The images that an array contains.

    Attributes
    ----------
    array : N5Array
        The array whose blocks are the container's files.
    count : int
    step : int
        Number of images that are listed at a time.
    pixels : PixelLayout, optional
        The layout of raw pixels; None for encoded images.
    shape : (height, width), optional
        The size of each image, if images are raw pixels.
    note : str
        A note for the user; otherwise empty.
    """

    pixels: PixelLayout | None = None
    shape: tuple[int, int] | None = None
    note = ""

    def __init__(self, array: N5Array, count: int, step: int = _LISTED) -> None:
        self.array, self.count, self.step = array, count, step

    def between(self, start: int, stop: int) -> Iterator[tuple[Image, str] | SourceError]:
        """Yield images `start` to `stop` - 1, each with the suffix for its name, or the error if it is damaged."""
        blocks = _Blocks(self.array)
        for number, begin, size in zip(range(start, stop), *self._ranges(start, stop), strict=False):
            try:
                yield self._image(blocks, number, _usable(begin), _usable(size))
            except SourceError as error:
                yield error

    def _ranges(self, start: int, stop: int) -> tuple[Iterable[int | SourceError], Iterable[int | SourceError]]:
        """Return the offset and the size of each image's bytes, or errors, if other arrays list them; otherwise 0."""
        return itertools.repeat(0), itertools.repeat(0)

    @abc.abstractmethod
    def _image(self, blocks: _Blocks, number: int, begin: int, size: int) -> tuple[Image, str]:
        """Return an image and the suffix for its name; SourceError if its block is damaged or missing."""


class _Pixels(N5Images):
    """An array of N x H x W x 3 or N x 3 x H x W bytes; or of N x H x W bytes for grey images."""

    def __init__(self, array: N5Array, layout: PixelLayout, shape: tuple[int, int]) -> None:
        each = array.blocks[0]
        super().__init__(array, len(array), -(-_LISTED // each) * each)
        self.pixels, self.shape = layout, shape
        self._whole = math.prod(array.grid[1:]) == 1
        if not self._whole:
            self.note = f"{array.name}: an image extends over several blocks, so its pixels are copied"

    def _image(self, blocks: _Blocks, number: int, begin: int, size: int) -> tuple[Image, str]:
        index, row = divmod(number, self.array.blocks[0])
        block = blocks.at(index) if self._whole else None
        if block is not None and block.extent[1:] == self.array.shape[1:]:
            each = math.prod(self.array.shape[1:])
            return blocks.piece(block, row * each, each), ".png"
        return self.array.rows(number, number + 1).tobytes(), ".png"  # a copy: the pixels are not one range of a file


class _BlockEach(N5Images):
    """An array of N blocks of one element each; a block holds the bytes of an image."""

    def __init__(self, array: N5Array) -> None:
        super().__init__(array, len(array))
        if self.count > 2 * len(array.files) + _LISTED:  # each missing block would be listed as a bad image
            raise array.error(f"blocks are missing: only {len(array.files):,} of {self.count:,} are there")

    def _image(self, blocks: _Blocks, number: int, begin: int, size: int) -> tuple[Image, str]:
        block = blocks.at(number)
        if block is None:
            raise self.array.error(f"image {number} has no block")
        return blocks.piece(block, 0, block.count), suffix_of(blocks.head(block, 0))


class _OneByOne(N5Images):
    """An array with the bytes of all images in succession, and arrays with the offset and size of each image.

    Without an array of sizes, each image ends where the next image begins; the array of offsets has one extra element,
    the end of the last image.
    """

    def __init__(self, array: N5Array, offsets: N5Array, sizes: N5Array | None) -> None:
        super().__init__(array, len(offsets) - (sizes is None))
        self._offsets, self._sizes = offsets, sizes
        self._copied = 0

    def _ranges(self, start: int, stop: int) -> tuple[Iterable[int | SourceError], Iterable[int | SourceError]]:
        begins = list(self._offsets.each(start, stop + (self._sizes is None)))
        if self._sizes is not None:
            return begins, self._sizes.each(start, stop)
        pairs = itertools.pairwise(begins)
        return begins, [
            a if isinstance(a, SourceError) else b if isinstance(b, SourceError) else b - a for a, b in pairs
        ]

    def _image(self, blocks: _Blocks, number: int, begin: int, size: int) -> tuple[Image, str]:
        if not (begin >= 0 and 0 < size <= min(MOST_UNPACKED, len(self.array) - begin)):
            raise self.array.error(f"damaged: image {number} has {size} bytes, beginning at {begin}")
        each = self.array.blocks[0]
        index, offset = divmod(begin, each)
        block = blocks.at(index)
        if block is None:
            raise self.array.error(f"image {number} is in block {index}, which is missing")
        image = blocks.piece(block, offset, size) if offset + size <= each else self._joined(number, begin, size)
        return image, suffix_of(blocks.head(block, offset)[:size])

    def _joined(self, number: int, begin: int, size: int) -> bytes:
        """Return a copy of the bytes of an image that is in several blocks."""
        self._copied += size
        if self._copied > len(self.array):  # offsets that refer to the same bytes again and again would fill the disk
            raise self.array.error(f"damaged: image {number} overlaps others")
        return bytes(self.array.rows(begin, begin + size).tobytes())


def _usable(value: _Value | SourceError) -> _Value:
    if isinstance(value, SourceError):
        raise value
    return value


class _Blocks:
    """The blocks of an array; the block that was read last stays open."""

    def __init__(self, array: N5Array) -> None:
        self._array = array
        self._index, self._block = -1, None  # type: int, Block | None
        self._elements: bytes | None = None

    def at(self, index: int) -> Block | None:
        """Return a block by its number in the array; None if the block has no file."""
        if index != self._index:
            number = self._array.files.find(index)
            self._block = None if number is None else self._array.block(number)
            self._index, self._elements = index, None
        return self._block

    def piece(self, block: Block, offset: int, size: int) -> Piece | Packed:
        """Return the location of `size` elements of a block, from `offset` on; an element is a byte."""
        if offset + size > block.count:
            raise self._array.error(f"damaged: {self._array.files[block.number]} ends before an image does")
        if self._array.compression == "raw":
            return Piece(block.number, block.begin + offset, size)
        whole = Piece(block.number, block.begin, block.stored_size)
        return Packed(whole, self._array.compression, block.count, offset, size)

    def head(self, block: Block, offset: int) -> bytes:
        """Return the first bytes of the image at this offset of a block."""
        size = min(_HEAD, block.count - offset)
        if self._array.compression == "raw":
            return block.read(offset, size)
        if self._elements is None:
            self._elements = self._array.elements(block).tobytes()
        return self._elements[offset : offset + size]


def images_of(array: N5Array, sibling: Callable[[str], N5Array | None]) -> N5Images | None:
    """Return the images that an array contains; None if it does not contain images.

    Parameters
    ----------
    array : N5Array
    sibling : callable
        Returns the array with this name in the same group; None if there is no such array.

    Raises
    ------
    SourceError
        If the arrays of offsets or sizes are invalid.
    """
    if array.dtype.str != "|u1":
        return None
    if len(array.shape) > 1:
        return _pixels(array)
    if array.ragged:
        return _BlockEach(array)
    offsets, sizes = sibling("offsets"), sibling("sizes")
    if offsets is None:
        return None
    for integers in (offsets, sizes):
        if integers is not None:
            _require_integers(integers, len(offsets))
    return _OneByOne(array, offsets, sizes)


def _pixels(array: N5Array) -> N5Images | None:
    """Return the images whose raw pixels are the rows of an array; None if the rows are not images."""
    _, *sides = array.shape
    layout = None
    if len(sides) == 2:
        layout, height, width = PixelLayout("HWC", "L"), *sides
    elif len(sides) == 3 and sides[2] in _CHANNELS:
        layout, height, width = PixelLayout("HWC", _CHANNELS[sides[2]]), *sides[:2]
    elif len(sides) == 3 and sides[0] in _CHANNELS:
        layout, height, width = PixelLayout("CHW", _CHANNELS[sides[0]]), *sides[1:]
    return None if layout is None or not height * width else _Pixels(array, layout, (height, width))


def _require_integers(array: N5Array, count: int) -> None:
    """Raise SourceError if an array is not one-dimensional with `count` integers."""
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise array.error(f"its elements are not {count} integers")


_LABELS = NAMES["n5"].labels
_STEP = 1 << 16  # labels that are read at a time
_OF_DATA = {"offsets", "sizes", "names", "name_ends"}
_OF_NUMBERS, _OF_ROWS = ("scalar", "class"), ("array", "labels", "boxes", "keypoints")
_DTYPES = {"i1": "int8", "i2": "int16", "i4": "int32", "u1": "uint8", "u2": "uint16", "f4": "float32", "f8": "float64"}
_SIGNED = {"uint8": "int16", "uint16": "int32"}  # because scalar fields have only signed dtypes
_NO_IMAGES = (
    "no array of images that packer can read: N x H x W x 3 uint8, one image in each block, or data and offsets"
)


class N5Group:
    """The arrays below a directory. Each array is opened when it is first used.

    Attributes
    ----------
    root : Path
    account : Account
        Records which arrays are used as labels, and which are left out.
    images : N5Images
        The images of the group. `choose` sets this attribute and the following ones.
    labels : N5Array, optional
    image_names : (N5Array, N5Array), optional
        The bytes of all names, and the offset at which each name ends.
    columns : dict of Field to N5Array
        The array of each field, with one row for each image.
    classes : list of str, optional
    """

    images: N5Images
    labels: N5Array | None
    image_names: tuple[N5Array, N5Array] | None
    columns: Mapping[Field, N5Array]
    classes: list[str] | None

    def __init__(self, root: Path, only: str | None = None) -> None:
        self.root, self.account = root, Account()
        self._only = only
        self._has_keys = False
        self._arrays: dict[str, N5Array | None] = {}

    @classmethod
    def at(cls, path: Path) -> N5Group:
        """Return the group in a directory; if the directory is a single array, a group of this array alone."""
        if N5Array.are_of_one(read_attributes(path)):
            return cls(path.parent, path.name)
        return cls(path)

    def array(self, name: str) -> N5Array | None:
        """Return the array at a path below the root; None if there is no array."""
        if name not in self._arrays:
            attributes = None if name_problem(name) else read_attributes(self.root / name)
            there = attributes is not None and N5Array.are_of_one(attributes)
            self._arrays[name] = N5Array(self.root, name, attributes) if there and attributes else None
        return self._arrays[name]

    def _require(self, name: str, key: str) -> N5Array:
        """Return the array that the user has chosen with ``--key``; SourceError if there is no such array."""
        array = self.array(name)
        if array is None:
            raise SourceError(f"{printable(self.root)}: --key {key}={printable(name)}: there is no such array")
        return array

    def names(self) -> list[str]:
        """Return the names of all arrays and groups in the directory."""
        if self._only is not None:
            return [self._only]
        return sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir(follow_symlinks=False))

    def choose(self, keys: Mapping[str, str]) -> None:
        """Choose the arrays that `keys` name.

        Without keys, choose the only array of images, and all arrays that have one row for each image.

        Raises
        ------
        SourceError
            If an array is missing, or its number of rows is not the number of images, or if the group does not have
            exactly one array of images.
        OptionError
            If an array does not fit the kind that its key declares.
        """
        chosen, self._has_keys = Chosen.of(keys), bool(keys)
        images = self._only_images() if chosen.image is None else self._named_images(chosen.image)
        labels, columns = self._named_columns(images, chosen) if keys else self._all_columns(images)
        if labels is not None and len(labels.shape) != 1:
            raise labels.error(f"labels must have 1 dimension, but this array has {len(labels.shape)}")
        self.images, self.labels, self.columns = images, labels, columns
        self.image_names, self.classes = self._names_of(images), self._classes(labels)

    @staticmethod
    def has_gaps(labels: N5Array) -> bool:
        """Tell whether float labels are class ids, with NaN for images without a class."""
        steps = (labels.each(start, min(start + _STEP, len(labels))) for start in range(0, len(labels), _STEP))
        parts = ([label for label in step if not isinstance(label, SourceError)] for step in steps)
        return are_whole(np.array(part, np.float64) for part in parts) == (True, True)

    def _named_images(self, name: str) -> N5Images:
        """Return the images in the array that the user has chosen with ``--key image=``."""
        images = self._images(self._require(name, "image"))
        if images is None:
            raise SourceError(f"{printable(self.root / name)}: {_NO_IMAGES}")
        return images

    def _only_images(self) -> N5Images:
        """Return the images of the group; SourceError unless exactly one array has images."""
        names = self.names()
        found = {}
        for name in names:
            array = self._readable(name)
            images = None if array is None or name in _OF_DATA else self._images(array)
            if images is not None:
                found[name] = images
        if len(found) != 1:
            what = f"images are in several arrays: {', '.join(map(printable, found))}" if found else _NO_IMAGES
            below = "" if found else f". There are {', '.join(map(printable, names[:9]))}" if names else ""
            raise SourceError(f"{printable(self.root)}: {what}. Choose an array with --key image=NAME{below}")
        (images,) = found.values()
        return images

    def _named_columns(self, images: N5Images, chosen: Chosen) -> tuple[N5Array | None, dict[Field, N5Array]]:
        labels = None if chosen.label is None else self._require(chosen.label, "label")
        columns = {field: self._require(field.key, field.name) for field in chosen.fields}
        arrays = [*columns.values(), *([] if labels is None else [labels])]
        for array in arrays:
            if len(array) != images.count:
                raise array.error(f"has {len(array)} rows, but there are {images.count} images")
        taken = {images.array.name, *(array.name for array in arrays)}
        left = [name for name in self.names() if name not in taken | _OF_DATA]
        if left:
            self.account.left_out("array", "no --key names it", left, chosen=True)
        return labels, {_field(field, array): array for field, array in columns.items()}

    def _all_columns(self, images: N5Images) -> tuple[N5Array | None, dict[Field, N5Array]]:
        arrays = {}
        for name in self.names():
            array = self._readable(name)
            if array is None or array is images.array or (name in _OF_DATA and len(images.array.shape) == 1):
                continue
            if len(array) == images.count:
                arrays[name] = array
                continue
            rows = f"it has {len(array):,} rows for {images.count:,} images"
            self.account.left_out("array", rows, [name])
            if has_label_name(name):
                self.account.looks_like_labels("array", name, "", rows)
        label = self._label_among(arrays)
        columns = {}
        for name, array in arrays.items():
            if array is label:
                continue
            try:
                columns[_field(ChosenField(name, "", name), array)] = array
            except OptionError as error:
                self.account.left_out("array", str(error), [name])
        return label, columns

    def _label_among(self, arrays: Mapping[str, N5Array]) -> N5Array | None:
        """Return the array whose name says that it has the labels; None if it is not clear which array has them."""
        able = [name for name, array in arrays.items() if len(array.shape) == 1]
        known = [name for name in _LABELS if name in able] or [name for name in able if is_label_name(name)]
        if known and (len(known) == 1 or known[0] in _LABELS):
            self.account.taken("array", "the label", [known[0]])
            self.account.candidates.clear()
            return arrays[known[0]]
        for name in filter(has_label_name, arrays):
            why = "" if name in able else f"has {len(arrays[name].shape)} dimensions"
            self.account.looks_like_labels("array", name, f"--key label={name}" if name in able else "", why)
        return None

    def _names_of(self, images: N5Images) -> tuple[N5Array, N5Array] | None:
        """Return the array of the images' names, and the array of the names' ends; None if there are no names."""
        names, ends = (self._sibling(images.array, name) for name in ("names", "name_ends"))
        if images.pixels is not None or names is None or ends is None:
            return None
        if (
            names.dtype.str != "|u1"
            or len(names.shape) != 1
            or ends.shape != (images.count,)
            or ends.dtype.kind not in "iu"
        ):
            raise names.error(f"they are not the names of {images.count} images")
        return names, ends

    def _classes(self, labels: N5Array | None) -> list[str] | None:
        """Return the class names that the attributes of the labels or of the group list; None if they list none."""
        if labels is None:
            return None
        for path in (labels.path, labels.path.parent):
            classes = (read_attributes(path) or {}).get("classes")
            if isinstance(classes, list) and classes and all(isinstance(name, str) for name in classes):
                return classes
        return None

    def _images(self, array: N5Array) -> N5Images | None:
        return images_of(array, lambda name: self._sibling(array, name))

    def _sibling(self, array: N5Array, name: str) -> N5Array | None:
        folder = array.name.rpartition("/")[0]
        return self.array(f"{folder}/{name}" if folder else name)

    def _readable(self, name: str) -> N5Array | None:
        """Return an array; None if it is missing, or if packer does not support it and leaves it out."""
        try:
            array = self.array(name)
        except SourceError as error:
            self._arrays[name] = array = None
            if not self._has_keys:
                self.account.left_out("array", str(error), [name])
        return array


def _field(chosen: ChosenField, array: N5Array) -> Field:
    """Return the field whose values are the rows of an array; OptionError if the rows do not fit the declared kind."""
    name, rank = chosen.name, len(array.shape) - 1
    kind = chosen.kind or ("array" if rank else "scalar")
    allowed = _OF_ROWS if rank else _OF_NUMBERS
    if kind not in allowed:
        raise OptionError(f"{chosen}: the kind of {printable(array.name)} must be one of {', '.join(allowed)}")
    dtype = _DTYPES.get(array.dtype.str[1:], "int64")
    try:
        if kind == "scalar":
            return Field(name, kind, _SIGNED.get(dtype, dtype))
        return Field(name, kind, dtype, rank) if kind == "array" else Field(name, kind)
    except ValueError as error:
        raise OptionError(f"{error}. Choose another name with --key NAME={printable(array.name)}") from error


_MOST_SUBDIRECTORIES = 64  # subdirectories that are searched for an array, to recognise a group without attributes


@dataclass(eq=False)
class N5(Container):
    """A group of arrays, or a single array.

    Attributes
    ----------
    group : N5Group
    """

    group: N5Group = field(kw_only=True)

    kind = "n5"

    units_are_files = False  # a unit is some consecutive images, each of which can be in several blocks

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        attributes = read_attributes(path) if ATTRIBUTES in names else None
        if attributes is not None and ("n5" in attributes or N5Array.are_of_one(attributes)):
            return [path]
        below = [path / name for name in sorted(names)[:_MOST_SUBDIRECTORIES]]
        found = any(N5Array.are_of_one(read_attributes(one)) for one in below if os.path.isfile(one / ATTRIBUTES))
        return [path] if found else None

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> N5:
        if len(paths) != 1:
            raise OptionError(f"convert N5 directories one at a time, not {len(paths)}")
        if "name" in keys:
            raise OptionError(
                "--key name does not apply to N5, whose arrays contain no text: samples are named by their numbers"
            )
        group = N5Group.at(paths[0])
        group.choose(keys)
        images, labels = group.images, group.labels
        is_float = labels is not None and labels.dtype.kind == "f" and not group.has_gaps(labels)
        return cls(
            group.root,
            images.array.files,
            tuple(group.columns),
            group.classes,
            "float" if is_float else "class",
            images.pixels,
            [images.note] * bool(images.note),
            account=group.account,
            group=group,
        )

    @property
    def units(self) -> int:
        return -(-self.group.images.count // self.group.images.step)

    def entries(self, unit: int) -> Iterator[Entry]:
        images = self.group.images
        start = unit * images.step
        stop = min(start + images.step, images.count)
        digits = len(str(images.count - 1))
        names, labels = self._names(start, stop), self._labels(start, stop)
        columns = {field.name: _stored(field, array, start, stop) for field, array in self.group.columns.items()}
        for row, found in enumerate(images.between(start, stop), start):
            name, label, number = next(names), next(labels), f"{row:0{digits}d}"
            values = {field: next(column) for field, column in columns.items()}
            try:
                image, suffix = _usable(found)
                usable = {field: _usable(value) for field, value in values.items()}
                entry = Entry(_usable(name) or number + suffix, image, _usable(label), usable, images.shape)
            except SourceError as error:
                known = number if isinstance(name, SourceError) else name
                entry = Entry(known or number, b"", problem=str(error))
            yield entry

    def _labels(self, start: int, stop: int) -> Iterator[int | float | SourceError | None]:
        """Yield the labels of rows: None for a row without a label, an error for a label in a damaged block."""
        labels = self.group.labels
        missing = () if self.label_type == "float" else (UNLABELED,)
        for label in itertools.repeat(None) if labels is None else labels.each(start, stop):
            if label is None or isinstance(label, SourceError):
                yield label
            elif math.isnan(label) or label in missing:
                yield None
            else:
                yield label if self.label_type == "float" else int(label)

    def _names(self, start: int, stop: int) -> Iterator[str | SourceError]:
        """Yield the names of rows, an error for a name in a damaged block; empty names if there is no array of them."""
        if self.group.image_names is None:
            yield from itertools.repeat("")
            return
        names, ends = self.group.image_names
        limits = itertools.chain([] if start else [0], ends.each(max(0, start - 1), stop))
        for row, (begin, end) in enumerate(itertools.pairwise(limits), start):
            try:
                if not 0 <= _usable(begin) <= _usable(end) <= min(len(names), begin + LONGEST_NAME):
                    raise ends.error(f"damaged: the name of row {row} begins at byte {begin} and ends at byte {end}")
                yield names.rows(begin, end).tobytes().decode("utf-8", "surrogateescape")
            except SourceError as error:
                yield error


def _stored(field: Field, array: N5Array, start: int, stop: int) -> Iterator[Stored | SourceError]:
    """Yield the values of rows in the form that a pack stores, an error for each row with an invalid value."""
    for row, value in enumerate(array.each(start, stop), start):
        try:
            yield value if isinstance(value, SourceError) else _encoded(field, value)
        except ValueError as error:
            yield content_error(f"{printable(array.path)}: row {row}", error)


def _encoded(field: Field, value: Any) -> Stored:
    """Return a value in the form that a pack stores, None for NaN; ValueError if the value is invalid."""
    is_missing = field.dtype.startswith("float") and isinstance(value, float) and math.isnan(value)
    return None if is_missing else field.encode(value)


_BLOCK_HEADER = struct.Struct(">HHI")  # mode 0, one dimension, and the number of elements
_LARGEST = (1 << 31) - 1  # most bytes of a block
_USUAL = 64 << 20
_ELEMENTS = 1 << 20  # elements of a block, in arrays other than ``data``
_CODES = {">u8": ">Q", ">i8": ">q", ">f8": ">d", ">i4": ">i"}
_VERSION = "2.0.0"  # the first version with attributes in this form, which newer tools read too

_Offset = TypeVar("_Offset", int, Ints)


class _Column(NamedTuple):
    """An array other than ``data`` that is being written, with the elements known so far."""

    dtype: str
    elements: Spool

    def add(self, value: int | float) -> None:
        self.elements.append(struct.pack(_CODES[self.dtype], value))

    def extend(self, values: npt.NDArray[Any]) -> None:
        for block in blocks(values):
            self.elements.append(block.astype(self.dtype).tobytes())


class N5Writer(ShardWriter):
    """Writes a group of arrays.

    Options: ``shard_size``, the number of bytes of a block of ``data``; a larger image is an error.
    """

    shard_name = "data/{}"
    head_size = _BLOCK_HEADER.size
    shard_sizes = _USUAL, _LARGEST

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        super().__init__(path, options, written, contents)
        types = {
            "offsets": ">u8",
            "sizes": ">u8",
            "labels": ">f8" if contents.label_type == "float" else ">i8",
            "name_ends": ">u8",
            "names": "|u1",
        }
        if contents.codec == "raw":
            types |= {"heights": ">i4", "widths": ">i4"}
        self._columns = {name: _Column(dtype, Spool(path.parent)) for name, dtype in types.items()}
        self._end = 0  # the offset at which the last name ends
        if len(written):
            self._continue(written)

    def frame(self, sample: Sample) -> Frame:
        if len(sample.data) > self._shard_size:
            raise DestinationError(
                f"{printable(sample.name)}: {len(sample.data):,} bytes do not fit into a block of "
                f"{self._shard_size:,} bytes. Start again with {option('fresh', True)} and a larger "
                f"{option('shard_size')}, at most {_LARGEST}."
            )
        frame = self.new_frame()
        frame.add_image(sample.data)
        self.copy_blobs(frame, sample)
        return frame

    def append(self, sample: Sample) -> Placed:
        placed, name = super().append(sample), encode_name(sample.name)
        self._end += len(name)
        columns = self._columns
        columns["offsets"].add(self._in_data(placed.offset))
        columns["sizes"].add(len(sample.data))
        columns["labels"].add(sample.label)
        columns["names"].elements.append(name)
        columns["name_ends"].add(self._end)
        if "heights" in columns:
            columns["heights"].add(sample.height)
            columns["widths"].add(sample.width)
        return placed

    def trailer(self, size: int, *, last: bool) -> bytes:
        return b"" if last else bytes(_BLOCK_HEADER.size + self._shard_size - size)

    def head(self, lines: bytes, size: int) -> bytes:
        return _BLOCK_HEADER.pack(0, 1, size - _BLOCK_HEADER.size)

    def sidecar_files(self) -> Iterator[tuple[str, bytes]]:
        classes = {"classes": list(self._contents.classes)} if self._contents.classes else {}
        yield "attributes.json", _json({"n5": _VERSION, **classes})
        size = self._start - len(self._shards) * _BLOCK_HEADER.size
        yield "data/attributes.json", _attributes(size, self._shard_size, "|u1")
        for name, column in self._columns.items():
            elements = column.elements.array(column.dtype)
            yield f"{name}/attributes.json", _attributes(len(elements), _ELEMENTS, column.dtype)
            for number, start in enumerate(range(0, len(elements), _ELEMENTS)):
                block = elements[start : start + _ELEMENTS]
                yield f"{name}/{number}", _BLOCK_HEADER.pack(0, 1, len(block)) + block.tobytes()

    def close(self) -> None:
        super().close()
        for column in self._columns.values():
            column.elements.close()

    def _continue(self, written: Table) -> None:
        """Continue after the rows that an earlier run wrote."""
        self._end = int(written.name_end[-1])
        rows = {
            "offsets": written.offset,
            "sizes": written.size,
            "labels": written.label,
            "names": written.names[: self._end],
            "name_ends": written.name_end,
            "heights": written.height,
            "widths": written.width,
        }
        for name, column in self._columns.items():
            if name != "offsets":
                column.extend(rows[name])
        for block in blocks(written.offset):
            self._columns["offsets"].extend(self._in_data(block))

    def _in_data(self, offset: _Offset) -> _Offset:
        """Convert offsets in block files to offsets in ``data``, which has no block headers."""
        return offset - (offset // (_BLOCK_HEADER.size + self._shard_size) + 1) * _BLOCK_HEADER.size


def _attributes(size: int, block: int, dtype: str) -> bytes:
    """Return the attributes of an array."""
    kind = np.dtype(dtype).name
    return _json({"dimensions": [size], "blockSize": [block], "dataType": kind, "compression": {"type": "raw"}})


def _json(members: Mapping[str, Any]) -> bytes:
    return json.dumps(members).encode("ascii")
