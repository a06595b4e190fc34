"""Parsing of augmentation settings in torchvision's forms, and errors for invalid settings."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

from packer._images.operations import FILTERS, NO_FILL
from packer.crops._rules import fill_of
from packer.errors import OptionError, OptionTypeError

_FARTHEST = 1e100  # so that whatever is computed of such numbers is one, and not infinite


def real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise OptionTypeError(f"{name} is a number, not {value!r}")
    number = float(value)
    if abs(number) > _FARTHEST:
        raise OptionError(f"{name} is a number of -{_FARTHEST:g} to {_FARTHEST:g}, not {value!r}")
    return number


def within(name: str, value: object, low: float, high: float) -> float:
    number = real(name, value)
    if not low <= number <= high:
        allowed = f"{low:g} or more" if high == math.inf else f"a number of {low:g} to {high:g}"
        raise OptionError(f"{name} is {allowed}, not {value!r}")
    return number


def count_of(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise OptionTypeError(f"{name} is an integer, not {value!r}")
    if value < least:
        raise OptionError(f"{name} is {least} or more, not {value!r}")
    return int(value)


def pair_of(name: str, values: object, low: float = -math.inf, high: float = math.inf) -> tuple[float, float]:
    """Check a pair of numbers from `low` to `high`, and return it."""
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != 2:
        raise OptionTypeError(f"{name} is two numbers, not {values!r}")
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
    name = getattr(interpolation, "value", interpolation)
    name = {0: "nearest", 2: "bilinear"}.get(name, name) if isinstance(name, int) else name
    if name not in FILTERS:
        raise OptionError(f"interpolation is one of {', '.join(FILTERS)}, not {interpolation!r}")
    return FILTERS.index(str(name))


def colour_of(fill: object) -> int:
    """Return a colour in the form of `OPERATION`; None, torchvision's default, is black."""
    if fill is None:
        return NO_FILL
    red, green, blue = fill_of(fill)
    return red + 256 * green + 65536 * blue


def kept_colour(fill: Any, name: str = "fill") -> int | tuple[int, int, int] | None:
    """Return a colour in the form that a rule stores and its repr shows: a number, a tuple, or None."""
    if fill is None:
        return None
    red, green, blue = fill_of(fill, name)
    return (red, green, blue) if isinstance(fill, Sequence) else red


def named(value: object) -> str:
    """Return the repr of a user's value, with its package if this has classes with the same names as packer's."""
    package = type(value).__module__.partition(".")[0]
    return f"{package}'s {' '.join(repr(value).split())}" if package in {"torchvision", "timm"} else repr(value)
