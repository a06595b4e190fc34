"""The interface between a Loader and a dataset: `LoaderDataset`, and its extension for packer's DataLoader."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from packer._datasets.fields import Parts, Values
from packer._datasets.generators import seeder
from packer._datasets.memory import IMAGES, Layout, layout_of
from packer._datasets.pipeline import Transform
from packer._images.numbers import Numbers
from packer._table import Ints, Labels

Memory = Mapping[str, Any]
"""The memory of a batch by the names of its parts, ``image``, views, masks and numbers: a tensor, or one an image."""

SliceDecoder = Callable[[slice], list[Values] | None]
"""Decodes a slice of a batch, on any thread; returns those values of its samples that are not in the batch's memory."""

BatchOpener = Callable[[slice, Memory], SliceDecoder]
"""Takes the slice of prepared samples that forms a batch, and the memory for it."""


class Traits(NamedTuple):
    """Facts about a dataset that a Loader needs before it reads samples.

    Attributes
    ----------
    seed : int, optional
        The seed of the random choices; None if the Loader's seed applies, or if the dataset joins datasets with their
        own seeds.
    random : bool
        Whether items depend on seed and epoch, so that all ranks must use the same seed.
    transforms : bool
        Whether a user's transforms are applied to items; they may use the random generators of torch, Python and NumPy.
    views : int
        The number of views of an image in an item; 0 if there are no views.
    parts : Parts, optional
        The keys of the items, if they are dicts of fields. None if items are image and label, or have another form.
    """

    seed: int | None = None
    random: bool = True
    transforms: bool = False
    views: int = 0
    parts: Parts | None = None


class Fetching(NamedTuple):
    """The numbers of samples to request from another machine.

    Attributes
    ----------
    together : int
        The number of neighbouring samples in one request.
    ahead : int
        The number of samples to request ahead of time.
    """

    together: int
    ahead: int


