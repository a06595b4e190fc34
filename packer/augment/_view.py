"""Views: several images of one, each with a crop and an augmentation of its own."""

from __future__ import annotations

from collections.abc import Sequence

from packer.augment._base import Augmentation, chain_of
from packer.augment._settings import named
from packer.crops import Compose, Crop
from packer.crops._crop import Frozen
from packer.errors import OptionTypeError


class View(Frozen):
    """One of several images that a dataset makes of each of its images, as self-supervised learning needs them.

    ``[View(RandomResizedCrop(224, flip=0.5), augment=[...])] * 2`` are SimCLR's two views, and ``[first, second] +
    [View(RandomResizedCrop(96, scale=(0.05, 0.4), flip=0.5), augment=[...])] * 8`` those of DINO's multi-crop.
    Views are frozen: equal settings, equal views.

    Parameters
    ----------
    crop : Crop or sequence of Crop
        Which part of the image is shown, at which size.
    augment : Augmentation or sequence of Augmentation, optional
        The augmentation of the pixels of the crop.

    Raises
    ------
    TypeError
        If one is no crop or augmentation of packer.
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
        """How many random numbers an image needs."""
        return self.crop.randoms + (0 if self.augment is None else self.augment.randoms)
