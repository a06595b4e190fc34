"""The steps of crops: each computes the sizes of its results, makes its random choices, and changes crops.

A random step makes its choices, such as the corner of a rectangle, in one of two ways. For N images at once, it uses
uniform random numbers. For a single image, it calls torch's default generator, with the same calls in the same order as
torchvision.

A record of `CROP` holds a rectangle, the size to which the rectangle is resized, and a window of the resized rectangle.
Where the window extends beyond that rectangle, the window is padded. Chains of steps that do not fit into one record
are refused before any image is read.

The functions at the end of this module change N records of `CROP` in place. Each function acts on the current result of
the records, so coordinates and sizes refer to that result. For example, if the result is mirrored, a cut at its left
side removes the right side of the image. Corners are (top, left) and sizes (height, width), in pixels: one pair for all
records, or (N, 2) int64 arrays.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from packer._codecs import INTERPOLATIONS
from packer._images.extension import _native
from packer._images.geometry import CROP, PADDINGS, Box, Crops
from packer._images.native.crop_steps import KINDS, STEP
from packer._table import Ints
from packer.crops._torch_rng import NumberSource
from packer.errors import ImageError, OptionError

Floats = npt.NDArray[np.float64]

Pairs = Ints
"""(N, 2) int64 array: a vertical and a horizontal number for each image, such as height and width."""


class Padding(NamedTuple):
    """The pixels that appear outside an image.

    Attributes
    ----------
    mode : {"constant", "edge", "reflect", "symmetric"}
    fill : int
        The colour for the mode ``constant``, as red + 256 green + 65536 blue; 0 for other modes.
    """

    mode: str = "constant"
    fill: int = 0

    @property
    def code(self) -> dict[str, float]:
        """The fields of a `STEP` record that describe this padding, with their values."""
        return {"padding": PADDINGS.index(self.mode), "fill": self.fill}

    def __str__(self) -> str:
        colour = self.fill & 255, self.fill >> 8 & 255, self.fill >> 16
        return f"constant padding of {colour}" if self.mode == "constant" else f"{self.mode} padding"


def below(ends: Ints, random: Floats) -> Ints:
    """Convert random numbers in [0, 1) to integers from 0 to `ends` - 1, all equally likely."""
    numbers: Ints = (random * ends).astype(np.int64)
    return numbers


def between(low: float, high: float, random: Floats) -> Floats:
    return low + random * (high - low)


def inside(limits: tuple[float, float], random: Floats) -> Floats:
    """Convert random numbers in [0, 1) to numbers from the first to the second limit."""
    low, high = limits
    return between(low, high, random)


_ADDITIVE = ("constant", "edge")  # in these modes, padding twice is the same as padding once with both margins added


@dataclass(frozen=True)
class Record:
    """What is known about the records of all images after some steps; the next step must be compatible with it.

    Attributes
    ----------
    least : (int, int)
        The minimum height and width of all results.
    resized : bool
    padding : Padding or None
        The padding that some of the results may have.
    hides : bool
        Whether pixels may have been cut away that a larger window would show again.
    """

    least: tuple[int, int] = (1, 1)
    resized: bool = False
    padding: Padding | None = None
    hides: bool = False

    def after_resizing(self, least: tuple[int, int]) -> Record:
        if self.resized:
            raise OptionError("an earlier step resizes the image, and it can be resized only once")
        if self.padding is not None:
            raise OptionError("an earlier step may pad the image, and padding cannot be resized")
        return replace(self, least=least, resized=True)

    def after_cut(self, size: tuple[int, int]) -> Record:
        """Return what is known about the records after a rectangle of `size`, inside every result, is cut out."""
        return replace(self, least=size, hides=self.hides or self.resized or self.padding is not None)

    def after_padding(self, padding: Padding, least: tuple[int, int]) -> Record:
        if self.hides:
            before = "pads" if self.padding is not None else "resizes"
            raise OptionError(
                f"an earlier step {before} the image and cuts off pixels, which would appear again instead of padding"
            )
        if self.padding is not None and self.padding != padding:
            raise OptionError(f"it adds {padding}, but an earlier step may add {self.padding}")
        if self.padding is not None and padding.mode not in _ADDITIVE:
            raise OptionError(
                f"an earlier step may pad the image, and {padding.mode} padding of a padded image is not supported"
            )
        return replace(self, least=least, padding=padding)


BLACK = Padding("constant", 0)


class Step(abc.ABC):
    """One step of a crop. Steps are frozen, and two steps with equal settings are equal."""

    randoms: int = 0
    """The number of uniform random numbers that an image needs."""

    chosen: int = 0
    """The number of integers that describe the choices for an image."""

    @abc.abstractmethod
    def after(self, record: Record) -> Record:
        """Return what is known about records after this step; ValueError if a record cannot express the step."""

    @property
    def fixed(self) -> tuple[int, int] | None:
        """Height and width of every result; None if they depend on the size before the step."""
        return None

    def sizes(self, sizes: Pairs) -> Pairs:
        """Return the (N, 2) sizes that N images of the given (N, 2) sizes have after the step.

        Raises
        ------
        ImageError
            If the step cannot be applied to an image; the error's `index` is the position of the image.
        """
        return np.full_like(sizes, self.fixed)

    def size_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the size that an image of the given size has after the step."""
        height, width = self.sizes(np.array([size]))[0].tolist()
        return height, width

    def choose(self, sizes: Pairs, random: Floats) -> Ints:
        """Convert (N, randoms) uniform random numbers to (N, chosen) integers, the step's choices for N images."""
        return np.empty((len(sizes), 0), np.int64)

    @property
    def drawn(self) -> tuple[tuple[str, float, float], ...]:
        """The kinds of floats that `draw` draws: for each, a method of `NumberSource` with its arguments."""
        return ()

    def draw(self, height: int, width: int, source: NumberSource) -> tuple[int, ...]:
        """Make the choices for one image with numbers from `source`, which draws from torch's default generator."""
        return ()

    @abc.abstractmethod
    def apply(self, crops: Crops, sizes: Pairs, numbers: Ints) -> None:
        """Apply this step, with the choices in `numbers`, to crops; `sizes` are the sizes after the step."""

    @property
    def code(self) -> Mapping[str, float] | None:
        """The fields of a `STEP` record that describe this step, with their values; None if C does not support it."""
        return None


