"""torchvision's transforms, read: which crop does what a transform does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from packer.crops._crop import Crop
from packer.crops._rules import CenterCrop, Pad, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize
from packer.crops._steps import RandomCutOfV1

__all__ = ["READERS", "RandomCropOfV1", "plain_fill"]

_BY_NUMBER = {2: "bilinear", 3: "bicubic"}  # Pillow's


class RandomCropOfV1(RandomCrop):
    """A RandomCrop that draws as the one of torchvision's first transforms."""

    _cut = RandomCutOfV1


def plain_fill(fill: Any) -> Any:
    """Return the colour of a transform in packer's form; other forms as they are."""
    colours = [0 if fill is None else fill] if not isinstance(fill, Sequence) else [*fill]
    plain = [int(c) if isinstance(c, float) and c.is_integer() else c for c in colours]
    return plain[0] if len(plain) == 1 else tuple(plain)


def _resize(op: Any, interpolation: str) -> Crop:
    return Resize(op.size, interpolation, op.max_size)


def _random_resized_crop(op: Any, interpolation: str) -> Crop:
    return RandomResizedCrop(op.size, op.scale, op.ratio, interpolation)


def _random_resized_crop_of_v2(op: Any, interpolation: str) -> Crop | None:
    drawn_from = getattr(op, "_log_ratio", None)  # made of `ratio` once, so not changed with it
    if drawn_from is not None and not torch.equal(drawn_from, torch.log(torch.tensor(op.ratio))):
        return None
    return _random_resized_crop(op, interpolation)


def _by_v1(read: Callable[[Any, str], Crop]) -> Callable[[Any, bool], Crop | None]:
    """Read a transform that resizes tensors as floats, whose pixels may differ by a level."""
    return lambda op, by_tensor: None if by_tensor else read(op, _interpolation(op))


def _by_v2(read: Callable[[Any, str], Crop | None]) -> Callable[[Any, bool], Crop | None]:
    """Read a transform that resizes tensors as PIL images if it is told to."""
    return lambda op, by_tensor: None if by_tensor and op.antialias is not True else read(op, _interpolation(op))


def _interpolation(op: Any) -> Any:
    mode = getattr(op.interpolation, "value", op.interpolation)
    return _BY_NUMBER.get(mode, mode)


def _center_crop(op: Any, by_tensor: bool) -> Crop:
    return CenterCrop(op.size)


def _flip(op: Any, by_tensor: bool) -> Crop:
    return RandomHorizontalFlip(op.p)


def _pad(op: Any, by_tensor: bool) -> Crop | None:
    return Pad(op.padding, plain_fill(op.fill), op.padding_mode) if _fills(op, by_tensor) else None


def _random_crop_of_v1(op: Any, by_tensor: bool) -> Crop | None:
    twice = op.padding is not None and op.pad_if_needed  # v1 pads twice, which is another image for some modes
    if (twice and op.padding_mode not in ("constant", "edge")) or not _fills(op, by_tensor):
        return None
    return RandomCropOfV1(op.size, op.padding, op.pad_if_needed, plain_fill(op.fill), op.padding_mode)


def _random_crop_of_v2(op: Any, by_tensor: bool) -> Crop | None:
    if not _fills(op, by_tensor):
        return None
    left, right, top, bottom = op.padding or (0, 0, 0, 0)
    margins = left, top, right, bottom
    return RandomCrop(op.size, margins, op.pad_if_needed, plain_fill(op.fill), op.padding_mode)


def _fills(op: Any, by_tensor: bool) -> bool:
    """Tell whether torchvision can fill the border: of tensors by one number, or in v2 by a colour if constant."""
    of_v2 = ".v2." in type(op).__module__
    return not by_tensor or not isinstance(op.fill, Sequence) or (of_v2 and op.padding_mode == "constant")


READERS: dict[str, Callable[[Any, bool], Crop | None]] = {
    "v1.CenterCrop": _center_crop,
    "v1.Pad": _pad,
    "v1.RandomCrop": _random_crop_of_v1,
    "v1.RandomHorizontalFlip": _flip,
    "v1.RandomResizedCrop": _by_v1(_random_resized_crop),
    "v1.Resize": _by_v1(_resize),
    "v2.CenterCrop": _center_crop,
    "v2.Pad": _pad,
    "v2.RandomCrop": _random_crop_of_v2,
    "v2.RandomHorizontalFlip": _flip,
    "v2.RandomResizedCrop": _by_v2(_random_resized_crop_of_v2),
    "v2.Resize": _by_v2(_resize),
}
"""By kind: what makes the crop of a transform, of a PIL image or `by_tensor`; None, or TypeError or ValueError of the
crop, where packer has none that is the same."""
