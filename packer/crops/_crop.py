"""The base class of crops: a frozen chain of steps, and the records that C takes for them."""

from __future__ import annotations

import abc
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._codecs import INTERPOLATIONS
from packer._images.extension import _native
from packer._images.geometry import CROP, PADDINGS, Box, Crops, sides_of
from packer._images.native import crop_steps
from packer._images.native.crop_steps import KINDS, STEP, require_uniform
from packer._table import Ints
from packer.crops._steps import (
    CenterCut,
    Floats,
    Mirrored,
    Padded,
    Padding,
    Pairs,
    RandomCut,
    RandomCutOfV1,
    RandomResizedCut,
    Record,
    Resized,
    Step,
    whole,
)
from packer.crops._torch_rng import Ahead, drawing
from packer.errors import OptionError, OptionTypeError


def coded(steps: Sequence[Step]) -> npt.NDArray[Any] | None:
    """Return steps as an array of STEP; None without the compiled extension, or if it does not support one of them."""
    if _native is None:
        return None
    records = np.zeros(len(steps), STEP)
    for record, step in zip(records, steps, strict=True):
        code = _CODES.get(type(step))  # and not a subclass, which does something else
        numbers = code(step) if code is not None else None
        if numbers is None:
            return None
        for name, number in numbers.items():
            record[name] = number
        record["randoms"], record["chosen"] = step.randoms, step.chosen
    return records


def _resized(step: Resized) -> dict[str, float] | None:
    if step.max_size is not None:
        return None
    how = {"interpolation": INTERPOLATIONS.index(step.interpolation)}
    if isinstance(step.size, tuple):
        return {"kind": KINDS.index("resized"), **_sides(step.size), **how}
    return {"kind": KINDS.index("resized by side"), "height": step.size, **how}


def _center_cut(step: CenterCut) -> dict[str, float]:
    return {"kind": KINDS.index("center cut"), **_sides(step.size), **_shown_by(step.padding)}


def _random_cut(step: RandomCut) -> dict[str, float]:
    return {"kind": KINDS.index("random cut"), **_sides(step.size)}


def _random_cut_of_v1(step: RandomCutOfV1) -> dict[str, float]:
    return {**_random_cut(step), "kind": KINDS.index("random cut of v1")}


def _random_resized_cut(step: RandomResizedCut) -> dict[str, float]:
    (least, most), (narrowest, widest) = step.scale, step.ratio
    return {
        "kind": KINDS.index("random resized cut"),
        **_sides(step.size),
        "interpolation": INTERPOLATIONS.index(step.interpolations[0]),
        "least": least,
        "most": most,
        "narrowest": narrowest,
        "widest": widest,
        "log_narrowest": math.log(narrowest),
        "log_widest": math.log(widest),
    }


def _mirrored(step: Mirrored) -> dict[str, float]:
    return {"kind": KINDS.index("mirrored"), "p": step.p}


def _padded(step: Padded) -> dict[str, float]:
    (left, above, right, below), (height, width) = step.margins, step.needed
    sides = {"above": above, "left": left, "below": below, "right": right, "height": height, "width": width}
    return {"kind": KINDS.index("padded"), **sides, **_shown_by(step.padding)}


def _shown_by(padding: Padding) -> dict[str, float]:
    return {"padding": PADDINGS.index(padding.mode), "fill": padding.fill}


def _sides(size: tuple[int, int]) -> dict[str, float]:
    height, width = size
    return {"height": height, "width": width}


_CODES: dict[type[Step], Callable[[Any], dict[str, float] | None]] = {
    CenterCut: _center_cut,
    Mirrored: _mirrored,
    Padded: _padded,
    RandomCut: _random_cut,
    RandomCutOfV1: _random_cut_of_v1,
    RandomResizedCut: _random_resized_cut,
    Resized: _resized,
}


