"""Parse the settings of crops and augmentations, in all forms that torchvision accepts; invalid settings are errors."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

from packer._codecs import INTERPOLATIONS, MAX_PIXELS
from packer._images.geometry import PADDINGS
from packer._images.operations import FILTERS, NO_FILL
from packer.crops._steps import Padding
from packer.errors import OptionError, OptionTypeError

_FARTHEST = 1e100  # larger numbers could become infinite when crops or matrices are computed from them
_BY_NUMBER = {0: "nearest", 2: "bilinear", 3: "bicubic"}
"""The name of each filter for resizing, by the number that Pillow gives it."""


def sides(name: str, size: object, order: str = "(height, width)") -> tuple[int, int]:
    """Return height and width from a size: one integer, a sequence of one integer, or a pair (height, width)."""
    both = side_or_pair(name, size, order)
    return both if isinstance(both, tuple) else (both, both)


def side_or_pair(name: str, size: object, order: str = "(height, width)") -> int | tuple[int, int]:
    """Check the size of an image, one integer or a pair of integers, and return it."""
    is_sequence = isinstance(size, Sequence) and not isinstance(size, str)
    values = [_integer(side) for side in (size if is_sequence else [size])]  # type: ignore[attr-defined]
    if len(values) not in (1, 2) or None in values:
        raise OptionTypeError(f"{name} must be an integer or {order}, not {size!r}")
    first, second = values[0] or 0, values[-1] or 0
    if min(first, second) < 1:
        raise OptionError(f"{name} must be at least 1 pixel, not {size!r}")
    if first * second > MAX_PIXELS:
        raise OptionError(
            f"{name} must be at most {math.isqrt(MAX_PIXELS)}, or {MAX_PIXELS} pixels in all, not {size!r}"
        )
    return first if len(values) == 1 else (first, second)


def range_of(name: str, limits: object) -> tuple[float, float]:
    """Check a range, and return its two numbers: neither is negative, and the smaller one comes first."""
    try:
        low, high = map(float, limits)  # type: ignore[call-overload]
        if any(isinstance(limit, str) for limit in limits):  # type: ignore[attr-defined]
            raise TypeError
    except (TypeError, ValueError):
        raise OptionTypeError(f"{name} must be two numbers, not {limits!r}") from None
    if not (0 <= low <= high < math.inf and high > 0):
        raise OptionError(f"{name} must be two numbers of 0 or more, the lower one first, not {limits!r}")
    return low, high


def require_antialias(antialias: object) -> None:
    """Raise ValueError if the argument asks for resizing without anti-aliasing."""
    if antialias is not True:
        raise OptionError(
            f"antialias must be True, not {antialias!r}: packer always resizes with anti-aliasing, as torchvision "
            "does by default. To resize without it, pass torchvision's transform to the dataset"
        )


def probability(name: str, value: object) -> float:
    """Check a number from 0 to 1, and return it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise OptionTypeError(f"{name} must be a number, a probability from 0 to 1, not {value!r}")
    if not 0 <= float(value) <= 1:
        raise OptionError(f"{name} must be a probability from 0 to 1, not {value!r}")
    return float(value)


def interpolation_of(interpolation: object) -> str:
    """Convert a name, torchvision's InterpolationMode or Pillow's number to one of `INTERPOLATIONS`."""
    return _name_among(INTERPOLATIONS, interpolation)


def _name_among(names: Sequence[str], interpolation: object) -> str:
    name = getattr(interpolation, "value", interpolation)
    name = _BY_NUMBER.get(name, name) if isinstance(name, int) else name
    if name not in names:
        raise OptionError(f"interpolation must be one of {', '.join(names)}, not {interpolation!r}")
    return str(name)


