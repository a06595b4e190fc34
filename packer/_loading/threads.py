"""Workers that make a loader's batches: threads of this process.

`packer._loading.processes` has the threads of several processes.
"""

from __future__ import annotations

import abc
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from packer._images.geometry import Crops
from packer._loading.crew import Caller, Crew, Job, Make, Piece
from packer._loading.drawing import generators
from packer._loading.ending import BatchTransform, Ending, numbering, transformed
from packer._loading.memory import IMAGES, Layout, Slot, fresh, images_in
from packer._loading.preparation import Transform
from packer._loading.readable import Readable
from packer._table import Ints
from packer.errors import warn

__all__ = ["BATCHES_THE_LOOP_MAY_KEEP", "Begin", "Memory", "Task", "Threads", "Workers", "split"]

Memory = dict[str, torch.Tensor]
"""The pixels of a batch by the names of its parts: see `Layout`."""

Begin = Callable[[Any], Make]
"""What takes the images of a batch, as `images_in` gives them, and returns what decodes slices of it."""

BATCHES_THE_LOOP_MAY_KEEP = 3  # batches that the training loop may keep before new memory is allocated


class Task(Protocol):
    """Work at a batch, as those who wait for it see it: a `Job`, or a `concurrent.futures.Future`."""

    def result(self) -> list[Any]:
        """Wait, and return what was made, or raise what went wrong."""

    def exception(self) -> BaseException | None:
        """Wait, and return what went wrong, if anything did."""

    def cancel(self) -> bool:
        """Leave out what nobody has begun with; tell whether that is all, so that nothing is to be waited for."""


_MOST_IN_A_TASK = 64  # images; the few steps of Python of a task find the caches full of pixels
_TASKS_A_THREAD = 3  # tasks that a thread's share of the images in work is cut into: none waits for the slowest image


class Workers(abc.ABC):
    """Makes batches, up to `in_work` images of them at a time.

    The order of calls: `begin`; for each batch `allocate` and `fill`, or `make`, and then `hand_out`; `end`, when no
    task is running any more. Then `begin` may come again. `resize` may come between two batches.
    """

    size: int = 0
    """Bytes of the largest batch that there are slots for."""

    step: int = 0
    """How many images a thread of this process decodes at a time; 0 where others do."""

    drew: bool = False
    """Whether transforms drew random numbers on several threads of a process; known when the first items are made."""

    _warned = False

    @property
    def usable(self) -> bool:
        """Whether `begin` may come again."""
        return True

    @abc.abstractmethod
    def begin(self, dataset: Readable, transform: Transform, batch_transform: BatchTransform = None) -> None:
        """Begin an epoch over `dataset`; `transform` takes the place of the dataset's; the other is of batches."""

    def ahead(self, dataset: Readable, chunks: Iterator[Ints], block: int) -> Iterator[Ints]:
        """Yield chunks of indices; what they need is fetched while chunks before are read, if that helps the workers.

        When one of `block` neighbours is wanted, which begin at a multiple of `block`, all are wanted soon.
        """
        return chunks

    @abc.abstractmethod
    def resize(self, threads: int) -> None:
        """Let so many threads do what comes from now on; those that there were do what they were given before."""

    @abc.abstractmethod
    def allocate(self, count: int, layout: Layout) -> Memory:
        """Return memory for a batch of `count` samples, of any content."""

    @abc.abstractmethod
    def fill(
        self, memory: Memory, layout: Layout, indices: Ints, crops: Crops, ending: Ending | None = None
    ) -> Sequence[Task]:
        """Decode samples into a batch that `allocate` gave, as their crops say, an (N,) array of CROP, and end it.

        The batch is done when all tasks are. Their results have what is not in it, see `_begun` of a dataset.
        """

    def go_on(self, memory: Memory, layout: Layout, begin: Begin, ending: Ending | None = None) -> Sequence[Task]:
        """Do what `fill` does, where it was begun for slices of `step` images of several batches, as `step` allows."""
        raise NotImplementedError

    @abc.abstractmethod
    def make(self, indices: Ints, epoch: int, seed: int) -> Sequence[Task]:
        """Make the items of some samples; each task gives a list of items, in the order of `indices`."""

    def hand_out(self, memory: Memory) -> Memory:
        """Return a filled batch, or a copy, which the loop may keep as long as it likes."""
        return memory

    def warn_of_draws(self) -> None:
        """Warn once where transforms draw random numbers in an order that nobody decides."""
        if self.drew and not self._warned:
            self._warned = True
            warn(
                "the transform draws random numbers on several threads, in an order that no run repeats: neither "
                "torch.manual_seed nor a state gives the same images again. With one thread a process, such as "
                "Loader(..., threads=8, processes=8), they are a function of the Loader's seed, the epoch and the "
                "sample; torch's DataLoader repeats whole runs"
            )

    def end(self) -> None:
        """End the epoch."""

    def close(self) -> None:
        """End for good: `begin` cannot come again."""


