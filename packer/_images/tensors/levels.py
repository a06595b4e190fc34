"""Levels and colours of the pixels of a batch, each image by its own factor.

Every function takes (N, 3, height, width) uint8 images and (N,) records of OPERATION, and returns such images. The
roundings come in the order of torchvision's functions for uint8 tensors.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = [
    "brighten",
    "contrast",
    "equalize",
    "invert",
    "make_grey",
    "posterize",
    "saturate",
    "solarize",
    "stretch",
    "turn_hue",
]

_MOST = 255.0  # the largest level
_LUMA = (0.2989, 0.587, 0.114)


def brighten(images: torch.Tensor, operations: Any) -> torch.Tensor:
    return (images * _factors(images, operations)).clamp_(0, _MOST).byte()


def contrast(images: torch.Tensor, operations: Any) -> torch.Tensor:
    mean = _grey(images).floor_().mean((1, 2, 3), keepdim=True)
    return blended(images, mean, _factors(images, operations))


def saturate(images: torch.Tensor, operations: Any) -> torch.Tensor:
    return blended(images, _grey(images).floor_(), _factors(images, operations))


def make_grey(images: torch.Tensor, operations: Any) -> torch.Tensor:
    return _grey(images).byte().expand_as(images)


def invert(images: torch.Tensor, operations: Any) -> torch.Tensor:
    return 255 - images


def solarize(images: torch.Tensor, operations: Any) -> torch.Tensor:
    return torch.where(images >= _factors(images, operations), 255 - images, images)


def posterize(images: torch.Tensor, operations: Any) -> torch.Tensor:
    kept = [0xFF & -(1 << 8 - int(bits)) for bits in operations["factor"]]
    return images & torch.tensor(kept, dtype=torch.uint8, device=images.device)[:, None, None, None]


def stretch(images: torch.Tensor, operations: Any) -> torch.Tensor:
    """Stretch the levels of each colour to all that there are: torchvision's autocontrast."""
    least, most = (
        extreme.float() for extreme in (images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True))
    )
    flat = least == most
    least[flat] = 0
    scale = torch.where(flat, 1.0, (most - least) / _MOST)
    return ((images - least) / scale).clamp_(0, _MOST).byte()


def equalize(images: torch.Tensor, operations: Any) -> torch.Tensor:
    """Let every level occur about as often, by Pillow's rule, which keeps colours of few levels as they are."""
    flat = images.flatten(2).long()
    counts = torch.zeros((*images.shape[:2], 256), dtype=torch.long, device=images.device)
    counts.scatter_add_(2, flat, torch.ones_like(flat))
    last = images.amax((2, 3)).long()[..., None]
    step = (flat.shape[2] - counts.gather(2, last)) // 255
    below = counts.cumsum(2) - counts
    table = ((below + step // 2) // step.clamp(min=1)).clamp_(0, 255)
    made = table.gather(2, flat).byte().view(images.shape)
    return torch.where(step[..., None] > 0, made, images)


def turn_hue(images: torch.Tensor, operations: Any) -> torch.Tensor:
    """Turn the hue by a factor of the circle: by the hexagon of Smith's HSV, which torchvision's adjust_hue takes."""
    levels = images / _MOST
    red, green, blue = levels.unbind(1)
    most, least = levels.amax(1), levels.amin(1)
    reach = most - least
    divisor = torch.where(reach == 0, 1.0, reach)
    of_others = torch.where(most == green, (blue - red) / divisor + 2, (red - green) / divisor + 4)
    sixths = torch.where(most == red, (green - blue) / divisor, of_others)
    turned = (sixths / 6 + _factors(images, operations)[:, 0]).remainder_(1) * 6
    made = []
    for corner in (5, 3, 1):  # of the hexagon, where red, green and blue begin to fall
        place = (turned + corner) % 6
        made.append(most - reach * torch.minimum(place, 4 - place).clamp_(0, 1))
    return (torch.stack(made, 1) * (_MOST + 1 - 1e-3)).byte()


def blended(images: torch.Tensor, others: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Return images times their factor, and others times the rest."""
    return (images * factors + others * (1 - factors)).clamp_(0, _MOST).byte()


def _grey(images: torch.Tensor) -> torch.Tensor:
    red, green, blue = images.unbind(1)
    return (red * _LUMA[0] + green * _LUMA[1] + blue * _LUMA[2])[:, None]


def _factors(images: torch.Tensor, operations: Any) -> torch.Tensor:
    return torch.tensor(operations["factor"], dtype=torch.float32, device=images.device)[:, None, None, None]