class Frozen:
    """An object whose settings, in `_settings`, never change."""

    _settings: dict[str, Any]

    _shown: str | None = None
    """The name of the function that makes it, if that is not its class."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{_kind(self)} are immutable: make another {type(self).__name__}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frozen):
            return NotImplemented
        return type(self) is type(other) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash((type(self), *self._settings.items()))

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self._settings.items())
        return f"{self._shown or type(self).__name__}({settings})"


def _kind(rule: Frozen) -> str:
    return rule.__module__.split(".")[1].replace("augment", "augmentations")


class Crop(Frozen, abc.ABC):
    """A rule that chooses crops. Crops are immutable; two with equal settings are equal.

    This class is public so that packer's crops have a type; it does not support subclasses of your own. For another
    rule, pass a `transform` to the dataset.
    """

    _steps: tuple[Step, ...]

    @abc.abstractmethod
    def __init__(self) -> None: ...

    def _be(self, *steps: Step, **settings: Any) -> None:
        """Initialise the rule with these steps; the settings are for repr and comparison."""
        vars(self).update(_steps=steps, _settings=settings)

    @functools.cached_property
    def randoms(self) -> int:
        """The number of random numbers that an image needs."""
        return sum(step.randoms for step in self._steps)

    @functools.cached_property
    def size(self) -> tuple[int, int] | None:
        """Height and width of every result; None if they depend on the image."""
        size = None
        for step in self._steps:
            size = step.fixed or (step.size_of(size) if size is not None else None)
        return size

    def choose(self, heights: Ints, widths: Ints, random: Floats | None = None) -> Crops:
        """Choose the crops for N images.

        Parameters
        ----------
        heights, widths : (N,) int64
            Sizes of the images, in pixels.
        random : (N, randoms) float64, optional
            Random numbers, uniform in [0, 1); the crops depend only on these and on the sizes. By default they are
            drawn from torch's default generator, image by image, with the same calls as in torchvision's transform of
            the same name. So after the same ``torch.manual_seed`` both choose the same rectangles.

        Returns
        -------
        (N,) array of CROP
            One record for each image. It contains the rectangle, in pixels of the image; the size to which the
            rectangle is resized; the window of the resized rectangle that becomes the result; whether the result is
            mirrored; the interpolation; and the padding.

        Raises
        ------
        ImageError
            If an image is too small for the rule. The error's `index` is the position of the image among the N images.
        ValueError
            If `random` has a wrong shape or numbers outside [0, 1), or if heights and widths differ in length.
        """
        sides = sides_of(heights, widths)
        if random is not None:
            require_uniform(random, (len(sides[0]), self.randoms))
        chosen = self._drawn_in_c(*sides) if random is None else self._in_c(*sides, random)
        if chosen is not None:
            return chosen
        sizes = [np.stack(sides, 1)]
        for step in self._steps:
            sizes.append(step.sizes(sizes[-1]))
        numbers = self._drawn(sizes) if random is None else self._chosen(sizes, random)
        if random is None:
            taken = self._in_c(*sides, np.hstack([np.empty((len(sizes[0]), 0)), *numbers]), chosen=True)
            if taken is not None:
                return taken
        return self._applied(sizes, numbers)

    def choose_one(self, height: int, width: int, random: Floats | None = None) -> Box:
        """Choose the crop of one image, like `choose` for arrays of length one, but in a quarter of the time.

        Parameters
        ----------
        height, width : int
            1 or more.
        random : (randoms,) float64, optional
        """
        if self._coded is None:
            sides = np.array([height]), np.array([width])
            return Box(*self.choose(*sides, None if random is None else random[None])[0].item())
        sizes = [(height, width)]
        for step in self._steps:
            sizes.append(step.size_of(sizes[-1]))  # which refuses an image before anything is drawn
        numbers = self._draw_one(sizes) if random is None else random.tolist()
        box = crop_steps.choose_one(self._coded, height, width, numbers, chosen=random is None)
        return box if box is not None else self._choose_in_python(sizes, numbers, chosen=random is None)

    def _draw_one(self, sizes: Sequence[tuple[int, int]]) -> list[int]:
        """Return the random choices of all steps for one image; `sizes` are its sizes before and after each step."""
        numbers: list[int] = []
        if self.randoms:
            with drawing(1) as source:
                for step, (height, width) in zip(self._steps, sizes, strict=False):
                    if step.chosen:
                        numbers += step.draw(height, width, source)
        return numbers

    def _choose_in_python(self, sizes: Sequence[tuple[int, int]], numbers: list[Any], *, chosen: bool) -> Box:
        """Return the crop of one image that is too large or too unusual for C."""
        pairs = [np.array([size]) for size in sizes]
        if chosen:
            ends = itertools.accumulate(step.chosen for step in self._steps)
            rows = [
                np.array([numbers[end - step.chosen : end]], np.int64).reshape(1, step.chosen)
                for step, end in zip(self._steps, ends, strict=True)
            ]
        else:
            rows = self._chosen(pairs, np.array([numbers]).reshape(1, -1))
        return Box(*self._applied(pairs, rows)[0].item())

    def _applied(self, sizes: Sequence[Pairs], numbers: Sequence[Ints]) -> Crops:
        """Return the crops that result if the steps, with the chosen numbers, are applied to whole images."""
        crops = whole(sizes[0])
        for step, after, chosen in zip(self._steps, sizes[1:], numbers, strict=True):
            step.apply(crops, after, chosen)
        return crops

    @functools.cached_property
    def _coded(self) -> npt.NDArray[Any] | None:
        """The steps in C's form; None if C does not support them."""
        return coded(self._steps)

    def _in_c(self, heights: Ints, widths: Ints, numbers: Floats, *, chosen: bool = False) -> Crops | None:
        """Return crops that C computes from uniform random numbers, or from `chosen` numbers; None if C cannot."""
        if self._coded is None:
            return None
        return crop_steps.choose(self._coded, heights, widths, numbers, chosen=chosen)

    def _drawn_in_c(self, heights: Ints, widths: Ints) -> Crops | None:
        """Return crops that C chooses with torch's default generator; None, without drawing, if C cannot."""
        if self._coded is None:
            return None
        if not self.randoms:
            return self._in_c(heights, widths, np.empty((len(heights), 0)))
        crops, done = np.empty(len(heights), CROP), 0
        with drawing(len(heights), self.randoms) as source:
            while isinstance(source, Ahead):
                found = crop_steps.choose_drawn(self._coded, heights, widths, source.all(self._kinds), crops, done)
                if found is None:
                    source.take_back()
                    break
                done, used = found
                source.take(used)
                if done == len(heights):
                    return crops
        return None

    @functools.cached_property
    def _kinds(self) -> list[tuple[str, float, float]]:
        """The kinds of numbers that all steps draw, in the order of the steps."""
        return [kind for step in self._steps for kind in step.drawn]

    def _chosen(self, sizes: list[Pairs], random: Floats) -> list[Ints]:
        """Return the random choices of each step, made from uniform random numbers."""
        ends = itertools.accumulate(step.randoms for step in self._steps)
        return [
            step.choose(before, random[:, end - step.randoms : end])
            for step, before, end in zip(self._steps, sizes, ends, strict=False)
        ]

    def _drawn(self, sizes: list[Pairs]) -> list[Ints]:
        """Return the random choices of each step, drawn for one image after the other."""
        count = len(sizes[0])
        rows: list[list[tuple[int, ...]]] = [[] for _ in self._steps]
        by_chance = [
            (step.draw, before.tolist(), row.append)
            for step, before, row in zip(self._steps, sizes, rows, strict=False)
            if step.chosen
        ]
        if by_chance:
            with drawing(count) as source:
                for image in range(count):
                    for draw, before, keep in by_chance:
                        height, width = before[image]
                        keep(draw(height, width, source))
        return [
            np.array(row, np.int64).reshape(count, step.chosen) for row, step in zip(rows, self._steps, strict=True)
        ]


