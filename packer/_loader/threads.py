"""Workers of a Loader that are threads of this process, and the base class of all workers.

A batch is divided into slices, which threads take from one queue. Between two slices a thread runs only a few lines of
Python, because the CPU's caches are then full of pixels, and each line takes several times as long as usual.
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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._datasets.items import SAMPLE_ERRORS
from packer._datasets.pipeline import Transform
from packer._datasets.protocol import ALIGNMENT, Fetching, Layout, LoaderDataset, Tensors
from packer._loader.batch import BatchFuture, BatchJob, BatchTransform, Postprocess, SliceFunction, split
from packer._table import Ints
from packer.errors import warn
from packer.samplers._random import generator_states

Choices = npt.NDArray[Any]
"""The random choices of a dataset for its samples: see `LoaderDataset.choose`."""

BATCHES_THE_LOOP_MAY_KEEP = 3  # batches that the training loop may keep before new memory is allocated
_MOST_IN_A_SLICE = 64  # the maximum number of images
_SLICES_A_THREAD = 3  # slices for each thread among the images in progress, so that none waits long for a slow image


class Slot:
    """Memory that batches use one after the other; it becomes free when no tensor uses it any more.

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
        for holder in self._holders:  # noqa: SIM110  # this loop takes half the time of all(), for each slot and batch
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


