"""The two ends of a batch of the Loader: its plan before images are decoded, and how made items become one batch.

What a Loader hands out, of a batch whose tasks are done.

MixUp and CutMix of a Loader: which batches can be mixed, and their labels.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import default_collate

from packer._datasets.fields import Parts
from packer._datasets.items import BAD
from packer._datasets.memory import Layout, images_in, layout_of, pinned
from packer._datasets.pipeline import Transform
from packer._datasets.protocol import LoaderDataset
from packer._images.geometry import Crops
from packer._images.numbers import Mixture
from packer._images.operations import parted
from packer._loader.collate import Collation, UnevenError
from packer._loader.prefetch import Normalizer, Unfinished, images_of
from packer._loader.threads import Begin, Ending, Memory, Task, Workers, split
from packer._table import Ints, Labels
from packer.augment import Mixing
from packer.augment._mixup import mixed_labels
from packer.augment._settings import named
from packer.samplers._random import uniforms

__all__ = [
    "Batch",
    "Finishing",
    "How",
    "awaited",
    "collation_of",
    "finished",
    "planned",
    "planned_together",
    "refuse_mixing",
    "require_mixable",
    "submitted",
    "with_mixed_labels",
]

_BATCHES_TOGETHER, _IMAGES_TOGETHER = 8, 1024


def planned_together(batch_size: int) -> int:
    """Return of how many images, in whole batches, indices and crops are computed at once: the first batch waits."""
    return batch_size * max(_BATCHES_TOGETHER, _IMAGES_TOGETHER // batch_size)


_OF_MIXTURES, _OF_TRANSFORMS = 0x2545F4914F6CDD1D, 0x6C62272E07BB0142  # from the seeds of the crops to those of batches

Collate = Callable[[list[Any]], Any]


class How(NamedTuple):
    """How the batches of a pass are made.

    Attributes
    ----------
    layout : Layout, optional
        The layout of their memory; None where items are made.
    epoch, seed : int
        They decide the crops, and what is drawn for whole batches.
    mix : Mixing, optional
        What mixes the images of a batch.
    transforms : bool
        Whether there is a transform of whole batches.
    augments_later : bool
        Whether the operations of the crops are left to who finishes the batch, on another device.
    step : int
        How many images threads of this process decode at a time; 0 where others do.
    """

    layout: Layout | None = None
    epoch: int = 0
    seed: int = 0
    mix: Any = None
    transforms: bool = False
    augments_later: bool = False
    step: int = 0

    def mixtures(self, firsts: Ints, size: tuple[int, int]) -> list[Mixture]:
        """Return what batches of images of a size are mixed by: a function of seed, epoch and each first index."""
        mix: Mixing = self.mix
        return [mix.choose(*size, row) for row in uniforms(self.seed + _OF_MIXTURES, self.epoch, firsts, mix.randoms)]

    def endings(self, firsts: Ints) -> list[Ending]:
        """Return what is left to do with batches when their images are decoded in their places."""
        mixtures: list[Mixture | None] = [None] * len(firsts)
        seeds: list[int | None] = [None] * len(firsts)
        if self.mix is not None and self.layout is not None:
            mixtures = [*self.mixtures(firsts, self.layout.size)]
        if self.transforms:
            drawn = uniforms(self.seed + _OF_TRANSFORMS, self.epoch, firsts, 1)[:, 0]
            seeds = [int(number * 2**53) for number in drawn]
        return [*map(Ending, mixtures, seeds)]


_NO_ENDING = Ending()


@dataclass(eq=False)
class Batch:
    """A batch in work: its indices, and, where pixels are written in place, also crops, labels and memory.

    Its images are decoded by what `begin` returns, where that was made for several batches.
    """

    indices: Ints
    how: How
    crops: Crops | None = None
    labels: Any = None
    memory: Memory | None = None
    tasks: Sequence[Task] = ()
    ending: Ending = _NO_ENDING
    begin: Begin | None = None


def planned(
    dataset: LoaderDataset, chunks: Iterator[Ints], batch_size: int, drop_last: bool, how: How
) -> Iterator[Batch]:
    """Yield batches; those made in place with labels, and with crops, which are cheap to choose for many at a time."""
    for indices in chunks:
        if drop_last:
            indices = indices[: len(indices) // batch_size * batch_size]
        batches = split(len(indices), batch_size)
        if how.layout is None:
            yield from (Batch(indices[some], how) for some in batches)
            continue
        crops, operations = dataset.choose(indices, how.epoch, how.seed), None
        if how.augments_later:
            crops, operations = parted(crops)
        begun = None
        if how.step:
            begun = dataset.begin(indices, crops, batch_size, how.step, how.layout.decoded_numbers)
        endings, labels = how.endings(indices[::batch_size]), _labels_of(dataset, indices, batches)
        for some, ending, own in zip(batches, endings, labels, strict=True):
            if operations is not None:
                ending = ending._replace(operations=operations[some])
            begin = None if begun is None else functools.partial(begun, some)
            yield Batch(indices[some], how, crops[some], own, ending=ending, begin=begin)


def _labels_of(dataset: LoaderDataset, indices: Ints, batches: Sequence[slice]) -> Iterable[Any]:
    """Return the labels of batches, each when it is planned; None of each where they are among the fields."""
    if dataset.traits().parts is not None:
        return [None] * len(batches)
    return (_as_batch(dataset.labels(indices[some])) for some in batches)


def _as_batch(targets: Labels | Sequence[Any]) -> Any:
    if isinstance(targets, np.ndarray):
        return torch.from_numpy(targets.copy())
    return default_collate(tuple(targets))  # type: ignore[arg-type]  # texts stay a tuple, as torch makes of items


def submitted(workers: Workers, batch: Batch) -> Batch:
    """Return a batch when workers have begun with it, in its memory if it has some; or with items, without a layout."""
    layout, how = batch.how.layout, batch.how
    if layout is None or batch.crops is None:
        batch.tasks = workers.make(batch.indices, how.epoch, how.seed)
        return batch
    memory = batch.memory or workers.allocate(len(batch.indices), layout)
    ending = batch.ending.of_threads(layout)
    if batch.begin is not None:
        batch.tasks, batch.begin = workers.go_on(memory, layout, batch.begin, ending), None
    else:
        batch.tasks = workers.fill(memory, layout, batch.indices, batch.crops, ending)
    batch.memory = memory
    return batch


def awaited(dataset: LoaderDataset, workers: Workers, batch: Batch) -> tuple[Batch, list[Any]]:
    """Wait for a batch; return the batch, in which bad samples may have been replaced, and its results."""
    try:
        return batch, _results(batch)
    except BAD:
        for task in batch.tasks:
            task.exception()  # waits: tasks write into the memory, which is filled anew
        how = batch.how
        indices = dataset.replacements(batch.indices, how.epoch, how.seed)
        if indices is None:
            raise
    (other,) = planned(dataset, iter([indices]), len(indices), False, how)
    other.memory = batch.memory
    return submitted(workers, other), _results(other)


def _results(batch: Batch) -> list[Any]:
    return [item for task in batch.tasks for item in task.result()]


def collation_of(dataset: LoaderDataset, pad: Any) -> Collation | None:
    """Return what makes batches of dicts; None where the items of a dataset are none."""
    parts = dataset.traits().parts
    if parts is None:
        if pad is not None:
            raise ValueError("pad is for a dataset that was opened with fields=")
        return None
    return Collation(parts, pad)


def finished(dataset: LoaderDataset, batch: Batch, made: list[Any], collate: Collate, fields: Collation | None) -> Any:
    """Return a batch that is done, of its memory and of what its tasks made.

    Raises
    ------
    ValueError
        With advice, where images have different shapes, or a dict's values are none of a batch: it names the sample.
    """
    if fields is None or (batch.memory is None and collate is not default_collate):
        return (images_in(batch.memory), batch.labels) if batch.memory is not None else collated(collate, made)
    parts = dataset.traits().parts
    if parts is not None and parts.is_target:
        return [image for image, _ in made], [target for _, target in made]
    try:
        return fields.of_items(made) if batch.memory is None else fields.batch(batch.memory, made)
    except UnevenError as error:
        raise ValueError(f"{dataset.describe(int(batch.indices[error.place]))}: {error.reason}") from None


def _shape(image: Any) -> tuple[int, ...]:
    return tuple(getattr(image, "shape", ()))


def collated(collate: Collate, items: list[Any]) -> Any:
    """Return a batch of items; ValueError with advice where the images have different shapes."""
    try:
        return collate(items)
    except RuntimeError as error:
        images = [image if isinstance(image, tuple) else (image,) for image, _ in items]  # of each view
        shapes = next((sorted(made) for view in zip(*images) if len(made := set(map(_shape, view))) > 1), [])  # noqa: B905
        if collate is not default_collate or len(shapes) < 2:
            raise
        raise ValueError(
            f"the images of a batch have different shapes, such as {shapes[0]} and {shapes[-1]}: give the dataset "
            "a crop= of a fixed size, as packer.CenterCrop(224), or the Loader a collate_fn= that does not stack them"
        ) from error


def require_mixable(mix: Any, parts: Parts | None, views: int = 0) -> None:
    """Raise TypeError or ValueError where `mix` is no Mixing, or items have what cannot be mixed."""
    if mix is None:
        return
    if not isinstance(mix, Mixing):
        raise TypeError(
            "mix is packer's, such as packer.augment.MixUp(num_classes=1000), or packer.augment.RandomChoice of such, "
            f"not {named(mix)}"
        )
    if views:
        raise ValueError("mix= mixes one image of each sample with another, and views= make several")
    if parts is None:
        return
    if parts.is_target or parts.cropped or not {"image", "label"} <= set(parts.names):
        raise ValueError(
            "mix= mixes images and class labels, and neither places nor pixels of fields: items of "
            f"fields={parts.names!r} cannot be mixed"
        )


def refuse_mixing(batch_transform: Any) -> None:
    """Raise TypeError where a transform of batches is torchvision's MixUp or CutMix, or a chain that has one."""
    steps = [batch_transform]
    for step in steps:
        nested = getattr(step, "transforms", ())
        steps += nested if isinstance(nested, (list, tuple)) else ()
        kind = type(step)
        if kind.__name__ in ("MixUp", "CutMix") and kind.__module__.startswith("torchvision."):
            raise TypeError(
                f"batch_transform gets images without their labels, which {kind.__name__} mixes too: say "
                f"mix=packer.augment.{kind.__name__}(num_classes=...)"
            )