class LoaderDataset(abc.ABC):
    """A dataset that `packer.Loader` reads: derive from this class to use your own dataset with the Loader.

    A subclass defines ``__len__`` and one of these:

    * `items`, which makes the items of some samples. The Loader collates them.
    * `layout`, `labels` and `fill`, if all images have the same size: images are written into the memory of the batch,
      which saves a copy and lets the Loader normalize and mix them in C.

    Every other method has a default. Threads call the methods concurrently; processes call them on a pickled copy.

    In all methods, `indices` is an (N,) int64 array; ``indices % len(self)`` are the samples. If a sample occurs
    several times in an epoch, a different multiple of ``len(self)`` is added to each of its indices. Compute random
    choices from seed, epoch and index only: then the numbers of threads, processes and ranks do not affect the results,
    and a resumed epoch continues exactly as if it had not been interrupted.
    """

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    def items(
        self, indices: Ints, epoch: int, seed: int, transform: Transform = None, seeding: bool = False
    ) -> list[Any]:
        """Return the items of some samples, such as ``(image, label)``, for the Loader's `collate_fn`.

        The default calls `fill` for images of the `layout`, and applies the transform to each (3, height, width) uint8
        tensor.

        Parameters
        ----------
        indices : (N,) int64 array
        epoch, seed : int
            The inputs of all random choices.
        transform : callable, optional
            The Loader's own transform, to be applied to each image instead of the dataset's.
        seeding : bool
            Whether to seed the generators of torch, Python and NumPy before each item is transformed. Always False if
            `traits` has no transforms.

        Raises
        ------
        CorruptPackError, ImageError
            If a sample cannot be read. Another sample may replace it; see `replacements`.
        """
        layout = layout_of(self.layout())
        if layout is None:
            raise NotImplementedError(f"{type(self).__name__} must define the method items, or layout, labels and fill")
        memory = layout.tensors(np.empty(layout.bytes_for(len(indices)), np.uint8), len(indices))
        self.fill(indices, self.choose(indices, epoch, seed), memory)
        labels = self.labels(indices)
        images = memory[IMAGES].unbind(0)
        both = zip(images, labels.tolist() if isinstance(labels, np.ndarray) else labels, strict=True)
        if transform is None:
            return list(both)
        before = seeder(seed, epoch, indices) if seeding else None
        items = []
        for place, (image, label) in enumerate(both):
            if before is not None:
                before(place)
            items.append((transform(image), label))
        return items

    def traits(self, transform: Transform = None) -> Traits:
        """Return facts about the dataset; `transform` is the Loader's own."""
        return Traits(transforms=transform is not None)

    def settings(self) -> dict[str, str]:
        """Return the steps of each image, as strings by name; a Loader warns about a state with other steps."""
        return {}

    def identity(self) -> str:
        """Return a name that identifies these samples in their order; a Loader refuses a state with another name."""
        return f"{type(self).__qualname__} {len(self)}"

    def describe(self, index: int) -> str:
        """Return the description of a sample in error messages, such as its file."""
        return f"sample {index % len(self)} of {type(self).__name__}"

    def layout(self, transform: Transform = None) -> Layout | tuple[int, int] | None:
        """Return the height and width of the images that `fill` writes; None if batches are collated from `items`.

        Parameters
        ----------
        transform : callable, optional
            The Loader's own transform. It takes single images, so return None if there is one.
        """
        return None

    def labels(self, indices: Ints) -> Labels | Sequence[Any]:
        """Return the labels of some samples, as an (N,) array or a list; used with a `layout`."""
        raise NotImplementedError(f"{type(self).__name__} has a layout, and needs the method labels(indices)")

    def choose(self, indices: Ints, epoch: int, seed: int) -> npt.NDArray[Any]:
        """Return the random choices for `fill`, an (N, ...) array with one entry for each sample.

        This is called for many batches at a time, before any of them is read. The default makes no choices.
        """
        return np.zeros((len(indices), 0))

    def fill(self, indices: Ints, choices: npt.NDArray[Any], memory: Memory) -> None:
        """Write the images of some samples into memory; used with a `layout`.

        Parameters
        ----------
        indices : (N,) int64 array
        choices : (N, ...) array
            The result of `choose`.
        memory : mapping
            ``memory["image"]`` is an (N, 3, height, width) uint8 tensor, RGB, laid out channels last.

        Raises
        ------
        CorruptPackError, ImageError
            The same as for `items`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has a layout, and needs the method fill(indices, choices, memory)"
        )

    def begin(
        self,
        indices: Ints,
        choices: npt.NDArray[Any],
        batch: int,
        step: int,
        numbers: Numbers | None = None,
    ) -> BatchOpener:
        """Prepare to decode several batches of `batch` samples; their memory is passed later.

        The default calls `fill`. Override it to do work that depends neither on threads nor on memory once for all
        batches.

        Parameters
        ----------
        indices, choices
            The same as for `fill`.
        batch : int
            The number of samples in a batch; the last one may have fewer.
        step : int
            The number of samples of a batch that a thread decodes at a time.
        numbers : optional
            The conversion to the numbers that ``memory["image"]`` gets instead of uint8 levels; it comes from the
            Loader's `normalize` and `dtype`.

        Returns
        -------
        callable
            ``open_batch(some, memory)`` takes the slice of the samples that forms a batch, and returns
            ``decode(part)``. ``decode`` takes a slice of the batch, on any thread. If items are dicts of fields, it
            returns a list with each sample's values except those in `memory`; otherwise None, or an empty list.
        """
        return lambda some, memory: functools.partial(_fill_slice, self, indices[some], choices[some], memory, numbers)

    def replacements(self, indices: Ints, epoch: int, seed: int) -> Ints | None:
        """Return indices to use instead of `indices`, if some cannot be read; None means that the error is raised.

        Raises
        ------
        PackError
            If too many samples cannot be read.
        """
        return None

    def fetching(self, block: int) -> Fetching | None:
        """Return the numbers of samples to request from another machine; None if the samples are on this machine.

        Parameters
        ----------
        block : int
            The number of neighbouring samples that are all needed soon after one of them is needed.
        """
        return None

    def ahead(self, indices: Ints) -> None:
        """Request the bytes of samples, in this order, without waiting; called if `fetching` is not None."""


def _fill_slice(  # noqa: PLR0917
    dataset: LoaderDataset,
    indices: Ints,
    choices: npt.NDArray[Any],
    memory: Memory,
    numbers: Numbers | None,
    part: slice,
) -> None:
    """Let a dataset fill the memory of a slice of a batch, and convert its images to numbers if these are given."""
    share = {name: pixels[part] for name, pixels in memory.items()}
    if numbers is None:
        dataset.fill(indices[part], choices[part], share)
        return
    out = share[IMAGES]
    levels = torch.empty(out.shape, dtype=torch.uint8, memory_format=torch.channels_last)
    dataset.fill(indices[part], choices[part], {**share, IMAGES: levels})
    numbers.write(levels, out)


class ItemsError(Exception):
    """The reason why the items of a dataset are made one by one: its text is a clause."""


class TorchDataset(LoaderDataset):
    """A dataset that torch's DataLoader can read as well, with the methods that packer's DataLoader needs."""

    @abc.abstractmethod
    def batch_layout(self) -> Layout:
        """Return the layout of batches that hold the items' images exactly as they are.

        Images are held like this if `layout` describes them, or if a fused transform converts them to numbers.

        Raises
        ------
        ItemsError
            If items must be made one by one.
        """

    @property
    @abc.abstractmethod
    def threads(self) -> int:
        """The number of threads that make the items of a batch."""

    @property
    @abc.abstractmethod
    def seeded(self) -> bool:
        """Whether the dataset has its own seed."""

    @property
    @abc.abstractmethod
    def crop_epoch(self) -> tuple[int, int]:
        """The epoch that `set_epoch` set last, and the number of calls of `set_epoch`."""


def has_own(dataset: object, base: type) -> str | None:
    """Return the name of an item method that a dataset's class overrides; None if it overrides none."""
    for name in ("__getitem__", "__getitems__"):
        if getattr(type(dataset), name, None) is not getattr(base, name, None):
            return name
    return None
