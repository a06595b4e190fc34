"""Samplers for which every sample occurs once in an epoch, and the base class of all samplers.

The base class divides an order among ranks, and saves and loads the position in it.
"""

from __future__ import annotations

import abc
import copy
import itertools
import operator
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from packer._storage.system import require_count
from packer._table import Ints
from packer.errors import OptionError, OptionTypeError, warn
from packer.samplers._random import digest_of, earlier, epoch_of, permute, seed_of

_CHUNK = 1 << 14
_VERSION = 1  # version of the format of states


class OrderSampler(Sampler[int], abc.ABC):
    """The base class of the samplers: an order of `length` samples, divided among ranks.

    Parameters
    ----------
    length : int
        The number of samples in an epoch: ``len(dataset)`` if every sample occurs once.
    seed : int
        Seed of the order.
    rank, world : int, optional
        The rank of this process and the number of processes; by default from `torch.distributed`, if it is initialised
        when a pass begins.
    uneven : {"pad", "keep", "drop"}
        What happens if `length` is not a multiple of `world`. ``pad``: the first samples are repeated at the end, so
        that all ranks have the same number of samples, as with `DistributedSampler`. ``keep``: nothing is repeated or
        left out, and some ranks have one sample less. ``drop``: the last samples are left out.

    Attributes
    ----------
    epoch : int
        The epoch of the running pass, or of the next pass.
    start : int
        The position at which this pass begins, in the order that all ranks share.
    begun : bool
        Whether a pass over this epoch has begun.

    Notes
    -----
    A running pass keeps its epoch, even if `set_epoch` is called. A new pass without a call of `set_epoch` repeats the
    same epoch from its first sample.
    """

    _drawn = True
    """Whether the order changes from epoch to epoch."""

    _warned = False

    def __init__(
        self, length: int, *, seed: int = 0, rank: int | None = None, world: int | None = None, uneven: str = "pad"
    ) -> None:
        require_count("length", length, 0)
        self.length = length
        self.seed = seed
        self.uneven = uneven
        self.epoch = 0
        self.start = 0
        self.begun = False
        self._rank, self._world = rank, world
        if not 0 <= self.rank < self.world:
            raise OptionError(f"rank must be 0 or more and below world={self.world}, not {self.rank}")
        if uneven not in ("pad", "keep", "drop"):
            raise OptionError(f"uneven must be 'pad', 'keep' or 'drop', not {uneven!r}")

    @property
    def seed(self) -> int:
        return self._seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self._seed = seed_of(seed)

    @abc.abstractmethod
    def order(self, places: Ints) -> Ints:
        """Return the samples at some positions in the order of the current epoch."""

    def draws(self, places: Ints) -> tuple[Ints, Ints | None]:
        """Return the samples at some positions of the order, and a turn for each sample.

        A turn distinguishes the repetitions of a sample. If a sample occurs several times in an epoch, a Loader uses
        the turns to choose another crop each time.

        Parameters
        ----------
        places : (N,) int64 array

        Returns
        -------
        samples : (N,) int64 array
            The samples that `order` returns.
        turns : (N,) int64 array, optional
            Numbers from 0 on, different for each repetition of a sample in the epoch; None if no sample occurs twice.
        """
        return self.order(places), None

    def require_samples(self, count: int) -> None:
        """Raise ValueError if the order does not fit a dataset of `count` samples."""
        if count != self._samples:
            raise OptionError(f"the sampler orders {self._samples} samples, but the dataset has {count}")

    @property
    def _samples(self) -> int:
        """The number of samples in the dataset."""
        return self.length

    def fingerprint(self) -> dict[str, Any]:
        """Return the settings of the order except seed and epoch; a state with a different fingerprint is refused."""
        return {"kind": type(self).__name__, "length": self.length}

    @property
    def rank(self) -> int:
        return rank_and_world()[0] if self._rank is None else self._rank

    @property
    def world(self) -> int:
        return rank_and_world()[1] if self._world is None else self._world

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass.

        The pass begins at its first sample, or at the position of a state that was just loaded.
        """
        epoch = epoch_of(epoch)
        if epoch != self.epoch or self.begun:
            self.start = 0
        self.epoch = epoch
        self.begun = False

    def state_dict(self, done: int = 0) -> dict[str, Any]:
        """Return the settings of the order, and the position that the pass has reached.

        Parameters
        ----------
        done : int
            The number of samples of the current pass that this rank has completed: steps times batch size. The sampler
            cannot know this number, because a DataLoader requests indices ahead of time. A `Loader` counts the samples
            itself.

        Returns
        -------
        dict
            The state: only numbers, strings and lists of these. All ranks return the same state as long as all ranks
            have samples left; at the end of the epoch, use the state of rank 0.
        """
        start = min(self.start + done * self.world, self.length)
        return {
            "version": _VERSION,
            **self.fingerprint(),
            "seed": self.seed,
            "epoch": self.epoch,
            "start": start,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass continue at the position in a saved state, in the same order, on any number of ranks.

        The sampler takes the seed of the state. A state that packer 0.1.0 saved contains only epoch and start, so the
        sampler keeps its seed.

        Raises
        ------
        ValueError
            If `state` is not the state of a sampler, or belongs to another kind of order or another number of samples.
        """
        epoch, start = (number_in(state, name, 0) for name in ("epoch", "start"))
        seed = number_in(state, "seed") if "seed" in state or "version" in state else self.seed
        if "version" in state:
            require_version(state, _VERSION)
            for name, value in self.fingerprint().items():
                if state.get(name) != value:
                    raise OptionError(
                        f"the state belongs to another order: its {name} is {state.get(name)!r}, but this sampler's "
                        f"is {value!r}. Make the sampler with the settings of the state."
                    )
        elif start > 2 * self.length:  # repeated samples, which fill up the ranks, at most double the positions
            raise OptionError(
                f"the state is at sample {start}, but there are only {self.length}: it belongs to another pack"
            )
        self.seed = seed
        self.set_epoch(epoch)
        self.start = min(start, self.length)

    def __len__(self) -> int:
        """Return the number of samples that remain for this rank, from the position `start` to the end."""
        return self._count(self.length - self.start)

    @property
    def whole(self) -> int:
        """The number of samples of this rank in a whole epoch."""
        return self._count(self.length)

    def _count(self, left: int) -> int:
        """Return the number of this rank's samples among the last `left` samples of the order."""
        left = max(left, 0)
        if self.uneven == "keep":
            return max(0, -(-(left - self.rank) // self.world))
        return -(-left // self.world) if self.uneven == "pad" else left // self.world

    def __iter__(self) -> Iterator[int]:
        if self.begun and self._drawn and not self._warned and _iterated_by_torch():
            self._warned = True
            warn(
                f"this pass of {type(self).__name__} repeats the order of the previous pass, epoch {self.epoch}: call "
                "sampler.set_epoch(epoch) in every epoch of torch's DataLoader. A packer.Loader does this itself"
            )
        return _Pass(self._begin())

    def chunks(self, size: int) -> Iterator[Ints]:
        """Begin a pass, and return an iterator over chunks of its indices.

        Parameters
        ----------
        size : int
            The length of a chunk, 1 or more.

        Returns
        -------
        iterator of (size,) int64 arrays
            The indices. The last array may be shorter.
        """
        return (samples for samples, _ in self.chunks_with_turns(size))

    def chunks_with_turns(self, size: int) -> Iterator[tuple[Ints, Ints | None]]:
        """Begin a pass, and return an iterator over chunks of `size` samples, each in the form that `draws` returns."""
        require_count("size", size)
        return self._begin()._remaining(size)

    def _remaining(self, size: int) -> Iterator[tuple[Ints, Ints | None]]:
        """Yield the same as `chunks_with_turns`, beginning at the position `start`, but do not begin a pass."""
        count = len(self)
        for first in range(0, count, size):
            places = self.start + self.rank + self.world * np.arange(first, min(first + size, count), dtype=np.int64)
            yield self.draws(places % self.length)

    def _begin(self) -> OrderSampler:
        """Begin a pass, and return a copy of the sampler for the pass to use."""
        if self.begun:  # only the first pass after `load_state_dict` begins at the position in the state
            self.start = 0
        self.begun = True
        return copy.copy(self)

    def __repr__(self) -> str:
        settings = {name: value for name, value in self.fingerprint().items() if name != "kind"}
        settings |= {name: getattr(self, name) for name in ("seed", "epoch", "start", "rank", "world", "uneven")}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in settings.items())})"


