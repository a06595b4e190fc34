"""The interface between a Loader and a dataset: `LoaderDataset`, and the layout of the batches that it fills."""

from __future__ import annotations

import abc
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from packer._datasets.fields import Parts, Values
from packer._datasets.pipeline import Transform
from packer._images.numbers import Numbers
from packer._table import Ints, Labels
from packer.samplers._random import seeder

IMAGES = "image"
"""The name of the part that has the images."""

Tensors = Mapping[str, torch.Tensor]
"""The pixels of a batch by the names of its parts: see `Layout`."""

_VIEWS = f"{IMAGES}/"  # the beginning of the names of views; no field's name begins like this
_AS_NUMBERS = "/numbers"  # the end of the names of parts with the numbers of images

ALIGNMENT = 64
"""The address of each part of a batch is a multiple of this number of bytes."""


class BatchPart(NamedTuple):
    """One kind of pixels in a batch: the images, the images of one view, or the masks of one field."""

    name: str
    size: tuple[int, int]
    channels: int
    dtype: str = "uint8"
    planes: bool = False
    """Whether the pixels of each channel are contiguous; otherwise the layout is channels last."""


def view_part(number: int, size: tuple[int, int]) -> BatchPart:
    """Return the batch part that contains one view of each image."""
    return BatchPart(f"{_VIEWS}{number}", size, 3)


Pixels = TypeVar("Pixels")


def images_in(memory: Mapping[str, Pixels]) -> Pixels | list[Pixels] | None:
    """Return the images of a batch; with views, a list with the images of each view; None if it has no images."""
    views = [pixels for name, pixels in memory.items() if _is_view(name)]
    return views or memory.get(IMAGES)


def _is_view(name: str) -> bool:
    return name.startswith(_VIEWS) and not name.endswith(_AS_NUMBERS)


