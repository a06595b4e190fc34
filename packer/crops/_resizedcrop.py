"""The step of RandomResizedCrop: a random part of the image, resized."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch

from packer._images.geometry import INTERPOLATIONS, Crops
from packer._table import Ints
from packer.crops._algebra import Pairs, cropped, resized
from packer.crops._drawing import Source
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

    def choose(self, sizes: Pairs, random: Floats) -> Ints:
        heights, widths = sizes.T
        areas = (heights * widths)[:, None] * between(*self.scale, random[:, :ATTEMPTS])
        low, high = map(math.log, self.ratio)
        ratios = np.exp(between(low, high, random[:, ATTEMPTS : 2 * ATTEMPTS]))
        tried_width = np.rint(np.sqrt(areas * ratios)).astype(np.int64)
        tried_height = np.rint(np.sqrt(areas / ratios)).astype(np.int64)
        fits = (tried_width > 0) & (tried_width <= widths[:, None])
        fits &= (tried_height > 0) & (tried_height <= heights[:, None])
        rows, first = np.arange(len(heights)), fits.argmax(1)
        found = fits[rows, first]
        size = np.stack([tried_height[rows, first], tried_width[rows, first]], 1)
        corner = below(sizes - size + 1, random[:, 2 * ATTEMPTS : 2 * ATTEMPTS + 2])
        rectangles = np.hstack([corner, size])
        if not found.all():
            rectangles[~found] = self._centred(sizes[~found])
        return np.hstack([rectangles, np.full((len(sizes), 1), self._interpolation(0))])

    @property
    def drawn(self) -> tuple[tuple[str, float, float], ...]:
        return ("uniform", *self.scale), ("power", *_logarithms(self.ratio))

    def draw(self, height: int, width: int, source: Source) -> tuple[int, ...]:
        area, (low, high) = height * width, _logarithms(self.ratio)
        for _ in range(ATTEMPTS):
            target = area * source.uniform(*self.scale)
            aspect = source.power(low, high)
            wide, tall = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
            if 0 < wide <= width and 0 < tall <= height:
                top, left = source.below(height - tall + 1), source.below(width - wide + 1)
                return top, left, tall, wide, self._interpolation(0)
        return (*self._centred_in(height, width), self._interpolation(0))

    def apply(self, crops: Crops, sizes: Pairs, numbers: Ints) -> None:
        cropped(crops, numbers[:, :2], numbers[:, 2:4])
        resized(crops, self.size, numbers[:, 4])

    def _interpolation(self, number: int) -> int:
        return INTERPOLATIONS.index(self.interpolations[number])

    def _centred_in(self, height: int, width: int) -> tuple[int, ...]:
        return tuple(self._centred(np.array([[height, width]]))[0].tolist())

    def _centred(self, sizes: Pairs) -> Ints:
        """Return the largest centred rectangles, of at least one pixel: top, left, height, width."""
        narrowest, widest = self.ratio
        heights, widths = sizes.T
        ratios = widths / heights
        height = np.where(ratios < narrowest, np.rint(widths / narrowest), heights)
        width = np.where(ratios > widest, np.rint(heights * widest), widths)
        size = np.clip(np.stack([height, width], 1).astype(np.int64), 1, sizes)
        return np.hstack([(sizes - size) // 2, size])


@functools.lru_cache(maxsize=64)
def _logarithms(ratio: tuple[float, float]) -> tuple[float, float]:
    """Return the logarithms as torchvision has them, in float32."""
    low, high = torch.log(torch.tensor(ratio)).tolist()
    return low, high