def with_mixed_labels(batch: Any, mixture: Mixture) -> Any:
    """Return a batch of images and labels whose labels are mixed; errors as of `mixed_labels`."""
    has_names = isinstance(batch, Mapping)
    labels = batch.get("label") if has_names else _second(batch)
    if not isinstance(labels, torch.Tensor):
        raise ValueError(f"mix= mixes a batch of images and labels, which are a tensor, and these are {labels!r:.80}")
    mixed = mixed_labels(labels, mixture)
    if has_names:
        return {**batch, "label": mixed}
    return type(batch)(batch[0], mixed) if hasattr(batch, "_fields") else type(batch)([batch[0], mixed])


def _second(batch: Any) -> Any:
    return batch[1] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None


class Finishing(NamedTuple):
    """How batches are finished.

    Attributes
    ----------
    collate, fields : callable, Collation or None
        As `packer._loader.batch.finished` takes them.
    normalizer : Normalizer
    pins : bool
        Whether what threads wrote is page-locked.
    elsewhere : bool
        Whether images become numbers on another device.
    augments : bool
        Whether they are augmented there, too.
    """

    collate: Collate
    fields: Collation | None
    normalizer: Normalizer
    pins: bool
    elsewhere: bool
    augments: bool = False

    def layout(
        self, images: LoaderDataset, transform: Transform, of_batches: object, mix: Mixing | None
    ) -> Layout | None:
        """Return the layout of batches whose images are decoded in their places; None where items are collated.

        Raises
        ------
        TypeError, ValueError
            If there is a transform of batches, or batches are augmented on a device, and nothing is decoded in its
            place; or batches cannot be mixed.
        """
        traits = images.traits()
        require_mixable(mix, traits.parts, traits.views)
        refuse_mixing(of_batches)
        layout = layout_of(images.layout(transform)) if self.collate is default_collate else None
        if self.augments and (layout is None or traits.parts is not None or of_batches is not None):
            raise ValueError(
                'augment_on="device" is for images that are decoded into their batch: give the dataset a crop= of a '
                "fixed size or views=, and neither fields= nor transform= nor batch_transform= nor collate_fn="
            )
        if of_batches is not None and (layout is None or not layout.with_images or layout.views):
            raise ValueError(
                "batch_transform is for RGB images that are decoded into their batch: give the dataset a crop= of a "
                "fixed size, and neither transform= nor collate_fn= nor views= nor another mode="
            )
        if layout is None or not layout.with_images:
            return layout
        self.normalizer.require_channels(3)
        if mix is not None and mix.makes_fractions and not self.normalizer.makes_fractions:
            raise ValueError(f"{mix!r} makes fractions of pixels: say normalize= or dtype=torch.float32")
        numbers = None if self.elsewhere else self.normalizer.numbers
        if numbers is None or _has_other_images(traits.parts):
            return layout
        return layout.with_numbers(numbers, beside=mix is not None or of_batches is not None)

    def oldest(self, images: LoaderDataset, workers: Workers, pending: deque[Batch]) -> Any:
        """Wait for the first of the batches in work, and return it; it is pending until all of its tasks have ended."""
        batch, results = awaited(images, workers, pending[0])
        pending.popleft()
        return self._batch(images, workers, batch, results)

    def _batch(self, images: LoaderDataset, workers: Workers, batch: Batch, results: list[Any]) -> Any:
        """Return a batch; its images wait for the device where they are normalised and mixed there."""
        layout = batch.how.layout
        if batch.memory is not None and layout is not None:
            memory = workers.hand_out(layout.handed_out(batch.memory))
            batch.memory = pinned(memory) if self.pins else memory
        else:
            workers.warn_of_draws()
        made = finished(images, batch, results, self.collate, self.fields)
        mixture = batch.ending.mixture
        if batch.how.mix is not None:
            if mixture is None:  # of items, whose size nobody knew before
                height, width = images_of(made).shape[-2:]
                mixture = batch.how.mixtures(batch.indices[:1], (height, width))[0]
            made = with_mixed_labels(made, mixture)
        if batch.memory is not None and layout is not None and layout.numbers is not None:
            return made
        if mixture is not None or batch.ending.operations is not None:
            made = Unfinished(made, mixture, batch.ending.operations)
            return made if self.elsewhere else self.normalizer(made)
        if self.elsewhere or (batch.memory is not None and self.normalizer.changes_nothing):
            return made
        return self.normalizer(made)


def _has_other_images(parts: Parts | None) -> bool:
    """Tell whether items have fields of pixels that become numbers, too."""
    if parts is None:
        return False
    return any(parts.fields[name].kind in ("image", "array") for name in parts.names if name in parts.fields)
