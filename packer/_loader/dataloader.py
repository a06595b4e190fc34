"""torch's DataLoader, of which threads make the batches where nothing is left to do to each image by itself.

Passes over a DataLoader: torch's own iterators, which count the batches, and one whose batches threads make.

torch draws a base seed when a pass begins, and the order when the first indices are wanted. All passes here are torch's
iterators by inheritance, so they draw the same numbers at the same moments.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import os
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.utils.data
from torch.utils.data import BatchSampler, IterableDataset, default_collate
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from packer._datasets.concat import UnreadableError, readable
from packer._datasets.memory import Layout, require_same_process
from packer._datasets.protocol import ItemsError, TorchDataset
from packer._loader.batch import Batch, Finishing, How, planned, submitted
from packer._loader.loader import Kept, Settings
from packer._loader.prefetch import Normalizer
from packer._loader.sampling import Turns, order_of, say_what_is_slow
from packer._loader.threads import Workers
from packer._table import Ints
from packer.errors import warn
from packer.samplers import OrderSampler
from packer.samplers._base import number_in, require_same, require_version

__all__ = ["CountedPass", "DataLoader", "Place", "Progress", "Source", "ThreadsPass", "TorchPass", "TorchWorkersPass"]


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

    images: TorchDataset
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
        progress.seeded, crops = images.seeded, progress.place.crops
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
        each = self._images.threads
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
            if self._images.fetching(1) is not None:
                self._images.ahead(rows)
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


_VERSION = 1  # of the states
_CHUNK = 1 << 16

Item_co = TypeVar("Item_co", covariant=True)


class DataLoader(torch.utils.data.DataLoader[Item_co]):
    """torch's DataLoader, of which packer's threads make the batches: in a script two names are changed.

    It has torch's arguments, attributes, order and batches: ``[images, labels]``, images (N, 3, height, width) and
    contiguous, labels int64. Threads take the place of worker processes where

    - the dataset is packer's, or torch's Subset or ConcatDataset of such,
    - nothing is left to do to each image by itself: packer does all of its transform (``fuse=True``), or it has a
      `crop` of a fixed size and no transform,
    - items have no `fields`, and batches are made by torch's own `collate_fn`, in sizes that `batch_size` or a
      `batch_sampler` say.

    Everything else is done as torch does it, with worker processes, and a warning says why.

    Parameters
    ----------
    dataset, batch_size, shuffle, sampler, batch_sampler, collate_fn, drop_last, generator
        As torch's DataLoader takes them.
    num_workers : int
        Number of threads. With 0 the calling thread makes each batch when it is asked for. A dataset that was opened
        with ``threads=T`` gives each worker T threads.
    prefetch_factor : int, optional
        How many batches a thread are in work ahead; 2 by default.
    pin_memory : bool
        Whether batches are page-locked.
    worker_init_fn : callable, optional
        Not called where threads make the batches, as a warning says.
    persistent_workers, timeout, in_order, multiprocessing_context, pin_memory_device
        Checked as torch checks them. They change nothing where threads make the batches, which are always in order.

    Notes
    -----
    The crop of a sample is a function of the dataset's `seed`, the epoch and the sample, or without such a seed of the
    base seed that torch draws from its generator for each pass. So it does not depend on `num_workers`, and after the
    same `torch.manual_seed` a run gives the same batches again. With the dataset's `seed` each pass is the next epoch,
    from the one on that ``dataset.set_epoch`` said.

    Nothing is divided among ranks, as with torch's DataLoader: `DistributedSampler` does so, and packer's samplers.
    """

    _progress: Progress | None = None
    """That of the latest pass."""
    _loaded: tuple[dict[str, Any], Place] | None = None
    """A state that was loaded, and where the next pass begins by it."""
    _warned: frozenset[str] = frozenset()

    @functools.cached_property
    def _kept(self) -> Kept:
        return Kept()

    @functools.cached_property
    def _epochs(self) -> _Epochs:
        return _Epochs()

    def __iter__(self) -> _BaseDataLoaderIter:
        source = self._source()
        if not self.persistent_workers or self.num_workers == 0:
            return self._pass_over(source)
        kept = self._iterator
        if source is not None:
            template = kept if isinstance(kept, ThreadsPass) else ThreadsPass(self)
            self._iterator = template
            return template.start(self, source)
        if kept is None or isinstance(kept, ThreadsPass):
            kept = self._iterator = self._pass_over(None)
        else:
            kept._reset(self)
        return kept

    def _get_iterator(self) -> _BaseDataLoaderIter:
        return self._pass_over(self._source())

    def _pass_over(self, source: Source | None) -> _BaseDataLoaderIter:
        if source is not None:
            return ThreadsPass(self).start(self, source)
        if self.num_workers == 0:
            return TorchPass(self)
        self.check_worker_number_rationality()
        return TorchWorkersPass(self)

    def _source(self) -> Source | None:
        """Return the samples and the layout of batches that threads make; None where torch makes the batches."""
        try:
            images = self._images()
            source = Source(images, images.batch_layout())
        except ItemsError as error:
            self._warn_once(f"packer's threads do not make these batches, but torch's DataLoader does, as {error}")
            return None
        if self.worker_init_fn is not None and self.num_workers:
            self._warn_once(
                "worker_init_fn is not called, as packer's threads make the batches, and not worker processes"
            )
        say_what_is_slow(images, getattr(self.batch_sampler, "sampler", None))
        return source

    def _images(self) -> TorchDataset:
        if not self._auto_collation:
            raise ItemsError("batch_size=None makes no batches")
        if self.collate_fn is not default_collate:
            raise ItemsError("collate_fn= makes batches of items")
        try:
            images = readable(self.dataset)
        except UnreadableError as error:
            raise ItemsError(error.reason) from None
        except (TypeError, ValueError, IndexError) as error:  # which torch may raise of a sample, or never
            raise ItemsError(f"the datasets are not read as one: {error}") from None
        if not isinstance(images, TorchDataset):
            raise ItemsError("the dataset makes its items by itself")
        return images

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned |= {message}
            warn(message)

    @property
    def _is_iterable(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    @property
    def _order(self) -> OrderSampler | None:
        """packer's sampler, if it decides the order, and each batch is the next of its samples."""
        batches = self.batch_sampler
        sampler = self.sampler if batches is None else getattr(batches, "sampler", None)
        if (batches is not None and type(batches) is not BatchSampler) or not isinstance(sampler, OrderSampler):
            return None
        order = order_of(sampler)
        return order if isinstance(order, OrderSampler) else None

    def _begin_pass(self) -> Progress:
        """Begin a pass; return where it begins."""
        place = Place() if self._loaded is None else self._loaded[1]
        order = copy.copy(self._order)
        if order is not None and order.begun:  # such a pass begins anew
            order.start = 0
        self._loaded, self._progress = None, Progress(place, order)
        return self._progress

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the latest pass: the first batch that was not handed out yet.

        Of packer's samplers the state has the place in their order, so that other batch sizes and numbers of ranks go
        on there. Of other samplers it has the number of batches, and what torch's generator drew the order from.

        Returns
        -------
        dict
            Numbers, strings, dicts of these, and a uint8 tensor. After a pass that ran to its end it is the beginning
            of the next one.
        """
        if self._loaded is not None:
            return dict(self._loaded[0])
        progress, order = self._progress, self._order
        state: dict[str, Any] = {"version": _VERSION, "pack": self._pack, "batches": 0, "crops": None}
        if progress is None or progress.ended:
            order = copy.copy(order)
            if order is not None and order.begun:
                order.start = 0
            if progress is not None and progress.seeded and progress.crops is not None:
                seed, epoch = progress.crops
                state["crops"] = {"seed": seed, "epoch": epoch + 1}
            return {**state, "sampler": None if order is None else order.state_dict()}
        state |= {"batches": progress.handed_out, "generator": progress.generator, "sampler": None}
        if progress.crops is not None:
            state["crops"] = dict(zip(("seed", "epoch"), progress.crops, strict=True))
        if progress.order is not None:
            done = (progress.handed_out - progress.place.handed_out) * (self.batch_size or 1)
            began = progress.order.start if progress.place.began is None else progress.place.began
            state |= {"sampler": progress.order.state_dict(done), "began": began}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass go on where `state_dict` was taken.

        Raises
        ------
        TypeError, ValueError
            If `state` is no such state, or of other samples or another order.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"a state is a dict, which `state_dict` gave, not {state!r}")
        require_version(state, _VERSION)
        handed_out = number_in(state, "batches", 0)
        require_same(state, "pack", self._pack, f"Here is {self.dataset!r}: open the samples of that run.")
        said, order = state.get("sampler"), self._order
        if (order is None) != (said is None):
            kind = "a sampler that is not packer's" if said is None else "one of packer's samplers"
            raise ValueError(
                f"the state is of {kind}, and here the order is that of {self.sampler!r}: make the DataLoader with the "
                "sampler of that run"
            )
        began, before = None, list[Ints]()
        if order is not None and said is not None:
            order.load_state_dict(said)
            began = number_in(state, "began", 0) if "began" in state else None
            before = [] if began is None else [_given_before(order, began)]
        crops = state.get("crops")
        numbers = None if crops is None else (number_in(crops, "seed"), number_in(crops, "epoch"))
        skipped, drawn_from = handed_out if order is None else 0, state.get("generator")
        if drawn_from is not None:  # which a checkpoint may have been loaded to another device with
            drawn_from = torch.as_tensor(drawn_from, dtype=torch.uint8, device="cpu")
        self._iterator = None
        self._loaded = dict(state), Place(handed_out, skipped, drawn_from, numbers, began, before)

    @property
    def _pack(self) -> str | None:
        """A name of these very samples, as a Loader has it."""
        try:
            return readable(self.dataset).identity()
        except (TypeError, ValueError, IndexError):  # of something that torch's own way reads
            return None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_iterator": None}


def _given_before(order: OrderSampler, began: int) -> Ints:
    """Return the samples that a sampler gave this rank in an epoch that began at a place, up to where it stands."""
    earlier = copy.copy(order)
    earlier.start = began
    count = max(0, -(-(order.start - began - order.rank) // order.world))
    given = [samples for samples, _ in earlier._cut(_CHUNK)]
    return np.concatenate([np.zeros(0, np.int64), *given])[:count]


class _Epochs:
    """Which epoch of crops a pass has: of passes that have one seed, each is the next."""

    def __init__(self) -> None:
        self._of: tuple[Any, ...] | None = None
        self._count = 0

    def next(self, images: TorchDataset, base_seed: int, restored: tuple[int, int] | None) -> tuple[int, int]:
        """Return seed and epoch of the next pass, those of a state if there is one."""
        first, said = images.crop_epoch if images.seeded else (0, 0)
        of = (first, said) if images.seeded else (base_seed,)
        if of != self._of:
            self._of, self._count = of, 0
        if restored is not None:
            self._count = restored[1] - first + 1
            return restored
        self._count += 1
        seed = images.traits().seed
        return base_seed if seed is None else seed, first + self._count - 1
