"""Settings of crops: what people may give, in torchvision's forms, and what is refused."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence

from packer._images.geometry import INTERPOLATIONS, MAX_PIXELS, PADDINGS
from packer.crops._algebra import Padding

__all__ = [
    "fill_of",
    "interpolation_of",
    "margins_of",
    "padding_of",
    "probability",
    "range_of",
    "require_antialias",
    "side_or_pair",
    "sides",
]


def sides(name: str, size: object, order: str = "(height, width)") -> tuple[int, int]:
    """Return both sides in this order, given as one integer, as a sequence of one, or as these."""
    given = side_or_pair(name, size, order)
    return given if isinstance(given, tuple) else (given, given)


def side_or_pair(name: str, size: object, order: str = "(height, width)") -> int | tuple[int, int]:
    """Return an integer, or both sides, of 1 to so many pixels that an image of this size is allowed."""
    is_sequence = isinstance(size, Sequence) and not isinstance(size, str)
    given = [_integer(side) for side in (size if is_sequence else [size])]  # type: ignore[attr-defined]
    if len(given) not in (1, 2) or None in given:
        raise TypeError(f"{name} is an integer or {order}, not {size!r}")
    first, second = given[0] or 0, given[-1] or 0
    if min(first, second) < 1:
        raise ValueError(f"{name} is at least 1 pixel, not {size!r}")
    if first * second > MAX_PIXELS:
        raise ValueError(f"{name} is at most {math.isqrt(MAX_PIXELS)}, or {MAX_PIXELS} pixels in all, not {size!r}")
    return first if len(given) == 1 else (first, second)


def range_of(name: str, limits: object) -> tuple[float, float]:
    """Return two numbers that are not negative, the smaller one first."""
    try:
        low, high = map(float, limits)  # type: ignore[call-overload]
        if any(isinstance(limit, str) for limit in limits):  # type: ignore[attr-defined]
            raise TypeError
    except (TypeError, ValueError):
        raise TypeError(f"{name} is two numbers, not {limits!r}") from None
    if not (0 <= low <= high < math.inf and high > 0):
        raise ValueError(f"{name} is two numbers that are not negative, the smaller one first, not {limits!r}")
    return low, high


def require_antialias(antialias: object) -> None:
    """Raise ValueError where somebody wants images resized without anti-aliasing."""
    if antialias is not True:
        raise ValueError(
            f"antialias is True, not {antialias!r}: packer resizes anti-aliased, as torchvision does by default. "
            "For another resizing, give the dataset torchvision's transform"
        )


def probability(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is a number, a probability of 0 to 1, not {value!r}")
    if not 0 <= float(value) <= 1:
        raise ValueError(f"{name} is a probability, 0 to 1, not {value!r}")
    return float(value)


def interpolation_of(interpolation: object) -> str:
    """Return one of `INTERPOLATIONS`, given by name, as torchvision's InterpolationMode or as Pillow's number."""
    name = getattr(interpolation, "value", interpolation)
    name = {2: "bilinear", 3: "bicubic"}.get(name, name) if isinstance(name, int) else name
    if name not in INTERPOLATIONS:
        raise ValueError(f"interpolation is one of {', '.join(INTERPOLATIONS)}, not {interpolation!r}")
    return str(name)


def margins_of(padding: object) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom, given as these, as one integer, or as (left and right, top and bottom)."""
    is_sequence = isinstance(padding, Sequence) and not isinstance(padding, str)
    given = [_integer(margin) for margin in (padding if is_sequence else [padding])]  # type: ignore[attr-defined]
    if len(given) not in (1, 2, 4) or None in given:
        raise TypeError(
            f"padding is an integer, (left and right, top and bottom) or (left, top, right, bottom), not {padding!r}"
        )
    left, top, right, bottom = (margin or 0 for margin in given * (4 // len(given)))
    if min(left, top, right, bottom) < 0 or max(left, top, right, bottom) > MAX_PIXELS:
        raise ValueError(f"padding is 0 to {MAX_PIXELS} pixels, not {padding!r}")
    return left, top, right, bottom


def fill_of(fill: object, name: str = "fill") -> tuple[int, int, int]:
    """Return red, green and blue, given as one integer for all of them or as three; 0.0, too, is an integer."""
    is_sequence = isinstance(fill, Sequence) and not isinstance(fill, str)
    given = [_level(colour) for colour in (fill if is_sequence else [fill])]  # type: ignore[attr-defined]
    if len(given) not in (1, 3) or None in given:
        raise TypeError(f"{name} is an integer, or three for red, green and blue, not {fill!r}")
    red, green, blue = (colour or 0 for colour in given * (3 // len(given)))
    if min(red, green, blue) < 0 or max(red, green, blue) > 255:
        raise ValueError(f"{name} is 0 to 255, not {fill!r}")
    return red, green, blue


def padding_of(fill: object, mode: object) -> Padding:
    red, green, blue = fill_of(fill)
    if mode not in PADDINGS:
        raise ValueError(f"padding_mode is one of {', '.join(PADDINGS)}, not {mode!r}")
    return Padding(str(mode), red + 256 * green + 65536 * blue if mode == "constant" else 0)


def _level(value: object) -> int | None:
    """Return an integer, also one that is given as a float, as torchvision takes colours; None for what is none."""
    return int(value) if isinstance(value, float) and value.is_integer() else _integer(value)


def _integer(value: object) -> int | None:
    """Return an integer, numpy's too; None for what is none."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