def margins_of(padding: object) -> tuple[int, int, int, int]:
    """Convert one, two (left and right, top and bottom) or four integers to left, top, right and bottom."""
    is_sequence = isinstance(padding, Sequence) and not isinstance(padding, str)
    values = [_integer(margin) for margin in (padding if is_sequence else [padding])]  # type: ignore[attr-defined]
    if len(values) not in (1, 2, 4) or None in values:
        raise OptionTypeError(
            "padding must be an integer, (left and right, top and bottom) or (left, top, right, bottom), not "
            f"{padding!r}"
        )
    left, top, right, bottom = (margin or 0 for margin in values * (4 // len(values)))
    if min(left, top, right, bottom) < 0 or max(left, top, right, bottom) > MAX_PIXELS:
        raise OptionError(f"padding must be 0 to {MAX_PIXELS} pixels, not {padding!r}")
    return left, top, right, bottom


def fill_of(fill: object, name: str = "fill") -> tuple[int, int, int]:
    """Convert one or three integers to red, green and blue; whole floats such as 0.0 are accepted too."""
    is_sequence = isinstance(fill, Sequence) and not isinstance(fill, str)
    values = [_level(colour) for colour in (fill if is_sequence else [fill])]  # type: ignore[attr-defined]
    if len(values) not in (1, 3) or None in values:
        raise OptionTypeError(f"{name} must be one integer, or three for red, green and blue, not {fill!r}")
    red, green, blue = (colour or 0 for colour in values * (3 // len(values)))
    if min(red, green, blue) < 0 or max(red, green, blue) > 255:
        raise OptionError(f"{name} must be 0 to 255, not {fill!r}")
    return red, green, blue


def padding_of(fill: object, mode: object) -> Padding:
    """Check the colour and the mode of padding, and return both; the colour is 0 unless the mode is ``constant``."""
    colour = _as_number(fill_of(fill))
    if mode not in PADDINGS:
        raise OptionError(f"padding_mode must be one of {', '.join(PADDINGS)}, not {mode!r}")
    return Padding(str(mode), colour if mode == "constant" else 0)


def _as_number(colour: tuple[int, int, int]) -> int:
    red, green, blue = colour
    return red + 256 * green + 65536 * blue


def _level(value: object) -> int | None:
    """Return an integer, or a whole float as an integer, because torchvision accepts both; None for other values."""
    return int(value) if isinstance(value, float) and value.is_integer() else _integer(value)


def _integer(value: object) -> int | None:
    """Return Python's or NumPy's integer as an int; None for other values."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def real(name: str, value: object) -> float:
    """Check a finite number, and return it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise OptionTypeError(f"{name} must be a number, not {value!r}")
    number = float(value)
    if abs(number) > _FARTHEST:
        raise OptionError(f"{name} must be a number from -{_FARTHEST:g} to {_FARTHEST:g}, not {value!r}")
    return number


def within(name: str, value: object, low: float, high: float) -> float:
    """Check a number from `low` to `high`, and return it."""
    number = real(name, value)
    if not low <= number <= high:
        allowed = f"{low:g} or more" if high == math.inf else f"a number from {low:g} to {high:g}"
        raise OptionError(f"{name} must be {allowed}, not {value!r}")
    return number


def count_of(name: str, value: object, least: int) -> int:
    """Check an integer of at least `least`, and return it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise OptionTypeError(f"{name} must be an integer, not {value!r}")
    if value < least:
        raise OptionError(f"{name} must be {least} or more, not {value!r}")
    return int(value)


def pair_of(name: str, values: object, low: float = -math.inf, high: float = math.inf) -> tuple[float, float]:
    """Check a pair of numbers from `low` to `high`, and return it."""
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != 2:
        raise OptionTypeError(f"{name} must be two numbers, not {values!r}")
    first, second = (within(name, value, low, high) for value in values)
    return first, second


def angles_of(name: str, degrees: object) -> tuple[float, float]:
    """Return the smallest and the largest angle in degrees; one number x means (-x, x)."""
    if isinstance(degrees, numbers.Real):
        most = within(name, degrees, 0, math.inf)
        return -most, most
    return pair_of(name, degrees)


def filter_of(interpolation: object) -> int:
    """Convert a name, torchvision's InterpolationMode or Pillow's number to an index into `FILTERS`."""
    return FILTERS.index(_name_among(FILTERS, interpolation))


def colour_of(fill: object) -> int:
    """Return a colour in the form of `OPERATION`; None, torchvision's default, is black."""
    return NO_FILL if fill is None else _as_number(fill_of(fill))


def stored_colour(fill: Any, name: str = "fill") -> int | tuple[int, int, int] | None:
    """Return a colour in the form that a rule stores and its repr shows: a number, a tuple, or None."""
    if fill is None:
        return None
    red, green, blue = fill_of(fill, name)
    return (red, green, blue) if isinstance(fill, Sequence) else red


def named(value: object) -> str:
    """Return the repr of a user's value; for a class of torchvision or timm, preceded by the package's name.

    These packages have classes with the same names as packer's.
    """
    package = type(value).__module__.partition(".")[0]
    return f"{package}'s {' '.join(repr(value).split())}" if package in {"torchvision", "timm"} else repr(value)
