"""Orders of samples: pure functions of seed, epoch, rank and world size, which start anywhere at once.

Every sampler describes one order of all samples, the same on every rank; rank r of w takes the places r, r + w,
r + 2 w, … of it. So the state of an epoch is one number, how many places all ranks together have done, and an epoch
that was begun on eight ranks goes on at the very next sample on two.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from packer.crops import uniforms

__all__ = ["BlockShuffleSampler", "OrderSampler", "SequentialSampler", "ShuffleSampler"]

Ints = npt.NDArray[np.int64]

_CHUNK = 1 << 14


class OrderSampler(Sampler[int], abc.ABC):
    """The base of the samplers: an order of `length` samples, cut for a rank.

    Parameters
    ----------
    length : int
        Number of samples, ``len(dataset)``.
    seed : int
    rank, world : int
        This process and how many there are; by default those of `torch.distributed`, where it is initialised.
    uneven : {"pad", "keep", "drop"}
        What happens where `length` is no multiple of `world`. ``pad``: the first samples come again at the end, so that
        every rank has equally many, as with `DistributedSampler`. ``keep``: each sample comes exactly once, and some
        ranks have one less. ``drop``: the last few are left out.
    """

    def __init__(
        self, length: int, *, seed: int = 0, rank: int | None = None, world: int | None = None, uneven: str = "pad"
    ) -> None:
        default_rank, default_world = _distributed()
        self.length = length
        self.seed = seed
        self.rank = default_rank if rank is None else rank
        self.world = default_world if world is None else world
        self.uneven = uneven
        self.epoch = 0
        self.start = 0
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank {self.rank} is not one of {self.world}")
        if uneven not in ("pad", "keep", "drop"):
            raise ValueError(f"uneven is 'pad', 'keep' or 'drop', not {uneven!r}")

    @abc.abstractmethod
    def order(self, places: Ints) -> Ints:
        """Return which samples stand at the given places of the present epoch's order."""

    def set_epoch(self, epoch: int) -> None:
        """Begin epoch `epoch` at its first sample."""
        self.epoch = epoch
        self.start = 0

    def state_dict(self) -> dict[str, Any]:
        """Return epoch and start; see `load_state_dict`."""
        return {"epoch": self.epoch, "start": self.start}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on at place ``state["start"]`` of the order of all ranks, in epoch ``state["epoch"]``."""
        self.epoch, self.start = int(state["epoch"]), int(state["start"])

    def __len__(self) -> int:
        """Return how many samples this rank has from `start` on."""
        left = max(self.length - self.start, 0)
        if self.uneven == "keep":
            return max(0, -(-(left - self.rank) // self.world))
        return -(-left // self.world) if self.uneven == "pad" else left // self.world

    def __iter__(self) -> Iterator[int]:
        for indices in self.chunks(_CHUNK):
            yield from indices.tolist()

    def chunks(self, size: int) -> Iterator[Ints]:
        """Yield what iterating does, many at a time.

        Parameters
        ----------
        size : int
            1 or more.

        Yields
        ------
        (size,) int64 array
            Indices. The last array may have fewer.
        """
        count = len(self)
        for begin in range(0, count, size):
            places = self.start + self.rank + self.world * np.arange(begin, min(begin + size, count), dtype=np.int64)
            yield self.order(places % self.length)


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
    """

    def __init__(self, length: int, block: int = 256, window: int = 64, **settings: Any) -> None:
        super().__init__(length, **settings)
        if block < 1 or window < 1:
            raise ValueError("block and window are 1 or more")
        self.block = block
        self.window = window
        self._laid_out: tuple[int, Ints, Ints] | None = None

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
        if self._laid_out is None or self._laid_out[0] != self.epoch:
            count = -(-self.length // self.block)
            blocks = permute(np.arange(count, dtype=np.int64), count, self.seed, self.epoch)
            sizes = np.minimum(self.block, self.length - blocks * self.block)
            ends = np.cumsum(np.add.reduceat(sizes, np.arange(0, count, self.window)))
            self._laid_out = self.epoch, blocks, ends
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


def _distributed() -> tuple[int, int]:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
