"""Pixels made of their neighbours, in a batch; see `packer._images.tensors.levels`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from packer._images.tensors.levels import blended

__all__ = ["blur", "sharpen"]


def sharpen(images: torch.Tensor, operations: Any) -> torch.Tensor:
    """Blend with Pillow's ImageFilter.SMOOTH of the image; the pixels of the edge, which lack neighbours, stay."""
    height, width = images.shape[2:]
    if height <= 2 or width <= 2:
        return images
    # Sums of levels are exact. A convolution would be rounded to 10 bits where cuDNN takes TF32, as it does by default.
    levels = images.float()
    sums = F.avg_pool2d(levels, 3, 1, divisor_override=1)
    soft = sums.add_(levels[..., 1:-1, 1:-1], alpha=4).div_(13).round_()
    factors = torch.tensor(operations["factor"], dtype=torch.float32, device=images.device)[:, None, None, None]
    made = images.clone()
    made[..., 1:-1, 1:-1] = blended(images[..., 1:-1, 1:-1], soft, factors)
    return made


def blur(images: torch.Tensor, operations: Any) -> torch.Tensor:
    made = images.clone()
    for height, width in np.unique(np.stack([operations["height"], operations["width"]], 1), axis=0).tolist():
        chosen = np.flatnonzero((operations["height"] == height) & (operations["width"] == width))
        which = torch.from_numpy(chosen).to(images.device)
        sigmas = torch.tensor(operations["factor"][chosen], dtype=torch.float32, device=images.device)
        made[which] = _blurred(images[which], height, width, sigmas)
    return made


def _blurred(images: torch.Tensor, height: int, width: int, sigmas: torch.Tensor) -> torch.Tensor:
    """Blur down and across, which is as good as both at once: images reflect at their edges."""
    count = len(images)
    channels = images.float().reshape(1, 3 * count, *images.shape[2:])
    padded = F.pad(channels, [width // 2, width // 2, height // 2, height // 2], mode="reflect")
    down = _weights(height, sigmas).repeat_interleave(3, 0)[:, None, :, None]
    across = _weights(width, sigmas).repeat_interleave(3, 0)[:, None, None, :]
    soft = F.conv2d(F.conv2d(padded, down, groups=3 * count), across, groups=3 * count)
    return soft.round_().clamp_(0, 255).byte().reshape(images.shape)


def _weights(size: int, sigmas: torch.Tensor) -> torch.Tensor:
    """Return the weights of a kernel for every sigma: (N, size)."""
    end = (size - 1) / (2 * math.sqrt(2))
    places = torch.linspace(-end, end, size, device=sigmas.device)
    return torch.softmax(-((places / sigmas[:, None]) ** 2), 1)
