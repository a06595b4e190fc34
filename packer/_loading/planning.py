"""The two ends of a batch of the Loader: its plan before images are decoded, and how made items become one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import default_collate

from packer._images.geometry import Crops
from packer._images.numbers import Mixture
from packer._images.operations import Operations, parted
from packer._loading.collation import Collation, UnevenError
from packer._loading.ending import Ending
from packer._loading.memory import Layout, images_in
from packer._loading.readable import Readable
from packer._loading.replacing import BAD, good
from packer._loading.threads import Memory, Workers
from packer._table import Ints
from packer.augment import Mixing
from packer.samplers._uniforms import uniforms

__all__ = ["Batch", "How", "awaited", "collation_of", "finished", "planned", "planned_together", "submitted"]


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
    """

    layout: Layout | None = None
    epoch: int = 0
    seed: int = 0
    mix: Any = None
    transforms: bool = False
    augments_later: bool = False

    def mixture(self, indices: Ints, size: tuple[int, int]) -> Mixture:
        """Return what a batch of images of a size is mixed by, if it is: a function of seed, epoch and indices."""
        mix: Mixing = self.mix
        return mix.choose(*size, uniforms(self.seed + _OF_MIXTURES, self.epoch, indices[:1], mix.randoms)[0])

    def ending(self, indices: Ints, operations: Operations | None = None) -> Ending:
        """Return what is left to do with a batch when its images are decoded in their places."""
        mixture = seed = None
        if self.mix is not None and self.layout is not None:
            mixture = self.mixture(indices, self.layout.size)
        if self.transforms:
            seed = int(uniforms(self.seed + _OF_TRANSFORMS, self.epoch, indices[:1], 1)[0, 0] * 2**53)
        return Ending(mixture, seed, operations)


class Batch(NamedTuple):
    """A batch in work: its indices, and, where pixels are written in place, also crops, labels and memory."""

    indices: Ints
    crops: Crops | None = None
    labels: Any = None
    memory: Memory | None = None
    tasks: Sequence[Future[list[Any]]] = ()
    how: How = How()
    ending: Ending = Ending()


def planned(dataset: Readable, chunks: Iterator[Ints], batch_size: int, drop_last: bool, how: How) -> Iterator[Batch]:
    """Yield batches; those made in place with labels, and with crops, which are cheap to choose for many at a time."""
    for indices in chunks:
        if drop_last:
            indices = indices[: len(indices) // batch_size * batch_size]
        crops = dataset._choose_crops(indices, how.epoch, how.seed) if how.layout is not None else None
        operations = None
        if how.augments_later and crops is not None:
            crops, operations = parted(crops)
        for begin in range(0, len(indices), batch_size):
            batch = slice(begin, begin + batch_size)
            some = indices[batch]
            if crops is None:
                yield Batch(some, how=how)
                continue
            labels = None
            if dataset._parts is None:
                targets = dataset._targets_of(some)
                labels = torch.from_numpy(targets) if isinstance(targets, np.ndarray) else default_collate(targets)
            ending = how.ending(some, None if operations is None else operations[batch])
            yield Batch(some, crops[batch], labels, how=how, ending=ending)


def submitted(workers: Workers, batch: Batch) -> Batch:
    """Return a batch that workers have begun with, in its memory if it has some; without a layout they make items."""
    layout, how = batch.how.layout, batch.how
    if layout is None or batch.crops is None:
        return batch._replace(tasks=workers.make(batch.indices, how.epoch, how.seed))
    memory = batch.memory or workers.allocate(len(batch.indices), layout)
    tasks = workers.fill(memory, layout, batch.indices, batch.crops, batch.ending.of_threads(layout))
    return batch._replace(memory=memory, tasks=tasks)


def awaited(dataset: Readable, workers: Workers, batch: Batch) -> tuple[Batch, list[Any]]:
    """Wait for a batch; return the batch, in which bad samples may have been replaced, and its results."""
    try:
        return batch, _results(batch)
    except BAD:
        replaced = dataset._replaced
        if replaced is None:
            raise
        for task in batch.tasks:
            task.exception()  # waits: tasks write into the memory, which is filled anew
    how = batch.how
    indices = good(
        batch.indices, len(dataset), lambda index: dataset._require_good(index, how.epoch, how.seed), replaced
    )
    (other,) = planned(dataset, iter([indices]), len(indices), False, how)
    batch = submitted(workers, other._replace(memory=batch.memory))
    return batch, _results(batch)


def _results(batch: Batch) -> list[Any]:
    return [item for task in batch.tasks for item in task.result()]


def collation_of(dataset: Readable, pad: Any) -> Collation | None:
    """Return what makes batches of dicts; None where the items of a dataset are none."""
    if dataset._parts is None:
        if pad is not None:
            raise ValueError("pad is for a dataset that was opened with fields=")
        return None
    return Collation(dataset._parts, pad)


def finished(dataset: Readable, batch: Batch, made: list[Any], collate: Collate, fields: Collation | None) -> Any:
    """Return a batch that is done, of its memory and of what its tasks made.

    Raises
    ------
    ValueError
        With advice, where images have different shapes, or a dict's values are none of a batch: it names the sample.
    """
    if fields is None or (batch.memory is None and collate is not default_collate):
        return (images_in(batch.memory), batch.labels) if batch.memory is not None else collated(collate, made)
    if dataset._parts is not None and dataset._parts.is_target:
        return [image for image, _ in made], [target for _, target in made]
    try:
        return fields.of_items(made) if batch.memory is None else fields.batch(batch.memory, made)
    except UnevenError as error:
        raise ValueError(f"{dataset._called(int(batch.indices[error.place]))}: {error.reason}") from None


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
