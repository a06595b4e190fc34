"""torch's DataLoader; packer's threads make its batches if no transform has to run in Python for single images.

torch draws a base seed when a pass begins, and the order when the first indices are taken. All passes here inherit from
torch's iterators, so they draw the same numbers at the same moments.
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
from dataclasses import dataclass, replace
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
from packer._datasets.description import named, one_line
from packer._datasets.protocol import ItemsError, TorchDataset
from packer._display import TextTable, text
from packer._loader.batch import BatchJob, BatchPlan
from packer._loader.loader import WorkerCache
from packer._loader.prefetch import Normalizer, forked
from packer._loader.sampling import Turns, order_of, warn_of_random_order
from packer._loader.threads import Workers, WorkerSettings
from packer._table import Ints
from packer.errors import OptionError, OptionTypeError, warn
from packer.samplers import OrderSampler
from packer.samplers._orders import number_in, require_same, require_version

_VERSION = 1  # of the format of states
_CHUNK = 1 << 16

Item_co = TypeVar("Item_co", covariant=True)


class DataLoader(torch.utils.data.DataLoader[Item_co]):
    """A drop-in replacement for torch's DataLoader in which packer's threads make the batches.

    In a script, only the names of the dataset and the DataLoader change. Arguments, attributes, order and batches are
    the same as torch's. A batch is ``[images, labels]``, with contiguous (N, 3, height, width) images and int64 labels.
    Threads replace worker processes if all of these conditions hold:

    - the dataset is packer's, or torch's Subset or ConcatDataset of packer's datasets,
    - no transform has to run in Python for single images: packer runs the whole transform (``fuse=True``),
      or the dataset has a `crop` of a fixed size and no transform,
    - items have no `fields`, and batches are made by torch's own `collate_fn`, with a `batch_size` or a
      `batch_sampler`.

    If a condition does not hold, torch's worker processes make the batches, and a warning gives the reason.

    Parameters
    ----------
    dataset, batch_size, shuffle, sampler, batch_sampler, collate_fn, drop_last, generator
        The same as in torch's DataLoader.
    num_workers : int
        The number of threads. With 0, the calling thread makes each batch when it is requested. If the dataset was
        opened with ``threads=T``, this number is multiplied by T.
    prefetch_factor : int, optional
        The number of batches that each thread prepares ahead; 2 by default.
    pin_memory : bool
        Whether batches are page-locked.
    worker_init_fn : callable, optional
        Not called if threads make the batches; a warning reports this.
    persistent_workers, timeout, in_order, multiprocessing_context, pin_memory_device
        Checked as in torch, but without effect if threads make the batches: such batches are always in order.

    Notes
    -----
    The crop of a sample depends only on the dataset's `seed`, the epoch and the sample. If the dataset has no `seed`,
    the base seed that torch draws from its generator for each pass is used instead. So crops do not depend on
    `num_workers`, and after the same `torch.manual_seed` a run gives the same batches again. If the dataset has a
    `seed`, the first pass uses the epoch that ``dataset.set_epoch`` set, and each further pass the next epoch.

    As in torch's DataLoader, samples are divided among ranks only by a sampler: `DistributedSampler` or one of
    packer's.
    """

    _progress: Progress | None = None
    """The progress of the latest pass."""

    _loaded: tuple[dict[str, Any], ResumePoint] | None = None
    """A loaded state, and the point at which the next pass resumes."""

    _warned: frozenset[str] = frozenset()
    """The warnings that were given."""

    @functools.cached_property
    def _worker_cache(self) -> WorkerCache:
        return WorkerCache()

    @functools.cached_property
    def _epochs(self) -> _Epochs:
        return _Epochs()

    def __repr__(self) -> str:
        workers = f"num_workers={self.num_workers}, batch_size={self.batch_size}"
        rows = [("dataset", named(self.dataset)), ("order", one_line(self.sampler))]
        return text([f"{type(self).__name__}: {workers}", TextTable(rows, ("<7", ""))])

    def __iter__(self) -> _BaseDataLoaderIter:
        plan = self._plan()
        if not self.persistent_workers or self.num_workers == 0:
            return self._pass(plan)
        iterator = self._iterator
        if plan is not None:
            template = iterator if isinstance(iterator, ThreadsPass) else ThreadsPass(self)
            self._iterator = template
            return template.start(self, plan)
        if iterator is None or isinstance(iterator, ThreadsPass):
            iterator = self._iterator = self._pass(None)
        else:
            iterator._reset(self)
        return iterator

    def _get_iterator(self) -> _BaseDataLoaderIter:
        return self._pass(self._plan())

    def _pass(self, plan: BatchPlan | None) -> _BaseDataLoaderIter:
        if plan is not None:
            return ThreadsPass(self).start(self, plan)
        if self.num_workers == 0:
            return TorchPass(self)
        self.check_worker_number_rationality()
        return TorchWorkersPass(self)

    def _plan(self) -> BatchPlan | None:
        """Return the plan for batches made by threads; None if torch makes the batches."""
        try:
            images = self._images()
            layout = images.batch_layout()
        except ItemsError as error:
            self._warn_once(f"torch's DataLoader makes these batches, and not packer's threads, because {error}")
            return None
        if self.worker_init_fn is not None and self.num_workers:
            self._warn_once(
                "worker_init_fn is not called, because packer's threads make the batches, and not worker processes"
            )
        warn_of_random_order(images, getattr(self.batch_sampler, "sampler", None))
        return BatchPlan(images.frozen_copy(), Normalizer(channels_last=False), layout)

    def _images(self) -> TorchDataset:
        if not self._auto_collation:
            raise ItemsError("batch_size=None makes no batches")
        if self.collate_fn is not default_collate:
            raise ItemsError("collate_fn= is set")
        try:
            images = readable(self.dataset)
        except UnreadableError as error:
            raise ItemsError(error.reason) from None
        except (TypeError, ValueError, IndexError) as error:  # if a sample causes the error, torch raises it later
            raise ItemsError(f"the datasets cannot be joined: {error}") from None
        if not isinstance(images, TorchDataset):
            raise ItemsError("the dataset overrides how its items are made")
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
        """packer's sampler, if the batches consist of its samples in their order; otherwise None."""
        batches = self.batch_sampler
        sampler = self.sampler if batches is None else getattr(batches, "sampler", None)
        if (batches is not None and type(batches) is not BatchSampler) or not isinstance(sampler, OrderSampler):
            return None
        order = order_of(sampler)
        return order if isinstance(order, OrderSampler) else None

    def _begin_pass(self) -> Progress:
        """Begin a pass, and return its progress, which contains the point from which the pass resumes."""
        point = ResumePoint() if self._loaded is None else self._loaded[1]
        order = copy.copy(self._order)
        if order is not None and order.begun:  # an earlier pass has used the position of a loaded state
            order.start = 0
        self._loaded, self._progress = None, Progress(point, order)
        return self._progress

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the latest pass: the first batch that has not been returned yet.

        With one of packer's samplers, the state contains the position in the sampler's order. So a run with another
        batch size or number of ranks can resume there. With any other sampler, the state contains the number of
        returned batches, and the state of torch's generator before the order was drawn.

        Returns
        -------
        dict
            The state: numbers, strings, dicts of these, and a uint8 tensor. After a complete pass, the state is the
            beginning of the next pass.
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
            done = (progress.handed_out - progress.point.handed_out) * (self.batch_size or 1)
            began = progress.order.start if progress.point.began is None else progress.point.began
            state |= {"sampler": progress.order.state_dict(done), "began": began}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass continue at the position of a `state_dict`.

        Raises
        ------
        TypeError, ValueError
            If `state` is not a state of this class, or belongs to other samples or another order.
        """
        if not isinstance(state, Mapping):
            raise OptionTypeError(f"a state must be a dict from `state_dict`, not {state!r}")
        require_version(state, _VERSION)
        handed_out = number_in(state, "batches", 0)
        require_same(
            state, "pack", self._pack, f"This dataset is {named(self.dataset)}: open the samples of the earlier run."
        )
        sampler, order = state.get("sampler"), self._order
        if (order is None) != (sampler is None):
            whose = "a sampler that is not packer's" if sampler is None else "one of packer's samplers"
            raise OptionError(
                f"the state belongs to {whose}, but this DataLoader has the order of {self.sampler!r}: make it with "
                "the sampler of the earlier run"
            )
        began, before = None, list[Ints]()
        if order is not None and sampler is not None:
            order.load_state_dict(sampler)
            began = number_in(state, "began", 0) if "began" in state else None
            before = [] if began is None else [_samples_before(order, began)]
        crops = state.get("crops")
        numbers = None if crops is None else (number_in(crops, "seed"), number_in(crops, "epoch"))
        skipped, drawn_from = handed_out if order is None else 0, state.get("generator")
        if drawn_from is not None:  # the tensor may be on another device, if the checkpoint was loaded there
            drawn_from = torch.as_tensor(drawn_from, dtype=torch.uint8, device="cpu")
        self._iterator = None
        self._loaded = dict(state), ResumePoint(handed_out, skipped, drawn_from, numbers, began, before)

    @property
    def _pack(self) -> str | None:
        """A digest that identifies the samples, the same as in a Loader's state."""
        try:
            return readable(self.dataset).identity()
        except (TypeError, ValueError, IndexError):  # a dataset that only torch can read
            return None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_iterator": None}


