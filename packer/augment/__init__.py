"""Augmentation: operations on the pixels of crops, chosen for a whole batch and applied in place, in C.

The classes have the names, arguments and meaning of those in torchvision's ``transforms.v2``. They produce the same
pixels as torchvision on uint8 tensors; only blurred, interpolated and adjusted pixels may differ by one level. `MixUp`
and `CutMix` work on batches; pass them to a `Loader` as ``mix=``.
"""

from packer.augment._affine import RandomAffine, RandomErasing, RandomRotation
from packer.augment._auto import AutoAugment, RandAugment, TrivialAugmentWide
from packer.augment._base import Augmentation, Chain, RandomApply, RandomChoice, View
from packer.augment._color import (
    ColorJitter,
    GaussianBlur,
    Grayscale,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from packer.augment._mixup import CutMix, Mixing, MixUp

__all__ = [
    "Augmentation",
    "AutoAugment",
    "Chain",
    "ColorJitter",
    "CutMix",
    "GaussianBlur",
    "Grayscale",
    "MixUp",
    "Mixing",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomInvert",
    "RandomPosterize",
    "RandomRotation",
    "RandomSolarize",
    "TrivialAugmentWide",
    "View",
]
