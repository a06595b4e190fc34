"""Orders of others: any iterable of indices, as a Loader needs it."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from packer._loading.selection import places_in
from packer._table import Ints
from packer.samplers import OrderSampler
from packer.samplers._permutation import earlier
from packer.samplers._ranks import agreed, gathered, rank_and_world

__all__ = ["ForeignOrder", "Turns", "in_turns", "order_of"]


class ForeignOrder:
    """What a Loader needs of an order, over any iterable of indices; it cannot be resumed.

    Where `torch.distributed` is initialised, each rank gets its share: rank r of w takes the places r, r + w, … of rank
    0's indices, and the first indices come again at the end where their number is no multiple of w. Samplers that
    divide themselves, as `DistributedSampler` does, are left to it.

    Parameters
    ----------
    indices : iterable of int
        Asked again for each pass. Its `set_epoch` and `epoch` are used where it has them.

    Raises
    ------
    TypeError
        If `indices` can be iterated once only, or not at all.
    """

    def __init__(self, indices: Iterable[int]) -> None:
        try:
            once = iter(indices) is indices
        except TypeError:
            raise TypeError(f"a sampler is an iterable of indices, which {indices!r} is not") from None
        if once:
            raise TypeError(
                f"a sampler gives its indices anew for each epoch, and {indices!r} gives them once: make it a list, or "
                "a class with `__iter__`"
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
        self._epoch, self._begun_in = epoch, None
        if hasattr(self.indices, "set_epoch"):
            self.indices.set_epoch(epoch)

    def __len__(self) -> int:
        try:
            length = len(self.indices)  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):
            raise TypeError(
                f"the sampler has no len(), so nobody knows how many batches come: {self.indices!r}"
            ) from None
        return math.ceil(length / self._ranks)

    @property
    def whole(self) -> int:
        """How many indices this rank gets in an epoch."""
        return len(self)

    def chunks(self, size: int) -> Iterator[Ints]:
        """Begin a pass, and return an iterator over its indices, as arrays of up to `size`.

        Raises
        ------
        ValueError
            If the ranks were given different lists of indices.
        """
        self._begun_in = self.epoch
        indices: Iterable[int] = map(_index, self.indices)
        return _cut(indices if self._ranks == 1 else self._share(np.fromiter(indices, np.int64)), size)

    @property
    def _ranks(self) -> int:
        """Among how many ranks the indices are to be divided here."""
        divides_itself = isinstance(self.indices, OrderSampler) or hasattr(self.indices, "num_replicas")
        return 1 if divides_itself else rank_and_world()[1]

    def _share(self, indices: Ints) -> list[int]:
        """Return this rank's share of rank 0's indices."""
        # A sampler may draw other indices on each rank. A list that differs is a share already, and not divided again.
        if not isinstance(self.indices, Sampler) and len(set(gathered(indices.tobytes()))) > 1:
            raise ValueError(
                "the ranks were given different lists of indices as sampler=. A Loader divides the indices among the "
                "ranks itself: give each rank the same whole list"
            )
        rank, world = rank_and_world()
        whole: Ints = agreed(indices)
        missing = -len(whole) % world
        padded = np.concatenate([whole, np.resize(whole, missing)]) if len(whole) else whole
        return padded[rank::world].tolist()  # type: ignore[no-any-return]

    def state_dict(self, done: int = 0) -> dict[str, Any]:
        """Raise TypeError: nobody but the iterable knows where it stands."""
        raise TypeError(
            f"an epoch in the order of sampler={type(self.indices).__name__} cannot be resumed, so it has no state; "
            "only packer's samplers go on at any sample, such as packer.ShuffleSampler, packer.BlockShuffleSampler and "
            "packer.samplers.WeightedSampler"
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise TypeError, as `state_dict` does."""
        self.state_dict()


def order_of(sampler: Any) -> OrderSampler | ForeignOrder:
    """Return one of packer's samplers as it is, and any other iterable of indices as a ForeignOrder."""
    # A subclass that says by its own `__iter__` what comes has no places to resume at.
    if isinstance(sampler, OrderSampler) and type(sampler).__iter__ is OrderSampler.__iter__:
        return sampler
    return ForeignOrder(sampler)


class Turns:
    """Counts how often each of `length` samples has come in an epoch.

    A sampler may give a sample several times, as one with weights does. The turn gives the sample another crop each
    time.
    """

    def __init__(self, length: int) -> None:
        self._length, self._times = length, np.zeros(length, np.int64)

    def of(self, indices: Sequence[int] | Ints) -> Ints:
        """Return the next indices, plus `length` for each time that a sample came before.

        Raises
        ------
        IndexError
            If there is no such sample.
        """
        places = places_in(indices, self._length)
        turns = earlier(places) + self._times[places]
        np.add.at(self._times, places, 1)
        return places + turns * self._length


def in_turns(chunks: Iterable[Ints], length: int) -> Iterator[Ints]:
    """Yield the indices of an epoch with their turns, as `Turns.of` gives them."""
    turns = Turns(length)
    return (turns.of(indices) for indices in chunks)


def _index(index: Any) -> int:
    if isinstance(index, (bool, np.bool_)):
        raise TypeError("a sampler gives indices, integers, and no mask of booleans: say np.flatnonzero(mask).tolist()")
    return operator.index(index)


def _cut(indices: Iterable[int], size: int) -> Iterator[Ints]:
    remaining = iter(indices)
    while len(chunk := np.fromiter(itertools.islice(remaining, size), np.int64)):
        yield chunk
