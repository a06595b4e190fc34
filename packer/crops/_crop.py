"""Crops, with the names, arguments and meaning of torchvision's transforms: each is a frozen chain of steps."""

from __future__ import annotations

import abc
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._images.geometry import CROP, Box, Crops, sides_of
from packer._images.native import crop_steps
from packer._images.native.crop_steps import require_uniform
from packer._table import Ints
from packer.crops._settings import (
    fill_of,
    interpolation_of,
    margins_of,
    padding_of,
    probability,
    range_of,
    require_antialias,
    side_or_pair,
    sides,
)
from packer.crops._steps import (
    CenterCut,
    Floats,
    Mirrored,
    Padded,
    Pairs,
    RandomCut,
    RandomResizedCut,
    Record,
    Resized,
    Step,
    coded,
    whole,
)
from packer.crops._torch_rng import Ahead, drawing
from packer.errors import OptionError, OptionTypeError


class Frozen:
    """An object whose settings, in `_settings`, never change."""

    _settings: dict[str, Any]

    _shown: str | None = None
    """The name that repr shows, if a function such as `RandomChoice` makes the object, and not its class."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{_kind(self)} are immutable: make a new {type(self).__name__}")

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
    """The base class of packer's crops.

    Crops are immutable; two crops of the same class with the same settings are equal.

    This class is public for type annotations and `isinstance`; your own subclasses are not supported. To crop in
    another way, pass a `transform` to the dataset.
    """

    _steps: tuple[Step, ...]

    @abc.abstractmethod
    def __init__(self) -> None: ...

    def _be(self, *steps: Step, **settings: Any) -> None:
        """Initialise the crop with these steps; repr shows the settings, and comparisons compare them."""
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
            Random numbers, uniform in [0, 1); the crops depend only on these and on the sizes. By default the numbers
            are drawn from torch's default generator, image by image, with the same calls as in torchvision's transform
            of the same name. So after the same ``torch.manual_seed``, packer and torchvision choose the same
            rectangles.

        Returns
        -------
        (N,) array of CROP
            One record for each image. It contains the rectangle, in pixels of the image, and the size to which the
            rectangle is resized. It also contains the window (the part of the resized rectangle that becomes the
            result), whether the result is mirrored, the interpolation, and the padding.

        Raises
        ------
        ImageError
            If an image is too small for this crop. The error's `index` is the position of the image among the N images.
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
            sizes.append(step.size_of(sizes[-1]))  # raises ImageError before anything is drawn
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
        """The steps, encoded for C; None if C does not support them."""
        return coded(self._steps)

    def _in_c(self, heights: Ints, widths: Ints, numbers: Floats, *, chosen: bool = False) -> Crops | None:
        """Return crops that C computes from uniform random numbers, or from `chosen` numbers; None if C cannot."""
        if self._coded is None:
            return None
        return crop_steps.choose(self._coded, heights, widths, numbers, chosen=chosen)

    def _drawn_in_c(self, heights: Ints, widths: Ints) -> Crops | None:
        """Return crops that C chooses with torch's default generator. If C cannot, draw nothing and return None."""
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
        """Return one array of random choices for each step. All choices for an image precede those for the next."""
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
    """Tell whether black is the only constant colour with which a crop pads; also True if it does not pad at all."""
    if isinstance(crop, Compose):
        return all(pads_with_black(one) for one in crop._settings["crops"])
    return crop._settings.get("fill", 0) in (0, (0, 0, 0))


class Compose(Crop):
    """Several crops, each applied to the result of the previous one: torchvision's Compose.

    packer combines `crops` into a single crop: it takes one rectangle of the image, resizes this rectangle, and cuts a
    window out of the result. Where the window extends beyond the resized rectangle, packer pads it. Not all crops can
    be combined in this way: `crops` can resize only once, and cannot resize an image that may be padded. They cannot
    resize or pad an image, then cut it, and then pad it. They can use only one kind of padding.

    Parameters
    ----------
    crops : sequence of Crop
        If empty, the result is the whole image.

    Raises
    ------
    TypeError
        If one of `crops` is not a crop of packer.
    ValueError
        If `crops` cannot be combined; the message names the first crop that does not fit, and the reason.
    """

    def __init__(self, crops: Sequence[Crop]) -> None:
        crops, record = tuple(crops), Record()
        for number, crop in enumerate(crops, 1):
            if not isinstance(crop, Crop):
                raise OptionTypeError(f"crops must be packer's crops, such as RandomCrop(32), not {crop!r}")
            for step in crop._steps:
                try:
                    record = step.after(record)
                except ValueError as error:
                    raise OptionError(f"Compose cannot apply its crop {number}, {crop!r}: {error}") from None
        self._be(*(step for crop in crops for step in crop._steps), crops=crops)


