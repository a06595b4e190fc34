"""Automatic augmentations, which choose operations and their strengths at random, as in torchvision."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from packer._images.native.crop_steps import ANY
from packer._images.operations import FILTERS, KINDS, NO_FILL, Operations, nothing
from packer._table import Ints
from packer.augment._affine import inverse_matrices, moved, turned
from packer.augment._base import Augmentation, Coded, coded, joined
from packer.crops._settings import colour_of, count_of, filter_of, stored_colour
from packer.crops._steps import Floats, Pairs, below
from packer.errors import OptionError

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
"""The names of all operations, as in torchvision."""

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
_GEOMETRIC = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
SIGNED = (*_GEOMETRIC, *_FACTORS)


class Space(NamedTuple):
    """The maximum strengths of the operations.

    Attributes
    ----------
    shear, turn, factor : float
        The largest shear, as a tangent; the largest rotation, in degrees; and the largest difference of a factor from
        1.
    bits : int
        The maximum number of bits that posterizing removes.
    pixels : float, optional
        The maximum translation in pixels; by default 150 / 331 of the image's side.
    """

    shear: float
    turn: float
    factor: float
    bits: int
    pixels: float | None = None

    def magnitudes(self, name: str, bins: int, steps: Ints, sizes: Pairs) -> Floats:
        """Return the strengths of an operation on N images; `steps` are positions on a scale of `bins` steps."""
        if name == "Posterize":
            levels = (8 - torch.arange(bins) / ((bins - 1) / self.bits)).round()
            return _numbers(levels)[steps]
        if name == "Solarize":
            return _linear(1, 0, bins)[steps]
        if name in {"TranslateX", "TranslateY"} and self.pixels is None:
            sides = sizes[:, 1 if name == "TranslateX" else 0]
            made = np.empty(len(steps))
            for side in np.unique(sides).tolist():
                ours = sides == side
                made[ours] = _linear(0, 150 / 331 * side, bins)[steps[ours]]
            return made
        strongest = {"Shear": self.shear, "Trans": self.pixels or 0, "Rotat": self.turn}.get(name[:5], self.factor)
        return _linear(0, strongest, bins)[steps] if name in SIGNED else np.zeros(len(steps))


@functools.lru_cache(maxsize=1024)
def _linear(first: float, last: float, bins: int) -> Floats:
    return _numbers(torch.linspace(first, last, bins))


def _numbers(values: torch.Tensor) -> Floats:
    """Convert float32 numbers, in which torchvision computes strengths, to float64 without changing them."""
    return values.double().numpy()


def done(  # noqa: PLR0917
    operations: Operations, names: Sequence[str], which: Ints, magnitudes: Floats, sizes: Pairs, filter: int, fill: int
) -> None:
    """Fill the N records in `operations`: `which` are indices into `names`, and `magnitudes` are the strengths.

    A magnitude has the same meaning as in ``_apply_image_or_video_transform`` in torchvision's
    transforms/v2/_auto_augment.py. An operation that changes nothing is left out.
    """
    for number, name in enumerate(names):
        ours = which == number
        if name == "Identity" or not ours.any():
            continue
        some, strength = np.array(operations[ours]), magnitudes[ours]
        if name in _GEOMETRIC:
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


class Choice(NamedTuple):
    """One operation of a policy.

    Attributes
    ----------
    name : str
        The operation's name in torchvision.
    p : float
        The probability that the operation is applied.
    strength : int
        0 to 9; also 0 for operations that have no strength.
    """

    name: str
    p: float
    strength: int = 0


def _read(policy: str) -> list[tuple[Choice, Choice]]:
    pairs = ([_choice(*words.split()) for words in line.split(",")] for line in policy.strip().splitlines())
    return [(first, second) for first, second in pairs]


def _choice(name: str, p: str, strength: str = "0") -> Choice:
    return Choice(name, float(p), int(strength))


POLICIES = {
    "imagenet": _read("""
    Posterize 0.4 8, Rotate 0.6 9
    Solarize 0.6 5, AutoContrast 0.6
    Equalize 0.8, Equalize 0.6
    Posterize 0.6 7, Posterize 0.6 6
    Equalize 0.4, Solarize 0.2 4
    Equalize 0.4, Rotate 0.8 8
    Solarize 0.6 3, Equalize 0.6
    Posterize 0.8 5, Equalize 1
    Rotate 0.2 3, Solarize 0.6 8
    Equalize 0.6, Posterize 0.4 6
    Rotate 0.8 8, Color 0.4 0
    Rotate 0.4 9, Equalize 0.6
    Equalize 0, Equalize 0.8
    Invert 0.6, Equalize 1
    Color 0.6 4, Contrast 1 8
    Rotate 0.8 8, Color 1 2
    Color 0.8 8, Solarize 0.8 7
    Sharpness 0.4 7, Invert 0.6
    ShearX 0.6 5, Equalize 1
    Color 0.4 0, Equalize 0.6
    Equalize 0.4, Solarize 0.2 4
    Solarize 0.6 5, AutoContrast 0.6
    Invert 0.6, Equalize 1
    Color 0.6 4, Contrast 1 8
    Equalize 0.8, Equalize 0.6
    """),
    "cifar10": _read("""
    Invert 0.1, Contrast 0.2 6
    Rotate 0.7 2, TranslateX 0.3 9
    Sharpness 0.8 1, Sharpness 0.9 3
    ShearY 0.5 8, TranslateY 0.7 9
    AutoContrast 0.5, Equalize 0.9
    ShearY 0.2 7, Posterize 0.3 7
    Color 0.4 3, Brightness 0.6 7
    Sharpness 0.3 9, Brightness 0.7 9
    Equalize 0.6, Equalize 0.5
    Contrast 0.6 7, Sharpness 0.6 5
    Color 0.7 7, TranslateX 0.5 8
    Equalize 0.3, AutoContrast 0.4
    TranslateY 0.4 3, Sharpness 0.2 6
    Brightness 0.9 6, Color 0.2 8
    Solarize 0.5 2, Invert 0
    Equalize 0.2, AutoContrast 0.6
    Equalize 0.2, Equalize 0.6
    Color 0.9 9, Equalize 0.6
    AutoContrast 0.8, Solarize 0.2 8
    Brightness 0.1 3, Color 0.7 0
    Solarize 0.4 5, AutoContrast 0.9
    TranslateY 0.9 9, TranslateY 0.7 9
    AutoContrast 0.9, Solarize 0.8 3
    Equalize 0.8, Invert 0.1
    TranslateY 0.7 9, AutoContrast 0.9
    """),
    "svhn": _read("""
    ShearX 0.9 4, Invert 0.2
    ShearY 0.9 8, Invert 0.7
    Equalize 0.6, Solarize 0.6 6
    Invert 0.9, Equalize 0.6
    Equalize 0.6, Rotate 0.9 3
    ShearX 0.9 4, AutoContrast 0.8
    ShearY 0.9 8, Invert 0.4
    ShearY 0.9 5, Solarize 0.2 6
    Invert 0.9, AutoContrast 0.8
    Equalize 0.6, Rotate 0.9 3
    ShearX 0.9 4, Solarize 0.3 3
    ShearY 0.8 8, Invert 0.7
    Equalize 0.9, TranslateY 0.6 6
    Invert 0.9, Equalize 0.6
    Contrast 0.3 3, Rotate 0.8 4
    Invert 0.8, TranslateY 0 2
    ShearY 0.7 6, Solarize 0.4 8
    Invert 0.6, Rotate 0.8 4
    ShearY 0.3 7, TranslateX 0.9 3
    ShearX 0.1 6, Invert 0.6
    Solarize 0.7 2, TranslateY 0.6 7
    ShearY 0.8 4, Invert 0.8
    ShearX 0.7 9, TranslateY 0.8 3
    ShearY 0.8 5, AutoContrast 0.7
    ShearX 0.7 2, Invert 0.1
    """),
}
"""The policies of AutoAugment by name, each with 25 pairs of operations."""


_WIDE = Space(shear=0.99, turn=135, factor=0.99, bits=6, pixels=32)
_USUAL = Space(shear=0.3, turn=30, factor=0.9, bits=4)
_CHOSEN = tuple(name for name in ALL if name != "Invert")
_MOST_BINS = 128  # with more strengths than this, the operations are not computed in advance
_STEPS = 10  # number of strengths in a policy


class _Automatic(Augmentation):
    """The base class of automatic augmentations, whose operations have the strengths of a `Space`."""

    _space: Space

    def _be_automatic(
        self, randoms: int, operations: int, interpolation: Any, fill: int | Sequence[int] | None, **settings: object
    ) -> None:
        filter = FILTERS[filter_of(interpolation)]
        self._be(randoms, operations, **settings, interpolation=filter, fill=stored_colour(fill))

    def _do(  # noqa: PLR0917
        self, operations: Operations, which: Ints, steps: Ints, negative: Floats, bins: int, sizes: Pairs
    ) -> None:
        """Fill N records: `which` are indices into `ALL`, and `steps` are on a scale of `bins` steps.

        `negative` are random numbers from 0 to 1: below 0.5, the sign of the strength is negative.
        """
        if len(sizes) and bins <= _MOST_BINS and (sizes == sizes[0]).all():
            table = _table(self, bins, *sizes[0].tolist())
            operations[:] = table[(which * bins + steps) * 2 + (negative < 0.5)]
        else:
            self._do_each(operations, which, steps, negative, bins, sizes)

    def _do_each(  # noqa: PLR0917
        self, operations: Operations, which: Ints, steps: Ints, negative: Floats, bins: int, sizes: Pairs
    ) -> None:
        magnitudes = np.zeros(len(which))
        for number in np.unique(which).tolist():
            ours, name = which == number, ALL[number]
            magnitudes[ours] = self._space.magnitudes(name, bins, steps[ours], sizes[ours])
            if name in SIGNED:
                magnitudes[ours] *= np.where(negative[ours] < 0.5, -1, 1)
        filter, fill = filter_of(self._settings["interpolation"]), colour_of(self._settings["fill"])
        done(operations, ALL, which, magnitudes, sizes, filter, fill)

    def _code_of_table(self, randoms: int, bins: int, strength: int, height: int, width: int) -> Coded | None:
        """Return C's rule for choosing one of the operations; `_do` does the same in Python."""
        if bins > _MOST_BINS:
            return None
        table, count = _table(self, bins, height, width), len(_CHOSEN)
        return coded("of table", randoms, table, operations=count, strengths=bins, strength=strength)


