"""Memory of batches, used for one batch after the other; also by several processes, and page-locked for a GPU."""

from __future__ import annotations

import ctypes
import math
import mmap
import multiprocessing
import os
import weakref
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["SharedMemory", "Slot", "images_in", "page_lock"]

_PORTABLE = 1  # cudaHostRegisterPortable: page-locked for every device


class SharedMemory:
    """Memory of this process and of those that it is handed to when they are started (`Process(args=...)`).

    It has no name, so nothing is left of it, whoever is killed.

    Attributes
    ----------
    pixels : (size,) uint8 array
    """

    def __init__(self, size: int) -> None:
        buffer: Any
        self._fd: int | None = None
        if hasattr(os, "memfd_create"):  # as much as there is memory, where /dev/shm has 64 MB in many containers
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


class Slot:
    """Memory for one batch after the other: free again when nobody holds a tensor that lies in it.

    Parameters
    ----------
    pixels : (size,) uint8 array
        The memory.
    """

    def __init__(self, pixels: npt.NDArray[np.uint8]) -> None:
        self._pixels = pixels
        self._holder: Callable[[], object | None] = lambda: None

    @property
    def free(self) -> bool:
        return self._holder() is None

    @property
    def size(self) -> int:
        return self._pixels.size

    def images(self, shape: tuple[int, int, int]) -> torch.Tensor:
        """Return the slot as a batch; `shape` as in `images_in`. It is taken until the last view of it is gone."""
        # All views of a tensor hold its storage, and the storage this array: it ends at a buffer that is no array.
        holder = np.frombuffer(self._pixels.data, np.uint8, math.prod(shape) * 3)
        self._holder = weakref.ref(holder)
        return images_in(holder, shape)


def images_in(pixels: npt.NDArray[np.uint8], shape: tuple[int, int, int]) -> torch.Tensor:
    """Return memory as an (N, 3, H, W) uint8 tensor, laid out channels last; `shape` is N, H and W."""
    with torch.inference_mode(False):  # the threads, which write into it, are not in that mode
        return torch.from_numpy(pixels.reshape(*shape, 3)).permute(0, 3, 1, 2)


def page_lock(pixels: npt.NDArray[np.uint8]) -> None:
    """Keep an array's memory from being moved, so that a GPU can copy it by itself, until the array is no longer held.

    Memory that PyTorch did not page-lock itself is not watched by it: who copies from it holds it until the copy is
    done.
    """
    cudart: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = pixels.ctypes.data
    torch.cuda.check_error(cudart.cudaHostRegister(address, pixels.nbytes, _PORTABLE))
    weakref.finalize(pixels, _unlock, cudart, address, pixels.base)


def _unlock(cudart: Any, address: int, memory: Any) -> None:
    """Undo `page_lock`, while `memory` is still there."""
    cudart.cudaHostUnregister(address)