def coded(steps: Sequence[Step]) -> npt.NDArray[Any] | None:
    """Return steps as an array of STEP; None without the compiled extension, or if it does not support a step."""
    codes = [step.code for step in steps]
    if _native is None or None in codes:
        return None
    records = np.zeros(len(steps), STEP)
    for record, step, code in zip(records, steps, codes, strict=True):
        for name, number in (code or {}).items():
            record[name] = number
        record["randoms"], record["chosen"] = step.randoms, step.chosen
    return records


def _sides(size: tuple[int, int]) -> dict[str, float]:
    height, width = size
    return {"height": height, "width": width}


@dataclass(frozen=True)
class Resized(Step):
    """torchvision's Resize: ``_compute_resized_output_size`` in transforms/functional.py.

    `size` is (height, width), or the new length of the shorter side, which is reduced if the longer side would exceed
    `max_size`.
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

    @property
    def code(self) -> Mapping[str, float] | None:
        if self.max_size is not None:
            return None
        interpolation = {"interpolation": INTERPOLATIONS.index(self.interpolation)}
        if isinstance(self.size, tuple):
            return {"kind": KINDS.index("resized"), **_sides(self.size), **interpolation}
        return {"kind": KINDS.index("resized by side"), "height": self.size, **interpolation}


def _with_side(sizes: Pairs, side: Ints, length: int) -> Pairs:
    """Return sizes with the same aspect ratio and a new length of one side; the other side is rounded down."""
    scaled: Pairs = (length * sizes / side[:, None]).astype(np.int64)
    return scaled


@dataclass(frozen=True)
class _Cut(Step):
    """Cuts out a rectangle of a fixed size."""

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

    def size_of(self, size: tuple[int, int]) -> tuple[int, int]:
        return self.size  # the result of `sizes`, in a tenth of the time

    def apply(self, crops: Crops, sizes: Pairs, numbers: Ints) -> None:
        out = np.stack([crops["out_height"], crops["out_width"]], 1)
        missing = np.maximum(sizes - out, 0)
        if missing.any():
            padded(crops, missing // 2, (missing + 1) // 2, self.padding)
            out += missing
        cropped(crops, np.rint((out - sizes) / 2).astype(np.int64), self.size)

    @property
    def code(self) -> Mapping[str, float]:
        return {"kind": KINDS.index("center cut"), **_sides(self.size), **self.padding.code}


@dataclass(frozen=True)
class RandomCut(_Cut):
    """The cut of torchvision's RandomCrop: ``RandomCrop.make_params`` in transforms/v2/_geometry.py."""

    randoms = chosen = 2

    def sizes(self, sizes: Pairs) -> Pairs:
        height, width = self.size
        refuse(
            np.any(sizes < self.size, axis=1),
            sizes,
            f"are too small for the crop of {width} x {height}; pad_if_needed=True pads such images",
        )
        return super().sizes(sizes)

    def choose(self, sizes: Pairs, random: Floats) -> Ints:
        return below(sizes - self.size + 1, random)

    def draw(self, height: int, width: int, source: NumberSource) -> tuple[int, ...]:
        down, across = height - self.size[0], width - self.size[1]
        top = source.below(down + 1) if down > 0 else 0
        left = source.below(across + 1) if across > 0 else 0
        return top, left

    def apply(self, crops: Crops, sizes: Pairs, numbers: Ints) -> None:
        cropped(crops, numbers, self.size)

    @property
    def code(self) -> Mapping[str, float]:
        return {"kind": KINDS.index("random cut"), **_sides(self.size)}


