"""Crops, chosen before decoding: which rectangle of an image is wanted, at which size, flipped or not.

A crop sees an image's height and width, which the pack's table knows, and random numbers, which are a pure function of
seed, epoch and index. So a batch's crops are chosen in one go, and the decoder can leave out what they do not touch;
and an item is the same whatever thread, worker or rank decodes it.
"""

from __future__ import annotations

import abc
import math
import numbers
import operator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packer._images.geometry import MAX_PIXELS, Crops, crops_of
from packer._table import Ints

__all__ = ["CenterCrop", "Crop", "Full", "RandomResizedCrop", "Resize"]

Floats = npt.NDArray[np.float64]

_ATTEMPTS = 10


class Crop(abc.ABC):
    """A rule that chooses crops. Crops are frozen: equal settings, equal crops.

    This class is public to name the type of packer's own crops; classes of others cannot be derived from it. For
    another rule, give the dataset a `transform`.
    """

    randoms: int = 0
    """How many random numbers an image needs."""

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of every result; None where they depend on the image."""
        return None

    @abc.abstractmethod
    def choose(self, heights: Ints, widths: Ints, random: Floats) -> Crops:
        """Choose the crops of N images.

        Parameters
        ----------
        heights, widths : (N,) int64
            Sizes of the images, in pixels.
        random : (N, randoms) float64
            Uniform in [0, 1).

        Returns
        -------
        (N,) array of CROP
            A record an image: the rectangle, in pixels of the image; the size that the rectangle is resized to; the
            window of that, which is the result; and whether the result is mirrored.
        """


@dataclass(frozen=True)
class RandomResizedCrop(Crop):
    """A random part of the image, resized to a square and flipped at random: torchvision's RandomResizedCrop.

    The same distribution, by the same rule: up to ten times an area is drawn uniformly from `scale`, as a share of the
    image, and an aspect ratio log-uniformly from `ratio`; the first rectangle that fits is put at a random place. Where
    none fits, the largest centred one with an allowed ratio is taken (`get_params` in torchvision's transforms.py).

    Attributes
    ----------
    output : int
        Height and width of the result.
    scale, ratio : (float, float)
    flip : float
        Probability of mirroring.

    Raises
    ------
    TypeError, ValueError
        If `output` is no integer, as (224, 224), or a range does not go from a smaller number to a larger one.
    """

    output: int
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5

    randoms = 2 * _ATTEMPTS + 3

    def __post_init__(self) -> None:
        _require_side("output", self.output)
        _require_range("scale", self.scale)
        _require_range("ratio", self.ratio)
        if self.ratio[0] == 0:
            raise ValueError(f"ratio is of width to height, and more than 0, not {self.ratio!r}")
        if isinstance(self.flip, bool) or not isinstance(self.flip, numbers.Real):
            raise TypeError(f"flip is a number, a probability of 0 to 1, not {self.flip!r}")
        if not 0 <= self.flip <= 1:
            raise ValueError(f"flip is a probability, 0 to 1, not {self.flip!r}")

    @property
    def size(self) -> tuple[int, int]:
        return self.output, self.output

    def choose(self, heights: Ints, widths: Ints, random: Floats) -> Crops:
        areas = (heights * widths)[:, None] * _between(random[:, :_ATTEMPTS], *self.scale)
        logs = _between(random[:, _ATTEMPTS : 2 * _ATTEMPTS], *np.log(self.ratio))
        ratios = np.exp(logs)
        tried_width = np.rint(np.sqrt(areas * ratios)).astype(np.int64)
        tried_height = np.rint(np.sqrt(areas / ratios)).astype(np.int64)
        fits = (
            (tried_width > 0)
            & (tried_width <= widths[:, None])
            & (tried_height > 0)
            & (tried_height <= heights[:, None])
        )
        first = fits.argmax(1)
        rows = np.arange(len(heights))
        found = fits[rows, first]
        centred_height, centred_width = self._centred(heights, widths)
        height = np.where(found, tried_height[rows, first], centred_height)
        width = np.where(found, tried_width[rows, first], centred_width)
        spread = random[:, 2 * _ATTEMPTS :]
        top = np.where(found, (spread[:, 0] * (heights - height + 1)).astype(np.int64), (heights - height) // 2)
        left = np.where(found, (spread[:, 1] * (widths - width + 1)).astype(np.int64), (widths - width) // 2)
        return crops_of((top, left, height, width), self.size, flip=spread[:, 2] < self.flip)

    def _centred(self, heights: Ints, widths: Ints) -> tuple[Ints, Ints]:
        narrowest, widest = self.ratio
        height = np.where(widths < narrowest * heights, np.rint(widths / narrowest), heights).astype(np.int64)
        width = np.where(widths > widest * heights, np.rint(heights * widest), widths).astype(np.int64)
        return np.clip(height, 1, heights), np.clip(width, 1, widths)


@dataclass(frozen=True)
class CenterCrop(Crop):
    """The centre of the resized image: torchvision's ``Resize(resize)`` and ``CenterCrop(output)``, for evaluation.

    Attributes
    ----------
    output : int
        Height and width of the result.
    resize : int
        What the shorter side of the whole image becomes; at least `output`.
    """

    output: int
    resize: int = 256

    def __post_init__(self) -> None:
        _require_side("output", self.output)
        _require_side("resize", self.resize)
        if self.output > self.resize:
            raise ValueError(f"output is 1 to resize, {self.resize}, not {self.output}")

    @property
    def size(self) -> tuple[int, int]:
        return self.output, self.output

    def choose(self, heights: Ints, widths: Ints, random: Floats) -> Crops:
        short, long = np.minimum(heights, widths), np.maximum(heights, widths)
        other = (self.resize * long / short).astype(np.int64)  # rounded down, as torchvision does
        scaled_height = np.where(heights <= widths, self.resize, other)
        scaled_width = np.where(heights <= widths, other, self.resize)
        cut_top, cut_left = (
            np.rint((side - self.output) / 2).astype(np.int64) for side in (scaled_height, scaled_width)
        )
        return crops_of((0, 0, heights, widths), (scaled_height, scaled_width), (cut_top, cut_left), self.size)


@dataclass(frozen=True)
class Resize(Crop):
    """The whole image, resized to a square of `output` pixels, whatever its shape."""

    output: int

    def __post_init__(self) -> None:
        _require_side("output", self.output)

    @property
    def size(self) -> tuple[int, int]:
        return self.output, self.output

    def choose(self, heights: Ints, widths: Ints, random: Floats) -> Crops:
        return crops_of((0, 0, heights, widths), self.size)


@dataclass(frozen=True)
class Full(Crop):
    """The whole image as it is."""

    def choose(self, heights: Ints, widths: Ints, random: Floats) -> Crops:
        return crops_of((0, 0, heights, widths), (heights, widths))


def _require_side(name: str, side: object) -> None:
    """Raise TypeError or ValueError where a number is not the side of a square."""
    try:
        number = operator.index(side)  # type: ignore[arg-type]
        if isinstance(side, bool):
            raise TypeError
    except TypeError:
        raise TypeError(f"{name} is an integer, the height and width of a square, not {side!r}") from None
    if not 1 <= number <= math.isqrt(MAX_PIXELS):
        raise ValueError(f"{name} is 1 to {math.isqrt(MAX_PIXELS)}, not {side!r}")


def _require_range(name: str, limits: tuple[float, float]) -> None:
    """Raise ValueError or TypeError where limits are not two numbers, the smaller one first."""
    try:
        low, high = limits
        sound = 0 <= low <= high < math.inf and high > 0
    except (TypeError, ValueError):
        raise TypeError(f"{name} is two numbers, not {limits!r}") from None
    if not sound:
        raise ValueError(f"{name} is two numbers that are not negative, the smaller one first, not {limits!r}")


def _between(random: Floats, low: float, high: float) -> Floats:
    return low + random * (high - low)
