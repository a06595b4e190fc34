"""The crops, with the names, arguments and meaning of torchvision's transforms, and the parsing of their settings."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

from packer._codecs import INTERPOLATIONS, MAX_PIXELS
from packer._images.geometry import PADDINGS
from packer.crops._crop import Crop
from packer.crops._steps import CenterCut, Mirrored, Padded, Padding, RandomCut, RandomResizedCut, Resized, Step
from packer.errors import OptionError, OptionTypeError


def sides(name: str, size: object, order: str = "(height, width)") -> tuple[int, int]:
    """Convert a size to both sides; it may be one integer, a sequence of one, or a pair in this order."""
    both = side_or_pair(name, size, order)
    return both if isinstance(both, tuple) else (both, both)


def side_or_pair(name: str, size: object, order: str = "(height, width)") -> int | tuple[int, int]:
    """Check a size, an integer or a pair: each side is 1 or more, and an image of this size is allowed."""
    is_sequence = isinstance(size, Sequence) and not isinstance(size, str)
    values = [_integer(side) for side in (size if is_sequence else [size])]  # type: ignore[attr-defined]
    if len(values) not in (1, 2) or None in values:
        raise OptionTypeError(f"{name} is an integer or {order}, not {size!r}")
    first, second = values[0] or 0, values[-1] or 0
    if min(first, second) < 1:
        raise OptionError(f"{name} is at least 1 pixel, not {size!r}")
    if first * second > MAX_PIXELS:
        raise OptionError(f"{name} is at most {math.isqrt(MAX_PIXELS)}, or {MAX_PIXELS} pixels in all, not {size!r}")
    return first if len(values) == 1 else (first, second)


def range_of(name: str, limits: object) -> tuple[float, float]:
    """Check a range, and return its two numbers: neither is negative, and the smaller one comes first."""
    try:
        low, high = map(float, limits)  # type: ignore[call-overload]
        if any(isinstance(limit, str) for limit in limits):  # type: ignore[attr-defined]
            raise TypeError
    except (TypeError, ValueError):
        raise OptionTypeError(f"{name} is two numbers, not {limits!r}") from None
    if not (0 <= low <= high < math.inf and high > 0):
        raise OptionError(f"{name} is two numbers of 0 or more, the lower one first, not {limits!r}")
    return low, high


def require_antialias(antialias: object) -> None:
    """Raise ValueError if the argument asks for resizing without anti-aliasing."""
    if antialias is not True:
        raise OptionError(
            f"antialias is True, not {antialias!r}: packer always resizes with anti-aliasing, as torchvision does by "
            "default. To resize without it, pass torchvision's transform to the dataset"
        )


def probability(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise OptionTypeError(f"{name} is a number, a probability of 0 to 1, not {value!r}")
    if not 0 <= float(value) <= 1:
        raise OptionError(f"{name} is a probability, 0 to 1, not {value!r}")
    return float(value)


def interpolation_of(interpolation: object) -> str:
    """Convert a name, torchvision's InterpolationMode or Pillow's number to one of `INTERPOLATIONS`."""
    name = getattr(interpolation, "value", interpolation)
    name = {2: "bilinear", 3: "bicubic"}.get(name, name) if isinstance(name, int) else name
    if name not in INTERPOLATIONS:
        raise OptionError(f"interpolation is one of {', '.join(INTERPOLATIONS)}, not {interpolation!r}")
    return str(name)


def margins_of(padding: object) -> tuple[int, int, int, int]:
    """Convert one integer, (left and right, top and bottom) or all four to left, top, right and bottom."""
    is_sequence = isinstance(padding, Sequence) and not isinstance(padding, str)
    values = [_integer(margin) for margin in (padding if is_sequence else [padding])]  # type: ignore[attr-defined]
    if len(values) not in (1, 2, 4) or None in values:
        raise OptionTypeError(
            f"padding is an integer, (left and right, top and bottom) or (left, top, right, bottom), not {padding!r}"
        )
    left, top, right, bottom = (margin or 0 for margin in values * (4 // len(values)))
    if min(left, top, right, bottom) < 0 or max(left, top, right, bottom) > MAX_PIXELS:
        raise OptionError(f"padding is 0 to {MAX_PIXELS} pixels, not {padding!r}")
    return left, top, right, bottom


def fill_of(fill: object, name: str = "fill") -> tuple[int, int, int]:
    """Convert one integer or three to red, green and blue; whole floats such as 0.0 are accepted."""
    is_sequence = isinstance(fill, Sequence) and not isinstance(fill, str)
    values = [_level(colour) for colour in (fill if is_sequence else [fill])]  # type: ignore[attr-defined]
    if len(values) not in (1, 3) or None in values:
        raise OptionTypeError(f"{name} is an integer, or three for red, green and blue, not {fill!r}")
    red, green, blue = (colour or 0 for colour in values * (3 // len(values)))
    if min(red, green, blue) < 0 or max(red, green, blue) > 255:
        raise OptionError(f"{name} is 0 to 255, not {fill!r}")
    return red, green, blue


def padding_of(fill: object, mode: object) -> Padding:
    red, green, blue = fill_of(fill)
    if mode not in PADDINGS:
        raise OptionError(f"padding_mode is one of {', '.join(PADDINGS)}, not {mode!r}")
    return Padding(str(mode), red + 256 * green + 65536 * blue if mode == "constant" else 0)


def _level(value: object) -> int | None:
    """Return an integer, or a whole float as an integer, because torchvision accepts both; None for other values."""
    return int(value) if isinstance(value, float) and value.is_integer() else _integer(value)


def _integer(value: object) -> int | None:
    """Return Python's or NumPy's integer as an int; None for other values."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


Size = int | Sequence[int]


class RandomResizedCrop(Crop):
    """A random part of the image, resized: torchvision's RandomResizedCrop.

    Up to ten times, an area is drawn uniformly from `scale`, as a share of the image's area, and an aspect ratio
    log-uniformly from `ratio`; the first rectangle that fits is placed at random. If none fits, the largest centred
    rectangle with an allowed ratio is used (``RandomResizedCrop.get_params`` in torchvision's
    transforms/transforms.py).

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
            raise OptionError(f"ratio is width to height and more than 0, not {ratio!r}")
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
        If `size` is not the size of an image, or `resize` is not None.
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
        The new length of the shorter side, in pixels; the longer side keeps the aspect ratio, rounded down
        (``_compute_resized_output_size`` in torchvision's transforms/functional.py). Or height and width of the result,
        which need not have the aspect ratio of the image.
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
                raise OptionError(f"max_size is more than size, {new}, not {max_size}")
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
        The number of pixels by which the image is padded first: one number for all sides; two for left and right, top
        and bottom; or four for left, top, right, bottom.
    pad_if_needed : bool
        Whether an image smaller than `size` is padded by the number of missing pixels, on both sides. By default,
        choosing the crop of a smaller image raises ImageError.
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
        The width of the border in pixels: one number for all sides; two for left and right, top and bottom; or four for
        left, top, right, bottom.
    fill : int or three int
        The colour of constant padding, 0 to 255: one level for all channels, or red, green and blue.
    padding_mode : {"constant", "edge", "reflect", "symmetric"}

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value. Unlike torchvision's Pad, it does not accept a negative `padding` to cut
        the image.
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
