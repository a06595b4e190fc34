"""Views: several versions of one image, each with its own crop and augmentation."""

from __future__ import annotations

from collections.abc import Sequence

from packer.augment._base import Augmentation, chain_of
from packer.augment._settings import named
from packer.crops import Compose, Crop
from packer.crops._crop import Frozen
from packer.errors import OptionTypeError


class View(Frozen):
    """One of the versions of each image that a dataset makes for self-supervised learning.

    ``[View(RandomResizedCrop(224, flip=0.5), augment=[...])] * 2`` makes SimCLR's two views, and
    ``[first, second] + [View(RandomResizedCrop(96, scale=(0.05, 0.4), flip=0.5), augment=[...])] * 8`` the views of
    DINO's multi-crop. Views are immutable; two with equal settings are equal.

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
