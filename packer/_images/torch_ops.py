"""The operations of packer.augment for batches of tensors, on any device.

These operations are used for batches on a GPU, and in installations without the C extension. Every function takes (N,
3, height, width) uint8 images and (N,) records of OPERATION, and returns images of the same shape. Results are rounded
at the same steps as in torchvision's functions for uint8 tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from packer._images.operations import FILTERS, KINDS, NO_FILL, Operations

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
    mask = 0xFF & -(1 << 8 - operations["factor"].astype(np.int64))
    return images & _to_device(mask.astype(np.uint8), images.device)[:, None, None, None]


def stretch(images: torch.Tensor, operations: Any) -> torch.Tensor:
    """Stretch the levels of each colour to the full range, like torchvision's autocontrast."""
    least, most = (
        extreme.float() for extreme in (images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True))
    )
    flat = least == most
    least.masked_fill_(flat, 0)
    scale = torch.where(flat, 1.0, (most - least) / _MOST)
    return ((images - least) / scale).clamp_(0, _MOST).byte()


def equalize(images: torch.Tensor, operations: Any) -> torch.Tensor:
    """Equalize the histogram by Pillow's rule, which leaves colours with few levels unchanged."""
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
    """Turn the hue by a fraction of the colour circle, in Smith's HSV model, as torchvision's adjust_hue does."""
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
        sector = (turned + corner) % 6
        made.append(most - reach * torch.minimum(sector, 4 - sector).clamp_(0, 1))
    return (torch.stack(made, 1) * (_MOST + 1 - 1e-3)).byte()


