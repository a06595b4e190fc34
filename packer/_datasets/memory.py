"""Memory of batches, used for one batch after the other: shared by processes, and page-locked for a GPU, if need be.

Forks of a process have its objects and none of its threads: a fork that waits for a thread waits for ever.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import multiprocessing
import operator
import os
import weakref
from collections.abc import Mapping
from multiprocessing import reduction
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from packer._datasets.lookup import Lookup
from packer._images.numbers import NumberFormat
from packer.errors import WorkerError

IMAGES = "image"
"""The name of the part that has the images."""

Tensors = Mapping[str, torch.Tensor]
"""The pixels of a batch by the names of its parts: see `Layout`."""

_VIEWS = f"{IMAGES}/"  # begins the names of parts that have a view each, and no field's name
_AS_NUMBERS = "/numbers"  # ends the names of the numbers of images

_ALIGNED = 64  # bytes; where a part may begin
_PORTABLE = 1  # cudaHostRegisterPortable: page-locked for every device


class BatchPart(NamedTuple):
    """Pixels in a batch that are of one kind: the images, those of one view, or the masks of a field."""

    name: str
    size: tuple[int, int]
    channels: int
    dtype: str = "uint8"
    planes: bool = False
    """Whether the pixels are contiguous, or laid out channels last."""


def view_part(number: int, size: tuple[int, int]) -> BatchPart:
    """Return the part that has one view of each image."""
    return BatchPart(f"{_VIEWS}{number}", size, 3)


Pixels = TypeVar("Pixels")


def images_in(memory: Mapping[str, Pixels]) -> Pixels | list[Pixels] | None:
    """Return the images of a batch, a list of those of each view, or None where it has none."""
    views = [pixels for name, pixels in memory.items() if _is_view(name)]
    return views or memory.get(IMAGES)


def _is_view(name: str) -> bool:
    return name.startswith(_VIEWS) and not name.endswith(_AS_NUMBERS)


class Layout(NamedTuple):
    """The parts of the memory of a batch, one after the other, and the numbers that its images become."""

    parts: tuple[BatchPart, ...]
    numbers: NumberFormat | Lookup | None = None
    """The numbers in place of levels, if any: written when images are decoded, or from parts that hold the levels."""

    @property
    def with_images(self) -> bool:
        return bool(self.images)

    @property
    def images(self) -> list[BatchPart]:
        """The part that has the images, or those that have a view of them each."""
        return [part for part in self.parts if part.name == IMAGES or _is_view(part.name)]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images, which are no views."""
        return next(part.size for part in self.parts if part.name == IMAGES)

    @property
    def views(self) -> int:
        """How many views of each image there are; 0 of images that are no views."""
        return sum(_is_view(part.name) for part in self.parts)

    def with_numbers(self, numbers: NumberFormat | Lookup, *, beside: bool) -> Layout:
        """Return a layout of the same pixels, of which the images become numbers.

        With `beside` the numbers have memory of their own, so that something may come between: the levels stay.
        """
        become = [part._replace(dtype=numbers.dtype, planes=numbers.planes) for part in self.images]
        if beside:
            made = [part._replace(name=part.name + _AS_NUMBERS) for part in become]
            return Layout((*self.parts, *made), numbers)
        named = {part.name: part for part in become}
        return Layout(tuple(named.get(part.name, part) for part in self.parts), numbers)

    @property
    def decoded_numbers(self) -> NumberFormat | Lookup | None:
        """The numbers that images become when they are decoded; None where they are levels then."""
        beside = any(part.name.endswith(_AS_NUMBERS) for part in self.parts)
        return None if beside else self.numbers

    def levels_and_numbers(self, memory: Tensors) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the images of a batch, or each view of them, and their numbers."""
        return [(memory[part.name], memory[part.name + _AS_NUMBERS]) for part in self.images]

    def decoded(self, memory: Tensors) -> Tensors:
        """Return the parts of a batch that are decoded."""
        return {name: tensor for name, tensor in memory.items() if not name.endswith(_AS_NUMBERS)}

    def handed_out(self, memory: Tensors) -> Tensors:
        """Return the parts that are handed out, when the batch is done: with numbers in place of images."""
        return {name: memory.get(name + _AS_NUMBERS, tensor) for name, tensor in self.decoded(memory).items()}

    def bytes_for(self, count: int) -> int:
        """Return how many bytes `count` samples need."""
        return _laid_out(self.parts, count)[1]

    def tensors(self, memory: npt.NDArray[np.uint8], count: int) -> Tensors:
        """Return the parts of memory as (count, channels, height, width) tensors, laid out as the parts say."""
        return self.as_tensors(self.arrays(memory, count))

    def arrays(self, memory: npt.NDArray[np.uint8], count: int) -> dict[str, npt.NDArray[Any]]:
        """Return the parts as arrays; bfloat16, which NumPy does not know, as int16."""
        places = _laid_out(self.parts, count)[0].items()
        return {name: np.ndarray(shape, dtype, memory, begin, steps) for name, (dtype, shape, steps, begin) in places}

    def as_tensors(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Tensors:
        """Return such arrays as tensors, which hold them."""
        if torch.is_inference_mode_enabled():  # the threads that write into the tensors are not in that mode
            with torch.inference_mode(False):
                return self.as_tensors(arrays)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        for part in self.parts:
            if part.dtype == "bfloat16":
                tensors[part.name] = tensors[part.name].view(torch.bfloat16)
        return tensors

    def page_locked(self, count: int) -> Tensors:
        """Return such tensors in page-locked memory, which torch keeps for reuse by itself."""
        with torch.inference_mode(False):
            tensors = {}
            for part in self.parts:
                places, size = _laid_out((part,), count)
                dtype, shape, steps, _ = places[part.name]
                locked = torch.empty(size, dtype=torch.uint8, pin_memory=True).view(getattr(torch, part.dtype))
                tensors[part.name] = locked.as_strided(shape, [step // dtype.itemsize for step in steps])
            return tensors


def layout_of(found: Layout | tuple[int, int] | None) -> Layout | None:
    """Return the layout that a dataset says: a whole one, or height and width of its images."""
    if found is None or isinstance(found, Layout):
        return found
    height, width = map(operator.index, found)
    if min(height, width) < 1:
        raise ValueError(f"layout() is the height and width of images, 1 or more, not {found!r}")
    return Layout((BatchPart(IMAGES, (height, width), 3),))


class _Place(NamedTuple):
    """Where the pixels of a part lie in memory: an array's shape, and its steps and its beginning in bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    begin: int