class Layout(NamedTuple):
    """The layout of a batch's memory: its parts in order, and how pixel values are converted for the network."""

    parts: tuple[BatchPart, ...]
    numbers: Numbers | None = None
    """The conversion of levels to numbers. It happens during decoding, or later, from parts that keep the levels."""

    @property
    def with_images(self) -> bool:
        return bool(self.images)

    @property
    def images(self) -> list[BatchPart]:
        """The parts that contain images: one part, or one part for each view."""
        return [part for part in self.parts if part.name == IMAGES or _is_view(part.name)]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images, if there are no views."""
        return next(part.size for part in self.parts if part.name == IMAGES)

    @property
    def views(self) -> int:
        """The number of views of each image; 0 if there are no views."""
        return sum(_is_view(part.name) for part in self.parts)

    def with_numbers(self, numbers: Numbers, *, keep_levels: bool) -> Layout:
        """Return this layout for images that are converted to the numbers that the network expects.

        With `keep_levels`, the layout has separate memory for uint8 images and converted images, so that a step such as
        a batch transform can run before the conversion.
        """
        become = [part._replace(dtype=numbers.dtype, planes=numbers.planes) for part in self.images]
        if keep_levels:
            made = [part._replace(name=part.name + _AS_NUMBERS) for part in become]
            return Layout((*self.parts, *made), numbers)
        named = {part.name: part for part in become}
        return Layout(tuple(named.get(part.name, part) for part in self.parts), numbers)

    @property
    def decoded_numbers(self) -> Numbers | None:
        """The conversion that is applied while images are decoded; None if their pixels remain uint8."""
        keeps_levels = any(part.name.endswith(_AS_NUMBERS) for part in self.parts)
        return None if keeps_levels else self.numbers

    def levels_and_numbers(self, memory: Tensors) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return, for each view, the uint8 images of a batch and the tensor for the converted images."""
        return [(memory[part.name], memory[part.name + _AS_NUMBERS]) for part in self.images]

    def decoded(self, memory: Tensors) -> Tensors:
        """Return the parts of a batch into which images are decoded."""
        return {name: tensor for name, tensor in memory.items() if not name.endswith(_AS_NUMBERS)}

    def handed_out(self, memory: Tensors) -> Tensors:
        """Return the parts of a complete batch that the user gets; converted images replace uint8 images."""
        return {name: memory.get(name + _AS_NUMBERS, tensor) for name, tensor in self.decoded(memory).items()}

    def bytes_for(self, count: int) -> int:
        """Return the number of bytes that `count` samples need."""
        return _laid_out(self.parts, count)[1]

    def tensors(self, memory: npt.NDArray[np.uint8], count: int) -> Tensors:
        """Return the parts as (count, channels, height, width) tensors on this memory, in the layout of each part."""
        return self.as_tensors(self.arrays(memory, count))

    def arrays(self, memory: npt.NDArray[np.uint8], count: int) -> dict[str, npt.NDArray[Any]]:
        """Return the parts as arrays; bfloat16, which NumPy does not support, becomes int16."""
        spans = _laid_out(self.parts, count)[0].items()
        return {name: np.ndarray(shape, dtype, memory, start, steps) for name, (dtype, shape, steps, start) in spans}

    def as_tensors(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Tensors:
        """Convert the result of the method `arrays` to tensors on the same memory."""
        if torch.is_inference_mode_enabled():  # the threads that write into the tensors are not in inference mode
            with torch.inference_mode(False):
                return self.as_tensors(arrays)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        for part in self.parts:
            if part.dtype == "bfloat16":
                tensors[part.name] = tensors[part.name].view(torch.bfloat16)
        return tensors

    def page_locked(self, count: int) -> Tensors:
        """Return new tensors for the parts in page-locked memory, which torch itself keeps for reuse."""
        with torch.inference_mode(False):
            tensors = {}
            for part in self.parts:
                spans, size = _laid_out((part,), count)
                dtype, shape, steps, _ = spans[part.name]
                locked = torch.empty(size, dtype=torch.uint8, pin_memory=True).view(getattr(torch, part.dtype))
                tensors[part.name] = locked.as_strided(shape, [step // dtype.itemsize for step in steps])
            return tensors


def layout_of(found: Layout | tuple[int, int] | None) -> Layout | None:
    """Return a Layout for the result of a dataset's `layout`, which is a Layout or the images' height and width."""
    if found is None or isinstance(found, Layout):
        return found
    height, width = map(operator.index, found)
    if min(height, width) < 1:
        raise ValueError(f"layout() must return the height and width of images, 1 or more, not {found!r}")
    return Layout((BatchPart(IMAGES, (height, width), 3),))


class _Span(NamedTuple):
    """The location of a part's pixels in memory: the shape of an array, and its strides and offset in bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    start: int


@functools.lru_cache(maxsize=64)
def _laid_out(parts: tuple[BatchPart, ...], count: int) -> tuple[dict[str, _Span], int]:
    """Return the location of each part for `count` samples, and the number of bytes of all parts."""
    spans, start = {}, 0
    for part in parts:
        (height, width), channels = part.size, part.channels
        dtype = np.dtype("int16" if part.dtype == "bfloat16" else part.dtype)
        steps = (height * width, width, 1) if part.planes else (1, width * channels, channels)
        each = height * width * channels
        shape = count, channels, height, width
        spans[part.name] = _Span(dtype, shape, tuple(dtype.itemsize * step for step in (each, *steps)), start)
        start += -(-count * each * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    return spans, start


Memory = Mapping[str, Any]
"""The memory of a batch, by the names of its parts: for each part a tensor, or a sequence with a tensor per image."""

SliceDecoder = Callable[[slice], list[Values] | None]
"""Decodes a slice of a batch, on any thread, and returns the values of its samples except those in memory."""

BatchOpener = Callable[[slice, Memory], SliceDecoder]
"""Takes the slice of the prepared samples that forms a batch, and the batch's memory; returns a `SliceDecoder`."""


class Traits(NamedTuple):
    """Facts about a dataset that a Loader needs before it reads samples.

    Attributes
    ----------
    seed : int, optional
        The seed of the random choices; None if the Loader's seed applies, or if the dataset consists of datasets with
        their own seeds.
    random : bool
        True if items depend on seed and epoch; then all ranks must use the same seed.
    transforms : bool
        Whether a user's transforms are applied to items. Such transforms may use the random generators of torch, Python
        and NumPy.
    views : int
        The number of views of an image in an item; 0 if there are no views.
    parts : Parts, optional
        The keys of the items, if they are dicts of fields. None if items are pairs of image and label, or have another
        form.
    """

    seed: int | None = None
    random: bool = True
    transforms: bool = False
    views: int = 0
    parts: Parts | None = None


class Fetching(NamedTuple):
    """How many samples on another machine to request together, and how many to request ahead of time.

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
    * `layout`, `labels` and `fill`, if all images have the same size. Images are written into the memory of the batch:
      this saves a copy, and the Loader can normalize and mix them in C.

    Every other method has a default. Threads call the methods concurrently; processes call them on a pickled copy.

    In all methods, `indices` is an (N,) int64 array, and the index ``i`` means sample ``i % len(self)``. If a sample
    occurs several times in an epoch, each occurrence has another index: a different multiple of ``len(self)`` is added.
    Compute random choices from seed, epoch and index only. Then the numbers of threads, processes and ranks do not
    affect the results, and a resumed epoch gives the same results as an uninterrupted one.
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
            the result of `traits` has ``transforms=False``.

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
        for position, (image, label) in enumerate(both):
            if before is not None:
                before(position)
            items.append((transform(image), label))
        return items

    def traits(self, transform: Transform = None) -> Traits:
        """Return facts about the dataset; `transform` is the Loader's own transform."""
        return Traits(transforms=transform is not None)

    def settings(self) -> dict[str, str]:
        """Return a dict with a description of each step that changes images; the keys are names such as ``crop``.

        A Loader warns if a saved state has other steps.
        """
        return {}

    def identity(self) -> str:
        """Return a name that identifies the samples and their order.

        A Loader refuses a saved state with another name.
        """
        return f"{type(self).__qualname__} {len(self)}"

    def describe(self, index: int) -> str:
        """Return the text by which error messages identify a sample, for example the name of its file."""
        return f"sample {index % len(self)} of {type(self).__name__}"

    def layout(self, transform: Transform = None) -> Layout | tuple[int, int] | None:
        """Return the height and width of the images that `fill` writes; None if batches are collated from `items`.

        Parameters
        ----------
        transform : callable, optional
            The Loader's own transform. If there is a transform, return None, because a transform takes single images.
        """
        return None

    def labels(self, indices: Ints) -> Labels | Sequence[Any]:
        """Return the labels of some samples, as an (N,) array or a list; used with a `layout`."""
        raise NotImplementedError(f"{type(self).__name__} has a layout, so it needs the method labels(indices)")

    def choose(self, indices: Ints, epoch: int, seed: int) -> npt.NDArray[Any]:
        """Return the random choices for `fill`, an (N, ...) array with one entry for each sample.

        The Loader calls this method for the samples of many batches together, before it reads these samples. The
        default makes no choices.
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
            f"{type(self).__name__} has a layout, so it needs the method fill(indices, choices, memory)"
        )

    def begin(
        self,
        indices: Ints,
        choices: npt.NDArray[Any],
        batch: int,
        step: int,
        numbers: Numbers | None = None,
    ) -> BatchOpener:
        """Prepare to decode several batches of `batch` samples; the memory of each batch is passed later.

        The default calls `fill`. Override this method to do work that does not need the memory, once for all batches.

        Parameters
        ----------
        indices, choices
            The same as for `fill`.
        batch : int
            The number of samples in a batch; the last one may have fewer.
        step : int
            The number of samples that one thread decodes at a time.
        numbers : optional
            The conversion of uint8 pixel values to the numbers that ``memory["image"]`` must contain. The Loader's
            `normalize` and `dtype` determine it.

        Returns
        -------
        callable
            A function ``open_batch(some, memory)``: `some` is the slice of `indices` that forms a batch, and `memory`
            is the memory of this batch, as for `fill`. ``open_batch`` returns a function ``decode(part)``, which
            decodes a slice of the batch, and may be called on any thread. If items are dicts of fields, ``decode``
            returns a list with a dict for each sample: the values that are not in `memory`. In all other cases,
            ``decode`` returns None or an empty list.
        """
        return lambda some, memory: functools.partial(_fill_slice, self, indices[some], choices[some], memory, numbers)

    def replacements(self, indices: Ints, epoch: int, seed: int) -> Ints | None:
        """Return indices of readable samples to use instead of `indices`; None if an unreadable sample is an error.

        Raises
        ------
        PackError
            If too many samples cannot be read.
        """
        return None

    def fetching(self, block: int) -> Fetching | None:
        """Return how many samples to request from another machine at a time; None if samples are on this machine.

        Parameters
        ----------
        block : int
            The number of neighbouring samples that are all needed soon after one of them is needed.
        """
        return None

    def ahead(self, indices: Ints) -> None:
        """Request the bytes of the samples at `indices`, in this order, without waiting for the bytes.

        The Loader calls this method only if `fetching` returns a `Fetching`.
        """


def _fill_slice(  # noqa: PLR0917
    dataset: LoaderDataset,
    indices: Ints,
    choices: npt.NDArray[Any],
    memory: Memory,
    numbers: Numbers | None,
    part: slice,
) -> None:
    """Let a dataset write a slice of a batch into memory, and convert the images to `numbers` if it is not None."""
    share = {name: pixels[part] for name, pixels in memory.items()}
    if numbers is None:
        dataset.fill(indices[part], choices[part], share)
        return
    out = share[IMAGES]
    levels = torch.empty(out.shape, dtype=torch.uint8, memory_format=torch.channels_last)
    dataset.fill(indices[part], choices[part], {**share, IMAGES: levels})
    numbers.write(levels, out)


class ItemsError(Exception):
    """Raised if items must be made one by one; the message is the reason, as a clause."""


class TorchDataset(LoaderDataset):
    """A dataset with the methods that packer's DataLoader needs; torch's DataLoader can read it too."""

    @abc.abstractmethod
    def frozen_copy(self) -> TorchDataset:
        """Return the dataset as it is now: later changes of settings and labels do not affect the copy.

        A pass reads the copy, so that no batch mixes old and new labels or transforms.
        """

    @abc.abstractmethod
    def batch_layout(self) -> Layout:
        """Return the layout of batches that hold the items' images exactly as they are.

        Such a layout exists if `layout` returns one, or if a fused transform converts the images to numbers.

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
