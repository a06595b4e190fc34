"""Steps that rules are made of: each knows the sizes of its results, its random numbers, and what it does to crops.

A step that has chance in it gets its numbers, such as where a rectangle begins, from uniform random numbers for N
images at once, or for one image from torch's default generator, by the same calls in the same order as torchvision.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from packer._images.geometry import Crops
from packer._table import Ints
from packer.crops._algebra import Margins, Padding, cropped, mirrored, padded, resized
from packer.crops._record import Record
from packer.crops._uniforms import Floats, below
from packer.errors import ImageError

__all__ = ["BLACK", "CenterCut", "Mirrored", "Padded", "RandomCut", "RandomCutOfV1", "Resized", "Step", "refuse"]


BLACK = Padding("constant", 0)


class Step(abc.ABC):
    """One step of a rule. Steps are frozen: equal settings, equal steps."""

    randoms: int = 0
    """How many uniform random numbers an image needs."""

    chosen: int = 0
    """How many numbers are chosen by them."""

    @abc.abstractmethod
    def after(self, record: Record) -> Record:
        """Return what is known of the records after this step; ValueError says why none can say the step."""

    @property
    def fixed(self) -> tuple[int, int] | None:
        """Height and width of every result; None where they depend on the size before."""
        return None

    def sizes(self, heights: Ints, widths: Ints) -> tuple[Ints, Ints]:
        """Return the sizes of the results; ImageError, with the image's place as `index`, where one has none."""
        height, width = self.fixed or (0, 0)
        return np.full_like(heights, height), np.full_like(widths, width)

    def size_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the size of the result where that before is `size`."""
        heights, widths = self.sizes(np.array(size[:1]), np.array(size[1:]))
        return int(heights[0]), int(widths[0])

    def choose(self, heights: Ints, widths: Ints, random: Floats) -> Ints:
        """Choose the (N, chosen) numbers by (N, randoms) uniform random numbers."""
        return np.empty((len(heights), 0), np.int64)

    def draw(self, height: int, width: int) -> tuple[int, ...]:
        """Choose the numbers of one image by torch's default generator."""
        return ()

    @abc.abstractmethod
    def apply(self, crops: Crops, numbers: Ints) -> Crops:
        """Return the crops after this step, of which `numbers` were chosen."""


@dataclass(frozen=True)
class Resized(Step):
    """torchvision's Resize: ``_compute_resized_output_size`` in transforms/functional.py.

    `size` is (height, width), or what the shorter side becomes, unless the longer one were more than `max_size` then.
    """

    size: int | tuple[int, int]
    interpolation: str = "bilinear"
    max_size: int | None = None

    def after(self, record: Record) -> Record:
        shorter = self.size if self.max_size is None else 1
        return record.after_resizing(shorter if isinstance(shorter, tuple) else (shorter, shorter))

    @property
    def fixed(self) -> tuple[int, int] | None:
        return self.size if isinstance(self.size, tuple) else None

    def sizes(self, heights: Ints, widths: Ints) -> tuple[Ints, Ints]:
        if isinstance(self.size, tuple):
            return super().sizes(heights, widths)
        short, long = np.minimum(heights, widths), np.maximum(heights, widths)
        new_short, new_long = np.full_like(short, self.size), (self.size * long / short).astype(np.int64)
        if self.max_size is not None:
            limited = new_long > self.max_size
            new_short = np.where(limited, (self.max_size * new_short / new_long).astype(np.int64), new_short)
            new_long = np.where(limited, self.max_size, new_long)
        refuse(
            new_short < 1, heights, widths, f"cannot be resized to a longer side of {self.max_size}: no pixel is left"
        )
        upright = widths <= heights
        return np.where(upright, new_long, new_short), np.where(upright, new_short, new_long)

    def apply(self, crops: Crops, numbers: Ints) -> Crops:
        return resized(crops, *self.sizes(crops["out_height"], crops["out_width"]), self.interpolation)


@dataclass(frozen=True)
class _Cut(Step):
    """A rectangle of a fixed size is cut out."""

    size: tuple[int, int]

    def after(self, record: Record) -> Record:
        return record.after_cut(self.size)

    @property
    def fixed(self) -> tuple[int, int]:
        return self.size