def pads_with_black(crop: Crop) -> bool:
    """Tell whether a crop pads with black, or does not pad with a constant colour."""
    if isinstance(crop, Compose):
        return all(pads_with_black(one) for one in crop._settings["crops"])
    return crop._settings.get("fill", 0) in (0, (0, 0, 0))


class Compose(Crop):
    """Several rules, each applied to the result of the previous one: torchvision's Compose.

    Together the rules must be expressible as one record: a rectangle of the image is resized once, and a window of the
    resized rectangle is the result, padded where it extends outside. So a chain can have only one resize, no resize
    after a possible padding, no padding after a cut of a resized or padded image, and only one kind of padding for an
    image.

    Parameters
    ----------
    crops : sequence of Crop
        If empty, the result is the whole image.

    Raises
    ------
    TypeError
        If one of `crops` is not a crop of packer.
    ValueError
        If one record cannot express all the rules; the message names the first rule that does not fit, and the reason.
    """

    def __init__(self, crops: Sequence[Crop]) -> None:
        crops, record = tuple(crops), Record()
        for number, crop in enumerate(crops, 1):
            if not isinstance(crop, Crop):
                raise OptionTypeError(f"crops are packer's crops, such as RandomCrop(32), not {crop!r}")
            for step in crop._steps:
                try:
                    record = step.after(record)
                except ValueError as error:
                    raise OptionError(f"Compose cannot apply its crop {number}, {crop!r}: {error}") from None
        self._be(*(step for crop in crops for step in crop._steps), crops=crops)
