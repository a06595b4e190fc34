"""Automatic augmentations: operations and their strength by random numbers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from packer._images.native.choosing import ANY
from packer._images.operations import FILTERS, NO_FILL, Operations, nothing
from packer._table import Ints
from packer.augment._augmentation import Augmentation
from packer.augment._coded import Coded, coded, joined
from packer.augment._policies import POLICIES
from packer.augment._settings import colour_of, count_of, filter_of, kept_colour
from packer.augment._spaces import ALL, SIGNED, Space, done
from packer.crops._algebra import Pairs
from packer.crops._uniforms import Floats, below

__all__ = ["AutoAugment", "RandAugment", "TrivialAugmentWide"]

_WIDE = Space(shear=0.99, turn=135, factor=0.99, bits=6, pixels=32)
_USUAL = Space(shear=0.3, turn=30, factor=0.9, bits=4)
_CHOSEN = tuple(name for name in ALL if name != "Invert")
_MOST_BINS = 128  # of which all operations are computed beforehand
_STEPS = 10  # of the strength in a policy


class _Automatic(Augmentation):
    """Operations of a space."""

    _space: Space

    def _be_automatic(
        self, randoms: int, operations: int, interpolation: Any, fill: int | Sequence[int] | None, **settings: object
    ) -> None:
        filter = FILTERS[filter_of(interpolation)]
        self._be(randoms, operations, **settings, interpolation=filter, fill=kept_colour(fill))

    def _do(  # noqa: PLR0917
        self, operations: Operations, which: Ints, places: Ints, negative: Floats, bins: int, sizes: Pairs
    ) -> None:
        """Fill in N operations of `ALL`, at the given of so many steps, and negative by a random number."""
        if len(sizes) and bins <= _MOST_BINS and (sizes == sizes[0]).all():
            table = _table(self, bins, *sizes[0].tolist())
            operations[:] = table[(which * bins + places) * 2 + (negative < 0.5)]
        else:
            self._do_each(operations, which, places, negative, bins, sizes)

    def _do_each(  # noqa: PLR0917
        self, operations: Operations, which: Ints, places: Ints, negative: Floats, bins: int, sizes: Pairs
    ) -> None:
        magnitudes = np.zeros(len(which))
        for number in np.unique(which).tolist():
            ours, name = which == number, ALL[number]
            magnitudes[ours] = self._space.magnitudes(name, bins, places[ours], sizes[ours])
            if name in SIGNED:
                magnitudes[ours] *= np.where(negative[ours] < 0.5, -1, 1)
        filter, fill = filter_of(self._settings["interpolation"]), colour_of(self._settings["fill"])
        done(operations, ALL, which, magnitudes, sizes, filter, fill)

    def _code_of_table(self, randoms: int, bins: int, strength: int, height: int, width: int) -> Coded | None:
        """Return the rule of one of the operations; `_do` does the same."""
        if bins > _MOST_BINS:
            return None
        table, count = _table(self, bins, height, width), len(_CHOSEN)
        return coded("of table", randoms, table, operations=count, strengths=bins, strength=strength)


@functools.lru_cache(maxsize=64)
def _table(rule: _Automatic, bins: int, height: int, width: int) -> Operations:
    """Return all operations on images of a size: a place each of `ALL`, of so many steps, and of the signs."""
    which, places, sign = np.indices((len(ALL), bins, 2)).reshape(3, -1)
    table = nothing(len(which), 1)[:, 0]
    table["fill"] = NO_FILL
    rule._do_each(table, which, places, np.where(sign, 0.0, 1.0), bins, np.full((len(which), 2), (height, width)))
    return table


class TrivialAugmentWide(_Automatic):
    """One operation of 14, of any strength: torchvision's TrivialAugmentWide (Müller and Hutter 2021).

    Parameters
    ----------
    num_magnitude_bins : int
        How many strengths there are, 2 or more.
    interpolation : {"nearest", "bilinear"} or torchvision's InterpolationMode
    fill : int or (int, int, int) or None
        The colour of what comes from outside, 0 to 255; None is black.

    Raises
    ------
    TypeError, ValueError
        If a setting is of another kind or out of range.
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
    """Operations of 14, of one strength: torchvision's RandAugment (Cubuk and others 2020).

    Parameters
    ----------
    num_ops : int
        How many operations follow one another.
    magnitude : int
        How strong they are, from 0 to before `num_magnitude_bins`.
    num_magnitude_bins : int
        How many strengths there are, 2 or more.
    interpolation, fill
        As for `TrivialAugmentWide`.

    Raises
    ------
    TypeError, ValueError
        If a setting is of another kind or out of range.
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
            raise ValueError(f"magnitude is less than num_magnitude_bins={bins}, not {magnitude!r}")
        settings = {"num_ops": count, "magnitude": int(magnitude), "num_magnitude_bins": bins}
        self._be_automatic(2 * count, count, interpolation, fill, **settings)

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        places = np.full(len(sizes), self._settings["magnitude"])
        for number in range(self.operations):
            which, negative = below(np.int64(len(_CHOSEN)), random[:, 2 * number]), random[:, 2 * number + 1]
            self._do(chosen[:, number], which, places, negative, self._settings["num_magnitude_bins"], sizes)

    def _code(self, height: int, width: int) -> Coded | None:
        bins, strength = self._settings["num_magnitude_bins"], self._settings["magnitude"]
        return joined([self._code_of_table(2, bins, strength, height, width)] * self.operations)


class AutoAugment(_Automatic):
    """One of 25 pairs of operations of a policy: torchvision's AutoAugment (Cubuk and others 2019).

    Parameters
    ----------
    policy : {"imagenet", "cifar10", "svhn"} or torchvision's AutoAugmentPolicy
        What the policy was found for.
    interpolation, fill
        As for `TrivialAugmentWide`.

    Raises
    ------
    TypeError, ValueError
        If a setting is of another kind or out of range.
    """

    _space = _USUAL

    def __init__(
        self, policy: Any = "imagenet", interpolation: Any = "nearest", fill: int | Sequence[int] | None = None
    ) -> None:
        name = getattr(policy, "value", policy)
        if name not in POLICIES:
            raise ValueError(f"policy is one of {', '.join(POLICIES)}, not {policy!r}")
        self._be_automatic(5, 2, interpolation, fill, policy=name)

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        pairs = POLICIES[self._settings["policy"]]
        pair = below(np.int64(len(pairs)), random[:, 0])
        for number in range(2):
            choices = [both[number] for both in pairs]
            which = np.array([ALL.index(choice.name) for choice in choices])[pair]
            places = np.array([choice.strength for choice in choices])[pair]
            skipped = random[:, 1 + number] > np.array([choice.p for choice in choices])[pair]
            self._do(chosen[:, number], which, places, random[:, 3 + number], _STEPS, sizes)
            chosen[:, number]["kind"][skipped] = 0
