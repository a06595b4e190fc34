"""Passes over a DataLoader: torch's own iterators, which count the batches, and one whose batches threads make.

torch draws a base seed when a pass begins, and the order when the first indices are wanted. All passes here are torch's
iterators by inheritance, so they draw the same numbers at the same moments.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from packer._loading.finishing import Finishing
from packer._loading.foreign import Turns
from packer._loading.forks import require_same_process
from packer._loading.keeping import Settings
from packer._loading.memory import Layout
from packer._loading.normalizing import Normalizer
from packer._loading.planning import Batch, How, planned, submitted
from packer._loading.readable import Readable
from packer._loading.threads import Workers
from packer.samplers import OrderSampler

if TYPE_CHECKING:
    from packer._loading.dataloader import DataLoader

__all__ = ["CountedPass", "Place", "Progress", "Source", "ThreadsPass", "TorchPass", "TorchWorkersPass"]


class Place(NamedTuple):
    """Where a pass goes on that was interrupted.

    Attributes
    ----------
    handed_out : int
        How many batches were handed out before.
    skipped : int
        How many of these the sampler gives again, so that they are left out here.
    generator : uint8 tensor, optional
        The state of torch's generator from which the order is drawn; None where it stays as it is.
    crops : (int, int), optional
        Seed and epoch of the crops.
    began : int, optional
        The place at which packer's sampler began its epoch.
    before : sequence of sequence of int
        Samples that packer's sampler gave before, and does not give again.
    """

    handed_out: int = 0
    skipped: int = 0
    generator: torch.Tensor | None = None
    crops: tuple[int, int] | None = None
    began: int | None = None
    before: Sequence[Any] = ()


@dataclass
class Progress:
    """How far a pass has come, and what it began with.

    Attributes
    ----------
    place : Place
        Where it began.
    order : OrderSampler, optional
        A copy of packer's sampler as it was then.
    handed_out : int
        Number of batches, with those of the pass that it goes on with.
    ended : bool
        Whether the pass came to its end.
    generator : uint8 tensor, optional
        The state of torch's generator before the order was drawn.
    crops : (int, int), optional
        Seed and epoch of the crops, where packer's threads make the batches.
    seeded : bool
        Whether this is a seed of the dataset's.
    """

    place: Place
    order: OrderSampler | None = None
    handed_out: int = 0
    ended: bool = False
    generator: torch.Tensor | None = None
    crops: tuple[int, int] | None = None
    seeded: bool = False


class CountedPass(_BaseDataLoaderIter):
    """A pass that counts its batches, and that may begin where another one was interrupted."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        if not self._num_workers:  # with workers it is reset before it begins
            self._resume(loader)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        self._resume(loader)

    def _resume(self, loader: DataLoader[Any]) -> None:
        """Begin at the place where the loader goes on."""
        self._progress = progress = loader._begin_pass()
        place, indices = progress.place, self._sampler_iter
        progress.handed_out = place.handed_out
        self._to_discard = place.skipped if loader._is_iterable else 0  # such a dataset looks at no indices
        self._skipped: list[Any] = []
        with _drawing_again(loader.generator, place.generator) as progress.generator:
            if (place.skipped or place.generator is not None) and not loader._is_iterable:
                self._skipped = [*itertools.islice(indices, place.skipped)]
                # An order is drawn when the first of it is wanted: now, while the generator has its former state.
                self._sampler_iter = itertools.chain([*itertools.islice(indices, 1)], indices)

    def __next__(self) -> Any:
        try:
            while self._to_discard:
                self._to_discard -= 1
                super().__next__()
            batch = super().__next__()
        except StopIteration:
            self._progress.ended = True
            raise
        self._progress.handed_out += 1
        return batch


class TorchPass(_SingleProcessDataLoaderIter, CountedPass):
    """A pass as torch makes it without workers."""


class TorchWorkersPass(_MultiProcessingDataLoaderIter, CountedPass):
    """A pass as torch makes it with workers."""


@contextlib.contextmanager
def _drawing_again(generator: torch.Generator | None, state: torch.Tensor | None) -> Iterator[torch.Tensor]:
    """Yield the state of a generator, by default torch's own; it draws from the given state inside the block."""
    source = torch.default_generator if generator is None else generator
    before = source.get_state()
    if state is None:
        yield before
        return
    source.set_state(state)
    try:
        yield state
    finally:
        if generator is None:  # others draw from it, too
            source.set_state(before)


class Source(NamedTuple):
    """What batches are made of: samples, and how batches of them lie in memory."""

    images: Readable
    layout: Layout