def fresh(size: int) -> npt.NDArray[np.uint8]:
    """Return uninitialized memory, aligned to a cache line, so that stores of whole lines can bypass the caches."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def pinned(memory: Tensors) -> Tensors:
    """Return tensors in page-locked memory, copying those that are elsewhere."""
    return {name: tensor if tensor.is_pinned() else tensor.pin_memory() for name, tensor in memory.items()}


class WorkerSettings(NamedTuple):
    """Settings of workers: their number, the work in progress, and the memory of batches.

    Attributes
    ----------
    processes : int
        Number of processes; 0 for threads of this process.
    threads : int
        Number of threads in all processes together; 0 if the calling thread makes each batch itself.
    resizable : bool
        True if the number of threads may change between two batches. Then the random numbers of transforms are not
        reproducible, whatever the number of threads.
    images : int
        The number of images in progress at a time, which are divided into slices.
    batches : int
        The number of batches in progress at a time.
    pinned : bool
        Whether the memory of batches is page-locked.
    held : bool
        Whether returned batches are held until a device has copied them.
    """

    processes: int
    threads: int
    resizable: bool
    images: int
    batches: int
    pinned: bool
    held: bool


class Workers(abc.ABC):
    """Makes the batches of jobs.

    Call `begin` first. Then call `submit` for each job, and later `finish` for each job, in the same order. When no
    work is running any more, call `end`; then `begin` may be called again. `resize` may be called between two jobs.
    """

    size: int = 0
    """The size in bytes of the largest batch that fits into the memory."""

    step: int = 0
    """The number of images that a thread of this process decodes at a time; 0 if other processes decode."""

    drew: bool = False
    """Whether transforms drew random numbers on several threads of a process; known when the first items are made."""

    _warned = False

    @property
    def usable(self) -> bool:
        """Whether `begin` may be called again."""
        return True

    @abc.abstractmethod
    def begin(self, dataset: LoaderDataset, transform: Transform, batch_transform: BatchTransform = None) -> None:
        """Begin a pass over a dataset; `transform`, if not None, replaces the dataset's own transform."""

    def fetch_ahead(self, dataset: LoaderDataset, chunks: Iterator[Ints], block: int) -> Iterator[Ints]:
        """Yield chunks of indices; if samples are at a URL, request them while earlier chunks are read.

        The samples form blocks of `block` neighbours; when one sample of a block is read, all others are read soon.
        """
        return chunks

    @abc.abstractmethod
    def resize(self, threads: int) -> None:
        """Use `threads` threads for all later work; the present threads finish the work already submitted."""

    def submit(self, job: BatchJob) -> None:
        """Begin a job; allocate memory for its batch, unless the job has memory already."""
        layout = job.plan.layout
        if layout is None or job.choices is None:
            job.futures = self._make_items(job)
            return
        if job.memory is None:
            job.memory = self._allocate(len(job.indices), layout)
        job.futures = self._decode(job, layout, job.memory, job.choices)

    def finish(self, job: BatchJob) -> Any:
        """Wait for a job and return its batch, in which other samples may replace unreadable ones."""
        plan = job.plan
        try:
            results = job.results()
        except SAMPLE_ERRORS:
            job.wait()  # until no worker writes into the memory, which is used again
            other = plan.replacement(job)
            if other is None:
                raise
            self.submit(other)
            job.futures = other.futures  # if this is interrupted, the caller waits for them
            job, results = other, other.results()
        memory = job.memory
        if memory is None or plan.layout is None:
            self._warn_of_draws()
        else:
            memory = self._hand_out(plan.layout.handed_out(memory))
            if plan.pinned:
                memory = pinned(memory)
        return plan.batch(job, memory, results)

    @abc.abstractmethod
    def _allocate(self, count: int, layout: Layout) -> Tensors:
        """Return uninitialized memory for a batch of `count` samples."""

    @abc.abstractmethod
    def _decode(self, job: BatchJob, layout: Layout, memory: Tensors, choices: Choices) -> Sequence[BatchFuture]:
        """Begin to decode the samples of a job into memory and to postprocess them.

        The results of the futures are the values of the batch that are not in its memory; see `LoaderDataset.begin`.
        """

    @abc.abstractmethod
    def _make_items(self, job: BatchJob) -> Sequence[BatchFuture]:
        """Begin to make the items of a job; the futures return the items in the order of the job's indices."""

    def _hand_out(self, memory: Tensors) -> Tensors:
        """Return a finished batch, or a copy of it, which the training loop may keep as long as it likes."""
        return memory

    def _warn_of_draws(self) -> None:
        """Warn once if the random numbers that transforms draw are not reproducible."""
        if self.drew and not self._warned:
            self._warned = True
            warn(
                "the transform draws random numbers on several threads, in an order that differs in each run: "
                "neither torch.manual_seed nor a state reproduces the images. With one thread per process, such as "
                "Loader(..., threads=8, processes=8), they depend only on the Loader's seed, the epoch and the "
                "sample; torch's DataLoader reproduces whole runs"
            )

    def end(self) -> None:
        """End the pass."""

    def close(self) -> None:
        """End permanently; `begin` cannot be called afterwards."""


