"""A reference for records of crops: numpy and torch execute them as specified."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from packer._images.geometry import INTERPOLATIONS, PADDINGS, Box


def noise(height: int, width: int) -> torch.Tensor:
    """Return a (3, height, width) uint8 image of noise."""
    rng = np.random.default_rng(height * 10_007 + width)
    return torch.from_numpy(rng.integers(0, 256, (height, width, 3), np.uint8)).permute(2, 0, 1)


def smooth(height: int, width: int) -> torch.Tensor:
    """Return a (3, height, width) uint8 image without sharp edges."""
    down, across = np.mgrid[0:height, 0:width]
    planes = [127 + 120 * np.sin(down / (9 + k) + k) * np.cos(across / (11 - k)) for k in range(3)]
    return torch.from_numpy(np.stack(planes, -1).astype(np.uint8)).permute(2, 0, 1)


def executed(image: torch.Tensor, record: Any) -> torch.Tensor:
    """Execute a record of CROP on a (3, height, width) image; return (3, out_height, out_width) uint8."""
    box = Box(*record.item())
    assert 0 <= box.top <= box.top + box.crop_height <= image.shape[1]
    assert 0 <= box.left <= box.left + box.crop_width <= image.shape[2]
    assert min(box.crop_height, box.crop_width, box.out_height, box.out_width) >= 1
    part = image[:, box.top : box.top + box.crop_height, box.left : box.left + box.crop_width]
    if box.scaled != box.crop:
        part = torch.nn.functional.interpolate(
            part[None], box.scaled, mode=INTERPOLATIONS[box.interpolation], antialias=True, align_corners=False
        )[0]
    out = _window(part.permute(1, 2, 0).numpy(), box)
    return torch.from_numpy(out[:, ::-1].copy() if box.flip else out).permute(2, 0, 1)


def _window(pixels: Any, box: Box) -> Any:
    spans = [(cut, cut + out, full) for cut, out, full in zip(box.cut, box.out, pixels.shape, strict=False)]
    margins = [(max(0, -begin), max(0, end - full)) for begin, end, full in spans]
    if PADDINGS[box.padding] == "constant":
        colours = [box.fill & 255, box.fill >> 8 & 255, box.fill >> 16]
        planes = [np.pad(pixels[..., k], margins, constant_values=colours[k]) for k in range(3)]
        pixels = np.stack(planes, -1)
    else:
        pixels = np.pad(pixels, [*margins, (0, 0)], PADDINGS[box.padding])
    (top, bottom, _), (left, right, _) = spans
    (above, _), (before, _) = margins
    return pixels[top + above : bottom + above, left + before : right + before]