Size = int | Sequence[int]


class RandomResizedCrop(Crop):
    """A random part of the image, resized: torchvision's RandomResizedCrop.

    The area, as a share of the image's area, is drawn uniformly from `scale`; the aspect ratio is drawn log-uniformly
    from `ratio`. Up to ten rectangles are drawn in this way; the first one that fits into the image is placed at
    random. If none fits, the largest centred rectangle with an allowed ratio is used (``RandomResizedCrop.get_params``
    in torchvision's transforms/transforms.py).

    Parameters
    ----------
    size : int or (int, int)
        Height and width of the result, in pixels.
    scale : (float, float)
        The lowest and the highest share of the image's area.
    ratio : (float, float)
        The lowest and the highest ratio of width to height.
    interpolation : {"bilinear", "bicubic"} or torchvision's InterpolationMode
        The filter for resizing, which is always anti-aliased.
    antialias : True
        Any other value is refused: packer's resizing is always anti-aliased.
    flip : float
        The probability of mirroring the result left to right, like torchvision's RandomHorizontalFlip after the crop.

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value.
    """

    def __init__(
        self,
        size: Size,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: Any = "bilinear",
        antialias: bool = True,
        *,
        flip: float = 0.0,
    ) -> None:
        require_antialias(antialias)
        out, shares, ratios = sides("size", size), range_of("scale", scale), range_of("ratio", ratio)
        if ratios[0] == 0:
            raise OptionError(f"ratio is width to height and must be above 0, not {ratio!r}")
        name, p = interpolation_of(interpolation), probability("flip", flip)
        self._be(
            RandomResizedCut(out, shares, ratios, (name,)),
            *_mirrored(p),
            size=out,
            scale=shares,
            ratio=ratios,
            interpolation=name,
            flip=p,
        )


class CenterCrop(Crop):
    """The centre of the image, without resizing: torchvision's CenterCrop.

    A smaller image is padded with black (``center_crop`` in torchvision's transforms/functional.py). `ResizeCenterCrop`
    resizes first.

    Parameters
    ----------
    size : int or (int, int)
        Height and width of the result, in pixels.
    resize : None
        Any other value is refused, with advice: in earlier versions of packer this argument resized the image.

    Raises
    ------
    TypeError, ValueError
        If `size` is invalid, or `resize` is not None.
    """

    def __init__(self, size: Size, resize: None = None) -> None:
        if resize is not None:
            raise OptionTypeError(
                f"CenterCrop does not resize; ResizeCenterCrop({size!r}, {resize!r}) resizes and then cuts"
            )
        out = sides("size", size)
        self._be(CenterCut(out), size=out)


class Resize(Crop):
    """The whole image, resized: torchvision's Resize.

    Parameters
    ----------
    size : int or (int, int)
        An integer is the new length of the shorter side, in pixels. The longer side follows from the aspect ratio,
        rounded down (``_compute_resized_output_size`` in torchvision's transforms/functional.py). A pair is the height
        and width of the result, whose aspect ratio can differ from the image's.
    interpolation : {"bilinear", "bicubic"} or torchvision's InterpolationMode
        The filter for resizing, which is always anti-aliased.
    max_size : int, optional
        The maximum length of the longer side, in pixels; if necessary, the shorter side becomes shorter than `size`.
    antialias : True
        Any other value is refused: packer's resizing is always anti-aliased.

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value.
    """

    def __init__(
        self, size: Size, interpolation: Any = "bilinear", max_size: int | None = None, antialias: bool = True
    ) -> None:
        require_antialias(antialias)
        new, name = side_or_pair("size", size), interpolation_of(interpolation)
        if max_size is not None:
            if isinstance(new, tuple):
                raise OptionError(f"max_size applies only if size is one number, not with {size!r}")
            max_size = sides("max_size", [max_size])[0]
            if max_size <= new:
                raise OptionError(f"max_size must be more than size, which is {new}, not {max_size}")
        self._be(Resized(new, name, max_size), size=new, interpolation=name, max_size=max_size)


