"""Memory for batches, used for one batch after the other; it can be shared by processes, and page-locked for a GPU.

A fork has all objects of its process but none of its threads, so a fork that waits for a thread waits forever.
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

from packer._images.numbers import Numbers
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
    """One kind of pixels in a batch: the images, the images of one view, or the masks of one field."""

    name: str
    size: tuple[int, int]
    channels: int
    dtype: str = "uint8"
    planes: bool = False
    """Whether the pixels are contiguous, or laid out channels last."""


def view_part(number: int, size: tuple[int, int]) -> BatchPart:
    """Return the part that contains one view of each image."""
    return BatchPart(f"{_VIEWS}{number}", size, 3)


Pixels = TypeVar("Pixels")


def images_in(memory: Mapping[str, Pixels]) -> Pixels | list[Pixels] | None:
    """Return the images of a batch; with views, a list with the images of each view; None if it has no images."""
    views = [pixels for name, pixels in memory.items() if _is_view(name)]
    return views or memory.get(IMAGES)


def _is_view(name: str) -> bool:
    return name.startswith(_VIEWS) and not name.endswith(_AS_NUMBERS)


class Layout(NamedTuple):
    """The parts of a batch's memory, one after the other, and the conversion of its images to numbers."""

    parts: tuple[BatchPart, ...]
    numbers: Numbers | None = None
    """The numbers in place of levels, if any: written when images are decoded, or from parts that hold the levels."""

    @property
    def with_images(self) -> bool:
        return bool(self.images)

    @property
    def images(self) -> list[BatchPart]:
        """The parts that contain images: one part, or one part for each view."""
        return [part for part in self.parts if part.name == IMAGES or _is_view(part.name)]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images, if there are no views."""
        return next(part.size for part in self.parts if part.name == IMAGES)

    @property
    def views(self) -> int:
        """The number of views of each image; 0 if there are no views."""
        return sum(_is_view(part.name) for part in self.parts)

    def with_numbers(self, numbers: Numbers, *, beside: bool) -> Layout:
        """Return a layout of the same pixels in which images are converted to numbers.

        With `beside` the numbers have separate memory and the uint8 levels are kept, so that a step can run before the
        conversion.
        """
        become = [part._replace(dtype=numbers.dtype, planes=numbers.planes) for part in self.images]
        if beside:
            made = [part._replace(name=part.name + _AS_NUMBERS) for part in become]
            return Layout((*self.parts, *made), numbers)
        named = {part.name: part for part in become}
        return Layout(tuple(named.get(part.name, part) for part in self.parts), numbers)

    @property
    def decoded_numbers(self) -> Numbers | None:
        """The numbers to which images are converted while they are decoded; None if they remain uint8 levels."""
        beside = any(part.name.endswith(_AS_NUMBERS) for part in self.parts)
        return None if beside else self.numbers

    def levels_and_numbers(self, memory: Tensors) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the uint8 images of a batch and their numbers, for each view."""
        return [(memory[part.name], memory[part.name + _AS_NUMBERS]) for part in self.images]

    def decoded(self, memory: Tensors) -> Tensors:
        """Return the parts of a batch into which images are decoded."""
        return {name: tensor for name, tensor in memory.items() if not name.endswith(_AS_NUMBERS)}

    def handed_out(self, memory: Tensors) -> Tensors:
        """Return the parts of a complete batch that are returned to the user, with numbers in place of images."""
        return {name: memory.get(name + _AS_NUMBERS, tensor) for name, tensor in self.decoded(memory).items()}

    def bytes_for(self, count: int) -> int:
        """Return the number of bytes that `count` samples need."""
        return _laid_out(self.parts, count)[1]

    def tensors(self, memory: npt.NDArray[np.uint8], count: int) -> Tensors:
        """Return the parts as (count, channels, height, width) tensors on this memory, in the layout of each part."""
        return self.as_tensors(self.arrays(memory, count))

    def arrays(self, memory: npt.NDArray[np.uint8], count: int) -> dict[str, npt.NDArray[Any]]:
        """Return the parts as arrays; bfloat16, which NumPy does not support, is returned as int16."""
        spans = _laid_out(self.parts, count)[0].items()
        return {name: np.ndarray(shape, dtype, memory, start, steps) for name, (dtype, shape, steps, start) in spans}

    def as_tensors(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Tensors:
        """Convert the result of the method `arrays` to tensors on the same memory."""
        if torch.is_inference_mode_enabled():  # the threads that write into the tensors are not in that mode
            with torch.inference_mode(False):
                return self.as_tensors(arrays)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        for part in self.parts:
            if part.dtype == "bfloat16":
                tensors[part.name] = tensors[part.name].view(torch.bfloat16)
        return tensors

    def page_locked(self, count: int) -> Tensors:
        """Return new tensors for the parts in page-locked memory, which torch itself keeps for reuse."""
        with torch.inference_mode(False):
            tensors = {}
            for part in self.parts:
                spans, size = _laid_out((part,), count)
                dtype, shape, steps, _ = spans[part.name]
                locked = torch.empty(size, dtype=torch.uint8, pin_memory=True).view(getattr(torch, part.dtype))
                tensors[part.name] = locked.as_strided(shape, [step // dtype.itemsize for step in steps])
            return tensors


def layout_of(found: Layout | tuple[int, int] | None) -> Layout | None:
    """Return the layout from a dataset's `layout`, which is a Layout or the height and width of its images."""
    if found is None or isinstance(found, Layout):
        return found
    height, width = map(operator.index, found)
    if min(height, width) < 1:
        raise ValueError(f"layout() is the height and width of images, 1 or more, not {found!r}")
    return Layout((BatchPart(IMAGES, (height, width), 3),))


class _Span(NamedTuple):
    """The location of a part's pixels in memory: the shape of an array, and its strides and offset in bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    start: int


@functools.lru_cache(maxsize=64)
def _laid_out(parts: tuple[BatchPart, ...], count: int) -> tuple[dict[str, _Span], int]:
    """Return the location of each part for `count` samples, and the number of bytes of all parts."""
    spans, start = {}, 0
    for part in parts:
        (height, width), channels = part.size, part.channels
        dtype = np.dtype("int16" if part.dtype == "bfloat16" else part.dtype)
        steps = (height * width, width, 1) if part.planes else (1, width * channels, channels)
        each = height * width * channels
        shape = count, channels, height, width
        spans[part.name] = _Span(dtype, shape, tuple(dtype.itemsize * step for step in (each, *steps)), start)
        start += -(-count * each * dtype.itemsize // _ALIGNED) * _ALIGNED
    return spans, start


class SharedMemory:
    """Memory that this process shares with processes that receive it when they start (`Process(args=...)`).

    The memory has no name, so the system frees it when the last process ends, even if that process is killed.

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
    """Return uninitialized memory, aligned to a cache line, so that stores of whole lines can bypass the caches."""
    memory = np.empty(size + _ALIGNED, np.uint8)
    start = -memory.ctypes.data % _ALIGNED
    return memory[start : start + size]


class Slot:
    """Memory for one batch after the other; it is free again when no tensor on it exists any more.

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
        """Return tensors for `count` samples on this memory, and reserve the slot until the last of them is deleted."""
        # All views of a tensor hold its storage, and the storage holds the array.
        arrays = layout.arrays(self._pixels, count)
        self._holders = [*map(weakref.ref, arrays.values())]
        return layout.as_tensors(arrays)


def pinned(memory: Tensors) -> Tensors:
    """Return tensors in page-locked memory; copy those that are not."""
    return {name: tensor if tensor.is_pinned() else tensor.pin_memory() for name, tensor in memory.items()}


def page_lock(pixels: npt.NDArray[np.uint8]) -> None:
    """Page-lock an array's memory until the array is deleted, so that a GPU can copy directly from it.

    PyTorch does not track memory that it has not page-locked itself, so the caller must hold the array until a copy is
    done.
    """
    cudart: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = pixels.ctypes.data
    torch.cuda.check_error(cudart.cudaHostRegister(address, pixels.nbytes, _PORTABLE))
    weakref.finalize(pixels, _unlock, os.getpid(), cudart, address, pixels.base)


def _unlock(process: int, cudart: Any, address: int, memory: Any) -> None:
    """Undo `page_lock` while `memory` still exists; do nothing in a fork, where CUDA cannot be used."""
    if os.getpid() == process:
        cudart.cudaHostUnregister(address)


def leak(*values: object) -> None:
    """Never free these objects, not even when Python ends; use this for a device's objects in a fork.

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
