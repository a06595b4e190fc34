"""What is done to an image on its way into an item: what packer does before decoding, and what a transform does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from packer._loading.lookup import Lookup, lookup_of
from packer.crops import Crop
from packer.crops._kinds import begins_with_pil
from packer.crops._split import pointwise, split_by
from packer.errors import warn

__all__ = ["OUTPUTS", "Preparation", "Transform", "in_form", "preparation_of", "require_callable"]

OUTPUTS = ("tensor", "numpy", "pil", "bytes")

Transform = Callable[[Any], Any] | None


class Preparation(NamedTuple):
    """The steps from a sample to an item, in their order.

    Attributes
    ----------
    crop : Crop, optional
        What packer does: which part of the image is decoded, at which size.
    output : one of OUTPUTS
        The form of the image before the transforms, unless there is a `lookup`.
    lookup : Lookup, optional
        Conversions that packer does, in place of bringing the image into that form; they make tensors.
    transform, target_transform : callable, optional
        What is left to do with the image, and with the label.
    transforms : callable, optional
        What is done with both together.
    """

    crop: Crop | None
    output: str
    lookup: Lookup | None
    transform: Transform
    target_transform: Transform
    transforms: Callable[[Any, Any], tuple[Any, Any]] | None

    @property
    def interleaved(self) -> bool:
        """Whether a transform may draw random numbers: each crop is then drawn just before its image is transformed."""
        random = self.transforms is not None or pointwise(self.transform)[1] is not None
        return self.crop is not None and self.crop.randoms > 0 and random

    @property
    def leaves_pixels(self) -> bool:
        """Whether the item's image is the tensor that was decoded."""
        return self.output == "tensor" and not (self.lookup or self.transform or self.transforms)

    @property
    def row_size(self) -> tuple[int, int] | None:
        """Height and width of the images where each becomes numbers of a lookup, and nothing is left to do; or None."""
        ends = self.lookup is not None and self.transform is None and self.transforms is None
        return self.crop.size if ends and self.crop is not None else None

    def shown(self, pixels: npt.NDArray[np.uint8]) -> Any:
        """Return (height, width, 3) uint8 pixels as the transforms take them."""
        return in_form(self.output, pixels) if self.lookup is None else self.lookup(pixels)

    def item(self, image: Any, label: Any) -> tuple[Any, Any]:
        """Return the item of a decoded image and a label."""
        if self.transforms is not None:
            return self.transforms(image, label)
        if self.transform is not None:
            image = self.transform(image)
        return image, label if self.target_transform is None else self.target_transform(label)

    def __str__(self) -> str:
        """Say what runs where, in one line."""
        own = ", ".join(f"{step!r}" for step in (self.crop, self.lookup) if step is not None)
        own = f"packer: {own}" if own else ""
        left = self.transform if self.transforms is None else self.transforms
        others = " ".join(f"then: {left!r}".split()) if left is not None else ""
        form = f"output={self.output!r}" if self.lookup is None else ""
        return ", ".join(filter(None, [own, form, others]))


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
        output = "tensor" if unchanged or (transform and begins_with_pil(transform) is False) else "pil"
    lookup = None
    if fuse and (transform is None or transforms is not None or output == "bytes"):
        warn("fuse=True changes nothing without transform=, or with output='bytes'")
    elif fuse and transform is not None:
        # An array is nothing that torchvision's crops take.
        crop, rest = (None, transform) if output == "numpy" else split_by(transform, output == "tensor")
        conversions, left = pointwise(rest)
        lookup = lookup_of(conversions, lambda pixels: in_form(output, pixels)) if conversions else None
        if crop is None and lookup is None:
            warn(
                "fuse=True changes nothing: packer cannot do what the transform begins with, "
                + " ".join(repr(transform).split())
            )
        transform = rest if lookup is None else left
    return Preparation(crop, output, lookup, transform, target_transform, transforms)


def require_callable(name: str, transform: object) -> None:
    """Raise TypeError where a transform is none."""
    if transform is not None and not callable(transform):
        raise TypeError(f"{name} is what is applied to each image or label, a callable, not {transform!r}")


def in_form(output: str, pixels: npt.NDArray[np.uint8]) -> Any:
    """Return (height, width, 3) uint8 pixels in the form that a dataset's `output` says."""
    if output == "tensor":
        return torch.from_numpy(pixels).permute(2, 0, 1)
    return pixels if output == "numpy" else Image.fromarray(pixels)
