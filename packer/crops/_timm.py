"""Rules of timm (timm/data/transforms.py), which draw by Python's `random` module."""

from __future__ import annotations

import math
import random as python_random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from packer._table import Ints
from packer.crops._algebra import Pairs
from packer.crops._crop import Crop
from packer.crops._drawing import Source
from packer.crops._record import Record
from packer.crops._resizedcrop import ATTEMPTS, RandomResizedCut
from packer.crops._settings import interpolation_of, padding_of, range_of, sides
from packer.crops._steps import CenterCut, Resized, refuse
from packer.crops._torchvision import plain_fill
from packer.crops._uniforms import Floats, below

__all__ = ["READERS", "CenterCropOrPad", "RandomResizedCropAndInterpolation", "ResizeKeepRatio"]


@dataclass(frozen=True)
class _ResizedCut(RandomResizedCut):
    """``RandomResizedCropAndInterpolation.get_params``, and the choice among interpolations after it."""

    randoms = RandomResizedCut.randoms + 1

    def choose(self, sizes: Pairs, random: Floats) -> Ints:
        numbers = super().choose(sizes, random)
        places = np.array([self._interpolation(number) for number in range(len(self.interpolations))])
        numbers[:, 4] = places[below(np.full(len(sizes), len(places)), random[:, -1])]
        return numbers

    def draw(self, height: int, width: int, source: Source) -> tuple[int, ...]:
        chosen = self._rectangle(height, width)
        several = range(len(self.interpolations))
        return *chosen, self._interpolation(python_random.choice(several) if len(several) > 1 else 0)

    def _rectangle(self, height: int, width: int) -> tuple[int, ...]:
        area, low, high = height * width, *map(math.log, self.ratio)
        for _ in range(ATTEMPTS):
            target = python_random.uniform(*self.scale) * area
            aspect = math.exp(python_random.uniform(low, high))
            wide, tall = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
            if wide <= width and tall <= height:
                top, left = python_random.randint(0, height - tall), python_random.randint(0, width - wide)
                # timm resizes a rectangle without pixels, and stops
                return min(top, height - 1), min(left, width - 1), max(tall, 1), max(wide, 1)
        return self._centred_in(height, width)


class RandomResizedCropAndInterpolation(Crop):
    """timm's RandomResizedCrop, whose interpolation may be chosen at random too."""

    def __init__(self, size: Any, scale: Any, ratio: Any, interpolations: tuple[Any, ...]) -> None:
        out, shares, ratios = sides("size", size), range_of("scale", scale), range_of("ratio", ratio)
        names = tuple(map(interpolation_of, interpolations))
        if ratios[0] == 0:
            raise ValueError(f"ratio is more than 0, not {ratio!r}")
        step = _ResizedCut(out, shares, ratios, names)
        self._be(step, size=out, scale=shares, ratio=ratios, interpolations=names)


@dataclass(frozen=True)
class _ResizedKeepingRatio(Resized):
    """``ResizeKeepRatio.get_params`` without chance; `size` is (height, width), between which `longest` weighs."""

    longest: float = 0.0

    @property
    def fixed(self) -> None:
        return None

    def after(self, record: Record) -> Record:
        return record.after_resizing((1, 1))

    def sizes(self, sizes: Pairs) -> Pairs:
        ratios = sizes / np.array(self.size)
        ratio = ratios.max(1) * self.longest + ratios.min(1) * (1.0 - self.longest)
        new: Pairs = np.rint(sizes / ratio[:, None]).astype(np.int64)
        refuse(np.any(new < 1, axis=1), sizes, "cannot be resized: no pixel is left")
        return new


class ResizeKeepRatio(Crop):
    """timm's resizing that keeps the aspect: to contain `size` for longest=0, to fit into it for longest=1."""

    def __init__(self, size: Any, longest: float, interpolation: Any) -> None:
        out, name = sides("size", size), interpolation_of(interpolation)
        self._be(_ResizedKeepingRatio(out, name, None, longest), size=out, longest=longest, interpolation=name)


class CenterCropOrPad(Crop):
    """timm's CenterCrop, with any padding."""

    def __init__(self, size: Any, fill: Any, padding_mode: str) -> None:
        out, padding = sides("size", size), padding_of(fill, padding_mode)
        self._be(CenterCut(out, padding), size=out, fill=fill, padding_mode=padding_mode)


def _random_resized_crop(op: Any, by_tensor: bool) -> Crop | None:
    if by_tensor:  # resized as floats
        return None
    several = op.interpolation if isinstance(op.interpolation, tuple | list) else (op.interpolation,)
    return RandomResizedCropAndInterpolation(op.size, op.scale, op.ratio, tuple(several))


def _resize_keep_ratio(op: Any, by_tensor: bool) -> Crop | None:
    if by_tensor or op.random_scale_prob > 0 or op.random_aspect_prob > 0:
        return None
    return ResizeKeepRatio(op.size, op.longest, op.interpolation)


def _center_crop_or_pad(op: Any, by_tensor: bool) -> Crop | None:
    if by_tensor and not isinstance(op.fill, int):
        return None
    return CenterCropOrPad(op.size, plain_fill(op.fill), op.padding_mode)


READERS: dict[str, Callable[[Any, bool], Crop | None]] = {
    "timm.RandomResizedCropAndInterpolation": _random_resized_crop,
    "timm.ResizeKeepRatio": _resize_keep_ratio,
    "timm.CenterCropOrPad": _center_crop_or_pad,
}
"""What reads each transform of timm; `packer.crops._torchvision.READERS` is the same for torchvision."""