def _samples_before(order: OrderSampler, began: int) -> Ints:
    """Return the samples that a sampler returned on this rank, from the position `began` to its current position."""
    earlier = copy.copy(order)
    earlier.start, earlier.begun = began, False
    count = max(0, -(-(order.start - began - order.rank) // order.world))
    return np.concatenate([np.zeros(0, np.int64), *earlier.chunks(_CHUNK)])[:count]


class _Epochs:
    """Counts the epochs on which crops depend: a pass with the same seed as the previous pass is the next epoch."""

    def __init__(self) -> None:
        self._of: tuple[Any, ...] | None = None
        self._count = 0

    def next(self, images: TorchDataset, base_seed: int, restored: tuple[int, int] | None) -> tuple[int, int]:
        """Return the seed and the epoch of the next pass, or the restored ones if there are any."""
        first, moves = images.crop_epoch if images.seeded else (0, 0)
        of = (first, moves) if images.seeded else (base_seed,)
        if of != self._of:
            self._of, self._count = of, 0
        if restored is not None:
            self._count = restored[1] - first + 1
            return restored
        self._count += 1
        seed = images.traits().seed
        return base_seed if seed is None else seed, first + self._count - 1


class ResumePoint(NamedTuple):
    """The point at which an interrupted pass resumes.

    Attributes
    ----------
    handed_out : int
        The number of batches that were returned before the interruption.
    skipped : int
        How many of these batches the sampler returns again; the new pass skips them.
    generator : uint8 tensor, optional
        The state of torch's generator from which the order is drawn; None to leave the generator unchanged.
    crops : (int, int), optional
        Seed and epoch of the crops.
    began : int, optional
        The position at which packer's sampler began its epoch.
    before : sequence of sequence of int
        The samples that packer's sampler returned before the interruption. The sampler does not return these samples
        again.
    """

    handed_out: int = 0
    skipped: int = 0
    generator: torch.Tensor | None = None
    crops: tuple[int, int] | None = None
    began: int | None = None
    before: Sequence[Any] = ()


@dataclass
class Progress:
    """The progress of a pass, and the point at which it began.

    Attributes
    ----------
    point : ResumePoint
        The point at which the pass began.
    order : OrderSampler, optional
        A copy of packer's sampler in its state at the beginning of the pass.
    handed_out : int
        Number of returned batches, including the batches before the interruption if this pass resumes another one.
    ended : bool
        Whether the pass is complete.
    generator : uint8 tensor, optional
        The state of torch's generator before the order was drawn.
    crops : (int, int), optional
        Seed and epoch of the crops, if packer's threads make the batches.
    seeded : bool
        Whether the seed in `crops` is the dataset's own.
    """

    point: ResumePoint
    order: OrderSampler | None = None
    handed_out: int = 0
    ended: bool = False
    generator: torch.Tensor | None = None
    crops: tuple[int, int] | None = None
    seeded: bool = False


class CountedPass(_BaseDataLoaderIter):
    """A pass that counts its batches, and can resume another pass."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        if not self._num_workers:  # with workers, torch calls `_reset`
            self._resume(loader)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        self._resume(loader)

    def _resume(self, loader: DataLoader[Any]) -> None:
        """Begin at the point at which the loader resumes."""
        self._progress = progress = loader._begin_pass()
        point, indices = progress.point, self._sampler_iter
        progress.handed_out = point.handed_out
        self._to_discard = point.skipped if loader._is_iterable else 0  # an iterable dataset has no indices to skip
        self._skipped: list[Any] = []
        with _drawing_again(loader.generator, point.generator) as progress.generator:
            if (point.skipped or point.generator is not None) and not loader._is_iterable:
                self._skipped = [*itertools.islice(indices, point.skipped)]
                # A sampler draws its order when the first index is taken: now, while the generator has the old state.
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
    """torch's own pass without workers."""


class TorchWorkersPass(_MultiProcessingDataLoaderIter, CountedPass):
    """torch's own pass with workers."""


@contextlib.contextmanager
def _drawing_again(generator: torch.Generator | None, state: torch.Tensor | None) -> Iterator[torch.Tensor]:
    """Yield the state that a generator has inside the block.

    If `generator` is None, this is torch's own generator. If `state` is not None, the generator is set to `state`
    before the block. After the block, only torch's own generator gets its former state back.
    """
    source = torch.default_generator if generator is None else generator
    before = source.get_state()
    if state is None:
        yield before
        return
    source.set_state(state)
    try:
        yield state
    finally:
        if generator is None:  # torch's own generator, from which others draw too
            source.set_state(before)


class ThreadsPass(CountedPass):
    """A pass whose batches are made by packer's threads, or by the calling thread if there are no workers.

    A new instance draws the base seed; `start` begins a pass on a copy of the instance and returns the copy. torch
    draws one base seed for all passes of persistent workers. Here such passes are independent copies of one instance.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        if self._num_workers == 0 and loader.timeout != 0:
            raise AssertionError("timeout= limits the time of workers, but with num_workers=0 there are none")
        if self._num_workers > 0 and loader.prefetch_factor == 0:
            raise AssertionError("with workers, prefetch_factor must be 1 or more")

    def start(self, loader: DataLoader[Any], plan: BatchPlan) -> ThreadsPass:
        """Start a pass and return it."""
        begun = object.__new__(type(self))  # copy.copy would fail, because torch's iterators cannot be pickled
        begun.__dict__.update(self.__dict__)
        if self._num_workers:
            begun._reset(loader, first_iter=True)
        begun._begin(loader, plan)
        return begun

    def _begin(self, loader: DataLoader[Any], plan: BatchPlan) -> None:
        assert isinstance(plan.dataset, TorchDataset)
        self._images, progress = plan.dataset, self._progress
        progress.seeded = self._images.seeded
        progress.crops = loader._epochs.next(self._images, int(self._base_seed), progress.point.crops)
        self._turns = Turns(len(self._images))
        for samples in (*progress.point.before, *self._skipped):
            self._turns.of(samples)
        self._skipped.clear()
        seed, epoch = progress.crops
        pinned = bool(self._pin_memory) and torch.cuda.is_available()
        self._plan = replace(plan, epoch=epoch, seed=seed, pinned=pinned)
        self._loader, self._process = loader, os.getpid()
        self._workers: Workers | None = None
        self._jobs = deque[BatchJob]()
        for _ in range(self._batches_ahead):
            self._submit_next()

    @property
    def _batches_ahead(self) -> int:
        return self._num_workers * (self._loader.prefetch_factor or 0)

    def _submit_next(self) -> None:
        """Submit the next batch, if there is one."""
        try:
            indices = next(self._sampler_iter)
        except StopIteration:
            return
        if self._workers is None:
            self._workers = self._open_workers(self._loader.batch_size or len(indices))
        self._submit(indices, self._workers)

    def _open_workers(self, batch_size: int) -> Workers:
        """Return workers for batches of about this size; they go back to the cache when this pass is deleted."""
        each = self._images.threads
        threads = self._num_workers * each if self._num_workers or each == 1 else each
        count = max(self._batches_ahead, 1)
        settings = WorkerSettings(0, threads, False, batch_size * count, count, self._plan.pinned, False)
        loan = contextlib.ExitStack()
        workers, self._jobs = loan.enter_context(self._loader._worker_cache.lend(self._loader, settings, 0))
        self._close = weakref.finalize(self, loan.close)
        workers.begin(self._images, None)
        return workers

    def _submit(self, indices: Sequence[int], workers: Workers) -> None:
        """Submit a batch to the workers; an error is raised later, when this batch is due."""
        rows = np.zeros(0, np.int64)
        try:
            rows = self._turns.of(indices)
            if not len(rows):
                default_collate([])  # raises the error that torch raises for a batch without samples
            if self._images.fetching(1) is not None:
                self._images.ahead(rows)
            (job,) = self._plan.jobs([rows], len(rows), step=workers.step)
            workers.submit(job)
        except Exception as error:
            failed = Future[Any]()
            failed.set_exception(error)
            job = BatchJob(self._plan, rows, futures=[failed])
        self._jobs.append(job)

    def _next_data(self) -> Any:
        if os.getpid() != self._process:
            raise forked(self._process)
        if not self._num_workers:
            self._submit_next()
        if not self._jobs or self._workers is None:
            if self._workers is not None:
                self._close()
            raise StopIteration
        oldest = self._jobs[0]
        try:
            made = [*self._workers.finish(oldest)]
        except Exception:
            oldest.wait()  # other threads may still work on this batch
            self._jobs.popleft()
            self._submit_ahead()
            raise
        self._jobs.popleft()
        self._submit_ahead()
        return pin_memory(made, self._pin_memory_device) if self._pin_memory else made  # type: ignore[no-untyped-call]

    def _submit_ahead(self) -> None:
        """Submit another batch to replace a returned one, if batches are made ahead."""
        if self._num_workers:
            self._submit_next()
