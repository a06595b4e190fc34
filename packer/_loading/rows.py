"""Items whose images are the rows of one batch from the beginning, so that DataLoader's collation copies none.

torch's default_collate copies each image of a batch into new memory, which the main process shares. For images of
224 x 224 float32 numbers that takes as long as half of the decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import default_collate, get_worker_info

__all__ = ["Item", "empty_rows"]


class Item(NamedTuple):
    """Image and label, as a type of its own, by which default_collate finds `_collated`."""

    image: Any
    label: Any


def empty_rows(count: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Return an uninitialized (count, *shape) float32 tensor; in a worker of DataLoader, in shared memory."""
    if get_worker_info() is None:
        return torch.from_numpy(np.empty((count, *shape), np.float32))  # NumPy asks for huge pages, torch does not
    batch, size = torch.empty(0), torch.Size((count, *shape))
    new_shared: Any = torch.UntypedStorage._new_shared  # as default_collate does
    storage: torch.UntypedStorage = new_shared(size.numel() * batch.element_size())
    return batch.set_(storage).view(size)


def _collated(items: Sequence[Item], *, collate_fn_map: Any = None) -> list[Any]:
    """Return images and labels as default_collate does of tuples; images that are rows of a batch are not copied."""
    images, labels = ([item[part] for item in items] for part in (0, 1))
    whole = _whole(images)
    return [default_collate(images) if whole is None else whole, default_collate(labels)]


def _whole(images: Sequence[Any]) -> torch.Tensor | None:
    """Return the batch whose rows some images are, one after the other; None where they are anything else."""
    if not all(isinstance(image, torch.Tensor) and image.is_contiguous() for image in images):
        return None
    first: torch.Tensor
    first, *others = (image.as_subclass(torch.Tensor) for image in images)
    begin, step, memory = first.storage_offset(), first.numel(), first.untyped_storage().data_ptr()
    for number, image in enumerate(others, 1):
        follows = image.storage_offset() == begin + number * step and image.untyped_storage().data_ptr() == memory
        if not follows or image.shape != first.shape or image.dtype != first.dtype or image.requires_grad:
            return None
    return first.as_strided((len(images), *first.shape), (step, *first.stride()))


try:
    from torch.utils.data._utils.collate import default_collate_fn_map
except ImportError:  # collation then copies
    pass
else:
    default_collate_fn_map[Item] = _collated  # the way that default_collate's documentation shows