class Threads(Workers):
    """Makes batches on threads of this process; the threads end with the pass.

    Parameters
    ----------
    settings : WorkerSettings
    slots : list of Slot
        Memory for batches. If no free slot is large enough, new memory replaces a free slot.
    alone : bool
        True if no other code in this process draws random numbers. Then, with a single thread, the random numbers for
        the transforms of a sample depend only on seed, epoch and sample.
    """

    def __init__(self, settings: WorkerSettings, slots: list[Slot], *, alone: bool = False) -> None:
        self._settings, self._slots, self._alone = settings, slots, alone
        self._divide_among(settings.threads)
        self._resizing = threading.RLock()  # reentrant: the calling thread may run slices, which put further slices
        self._pools: list[ThreadPool] = []  # only the last one gets work; the others finish theirs, and end

    @classmethod
    def with_memory(cls, settings: WorkerSettings, size: int) -> Threads:
        """Return threads with memory for all batches, each of `size` bytes.

        These are the batches in progress, and the returned batches that the loop still uses.
        """
        count = 0 if settings.pinned else settings.batches + BATCHES_THE_LOOP_MAY_KEEP
        workers = cls(settings, [Slot(fresh(size)) for _ in range(count)])
        workers.size = size
        return workers

    def _divide_among(self, threads: int) -> None:
        self._threads = threads
        self.step = min(max(self._settings.images // max(threads * _SLICES_A_THREAD, 1), 1), _MOST_IN_A_SLICE)

    def begin(self, dataset: LoaderDataset, transform: Transform, batch_transform: BatchTransform = None) -> None:
        self._dataset, self._transform, self._batch_transform = dataset, transform, batch_transform
        transforms, resizable = dataset.traits(transform).transforms, self._settings.resizable
        self._seeding = transforms and self._alone and self._threads == 1 and not resizable
        self._watching = transforms and (self._threads > 1 or resizable) and not self.drew
        self.end()  # the threads of an earlier pass, which have no work
        self._pools = [ThreadPool(self._threads)]

    def fetch_ahead(self, dataset: LoaderDataset, chunks: Iterator[Ints], block: int) -> Iterator[Ints]:
        fetching = dataset.fetching(block)
        return chunks if fetching is None else _fetched_ahead(dataset, chunks, fetching)

    def resize(self, threads: int) -> None:
        with self._resizing:
            for pool in self._pools[-1:]:
                pool.end()
            self._divide_among(threads)
            self._pools.append(ThreadPool(self._threads))

    def end(self) -> None:
        for pool in self._pools[-1:]:
            pool.end()
        for pool in self._pools:
            pool.join()
        self._pools.clear()

    def _put(self, pieces: Sequence[_Piece]) -> None:
        with self._resizing:  # a thread that has decoded the last images of a batch calls this too
            self._pools[-1].put(pieces)

    def _allocate(self, count: int, layout: Layout) -> Tensors:
        if self._settings.pinned:
            return layout.page_locked(count)
        size = layout.bytes_for(count)
        slot = next((slot for slot in self._slots if slot.free and slot.size >= size), None) or self._new_slot(size)
        return slot.tensors(layout, count)

    def _new_slot(self, size: int) -> Slot:
        """Return a slot with new memory, which replaces a smaller free slot if there is one."""
        slot = Slot(fresh(size))
        for number in [number for number, other in enumerate(self._slots) if other.free][:1]:
            self._slots[number] = slot
        return slot

    def _decode(self, job: BatchJob, layout: Layout, memory: Tensors, choices: Choices) -> Sequence[SlicedFuture]:
        step, then = self.step, None  # read once, because another thread may change it
        if job.decoder_into is None:
            decode = self._decoder(job.indices, choices, memory, layout, step)
        else:
            decode, job.decoder_into = job.decoder_into(layout.decoded(memory)), None
        count = len(job.indices)
        if (postprocess := job.postprocess) is not None:
            then = postprocess.function(layout, memory, self._batch_transform), postprocess.slices(count, step)
        return [SlicedFuture(self._put, decode, split(count, step), then)]

    def decode(self, indices: Ints, choices: Choices, memory: Tensors, layout: Layout) -> Sequence[SlicedFuture]:
        """Begin to decode some samples of a batch into `memory`, their part of the batch's memory."""
        step = self.step
        decode = self._decoder(indices, choices, memory, layout, step)
        return [SlicedFuture(self._put, decode, split(len(indices), step))]

    def _decoder(self, indices: Ints, choices: Choices, memory: Tensors, layout: Layout, step: int) -> SliceFunction:
        """Return the function that decodes slices of some samples into memory."""
        open_batch = self._dataset.begin(indices, choices, len(indices), step, layout.decoded_numbers)
        return open_batch(slice(None), layout.decoded(memory))

    def postprocess(
        self, postprocess: Postprocess, memory: Tensors, layout: Layout, some: slice
    ) -> Sequence[SlicedFuture]:
        """Begin to postprocess some of the images of a batch; with a transform, all of them."""
        return [SlicedFuture(self._put, postprocess.function(layout, memory, self._batch_transform), [some])]

    def _make_items(self, job: BatchJob) -> Sequence[SlicedFuture]:
        return self.make_items(job.indices, job.plan.epoch, job.plan.seed)

    def make_items(self, indices: Ints, epoch: int, seed: int) -> Sequence[SlicedFuture]:
        """Begin to make the items of some samples."""
        watched, self._watching = self._watching, False  # it is enough to watch the first images

        def make(some: slice) -> list[Any]:
            before = generator_states() if watched and some.start == 0 else None
            items = self._dataset.items(indices[some], epoch, seed, self._transform, self._seeding)
            if before is not None and generator_states() != before:
                self.drew = True
            return items

        return [SlicedFuture(self._put, make, split(len(indices), self.step))]


def _fetched_ahead(dataset: LoaderDataset, chunks: Iterator[Ints], fetching: Fetching) -> Iterator[Ints]:
    """Yield chunks of indices as `Workers.fetch_ahead` does."""
    length, waiting = len(dataset), deque[Ints]()
    together, most = fetching
    requested, first = np.zeros(-(-length // together), bool), True
    for indices in chunks:
        groups, begins = np.unique(indices % length // together, return_index=True)
        groups = groups[np.argsort(begins)]  # the first to be read are the first to be fetched
        groups = groups[~requested[groups]]
        requested[groups] = True
        samples = (groups[:, None] * together + np.arange(together)).ravel()
        dataset.ahead(samples[samples < length])
        waiting.append(indices)
        if first or sum(map(len, waiting)) > most:  # work begins with the first chunk, before others are requested
            yield waiting.popleft()
            first = False
    yield from waiting


_Piece = tuple["SlicedFuture", int]
"""A future, and the number of one of its slices."""


class SlicedFuture:
    """The result of work that is divided into slices, with the methods of a `concurrent.futures.Future`.

    Parameters
    ----------
    put : callable
        Takes the pieces of the future in order; threads then call `do` and `done` for each piece.
    function : callable
        See `SliceFunction`.
    slices : sequence of slice
    then : (callable, sequence of slice), optional
        A second function and its slices, which run after all of `slices` are done, unless a slice failed or the future
        was cancelled. Their results follow the results of `slices`.
    """

    def __init__(
        self,
        put: Callable[[Sequence[_Piece]], None],
        function: SliceFunction,
        slices: Sequence[slice],
        then: tuple[SliceFunction, Sequence[slice]] | None = None,
    ) -> None:
        self._put, self._then = put, then
        self._lock, self._ended = threading.Lock(), threading.Lock()
        self._cancelled, self._results, self._failed = False, list[Any](), dict[int, BaseException]()
        self._ended.acquire()  # released when all slices are done
        self._set(function, slices)
        pieces = [(self, number) for number in range(len(slices))]
        if not pieces and (piece := self._end()) is not None:
            pieces = [piece]
        put(pieces)

    def _set(self, function: SliceFunction, slices: Sequence[slice]) -> None:
        self._function: SliceFunction | None = function
        self._slices, self._left, self._made = slices, len(slices), dict[int, Sequence[Any]]()

    def do(self, number: int) -> None:
        """Run one slice; call `done` afterwards."""
        function = self._function
        if function is None or self._cancelled:
            return
        try:
            made = function(self._slices[number])
            if made:
                self._made[number] = made
        except BaseException as error:  # any error; `result` raises it
            self._failed[number] = error
            del self, function  # otherwise a cycle: the error refers to this frame, and the future to the error

    def done(self) -> _Piece | None:
        """Record that a slice is done; return the piece with which the same thread continues, if there is one."""
        with self._lock:
            self._left -= 1
            if self._left:
                return None
        return self._end()

    def _end(self) -> _Piece | None:
        """Continue with the second function, or notify the waiting threads."""
        then, self._then, self._function = self._then, None, None  # functions hold the memory of a batch
        if self._made:
            self._results += [result for number in sorted(self._made) for result in self._made[number]]
        if then is not None and not self._failed and not self._cancelled:
            self._set(*then)
            if self._slices:
                self._put([(self, number) for number in range(1, len(self._slices))])
                return self, 0  # the same thread continues, because part of the batch is in its caches
        self._function = None
        self._ended.release()
        return None

    def cancel(self) -> bool:
        """Cancel the slices that no thread has begun; return False, because other slices may be in progress."""
        self._cancelled = True
        return False

    def exception(self) -> BaseException | None:
        """Wait until no thread works on the future; return the error of the first failed slice, or None."""
        with self._ended:
            return self._failed[min(self._failed)] if self._failed else None

    def result(self) -> list[Any]:
        """Wait for all slices; return their results, or raise the error of the first failed one, or CancelledError."""
        with self._ended:
            if not self._failed and not self._cancelled:
                return self._results
        try:
            raise self._failed[min(self._failed)] if self._failed else CancelledError
        finally:
            del self  # otherwise a cycle: the error refers to this frame, and the frame to the future


class ThreadPool:
    """Threads that run pieces of futures in the order of submission.

    Parameters
    ----------
    most : int
        The maximum number of threads, which start when they are needed; with 0, the calling thread runs each piece
        immediately.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: queue.SimpleQueue[_Piece | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._stopped = False
        _RUNNING.add(self)

    def put(self, pieces: Sequence[_Piece]) -> None:
        """Submit pieces. Only one thread at a time may call this."""
        for piece in pieces:
            if self._stopped:
                _skip(piece)
            elif not self._most:
                _do(piece)
            else:
                self._pieces.put(piece)
                if len(self._threads) < self._most:
                    self._start()

    def _start(self) -> None:
        # Daemon threads, because Python would wait for other threads before it calls `_stop_all`.
        name = f"packer-loader_{len(self._threads)}"
        thread = threading.Thread(target=_work, args=(self._pieces,), name=name, daemon=True)
        self._threads.append(thread)  # before it starts, because Ctrl-C may interrupt `start` when it runs already
        try:
            thread.start()
        except RuntimeError:  # the system's limit of threads
            self._threads.remove(thread)
            if not self._threads:
                raise
            self._most = len(self._threads)

    def end(self) -> None:
        """Let the threads end after all submitted pieces."""
        self._pieces.put(None)

    def join(self) -> None:
        """Wait until the threads have ended."""
        for thread in self._threads:
            with contextlib.suppress(RuntimeError):  # the thread did not start, because of Ctrl-C
                thread.join()
        _RUNNING.discard(self)

    def stop(self) -> None:
        """Skip all pieces that no thread has begun, and all later ones, and wait until the threads have ended."""
        self._stopped = True
        with contextlib.suppress(queue.Empty):
            while True:
                piece = self._pieces.get_nowait()
                if piece is not None:
                    _skip(piece)
        self.end()
        self.join()


def _work(pieces: queue.SimpleQueue[_Piece | None]) -> None:
    """Run pieces from the queue until None arrives."""
    while (piece := pieces.get()) is not None:
        _do(piece)
        del piece  # its future holds the memory of a batch
    pieces.put(None)  # ends the next thread


def _do(piece: _Piece | None) -> None:
    """Run a piece, and the pieces with which the same thread continues."""
    while piece is not None:
        future, number = piece
        future.do(number)
        piece = future.done()
        del future  # it holds the memory of a batch


def _skip(piece: _Piece) -> None:
    """Complete a future without running one of its pieces; otherwise a thread would wait for the future forever."""
    future, _ = piece
    future.cancel()
    future.done()


_RUNNING: weakref.WeakSet[ThreadPool] = weakref.WeakSet()


def _stop_all() -> None:
    """End all threads before Python ends, because they may be writing into memory that is then freed."""
    for pool in list(_RUNNING):
        pool.stop()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RUNNING.clear)  # a fork does not have the threads
