"""The base class of augmentations; chains, choices and views of augmentations; and the records that C uses for them."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import torch

from packer._images.extension import _native
from packer._images.geometry import sides_of
from packer._images.native import crop_steps
from packer._images.native.crop_steps import RULE, RULES, require_uniform
from packer._images.operations import KINDS, LONGEST_MOVED, NO_FILL, Operations, nothing
from packer._table import Ints
from packer.augment._mixup import ChoiceOfMixings, Mixing, shares_of
from packer.crops._crop import Compose, Crop, Frozen
from packer.crops._settings import named, probability
from packer.crops._steps import Floats, Pairs, refuse
from packer.errors import ImageError, OptionTypeError


class Coded(NamedTuple):
    """Augmentation rules for images of one size, encoded for C.

    Attributes
    ----------
    records : (M,) array of RULE
    tables : tuple of arrays of OPERATION
        The arrays whose addresses are in the records.
    """

    records: npt.NDArray[Any]
    tables: tuple[Operations, ...] = ()


def coded(kind: str, randoms: int, table: Operations | None = None, **numbers: float) -> Coded:
    """Encode one rule: make a record of `RULE` whose fields have the given values."""
    record = np.zeros(1, RULE)
    record["kind"], record["randoms"] = RULES.index(kind), randoms
    for name, number in numbers.items():
        record[name] = number
    if table is None:
        return Coded(record)
    record["table"] = table.ctypes.data
    return Coded(record, (table,))


def joined(rules: Sequence[Coded | None]) -> Coded | None:
    """Concatenate encoded rules. If a rule is None, because C does not support it, the result is None."""
    known = [rule for rule in rules if rule is not None]
    if len(known) < len(rules):
        return None
    records = np.concatenate([np.zeros(0, RULE), *(rule.records for rule in known)])
    return Coded(records, tuple(table for rule in known for table in rule.tables))


class Augmentation(Frozen, abc.ABC):
    """The base class of packer's augmentations.

    Augmentations are immutable; two augmentations of the same class with the same settings are equal.

    This class is public for type annotations and `isinstance`; your own subclasses are not supported. For other
    augmentations, pass a `transform` to the dataset.
    """

    randoms: int = 0
    """The number of random numbers that an image needs."""

    operations: int = 1
    """The maximum number of operations on an image."""

    @abc.abstractmethod
    def __init__(self) -> None: ...

    def _be(self, randoms: int, operations: int, **settings: Any) -> None:
        """Initialise the augmentation; repr shows the settings, and comparisons compare them."""
        vars(self).update(randoms=randoms, operations=operations, _settings=settings)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_coded"}  # it contains addresses

    def choose(self, heights: Ints, widths: Ints, random: Floats | None = None) -> Operations:
        """Choose the operations for N images.

        Parameters
        ----------
        heights, widths : (N,) int64
            Sizes of the images, in pixels.
        random : (N, randoms) float64, optional
            Random numbers, uniform in [0, 1); the operations depend only on these and on the sizes. By default the
            numbers are drawn from torch's default generator.

        Returns
        -------
        (N, operations) array of OPERATION
            The operations on each image, in order.

        Raises
        ------
        ImageError
            If an image is too small for this augmentation, or too large for an affine operation. The error's `index` is
            the position of the image among the N images.
        ValueError
            If `random` has a wrong shape or numbers outside [0, 1), or if heights and widths differ in length.
        """
        heights, widths = sides_of(heights, widths)
        if random is None:
            random = torch.rand((len(heights), self.randoms), dtype=torch.float64).numpy()
        require_uniform(random, (len(heights), self.randoms))
        rules = self._coded_for(heights, widths)
        if rules is not None:
            return crop_steps.decide(rules.records, int(heights[0]), int(widths[0]), random)
        sizes = np.stack([heights, widths], 1)
        chosen = nothing(len(sizes), self.operations)
        chosen["fill"] = NO_FILL
        self._fill_in(chosen, sizes, random)
        if sizes.max(initial=0) > LONGEST_MOVED:
            refused = (sizes > LONGEST_MOVED).any(1) & (chosen["kind"] == KINDS.index("affine")).any(1)
            refuse(
                refused,
                sizes,
                f"cannot be moved, because a side has more than {LONGEST_MOVED} pixels: pass a smaller crop=",
            )
        return chosen

    def interpolations(self) -> set[str]:
        """Return the interpolations with which the augmentation can move pixels, by name; empty if it moves none."""
        found = {str(self._settings["interpolation"])} if "interpolation" in self._settings else set()
        for value in self._settings.values():
            for rule in value if isinstance(value, tuple) else ():
                found |= rule.interpolations() if isinstance(rule, Augmentation) else set()
        return found

    @abc.abstractmethod
    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        """Fill `chosen`, whose operations do nothing so far, with the operations on images of these sizes."""

    def _coded_for(self, heights: Ints, widths: Ints) -> Coded | None:
        """Return the rules encoded for C; None if C does not support them, or if sizes differ or are not allowed."""
        if _native is None or len(heights) == 0:
            return None
        height, width = int(heights[0]), int(widths[0])
        if max(height, width) > LONGEST_MOVED or not ((heights == height).all() and (widths == width).all()):
            return None
        known: tuple[tuple[int, int], Coded | None] | None = vars(self).get("_coded")
        if known is None or known[0] != (height, width):
            known = vars(self)["_coded"] = (height, width), self._code(height, width)
        return known[1]

    def _code(self, height: int, width: int) -> Coded | None:
        """Return the rules for images of one size, encoded for C; None if C does not support them."""
        return None


class Chain(Augmentation):
    """Several augmentations, applied one after the other.

    Parameters
    ----------
    augmentations : sequence of Augmentation

    Raises
    ------
    TypeError
        If one of `augmentations` is not an augmentation of packer.
    """

    def __init__(self, augmentations: Sequence[Augmentation]) -> None:
        rules = _rules("augmentations", augmentations)
        counts = sum(rule.randoms for rule in rules), sum(rule.operations for rule in rules)
        self._be(*counts, augmentations=rules)

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        rules: tuple[Augmentation, ...] = self._settings["augmentations"]
        operation = number = 0
        for rule in rules:
            ours, numbers = slice(operation, operation + rule.operations), slice(number, number + rule.randoms)
            rule._fill_in(chosen[:, ours], sizes, random[:, numbers])
            operation, number = ours.stop, numbers.stop

    def _code(self, height: int, width: int) -> Coded | None:
        return joined([rule._code(height, width) for rule in self._settings["augmentations"]])


class RandomApply(Augmentation):
    """Apply all of several augmentations, or none: torchvision's RandomApply.

    Parameters
    ----------
    transforms : sequence of Augmentation
    p : float
        The probability of applying all of `transforms`.

    Raises
    ------
    TypeError, ValueError
        If one of `transforms` is not an augmentation of packer, or `p` is not a probability.
    """

    def __init__(self, transforms: Sequence[Augmentation], p: float = 0.5) -> None:
        rules, chance = _rules("transforms", transforms), probability("p", p)
        chain = Chain(rules)
        self._be(1 + chain.randoms, chain.operations, transforms=rules, p=chance)
        vars(self)["_chain"] = chain

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        chain: Chain = vars(self)["_chain"]
        chain._fill_in(chosen, sizes, random[:, 1:])
        chosen["kind"][random[:, 0] >= self._settings["p"]] = 0


class ChoiceOfAugmentations(Augmentation):
    """Applies one of several augmentations to each image; `RandomChoice` of augmentations returns it."""

    _shown = "RandomChoice"

    def __init__(self, transforms: Sequence[Augmentation], p: Sequence[float] | None = None) -> None:
        rules = _rules("transforms", transforms)
        shares = shares_of(p, len(rules))
        randoms, operations = max(rule.randoms for rule in rules), max(rule.operations for rule in rules)
        self._be(1 + randoms, operations, transforms=rules, p=shares)

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        rules: tuple[Augmentation, ...] = self._settings["transforms"]
        which = np.searchsorted(np.cumsum(self._settings["p"])[:-1], random[:, 0], side="right")
        for number, rule in enumerate(rules):
            ours = which == number
            some = np.array(chosen[ours, : rule.operations])
            try:
                rule._fill_in(some, sizes[ours], random[ours, 1 : 1 + rule.randoms])
            except ImageError as error:  # `index` is the position among the images to which this rule applies
                error.index = int(np.flatnonzero(ours)[error.index or 0])
                raise
            chosen[ours, : rule.operations] = some


def chain_of(augment: Any) -> Augmentation:
    """Convert an augmentation, or a list of augmentations, to one augmentation; TypeError for other objects."""
    return augment if isinstance(augment, Augmentation) else Chain(_rules("augment", augment))


def _rules(name: str, augmentations: Any) -> tuple[Augmentation, ...]:
    """Return the augmentations in a list; TypeError if it is not a list, or contains other objects."""
    if isinstance(augmentations, (Frozen, str)) or not isinstance(augmentations, Sequence):
        raise OptionTypeError(
            f"{name} must be a list of packer's augmentations, such as [packer.augment.TrivialAugmentWide()], not "
            f"{named(augmentations)}"
        )
    for rule in augmentations:
        if isinstance(rule, Mixing):
            raise OptionTypeError(f"{rule!r} mixes the images of a batch: pass it to a Loader as mix=")
        if isinstance(rule, Crop):
            raise OptionTypeError(f"{rule!r} is a crop, which comes before the augmentations: pass it as crop=")
        if not isinstance(rule, Augmentation):
            raise OptionTypeError(
                f"augmentations must be packer's own, such as packer.augment.TrivialAugmentWide(), not {named(rule)}. "
                "Pass others as transform=, or as batch_transform= of a Loader"
            )
    return tuple(augmentations)


class View(Frozen):
    """One of the versions of each image that a dataset makes for self-supervised learning.

    ``[View(RandomResizedCrop(224, flip=0.5), augment=[...])] * 2`` makes SimCLR's two views, and
    ``[first, second] + [View(RandomResizedCrop(96, scale=(0.05, 0.4), flip=0.5), augment=[...])] * 8`` makes the views
    of DINO's multi-crop. Views are immutable; two views with equal settings are equal.

    Parameters
    ----------
    crop : Crop or sequence of Crop
        The part of the image, and its new size.
    augment : Augmentation or sequence of Augmentation, optional
        The operations on the pixels of the crop.

    Raises
    ------
    TypeError
        If `crop` or `augment` is, or contains, an object that is not one of packer's crops or augmentations.
    """

    crop: Crop
    augment: Augmentation | None

    def __init__(
        self, crop: Crop | Sequence[Crop], augment: Augmentation | Sequence[Augmentation] | None = None
    ) -> None:
        rule = Compose(crop) if isinstance(crop, (list, tuple)) else crop
        chain = None if augment is None else chain_of(augment)
        if not isinstance(rule, Crop):
            raise OptionTypeError(
                f"crop is one of packer's crops, such as packer.RandomResizedCrop(224), not {named(crop)}"
            )
        vars(self).update(crop=rule, augment=chain, _settings={"crop": rule, "augment": chain})

    @property
    def randoms(self) -> int:
        """The number of random numbers that an image needs."""
        return self.crop.randoms + (0 if self.augment is None else self.augment.randoms)


@overload
def RandomChoice(transforms: Sequence[Augmentation], p: Sequence[float] | None = None) -> Augmentation: ...
@overload
def RandomChoice(transforms: Sequence[Mixing], p: Sequence[float] | None = None) -> Mixing: ...
def RandomChoice(transforms: Sequence[Any], p: Sequence[float] | None = None) -> Augmentation | Mixing:  # noqa: N802
    """Apply one of several augmentations or mixings, chosen for each image or batch: torchvision's RandomChoice.

    A choice of augmentations is an augmentation. For example, the three-augment of DeiT III is
    ``RandomChoice([Grayscale(3), RandomSolarize(128, p=1), GaussianBlur(9)])``. A choice of `MixUp` and `CutMix`,
    ``RandomChoice([MixUp(num_classes=9), CutMix(num_classes=9)])``, is a `Mixing` for the batches of a Loader.

    Parameters
    ----------
    transforms : sequence of Augmentation, or sequence of Mixing
    p : sequence of float, optional
        The weight of each of `transforms`; by default all weights are equal.

    Raises
    ------
    TypeError, ValueError
        If one of `transforms` is not an augmentation or a mixing of packer, or the sequence is empty. If a weight is
        negative, or the number of weights differs from the number of `transforms`.
    """
    of_batches = isinstance(transforms, Sequence) and bool(transforms)
    if of_batches and all(isinstance(rule, Mixing) for rule in transforms):
        return ChoiceOfMixings(transforms, p)
    return ChoiceOfAugmentations(transforms, p)
