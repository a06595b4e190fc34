"""Orders in which every sample comes once: the pack's own, and permutations."""

from __future__ import annotations

from typing import Any

import numpy as np

from packer._storage.limits import require_count
from packer._table import Ints
from packer.samplers._order import OrderSampler
from packer.samplers._permutation import permute

__all__ = ["BlockShuffleSampler", "SequentialSampler", "ShuffleSampler"]


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