class ThreadsPass(CountedPass):
    """A pass whose batches packer's threads make, or without workers the calling thread.

    A new instance draws the base seed, and `start` returns a copy of it that has begun. torch draws one base seed for
    all passes of persistent workers; here these passes are copies of one instance, and independent of each other.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        if self._num_workers == 0 and loader.timeout != 0:
            raise AssertionError("timeout= is the time that workers have, and num_workers=0 has none")
        if self._num_workers > 0 and loader.prefetch_factor == 0:
            raise AssertionError("prefetch_factor is 1 or more with workers")

    def start(self, loader: DataLoader[Any], source: Source) -> ThreadsPass:
        """Return a pass that has begun."""
        begun = object.__new__(type(self))  # torch's iterators refuse to be copied
        begun.__dict__.update(self.__dict__)
        if self._num_workers:
            begun._reset(loader, first_iter=True)
        begun._begin(loader, source)
        return begun

    def _begin(self, loader: DataLoader[Any], source: Source) -> None:
        images, layout = source
        self._images = images
        progress = self._progress
        progress.seeded, crops = images._seeded, progress.place.crops
        progress.crops = loader._epochs.next(images, int(self._base_seed), crops)
        self._turns = Turns(len(images))
        for samples in (*progress.place.before, *self._skipped):
            self._turns.of(samples)
        self._skipped.clear()
        pins = bool(self._pin_memory) and torch.cuda.is_available()
        normalizer = Normalizer(channels_last=False)
        self._finishing = Finishing(default_collate, None, normalizer, pins, elsewhere=False)
        self._how = How(layout, progress.crops[1], progress.crops[0])
        self._loader, self._process = loader, os.getpid()
        self._workers: Workers | None = None
        self._pending = deque[Batch]()
        for _ in range(self._batches_ahead):
            self._submit_next()

    @property
    def _batches_ahead(self) -> int:
        return self._num_workers * (self._loader.prefetch_factor or 0)

    def _submit_next(self) -> None:
        """Begin with the next batch, if there is one."""
        try:
            indices = next(self._sampler_iter)
        except StopIteration:
            return
        if self._workers is None:
            self._workers = self._open_workers(self._loader.batch_size or len(indices))
        self._pending.append(self._submit(indices, self._workers))

    def _open_workers(self, batch_size: int) -> Workers:
        """Return workers for batches of about a size; they are given back when this pass is gone."""
        each = self._images._threads
        threads = self._num_workers * each if self._num_workers or each == 1 else each
        count = max(self._batches_ahead, 1)
        settings = Settings(0, threads, False, batch_size * count, count, self._finishing.pins, False)
        used = contextlib.ExitStack()
        workers, self._pending = used.enter_context(self._loader._kept.in_use(self._loader, settings, 0))
        self._close = weakref.finalize(self, used.close)
        workers.begin(self._images, None)
        self._how = self._how._replace(step=workers.step)
        return workers

    def _submit(self, indices: Sequence[int], workers: Workers) -> Batch:
        """Return a batch that workers have begun with; an error is raised when the turn of its batch comes."""
        rows = np.zeros(0, np.int64)
        try:
            rows = self._turns.of(indices)
            if not len(rows):
                default_collate([])  # raises what torch raises of a batch without samples
            if self._images._remote:
                self._images._ahead(rows)
            (batch,) = planned(self._images, iter([rows]), len(rows), False, self._how)
            return submitted(workers, batch)
        except Exception as error:
            failed = Future[Any]()
            failed.set_exception(error)
            return Batch(rows, self._how, tasks=[failed])

    def _next_data(self) -> Any:
        require_same_process(self._process)
        if not self._num_workers:
            self._submit_next()
        if not self._pending or self._workers is None:
            if self._workers is not None:
                self._close()
            raise StopIteration
        oldest = self._pending[0]
        try:
            made = [*self._finishing.oldest(self._images, self._workers, self._pending)]
        except Exception:
            if self._pending and self._pending[0] is oldest:
                self._pending.popleft()
            for task in oldest.tasks:
                task.exception()  # waits: other threads may be at work at this batch
            self._submit_ahead()
            raise
        self._submit_ahead()
        return pin_memory(made, self._pin_memory_device) if self._pin_memory else made  # type: ignore[no-untyped-call]

    def _submit_ahead(self) -> None:
        """Let another batch take the place of one that is handed out, where batches are made ahead."""
        if self._num_workers:
            self._submit_next()