class Threads(Workers):
    """Makes batches on threads of this process, which live for an epoch.

    Parameters
    ----------
    threads : int
        Number of threads; 0 where the calling thread makes each batch when it is asked for.
    in_work : int
        Images that are in work at a time, of which tasks are cut.
    slots : list of Slot
        Memory for batches. Where no free slot is large enough, new memory takes the place of one that is free.
    pinned : bool
        Whether batches are page-locked.
    alone : bool
        Whether nobody else in this process draws random numbers. Those that one thread draws for the transforms of a
        sample are then a function of seed, epoch and sample.
    resizable : bool
        Whether `resize` may come. What transforms draw is then nobody's function, however many threads there are.
    """

    def __init__(
        self,
        threads: int,
        in_work: int,
        slots: list[Slot],
        pinned: bool = False,
        *,
        alone: bool = False,
        resizable: bool = False,
    ) -> None:
        self._alone = alone
        self._resizable = resizable
        self._slots = slots
        self._pinned = pinned
        self._in_work = in_work
        self._divide_among(threads)
        self._resizing = threading.RLock()  # the calling thread may put pieces while it does some
        # The last one is in use. The others do what they were given, and end.
        self._crews: list[Crew | Caller] = []

    @classmethod
    def with_memory(  # noqa: PLR0917
        cls, threads: int, in_work: int, size: int, count: int, pinned: bool, resizable: bool = False
    ) -> Threads:
        """Return threads with memory for `count` batches of `size` bytes in work, and for those that the loop keeps."""
        slots = [] if pinned else [Slot(fresh(size)) for _ in range(count + BATCHES_THE_LOOP_MAY_KEEP)]
        workers = cls(threads, in_work, slots, pinned, resizable=resizable)
        workers.size = size
        return workers

    def _divide_among(self, threads: int) -> None:
        self._threads = threads
        self.step = min(max(self._in_work // max(threads * _TASKS_A_THREAD, 1), 1), _MOST_IN_A_TASK)

    def begin(self, dataset: Readable, transform: Transform, batch_transform: BatchTransform = None) -> None:
        self._dataset, self._transform, self._batch_transform = dataset, transform, batch_transform
        transforms = dataset._transforms_items(transform)
        self._seeding = transforms and self._alone and self._threads == 1 and not self._resizable
        self._watching = transforms and (self._threads > 1 or self._resizable) and not self.drew
        self.end()  # the threads of an epoch before, which are at rest
        self._crews = [Crew(self._threads) if self._threads else Caller()]

    def ahead(self, dataset: Readable, chunks: Iterator[Ints], block: int) -> Iterator[Ints]:
        if not dataset._remote:
            yield from chunks
            return
        length, waiting = len(dataset), deque[Ints]()
        together, most = dataset._together(block)
        asked, first = np.zeros(-(-length // together), bool), True
        for indices in chunks:
            groups, places = np.unique(indices % length // together, return_index=True)
            groups = groups[np.argsort(places)]  # what is wanted first is fetched first
            groups = groups[~asked[groups]]
            asked[groups] = True
            wanted = (groups[:, None] * together + np.arange(together)).ravel()
            dataset._ahead(wanted[wanted < length])
            waiting.append(indices)
            if first or sum(map(len, waiting)) > most:  # the first chunk is begun while more is asked for
                yield waiting.popleft()
                first = False
        yield from waiting

    def resize(self, threads: int) -> None:
        with self._resizing:
            for crew in self._crews[-1:]:
                crew.end()
            self._divide_among(threads)
            self._crews.append(Crew(self._threads))

    def _put(self, pieces: Sequence[Piece]) -> None:
        with self._resizing:  # threads call this, too: those that have decoded the last images of a batch
            self._crews[-1].put(pieces)

    def end(self) -> None:
        for crew in self._crews[-1:]:
            crew.end()
        for crew in self._crews:
            crew.join()
        self._crews.clear()

    def allocate(self, count: int, layout: Layout) -> Memory:
        if self._pinned:
            return layout.page_locked(count)
        size = layout.bytes_for(count)
        slot = next((slot for slot in self._slots if slot.free and slot.size >= size), None) or self._new_slot(size)
        return slot.tensors(layout, count)

    def _new_slot(self, size: int) -> Slot:
        """Return new memory, in the place of a slot that is too small, if there is one."""
        slot = Slot(fresh(size))
        for place in [place for place, other in enumerate(self._slots) if other.free][:1]:
            self._slots[place] = slot
        return slot

    def fill(
        self, memory: Memory, layout: Layout, indices: Ints, crops: Crops, ending: Ending | None = None
    ) -> Sequence[Task]:
        step, decoded = self.step, layout.decoded(memory)  # another thread may change the step meanwhile
        make = self._dataset._begun(indices, crops, decoded, step, layout.decoded_numbers)
        return self._job(memory, layout, make, split(len(indices), step), ending)

    def go_on(self, memory: Memory, layout: Layout, begin: Begin, ending: Ending | None = None) -> Sequence[Task]:
        count = memory[layout.parts[0].name].shape[0]  # Python does the len() of a tensor
        return self._job(memory, layout, begin(images_in(layout.decoded(memory))), split(count, self.step), ending)

    def _job(
        self, memory: Memory, layout: Layout, make: Make, slices: Sequence[slice], ending: Ending | None
    ) -> Sequence[Task]:
        then = None if ending is None else self._last(memory, layout, ending)
        return [Job(self._put, make, slices, then)]

    def _last(self, memory: Memory, layout: Layout, ending: Ending) -> tuple[Make, Sequence[slice]]:
        """Return what is left to do with a batch whose images are decoded, and how it is divided."""
        # With a transform one thread does all of it, while the others go on with the next batches.
        count = len(memory[IMAGES])
        slices = split(count, self.step if ending.seed is None else count)
        return self._finish(memory, layout, ending), slices

    def finish_some(self, memory: Memory, layout: Layout, ending: Ending, some: slice) -> Sequence[Task]:
        """Do what is left to do with some of the images of a batch; with a transform, of all."""
        return [Job(self._put, self._finish(memory, layout, ending), [some])]

    def _finish(self, memory: Memory, layout: Layout, ending: Ending) -> Make:
        number = numbering(layout, memory, ending.mixture)

        def finish(some: slice) -> list[Any]:
            transformed(self._batch_transform, memory[IMAGES], ending.seed)
            number(some)
            return []

        return finish

    def make(self, indices: Ints, epoch: int, seed: int) -> Sequence[Task]:
        watched, self._watching = self._watching, False  # the first images tell

        def make(some: slice) -> list[Any]:
            do = self._watched if watched and some.start == 0 else self._items
            return do(indices[some], epoch, seed)

        return [Job(self._put, make, split(len(indices), self.step))]

    def _items(self, indices: Ints, epoch: int, seed: int) -> list[Any]:
        return self._dataset._items(indices, epoch, seed, self._transform, self._seeding)

    def _watched(self, indices: Ints, epoch: int, seed: int) -> list[Any]:
        before = generators()
        items = self._items(indices, epoch, seed)
        self.drew = self.drew or generators() != before
        return items


def split(count: int, step: int) -> list[slice]:
    """Return slices of `step` things each, of which the last may have fewer, that cover ``range(count)``."""
    return [slice(start, start + step) for start in range(0, count, step)]
