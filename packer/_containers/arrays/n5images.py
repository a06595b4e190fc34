"""How images lie in the arrays of N5: a row of an array each, a block each, or one after the other."""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Callable, Iterator

from packer._containers.arrays.n5arrays import Array, Block
from packer._containers.contract import Packed, Piece, PixelLayout
from packer._containers.imagenames import suffix_of
from packer._containers.unpacking import MOST_UNPACKED

__all__ = ["Images", "images_of"]

Image = Piece | Packed | bytes

_HEAD = 32  # bytes, by which an image is known
_STEP = 1024  # samples that are listed at once
_CHANNELS = {3: "RGB", 1: "L"}


class Images(abc.ABC):
    """The images in an array.

    Attributes
    ----------
    array : Array
        Whose blocks are the container's files.
    count : int
    step : int
        How many are listed at once.
    pixels : PixelLayout, optional
        How pixels lie; None of encoded images.
    shape : (height, width), optional
        The size of each image, where images are pixels.
    note : str
        What a person should know; else empty.
    """

    pixels: PixelLayout | None = None
    shape: tuple[int, int] | None = None
    note = ""

    def __init__(self, array: Array, count: int, step: int = _STEP) -> None:
        self.array, self.count, self.step = array, count, step

    @abc.abstractmethod
    def between(self, start: int, stop: int) -> Iterator[tuple[Image, str]]:
        """Yield images `start` to `stop`, each with the suffix of its name.

        Raises
        ------
        SourceError
            If a block is damaged, or an image has none.
        """


class _Pixels(Images):
    """An array of N x H x W x 3 or N x 3 x H x W bytes; or of N x H x W, which are grey."""

    def __init__(self, array: Array, layout: PixelLayout, shape: tuple[int, int]) -> None:
        each = array.blocks[0]
        super().__init__(array, len(array), -(-_STEP // each) * each)
        self.pixels, self.shape = layout, shape
        self._whole = math.prod(array.grid[1:]) == 1
        if not self._whole:
            self.note = f"{array.name}: an image lies in several blocks, so its pixels are copied"

    def between(self, start: int, stop: int) -> Iterator[tuple[Image, str]]:
        blocks, each = _Blocks(self.array), self.array.blocks[0]
        size = math.prod(self.array.shape[1:])
        for number in range(start, stop):
            block = blocks.at(number // each) if self._whole else None
            if block is not None and block.extent[1:] == self.array.shape[1:]:
                yield blocks.piece(block, number % each * size, size), ".png"
            else:  # zeros that nobody wrote, or rows with others between them
                yield self.array.rows(number, number + 1).tobytes(), ".png"


class _BlockEach(Images):
    """An array of N blocks of one element each, which are the bytes of an image each."""

    def __init__(self, array: Array) -> None:
        super().__init__(array, len(array))

    def between(self, start: int, stop: int) -> Iterator[tuple[Image, str]]:
        blocks = _Blocks(self.array)
        for number in range(start, stop):
            block = blocks.at(number)
            if block is None:
                raise self.array.error(f"image {number} has no block")
            yield blocks.piece(block, 0, block.count), suffix_of(blocks.head(block, 0))


class _OneByOne(Images):
    """Bytes of images one after the other, and arrays that say where each one begins, and how many bytes it has.

    Without an array of sizes, each image ends where the next one begins, and the offsets are one more than the images.
    """

    def __init__(self, array: Array, offsets: Array, sizes: Array | None) -> None:
        super().__init__(array, len(offsets) - (sizes is None))
        self._offsets, self._sizes = offsets, sizes
        self._copied = 0

    def between(self, start: int, stop: int) -> Iterator[tuple[Image, str]]:
        blocks, each = _Blocks(self.array), self.array.blocks[0]
        begins = self._offsets.rows(start, stop + (self._sizes is None)).tolist()
        if self._sizes is None:
            sizes = [end - begin for begin, end in itertools.pairwise(begins)]
        else:
            sizes = self._sizes.rows(start, stop).tolist()
        for number, begin, size in zip(range(start, stop), begins, sizes, strict=False):
            if not (begin >= 0 and 0 < size <= min(MOST_UNPACKED, len(self.array) - begin)):
                raise self.array.error(f"damaged: image {number} has {size} bytes from {begin} on")
            place, offset = divmod(begin, each)
            block = blocks.at(place)
            if block is None:
                raise self.array.error(f"image {number} lies in block {place}, which is missing")
            image = blocks.piece(block, offset, size) if offset + size <= each else self._joined(number, begin, size)
            yield image, suffix_of(blocks.head(block, offset)[:size])

    def _joined(self, number: int, begin: int, size: int) -> bytes:
        """Return an image that lies in several blocks."""
        self._copied += size
        if self._copied > len(self.array):  # offsets that lead to the same bytes again and again would fill the disk
            raise self.array.error(f"damaged: image {number} overlaps others")
        return bytes(self.array.rows(begin, begin + size).tobytes())


class _Blocks:
    """The blocks of an array, of which the last one stays open."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self._place, self._block = -1, None  # type: int, Block | None
        self._elements: bytes | None = None

    def at(self, place: int) -> Block | None:
        """Return a block by its number in the array; None where it has no file."""
        if place != self._place:
            number = self._array.files.find(place)
            self._block = None if number is None else self._array.block(number)
            self._place, self._elements = place, None
        return self._block

    def piece(self, block: Block, offset: int, size: int) -> Piece | Packed:
        """Return where bytes of a block lie."""
        if offset + size > block.count:
            raise self._array.error(f"damaged: {self._array.files[block.number]} ends before an image does")
        if self._array.compression == "raw":
            return Piece(block.number, block.begin + offset, size)
        whole = Piece(block.number, block.begin, block.held)
        return Packed(whole, self._array.compression, block.count, offset, size)

    def head(self, block: Block, offset: int) -> bytes:
        """Return the first bytes of an image."""
        size = min(_HEAD, block.count - offset)
        if self._array.compression == "raw":
            return block.read(offset, size)
        if self._elements is None:
            self._elements = self._array.elements(block).tobytes()
        return self._elements[offset : offset + size]


def images_of(array: Array, sibling: Callable[[str], Array | None]) -> Images | None:
    """Return the images in an array; None where there are none.

    Parameters
    ----------
    array : Array
    sibling : callable
        Returns the array of a name in the same group; None where there is none.

    Raises
    ------
    SourceError
        If the arrays that say where images begin are none.
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
    for array_of_places in (offsets, sizes):
        if array_of_places is not None:
            _require_integers(array_of_places, len(offsets))
    return _OneByOne(array, offsets, sizes)


def _pixels(array: Array) -> Images | None:
    """Return the images whose pixels are the rows of an array; None where they are none."""
    _, *sides = array.shape
    layout = None
    if len(sides) == 2:
        layout, height, width = PixelLayout("HWC", "L"), *sides
    elif len(sides) == 3 and sides[2] in _CHANNELS:
        layout, height, width = PixelLayout("HWC", _CHANNELS[sides[2]]), *sides[:2]
    elif len(sides) == 3 and sides[0] in _CHANNELS:
        layout, height, width = PixelLayout("CHW", _CHANNELS[sides[0]]), *sides[1:]
    return None if layout is None or not height * width else _Pixels(array, layout, (height, width))


def _require_integers(array: Array, count: int) -> None:
    """Raise SourceError where an array is none of so many integers."""
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise array.error(f"its elements are not {count} integers")
