"""Workers that make a loader's batches: threads of this process.

`packer._loader.processes` has the threads of several processes.

Threads that do a Loader's work, a piece at a time.

Between two pieces a thread runs few lines of Python. It finds the caches full of pixels then, and each line takes
several times as long as by itself. So a batch is one job, whose pieces threads take, and nobody hears of a piece alone.

What is done to the images of a whole batch when they are decoded, by the threads of a Loader.

A transform of other people's gets the batch; then the images become numbers, and are mixed, in C.
"""

from __future__ import annotations

import abc
import atexit
import contextlib
import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from packer._datasets.generators import drawing_from, generators
from packer._datasets.memory import IMAGES, Layout, Slot, fresh
from packer._datasets.pipeline import Transform
from packer._datasets.protocol import LoaderDataset
from packer._images.geometry import Crops
from packer._images.numbers import Mixture, Numbers, writer
from packer._images.operations import Operations
from packer._table import Ints
from packer.errors import warn

__all__ = [
    "BATCHES_THE_LOOP_MAY_KEEP",
    "BatchTransform",
    "Begin",
    "Caller",
    "Crew",
    "Ending",
    "Job",
    "Make",
    "Memory",
    "Piece",
    "Task",
    "Threads",
    "Workers",
    "after",
    "numbering",
    "split",
    "transformed",
]

Piece = tuple["Job", int]
"""A job, and the place of one of its slices."""

Make = Callable[[slice], Sequence[Any] | None]
"""What makes the results of a slice, if there are any."""


class Job:
    """Work at a batch that is cut into slices. It has the methods of a `concurrent.futures.Future` that a Loader needs.

    Parameters
    ----------
    put : callable
        Takes the job's pieces, in their order, and has threads call `do` and `done` for each.
    make : callable
        See `Make`.
    slices : sequence of slice
    then : (callable, sequence of slice), optional
        Another `make` and its slices, which come when all slices before are done, and whose results follow. They do not
        come where a slice failed, or the job was cancelled.
    """

    def __init__(
        self,
        put: Callable[[Sequence[Piece]], None],
        make: Make,
        slices: Sequence[slice],
        then: tuple[Make, Sequence[slice]] | None = None,
    ) -> None:
        self._put, self._then = put, then
        self._lock, self._ended = threading.Lock(), threading.Lock()
        self._cancelled, self._results, self._failed = False, list[Any](), dict[int, BaseException]()
        self._ended.acquire()  # until all is done
        self._give(make, slices)
        pieces = [(self, place) for place in range(len(slices))]
        if not pieces and (piece := self._end()) is not None:
            pieces = [piece]
        put(pieces)

    def _give(self, make: Make, slices: Sequence[slice]) -> None:
        self._make: Make | None = make
        self._slices, self._left, self._made = slices, len(slices), dict[int, Sequence[Any]]()

    def do(self, place: int) -> None:
        """Do one slice; `done` has to come after that."""
        make = self._make
        if make is None or self._cancelled:
            return
        try:
            made = make(self._slices[place])
            if made:
                self._made[place] = made
        except BaseException as error:  # for who waits, whatever it is
            self._failed[place] = error
            del self, make  # the error holds this frame, and the job the error

    def done(self) -> Piece | None:
        """Note that a slice is done; return the piece that the same thread goes on with, if there is one."""
        with self._lock:
            self._left -= 1
            if self._left:
                return None
        return self._end()

    def _end(self) -> Piece | None:
        """Go on with what follows, or let those who wait know."""
        then, self._then, self._make = self._then, None, None  # they hold the memory of a batch
        if self._made:
            self._results += [result for place in sorted(self._made) for result in self._made[place]]
        if then is not None and not self._failed and not self._cancelled:
            self._give(*then)
            if self._slices:
                self._put([(self, place) for place in range(1, len(self._slices))])
                return self, 0  # the thread has some of the batch in its caches
        self._make = None
        self._ended.release()
        return None

    def cancel(self) -> bool:
        """Leave out the slices that no thread has begun with; return False, as others may be in work."""
        self._cancelled = True
        return False

    def exception(self) -> BaseException | None:
        """Wait until no thread is at work any more; return the error of the first slice that failed, or None."""
        with self._ended:
            return self._failed[min(self._failed)] if self._failed else None

    def result(self) -> list[Any]:
        """Wait for all slices; return their results, or raise the error of the first that failed, or CancelledError."""
        with self._ended:
            if not self._failed and not self._cancelled:
                return self._results
        try:
            raise self._failed[min(self._failed)] if self._failed else CancelledError
        finally:
            del self  # or the error would hold this frame, and the frame the job


