"""Orders in which every sample comes once: the pack's own, and permutations.

Some of the samples, shuffled.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from packer._storage.system import require_count
from packer._table import Ints
from packer.samplers._base import OrderSampler
from packer.samplers._random import digest_of, earlier, permute

__all__ = ["BlockShuffleSampler", "SequentialSampler", "ShuffleSampler", "SubsetSampler"]


class SequentialSampler(OrderSampler):
    """The order of the pack."""

    _drawn = False

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


class SubsetSampler(OrderSampler):
    """A new permutation of some samples every epoch.

    Parameters
    ----------
    indices : (N,) sequence of int
        Which samples come, of 0 or more. An index that stands there twice comes twice in an epoch.
    seed, rank, world, uneven
        As for `OrderSampler`.

    Raises
    ------
    TypeError, ValueError
        If `indices` are no integers of 0 or more.
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
        """Raise ValueError where a dataset of `count` samples lacks one of the indices."""
        if self.length and self._indices.max() >= count:
            raise ValueError(f"the sampler gives index {self._indices.max()}, and the dataset has {count} samples")

    def fingerprint(self) -> dict[str, Any]:
        return {**super().fingerprint(), "indices": self._digest}


def _indices_of(values: Any) -> Ints:
    indices = np.asarray(values)
    if indices.ndim != 1 or indices.dtype.kind == "b":
        raise TypeError(
            f"indices are integers in a row, not {indices.dtype} of shape {indices.shape}. For a mask say "
            "np.flatnonzero(mask)"
        )
    if indices.dtype.kind not in "iu":
        try:
            indices = np.array([operator.index(index) for index in values], np.int64)
        except TypeError:
            raise TypeError(f"indices are integers, not {indices.dtype}") from None
    if len(indices) and indices.min() < 0:
        raise ValueError(f"indices are numbers of 0 or more, and one is {indices.min()}")
    return indices.astype(np.int64)
