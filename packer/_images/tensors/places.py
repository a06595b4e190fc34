"""Pixels that move, and rectangles that are erased, in a batch; see `packer._images.tensors.levels`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from packer._images.operations import FILTERS, NO_FILL

__all__ = ["erase", "move"]


def move(images: torch.Tensor, operations: Any) -> torch.Tensor:
    made = images.clone()
    for interpolation, name in enumerate(FILTERS):
        chosen = np.flatnonzero(operations["interpolation"] == interpolation)
        if chosen.size:
            which = torch.from_numpy(chosen).to(images.device)
            made[which] = _moved(images[which], operations[chosen], name)
    return made


def _moved(images: torch.Tensor, operations: Any, interpolation: str) -> torch.Tensor:
    grid = _grid(images, operations["matrix"])
    if interpolation == "nearest":
        return _nearest(images, grid, _colours(images, operations).byte())
    inside = torch.ones_like(images[:, :1])
    both = torch.cat([images, inside], 1).float()
    found = F.grid_sample(both, grid, mode=interpolation, padding_mode="zeros", align_corners=False)
    moved, share = found[:, :3], found[:, 3:]  # how much of a pixel comes from inside of the image
    filled = torch.from_numpy(operations["fill"] != NO_FILL).to(images.device)[:, None, None, None]
    with_fill = moved * share + (1 - share) * _colours(images, operations)
    return torch.where(filled, with_fill, moved).round_().clamp_(0, 255).byte()


def _nearest(images: torch.Tensor, grid: torch.Tensor, colours: torch.Tensor) -> torch.Tensor:
    """Return the pixels at places of a grid, and colours outside of the image.

    As `grid_sample` does, but with the same roundings on every device: a place halfway between two pixels, of which
    some movements have many, is moved to the same one. A GPU's `grid_sample` multiplies and adds with one rounding.
    """
    height, width = images.shape[2:]
    size = torch.tensor([width, height], dtype=torch.float32, device=images.device)
    places = grid.add(1).mul_(size).sub_(1).div_(2).round_()
    inside = ((places >= 0) & (places < size)).all(3)
    columns, rows = places.clamp_(min=0).minimum(size - 1).long().unbind(3)
    which = (rows * width + columns).flatten(1)[:, None].expand(-1, 3, -1)
    found = images.flatten(2).gather(2, which).view(images.shape)
    return torch.where(inside[:, None], found, colours)


def _grid(images: torch.Tensor, matrices: Any) -> torch.Tensor:
    """Return where each pixel comes from, in halves of the image from its centre: (N, height, width, 2)."""
    height, width = images.shape[2:]
    across = torch.arange(width, dtype=torch.float32, device=images.device) + (0.5 - 0.5 * width)
    down = torch.arange(height, dtype=torch.float32, device=images.device) + (0.5 - 0.5 * height)
    halves = torch.tensor([[0.5 * width], [0.5 * height]], device=images.device)
    scaled = torch.tensor(np.asarray(matrices).reshape(-1, 2, 3), dtype=torch.float32, device=images.device) / halves
    of_column, of_row, shift = scaled[:, None, None].unbind(4)
    # No product of matrices: what a program allows them (TF32, autocast) would move pixels.
    return across[:, None] * of_column + down[:, None, None] * of_row + shift


def erase(images: torch.Tensor, operations: Any) -> torch.Tensor:
    rows = _within(images.shape[2], operations["top"], operations["height"], images.device)
    columns = _within(images.shape[3], operations["left"], operations["width"], images.device)
    erased = (rows[:, :, None] & columns[:, None, :])[:, None]
    return torch.where(erased, _colours(images, operations).byte(), images)


def _within(size: int, first: Any, count: Any, device: torch.device) -> torch.Tensor:
    """Tell for every image which of `size` rows or columns are among the `count` from `first` on: (N, size)."""
    places = np.arange(size)
    return torch.from_numpy((places >= first[:, None]) & (places < (first + count)[:, None])).to(device)


def _colours(images: torch.Tensor, operations: Any) -> torch.Tensor:
    """Return red, green and blue to fill with: (N, 3, 1, 1) float32."""
    fill = np.where(operations["fill"] == NO_FILL, 0, operations["fill"])
    colours = np.stack([fill & 255, fill >> 8 & 255, fill >> 16 & 255], 1).astype(np.float32)
    return torch.from_numpy(colours).to(images.device)[:, :, None, None]
