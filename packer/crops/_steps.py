"""Steps that rules are made of: each knows the sizes of its results, its random numbers, and what it does to crops.

A step that has chance in it gets its numbers, such as where a rectangle begins, from uniform random numbers for N
images at once, or for one image from torch's default generator, by the same calls in the same order as torchvision.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packer._images.geometry import Crops
from packer._table import Ints
from packer.crops._algebra import Padding, Pairs, cropped, mirrored, padded, resized
from packer.crops._drawing import Source
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

    def sizes(self, sizes: Pairs) -> Pairs:
        """Return the sizes of the results, (N, 2), by those before.

        Raises
        ------
        ImageError
            If a result has none; its `index` is the place of the image.
        """
        return np.full_like(sizes, self.fixed)

    def size_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the size of the result where that before is `size`."""
        height, width = self.sizes(np.array([size]))[0].tolist()
        return height, width

    def choose(self, sizes: Pairs, random: Floats) -> Ints:
        """Choose the (N, chosen) numbers by (N, randoms) uniform random numbers."""
        return np.empty((len(sizes), 0), np.int64)

    @property
    def drawn(self) -> tuple[tuple[str, float, float], ...]:
        """The kinds of numbers that `draw` takes and that are no integers: methods of `Source`, and what they take."""
        return ()

    def draw(self, height: int, width: int, source: Source) -> tuple[int, ...]:
        """Choose the numbers of one image by torch's default generator, from which `source` draws."""
        return ()

    @abc.abstractmethod
    def apply(self, crops: Crops, sizes: Pairs, numbers: Ints) -> None:
        """Take this step with crops, whose results then have these sizes, and of which `numbers` were chosen."""


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

    def sizes(self, sizes: Pairs) -> Pairs:
        if isinstance(self.size, tuple):
            return super().sizes(sizes)
        new = _with_side(sizes, np.minimum(sizes[:, 0], sizes[:, 1]), self.size)
        if self.max_size is not None:
            longer = np.maximum(new[:, 0], new[:, 1])
            new = np.where((longer > self.max_size)[:, None], _with_side(new, longer, self.max_size), new)
            refuse(
                np.any(new < 1, axis=1),
                sizes,
                f"cannot be resized to a longer side of {self.max_size}: no pixel is left",
            )
        return new

    def apply(self, crops: Crops, sizes: Pairs, numbers: Ints) -> None:
        resized(crops, sizes, self.interpolation)


def _with_side(sizes: Pairs, side: Ints, length: int) -> Pairs:
    """Return sizes of the same aspect in which one side has a new length; the other one is rounded down."""
    scaled: Pairs = (length * sizes / side[:, None]).astype(np.int64)
    return scaled


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

    def apply(self, crops: Crops, sizes: Pairs, numbers: Ints) -> None:
        out = np.stack([crops["out_height"], crops["out_width"]], 1)
        missing = np.maximum(sizes - out, 0)
        if missing.any():
            padded(crops, missing // 2, (missing + 1) // 2, self.padding)
            out += missing
        cropped(crops, np.rint((out - sizes) / 2).astype(np.int64), self.size)


@dataclass(frozen=True)
class RandomCut(_Cut):
    """The cut of torchvision's RandomCrop: ``RandomCrop.make_params`` in transforms/v2/_geometry.py."""

    randoms = chosen = 2

    def sizes(self, sizes: Pairs) -> Pairs:
        height, width = self.size
        refuse(
            np.any(sizes < self.size, axis=1),
            sizes,
            f"are less than the crop of {width} x {height}; pad_if_needed=True pads them",
        )
        return super().sizes(sizes)

    def choose(self, sizes: Pairs, random: Floats) -> Ints:
        return below(sizes - self.size + 1, random)

    def draw(self, height: int, width: int, source: Source) -> tuple[int, ...]:
        down, across = height - self.size[0], width - self.size[1]
        top = source.below(down + 1) if down > 0 else 0
        left = source.below(across + 1) if across > 0 else 0
        return top, left

    def apply(self, crops: Crops, sizes: Pairs, numbers: Ints) -> None:
        cropped(crops, numbers, self.size)


@dataclass(frozen=True)
class RandomCutOfV1(RandomCut):
    """The same cut, drawn as ``RandomCrop.get_params`` in transforms/transforms.py: both corners or none."""

    def draw(self, height: int, width: int, source: Source) -> tuple[int, ...]:
        if (height, width) == self.size:
            return 0, 0
        top = source.below(height - self.size[0] + 1)
        return top, source.below(width - self.size[1] + 1)


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

    def sizes(self, sizes: Pairs) -> Pairs:
        before, after = self._margins(sizes)
        return sizes + before + after

    def apply(self, crops: Crops, sizes: Pairs, numbers: Ints) -> None:
        padded(crops, *self._margins(np.stack([crops["out_height"], crops["out_width"]], 1)), self.padding)

    def _margins(self, sizes: Pairs) -> tuple[Pairs, Pairs]:
        left, top, right, bottom = self.margins
        before, after = np.array([top, left]), np.array([bottom, right])
        missing = np.maximum(np.array(self.needed) - (sizes + before + after), 0)
        return missing + before, missing + after


@dataclass(frozen=True)
class Mirrored(Step):
    """torchvision's RandomHorizontalFlip, in transforms/transforms.py."""

    p: float

    randoms = chosen = 1

    def after(self, record: Record) -> Record:
        return record

    def sizes(self, sizes: Pairs) -> Pairs:
        return sizes

    def choose(self, sizes: Pairs, random: Floats) -> Ints:
        return (random < self.p).astype(np.int64)

    @property
    def drawn(self) -> tuple[tuple[str, float, float], ...]:
        return (("uniform", 0.0, 1.0),)

    def draw(self, height: int, width: int, source: Source) -> tuple[int, ...]:
        return (int(source.uniform(0.0, 1.0) < float(np.float32(self.p))),)  # torch compares float32

    def apply(self, crops: Crops, sizes: Pairs, numbers: Ints) -> None:
        mirrored(crops, numbers[:, 0] == 1)


def refuse(refused: npt.NDArray[np.bool_], sizes: Pairs, reason: str) -> None:
    """Raise ImageError for the first of N images that is refused, with its size; `index` is its place."""
    for place in np.flatnonzero(refused)[:1].tolist():
        error = ImageError(f"{sizes[place, 1]} x {sizes[place, 0]} pixels {reason}")
        error.index = place
        raise error