@functools.lru_cache(maxsize=64)
def _table(rule: _Automatic, bins: int, height: int, width: int) -> Operations:
    """Return all operations on images of one size: an entry for each of `ALL`, each step and each sign."""
    which, steps, sign = np.indices((len(ALL), bins, 2)).reshape(3, -1)
    table = nothing(len(which), 1)[:, 0]
    table["fill"] = NO_FILL
    rule._do_each(table, which, steps, np.where(sign, 0.0, 1.0), bins, np.full((len(which), 2), (height, width)))
    return table


class TrivialAugmentWide(_Automatic):
    """One of 14 operations, with a random strength: torchvision's TrivialAugmentWide (Müller and Hutter 2021).

    Parameters
    ----------
    num_magnitude_bins : int
        The number of strengths, 2 or more.
    interpolation : {"nearest", "bilinear"} or torchvision's InterpolationMode
    fill : int or (int, int, int) or None
        The colour of pixels outside the image, 0 to 255; None is black.

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value.
    """

    _space = _WIDE

    def __init__(
        self, num_magnitude_bins: int = 31, interpolation: Any = "nearest", fill: int | Sequence[int] | None = None
    ) -> None:
        bins = count_of("num_magnitude_bins", num_magnitude_bins, 2)
        self._be_automatic(3, 1, interpolation, fill, num_magnitude_bins=bins)

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        bins = self._settings["num_magnitude_bins"]
        which = below(np.int64(len(_CHOSEN)), random[:, 0])
        self._do(chosen[:, 0], which, below(bins, random[:, 1]), random[:, 2], bins, sizes)

    def _code(self, height: int, width: int) -> Coded | None:
        return self._code_of_table(self.randoms, self._settings["num_magnitude_bins"], ANY, height, width)


