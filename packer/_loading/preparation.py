"""What is done to an image on its way into an item: what packer does before decoding, and what a transform does."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from packer.crops import Crop
from packer.crops._transforms import draws_nothing, split, takes_tensors

__all__ = ["OUTPUTS", "Preparation", "Transform", "preparation_of"]

OUTPUTS = ("tensor", "numpy", "pil", "bytes")

Transform = Callable[[Any], Any] | None


class Preparation(NamedTuple):
    """The steps from a sample to an item, in their order.

    Attributes
    ----------
    crop : Crop, optional
        What packer does: which part of the image is decoded, at which size.
    output : one of OUTPUTS
        The form in which the transforms get the image.
    transform, target_transform : callable, optional
        What is left to do with the image, and with the label.
    transforms : callable, optional
        What is done with both together.
    """

    crop: Crop | None
    output: str
    transform: Transform
    target_transform: Transform
    transforms: Callable[[Any, Any], tuple[Any, Any]] | None

    @property
    def interleaved(self) -> bool:
        """Whether a transform may draw random numbers: each crop is then drawn just before its image is transformed."""
        random = self.transforms is not None or not draws_nothing(self.transform)
        return self.crop is not None and self.crop.randoms > 0 and random

    @property
    def leaves_pixels(self) -> bool:
        """Whether the item's image is the tensor that was decoded."""
        return self.output == "tensor" and self.transform is None and self.transforms is None

    def item(self, image: Any, label: Any) -> tuple[Any, Any]:
        """Return the item of a decoded image and a label."""
        if self.transforms is not None:
            return self.transforms(image, label)
        if self.transform is not None:
            image = self.transform(image)
        return image, label if self.target_transform is None else self.target_transform(label)

    def __str__(self) -> str:
        """Say what runs where, in one line."""
        own = f"packer: {self.crop!r}" if self.crop is not None else ""
        left = self.transform if self.transforms is None else self.transforms
        others = " ".join(f"then: {left!r}".split()) if left is not None else ""
        return ", ".join(filter(None, [own, f"output={self.output!r}", others]))


def preparation_of(
    crop: Crop | None,
    output: str | None,
    transform: Transform,
    target_transform: Transform,
    transforms: Callable[[Any, Any], tuple[Any, Any]] | None,
    *,
    fuse: bool,
) -> Preparation:
    """Return the steps that a dataset's settings mean.

    Parameters
    ----------
    output : one of OUTPUTS, optional
        By default what the transform takes: a PIL image, as ImageFolder gives, unless the transform is one of
        torchvision's that takes tensors only; a tensor where there is no transform.
    fuse : bool
        Whether packer does what `transform` begins with, as far as it can.
    """
    if output is None:
        unchanged = transform is None and transforms is None
        output = "tensor" if unchanged or takes_tensors(transform) else "pil"
    if fuse and transform is not None and output != "bytes":
        crop, rest = split(transform)
        if crop is None:
            warnings.warn(
                "fuse=True changes nothing: packer cannot do what the transform begins with, "
                + " ".join(repr(transform).split()),
                stacklevel=2,
            )
        transform = rest
    return Preparation(crop, output, transform, target_transform, transforms)