class Crew:
    """Threads that do pieces of jobs, in the order in which they come.

    Parameters
    ----------
    most : int
        How many threads there are, when there was enough to do for all.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._stopped = False
        _AT_WORK.add(self)

    def put(self, pieces: Sequence[Piece]) -> None:
        """Have pieces done. One thread at a time calls this."""
        for piece in pieces:
            if self._stopped:
                _leave_out(piece)
                continue
            self._pieces.put(piece)
            if len(self._threads) < self._most:
                self._start()

    def _start(self) -> None:
        # Daemons, as Python would wait for others before it calls `_end_all`.
        name = f"packer-loader_{len(self._threads)}"
        thread = threading.Thread(target=_work, args=(self._pieces,), name=name, daemon=True)
        self._threads.append(thread)  # first: Ctrl-C may come when the thread is at work already
        try:
            thread.start()
        except RuntimeError:  # the system gives no more of them
            self._threads.remove(thread)
            if not self._threads:
                raise
            self._most = len(self._threads)

    def end(self) -> None:
        """Let the threads end when they have done what they were given."""
        self._pieces.put(None)

    def join(self) -> None:
        """Wait until the threads have ended."""
        for thread in self._threads:
            with contextlib.suppress(RuntimeError):  # of a thread that Ctrl-C kept from beginning
                thread.join()
        _AT_WORK.discard(self)

    def stop(self) -> None:
        """Leave out what no thread has begun with, now and later, and wait until the threads have ended."""
        self._stopped = True
        with contextlib.suppress(queue.Empty):
            while True:
                piece = self._pieces.get_nowait()
                if piece is not None:
                    _leave_out(piece)
        self.end()
        self.join()


class Caller:
    """Does pieces of jobs at once, in the thread that puts them; with the methods of a `Crew`."""

    def put(self, pieces: Sequence[Piece]) -> None:
        """Do pieces, and what follows them."""
        for piece in pieces:
            _do(piece)

    def end(self) -> None:
        """Do nothing: there is no thread to end."""

    def join(self) -> None:
        """Do nothing: all that was put is done."""


def _leave_out(piece: Piece) -> None:
    """Let a job end without a piece: who waits for the job would wait for ever."""
    job, _ = piece
    job.cancel()
    job.done()


def _work(pieces: queue.SimpleQueue[Piece | None]) -> None:
    """Do pieces until there is None."""
    while (piece := pieces.get()) is not None:
        _do(piece)
        del piece  # its job holds the memory of a batch
    pieces.put(None)  # for the next thread, however many there are


def _do(piece: Piece | None) -> None:
    """Do a piece, and those that the same thread goes on with."""
    while piece is not None:
        job, place = piece
        job.do(place)
        piece = job.done()
        del job  # it holds the memory of a batch


_AT_WORK: weakref.WeakSet[Crew] = weakref.WeakSet()


def _end_all() -> None:
    """End all threads before Python does: they may be writing into memory that is freed then."""
    for crew in list(_AT_WORK):
        crew.stop()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_AT_WORK.clear)  # a fork has none of the threads


BatchTransform = Callable[[Any], Any] | None


class Ending(NamedTuple):
    """What is left to do with a batch when its images are decoded: by threads, or by who has the batch then.

    Attributes
    ----------
    mixture : Mixture, optional
        What the images are mixed by, when they are numbers; labels are mixed by the same.
    seed : int, optional
        The seed of the random numbers that a transform of the batch draws; None without such a transform.
    operations : Operations, optional
        What is left to do to each image, where threads do not do it.
    """

    mixture: Mixture | None = None
    seed: int | None = None
    operations: Operations | None = None

    def of_threads(self, layout: Layout) -> Ending | None:
        """Return what threads do, which need the whole batch for it; None where they take each image by itself."""
        mixture = self.mixture if layout.numbers is not None else None
        return None if mixture is None and self.seed is None else Ending(mixture, self.seed)


def numbering(
    layout: Layout, memory: Mapping[str, torch.Tensor], mixture: Mixture | None = None
) -> Callable[[slice], None]:
    """Return what lets some images of a batch, which are still levels, become numbers, on any thread."""
    if not isinstance(layout.numbers, Numbers):  # a table is used when an image is decoded
        return _nothing
    writers = [
        writer(layout.numbers, levels, numbers, mixture) for levels, numbers in layout.levels_and_numbers(memory)
    ]

    def write(some: slice) -> None:
        for write_some in writers:
            write_some(some)

    return write


def _nothing(some: slice) -> None:
    """Leave images as they are."""


def transformed(transform: BatchTransform, images: torch.Tensor, seed: int | None) -> None:
    """Let a transform change a batch of images in place.

    Raises
    ------
    ValueError
        If it gives something else than as many uint8 images of the same size.
    """
    if transform is None or seed is None:
        return
    with drawing_from(seed):
        made = transform(images)
    if not isinstance(made, torch.Tensor) or made.dtype != torch.uint8 or made.shape != images.shape:
        what = f"{tuple(made.shape)} {made.dtype}" if isinstance(made, torch.Tensor) else f"{made!r:.80}"
        raise ValueError(
            f"batch_transform gets {tuple(images.shape)} uint8 images and gives as many of that size, uint8, not {what}"
            ": crop= decides on the size, and normalize= and dtype= convert what the transform gives"
        )
    if made.data_ptr() != images.data_ptr() or made.stride() != images.stride():
        same_memory = made.untyped_storage().data_ptr() == images.untyped_storage().data_ptr()
        images.copy_(made.clone() if same_memory else made)  # such as images that are transposed without a copy


def after(tasks: Sequence[Future[Any]], begin: Callable[[], Sequence[Future[Any]]]) -> Future[list[Any]]:
    """Return a future that is done when what `begin` begins is done, which comes when all tasks are done.

    It has no results of its own. Where a task fails or is cancelled, nothing is begun.
    """
    whole: Future[list[Any]] = Future()
    left = [begin]  # `begin` holds the memory of a batch, and is let go of: futures hold what they call

    def start(failed: BaseException | None, cancelled: bool) -> None:
        begin = left.pop()
        if not whole.set_running_or_notify_cancel():
            return
        try:
            begun = [] if failed is not None or cancelled else begin()
        except BaseException as error:
            failed, begun = error, []
        _when_all(begun, lambda error, _: _settle(whole, failed or error))

    _when_all(tasks, start)
    return whole


def _settle(whole: Future[list[Any]], error: BaseException | None) -> None:
    if error is None:
        whole.set_result([])
    else:
        whole.set_exception(error)


def _when_all(tasks: Sequence[Future[Any]], call: Callable[[BaseException | None, bool], None]) -> None:
    """Call, when all tasks are done, with the first error of one, if any, and whether one was cancelled."""
    if not tasks:
        call(None, False)
        return
    lock, left, cancelled, failed = threading.Lock(), len(tasks), False, None

    def done(task: Future[Any]) -> None:
        nonlocal left, cancelled, failed
        with lock:
            left -= 1
            if task.cancelled():
                cancelled = True
            else:
                failed = failed or task.exception()
            if left:
                return
        call(failed, cancelled)

    for task in tasks:
        task.add_done_callback(done)


Memory = dict[str, torch.Tensor]
"""The pixels of a batch by the names of its parts: see `Layout`."""

Begin = Callable[[Any], Make]
"""Takes the memory of a batch, and returns what decodes slices of it."""

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
    def begin(self, dataset: LoaderDataset, transform: Transform, batch_transform: BatchTransform = None) -> None:
        """Begin an epoch over `dataset`; `transform` takes the place of the dataset's; the other is of batches."""

    def ahead(self, dataset: LoaderDataset, chunks: Iterator[Ints], block: int) -> Iterator[Ints]:
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

    def begin(self, dataset: LoaderDataset, transform: Transform, batch_transform: BatchTransform = None) -> None:
        self._dataset, self._transform, self._batch_transform = dataset, transform, batch_transform
        transforms = dataset.traits(transform).transforms
        self._seeding = transforms and self._alone and self._threads == 1 and not self._resizable
        self._watching = transforms and (self._threads > 1 or self._resizable) and not self.drew
        self.end()  # the threads of an epoch before, which are at rest
        self._crews = [Crew(self._threads) if self._threads else Caller()]

    def ahead(self, dataset: LoaderDataset, chunks: Iterator[Ints], block: int) -> Iterator[Ints]:
        fetching = dataset.fetching(block)
        if fetching is None:
            yield from chunks
            return
        length, waiting = len(dataset), deque[Ints]()
        together, most = fetching
        asked, first = np.zeros(-(-length // together), bool), True
        for indices in chunks:
            groups, places = np.unique(indices % length // together, return_index=True)
            groups = groups[np.argsort(places)]  # what is wanted first is fetched first
            groups = groups[~asked[groups]]
            asked[groups] = True
            wanted = (groups[:, None] * together + np.arange(together)).ravel()
            dataset.ahead(wanted[wanted < length])
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
        begin = self._dataset.begin(indices, crops, len(indices), step, layout.decoded_numbers)
        return self._job(memory, layout, begin(slice(None), decoded), split(len(indices), step), ending)

    def go_on(self, memory: Memory, layout: Layout, begin: Begin, ending: Ending | None = None) -> Sequence[Task]:
        count = memory[layout.parts[0].name].shape[0]  # Python does the len() of a tensor
        return self._job(memory, layout, begin(layout.decoded(memory)), split(count, self.step), ending)

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
        return self._dataset.items(indices, epoch, seed, self._transform, self._seeding)

    def _watched(self, indices: Ints, epoch: int, seed: int) -> list[Any]:
        before = generators()
        items = self._items(indices, epoch, seed)
        self.drew = self.drew or generators() != before
        return items


def split(count: int, step: int) -> list[slice]:
    """Return slices of `step` things each, of which the last may have fewer, that cover ``range(count)``."""
    return [slice(start, start + step) for start in range(0, count, step)]
