"""The sampling of a Loader: the order of the samples, the seed for their crops, and states to resume from."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import RandomSampler, Sampler

from packer._datasets.concat import ConcatBatches
from packer._datasets.protocol import LoaderDataset
from packer._datasets.sample_view import normalized_indices
from packer._table import Ints
from packer.errors import OptionError, OptionTypeError, warn
from packer.samplers import BlockShuffleSampler, OrderSampler, SequentialSampler, ShuffleSampler
from packer.samplers._orders import (
    agreed,
    gathered,
    number_in,
    rank_and_world,
    require_same,
    require_same_seeds,
    require_version,
)
from packer.samplers._random import earlier, epoch_of, seed_of
from packer.samplers._weighted import MixSampler

_VERSION = 2  # of the format of states
_warned = set[str]()


class SamplingState:
    """The order of a Loader's samples and the seed for their crops; a Loader's state consists of both.

    Each kind of random choice depends on one seed: the order on the sampler's seed, and crops on the dataset's seed. If
    sampler or dataset has no seed, the Loader's seed is used. The order and the crops also depend on the epoch.

    Parameters
    ----------
    images : LoaderDataset
    sampler : OrderSampler or iterable of int, optional
        The same as for `Loader`.
    shuffle : bool
    seed : int, optional
        The same as for `Loader`.

    Attributes
    ----------
    images : LoaderDataset
    order : OrderSampler or IterableOrder

    Raises
    ------
    TypeError, ValueError
        If `sampler` is not a sampler, or contradicts the other arguments.
    """

    def __init__(self, images: LoaderDataset, sampler: Any, *, shuffle: bool, seed: int | None) -> None:
        self._images = images
        self._seed = int(torch.empty((), dtype=torch.int64).random_()) if seed is None else seed_of(seed)
        self._is_agreed = seed is not None  # whether all ranks have the same seed, whatever their number
        self._agreed_among = 1  # the number of ranks that have agreed on the seed
        self._restored: int | None = None  # the seed for crops from a loaded state
        if sampler is not None and shuffle:
            raise OptionError("shuffle cannot be combined with a sampler, which determines the order")
        if sampler is not None and seed is not None:
            raise OptionError(
                "seed cannot be combined with a sampler: pass a seed to the sampler, and one for crops to the dataset"
            )
        if sampler is not None:
            self.sampler = sampler
        else:
            self.sampler = (ShuffleSampler if shuffle else SequentialSampler)(len(images), seed=self._seed)
            self._chose_order = True

    @property
    def sampler(self) -> Any:
        """The user's sampler, which determines the order."""
        return self.order.indices if isinstance(self.order, IterableOrder) else self.order

    @sampler.setter
    def sampler(self, sampler: Any) -> None:
        order = order_of(sampler)
        _require_samples(order, self.images)
        self.order, self._chose_order = order, False

    @property
    def images(self) -> LoaderDataset:
        """The dataset to read."""
        return self._images

    @images.setter
    def images(self, images: LoaderDataset) -> None:
        _require_samples(self.order, images)
        self._images = images

    @property
    def resumes(self) -> bool:
        """True if the running pass resumed from a state; then it is shorter than an epoch."""
        return isinstance(self.order, OrderSampler) and self.order.start > 0

    @property
    def block(self) -> int:
        """The number of neighbouring samples that are all read soon after one of them is read."""
        return self.order.block if isinstance(self.order, BlockShuffleSampler) else 1

    def chunks(self, size: int) -> Iterator[Ints]:
        """Begin a pass, and return an iterator over arrays of up to `size` indices, each with its turn, see `Turns`."""
        warn_of_random_order(self.images, self.sampler)
        if isinstance(self.order, IterableOrder):
            return in_turns(self.order.chunks(size), len(self.images))
        return _with_turns(self.order.chunks_with_turns(size), len(self.images))

    @property
    def crop_seed(self) -> int:
        """The seed for crops: from a loaded state, otherwise the dataset's, otherwise the Loader's."""
        if self._restored is not None:
            return self._restored
        seed = self.images.traits().seed
        return self._seed if seed is None else seed

    def agree_on_seed(self, seeds_transforms: bool = False) -> None:
        """Give all ranks the seed that rank 0 drew, if anything depends on it. All ranks must call this method."""
        shuffles = self._chose_order and isinstance(self.order, ShuffleSampler)
        world = rank_and_world()[1]
        if self._is_agreed or world == self._agreed_among:
            return
        self._agreed_among = world
        traits = self.images.traits()
        if not (shuffles or ((traits.random or seeds_transforms) and traits.seed is None)):
            return
        self._seed = agreed(self._seed)
        if shuffles:
            self.sampler.seed = self._seed

    def state(self, done: int, batch_size: int) -> dict[str, Any]:
        """Return the state after `done` samples of this rank; raise TypeError if the order has no state."""
        return {
            "version": _VERSION,
            "sampler": self.order.state_dict(done),
            "crop_seed": self.crop_seed,
            "pack": self.images.identity(),
            "images": dict(self.images.settings()),
            "batch_size": batch_size,
        }

    def state_of_next_epoch(self, batch_size: int) -> dict[str, Any]:
        """Return the state at the beginning of the epoch after this one."""
        state = self.state(0, batch_size)
        return {**state, "sampler": {**state["sampler"], "epoch": self.order.epoch + 1, "start": 0}}

    def load(self, state: Mapping[str, Any], batch_size: int | None) -> None:
        """Let the next pass resume from a state. Raises the same errors as `Loader.load_state_dict`.

        Parameters
        ----------
        batch_size : int, optional
            The batch size that the state must have; None accepts any.
        """
        if isinstance(self.order, IterableOrder):
            raise OptionTypeError(f"only packer's samplers can resume at any sample, not {self.sampler!r}")
        if not isinstance(state, Mapping):
            raise OptionTypeError(f"a state must be a dict from `state_dict`, not {state!r}")
        if "version" not in state:
            order_seed = None if self._chose_order else self.order.seed
            traits = self.images.traits()
            require_same_seeds(state, order_seed, traits.seed if traits.random else None)
            self.order.load_state_dict(state)
            self._take(number_in(state, "seed"))
            return
        require_version(state, _VERSION)
        crop_seed = number_in(state, "crop_seed")
        require_same(
            state,
            "pack",
            self.images.identity(),
            f"This dataset is {self.images!r}: open the samples of the earlier run.",
        )
        if batch_size is not None:
            require_same(
                state,
                "batch_size",
                batch_size,
                "Make the Loader with the earlier batch size, or load the state with strict=False.",
            )
        self.order.load_state_dict(state.get("sampler", {}))
        self._take(crop_seed)
        now = dict(self.images.settings())
        then = state.get("images", now)
        if then != now:
            warn(f"the state belongs to a run with other image settings: {then!r}, but this run has {now!r}")

    def _take(self, crop_seed: int) -> None:
        """Use `crop_seed`, which comes from a loaded state; all ranks load the same state.

        The dataset's own seed does not change.
        """
        self._is_agreed = True
        self._restored = crop_seed


