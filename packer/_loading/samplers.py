"""Orders of samples: pure functions of seed, epoch, rank and world size, which start anywhere at once.

Every sampler describes one order of all samples, the same on every rank. Rank r of w takes the places r, r + w,
r + 2 w, … of that order. So the position in an epoch is one number: how many places all ranks together have done. An
epoch that was begun on eight ranks goes on at the very next sample on two.

A sampler owns all that decides the order: seed, epoch and position. The crops of an image are the dataset's.
"""

from __future__ import annotations

import abc
import copy
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from packer._limits import require_count
from packer._loading.ranks import rank_and_world
from packer._loading.states import number_in, require_version
from packer._loading.uniforms import seed_of, uniforms
from packer._table import Ints

__all__ = ["BlockShuffleSampler", "OrderSampler", "SequentialSampler", "ShuffleSampler"]


_CHUNK = 1 << 14
_VERSION = 1  # of the states


class OrderSampler(Sampler[int], abc.ABC):
    """The base of the samplers: an order of `length` samples, cut for a rank.

    Parameters
    ----------
    length : int
        Number of samples, ``len(dataset)``.
    seed : int
        Seed of the order.
    rank, world : int, optional
        This process and how many processes there are; by default those of `torch.distributed`, where it is
        initialised when a pass begins.
    uneven : {"pad", "keep", "drop"}
        What happens where `length` is no multiple of `world`. ``pad``: the first samples come again at the end, so that
        every rank has equally many, as with `DistributedSampler`. ``keep``: each sample comes exactly once, and some
        ranks have one less. ``drop``: the last few are left out.

    Attributes
    ----------
    epoch : int
        The epoch that the next pass gives, or the running pass gives.
    start : int
        The place in the order of all ranks at which that pass begins.
    begun : bool
        Whether a pass over this epoch has begun.

    Notes
    -----
    A pass that has begun keeps its epoch, whatever `set_epoch` says meanwhile. A pass without `set_epoch` before it
    gives the same epoch again, from its first sample.
    """

    def __init__(
        self, length: int, *, seed: int = 0, rank: int | None = None, world: int | None = None, uneven: str = "pad"
    ) -> None:
        require_count("length", length, 0)
        self.length = length
        self.seed = seed_of(seed)
        self.uneven = uneven
        self.epoch = 0
        self.start = 0
        self.begun = False
        self._rank, self._world = rank, world
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank {self.rank} is not one of {self.world}")
        if uneven not in ("pad", "keep", "drop"):
            raise ValueError(f"uneven is 'pad', 'keep' or 'drop', not {uneven!r}")

    @abc.abstractmethod
    def order(self, places: Ints) -> Ints:
        """Return which samples stand at the given places of the present epoch's order."""

    def fingerprint(self) -> dict[str, Any]:
        """Return what the order depends on beside seed and epoch; a state with another fingerprint is refused."""
        return {"kind": type(self).__name__, "length": self.length}

    @property
    def rank(self) -> int:
        return rank_and_world()[0] if self._rank is None else self._rank

    @property
    def world(self) -> int:
        return rank_and_world()[1] if self._world is None else self._world

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass give epoch `epoch`: from its first sample, or from where a state of it was just loaded."""
        if epoch != self.epoch or self.begun:
            self.start = 0
        self.epoch = epoch
        self.begun = False

    def state_dict(self, done: int = 0) -> dict[str, Any]:
        """Return the order and the position in it.

        Parameters
        ----------
        done : int
            How many samples of the present pass this rank has done: steps times batch size. The sampler cannot know,
            because a DataLoader asks for indices ahead of time. `Loader` counts by itself.

        Returns
        -------
        dict
            Numbers and strings only. All ranks return the same as long as all have samples left; rank 0 is right at
            the end of the epoch, too.
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
        """Let the next pass go on where `state_dict` was taken, in the same order, on any number of ranks.

        The seed becomes the state's. A state of packer 0.1.0 has epoch and start only, and leaves the seed.

        Raises
        ------
        ValueError
            If `state` is no such state, or one of another kind of order or another number of samples.
        """
        epoch, start = (number_in(state, name, 0) for name in ("epoch", "start"))
        seed = number_in(state, "seed") if "seed" in state or "version" in state else self.seed
        if "version" in state:
            require_version(state, _VERSION)
            for name, value in self.fingerprint().items():
                if state.get(name) != value:
                    raise ValueError(
                        f"the state is of another order: its {name} is {state.get(name)!r}, and this sampler's is "
                        f"{value!r}. Make the sampler as it was made when the state was taken."
                    )
        elif start > 2 * self.length:  # up to so many where ranks were padded
            raise ValueError(f"the state is at sample {start}, and there are only {self.length}: it is of another pack")
        self.seed = seed
        self.set_epoch(epoch)
        self.start = min(start, self.length)

    def __len__(self) -> int:
        """Return how many samples this rank has from `start` on."""
        return self._count(self.length - self.start)

    @property
    def whole(self) -> int:
        """How many samples this rank has in a whole epoch."""
        return self._count(self.length)

    def _count(self, left: int) -> int:
        """Return how many of the last `left` samples of the order this rank has."""
        left = max(left, 0)
        if self.uneven == "keep":
            return max(0, -(-(left - self.rank) // self.world))
        return -(-left // self.world) if self.uneven == "pad" else left // self.world

    def __iter__(self) -> Iterator[int]:
        return _Pass(self._begin())

    def chunks(self, size: int) -> Iterator[Ints]:
        """Begin a pass, and return an iterator over what iterating gives, many at a time.

        Parameters
        ----------
        size : int
            1 or more.

        Returns
        -------
        iterator of (size,) int64 arrays
            Indices. The last array may have fewer.
        """
        require_count("size", size)
        return self._begin()._cut(size)

    def _cut(self, size: int) -> Iterator[Ints]:
        """Yield the indices from `start` on, `size` at a time, without beginning a pass."""
        count = len(self)
        for begin in range(0, count, size):
            places = self.start + self.rank + self.world * np.arange(begin, min(begin + size, count), dtype=np.int64)
            yield self.order(places % self.length)

    def _begin(self) -> OrderSampler:
        """Begin a pass; return the sampler as it is now, for the pass to use."""
        if self.begun:  # the position of a state is for the first pass after it
            self.start = 0
        self.begun = True
        return copy.copy(self)

    def __repr__(self) -> str:
        settings = {name: value for name, value in self.fingerprint().items() if name != "kind"}
        settings |= {name: getattr(self, name) for name in ("seed", "epoch", "start", "rank", "world", "uneven")}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in settings.items())})"


