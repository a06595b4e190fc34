"""The step of RandomResizedCrop: a random part of the image, resized."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch

from packer._images.geometry import INTERPOLATIONS, Crops
from packer._table import Ints
from packer.crops._algebra import cropped, resized
from packer.crops._record import Record
from packer.crops._steps import Step
from packer.crops._uniforms import Floats, below, between

__all__ = ["ATTEMPTS", "RandomResizedCut"]

ATTEMPTS = 10


@dataclass(frozen=True)
class RandomResizedCut(Step):
    """torchvision's rule: ``RandomResizedCrop.get_params`` in transforms/transforms.py, ``make_params`` in v2.

    Up to ten times an area is drawn uniformly from `scale`, as a share of the image, and an aspect ratio log-uniformly
    from `ratio`; the first rectangle that fits is put at a random place. Where none fits, the largest centred one with
    an allowed ratio is taken. Numbers: top, left, height, width, and the place of the interpolation.
    """

    size: tuple[int, int]
    scale: tuple[float, float]
    ratio: tuple[float, float]
    interpolations: tuple[str, ...]

    randoms = 2 * ATTEMPTS + 2
    chosen = 5

    def after(self, record: Record) -> Record:
        return record.after_cut((1, 1)).after_resizing(self.size)

    @property
    def fixed(self) -> tuple[int, int]:
        return self.size

    def choose(self, heights: Ints, widths: Ints, random: Floats) -> Ints:
        areas = (heights * widths)[:, None] * between(*self.scale, random[:, :ATTEMPTS])
        low, high = map(math.log, self.ratio)
        ratios = np.exp(between(low, high, random[:, ATTEMPTS : 2 * ATTEMPTS]))
        tried_width = np.rint(np.sqrt(areas * ratios)).astype(np.int64)
        tried_height = np.rint(np.sqrt(areas / ratios)).astype(np.int64)
        fits = (tried_width > 0) & (tried_width <= widths[:, None])
        fits &= (tried_height > 0) & (tried_height <= heights[:, None])
        rows, first = np.arange(len(heights)), fits.argmax(1)
        found = fits[rows, first]
        top, left, height, width = self._centred(heights, widths)
        height = np.where(found, tried_height[rows, first], height)
        width = np.where(found, tried_width[rows, first], width)
        top = np.where(found, below(heights - height + 1, random[:, 2 * ATTEMPTS]), top)
        left = np.where(found, below(widths - width + 1, random[:, 2 * ATTEMPTS + 1]), left)
        return np.stack([top, left, height, width, np.full_like(top, self._interpolation(0))], 1)

    def draw(self, height: int, width: int) -> tuple[int, ...]:
        area, (low, high) = height * width, _logarithms(self.ratio)
        for _ in range(ATTEMPTS):
            target = area * torch.empty(1).uniform_(*self.scale).item()
            aspect = torch.exp(torch.empty(1).uniform_(low, high)).item()
            wide, tall = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
            if 0 < wide <= width and 0 < tall <= height:
                top = int(torch.randint(0, height - tall + 1, size=(1,)).item())
                left = int(torch.randint(0, width - wide + 1, size=(1,)).item())
                return top, left, tall, wide, self._interpolation(0)
        return (*self._centred_in(height, width), self._interpolation(0))

    def apply(self, crops: Crops, numbers: Ints) -> Crops:
        top, left, height, width, interpolation = numbers.T
        return resized(cropped(crops, top, left, (height, width)), *self.size, interpolation)

    def _interpolation(self, number: int) -> int:
        return INTERPOLATIONS.index(self.interpolations[number])

    def _centred_in(self, height: int, width: int) -> tuple[int, ...]:
        numbers = self._centred(np.array([height]), np.array([width]))
        return tuple(int(number[0]) for number in numbers)

    def _centred(self, heights: Ints, widths: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Return top, left, height and width of the largest centred rectangles; at least one pixel each."""
        narrowest, widest = self.ratio
        ratios = widths / heights
        height = np.where(ratios < narrowest, np.rint(widths / narrowest), heights).astype(np.int64)
        width = np.where(ratios > widest, np.rint(heights * widest), widths).astype(np.int64)
        height, width = np.clip(height, 1, heights), np.clip(width, 1, widths)
        return (heights - height) // 2, (widths - width) // 2, height, width


@functools.lru_cache(maxsize=64)
def _logarithms(ratio: tuple[float, float]) -> tuple[float, float]:
    """Return the logarithms as torchvision has them, in float32."""
    low, high = torch.log(torch.tensor(ratio)).tolist()
    return low, high
