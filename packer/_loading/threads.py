"""Workers that make a loader's batches: threads of this process.

`packer._loading.processes` has the threads of several processes.
"""

from __future__ import annotations

import abc
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from packer._images.geometry import Crops
from packer._loading.memory import Slot
from packer._loading.preparation import Transform
from packer._loading.readable import Readable
from packer._table import Ints

__all__ = ["BATCHES_THE_LOOP_MAY_KEEP", "Threads", "Workers", "split"]

BATCHES_THE_LOOP_MAY_KEEP = 3  # batches that the training loop may keep before new memory is allocated
_MOST_IN_A_TASK = 32  # images; larger tasks cost no less an image
_TASKS_A_THREAD = 3  # tasks that a thread's share of the images in work is cut into: none waits for the slowest image


class Workers(abc.ABC):
    """Makes batches, up to `in_work` images of them at a time.

    The order of calls: `begin`; for each batch `allocate` and `fill`, or `make`, and then `hand_out`; `end`, when no
    task is running any more. Then `begin` may come again.
    """

    size: int = 0
    """Bytes of the largest batch that there are slots for."""

    @property
    def usable(self) -> bool:
        """Whether `begin` may come again."""
        return True

    @abc.abstractmethod
    def begin(self, dataset: Readable, transform: Transform) -> None:
        """Begin an epoch over `dataset`; `transform` takes the place of the dataset's."""

    @abc.abstractmethod
    def allocate(self, count: int, height: int, width: int) -> torch.Tensor:
        """Return memory for a batch: an (N, 3, H, W) uint8 tensor, channels last, of any content."""

    @abc.abstractmethod
    def fill(self, images: torch.Tensor, indices: Ints, crops: Crops) -> list[Future[Any]]:
        """Decode samples into a batch that `allocate` gave, as their crops say, an (N,) array of CROP.

        The batch is filled when all futures are done.
        """

    @abc.abstractmethod
    def make(self, indices: Ints, epoch: int, seed: int) -> list[Future[list[Any]]]:
        """Make the items of some samples; each future gives a list of items, in the order of `indices`."""

    def hand_out(self, images: torch.Tensor) -> torch.Tensor:
        """Return a filled batch, or a copy, which the loop may keep as long as it likes."""
        return images

    def end(self) -> None:
        """End the epoch."""

    def close(self) -> None:
        """End for good: `begin` cannot come again."""


class Threads(Workers):
    """Makes batches on threads of this process, which live for an epoch.

    Parameters
    ----------
    threads : int
        Number of threads.
    in_work : int
        Images that are in work at a time, of which tasks are cut.
    slots : sequence of Slot
        Memory for batches; new memory is allocated where no slot is free.
    pinned : bool
        Whether batches are page-locked.
    """

    def __init__(self, threads: int, in_work: int, slots: list[Slot], pinned: bool = False) -> None:
        self._threads = threads
        self._slots = slots
        self._pinned = pinned
        self._step = min(max(in_work // (threads * _TASKS_A_THREAD), 1), _MOST_IN_A_TASK)

    @classmethod
    def with_memory(cls, threads: int, in_work: int, size: int, count: int, pinned: bool) -> Threads:
        """Return threads with memory for `count` batches of `size` bytes in work, and for those that the loop keeps."""
        slots = [] if pinned else [Slot(np.empty(size, np.uint8)) for _ in range(count + BATCHES_THE_LOOP_MAY_KEEP)]
        workers = cls(threads, in_work, slots, pinned)
        workers.size = size
        return workers

    def begin(self, dataset: Readable, transform: Transform) -> None:
        self._dataset, self._transform = dataset, transform
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="packer-loader")

    def end(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def allocate(self, count: int, height: int, width: int) -> torch.Tensor:
        if self._pinned:  # torch keeps pinned memory for reuse by itself
            with torch.inference_mode(False):
                empty = torch.empty((count, height, width, 3), dtype=torch.uint8, pin_memory=True)
                return empty.permute(0, 3, 1, 2)
        size = count * height * width * 3
        slot = next((slot for slot in self._slots if slot.free and slot.size >= size), None)
        return (slot or Slot(np.empty(size, np.uint8))).images((count, height, width))

    def fill(self, images: torch.Tensor, indices: Ints, crops: Crops) -> list[Future[Any]]:
        return [
            self._pool.submit(self._dataset._decode_into, indices[some], crops[some], images[some])
            for some in split(len(indices), self._step)
        ]

    def make(self, indices: Ints, epoch: int, seed: int) -> list[Future[list[Any]]]:
        return [
            self._pool.submit(self._dataset._items, indices[some], epoch, seed, self._transform)
            for some in split(len(indices), self._step)
        ]


def split(count: int, step: int) -> list[slice]:
    """Return slices of `step` things each, of which the last may have fewer, that cover ``range(count)``."""
    return [slice(start, start + step) for start in range(0, count, step)]
