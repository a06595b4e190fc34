"""One of several rules, of images or of batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from packer.augment._augmentation import Augmentation, ChoiceOfAugmentations
from packer.augment._mixing import ChoiceOfMixings, Mixing

__all__ = ["RandomChoice"]


@overload
def RandomChoice(transforms: Sequence[Augmentation], p: Sequence[float] | None = None) -> Augmentation: ...
@overload
def RandomChoice(transforms: Sequence[Mixing], p: Sequence[float] | None = None) -> Mixing: ...
def RandomChoice(transforms: Sequence[Any], p: Sequence[float] | None = None) -> Augmentation | Mixing:  # noqa: N802
    """Return one of some rules, another for each image or batch: torchvision's RandomChoice.

    One of some augmentations is an augmentation: three-augment (DeiT III) is ``RandomChoice([Grayscale(3),
    RandomSolarize(128, p=1), GaussianBlur(9)])``. One of `MixUp` and `CutMix`, ``RandomChoice([MixUp(num_classes=9),
    CutMix(num_classes=9)])``, is a `Mixing`, for the batches of a Loader.

    Parameters
    ----------
    transforms : sequence of Augmentation, or sequence of Mixing
    p : sequence of float, optional
        A weight for each, by default the same.

    Raises
    ------
    TypeError, ValueError
        If one is no augmentation of packer, there is none, or the weights are not as many, or negative.
    """
    of_batches = isinstance(transforms, Sequence) and bool(transforms)
    if of_batches and all(isinstance(rule, Mixing) for rule in transforms):
        return ChoiceOfMixings(transforms, p)
    return ChoiceOfAugmentations(transforms, p)