def blended(images: torch.Tensor, others: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Blend images with others: each image times its factor, plus the other image times 1 minus that factor."""
    return (images * factors + others * (1 - factors)).clamp_(0, _MOST).byte()


def _grey(images: torch.Tensor) -> torch.Tensor:
    red, green, blue = images.unbind(1)
    return (red * _LUMA[0] + green * _LUMA[1] + blue * _LUMA[2])[:, None]


def _factors(images: torch.Tensor, operations: Any) -> torch.Tensor:
    return _to_device(operations["factor"].astype(np.float32), images.device)[:, None, None, None]


def _to_device(numbers: Any, device: torch.device) -> torch.Tensor:
    """Copy an array to a device, without waiting for earlier work on the device.

    The array is copied to page-locked memory first: from other memory, PyTorch would wait for the copy to a CUDA
    device.
    """
    tensor = torch.from_numpy(np.ascontiguousarray(numbers))
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def sharpen(images: torch.Tensor, operations: Any) -> torch.Tensor:
    """Blend images with the result of Pillow's ImageFilter.SMOOTH; edge pixels lack neighbours and stay unchanged."""
    height, width = images.shape[2:]
    if height <= 2 or width <= 2:
        return images
    # Sums of levels are exact. A convolution would be rounded to 10 bits, because cuDNN uses TF32 by default.
    levels = images.float()
    sums = F.avg_pool2d(levels, 3, 1, divisor_override=1)
    soft = sums.add_(levels[..., 1:-1, 1:-1], alpha=4).div_(13).round_()
    made = images.clone()
    made[..., 1:-1, 1:-1] = blended(images[..., 1:-1, 1:-1], soft, _factors(images, operations))
    return made


def blur(images: torch.Tensor, operations: Any) -> torch.Tensor:
    made = images.clone()
    for height, width in np.unique(np.stack([operations["height"], operations["width"]], 1), axis=0).tolist():
        chosen = np.flatnonzero((operations["height"] == height) & (operations["width"] == width))
        which = _to_device(chosen, images.device)
        sigmas = _to_device(operations["factor"][chosen].astype(np.float32), images.device)
        made[which] = _blurred(images[which], height, width, sigmas)
    return made


def _blurred(images: torch.Tensor, height: int, width: int, sigmas: torch.Tensor) -> torch.Tensor:
    """Blur vertically and then horizontally, which is equivalent to a blur in two dimensions; edges are reflected."""
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
    positions = torch.linspace(-end, end, size, device=sigmas.device)
    return torch.softmax(-((positions / sigmas[:, None]) ** 2), 1)


def move(images: torch.Tensor, operations: Any) -> torch.Tensor:
    made = images.clone()
    for interpolation, name in enumerate(FILTERS):
        chosen = np.flatnonzero(operations["interpolation"] == interpolation)
        if chosen.size:
            which = _to_device(chosen, images.device)
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
    filled = _to_device(operations["fill"] != NO_FILL, images.device)[:, None, None, None]
    with_fill = moved * share + (1 - share) * _colours(images, operations)
    return torch.where(filled, with_fill, moved).round_().clamp_(0, 255).byte()


def _nearest(images: torch.Tensor, grid: torch.Tensor, colours: torch.Tensor) -> torch.Tensor:
    """Return the pixels at the positions in a grid, and the fill colour for positions outside of the image.

    Unlike `grid_sample`, this function rounds alike on every device. A position halfway between two pixels, which is
    frequent in some operations, is always rounded to the same pixel. On a GPU, `grid_sample` rounds only once after a
    multiplication and an addition, and so may choose another pixel.
    """
    height, width = images.shape[2:]
    size = _to_device(np.array([width, height], np.float32), images.device)
    positions = grid.add(1).mul_(size).sub_(1).div_(2).round_()
    inside = ((positions >= 0) & (positions < size)).all(3)
    columns, rows = positions.clamp_(min=0).minimum(size - 1).long().unbind(3)
    which = (rows * width + columns).flatten(1)[:, None].expand(-1, 3, -1)
    found = images.flatten(2).gather(2, which).view(images.shape)
    return torch.where(inside[:, None], found, colours)


def _grid(images: torch.Tensor, matrices: Any) -> torch.Tensor:
    """Return the position that each pixel comes from, (N, height, width, 2), from -1 to 1 across the image."""
    height, width = images.shape[2:]
    across = torch.arange(width, dtype=torch.float32, device=images.device) + (0.5 - 0.5 * width)
    down = torch.arange(height, dtype=torch.float32, device=images.device) + (0.5 - 0.5 * height)
    halves = np.array([[0.5 * width], [0.5 * height]], np.float32)
    scaled = _to_device(np.asarray(matrices).reshape(-1, 2, 3).astype(np.float32) / halves, images.device)
    of_column, of_row, shift = scaled[:, None, None].unbind(4)
    # No matrix product: TF32 or autocast, if the program allows them, would move pixels.
    return across[:, None] * of_column + down[:, None, None] * of_row + shift


def erase(images: torch.Tensor, operations: Any) -> torch.Tensor:
    rows = _within(images.shape[2], operations["top"], operations["height"], images.device)
    columns = _within(images.shape[3], operations["left"], operations["width"], images.device)
    erased = (rows[:, :, None] & columns[:, None, :])[:, None]
    return torch.where(erased, _colours(images, operations).byte(), images)


def _within(size: int, first: Any, count: Any, device: torch.device) -> torch.Tensor:
    """Return an (N, size) mask: for each image, True for `count` rows or columns from `first` on."""
    positions = np.arange(size)
    return _to_device((positions >= first[:, None]) & (positions < (first + count)[:, None]), device)


def _colours(images: torch.Tensor, operations: Any) -> torch.Tensor:
    """Return the fill colours in red, green and blue: (N, 3, 1, 1) float32."""
    fill = np.where(operations["fill"] == NO_FILL, 0, operations["fill"])
    colours = np.stack([fill & 255, fill >> 8 & 255, fill >> 16 & 255], 1).astype(np.float32)
    return _to_device(colours, images.device)[:, :, None, None]


_OPERATE: dict[str, Callable[[torch.Tensor, Any], torch.Tensor]] = {
    "brightness": brighten,
    "contrast": contrast,
    "saturation": saturate,
    "hue": turn_hue,
    "grayscale": make_grey,
    "blur": blur,
    "solarize": solarize,
    "posterize": posterize,
    "equalize": equalize,
    "autocontrast": stretch,
    "invert": invert,
    "sharpness": sharpen,
    "affine": move,
    "erase": erase,
}


def operate(images: torch.Tensor, operations: Operations) -> None:
    """Change the images of a batch in place, each by its operations, one after the other.

    Images with the same operation at the same step are changed together. The result of each operation differs from the
    result of torchvision's ``transforms.v2.functional`` for a uint8 tensor by at most one level.

    Parameters
    ----------
    images : (N, 3, height, width) uint8 tensor
        RGB, on any device.
    operations : (N, M) array of OPERATION
        See `packer._images.operations.OPERATION`.

    Raises
    ------
    ValueError
        If the operations are for another number of images.
    """
    if operations.ndim != 2 or len(operations) != len(images):
        raise ValueError(
            f"{len(images)} images need operations of shape (images, operations for each), not {operations.shape}"
        )
    with torch.autocast(images.device.type, enabled=False):  # the training may have enabled it
        for step in operations.T:
            for kind in np.unique(step["kind"]):
                if KINDS[kind] != "nothing":
                    chosen = np.flatnonzero(step["kind"] == kind)
                    which = _to_device(chosen, images.device)
                    images[which] = _OPERATE[KINDS[kind]](images[which], step[chosen])
