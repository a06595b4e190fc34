"""The two ends of a batch of the Loader: its plan before images are decoded, and how made items become one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import default_collate

from packer._images.geometry import Crops
from packer._loading.collation import Collation, UnevenError
from packer._loading.memory import Layout
from packer._loading.readable import Readable
from packer._loading.threads import Memory, Workers
from packer._table import Ints

__all__ = ["PLANNED_TOGETHER", "Batch", "collation_of", "finished", "planned", "submitted"]


PLANNED_TOGETHER = 8  # batches whose indices and crops are computed at once

Collate = Callable[[list[Any]], Any]


class Batch(NamedTuple):
    """A batch in work: its indices, and, where pixels are written in place, also crops, labels and memory."""

    indices: Ints
    crops: Crops | None = None
    labels: Any = None
    memory: Memory | None = None
    tasks: Sequence[Future[list[Any]]] = ()


def planned(  # noqa: PLR0917
    dataset: Readable,
    chunks: Iterator[Ints],
    batch_size: int,
    drop_last: bool,
    epoch: int,
    seed: int,
    in_place: bool,
) -> Iterator[Batch]:
    """Yield batches; `in_place` with labels, and with crops, which are cheap to choose for many batches at a time."""
    for indices in chunks:
        if drop_last:
            indices = indices[: len(indices) // batch_size * batch_size]
        crops = dataset._choose_crops(indices, epoch, seed) if in_place else None
        for begin in range(0, len(indices), batch_size):
            batch = slice(begin, begin + batch_size)
            if crops is None:
                yield Batch(indices[batch])
            elif dataset._parts is not None:
                yield Batch(indices[batch], crops[batch])
            else:
                targets = dataset._targets_of(indices[batch])
                labels = torch.from_numpy(targets) if isinstance(targets, np.ndarray) else default_collate(targets)
                yield Batch(indices[batch], crops[batch], labels)


def submitted(workers: Workers, batch: Batch, layout: Layout | None, epoch: int, seed: int) -> Batch:
    """Return a batch that workers have begun with; without a layout they make its items."""
    if layout is None or batch.crops is None:
        return batch._replace(tasks=workers.make(batch.indices, epoch, seed))
    memory = workers.allocate(len(batch.indices), layout)
    return batch._replace(memory=memory, tasks=workers.fill(memory, layout, batch.indices, batch.crops))


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
        return (batch.memory["image"], batch.labels) if batch.memory is not None else collated(collate, made)
    if dataset._parts is not None and dataset._parts.is_target:
        return [image for image, _ in made], [target for _, target in made]
    try:
        return fields.of_items(made) if batch.memory is None else fields.batch(batch.memory, made)
    except UnevenError as error:
        raise ValueError(f"{dataset._called(int(batch.indices[error.place]))}: {error.reason}") from None


def collated(collate: Collate, items: list[Any]) -> Any:
    """Return a batch of items; ValueError with advice where the images have different shapes."""
    try:
        return collate(items)
    except RuntimeError as error:
        shapes = sorted({tuple(getattr(image, "shape", ())) for image, _ in items})
        if collate is not default_collate or len(shapes) < 2:
            raise
        raise ValueError(
            f"the images of a batch have different shapes, such as {shapes[0]} and {shapes[-1]}: give the dataset "
            "a crop= of a fixed size, as packer.CenterCrop(224), or the Loader a collate_fn= that does not stack them"
        ) from error