@functools.lru_cache(maxsize=64)
def _laid_out(parts: tuple[BatchPart, ...], count: int) -> tuple[dict[str, _Place], int]:
    """Return where each part lies for `count` samples, one after the other, and how many bytes all need."""
    places, begin = {}, 0
    for part in parts:
        (height, width), channels = part.size, part.channels
        dtype = np.dtype("int16" if part.dtype == "bfloat16" else part.dtype)
        steps = (height * width, width, 1) if part.planes else (1, width * channels, channels)
        each = height * width * channels
        shape = count, channels, height, width
        places[part.name] = _Place(dtype, shape, tuple(dtype.itemsize * step for step in (each, *steps)), begin)
        begin += -(-count * each * dtype.itemsize // _ALIGNED) * _ALIGNED
    return places, begin


class SharedMemory:
    """Memory that this process shares with those that get it when they are started (`Process(args=...)`).

    The memory has no name, so the system frees it when the last process ends, however that ends.

    Parameters
    ----------
    size : int
        Number of bytes.

    Attributes
    ----------
    pixels : (size,) uint8 array
    """

    def __init__(self, size: int) -> None:
        buffer: Any
        self._fd: int | None = None
        if hasattr(os, "memfd_create"):  # limited by memory alone; /dev/shm has 64 MB in many containers
            self._fd = os.memfd_create("packer-batches")
            weakref.finalize(self, os.close, self._fd)
            os.ftruncate(self._fd, size)
            buffer = mmap.mmap(self._fd, size)
        else:
            buffer = multiprocessing.get_context("spawn").RawArray(ctypes.c_uint8, size)
        self._buffer = buffer
        self.pixels = np.frombuffer(buffer, np.uint8)

    def __reduce__(self) -> Any:
        if self._fd is not None:
            return _attached, (reduction.DupFd(self._fd), self.pixels.size)
        return _pixels, (self._buffer,)


def _attached(duplicate: Any, size: int) -> npt.NDArray[np.uint8]:
    fd = duplicate.detach()
    try:
        return _pixels(mmap.mmap(fd, size))
    finally:
        os.close(fd)


def _pixels(buffer: Any) -> npt.NDArray[np.uint8]:
    return np.frombuffer(buffer, np.uint8)


def fresh(size: int) -> npt.NDArray[np.uint8]:
    """Return memory of any content, which begins with a line of the caches, for whole lines to be written past them."""
    memory = np.empty(size + _ALIGNED, np.uint8)
    begin = -memory.ctypes.data % _ALIGNED
    return memory[begin : begin + size]


class Slot:
    """Memory for one batch after the other: free when no tensor that lies in it is held any more.

    Parameters
    ----------
    pixels : (size,) uint8 array
        The memory.
    """

    def __init__(self, pixels: npt.NDArray[np.uint8]) -> None:
        self._pixels = pixels
        self._holders: list[weakref.ref[Any]] = []

    @property
    def free(self) -> bool:
        for holder in self._holders:  # noqa: SIM110  # for each slot and batch, in half the time of all()
            if holder() is not None:
                return False
        return True

    @property
    def size(self) -> int:
        return self._pixels.size

    def tensors(self, layout: Layout, count: int) -> Tensors:
        """Return the slot as a batch of `count` samples, and take it until the last view of the batch is gone."""
        # All views of a tensor hold its storage, and the storage holds the array.
        arrays = layout.arrays(self._pixels, count)
        self._holders = [*map(weakref.ref, arrays.values())]
        return layout.as_tensors(arrays)


def pinned(memory: Tensors) -> Tensors:
    """Return tensors in page-locked memory: copies of those that lie elsewhere."""
    return {name: tensor if tensor.is_pinned() else tensor.pin_memory() for name, tensor in memory.items()}


def page_lock(pixels: npt.NDArray[np.uint8]) -> None:
    """Page-lock an array's memory until the array is no longer held, so that a GPU can copy from it by itself.

    PyTorch does not watch memory that it did not page-lock itself: the caller holds the array until a copy is done.
    """
    cudart: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = pixels.ctypes.data
    torch.cuda.check_error(cudart.cudaHostRegister(address, pixels.nbytes, _PORTABLE))
    weakref.finalize(pixels, _unlock, os.getpid(), cudart, address, pixels.base)


def _unlock(process: int, cudart: Any, address: int, memory: Any) -> None:
    """Undo `page_lock` while `memory` is still there; not in a fork, where CUDA cannot be used."""
    if os.getpid() == process:
        cudart.cudaHostUnregister(address)


def leak(*values: object) -> None:
    """Never free these objects, not even when Python ends: for objects of a device in a fork.

    CUDA cannot be used in a fork, and PyTorch aborts a process that destroys an event there.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(values))


def require_same_process(process: int) -> None:
    """Raise WorkerError if this is a fork of the process with this id."""
    if os.getpid() != process:
        raise WorkerError(
            f"this iterator was begun in process {process}, and this process ({os.getpid()}) is a fork without its "
            "threads. Begin a new one here with iter()."
        )
