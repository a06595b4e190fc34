"""Memory for batches, used for one batch after the other; it can be shared by processes, and page-locked for a GPU.

A fork has all objects of its process but none of its threads, so a fork that waits for a thread waits forever.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import weakref
from multiprocessing import reduction
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from packer._datasets.protocol import ALIGNMENT, Layout, Tensors
from packer.errors import WorkerError

_PORTABLE = 1  # cudaHostRegisterPortable: page-locked for every device


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
        if hasattr(os, "memfd_create"):  # unlike /dev/shm, it is not limited to 64 MB in many containers
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
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
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
        for holder in self._holders:  # noqa: SIM110  # this takes half the time of all(), for each slot and batch
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

    The caller must hold the array until a copy is done, because PyTorch tracks only memory that it page-locked itself.
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
