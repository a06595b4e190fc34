"""The operations that automatic augmentations choose from, and how strong they are: torchvision's spaces."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from packer._images.operations import KINDS, Operations
from packer._table import Ints
from packer.augment._matrices import inverse_matrices
from packer.augment._places import moved, turned
from packer.crops._algebra import Pairs
from packer.crops._uniforms import Floats

__all__ = ["ALL", "SIGNED", "Space", "done"]

ALL = (
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
    "Invert",
)
"""torchvision's names."""

_KINDS = {
    "Brightness": "brightness",
    "Color": "saturation",
    "Contrast": "contrast",
    "Sharpness": "sharpness",
    "Posterize": "posterize",
    "Solarize": "solarize",
    "AutoContrast": "autocontrast",
    "Equalize": "equalize",
    "Invert": "invert",
}
_FACTORS = ("Brightness", "Color", "Contrast", "Sharpness")
_PLACES = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
SIGNED = (*_PLACES, *_FACTORS)


class Space(NamedTuple):
    """How strong the operations are at most.

    Attributes
    ----------
    shear, turn, factor : float
        The strongest shear, as a tangent; rotation, in degrees; and change of a factor.
    bits : int
        How many bits posterizing takes away at most.
    pixels : float, optional
        The farthest translation. Without it, 150 / 331 of the image's side.
    """

    shear: float
    turn: float
    factor: float
    bits: int
    pixels: float | None = None

    def magnitudes(self, name: str, bins: int, places: Ints, sizes: Pairs) -> Floats:
        """Return how strong an operation is on N images, at given places of so many steps up to the strongest."""
        if name == "Posterize":
            levels = (8 - torch.arange(bins) / ((bins - 1) / self.bits)).round()
            return _numbers(levels)[places]
        if name == "Solarize":
            return _linear(1, 0, bins)[places]
        if name in {"TranslateX", "TranslateY"} and self.pixels is None:
            sides = sizes[:, 1 if name == "TranslateX" else 0]
            made = np.empty(len(places))
            for side in np.unique(sides).tolist():
                ours = sides == side
                made[ours] = _linear(0, 150 / 331 * side, bins)[places[ours]]
            return made
        strongest = {"Shear": self.shear, "Trans": self.pixels or 0, "Rotat": self.turn}.get(name[:5], self.factor)
        return _linear(0, strongest, bins)[places] if name in SIGNED else np.zeros(len(places))


@functools.lru_cache(maxsize=1024)
def _linear(first: float, last: float, bins: int) -> Floats:
    return _numbers(torch.linspace(first, last, bins))


def _numbers(values: torch.Tensor) -> Floats:
    """Return float32 numbers as torchvision hands them on."""
    return values.double().numpy()


def done(  # noqa: PLR0917
    operations: Operations, names: Sequence[str], which: Ints, magnitudes: Floats, sizes: Pairs, filter: int, fill: int
) -> None:
    """Fill in N operations: those of `names` that `which` says, as strong as `magnitudes` says.

    The meaning of a magnitude is that of ``_apply_image_or_video_transform`` in torchvision's
    transforms/v2/_auto_augment.py. What changes nothing is no operation.
    """
    for place, name in enumerate(names):
        ours = which == place
        if name == "Identity" or not ours.any():
            continue
        some, strength = np.array(operations[ours]), magnitudes[ours]
        if name in _PLACES:
            moved(some, _matrices(name, strength, sizes[ours]), filter, fill)
        else:
            some["kind"] = KINDS.index(_KINDS[name])
            some["factor"] = _factors(name, strength)
            some["kind"][_is_neutral(name, some["factor"])] = 0
        operations[ours] = some


def _factors(name: str, magnitudes: Floats) -> Floats:
    if name in _FACTORS:
        return 1 + magnitudes
    return 255 * magnitudes if name == "Solarize" else np.trunc(magnitudes)


def _is_neutral(name: str, factors: Floats) -> npt.NDArray[np.bool_]:
    neutral = 1 if name in _FACTORS else 8 if name == "Posterize" else None
    return factors == neutral if neutral is not None else np.zeros(len(factors), bool)


def _matrices(name: str, magnitudes: Floats, sizes: Pairs) -> Floats:
    none, ones, both = np.zeros(len(sizes)), np.ones(len(sizes)), np.zeros((len(sizes), 2))
    if name == "Rotate":
        return turned(magnitudes, both, sizes)
    along = np.where([name.endswith("X"), name.endswith("Y")], 1, 0)
    if name.startswith("Translate"):
        return inverse_matrices(none, np.trunc(magnitudes)[:, None] * along, ones, both, both)
    shear, corner = np.degrees(np.arctan(magnitudes))[:, None] * along, np.asarray(-0.5 * sizes[:, ::-1], np.float64)
    return inverse_matrices(none, both, ones, shear, corner)
