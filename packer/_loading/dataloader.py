"""torch's DataLoader, of which threads make the batches where nothing is left to do to each image by itself."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
import torch.utils.data
from torch.utils.data import BatchSampler, IterableDataset, default_collate
from torch.utils.data.dataloader import _BaseDataLoaderIter

from packer._loading.course import say_what_is_slow
from packer._loading.foreign import order_of
from packer._loading.joining import UnreadableError, readable
from packer._loading.keeping import Kept
from packer._loading.passes import Place, Progress, Source, ThreadsPass, TorchPass, TorchWorkersPass
from packer._loading.readable import ItemsError, Readable
from packer._table import Ints
from packer.errors import warn
from packer.samplers import OrderSampler
from packer.samplers._states import number_in, require_same, require_version

__all__ = ["DataLoader"]

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
            source = Source(images, images._in_batches())
        except ItemsError as error:
            self._warn_once(f"packer's threads do not make these batches, but torch's DataLoader does, as {error}")
            return None
        if self.worker_init_fn is not None and self.num_workers:
            self._warn_once(
                "worker_init_fn is not called, as packer's threads make the batches, and not worker processes"
            )
        say_what_is_slow(images, getattr(self.batch_sampler, "sampler", None))
        return source

    def _images(self) -> Readable:
        if not self._auto_collation:
            raise ItemsError("batch_size=None makes no batches")
        if self.collate_fn is not default_collate:
            raise ItemsError("collate_fn= makes batches of items")
        try:
            return readable(self.dataset)
        except UnreadableError as error:
            raise ItemsError(error.reason) from None
        except (TypeError, ValueError, IndexError) as error:  # which torch may raise of a sample, or never
            raise ItemsError(f"the datasets are not read as one: {error}") from None

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
            return readable(self.dataset)._identity()
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

    def next(self, images: Readable, base_seed: int, restored: tuple[int, int] | None) -> tuple[int, int]:
        """Return seed and epoch of the next pass, those of a state if there is one."""
        first, said = images._crop_epoch if images._seeded else (0, 0)
        of = (first, said) if images._seeded else (base_seed,)
        if of != self._of:
            self._of, self._count = of, 0
        if restored is not None:
            self._count = restored[1] - first + 1
            return restored
        self._count += 1
        return base_seed if images.seed is None else images.seed, first + self._count - 1
