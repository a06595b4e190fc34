"""What a Loader asks of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from packer._datasets.batch_decoder import Begun, Lookup
from packer._datasets.fields import Parts, Values
from packer._datasets.items import Replaced
from packer._datasets.memory import Layout
from packer._datasets.preparation import Transform
from packer._images.geometry import Crops
from packer._images.numbers import Numbers
from packer._table import Ints, Labels
from packer.augment import Augmentation, View
from packer.crops import Crop

__all__ = ["ItemsError", "Readable", "has_own"]


class ItemsError(Exception):
    """Why the items of a dataset are made one by one: its text is a clause."""


class Readable(Protocol):
    """A dataset as a Loader reads it: whole batches, of which each thread makes a piece.

    The methods are asked from several threads at once, and in other processes of a pickled copy. They take the indices
    of samples, to which a multiple of the dataset's length may be added: the number of the sample's turn in the epoch.
    A sample has another random crop at each turn.
    """

    def __len__(self) -> int:
        """Return the number of samples."""

    @property
    def seed(self) -> int | None:
        """The seed of the crops; None where the Loader's decides, or several datasets have seeds of their own."""

    @property
    def randoms(self) -> int:
        """How many random numbers the crop of an image needs: 0 where no seed decides anything."""

    @property
    def views(self) -> tuple[View, ...] | None:
        """What is made of each image, where that are several images."""

    @property
    def crop(self) -> Crop | None:
        """Which part of each image is wanted."""

    @property
    def target_transform(self) -> Transform:
        """What is applied to each label."""

    @property
    def augment(self) -> Augmentation | None:
        """What is done to the pixels of each crop."""

    def _identity(self) -> str:
        """Return a name of these very samples, the same in every format, for the states of a Loader."""

    @property
    def _parts(self) -> Parts | None:
        """What an item has, where it is a dict or a detector's; None where it is image and label."""

    def _called(self, index: int) -> str:
        """Return what an error calls a sample: its pack, place and name."""

    def _in_place(self, transform: Transform) -> Layout | None:
        """Return which pixels can be decoded into their places in a batch, and their size.

        None where items are made one by one. `transform` takes the place of the dataset's where it is not None, here
        and in `_items`.
        """

    def _in_batches(self) -> Layout:
        """Return the layout of batches of the items' images, of which nothing is left to do for each by itself.

        These are the images of `_in_place`, and those that a fused transform makes numbers of.

        Raises
        ------
        ItemsError
            If each item is to be made by itself.
        """

    @property
    def _threads(self) -> int:
        """How many threads make the items of a batch."""

    @property
    def _seeded(self) -> bool:
        """Whether a dataset has a seed of its own."""

    @property
    def _crop_epoch(self) -> tuple[int, int]:
        """The epoch that `set_epoch` said last, and how often it was called."""

    def _transforms_items(self, transform: Transform) -> bool:
        """Tell whether something of other people's is applied to what packer made."""

    @property
    def _replaced(self) -> Replaced | None:
        """Where samples are noted that cannot be read and are replaced; None where they are errors."""

    def _require_good(self, index: int, epoch: int, seed: int) -> None:
        """Raise one of `packer._datasets.items.BAD` where a sample cannot be read."""

    @property
    def _remote(self) -> bool:
        """Whether another machine is asked for the bytes of samples."""

    def _together(self, block: int) -> tuple[int, int]:
        """Return how many of `block` neighbours are fetched together, and how many samples are fetched ahead."""

    def _ahead(self, indices: Ints) -> None:
        """Have what items are made of fetched, in this order, without waiting, where it is kept elsewhere."""

    def _choose_crops(self, indices: Ints, epoch: int, seed: int) -> Crops:
        """Return the crops of some samples, an (N,) array of CROP: a function of epoch, seed, sample and turn.

        A dataset with V views gives an (N, V) array.
        """

    def _begun(
        self,
        indices: Ints,
        crops: Crops,
        memory: Mapping[str, torch.Tensor],
        step: int,
        numbers: Numbers | Lookup | None = None,
    ) -> Callable[[slice], list[Values]]:
        """Return what decodes slices of some samples, each of `step`, into a layout's (N, C, height, width) tensors.

        The crops say which pixels. Threads call what is returned, each with another slice.

        The images become `numbers`, if there are any.

        Returns
        -------
        list of dict
            What the dicts have beside the tensors: see `FieldDecoder.samples`. Empty where items are image and label.

        Raises
        ------
        CorruptPackError, ImageError
            If a sample is damaged.
        """

    def _begun_ahead(
        self, indices: Ints, crops: Crops, batch: int, step: int, numbers: Numbers | Lookup | None = None
    ) -> Begun | None:
        """Return what does the same for several batches of `batch` samples, or None where `_begun` does it for each.

        What is returned takes a slice of the samples that is a batch, and its images as `images_in` gives them.
        """

    def _targets_of(self, indices: Ints) -> Labels | list[Any]:
        """Return the labels of some samples: numbers, or whatever the dataset's `target_transform` makes of them."""

    def _items(
        self, indices: Sequence[int] | Ints, epoch: int, seed: int, transform: Transform = None, seeding: bool = False
    ) -> list[Any]:
        """Return the items of some samples, after the transforms; errors as of `_begun`.

        With `seeding`, the generators that transforms draw from are seeded before each item.
        """


def has_own(dataset: object, kind: type) -> str | None:
    """Return the name of the method by which a dataset of a kind gives other items than the kind does; None without."""
    for name in ("__getitem__", "__getitems__"):
        if getattr(type(dataset), name, None) is not getattr(kind, name, None):
            return name
    return None