class ResizeCenterCrop(Crop):
    """The centre of the resized image: torchvision's ``Resize(resize)``, then ``CenterCrop(size)``, for evaluation.

    Parameters
    ----------
    size : int or (int, int)
        Height and width of the result, in pixels.
    resize : int or (int, int)
        The new length of the image's shorter side, in pixels, or its new height and width.
    interpolation : {"bilinear", "bicubic"} or torchvision's InterpolationMode
        The filter for resizing, which is always anti-aliased.
    flip : float
        The probability of mirroring the result left to right, like torchvision's RandomHorizontalFlip after the crop.

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value.
    """

    def __init__(self, size: Size, resize: Size, interpolation: Any = "bilinear", *, flip: float = 0.0) -> None:
        out, new = sides("size", size), side_or_pair("resize", resize)
        name, p = interpolation_of(interpolation), probability("flip", flip)
        steps = Resized(new, name), CenterCut(out), *_mirrored(p)
        self._be(*steps, size=out, resize=new, interpolation=name, flip=p)


class RandomCrop(Crop):
    """A rectangle at a random position, without resizing: RandomCrop of torchvision's v2 transforms.

    It follows ``RandomCrop.make_params`` in torchvision's transforms/v2/_geometry.py.

    Parameters
    ----------
    size : int or (int, int)
        Height and width of the result, in pixels.
    padding : int or sequence of 1, 2 or 4 int, optional
        The number of pixels by which the image is padded first. One number is for all sides. Of two numbers, the first
        is for left and right, the second for top and bottom. Four numbers are for left, top, right and bottom.
    pad_if_needed : bool
        Whether to pad an image that is smaller than `size`. If n pixels are missing, n pixels are added on each of the
        two sides. By default, a smaller image raises ImageError when its crop is chosen.
    fill : int or three int
        The colour of constant padding, 0 to 255: one level for all channels, or red, green and blue.
    padding_mode : {"constant", "edge", "reflect", "symmetric"}
    flip : float
        The probability of mirroring the result left to right, like torchvision's RandomHorizontalFlip after the crop.

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value.
    """

    _cut = RandomCut

    def __init__(
        self,
        size: Size,
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: int | Sequence[int] = 0,
        padding_mode: str = "constant",
        *,
        flip: float = 0.0,
    ) -> None:
        out, p = sides("size", size), probability("flip", flip)
        margins = margins_of(padding if padding is not None else 0)
        steps = Padded(margins, padding_of(fill, padding_mode), out if pad_if_needed else (1, 1)), self._cut(out)
        self._be(
            *steps,
            *_mirrored(p),
            size=out,
            padding=margins,
            pad_if_needed=bool(pad_if_needed),
            fill=fill_of(fill),
            padding_mode=padding_mode,
            flip=p,
        )


class Pad(Crop):
    """The whole image with a border: torchvision's Pad.

    Parameters
    ----------
    padding : int or sequence of 1, 2 or 4 int
        The width of the border in pixels. One number is for all sides. Of two numbers, the first is for left and right,
        the second for top and bottom. Four numbers are for left, top, right and bottom.
    fill : int or three int
        The colour of constant padding, 0 to 255: one level for all channels, or red, green and blue.
    padding_mode : {"constant", "edge", "reflect", "symmetric"}

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value. A negative `padding`, which cuts the image in torchvision, is an error.
    """

    def __init__(self, padding: int | Sequence[int], fill: int | Sequence[int] = 0, padding_mode: str = "constant"):
        margins, kind = margins_of(padding), padding_of(fill, padding_mode)
        settings = {"padding": margins, "fill": fill_of(fill), "padding_mode": padding_mode}
        self._be(Padded(margins, kind), **settings)


class RandomHorizontalFlip(Crop):
    """The whole image, mirrored left to right with the probability `p`: torchvision's RandomHorizontalFlip.

    Parameters
    ----------
    p : float

    Raises
    ------
    TypeError, ValueError
        If `p` is not a probability.
    """

    def __init__(self, p: float = 0.5) -> None:
        p = probability("p", p)
        self._be(Mirrored(p), p=p)


def _mirrored(p: float) -> tuple[Step, ...]:
    return (Mirrored(p),) if p > 0 else ()
