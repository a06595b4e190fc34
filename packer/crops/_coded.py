"""Steps as the records that C takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._images.compiled import _native
from packer._images.geometry import INTERPOLATIONS, PADDINGS
from packer._images.native.choosing import KINDS, STEP
from packer.crops._algebra import Padding
from packer.crops._resizedcrop import RandomResizedCut
from packer.crops._steps import CenterCut, Mirrored, Padded, RandomCut, RandomCutOfV1, Resized, Step

__all__ = ["coded"]


def coded(steps: Sequence[Step]) -> npt.NDArray[Any] | None:
    """Return steps as an array of STEP; None where there is no C, or C does not know one of them."""
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
