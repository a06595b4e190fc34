"""The two ends of a batch of the Loader: its plan before images are decoded, and how made items become one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import default_collate

from packer._images.geometry import Crops
from packer._loading.readable import Readable
from packer._table import Ints

__all__ = ["PLANNED_TOGETHER", "Batch", "collated", "planned"]


PLANNED_TOGETHER = 8  # batches whose indices and crops are computed at once


class Batch(NamedTuple):
    """A batch in work: its indices, and, where images are written in place, also their crops, labels and memory."""

    indices: Ints
    crops: Crops | None = None
    labels: Any = None
    images: torch.Tensor | None = None
    tasks: Sequence[Future[Any]] = ()


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
            else:
                targets = dataset._targets_of(indices[batch])
                labels = torch.from_numpy(targets) if isinstance(targets, np.ndarray) else default_collate(targets)
                yield Batch(indices[batch], crops[batch], labels)


def collated(collate: Callable[[list[Any]], Any], items: list[Any]) -> Any:
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