class RandAugment(_Automatic):
    """Several of 14 operations, with a fixed strength: torchvision's RandAugment (Cubuk and others 2020).

    Parameters
    ----------
    num_ops : int
        The number of operations that are applied one after the other.
    magnitude : int
        The strength of the operations, from 0 to ``num_magnitude_bins - 1``.
    num_magnitude_bins : int
        The number of strengths, 2 or more.
    interpolation, fill
        The same as for `TrivialAugmentWide`.

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value.
    """

    _space = _USUAL

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Any = "nearest",
        fill: int | Sequence[int] | None = None,
    ) -> None:
        count, bins = count_of("num_ops", num_ops, 0), count_of("num_magnitude_bins", num_magnitude_bins, 2)
        if count_of("magnitude", magnitude, 0) >= bins:
            raise OptionError(f"magnitude must be less than num_magnitude_bins={bins}, not {magnitude!r}")
        settings = {"num_ops": count, "magnitude": int(magnitude), "num_magnitude_bins": bins}
        self._be_automatic(2 * count, count, interpolation, fill, **settings)

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        steps = np.full(len(sizes), self._settings["magnitude"])
        for number in range(self.operations):
            which, negative = below(np.int64(len(_CHOSEN)), random[:, 2 * number]), random[:, 2 * number + 1]
            self._do(chosen[:, number], which, steps, negative, self._settings["num_magnitude_bins"], sizes)

    def _code(self, height: int, width: int) -> Coded | None:
        bins, strength = self._settings["num_magnitude_bins"], self._settings["magnitude"]
        return joined([self._code_of_table(2, bins, strength, height, width)] * self.operations)


class AutoAugment(_Automatic):
    """Apply a random pair of operations from a policy of 25 pairs: torchvision's AutoAugment (Cubuk and others 2019).

    Parameters
    ----------
    policy : {"imagenet", "cifar10", "svhn"} or torchvision's AutoAugmentPolicy
        The data set for which the policy was found.
    interpolation, fill
        The same as for `TrivialAugmentWide`.

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value.
    """

    _space = _USUAL

    def __init__(
        self, policy: Any = "imagenet", interpolation: Any = "nearest", fill: int | Sequence[int] | None = None
    ) -> None:
        name = getattr(policy, "value", policy)
        if name not in POLICIES:
            raise OptionError(f"policy must be one of {', '.join(POLICIES)}, not {policy!r}")
        self._be_automatic(5, 2, interpolation, fill, policy=name)

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        pairs = POLICIES[self._settings["policy"]]
        pair = below(np.int64(len(pairs)), random[:, 0])
        for number in range(2):
            choices = [both[number] for both in pairs]
            which = np.array([ALL.index(choice.name) for choice in choices])[pair]
            steps = np.array([choice.strength for choice in choices])[pair]
            skipped = random[:, 1 + number] > np.array([choice.p for choice in choices])[pair]
            self._do(chosen[:, number], which, steps, random[:, 3 + number], _STEPS, sizes)
            chosen[:, number]["kind"][skipped] = 0