class _Pass(Iterator[int]):
    """The indices of one pass, with the state after those that were taken: torchdata's StatefulDataLoader asks it."""

    def __init__(self, sampler: OrderSampler) -> None:
        self._sampler = sampler
        self._restart()

    def _restart(self) -> None:
        self._taken = 0
        chunks = self._sampler._cut(_CHUNK)
        self._indices: Iterator[int] = itertools.chain.from_iterable(indices.tolist() for indices in chunks)

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
    """The order of the pack."""

    def order(self, places: Ints) -> Ints:
        return places


class ShuffleSampler(OrderSampler):
    """A new permutation of all samples every epoch."""

    def order(self, places: Ints) -> Ints:
        return permute(places, self.length, self.seed, self.epoch)


class BlockShuffleSampler(OrderSampler):
    """Shuffled blocks of neighbours, mixed in windows: for packs larger than memory, and for disks.

    The pack is cut into blocks of `block` neighbouring samples; the blocks are shuffled; and of every `window` blocks
    in that order the samples are shuffled among each other. So at any time reading stays within `window` small ranges.

    Parameters
    ----------
    length : int
    block : int
        Samples in a block.
    window : int
        Blocks whose samples are mixed.
    seed, rank, world, uneven
        As for `OrderSampler`.
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
            begin = int(ends[number - 1]) if number else 0
            size = int(ends[number]) - begin
            within = permute(places[here] - begin, size, self.seed + 1, (self.epoch << 32) + number)
            members = blocks[number * self.window : (number + 1) * self.window]
            sizes = np.minimum(self.block, self.length - members * self.block)
            block_ends = np.cumsum(sizes)
            slot = np.searchsorted(block_ends, within, side="right")
            result[here] = members[slot] * self.block + within - (block_ends[slot] - sizes[slot])
        return result

    def _layout(self) -> tuple[Ints, Ints]:
        """Return the epoch's order of the blocks, and where each window ends in the order of the samples."""
        settings = (self.length, self.block, self.window, self.seed, self.epoch)
        if self._laid_out is None or self._laid_out[0] != settings:
            count = -(-self.length // self.block)
            blocks = permute(np.arange(count, dtype=np.int64), count, self.seed, self.epoch)
            sizes = np.minimum(self.block, self.length - blocks * self.block)
            ends = np.cumsum(np.add.reduceat(sizes, np.arange(0, count, self.window)))
            self._laid_out = settings, blocks, ends
        return self._laid_out[1:]


_ROUNDS = 6


def permute(places: Ints, length: int, seed: int, epoch: int) -> Ints:
    """Return a permutation of ``range(length)`` at the given places, without computing it elsewhere.

    A Feistel network on the smallest even number of bits that counts `length` things; values that come out too large go
    through it again until they do not (Black, Rogaway 2002, "Ciphers with arbitrary finite domains", cycle walking).
    """
    half = max(1, -(-(length - 1).bit_length() // 2))
    mask = np.uint64((1 << half) - 1)
    keys = (uniforms(seed, epoch, np.arange(_ROUNDS), 1)[:, 0] * 2.0**53).astype(np.uint64)
    values = places.astype(np.uint64)
    wandering = np.ones(len(values), np.bool_)
    with np.errstate(over="ignore"):
        while wandering.any():
            left, right = values[wandering] >> np.uint64(half), values[wandering] & mask
            for key in keys:
                mixed = (right + key) * np.uint64(0xBF58476D1CE4E5B9)
                mixed ^= mixed >> np.uint64(29)
                mixed *= np.uint64(0x94D049BB133111EB)
                left, right = right, left ^ (mixed >> np.uint64(32)) & mask
            values[wandering] = left << np.uint64(half) | right
            wandering = values >= np.uint64(length)
    return values.astype(np.int64)