@dataclass(frozen=True)
class RandomCutOfV1(RandomCut):
    """torchvision's RandomCrop as in v1's ``get_params``, which draws either both coordinates of the corner or none."""

    def draw(self, height: int, width: int, source: NumberSource) -> tuple[int, ...]:
        if (height, width) == self.size:
            return 0, 0
        top = source.below(height - self.size[0] + 1)
        return top, source.below(width - self.size[1] + 1)

    @property
    def code(self) -> Mapping[str, float]:
        return {**super().code, "kind": KINDS.index("random cut of v1")}


@dataclass(frozen=True)
class Padded(Step):
    """torchvision's Pad, ``pad_image`` in transforms/v2/functional/_geometry.py, with `margins`.

    `needed` is the minimum (height, width) of the result. If the padded image is still n pixels too low or too narrow,
    n more pixels are added on each of the two sides, as ``RandomCrop.make_params`` in transforms/v2/_geometry.py does
    with pad_if_needed.
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

    @property
    def code(self) -> Mapping[str, float]:
        left, above, right, below = self.margins
        margins = {"above": above, "left": left, "below": below, "right": right}
        return {"kind": KINDS.index("padded"), **margins, **_sides(self.needed), **self.padding.code}

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

    def size_of(self, size: tuple[int, int]) -> tuple[int, int]:
        return size

    def choose(self, sizes: Pairs, random: Floats) -> Ints:
        return (random < self.p).astype(np.int64)

    @property
    def drawn(self) -> tuple[tuple[str, float, float], ...]:
        return (("uniform", 0.0, 1.0),)

    def draw(self, height: int, width: int, source: NumberSource) -> tuple[int, ...]:
        return (int(source.uniform(0.0, 1.0) < float(np.float32(self.p))),)  # torch compares float32

    def apply(self, crops: Crops, sizes: Pairs, numbers: Ints) -> None:
        mirrored(crops, numbers[:, 0] == 1)

    @property
    def code(self) -> Mapping[str, float]:
        return {"kind": KINDS.index("mirrored"), "p": self.p}


def refuse(refused: npt.NDArray[np.bool_], sizes: Pairs, reason: str) -> None:
    """Raise ImageError for the first of N images for which `refused` is True, if there is one.

    The message has the size of that image, and the error's `index` is its position.
    """
    for number in np.flatnonzero(refused)[:1].tolist():
        error = ImageError(f"{sizes[number, 1]} x {sizes[number, 0]} pixels {reason}")
        error.index = number
        raise error


ATTEMPTS = 10


@dataclass(frozen=True)
class RandomResizedCut(Step):
    """torchvision's rule: ``RandomResizedCrop.get_params`` in transforms/transforms.py, ``make_params`` in v2.

    The area, as a share of the image's area, is drawn uniformly from `scale`; the aspect ratio is drawn log-uniformly
    from `ratio`. Up to ten rectangles are drawn in this way; the first one that fits into the image is placed at
    random. If none fits, the largest centred rectangle with an allowed ratio is used. The chosen numbers are top, left,
    height, width, and the index of the interpolation.
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

    def size_of(self, size: tuple[int, int]) -> tuple[int, int]:
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

    def draw(self, height: int, width: int, source: NumberSource) -> tuple[int, ...]:
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

    @property
    def code(self) -> Mapping[str, float] | None:
        (least, most), (narrowest, widest) = self.scale, self.ratio
        return {
            "kind": KINDS.index("random resized cut"),
            **_sides(self.size),
            "interpolation": self._interpolation(0),
            "least": least,
            "most": most,
            "narrowest": narrowest,
            "widest": widest,
            "log_narrowest": math.log(narrowest),
            "log_widest": math.log(widest),
        }

    def _interpolation(self, number: int) -> int:
        return INTERPOLATIONS.index(self.interpolations[number])

    def _centred_in(self, height: int, width: int) -> tuple[int, ...]:
        return tuple(self._centred(np.array([[height, width]]))[0].tolist())

    def _centred(self, sizes: Pairs) -> Ints:
        """Return the largest centred rectangles with an allowed ratio.

        A rectangle is (top, left, height, width); height and width are at least one pixel.
        """
        narrowest, widest = self.ratio
        heights, widths = sizes.T
        ratios = widths / heights
        height = np.where(ratios < narrowest, np.rint(widths / narrowest), heights)
        width = np.where(ratios > widest, np.rint(heights * widest), widths)
        size = np.clip(np.stack([height, width], 1).astype(np.int64), 1, sizes)
        return np.hstack([(sizes - size) // 2, size])


@functools.lru_cache(maxsize=64)
def _logarithms(ratio: tuple[float, float]) -> tuple[float, float]:
    """Return the logarithms of both limits in float32, as torchvision computes them."""
    low, high = torch.log(torch.tensor(ratio)).tolist()
    return low, high


class _Columns(NamedTuple):
    """The parts of records, as views on their memory."""

    corner: Pairs
    crop: Pairs
    scaled: Pairs
    cut: Pairs
    out: Pairs


def whole(sizes: Pairs) -> Crops:
    """Return new crops that contain whole images."""
    crops = np.zeros(len(sizes), CROP)
    columns = _columns(crops)
    for column in (columns.crop, columns.scaled, columns.out):
        column[:] = sizes
    return crops


def cropped(crops: Crops, corner: Pairs, size: Pairs | tuple[int, int]) -> None:
    """Cut a rectangle out of the result of each crop; the rectangle may extend beyond the result.

    If a crop is not resized and its window lies inside its rectangle, the window becomes the rectangle.
    """
    columns = _columns(crops)
    if crops["flip"].any():
        mirrored_left = columns.out[:, 1] - np.asarray(size)[..., 1] - corner[:, 1]
        corner = np.stack([corner[:, 0], np.where(crops["flip"] == 1, mirrored_left, corner[:, 1])], 1)
    columns.cut[:] += corner
    columns.out[:] = size
    inside = (columns.cut >= 0) & (columns.cut + columns.out <= columns.crop) & (columns.scaled == columns.crop)
    folded = inside.all(1, keepdims=True)
    np.add(columns.corner, columns.cut, out=columns.corner, where=folded)
    np.copyto(columns.crop, columns.out, where=folded)
    np.copyto(columns.scaled, columns.out, where=folded)
    np.copyto(columns.cut, 0, where=folded)


def resized(crops: Crops, sizes: Pairs | tuple[int, int], interpolation: Ints | str) -> None:
    """Resize the results of crops that do not resize yet.

    `interpolation` is a name, or indices into `INTERPOLATIONS`.
    """
    columns = _columns(crops)
    columns.scaled[:] = columns.out[:] = sizes
    crops["interpolation"] = INTERPOLATIONS.index(interpolation) if isinstance(interpolation, str) else interpolation


def mirrored(crops: Crops, where: npt.NDArray[np.bool_]) -> None:
    """Mirror the results of the crops for which `where` is true, left to right."""
    crops["flip"] ^= where


def padded(crops: Crops, before: Pairs, after: Pairs, padding: Padding) -> None:
    """Pad the results of crops. An earlier step must not have cut pixels away after resizing or padding.

    The results grow by `before` at the top and on the left, and by `after` at the bottom and on the right.
    """
    columns = _columns(crops)
    margins = before + after
    columns.cut[:, 0] -= before[:, 0]
    columns.cut[:, 1] -= np.where(crops["flip"] == 1, after[:, 1], before[:, 1])
    columns.out[:] += margins
    wider = margins.any(1)
    crops["padding"][wider] = PADDINGS.index(padding.mode)
    crops["fill"][wider] = padding.fill


def _columns(crops: Crops) -> _Columns:
    numbers = crops.view(np.int64).reshape(len(crops), len(Box._fields))
    return _Columns(*(numbers[:, first : first + 2] for first in (0, 2, 4, 6, 8)))  # in the order of `CROP`
