"""The memory that images are decoded into: made, or given by others and looked at before C writes into it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
import torch

from packer._images.geometry import Crops
from packer._images.native.locating import Results
from packer._images.numbers import Numbers
from packer._images.rectangle import require_channels_last
from packer._loading.lookup import Lookup
from packer._table import Ints

__all__ = ["OTHERS", "addresses_of", "addresses_of_numbers", "memory_of", "places_of", "results_of"]

OTHERS = "images are decoded into tensors of other sizes, or another number, than the crops say"
"""What is wrong with such tensors."""


def memory_of(crops: Crops) -> tuple[Any, Any]:
    """Return memory for the results of N crops, as arrays and as tensors: one of each where they have one size."""
    sizes = list(zip(crops["out_height"].tolist(), crops["out_width"].tolist(), strict=True))
    if len(set(sizes)) == 1:
        together = np.empty((len(sizes), *sizes[0], 3), np.uint8)
        return together, torch.from_numpy(together).permute(0, 3, 1, 2)
    images = [np.empty((*size, 3), np.uint8) for size in sizes]
    return images, [torch.from_numpy(image).permute(2, 0, 1) for image in images]


def addresses_of(outs: torch.Tensor | Sequence[torch.Tensor], crops: Crops) -> Ints:
    """Return the addresses of (3, height, width) uint8 tensors, whose memory is channels last and what crops need.

    Raises
    ------
    ValueError
        If a tensor is of another kind, size or layout.
    """
    heights, widths = crops["out_height"], crops["out_width"]
    if isinstance(outs, torch.Tensor):
        require_channels_last(outs)
        if outs.shape[:2] != (len(crops), 3) or (heights != outs.shape[2]).any() or (widths != outs.shape[3]).any():
            raise ValueError(OTHERS)
        return outs.data_ptr() + math.prod(outs.shape[1:]) * np.arange(len(crops))
    for out in outs:
        require_channels_last(out[None])
    if [tuple(out.shape) for out in outs] != list(zip(repeat(3), heights.tolist(), widths.tolist())):
        raise ValueError(OTHERS)
    return np.array([out.data_ptr() for out in outs], np.int64)


def addresses_of_numbers(
    outs: torch.Tensor | Sequence[torch.Tensor], crops: Crops, dtype: torch.dtype, planes: bool
) -> Ints:
    """Return the addresses of (3, height, width) tensors of numbers, whose memory is what crops need.

    Raises
    ------
    ValueError
        If a tensor is of another type, size or layout.
    """
    batches = [outs] if isinstance(outs, torch.Tensor) else [out[None] for out in outs]
    for batch in batches:
        _require_numbers(batch, dtype, planes)
    sizes = [(3, height, width) for height, width in zip(crops["out_height"], crops["out_width"], strict=True)]
    if [tuple(image.shape) for batch in batches for image in batch] != sizes:
        raise ValueError(OTHERS)
    size = dtype.itemsize * math.prod(sizes[0]) if sizes else 0
    addresses = [batch.data_ptr() + size * np.arange(len(batch)) for batch in batches]
    return np.concatenate(addresses) if addresses else np.zeros(0, np.int64)


def places_of(outs: torch.Tensor | Sequence[torch.Tensor], crops: Crops, numbers: Lookup | Numbers | None) -> Ints:
    """Return the addresses of the tensors into which images are decoded, or written as numbers; errors as above."""
    if numbers is None:
        return addresses_of(outs, crops)
    return addresses_of_numbers(outs, crops, *_kind_of(numbers))


def results_of(outs: torch.Tensor, count: int, numbers: Lookup | Numbers | None) -> Results:
    """Return the memory of a tensor of `count` images, or of the numbers that they become, whose size is not compared.

    Raises
    ------
    ValueError
        If the tensor is of another type, number or layout.
    """
    if numbers is None:
        require_channels_last(outs)
    else:
        _require_numbers(outs, *_kind_of(numbers))
    images, channels, height, width = outs.shape
    if images != count or channels != 3:
        raise ValueError(OTHERS)
    return Results(outs.data_ptr(), 3 * height * width * outs.element_size(), height, width)


def _kind_of(numbers: Lookup | Numbers) -> tuple[torch.dtype, bool]:
    """Return the type of numbers, and whether those of a colour lie together."""
    return (torch.float32, True) if isinstance(numbers, Lookup) else (getattr(torch, numbers.dtype), numbers.planes)


def _require_numbers(batch: torch.Tensor, dtype: torch.dtype, planes: bool) -> None:
    layout = torch.contiguous_format if planes else torch.channels_last
    sound = batch.device.type == "cpu" and batch.dtype == dtype and batch.dim() == 4
    if not sound or not batch.is_contiguous(memory_format=layout):
        raise ValueError(f"images become numbers in {dtype} tensors of the CPU, whose memory is {layout}")
