"""The course of a Loader through its samples: the order, the seeds, the epoch, and the states that all go on from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import RandomSampler

from packer._loading.concat import ConcatImageDataset
from packer._loading.foreign import ForeignOrder, in_turns, order_of
from packer._loading.readable import Readable
from packer._table import Ints
from packer.errors import warn
from packer.samplers import BlockShuffleSampler, OrderSampler, SequentialSampler, ShuffleSampler
from packer.samplers._mix import MixSampler
from packer.samplers._ranks import agreed, rank_and_world
from packer.samplers._states import number_in, require_same, require_same_seeds, require_version
from packer.samplers._uniforms import seed_of

__all__ = ["Course", "Progress", "say_what_is_slow"]

_VERSION = 2  # of the states
_said = set[str]()


@dataclass
class Progress:
    """How far a pass has come: how many samples of this rank were handed out, counted in whole batches."""

    handed_out: int = 0


class Course:
    """In which order samples come, and with which seed their crops are chosen.

    Parameters
    ----------
    images : Readable
    sampler : OrderSampler or iterable of int, optional
        As for `Loader`.
    shuffle : bool
    seed : int, optional
        As for `Loader`.

    Attributes
    ----------
    images : Readable
    order : OrderSampler or ForeignOrder

    Raises
    ------
    TypeError, ValueError
        If the sampler is none, or contradicts the other arguments.
    """

    def __init__(self, images: Readable, sampler: Any, *, shuffle: bool, seed: int | None) -> None:
        self._images = images
        self._seed = int(torch.empty((), dtype=torch.int64).random_()) if seed is None else seed_of(seed)
        self._is_agreed = seed is not None  # among all ranks that there may be
        self._agreed_among = 1
        self._restored: int | None = None  # the seed of the crops that a state said
        if sampler is not None and shuffle:
            raise ValueError("shuffle goes without a sampler: the sampler decides the order")
        if sampler is not None and seed is not None:
            raise ValueError("seed goes without a sampler: the order's seed is the sampler's, the crops' the dataset's")
        if sampler is not None:
            self.sampler = sampler
        else:
            self.sampler = (ShuffleSampler if shuffle else SequentialSampler)(len(images), seed=self._seed)
            self._chose_order = True

    @property
    def sampler(self) -> Any:
        """The sampler that decides the order, as it was given."""
        return self.order.indices if isinstance(self.order, ForeignOrder) else self.order

    @sampler.setter
    def sampler(self, sampler: Any) -> None:
        order = order_of(sampler)
        _require_fitting(order, self.images)
        self.order, self._chose_order = order, False

    @property
    def images(self) -> Readable:
        """What is read."""
        return self._images

    @images.setter
    def images(self, images: Readable) -> None:
        _require_fitting(self.order, images)
        self._images = images

    @property
    def goes_on(self) -> bool:
        """Whether the pass that has begun goes on at a state, so that it has not all of its epoch."""
        return isinstance(self.order, OrderSampler) and self.order.start > 0

    @property
    def block(self) -> int:
        """How many neighbours are all wanted soon when one of them is."""
        return self.order.block if isinstance(self.order, BlockShuffleSampler) else 1

    def chunks(self, size: int) -> Iterator[Ints]:
        """Begin a pass, and return an iterator over its indices with their turns, as arrays of up to `size`."""
        say_what_is_slow(self.images, self.sampler)
        if isinstance(self.order, ForeignOrder):
            return in_turns(self.order.chunks(size), len(self.images))
        return _with_turns(self.order.chunks_with_turns(size), len(self.images))

    @property
    def crop_seed(self) -> int:
        """The seed of the crops: that of a state, or the dataset's, or else that of the course."""
        own = self._seed if self.images.seed is None else self.images.seed
        return own if self._restored is None else self._restored

    def agree(self, seeds_transforms: bool = False) -> None:
        """Let all ranks have the seed that rank 0 drew, if anything depends on it. All ranks call this."""
        shuffles = self._chose_order and isinstance(self.order, ShuffleSampler)
        world = rank_and_world()[1]
        if self._is_agreed or world == self._agreed_among:
            return
        self._agreed_among = world
        if not (shuffles or ((self.images.randoms or seeds_transforms) and self.images.seed is None)):
            return
        self._seed = agreed(self._seed)
        if shuffles:
            self.sampler.seed = self._seed

    def state(self, done: int, batch_size: int) -> dict[str, Any]:
        """Return the state after `done` samples of this rank; TypeError where the order has none."""
        return {
            "version": _VERSION,
            "sampler": self.order.state_dict(done),
            "crop_seed": self.crop_seed,
            "pack": self.images._identity(),
            "images": self._images_made,
            "batch_size": batch_size,
        }

    @property
    def _images_made(self) -> dict[str, str]:
        """What packer makes of each image, as text."""
        made = {name: getattr(self.images, name) for name in ("crop", "augment", "views")}
        return {name: " ".join(repr(value).split()) for name, value in made.items() if value is not None}

    def state_of_next_epoch(self, batch_size: int) -> dict[str, Any]:
        """Return the state at the beginning of the epoch after this one."""
        state = self.state(0, batch_size)
        return {**state, "sampler": {**state["sampler"], "epoch": self.order.epoch + 1, "start": 0}}

    def load(self, state: Mapping[str, Any], batch_size: int | None) -> None:
        """Let the next pass go on at a state; errors as for `Loader.load_state_dict`.

        Parameters
        ----------
        batch_size : int, optional
            What the state's must be; any without it.
        """
        if isinstance(self.order, ForeignOrder):
            raise TypeError(f"only packer's samplers go on at any sample, not {self.sampler!r}")
        if not isinstance(state, Mapping):
            raise TypeError(f"a state is a dict, which `state_dict` gave, not {state!r}")
        if "version" not in state:
            order_seed = None if self._chose_order else self.order.seed
            require_same_seeds(state, order_seed, self.images.seed if self.images.randoms else None)
            self.order.load_state_dict(state)
            self._take(number_in(state, "seed"))
            return
        require_version(state, _VERSION)
        crop_seed = number_in(state, "crop_seed")
        require_same(state, "pack", self.images._identity(), f"Here is {self.images!r}: open the samples of that run.")
        if batch_size is not None:
            require_same(state, "batch_size", batch_size, "Make the Loader with that one, or load with strict=False.")
        self.order.load_state_dict(state.get("sampler", {}))
        self._take(crop_seed)
        then, now = state.get("images", self._images_made), self._images_made
        if then != now:
            warn(f"the state is of a run that made other images of the samples: {then!r}, and here it is {now!r}")

    def _take(self, crop_seed: int) -> None:
        """Let the crops have the seed of a state, which all ranks load. The dataset's seed stays."""
        self._is_agreed = True
        self._restored = crop_seed


def say_what_is_slow(images: Readable, sampler: object) -> None:
    """Say once in this process that a random order over a pack at a URL fetches its samples one by one."""
    if not images._remote or not isinstance(sampler, ShuffleSampler | RandomSampler) or _said:
        return
    _said.add("random order")
    warn(
        f"a random order over a pack at a URL fetches each of its {len(images):,} samples by a request of "
        "its own until the cache has them. sampler=packer.BlockShuffleSampler(len(dataset)) shuffles blocks of "
        "neighbours, of which one request fetches several",
        RuntimeWarning,
    )


def _require_fitting(order: OrderSampler | ForeignOrder, images: Readable) -> None:
    """Raise ValueError where an order is of other samples than there are."""
    if isinstance(order, OrderSampler):
        order.require_samples(len(images))
    if isinstance(order, MixSampler) and isinstance(images, ConcatImageDataset):
        order.require_datasets(images.datasets, whole=images._chosen is None)


def _with_turns(draws: Iterable[tuple[Ints, Ints | None]], length: int) -> Iterator[Ints]:
    """Yield indices, plus a multiple of `length` that says which turn of a sample this is; as `in_turns`."""
    for samples, turns in draws:
        yield samples if turns is None else samples + turns * length
