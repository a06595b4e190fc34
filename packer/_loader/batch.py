"""Batches of a Loader: the plan of a pass, the job for each batch, and the batch that results from a job.

`BatchPlan.jobs` divides an epoch into jobs, workers run them (`packer._loader.threads`), and `BatchPlan.batch` returns
the batch that the training loop gets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import default_collate

from packer._datasets.fields import Parts
from packer._datasets.pipeline import Transform
from packer._datasets.protocol import IMAGES, Layout, LoaderDataset, Tensors, TorchDataset, images_in, layout_of
from packer._fields import KINDS
from packer._images.numbers import Mixture, NumberFormat, NumberWriter
from packer._images.operations import Operations, parted
from packer._loader.collate import Collation, UnevenError, collate_items
from packer._loader.prefetch import DeviceBatch, Normalizer, images_of
from packer._table import Ints, Labels
from packer.augment import Mixing
from packer.augment._mixup import mixed_labels
from packer.crops._settings import named
from packer.errors import OptionError, OptionTypeError
from packer.samplers._random import drawing_from, uniforms

_BATCHES_TOGETHER, _IMAGES_TOGETHER = 8, 1024  # crops are chosen together for 8 batches, or 1024 images if that is more

_OF_MIXTURES, _OF_TRANSFORMS = 0x2545F4914F6CDD1D, 0x6C62272E07BB0142
"""Added to the seed for crops, so that mixtures and batch transforms draw other numbers."""

SliceFunction = Callable[[slice], Sequence[Any] | None]
"""Does the work for a slice of a batch, on any thread, and returns the results of the slice, if there are any."""

BatchTransform = Callable[[Any], Any] | None


def chunk_size(batch_size: int) -> int:
    """Return the number of images, a multiple of `batch_size`, whose crops are chosen together."""
    return batch_size * max(_BATCHES_TOGETHER, _IMAGES_TOGETHER // batch_size)


def split(count: int, step: int) -> list[slice]:
    """Return slices of length `step` that cover ``range(count)``; the last slice may be shorter."""
    return [slice(start, start + step) for start in range(0, count, step)]


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """Everything that determines how the batches of a pass are made.

    Attributes
    ----------
    dataset : LoaderDataset
    normalizer : Normalizer
    layout : Layout, optional
        The memory layout of batches into which images are decoded directly; None if batches are collated from items.
    parts : Parts, optional
        The keys of items that are dicts; see `Traits`.
    epoch, seed : int
        The epoch and the seed that determine the crops and the random numbers of whole batches.
    transform : callable, optional
        A transform for each image, instead of the dataset's own.
    batch_transform : callable, optional
        A transform for each batch of images.
    mix : Mixing, optional
        Mixes the images of a batch.
    collate : callable
        Makes a batch from a list of items.
    collation : Collation, optional
        Makes a batch if items are dicts.
    pinned : bool
        Whether batches are page-locked if images are decoded directly into them.
    on_device : bool
        Whether a device other than the CPU converts images to the numbers that the network expects.
    augments_on_device : bool
        Whether that device also augments the images.
    """

    dataset: LoaderDataset
    normalizer: Normalizer
    layout: Layout | None = None
    parts: Parts | None = None
    epoch: int = 0
    seed: int = 0
    transform: Transform = None
    batch_transform: BatchTransform = None
    mix: Mixing | None = None
    collate: Callable[[list[Any]], Any] = default_collate
    collation: Collation | None = None
    pinned: bool = False
    on_device: bool = False
    augments_on_device: bool = False

    def with_layout(self) -> BatchPlan:
        """Return the plan with the layout of its batches, if images can be decoded directly into batches.

        If the dataset is one of packer's, later changes of its settings and labels do not affect the plan.

        Raises
        ------
        TypeError, ValueError
            If images cannot be decoded directly into batches, but `batch_transform` or augmentation on a device
            requires this. If batches cannot be mixed.
        """
        traits = self.dataset.traits(self.transform)
        _require_mixable(self.mix, traits.parts, traits.views)
        _refuse_mixing(self.batch_transform)
        layout = layout_of(self.dataset.layout(self.transform)) if self.collate is default_collate else None
        if self.augments_on_device and (layout is None or traits.parts is not None or self.batch_transform is not None):
            raise OptionError(
                'augment_on="device" requires images that are decoded directly into a batch: pass the dataset a crop= '
                "of a fixed size or views=, but neither fields= nor transform=, batch_transform= or collate_fn="
            )
        if self.batch_transform is not None and (layout is None or not layout.with_images or layout.views):
            raise OptionError(
                "batch_transform requires RGB images that are decoded directly into a batch: pass the dataset a "
                "crop= of a fixed size, but neither transform= nor collate_fn=, views= or another mode="
            )
        if layout is not None and layout.with_images:
            layout = self._with_numbers(layout, traits.parts)
        dataset = self.dataset.frozen_copy() if isinstance(self.dataset, TorchDataset) else self.dataset
        return replace(self, dataset=dataset, layout=layout, parts=traits.parts)

    def _with_numbers(self, layout: Layout, parts: Parts | None) -> Layout:
        """Return the layout; include the conversion of images to the network's input if workers can do it."""
        normalizer, mix = self.normalizer, self.mix
        if normalizer.channels != 3:
            raise OptionError(
                f"normalize has {normalizer.channels} means, but the images of the dataset have 3 channels"
            )
        if mix is not None and mix.makes_fractions and not normalizer.makes_fractions:
            raise OptionError(f"{mix!r} makes pixels that are not integers: pass normalize= or dtype=torch.float32")
        numbers = None if self.on_device else normalizer.numbers
        if numbers is None or _has_other_images(parts):
            return layout
        return layout.with_numbers(numbers, keep_levels=mix is not None or self.batch_transform is not None)

    def jobs(
        self, chunks: Iterable[Ints], batch_size: int, drop_last: bool = False, step: int = 0
    ) -> Iterator[BatchJob]:
        """Yield a job for each batch.

        Crops are chosen for a whole chunk of indices at a time, which is fast. With a `step`, the decoding of slices of
        that length is also prepared for a whole chunk.
        """
        for indices in chunks:
            if drop_last:
                indices = indices[: len(indices) // batch_size * batch_size]
            if self.layout is None:
                yield from (BatchJob(self, indices[some]) for some in split(len(indices), batch_size))
            else:
                yield from self._jobs_in_place(indices, self.layout, batch_size, step)

    def _jobs_in_place(self, indices: Ints, layout: Layout, batch_size: int, step: int) -> Iterator[BatchJob]:
        dataset, batches, firsts = self.dataset, split(len(indices), batch_size), indices[::batch_size]
        choices, operations = dataset.choose(indices, self.epoch, self.seed), None
        if self.augments_on_device:
            choices, operations = parted(choices)
        open_batch = dataset.begin(indices, choices, batch_size, step, layout.decoded_numbers) if step else None
        mixtures, seeds = self._mixtures(firsts, layout), self._transform_seeds(firsts)
        for some, mixture, seed in zip(batches, mixtures, seeds, strict=True):
            yield BatchJob(
                self,
                indices[some],
                choices[some],
                _as_batch(dataset.labels(indices[some])) if self.parts is None else None,
                mixture,
                Postprocess.of(layout, mixture, seed),
                None if operations is None else operations[some],
                None if open_batch is None else functools.partial(open_batch, some),
            )

    def _mixtures(self, firsts: Ints, layout: Layout) -> Sequence[Mixture | None]:
        if self.mix is None:
            return [None] * len(firsts)
        return mixtures_of(self.mix, self.seed, self.epoch, firsts, layout.size)

    def _transform_seeds(self, firsts: Ints) -> Sequence[int | None]:
        """Return, for each batch, the seed of the batch transform; None without a batch transform."""
        if self.batch_transform is None:
            return [None] * len(firsts)
        drawn = uniforms(self.seed + _OF_TRANSFORMS, self.epoch, firsts, 1)[:, 0]
        return [int(number * 2**53) for number in drawn]

    def replacement(self, job: BatchJob) -> BatchJob | None:
        """Return a job in which unreadable samples are replaced; None if an unreadable sample is an error."""
        indices = self.dataset.replacements(job.indices, self.epoch, self.seed)
        if indices is None:
            return None
        (other,) = self.jobs([indices], len(indices))
        other.memory = job.memory
        return other

    def batch(self, job: BatchJob, memory: Tensors | None, results: list[Any]) -> Any:
        """Return the batch of a finished job.

        Images that the device will augment, normalise or mix are left unchanged, in a `DeviceBatch` if necessary.

        Parameters
        ----------
        job : BatchJob
        memory : dict of str to tensor, optional
            The parts of the batch that were written directly into memory, in their final form.
        results : list
            The items, or the values of the batch that are not in `memory`.

        Raises
        ------
        ValueError
            If images have different shapes, or the values of dicts cannot form a batch; the message names the sample.
        """
        batch = self._collated(job, memory, results)
        mixture, in_place = job.mixture, memory is not None
        if self.mix is not None:
            if mixture is None:  # the batch was made from items, whose size was not known before
                height, width = images_of(batch).shape[-2:]
                (mixture,) = mixtures_of(self.mix, self.seed, self.epoch, job.indices[:1], (height, width))
            batch = _with_mixed_labels(batch, mixture)
        if in_place and self.layout is not None and self.layout.numbers is not None:
            return batch
        if mixture is not None or job.operations is not None:
            batch = DeviceBatch(batch, mixture, job.operations)
        elif in_place and self.normalizer.changes_nothing:
            return batch
        return batch if self.on_device else self.normalizer(batch)

    def _collated(self, job: BatchJob, memory: Tensors | None, results: list[Any]) -> Any:
        if self.collation is None or (memory is None and self.collate is not default_collate):
            return (images_in(memory), job.labels) if memory is not None else collate_items(self.collate, results)
        if self.parts is not None and self.parts.is_target:
            return [image for image, _ in results], [target for _, target in results]
        try:
            return self.collation.of_items(results) if memory is None else self.collation.batch(memory, results)
        except UnevenError as error:
            raise OptionError(f"{self.dataset.describe(int(job.indices[error.position]))}: {error.reason}") from None


class BatchFuture(Protocol):
    """The future of a worker's result: a `concurrent.futures.Future`, or a `packer._loader.threads.SlicedFuture`."""

    def result(self) -> list[Any]:
        """Wait for the work; return its results or raise its error."""

    def exception(self) -> BaseException | None:
        """Wait for the work; return its error or None."""

    def cancel(self) -> bool:
        """Cancel the work that has not begun; return True if none had begun, so that the caller need not wait."""


@dataclass(eq=False)
class BatchJob:
    """The work for one batch.

    Attributes
    ----------
    plan : BatchPlan
    indices : (N,) int64 array
        The samples, as indices with turns; see `SampleView`.
    choices : (N, ...) array, optional
        The random choices of the dataset for the samples, such as crops; None if items are made.
    labels : tensor or sequence, optional
        The labels; None if they are made with the items, or belong to the items' fields.
    mixture : Mixture, optional
        Weights and partners of the images and labels, if images are mixed.
    postprocess : Postprocess, optional
        The steps that workers run when all images of the batch are decoded.
    operations : Operations, optional
        The augmentations that run on the device.
    decoder_into : callable, optional
        Takes the batch's memory, and returns a function that decodes a slice of the batch into this memory. None if
        decoding was not prepared for several batches.
    memory : dict of str to tensor, optional
        The memory into which images are decoded; workers allocate it.
    futures : sequence of BatchFuture
        The futures of the work, once workers have begun it.
    """

    plan: BatchPlan
    indices: Ints
    choices: npt.NDArray[Any] | None = None
    labels: Any = None
    mixture: Mixture | None = None
    postprocess: Postprocess | None = None
    operations: Operations | None = None
    decoder_into: Callable[[Tensors], SliceFunction] | None = None
    memory: Tensors | None = None
    futures: Sequence[BatchFuture] = ()

    def results(self) -> list[Any]:
        """Wait for the job; return its results or raise its first error."""
        return [item for future in self.futures for item in future.result()]

    def wait(self) -> None:
        """Wait until no worker writes into the memory of the job."""
        for future in self.futures:
            future.exception()


def cancel(jobs: Iterable[BatchJob]) -> None:
    """Cancel jobs, and wait for the parts that workers have begun, because workers write into the jobs' memory."""
    running = [future for job in jobs for future in job.futures if not future.cancel()]
    for future in running:
        future.exception()


class Postprocess(NamedTuple):
    """The steps that need all images of a batch: the batch transform, conversion to numbers, and mixing.

    Attributes
    ----------
    mixture : Mixture, optional
        The weights of a mixture, and the partner of each image. Images are mixed after conversion to the output's
        dtype.
    seed : int, optional
        The seed for the random numbers of the batch transform; None without a batch transform.
    """

    mixture: Mixture | None
    seed: int | None

    @classmethod
    def of(cls, layout: Layout, mixture: Mixture | None, seed: int | None) -> Postprocess | None:
        """Return the steps; None if no step needs more than a single image."""
        on_cpu = mixture if layout.numbers is not None else None
        return None if on_cpu is None and seed is None else cls(on_cpu, seed)

    def slices(self, count: int, step: int) -> list[slice]:
        """Divide the work into slices of `step` images; a batch transform needs all images in one slice.

        While one thread runs a batch transform, the other threads decode later batches.
        """
        return split(count, step if self.seed is None else count)

    def function(self, layout: Layout, memory: Tensors, transform: BatchTransform) -> SliceFunction:
        """Return a function that runs the steps on a slice of a batch; with a batch transform, on the whole batch."""
        writers = []
        if isinstance(layout.numbers, NumberFormat):  # a lookup is applied when an image is decoded
            pairs = layout.levels_and_numbers(memory)
            writers = [NumberWriter(layout.numbers, levels, numbers, self.mixture) for levels, numbers in pairs]

        def postprocess(some: slice) -> None:
            if transform is not None and self.seed is not None:
                _transform_in_place(transform, memory[IMAGES], self.seed)
            for writer in writers:
                writer.write(some)

        return postprocess


def _transform_in_place(transform: Callable[[Any], Any], images: torch.Tensor, seed: int) -> None:
    """Apply a transform to a batch; raise ValueError unless it returns uint8 images of the same number and shape."""
    with drawing_from(seed):
        made = transform(images)
    if not isinstance(made, torch.Tensor) or made.dtype != torch.uint8 or made.shape != images.shape:
        got = f"{tuple(made.shape)} {made.dtype}" if isinstance(made, torch.Tensor) else f"{made!r:.80}"
        raise OptionError(
            f"batch_transform gets {tuple(images.shape)} uint8 images and must return uint8 images of the same shape, "
            f"not {got}: crop= determines the size, and normalize= and dtype= convert the images after the transform"
        )
    if made.data_ptr() != images.data_ptr() or made.stride() != images.stride():
        same_memory = made.untyped_storage().data_ptr() == images.untyped_storage().data_ptr()
        images.copy_(made.clone() if same_memory else made)  # the result may be a view, such as transposed images


def _as_batch(targets: Labels | Sequence[Any]) -> Any:
    if isinstance(targets, np.ndarray):
        return torch.from_numpy(targets.copy())
    return default_collate(tuple(targets))  # type: ignore[arg-type]  # texts become a tuple, as in torch's DataLoader


def _has_other_images(parts: Parts | None) -> bool:
    """Tell whether items have fields whose tensors look like images, so that they are converted like images too."""
    if parts is None:
        return False
    kinds = [KINDS[field.kind] for field in parts.item_fields.values()]
    return any(kind.pixels == "colours" or kind.form == "array" for kind in kinds)


def mixtures_of(mix: Mixing, seed: int, epoch: int, firsts: Ints, size: tuple[int, int]) -> list[Mixture]:
    """Return a mixture for each batch, drawn from seed, epoch and the batch's first index.

    `size` is the size of all images.
    """
    return [mix.choose(*size, row) for row in uniforms(seed + _OF_MIXTURES, epoch, firsts, mix.randoms)]


def _require_mixable(mix: Any, parts: Parts | None, views: int) -> None:
    """Raise TypeError or ValueError if `mix` is not a Mixing, or items cannot be mixed."""
    if mix is None:
        return
    if not isinstance(mix, Mixing):
        raise OptionTypeError(
            "mix must be one of packer's, such as packer.augment.MixUp(num_classes=1000), or a "
            f"packer.augment.RandomChoice of them, not {named(mix)}"
        )
    if views:
        raise OptionError("mix= needs one image for each sample, but views= make several")
    if parts is None:
        return
    if parts.is_target or parts.cropped or not {"image", "label"} <= set(parts.names):
        raise OptionError(
            "mix= mixes only images and class labels, but no coordinates and no other images: items with "
            f"fields={parts.names!r} cannot be mixed"
        )


def _refuse_mixing(batch_transform: Any) -> None:
    """Raise TypeError if a batch transform is, or contains, torchvision's MixUp or CutMix."""
    steps = [batch_transform]
    for step in steps:
        nested = getattr(step, "transforms", ())
        steps += nested if isinstance(nested, (list, tuple)) else ()
        step_class = type(step)
        if step_class.__name__ in ("MixUp", "CutMix") and step_class.__module__.startswith("torchvision."):
            raise OptionTypeError(
                f"batch_transform gets images without labels, but {step_class.__name__} also mixes labels: pass "
                f"mix=packer.augment.{step_class.__name__}(num_classes=...)"
            )


def _with_mixed_labels(batch: Any, mixture: Mixture) -> Any:
    """Return a batch of images and labels with mixed labels; raise ValueError if it has no tensor of labels."""
    is_dict = isinstance(batch, Mapping)
    is_pair = isinstance(batch, (tuple, list)) and len(batch) == 2
    labels = batch.get("label") if is_dict else batch[1] if is_pair else None
    if not isinstance(labels, torch.Tensor):
        raise OptionError(f"mix= needs a batch of images and a tensor of labels, not {labels!r:.80}")
    mixed = mixed_labels(labels, mixture)
    if is_dict:
        return {**batch, "label": mixed}
    return type(batch)(batch[0], mixed) if hasattr(batch, "_fields") else type(batch)([batch[0], mixed])