def _require_samples(order: OrderSampler | IterableOrder, images: LoaderDataset) -> None:
    """Raise ValueError if an order does not fit the number of samples."""
    if isinstance(order, OrderSampler):
        order.require_samples(len(images))
    if isinstance(order, MixSampler) and isinstance(images, ConcatBatches):
        order.require_datasets(images.dataset.datasets, whole=images.whole)


def warn_of_random_order(images: LoaderDataset, sampler: object) -> None:
    """Warn once in this process that a random order over a pack at a URL fetches samples one by one."""
    if images.fetching(1) is None or not isinstance(sampler, ShuffleSampler | RandomSampler) or _warned:
        return
    _warned.add("random order")
    warn(
        f"a random order over a pack at a URL fetches each of its {len(images):,} samples with a separate request "
        "until the cache has them. sampler=packer.BlockShuffleSampler(len(dataset)) shuffles blocks of neighbouring "
        "samples, and one request fetches several samples",
        RuntimeWarning,
    )


def _with_turns(draws: Iterable[tuple[Ints, Ints | None]], length: int) -> Iterator[Ints]:
    """Convert the results of a packer sampler's `draws` to indices that contain the turns: sample + turn * length."""
    for samples, turns in draws:
        yield samples if turns is None else samples + turns * length


def in_turns(chunks: Iterable[Ints], length: int) -> Iterator[Ints]:
    """Convert the indices of an epoch to indices that contain the turns, by `Turns.of`."""
    turns = Turns(length)
    return (turns.of(indices) for indices in chunks)


class Turns:
    """Counts the occurrences of each of `length` samples in an epoch.

    A sampler, such as a weighted one, may return a sample several times. The turn, which is the number of earlier
    occurrences, gives the sample another crop each time.
    """

    def __init__(self, length: int) -> None:
        self._length, self._times = length, np.zeros(length, np.int64)

    def of(self, indices: Sequence[int] | Ints) -> Ints:
        """Return the next indices with turns: `length` is added to an index for every earlier occurrence of its sample.

        Raises
        ------
        IndexError
            If there is no such sample.
        """
        samples = normalized_indices(indices, self._length)
        turns = earlier(samples) + self._times[samples]
        np.add.at(self._times, samples, 1)
        return samples + turns * self._length