@dataclass(frozen=True)
class CenterCut(_Cut):
    """torchvision's CenterCrop: ``center_crop`` in transforms/functional.py. Smaller images are padded first."""

    padding: Padding = BLACK

    def after(self, record: Record) -> Record:
        if min(np.subtract(record.least, self.size)) < 0:
            record = record.after_padding(self.padding, self.size)
        return super().after(record)

    def apply(self, crops: Crops, numbers: Ints) -> Crops:
        down, across = (
            np.maximum(out - full, 0)
            for out, full in zip(self.size, (crops["out_height"], crops["out_width"]), strict=True)
        )
        margins = Margins(across // 2, down // 2, (across + 1) // 2, (down + 1) // 2)
        crops = padded(crops, margins, self.padding)
        top, left = (
            np.rint((full - out) / 2).astype(np.int64)
            for out, full in zip(self.size, (crops["out_height"], crops["out_width"]), strict=True)
        )
        return cropped(crops, top, left, self.size)


@dataclass(frozen=True)
class RandomCut(_Cut):
    """The cut of torchvision's RandomCrop: ``RandomCrop.make_params`` in transforms/v2/_geometry.py."""

    randoms = chosen = 2

    def sizes(self, heights: Ints, widths: Ints) -> tuple[Ints, Ints]:
        height, width = self.size
        smaller = (heights < height) | (widths < width)
        refuse(smaller, heights, widths, f"are less than the crop of {width} x {height}; pad_if_needed=True pads them")
        return super().sizes(heights, widths)

    def choose(self, heights: Ints, widths: Ints, random: Floats) -> Ints:
        height, width = self.size
        return np.stack([below(heights - height + 1, random[:, 0]), below(widths - width + 1, random[:, 1])], 1)

    def draw(self, height: int, width: int) -> tuple[int, ...]:
        down, across = height - self.size[0], width - self.size[1]
        top = int(torch.randint(0, down + 1, size=())) if down > 0 else 0
        left = int(torch.randint(0, across + 1, size=())) if across > 0 else 0
        return top, left

    def apply(self, crops: Crops, numbers: Ints) -> Crops:
        return cropped(crops, numbers[:, 0], numbers[:, 1], self.size)


@dataclass(frozen=True)
class RandomCutOfV1(RandomCut):
    """The same cut, drawn as ``RandomCrop.get_params`` in transforms/transforms.py: both corners or none."""

    def draw(self, height: int, width: int) -> tuple[int, ...]:
        if (height, width) == self.size:
            return 0, 0
        top = torch.randint(0, height - self.size[0] + 1, size=(1,)).item()
        left = torch.randint(0, width - self.size[1] + 1, size=(1,)).item()
        return int(top), int(left)


@dataclass(frozen=True)
class Padded(Step):
    """torchvision's Pad, ``pad_image`` in transforms/v2/functional/_geometry.py, with `margins`.

    A side that is then still less than in `needed`, (height, width), becomes wider by the difference at both ends:
    pad_if_needed of ``RandomCrop.make_params`` in transforms/v2/_geometry.py.
    """

    margins: tuple[int, int, int, int]
    padding: Padding
    needed: tuple[int, int] = (1, 1)

    def after(self, record: Record) -> Record:
        (height, width), (left, top, right, bottom) = record.least, self.margins
        least = max(height + top + bottom, self.needed[0]), max(width + left + right, self.needed[1])
        return record if least == record.least else record.after_padding(self.padding, least)

    def sizes(self, heights: Ints, widths: Ints) -> tuple[Ints, Ints]:
        left, top, right, bottom = self._margins(heights, widths)
        return heights + top + bottom, widths + left + right

    def apply(self, crops: Crops, numbers: Ints) -> Crops:
        return padded(crops, self._margins(crops["out_height"], crops["out_width"]), self.padding)

    def _margins(self, heights: Ints, widths: Ints) -> Margins:
        left, top, right, bottom = self.margins
        down = np.maximum(self.needed[0] - (heights + top + bottom), 0)
        across = np.maximum(self.needed[1] - (widths + left + right), 0)
        return Margins(left + across, top + down, right + across, bottom + down)


@dataclass(frozen=True)
class Mirrored(Step):
    """torchvision's RandomHorizontalFlip, in transforms/transforms.py."""

    p: float

    randoms = chosen = 1

    def after(self, record: Record) -> Record:
        return record

    def sizes(self, heights: Ints, widths: Ints) -> tuple[Ints, Ints]:
        return heights, widths

    def choose(self, heights: Ints, widths: Ints, random: Floats) -> Ints:
        return (random < self.p).astype(np.int64)

    def draw(self, height: int, width: int) -> tuple[int, ...]:
        return (int(bool(torch.rand(1) < self.p)),)  # compared by torch, as float32

    def apply(self, crops: Crops, numbers: Ints) -> Crops:
        return mirrored(crops, numbers[:, 0] == 1)


def refuse(refused: npt.NDArray[np.bool_], heights: Ints, widths: Ints, reason: str) -> None:
    """Raise ImageError for the first of N images that is refused, with its size; `index` is its place."""
    for place in np.flatnonzero(refused)[:1].tolist():
        error = ImageError(f"{widths[place]} x {heights[place]} pixels {reason}")
        error.index = place
        raise error
