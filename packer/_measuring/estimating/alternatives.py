"""What other options would give, from a few images each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from packer._conversion.request import ConversionRequest
from packer._measuring.estimating.sampling import Interval, Population
from packer._measuring.estimating.trials import run_trials
from packer._sources import Source
from packer.errors import DestinationError, OptionError, PackerError

__all__ = ["Alternative", "try_alternatives"]

_LEAST_SECONDS = 0.1  # of what is tried


@dataclass(frozen=True)
class Alternative:
    """What other options would give.

    Attributes
    ----------
    options : str
        The options, as the command line spells them.
    size : Interval
        Bytes of the pack.
    seconds : Interval
        Duration of the conversion on this machine.
    """

    options: str
    size: Interval
    seconds: Interval


def try_alternatives(
    request: ConversionRequest,
    source: Source,
    population: Population,
    *,
    ends: float,
    before: float,
    first: float,
    to_8_bit: str | None,
    how: Mapping[str, Any],
) -> tuple[list[Alternative], list[str]]:
    """Try what other options would give, until the time ends; return that, and those that were not tried.

    Each would be converted by a process of its own, which loads what it needs. Here that is loaded by whoever needs it
    first, which may have been what was asked for: it spent `first` seconds on it. Where there are images that 8-bit RGB
    does not hold, `to_8_bit` says how options that encode pixels make them 8-bit RGB.
    """
    found, left = [], []
    loaded = {bool(request.recipe.tiles): first}  # of what is loaded, only what tiles takes long
    others = list(_others(request, to_8_bit))
    for number, (options, asked) in enumerate(others):
        now = time.monotonic()
        until = now + (ends - now) / (len(others) - number)
        if until - now < _LEAST_SECONDS:
            left.append(options)
            continue
        try:
            trials = run_trials(
                asked, source, population, until=until, ends=ends, wanted=0, what=f"trying {options}", **how
            )
        except (DestinationError, OSError):  # no room for it
            left.append(options)
            continue
        except (PackerError, ValueError):
            continue  # such images cannot be made so
        if not trials.each:
            left.append(options)
            continue
        duration, tiled = trials.duration(), bool(asked.recipe.tiles)
        loaded[tiled] = max(duration.first, loaded.get(tiled, 0.0))
        duration = replace(duration, first=loaded[tiled])
        found.append(Alternative(options, trials.size(), duration.on(before=before)))
    return found, left


def _others(request: ConversionRequest, to_8_bit: str | None) -> Iterator[tuple[str, ConversionRequest]]:
    """Yield what else one may ask for, each with its options, but for what was asked for."""
    resize = request.resize or 256
    plain: dict[str, Any] = {"codec": None, "resize": None, "tiles": None, "quality": None, "recode": False}
    plain |= {"resize_mode": None, "upscale": False, "interpolation": None}
    resized = {name: getattr(request, name) for name in ("resize_mode", "upscale", "interpolation")}
    for codec, tiles, size in _KINDS:
        encodes = size or codec is not None
        changed = plain | ({"resize": resize, **resized} if size else {}) | {"codec": codec, "tiles": tiles}
        changed["to_8_bit"] = to_8_bit if encodes else None
        words = [f"--resize {resize}"] if size else []
        words += [f"--codec {codec}"] if codec else []
        words += ["--tiles"] if tiles else ["--no-tiles"] if tiles is False else []
        words += [f"--to-8-bit {to_8_bit}"] if to_8_bit and encodes else []
        try:
            asked = replace(request, **changed)
        except OptionError:
            continue
        if asked.recipe != request.recipe:
            yield " ".join(words) or "--codec keep", asked


_KINDS = (
    (None, None, False),
    (None, None, True),
    (None, False, True),
    (None, True, False),
    ("webp", None, True),
    ("png", None, True),
    ("raw", None, True),
    ("jpeg", None, False),
    ("webp", None, False),
    ("png", None, False),
    ("raw", None, False),
)
"""What else is tried: a codec, whether tiled, whether resized; the most usual first."""