def order_of(sampler: Any) -> OrderSampler | IterableOrder:
    """Return one of packer's samplers unchanged, and any other iterable of indices as an IterableOrder."""
    # A subclass with an `__iter__` of its own may give another order, which cannot be resumed.
    if isinstance(sampler, OrderSampler) and type(sampler).__iter__ is OrderSampler.__iter__:
        return sampler
    return IterableOrder(sampler)


class IterableOrder:
    """The order of any iterable of indices, with the methods of packer's samplers that a Loader needs.

    The order cannot be resumed.

    If `torch.distributed` is initialised, each rank gets its share: rank r of w takes the indices at the positions r, r
    + w, … of rank 0's list. If the number of indices is not a multiple of w, the first indices are repeated at the end.
    Samplers that divide the indices themselves, as `DistributedSampler` does, are not divided again.

    Parameters
    ----------
    indices : iterable of int
        The iterable, iterated anew for each pass. If it has `set_epoch` and `epoch`, these are used.

    Raises
    ------
    TypeError
        If `indices` is a string, or can be iterated only once or not at all.
    """

    def __init__(self, indices: Iterable[int]) -> None:
        try:
            if isinstance(indices, str | bytes):  # iterable, but not over indices
                raise TypeError
            once = iter(indices) is indices
        except TypeError:
            raise OptionTypeError(f"a sampler must be an iterable of indices, not {indices!r}") from None
        if once:
            raise OptionTypeError(
                f"a sampler must return its indices again in each epoch, but {indices!r} returns them only once: pass "
                "a list, or a class with `__iter__`"
            )
        self.indices = indices
        self._epoch = 0
        self._begun_in: int | None = None

    @property
    def epoch(self) -> int:
        return getattr(self.indices, "epoch", self._epoch) if hasattr(self.indices, "set_epoch") else self._epoch

    @property
    def begun(self) -> bool:
        return self._begun_in == self.epoch

    def set_epoch(self, epoch: int) -> None:
        self._epoch, self._begun_in = epoch_of(epoch), None
        if hasattr(self.indices, "set_epoch"):
            self.indices.set_epoch(self._epoch)

    def __len__(self) -> int:
        try:
            length = len(self.indices)  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):
            raise OptionTypeError(
                f"the sampler has no len(), so the number of batches is unknown: {self.indices!r}"
            ) from None
        return math.ceil(length / self._ranks)

    @property
    def whole(self) -> int:
        """The number of indices that this rank gets in an epoch."""
        return len(self)

    def chunks(self, size: int) -> Iterator[Ints]:
        """Begin a pass, and return an iterator over its indices, as arrays of up to `size`.

        Raises
        ------
        ValueError
            If the ranks have different lists of indices.
        """
        self._begun_in = self.epoch
        indices: Iterable[int] = map(_index, self.indices)
        return _cut(indices if self._ranks == 1 else self._share(np.fromiter(indices, np.int64)), size)

    @property
    def _ranks(self) -> int:
        """The number of ranks among which this class divides the indices."""
        divides_itself = isinstance(self.indices, OrderSampler) or hasattr(self.indices, "num_replicas")
        return 1 if divides_itself else rank_and_world()[1]

    def _share(self, indices: Ints) -> list[int]:
        """Return this rank's share of rank 0's indices."""
        # Samplers may draw different indices on each rank. Other iterables must not differ: they were divided already.
        if not isinstance(self.indices, Sampler) and len(set(gathered(indices.tobytes()))) > 1:
            raise OptionError(
                "sampler= has different lists of indices on different ranks. A Loader divides the indices among the "
                "ranks itself: pass the same complete list on each rank"
            )
        rank, world = rank_and_world()
        whole: Ints = agreed(indices)
        missing = -len(whole) % world
        padded = np.concatenate([whole, np.resize(whole, missing)]) if len(whole) else whole
        return padded[rank::world].tolist()  # type: ignore[no-any-return]

    def state_dict(self, done: int = 0) -> dict[str, Any]:
        """Raise TypeError, because the position inside the iterable is unknown."""
        raise OptionTypeError(
            f"an epoch in the order of sampler={type(self.indices).__name__} cannot be resumed, so it has no state; "
            "only packer's samplers can resume at any sample, such as packer.ShuffleSampler, "
            "packer.BlockShuffleSampler and packer.samplers.WeightedSampler"
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise TypeError, as `state_dict` does."""
        self.state_dict()


def _index(index: Any) -> int:
    if isinstance(index, (bool, np.bool_)):
        raise OptionTypeError(
            "a sampler must return integers, not a mask of booleans: pass np.flatnonzero(mask).tolist()"
        )
    return operator.index(index)


def _cut(indices: Iterable[int], size: int) -> Iterator[Ints]:
    remaining = iter(indices)
    while len(chunk := np.fromiter(itertools.islice(remaining, size), np.int64)):
        yield chunk