def _iterated_by_torch() -> bool:
    """Tell whether torch's DataLoader iterates the sampler: only its passes count as epochs, not a user's own loop."""
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return str(caller).startswith("torch.utils.data")


class _Pass(Iterator[int]):
    """The indices of one pass. torchdata's StatefulDataLoader saves and loads its state."""

    def __init__(self, sampler: OrderSampler) -> None:
        self._sampler = sampler
        self._restart()

    def _restart(self) -> None:
        self._taken = 0
        chunks = self._sampler._remaining(_CHUNK)
        self._indices: Iterator[int] = itertools.chain.from_iterable(samples.tolist() for samples, _ in chunks)

    def __next__(self) -> int:
        index = next(self._indices)
        self._taken += 1
        return index

    def state_dict(self) -> dict[str, Any]:
        return self._sampler.state_dict(self._taken)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sampler.load_state_dict(state)
        self._restart()


class SequentialSampler(OrderSampler):
    """All samples in the order of the pack."""

    _drawn = False

    def order(self, places: Ints) -> Ints:
        return places


class ShuffleSampler(OrderSampler):
    """A new permutation of all samples every epoch."""

    def order(self, places: Ints) -> Ints:
        return permute(places, self.length, self.seed, self.epoch)


class BlockShuffleSampler(OrderSampler):
    """Shuffled blocks of adjacent samples, mixed in windows: for a pack larger than memory, or on a slow disk.

    The pack is divided into blocks of `block` adjacent samples. The blocks are shuffled, and the samples of every
    `window` consecutive blocks are shuffled together. So at any time, samples are read only from `window` small ranges
    of the pack.

    Parameters
    ----------
    length : int
    block : int
        The number of samples in a block.
    window : int
        The number of blocks whose samples are mixed.
    seed, rank, world, uneven
        The same as for `OrderSampler`.
    """

    def __init__(
        self,
        length: int,
        block: int = 256,
        window: int = 64,
        *,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        uneven: str = "pad",
    ) -> None:
        super().__init__(length, seed=seed, rank=rank, world=world, uneven=uneven)
        require_count("block", block)
        require_count("window", window)
        self.block = block
        self.window = window
        self._laid_out: tuple[tuple[int, ...], Ints, Ints] | None = None

    def fingerprint(self) -> dict[str, Any]:
        return {**super().fingerprint(), "block": self.block, "window": self.window}

    def order(self, places: Ints) -> Ints:
        blocks, ends = self._layout()
        windows = np.searchsorted(ends, places, side="right")
        result = np.empty_like(places)
        for number in np.unique(windows).tolist():
            here = windows == number
            first = int(ends[number - 1]) if number else 0
            size = int(ends[number]) - first
            within = permute(places[here] - first, size, self.seed + 1, (self.epoch << 32) + number)
            members = blocks[number * self.window : (number + 1) * self.window]
            sizes = np.minimum(self.block, self.length - members * self.block)
            block_ends = np.cumsum(sizes)
            slot = np.searchsorted(block_ends, within, side="right")
            result[here] = members[slot] * self.block + within - (block_ends[slot] - sizes[slot])
        return result

    def _layout(self) -> tuple[Ints, Ints]:
        """Return the order of the blocks in this epoch, and the position at which each window of blocks ends."""
        settings = (self.length, self.block, self.window, self.seed, self.epoch)
        if self._laid_out is None or self._laid_out[0] != settings:
            count = -(-self.length // self.block)
            blocks = permute(np.arange(count, dtype=np.int64), count, self.seed, self.epoch)
            sizes = np.minimum(self.block, self.length - blocks * self.block)
            ends = np.cumsum(np.add.reduceat(sizes, np.arange(0, count, self.window)))
            self._laid_out = settings, blocks, ends
        return self._laid_out[1:]


class SubsetSampler(OrderSampler):
    """A new permutation of some samples every epoch.

    Parameters
    ----------
    indices : (N,) sequence of int
        Indices of the samples to use, each 0 or more. If an index is listed twice, its sample occurs twice in an epoch.
    seed, rank, world, uneven
        The same as for `OrderSampler`.

    Raises
    ------
    TypeError, ValueError
        If `indices` are not integers of 0 or more.
    """

    def __init__(
        self,
        indices: Sequence[int] | Ints,
        *,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        uneven: str = "pad",
    ) -> None:
        self._indices = _indices_of(indices)
        super().__init__(len(self._indices), seed=seed, rank=rank, world=world, uneven=uneven)
        turns = earlier(self._indices)
        self._turns = turns if turns.any() else None
        self._digest = digest_of(self._indices)

    def order(self, places: Ints) -> Ints:
        return self.draws(places)[0]

    def draws(self, places: Ints) -> tuple[Ints, Ints | None]:
        chosen = permute(places, self.length, self.seed, self.epoch)
        return self._indices[chosen], None if self._turns is None else self._turns[chosen]

    def require_samples(self, count: int) -> None:
        """Raise ValueError if a dataset of `count` samples lacks one of the indices."""
        if self.length and self._indices.max() >= count:
            raise OptionError(f"the sampler has index {self._indices.max()}, but the dataset has {count} samples")

    def fingerprint(self) -> dict[str, Any]:
        return {**super().fingerprint(), "indices": self._digest}


def _indices_of(values: Any) -> Ints:
    indices = np.asarray(values)
    if indices.ndim != 1 or indices.dtype.kind == "b":
        raise OptionTypeError(
            f"indices must be integers in one dimension, not {indices.dtype} of shape {indices.shape}. For a mask use "
            "np.flatnonzero(mask)"
        )
    if indices.dtype.kind not in "iu":
        try:
            indices = np.array([operator.index(index) for index in values], np.int64)
        except TypeError:
            raise OptionTypeError(f"indices must be integers, not {indices.dtype}") from None
    if len(indices) and indices.min() < 0:
        raise OptionError(f"indices must be 0 or more, but one is {indices.min()}")
    return indices.astype(np.int64)


def rank_and_world() -> tuple[int, int]:
    """Return this process's rank and the number of ranks; 0 and 1 if `torch.distributed` is not initialised."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def agreed(value: Any) -> Any:
    """Return rank 0's value on every rank. All ranks must call this, each with its own value."""
    if rank_and_world()[1] == 1:
        return value
    import torch.distributed as dist

    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def gathered(value: Any) -> list[Any]:
    """Return the values of all ranks, in the order of the ranks. All ranks must call this, each with its own value."""
    world = rank_and_world()[1]
    if world == 1:
        return [value]
    import torch.distributed as dist

    values: list[Any] = [None] * world
    dist.all_gather_object(values, value)
    return values


def require_version(state: Mapping[str, Any], known: int) -> None:
    """Raise ValueError if a state has a version that is newer than `known`."""
    version = number_in(state, "version", 1)
    if version > known:
        raise OptionError(
            f"a newer packer made the state (version {version}; this packer supports up to {known}): update packer"
        )


def number_in(state: Mapping[str, Any], name: str, least: int | None = None) -> int:
    """Return an integer from a state; ValueError if it is missing, not an integer, or less than `least`."""
    try:
        number = operator.index(state[name])
    except (KeyError, TypeError, IndexError):
        raise OptionError(f"this is not a state from `state_dict`: it has no number {name!r}: {state!r}") from None
    if least is not None and number < least:
        raise OptionError(f"this is not a state from `state_dict`: its {name} is {number}")
    return number


def require_same(state: Mapping[str, Any], name: str, value: Any, advice: str) -> None:
    """Raise ValueError if a state has a value that differs from this run's `value`. Older states may lack the value."""
    if state.get(name, value) != value:
        raise OptionError(
            f"the state belongs to another run: its {name} is {state[name]!r}, but this run has {value!r}. {advice}"
        )


def require_same_seeds(state: Mapping[str, Any], order_seed: int | None, crop_seed: int | None) -> None:
    """Raise ValueError if the seed in a state of packer 0.1.0 is not the seed of both the order and the crops.

    Such a state has only one seed.

    Parameters
    ----------
    state : mapping
        The state.
    order_seed, crop_seed : int or None
        The seeds of the sampler and of the dataset. A seed is None if the state's seed replaces it, or if nothing is
        random.
    """
    seed, _epoch, _start = (number_in(state, name) for name in ("seed", "epoch", "start"))
    if order_seed is not None and order_seed != seed:
        raise OptionError(
            f"the state of packer 0.1.0 has seed {seed}, but the sampler has seed {order_seed}, so it is unclear which "
            "order the state belongs to. If it is the order of this sampler, load it there: "
            f"loader.sampler.load_state_dict({{'epoch': {state['epoch']!r}, 'start': {state['start']!r}}}). "
            f"The crops have seed {seed}; then open the dataset with it."
        )
    if crop_seed is not None and crop_seed != seed:
        raise OptionError(
            f"the crops of this state have seed {seed}: open the dataset with seed={seed}, not {crop_seed}"
        )
